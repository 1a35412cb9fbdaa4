package ctxshutdown_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// FuzzScopes_AgreeWithModel runs random sequences of operations on a tree of scopes and on a model
// of the tree, and compares everything that can be observed. Between two operations it observes
// nothing, because an observation updates a scope, and a scope must be right without that as well.
func FuzzScopes_AgreeWithModel(f *testing.F) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 9))
		program := make([]byte, 20+r.IntN(200))
		for i := range program {
			program[i] = byte(r.Uint32())
		}
		f.Add(program)
	}
	f.Fuzz(func(t *testing.T, program []byte) {
		synctest.Test(t, func(t *testing.T) {
			h := newHistory(t)
			for len(program) > 1 && !t.Failed() {
				program = h.step(program)
			}
			h.end()
		})
	})
}

// modelScope is the model of a scope.
//
// A modelled scope is stopped by its own Shutdown or by the context that it derives from. That
// context is the scope above, the Work of the scope above, or a context without cancellation. In
// each case the guards of the modelled scope count in all scopes above.
type modelScope struct {
	up     *modelScope // nil for the root
	from   tierKind
	kids   []*modelScope
	guards int

	stop   error // the cause of the stop; nil while the scope runs
	force  error // the cause given to Force of this scope; nil without a Force
	worked bool  // Work has been called
	done   bool  // the scope is complete, or was complete until a guard was acquired after the stop
	seen   bool  // State has returned Complete, or a Completion has resolved
	cut    error // why the context Work has ended; nil while it has not ended
	open   []*modelCompletion
}

type tierKind int

const (
	softTier tierKind = iota
	hardTier
	noTier
	tierKinds
)

type modelCompletion struct {
	resolved bool
	real     *ctxshutdown.Completion
}

func (m *modelScope) held() int {
	n := m.guards
	for _, k := range m.kids {
		n += k.held()
	}
	return n
}

func (m *modelScope) state() ctxshutdown.State {
	switch {
	case m.stop == nil:
		return ctxshutdown.Running
	case m.held() > 0:
		return ctxshutdown.ShuttingDown
	}
	return ctxshutdown.Complete
}

// hasBeenSeenComplete reports whether the test may have observed that m is complete: on m itself,
// or on an ancestor whose stop also stops m. If such an ancestor is complete, so is m.
func (m *modelScope) hasBeenSeenComplete() bool {
	return m.seen || m.up != nil && m.from == softTier && m.up.hasBeenSeenComplete()
}

// forced returns the cause of the Force of m, or of the nearest scope above m that was forced.
func (m *modelScope) forced() error {
	for ; m != nil; m = m.up {
		if m.force != nil {
			return m.force
		}
	}
	return nil
}

// end ends the soft or the hard context of m with the given cause, and also ends the scopes that
// derive from that context.
func (m *modelScope) end(tier tierKind, cause error) {
	at := &m.stop
	if tier == hardTier {
		at = &m.cut
	}
	if *at != nil {
		return
	}
	*at = cause
	for _, k := range m.kids {
		if k.from == tier {
			k.end(softTier, cause)
		}
	}
}

func (m *modelScope) forceAll(cause error) {
	if m.worked {
		m.end(hardTier, cause)
	}
	for _, k := range m.kids {
		k.forceAll(cause)
	}
}

// settle resolves the completions of complete scopes and ends their Work, beginning with the scopes
// that have no children. The end of a Work can stop other scopes and so complete them.
func (m *modelScope) settle() (again bool) {
	for _, k := range m.kids {
		again = k.settle() || again
	}
	if m.state() != ctxshutdown.Complete {
		return again
	}
	m.done = true
	for _, c := range m.open {
		c.resolved, m.seen = true, true
	}
	if m.worked && m.cut == nil {
		cause := m.forced()
		if cause == nil {
			cause = ctxshutdown.ErrShutdown
		}
		m.end(hardTier, cause)
		again = true
	}
	return again
}

// history is a tree of scopes together with its model.
type history struct {
	t      *testing.T
	cancel context.CancelCauseFunc // cancels the context that the root derives from
	model  []*modelScope
	real   []*ctxshutdown.Swansong
	held   []heldGuard
	log    []string
	causes int
}

type heldGuard struct {
	of      *modelScope
	guard   *ctxshutdown.Guard // nil if the guard belongs to a function that was started with the method Go
	release func()             // releases the guard, or lets the function that Go has started return
}

func newHistory(t *testing.T) *history {
	ctx, cancel := context.WithCancelCause(context.Background())
	return &history{t: t, cancel: cancel, model: []*modelScope{{}}, real: []*ctxshutdown.Swansong{ctxshutdown.New(ctx)}}
}

func (h *history) cause() error {
	h.causes++
	return fmt.Errorf("cause %d", h.causes)
}

// context returns one of the contexts of scope i. It also returns the error with which that context
// has ended in the model.
func (h *history) context(i int, tier tierKind) (ctx context.Context, ended error) {
	m, s := h.model[i], h.real[i]
	switch tier {
	case softTier:
		return s, m.stop
	case hardTier:
		h.work(i)
		return s.Work(), m.cut
	}
	return context.WithoutCancel(s), nil
}

// work models the first call of Work, which returns an ended context if the scope is forced, is
// complete, or was complete before a late guard. In one case Work may be alive although the scope
// was complete. A scope learns that an ancestor context has ended only when one of the scope's
// methods is called. Work may be alive if a guard is acquired before that, and no method has
// reported the completion of the scope or of a scope above in between.
func (h *history) work(i int) {
	m := h.model[i]
	m.worked = true
	if cause := m.forced(); cause != nil {
		m.end(hardTier, cause)
	} else if m.done && (m.hasBeenSeenComplete() || h.real[i].Work().Err() != nil) {
		m.end(hardTier, ctxshutdown.ErrShutdown)
	}
	h.settle()
}

func (h *history) settle() {
	for h.model[0].settle() {
	}
}

const mostScopes = 12

// step runs the operation that the first bytes of program encode, and returns the rest.
func (h *history) step(program []byte) []byte {
	op, arg := program[0]%16, int(program[1])
	i := arg % len(h.real)
	m, s := h.model[i], h.real[i]
	tier := tierKind(arg / len(h.real) % int(tierKinds))
	hold := func(g *ctxshutdown.Guard) {
		m.guards++
		h.held = append(h.held, heldGuard{m, g, g.Release})
	}
	switch op {
	case 0, 1:
		h.did("Guard of %d", i)
		hold(s.Guard())
	case 2, 3:
		h.did("TryGuard of %d", i)
		g, ok := s.TryGuard()
		h.equal("admitted", ok, m.stop == nil)
		if ok {
			hold(g)
		}
	case 4:
		h.did("Acquire of tier %d of %d", tier, i)
		ctx, ended := h.context(i, tier)
		g, ok := ctxshutdown.Acquire(ctx)
		h.equal("acquired", ok, ended == nil)
		if ok {
			hold(g)
		}
	case 5:
		h.did("Go of %d", i)
		over := make(chan struct{})
		ok := s.Go(func(context.Context) { <-over })
		h.equal("started", ok, m.stop == nil)
		if ok {
			h.work(i)
			m.guards++
			h.held = append(h.held, heldGuard{m, nil, func() { close(over) }})
		}
	case 6, 7, 8:
		if len(h.held) > 0 {
			n := arg % len(h.held)
			h.did("release of guard %d", n)
			h.held[n].release()
			h.held[n].of.guards--
			h.held[n].guard.Release() // this Release does nothing, because the guard has been released
			h.held = slices.Delete(h.held, n, n+1)
		}
	case 9:
		if len(h.held) > 0 && h.held[arg%len(h.held)].guard != nil {
			g := h.held[arg%len(h.held)]
			h.did("clone of guard %d", arg%len(h.held))
			m = g.of
			hold(g.guard.Clone())
		}
	case 10, 11:
		if len(h.real) < mostScopes {
			h.did("child of tier %d of %d", tier, i)
			ctx, ended := h.context(i, tier)
			kid := &modelScope{up: m, from: tier, stop: ended}
			m.kids = append(m.kids, kid)
			h.model = append(h.model, kid)
			h.real = append(h.real, child(ctx))
		}
	case 12:
		if i == 0 && arg%2 == 1 {
			h.did("end of the context of 0")
			cause := h.cause()
			h.cancel(cause)
			m.end(softTier, cause)
			break
		}
		cause := h.cause()
		h.did("Shutdown of %d", i)
		m.end(softTier, cause)
		h.watch(m, s.ShutdownCause(cause))
	case 13:
		h.did("Force of %d", i)
		cause := h.cause()
		if m.force == nil {
			m.force = cause
			if above := m.up.forced(); above != nil {
				m.force = above
			}
		}
		m.end(softTier, cause)
		// settle ends the Work of a scope that is already complete. The cause is that of the Force
		// of the scope itself, or of the Force of the closest scope above it.
		h.settle()
		m.forceAll(m.forced())
		h.watch(m, s.Force(cause))
	case 14:
		h.did("Completion of %d", i)
		h.watch(m, s.Completion())
	case 15:
		h.did("look at %d", i)
		synctest.Wait()
		h.settle()
		h.compare(i)
	}
	// If a context has ended, package context may still be ending the contexts of the scopes below
	// it, on another goroutine. Wait until that is done.
	synctest.Wait()
	h.settle()
	return program[2:]
}

func (h *history) watch(m *modelScope, c *ctxshutdown.Completion) {
	m.open = append(m.open, &modelCompletion{real: c})
	h.settle()
}

func (h *history) did(format string, args ...any) {
	h.log = append(h.log, fmt.Sprintf(format, args...))
}

func (h *history) equal(what string, got, want any) {
	h.t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateErrors()); diff != "" {
		h.t.Errorf("%s (-want +got):\n%s%q", what, diff, h.log)
	}
}

// compare compares everything that can be observed of scope i with the model. It compares Work only
// if Work was called before, because a call would create it.
func (h *history) compare(i int) {
	h.t.Helper()
	m, s := h.model[i], h.real[i]
	type view struct {
		State      ctxshutdown.State
		Guards     int
		Err, Cause error
		Cut        error
		Resolved   []bool
	}
	want := view{State: m.state(), Guards: m.held(), Cause: m.stop, Cut: m.cut}
	if m.stop != nil {
		want.Err = context.Canceled
	}
	got := view{State: s.State(), Guards: s.GuardCount(), Err: s.Err(), Cause: context.Cause(s)}
	if m.worked {
		got.Cut = context.Cause(s.Work())
	}
	for _, c := range m.open {
		want.Resolved = append(want.Resolved, c.resolved)
		got.Resolved = append(got.Resolved, isResolved(c.real))
	}
	m.seen = m.seen || got.State == ctxshutdown.Complete
	h.equal(fmt.Sprintf("scope %d", i), got, want)
}

// end compares all scopes with the model, stops all scopes, releases all guards, and compares
// again.
func (h *history) end() {
	h.t.Helper()
	for i := range h.real {
		h.compare(i)
	}
	for i, s := range h.real {
		h.model[i].end(softTier, ctxshutdown.ErrShutdown)
		h.watch(h.model[i], s.Shutdown())
	}
	for _, g := range h.held {
		g.release()
		g.of.guards--
	}
	h.did("the end")
	h.cancel(errors.New("the end"))
	synctest.Wait()
	h.settle()
	for i := range h.real {
		h.compare(i)
	}
}
