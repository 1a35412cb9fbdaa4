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

// parents has the number of the parent of each scope.
var parents = []int{-1, 0, 1, 1}

const (
	goroutines = 3
	operations = 7
)

// TestConcurrentHistories runs random histories; SWANSONG_STRESS says how many, 1500 by default.
func TestConcurrentHistories(t *testing.T) {
	rounds := 1500
	if n, err := strconv.Atoi(os.Getenv("SWANSONG_STRESS")); err == nil {
		rounds = n
	}
	undecided := 0
	for round := range rounds {
		h := newHistory(uint64(round))
		h.run()
		h.over(t)
		switch porcupine.CheckOperationsTimeout(model, h.all(), time.Second) {
		case porcupine.Illegal:
			t.Fatalf("history %d has no order:\n%s", round, h)
		case porcupine.Unknown:
			undecided++
		}
	}
	if undecided > 0 {
		t.Logf("%d of %d histories were too much for the checker", undecided, rounds)
	}
}

// A history is a tree, and what a few goroutines do to it and see of it.
type history struct {
	scopes    []*ctxshutdown.Swansong
	asked     []atomic.Int32 // completions of each
	clock     atomic.Int64
	ready     atomic.Int32
	recorders []*recorder
}

// A recorder is one goroutine. It owns what it acquires.
type recorder struct {
	*history
	id          int
	random      *rand.Rand
	ops         []porcupine.Operation
	guards      []held
	completions []asked
}

type held struct {
	scope int
	*ctxshutdown.Guard
}

type asked struct {
	scope, number int
	*ctxshutdown.Completion
}

func newHistory(seed uint64) *history {
	h := &history{asked: make([]atomic.Int32, len(parents))}
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

func (h *history) run() {
	var wg sync.WaitGroup
	for _, r := range h.recorders {
		wg.Go(func() {
			for h.ready.Add(1); h.ready.Load() < goroutines; { // they are to begin together
				runtime.Gosched()
			}
			for range operations {
				r.step()
			}
		})
	}
	wg.Wait()
}

func (h *history) all() (ops []porcupine.Operation) {
	for _, r := range h.recorders {
		ops = append(ops, r.ops...)
	}
	return ops
}

func (h *history) String() string {
	ops := h.all()
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	var lines []string
	for _, op := range ops {
		lines = append(lines, describe(op))
	}
	return strings.Join(lines, "\n")
}

// over ends a history, whose answers are all known now: nothing may be left that waits.
func (h *history) over(t *testing.T) {
	limit, cancel := context.WithTimeout(context.Background(), 10*time.Second) // for broken code
	defer cancel()
	for _, r := range h.recorders {
		for _, g := range r.guards {
			g.Release()
		}
	}
	for _, s := range h.scopes {
		if err := s.Shutdown().Wait(limit); err != nil {
			t.Fatalf("%v after\n%s", err, h)
		}
	}
	for _, r := range h.recorders {
		for _, c := range r.completions {
			select {
			case <-c.Done():
			case <-limit.Done():
				t.Fatalf("completion %d of scope %d is not resolved after\n%s", c.number, c.scope, h)
			}
		}
	}
}

// did records an operation that has just returned.
func (r *recorder) did(call int64, events ...event) {
	end := r.clock.Add(1)
	for _, e := range events {
		r.ops = append(r.ops, porcupine.Operation{ClientId: r.id, Input: e, Call: call, Return: end})
	}
}

// acquired is what an acquisition does to the scopes above.
func acquired(at int) (events []event) {
	for ; at >= 0; at = parents[at] {
		events = append(events, event{kind: count, scope: at}, event{kind: passed, scope: at})
	}
	return events
}

func refused(at int) (events []event) {
	events = released(at)
	for ; at >= 0; at = parents[at] {
		events = append(events, event{kind: flicker, scope: at})
	}
	return events
}

func released(at int) (events []event) {
	for ; at >= 0; at = parents[at] {
		events = append(events, event{kind: uncount, scope: at})
	}
	return events
}

func under(n, top int) bool {
	for ; n >= 0; n = parents[n] {
		if n == top {
			return true
		}
	}
	return false
}

func (r *recorder) step() {
	at := len(r.scopes) - 1 // on which they meet most of the time
	if r.random.IntN(3) == 0 {
		at = r.random.IntN(len(r.scopes))
	}
	s := r.scopes[at]
	for range r.random.IntN(100) { // so that they do not go in step
		r.clock.Load()
	}
	do := r.random.IntN(16)
	call := r.clock.Add(1)
	switch {
	case do < 4:
		if g, ok := s.TryGuard(); ok {
			r.did(call, append(acquired(parents[at]), event{kind: admit, scope: at}, event{kind: passed, scope: at})...)
			r.guards = append(r.guards, held{at, g})
		} else {
			r.did(call, append(refused(at), event{kind: refuse, scope: at})...)
		}
	case do < 6:
		g := s.Guard()
		r.did(call, acquired(at)...)
		r.guards = append(r.guards, held{at, g})
	case do < 10 && len(r.guards) > 0:
		g := r.guards[0]
		r.guards = r.guards[1:]
		g.Release()
		r.did(call, released(g.scope)...)
	case do == 10:
		s.Shutdown()
		var told []event
		for n := range r.scopes {
			if under(n, at) {
				told = append(told, event{kind: signal, scope: n})
			}
		}
		r.did(call, told...)
	case do == 11:
		if n := int(r.asked[at].Add(1)) - 1; n < most {
			c := s.Completion()
			r.did(call, event{kind: ask, scope: at, completion: n})
			r.completions = append(r.completions, asked{at, n, c})
		}
	case do < 14 && len(r.completions) > 0:
		c := r.completions[r.random.IntN(len(r.completions))]
		resolved := false
		select {
		case <-c.Done():
			resolved = true
		default:
		}
		r.did(call, event{kind: look, scope: c.scope, completion: c.number, resolved: resolved})
	default:
		seen := s.State()
		r.did(call, event{kind: state, scope: at, state: seen})
	}
}
