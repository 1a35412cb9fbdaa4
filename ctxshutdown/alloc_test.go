package ctxshutdown_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// atDepth returns a scope with the given number of ancestors.
func atDepth(t *testing.T, depth int) *ctxshutdown.Swansong {
	s := ctxshutdown.New(t.Context())
	for range depth {
		s = child(s)
	}
	return s
}

func TestGuard_DoesNotAllocate(t *testing.T) {
	for _, depth := range []int{0, 1, 4} {
		s := atDepth(t, depth)
		var ctx context.Context = s
		work := s.Work()
		value := context.WithValue(ctx, key("k"), 1)
		for name, take := range map[string]func(){
			"Guard": func() {
				g := s.Guard()
				g.Release()
			},
			"TryGuard": func() {
				if g, ok := s.TryGuard(); ok {
					defer g.Release()
				}
			},
			"Clone": func() {
				g := s.Guard()
				defer g.Release()
				defer g.Clone().Release()
			},
			"Acquire": func() {
				if g, ok := ctxshutdown.Acquire(ctx); ok {
					defer g.Release()
				}
			},
			"Acquire through a context": func() {
				if g, ok := ctxshutdown.Acquire(value); ok {
					defer g.Release()
				}
			},
			"Acquire on Work": func() {
				if g, ok := ctxshutdown.Acquire(work); ok {
					defer g.Release()
				}
			},
			"Err and State": func() {
				if s.Err() != nil || s.State() != ctxshutdown.Running {
					t.Error("the scope has ended without a stop")
				}
			},
		} {
			t.Run(fmt.Sprintf("%s at depth %d", name, depth), func(t *testing.T) {
				if n := testing.AllocsPerRun(1000, take); n != 0 {
					t.Errorf("%v allocations, want none", n)
				}
			})
		}
	}
}

// A running child scope for which no standard context was created takes at most 300 bytes. That
// includes a guard and a cancel function that have escaped to the heap.
func TestWithCancel_ChildTakesLittleMemory(t *testing.T) {
	const n, most = 10_000, 300
	type part struct {
		guard  *ctxshutdown.Guard
		cancel context.CancelFunc
	}
	root, parts := atDepth(t, 0), make([]part, n)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range parts {
		s, cancel := ctxshutdown.WithCancel(root)
		parts[i] = part{s.Guard(), cancel}
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / n; each > most {
		t.Errorf("a child takes %d bytes, want at most %d", each, most)
	}
	for _, p := range parts {
		p.guard.Release()
		p.cancel()
	}
}

// After the stop, neither the acquisition of a guard nor the refusal of one allocates.
func TestGuard_DoesNotAllocateAfterStop(t *testing.T) {
	for _, depth := range []int{0, 4} {
		s := atDepth(t, depth)
		held := s.Guard()
		s.Shutdown()
		for name, take := range map[string]func(){
			"Guard": func() {
				g := s.Guard()
				g.Release()
			},
			"TryGuard": func() {
				if _, ok := s.TryGuard(); ok {
					t.Error("a stopped scope admits a guard")
				}
			},
			"Acquire": func() {
				if _, ok := ctxshutdown.Acquire(s); ok {
					t.Error("a stopped scope admits a guard")
				}
			},
		} {
			t.Run(fmt.Sprintf("%s at depth %d", name, depth), func(t *testing.T) {
				if n := testing.AllocsPerRun(1000, take); n != 0 {
					t.Errorf("%v allocations, want none", n)
				}
			})
		}
		held.Release()
	}
}

// Creating a child scope allocates twice: the scope and its cancel function. Creating a Completion
// allocates once.
func TestWithCancel_AllocatesAtMostTwice(t *testing.T) {
	for _, depth := range []int{0, 4} {
		s := atDepth(t, depth)
		for _, test := range []struct {
			name string
			most float64
			do   func()
		}{
			{"child and cancel", 2, func() {
				_, cancel := ctxshutdown.WithCancel(s)
				cancel()
			}},
			{"child, guard and cancel", 2, func() {
				c, cancel := ctxshutdown.WithCancel(s)
				defer cancel()
				g := c.Guard()
				g.Release()
			}},
			{"Completion", 1, func() { s.Completion() }},
		} {
			t.Run(fmt.Sprintf("%s at depth %d", test.name, depth), func(t *testing.T) {
				if n := testing.AllocsPerRun(1000, test.do); n > test.most {
					t.Errorf("%v allocations, want at most %v", n, test.most)
				}
			})
		}
	}
}

// The test sees the inlining by the allocations: a loop into which the compiler has inlined Seq has
// none. See docs/internals/core.md#cost-of-go.
func TestSeq_IsInlinedWithKnownSequence(t *testing.T) {
	s, numbers, sum := ctxshutdown.New(t.Context()), []int{1, 2, 3}, 0
	n := testing.AllocsPerRun(1000, func() {
		for v := range ctxshutdown.Seq(s, slices.Values(numbers)) {
			sum += v
		}
		for i, v := range ctxshutdown.Seq2(s, slices.All(numbers)) {
			sum += i + v
		}
	})
	if n != 0 && testing.CoverMode() == "" { // the counters of the coverage make Seq too large to be inlined
		t.Errorf("%v allocations, want 0", n)
	}
	if sum == 0 {
		t.Error("the loops have had no elements")
	}
}
