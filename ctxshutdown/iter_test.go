package ctxshutdown_test

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"runtime"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/internal/testkit"
)

// queue is a sequence that removes each element that it yields. So an element that is pulled from
// the queue and not passed to the loop body is lost.
type queue struct {
	left  []int
	onPop func(popped int)
}

func queueOf(n int) *queue {
	q := &queue{onPop: func(int) {}}
	for i := range n {
		q.left = append(q.left, i)
	}
	return q
}

func (q *queue) pop() int {
	v := q.left[0]
	q.left = q.left[1:]
	q.onPop(v)
	return v
}

func (q *queue) all(yield func(int) bool) {
	for len(q.left) > 0 && yield(q.pop()) {
	}
}

func (q *queue) pairs(yield func(int, string) bool) {
	for len(q.left) > 0 {
		if v := q.pop(); !yield(v, fmt.Sprint(v)) {
			return
		}
	}
}

// loops are the ways to iterate over a queue until ctx is done.
var loops = map[string]func(ctx context.Context, q *queue, body func(v int) bool){
	"Seq": func(ctx context.Context, q *queue, body func(v int) bool) {
		for v := range ctxshutdown.Seq(ctx, q.all) {
			if !body(v) {
				break
			}
		}
	},
	"Seq2": func(ctx context.Context, q *queue, body func(v int) bool) {
		for v, text := range ctxshutdown.Seq2(ctx, q.pairs) {
			if text != fmt.Sprint(v) {
				panic("not a pair")
			}
			if !body(v) {
				break
			}
		}
	},
	"All": func(ctx context.Context, q *queue, body func(v int) bool) {
		ch := make(chan int, len(q.left))
		for _, v := range q.left {
			ch <- v
		}
		close(ch)
		for v := range ctxshutdown.All(ctx, ch) {
			q.pop()
			if !body(v) {
				break
			}
		}
		if len(ch) != len(q.left) {
			panic("the channel was left with another number of elements")
		}
	},
	"Seq within Seq": func(ctx context.Context, q *queue, body func(v int) bool) {
		for v := range ctxshutdown.Seq(ctx, ctxshutdown.Seq(ctx, q.all)) {
			if !body(v) {
				break
			}
		}
	},
	"Seq by iter.Pull": func(ctx context.Context, q *queue, body func(v int) bool) {
		next, stop := iter.Pull(ctxshutdown.Seq(ctx, q.all))
		defer stop()
		for v, ok := next(); ok && body(v); v, ok = next() {
		}
	},
}

// The scope is stopped in a loop body, or while an element is being pulled. Every element that was
// pulled is passed to a loop body, and that body runs to its end. All other elements are still in
// the queue.
func TestLoops_PassEveryPulledElementToBody(t *testing.T) {
	const n = 10
	for name, loop := range loops {
		for _, when := range []string{"stopped in a body", "stopped in a pull"} {
			if when == "stopped in a pull" && name == "All" {
				continue // the sequence of All only receives from a channel, which runs no code that could stop the scope
			}
			t.Run(name+"/"+when, func(t *testing.T) {
				for k := range n + 1 {
					onTiers(t, func(t *testing.T, ctx context.Context, end func()) {
						q := queueOf(n)
						if when == "stopped in a pull" {
							q.onPop = func(popped int) {
								if popped == k {
									end()
								}
							}
						}
						if k == n {
							end() // the context ends before the loop begins
						}
						var done []int
						loop(ctx, q, func(v int) bool {
							if when == "stopped in a body" && v == k {
								end()
							}
							done = append(done, v) // a stop in the body does not end the body
							return true
						})
						want := k + 1
						if k == n {
							want = 0
						}
						if diff := cmp.Diff(queueOf(want).left, done, cmpopts.EquateEmpty()); diff != "" {
							t.Errorf("stopped at %d, done (-want +got):\n%s", k, diff)
						}
						if diff := cmp.Diff(queueOf(n).left[want:], q.left, cmpopts.EquateEmpty()); diff != "" {
							t.Errorf("stopped at %d, left (-want +got):\n%s", k, diff)
						}
					})
				}
			})
		}
	}
}

func TestLoops_YieldAllElements(t *testing.T) {
	for name, loop := range loops {
		t.Run(name, func(t *testing.T) {
			onTiers(t, func(t *testing.T, ctx context.Context, _ func()) {
				var done []int
				loop(ctx, queueOf(10), func(v int) bool {
					done = append(done, v)
					return true
				})
				testkit.Equal(t, "elements", done, queueOf(10).left)
			})
		})
	}
}

func TestLoops_LeaveRemainingElementsAfterBreak(t *testing.T) {
	for name, loop := range loops {
		t.Run(name, func(t *testing.T) {
			onTiers(t, func(t *testing.T, ctx context.Context, end func()) {
				q := queueOf(10)
				loop(ctx, q, func(v int) bool { return v < 3 })
				testkit.Equal(t, "left after the break", q.left, []int{4, 5, 6, 7, 8, 9})
				loop(ctx, q, func(v int) bool { end(); return false })
				testkit.Equal(t, "left after a break at the stop", q.left, []int{5, 6, 7, 8, 9})
			})
		})
	}
}

// A sequence that Seq or Seq2 returns can be iterated again if its source can be.
func TestSeq_CanBeIteratedTwice(t *testing.T) {
	onTiers(t, func(t *testing.T, ctx context.Context, end func()) {
		seq := ctxshutdown.Seq(ctx, slices.Values([]int{1, 2, 3}))
		pairs := ctxshutdown.Seq2(ctx, maps.All(map[int]string{1: "one"}))
		for range 2 {
			if diff := cmp.Diff([]int{1, 2, 3}, slices.Collect(seq)); diff != "" || len(maps.Collect(pairs)) != 1 {
				t.Errorf("elements of the second iteration (-want +got):\n%s", diff)
			}
		}
		end()
		if got, pairs := slices.Collect(seq), maps.Collect(pairs); len(got) != 0 || len(pairs) != 0 {
			t.Errorf("after the stop: %v, %v", got, pairs)
		}
	})
}

// If the scope is stopped in the inner one of two nested loops, both loops end when their current
// bodies have run to the end.
func TestSeq_StopInInnerLoopEndsBothLoopsAfterTheirBodies(t *testing.T) {
	onTiers(t, func(t *testing.T, ctx context.Context, end func()) {
		outer, inner := queueOf(3), queueOf(5)
		var done [][2]int
		for a := range ctxshutdown.Seq(ctx, outer.all) {
			for b := range ctxshutdown.Seq(ctx, inner.all) {
				done = append(done, [2]int{a, b})
				if b == 1 {
					end()
				}
			}
		}
		if diff := cmp.Diff([][2]int{{0, 0}, {0, 1}}, done); diff != "" || len(outer.left) != 2 || len(inner.left) != 3 {
			t.Errorf("elements left: %v and %v; elements handled (-want +got):\n%s", outer.left, inner.left, diff)
		}
	})
}

// If the loop body or the source panics or calls runtime.Goexit, the loop ends and deferred calls
// run. The panic reaches the caller.
func TestLoops_PanicAndGoexitEndLoop(t *testing.T) {
	for name, loop := range loops {
		for cause, act := range map[string]func(){"panic": func() { panic(errCause) }, "Goexit": runtime.Goexit} {
			for _, in := range []string{"body", "source"} {
				if name == "All" && in == "source" {
					continue
				}
				t.Run(fmt.Sprint(name, ", ", cause, " in the ", in), func(t *testing.T) {
					s := ctxshutdown.New(t.Context())
					q := queueOf(5)
					body := func(int) bool { return true }
					if in == "body" {
						body = func(int) bool { act(); return true }
					} else {
						q.onPop = func(int) { act() }
					}
					var recovered any
					over := make(chan struct{})
					go func() {
						defer close(over)
						defer func() { recovered = recover() }()
						defer s.Guard().Release()
						loop(s, q, body)
						t.Error("the loop continues")
					}()
					await(t, over)
					if want := map[string]any{"panic": errCause, "Goexit": nil}[cause]; recovered != want {
						t.Errorf("recovered %v, want %v", recovered, want)
					}
					if len(q.left) != 4 || s.GuardCount() != 0 {
						t.Errorf("elements left: %v; guards held: %d", q.left, s.GuardCount())
					}
				})
			}
		}
	}
}
