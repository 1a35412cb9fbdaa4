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

// FuzzHistories runs sequential histories of everything that can happen to a tree of scopes, on scopes and on a model of
// them, and compares what can be seen. Nothing else is looked at on the way: a look brings a scope up to date, and a scope
// that nobody has looked at has to be right, too.
func FuzzHistories(f *testing.F) {
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

// A modelScope is what there is to know of a scope.
//
// Its signal comes from its own Shutdown, or from what it derives from: the soft tier of the scope above, its Work, or
// nothing (WithoutCancel). Its guards count in all scopes above, whatever it derives from.
type modelScope struct {
	up     *modelScope // nil for the root
	from   tierKind
	kids   []*modelScope
	guards int

	stop   error // the cause of the stop, nil while it runs
	force  error // the cause of a Force of this scope
	worked bool  // somebody has asked for Work
	cut    error // the cause of the end of Work
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

// forced returns the cause of the nearest Force, here or above.
func (m *modelScope) forced() error {
	for ; m != nil; m = m.up {
		if m.force != nil {
			return m.force
		}
	}
	return nil
}

// end is the end of a tier of m, and so of every scope that derives from it.
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

// settle resolves what a complete scope lets go, from below: by that others may be told to stop, and be complete.
func (m *modelScope) settle() (again bool) {
	for _, k := range m.kids {
		again = k.settle() || again
	}
	if m.state() != ctxshutdown.Complete {
		return again
	}
	for _, c := range m.open {
		c.resolved = true
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

// A history is a tree twice: as a model, and real.
type history struct {
	t      *testing.T
	cancel context.CancelCauseFunc // of what the root derives from
	model  []*modelScope
	real   []*ctxshutdown.Swansong
	held   []heldGuard
	log    []string
	causes int
}

type heldGuard struct {
	of      *modelScope
	guard   *ctxshutdown.Guard // nil where a function run by Go holds it
	release func()
}

func newHistory(t *testing.T) *history {
	ctx, cancel := context.WithCancelCause(context.Background())
	return &history{t: t, cancel: cancel, model: []*modelScope{{}}, real: []*ctxshutdown.Swansong{ctxshutdown.New(ctx)}}
}

func (h *history) cause() error {
	h.causes++
	return fmt.Errorf("cause %d", h.causes)
}

// context returns one of the contexts of a scope, and the error that ends it in the model.
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

// work asks for Work in the model: it is born ended where it would have ended before.
func (h *history) work(i int) {
	m := h.model[i]
	m.worked = true
	if cause := m.forced(); cause != nil {
		m.end(hardTier, cause)
	}
	h.settle()
}

func (h *history) settle() {
	for h.model[0].settle() {
	}
}

const mostScopes = 12

// step does what the first bytes of a program say, and returns the others.
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
			h.held[n].guard.Release() // again is a no-op
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
		h.settle() // what is complete now ends by its nearest Force, as does the rest
		m.forceAll(m.forced())
		h.watch(m, s.Force(cause))
	case 14:
		h.did("Completion of %d", i)
		h.watch(m, s.Completion())
	case 15:
		h.did("look at %d", i)
		synctest.Wait()
		h.settle()
		h.look(i)
	}
	// What a signal from above does to a scope that somebody watches, it does in a goroutine of package context.
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

// look compares all that can be seen of a scope without asking for what nobody has asked for.
func (h *history) look(i int) {
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
		got.Resolved = append(got.Resolved, resolved(c.real))
	}
	h.equal(fmt.Sprintf("scope %d", i), got, want)
}

// end looks at everything, and again when all has been stopped and released.
func (h *history) end() {
	h.t.Helper()
	for i := range h.real {
		h.look(i)
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
		h.look(i)
	}
}
