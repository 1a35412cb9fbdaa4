package histories_test

import (
	"context"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"go.uber.org/goleak"

	"github.com/swansong-go/swansong/ctxshutdown"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// parents has the index of the parent of each scope, -1 for the root.
var parents = []int{-1, 0, 1, 1}

const (
	goroutines = 3
	operations = 7 // number of operations of each goroutine
)

// TestScopes_ConcurrentCallsAgreeWithModel runs random histories, 1500 or the number in
// SWANSONG_STRESS. SWANSONG_SEED is the seed of all of them; by default each has its own. A seed
// determines the operations of each goroutine, but not how they interleave.
func TestScopes_ConcurrentCallsAgreeWithModel(t *testing.T) {
	rounds := 1500
	if n, err := strconv.Atoi(os.Getenv("SWANSONG_STRESS")); err == nil {
		rounds = n
	}
	undecided := 0
	for round := range rounds {
		seed := round
		if n, err := strconv.Atoi(os.Getenv("SWANSONG_SEED")); err == nil {
			seed = n
		}
		h := newHistory(uint64(seed))
		h.run()
		h.finish(t)
		switch porcupine.CheckOperationsTimeout(model, h.all(), time.Second) {
		case porcupine.Illegal:
			t.Fatalf("seed %d: no order of these operations explains their results:\n%s", seed, h)
		case porcupine.Unknown:
			undecided++
		}
	}
	if undecided > 0 {
		t.Logf("%d of %d histories took the checker too long", undecided, rounds)
	}
}

// A history is a tree of scopes and the recorded operations of a few goroutines on it.
type history struct {
	scopes    []*ctxshutdown.Swansong
	requested []atomic.Int32 // how often the completion of each scope has been requested
	clock     atomic.Int64   // logical time, incremented at each call and each return of an operation
	ready     atomic.Int32   // number of goroutines that are ready to begin
	recorders []*recorder
}

// A recorder is one goroutine of a history. Only this goroutine releases the guards that it
// acquires.
type recorder struct {
	*history
	id          int
	random      *rand.Rand
	ops         []porcupine.Operation
	guards      []scopeGuard
	completions []scopeCompletion
}

type scopeGuard struct {
	scope int
	*ctxshutdown.Guard
}

type scopeCompletion struct {
	scope, number int
	*ctxshutdown.Completion
}

// newHistory returns a history with a new tree. Nothing is recorded yet.
func newHistory(seed uint64) *history {
	h := &history{requested: make([]atomic.Int32, len(parents))}
	for _, up := range parents {
		if up < 0 {
			h.scopes = append(h.scopes, ctxshutdown.New(context.Background()))
		} else {
			s, _ := ctxshutdown.WithCancel(h.scopes[up])
			h.scopes = append(h.scopes, s)
		}
	}
	for id := range goroutines {
		h.recorders = append(h.recorders, &recorder{history: h, id: id, random: rand.New(rand.NewPCG(seed, uint64(id)))})
	}
	return h
}

// run lets the goroutines perform their operations, and returns when all have finished.
func (h *history) run() {
	var wg sync.WaitGroup
	for _, r := range h.recorders {
		wg.Go(func() {
			for h.ready.Add(1); h.ready.Load() < goroutines; { // wait for the other goroutines, so that all begin at the same time
				runtime.Gosched()
			}
			for range operations {
				r.step()
			}
		})
	}
	wg.Wait()
}

// all returns the recorded operations of all goroutines.
func (h *history) all() (ops []porcupine.Operation) {
	for _, r := range h.recorders {
		ops = append(ops, r.ops...)
	}
	return ops
}

// String returns the recorded operations, one per line, in the order of their calls.
func (h *history) String() string {
	ops := h.all()
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	var lines []string
	for _, op := range ops {
		lines = append(lines, describe(op))
	}
	return strings.Join(lines, "\n")
}

// finish releases all guards, stops all scopes, and checks that all completions are resolved.
func (h *history) finish(t *testing.T) {
	limit, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, r := range h.recorders {
		for _, g := range r.guards {
			g.Release()
		}
	}
	for _, s := range h.scopes {
		if err := s.Shutdown().Wait(limit); err != nil {
			t.Fatalf("a scope does not complete: %v, after\n%s", err, h)
		}
	}
	for _, r := range h.recorders {
		for _, c := range r.completions {
			select {
			case <-c.Done():
			case <-limit.Done():
				t.Fatalf("completion %d of scope %d is not resolved although the scope is complete, after\n%s", c.number, c.scope, h)
			}
		}
	}
}

// record records an operation that has just returned.
func (r *recorder) record(call int64, events ...event) {
	end := r.clock.Add(1)
	for _, e := range events {
		r.ops = append(r.ops, porcupine.Operation{ClientId: r.id, Input: e, Call: call, Return: end})
	}
}

// acquisition returns the events of acquiring a guard of the scope. The guard is counted on that
// scope and on each scope above it.
func acquisition(scope int) (events []event) {
	for ; scope >= 0; scope = parents[scope] {
		events = append(events, event{kind: count, scope: scope}, event{kind: returns, scope: scope})
	}
	return events
}

// refusal returns what a refused TryGuard on a scope does before it returns false: on that scope
// and on each scope above, its guard may be counted for a short time, and is then released. The
// refusal itself is another event, of the kind refuse.
func refusal(at int) (events []event) {
	events = release(at)
	for ; at >= 0; at = parents[at] {
		events = append(events, event{kind: countBriefly, scope: at})
	}
	return events
}

// release returns the events of the release of a guard: the scope with the index at and each of its
// ancestors count one guard less.
func release(at int) (events []event) {
	for ; at >= 0; at = parents[at] {
		events = append(events, event{kind: uncount, scope: at})
	}
	return events
}

// inSubtree reports whether n is top or a descendant of top.
func inSubtree(n, top int) bool {
	for ; n >= 0; n = parents[n] {
		if n == top {
			return true
		}
	}
	return false
}

// step performs a random operation and records it.
func (r *recorder) step() {
	at := len(r.scopes) - 1 // most operations use this scope, so that they interfere
	if r.random.IntN(3) == 0 {
		at = r.random.IntN(len(r.scopes))
	}
	s := r.scopes[at]
	for range r.random.IntN(100) { // delay the operation, by a random number of loads
		r.clock.Load()
	}
	do := r.random.IntN(16)
	call := r.clock.Add(1)
	switch {
	case do < 4:
		if g, ok := s.TryGuard(); ok {
			r.record(call, append(acquisition(parents[at]), event{kind: admit, scope: at}, event{kind: returns, scope: at})...)
			r.guards = append(r.guards, scopeGuard{at, g})
		} else {
			r.record(call, append(refusal(at), event{kind: refuse, scope: at})...)
		}
	case do < 6:
		g := s.Guard()
		r.record(call, acquisition(at)...)
		r.guards = append(r.guards, scopeGuard{at, g})
	case do < 10 && len(r.guards) > 0:
		g := r.guards[0]
		r.guards = r.guards[1:]
		g.Release()
		r.record(call, release(g.scope)...)
	case do == 10:
		s.Shutdown()
		var events []event
		for n := range r.scopes {
			if inSubtree(n, at) {
				events = append(events, event{kind: signal, scope: n})
			}
		}
		r.record(call, events...)
	case do == 11:
		if n := int(r.requested[at].Add(1)) - 1; n < maxCompletions {
			c := s.Completion()
			r.record(call, event{kind: request, scope: at, completion: n})
			r.completions = append(r.completions, scopeCompletion{at, n, c})
		}
	case do < 14 && len(r.completions) > 0:
		c := r.completions[r.random.IntN(len(r.completions))]
		resolved := false
		select {
		case <-c.Done():
			resolved = true
		default:
		}
		r.record(call, event{kind: poll, scope: c.scope, completion: c.number, resolved: resolved})
	default:
		result := s.State()
		r.record(call, event{kind: state, scope: at, state: result})
	}
}
