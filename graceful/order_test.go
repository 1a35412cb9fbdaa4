package graceful_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
)

// Three stages share twelve seconds. Each takes so long to drain once it has been told to stop.
func TestInOrder_Shares(t *testing.T) {
	const s = time.Second
	const never = time.Hour
	for _, test := range []struct {
		name    string
		take    [3]time.Duration
		extend  time.Duration // asked for when the drain begins
		stopped [3]time.Duration
		over    time.Duration
		want    string
	}{
		{"nobody needs any", [3]time.Duration{0, 0, 0}, 0, [3]time.Duration{0, 0, 0}, 0, ""},
		{"each after the other", [3]time.Duration{1 * s, 2 * s, 3 * s}, 0, [3]time.Duration{0, 1 * s, 3 * s}, 6 * s, ""},
		{"a slow first has a third", [3]time.Duration{11 * s, 0, 0}, 0, [3]time.Duration{0, 4 * s, 4 * s}, 11 * s, ""},
		{"a slow second has half of what is left", [3]time.Duration{2 * s, 11 * s, 0}, 0, [3]time.Duration{0, 2 * s, 7 * s}, 13 * s,
			"graceful: drained after force (not drained after 12s on rung Soft): 2 guards: main ×1, two ×1; also: " +
				"ctxshutdown: not drained when the wait ended (graceful: InOrder: out of time: graceful: not drained after 12s on rung Soft): 1 guard: two ×1; " +
				"wait longer, or cancel their Work with Force"},
		{"unused time flows on", [3]time.Duration{0, 0, 11 * s}, 0, [3]time.Duration{0, 0, 0}, 11 * s, ""},
		{"two slow ones", [3]time.Duration{never, never, 0}, 0, [3]time.Duration{0, 4 * s, 8 * s}, 14 * s, "abandoned"},
		{"three slow ones", [3]time.Duration{never, never, never}, 0, [3]time.Duration{0, 4 * s, 8 * s}, 14 * s, "abandoned"},
		{"three slow ones, and more time", [3]time.Duration{never, never, never}, 18 * s, [3]time.Duration{0, 6 * s, 12 * s}, 20 * s, "abandoned"},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(b *testRun) {
				began := time.Now().Add(s) // then the context of Run ends
				var stopped [3]time.Duration
				err := b.run(func(r *ctxshutdown.Swansong) error {
					var stages []*ctxshutdown.Swansong
					for i, name := range []string{"one", "two", "three"} {
						stage, _ := ctxshutdown.WithCancel(r.Work(), ctxshutdown.WithName(name))
						stages = append(stages, stage)
						stage.Go(func(context.Context) {
							<-stage.Done()
							stopped[i] = time.Since(began)
							time.Sleep(test.take[i])
						})
					}
					context.AfterFunc(r, func() {
						if test.extend > 0 {
							time.Sleep(s) // the first share has begun
							graceful.Extend(r, test.extend-s, "")
						}
					})
					return graceful.InOrder(r, stages...)
				}, graceful.WithSoft(12*s))
				over := time.Since(began)
				time.Sleep(2 * never) // whoever was abandoned ends
				synctest.Wait()
				equal(t, "stopped", stopped, test.stopped)
				equal(t, "over", over, test.over)
				if test.want == "abandoned" {
					equal(t, "exit code", graceful.ExitCode(err), 3)
				} else {
					equal(t, "error", text(err), test.want)
				}
			})
		})
	}
}

// A stage begins to stop when the one before it has drained, and not before: work may still flow from one to the next.
func TestInOrder_WorkFlowsDown(t *testing.T) {
	bubble(t, func(b *testRun) {
		var stored atomic.Int32
		err := b.run(func(s *ctxshutdown.Swansong) error {
			ingress, _ := ctxshutdown.WithCancel(s.Work(), ctxshutdown.WithName("ingress"))
			storage, _ := ctxshutdown.WithCancel(s.Work(), ctxshutdown.WithName("storage"))
			for range 10 {
				ingress.Go(func(context.Context) {
					<-ingress.Done()
					time.Sleep(time.Second)
					if g, ok := storage.TryGuard(); ok {
						stored.Add(1)
						g.Release()
					}
				})
			}
			return graceful.InOrder(s, ingress, storage)
		})
		equal(t, "error", text(err), "")
		equal(t, "stored", stored.Load(), int32(10))
	})
}

func TestInOrder_OutOfTurn(t *testing.T) {
	bubble(t, func(b *testRun) {
		err := b.run(func(s *ctxshutdown.Swansong) error {
			first, _ := ctxshutdown.WithCancel(s.Work(), ctxshutdown.WithName("first"))
			early, _ := ctxshutdown.WithCancel(s.Work(), ctxshutdown.WithName("early"))
			wrong, _ := ctxshutdown.WithCancel(s, ctxshutdown.WithName("wrong"))
			early.Shutdown() // has ended before, which is fine
			return graceful.InOrder(s, first, early, wrong)
		})
		equal(t, "error", text(err), "graceful: InOrder: Swansong(wrong) was stopped together with its parent, out of turn: derive it from Work")
	})
}

// A second signal, or a Force, ends it at once, and the stages that were not told to stop yet are.
func TestInOrder_Forced(t *testing.T) {
	bubble(t, func(b *testRun) {
		began := time.Now()
		err := b.run(func(s *ctxshutdown.Swansong) error {
			one, _ := ctxshutdown.WithCancel(s.Work(), ctxshutdown.WithName("one"))
			two, _ := ctxshutdown.WithCancel(s.Work(), ctxshutdown.WithName("two"))
			one.Go(func(work context.Context) { <-work.Done() })
			two.Go(func(work context.Context) { <-work.Done() })
			time.AfterFunc(2*time.Second, func() { s.Force(errEnough) })
			return graceful.InOrder(s, one, two)
		})
		equal(t, "exit code", graceful.ExitCode(err), 2)
		equal(t, "took", time.Since(began), 2*time.Second)
	})
}

// In a scope that no Run has made, the budget is ten seconds.
func TestInOrder_WithoutARun(t *testing.T) {
	bubble(t, func(b *testRun) {
		s := ctxshutdown.New(b.Context())
		var stopped [2]time.Duration
		began := time.Now()
		var stages []*ctxshutdown.Swansong
		for i := range stopped {
			stage, _ := ctxshutdown.WithCancel(s.Work())
			stages = append(stages, stage)
			stage.Go(func(context.Context) {
				<-stage.Done()
				stopped[i] = time.Since(began)
				time.Sleep(7 * time.Second)
			})
		}
		s.Shutdown()
		equal(t, "error", text(graceful.InOrder(s, stages...)), "")
		equal(t, "stopped", stopped, [2]time.Duration{0, 5 * time.Second})
		equal(t, "over", time.Since(began), 12*time.Second)
		<-s.Completion().Done()
	})
}
