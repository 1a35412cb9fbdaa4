package graceful_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
	"github.com/swansong-go/swansong/internal/testkit"
)

// Three stages share twelve seconds. Each stage takes a given time to drain after it has been
// stopped.
func TestInOrder_DividesRemainingTimeAmongStages(t *testing.T) {
	const s = time.Second
	const never = time.Hour
	for _, test := range []struct {
		name    string
		take    [3]time.Duration
		extend  time.Duration // the extension to request when the drain begins
		stopped [3]time.Duration
		over    time.Duration
		want    string
	}{
		{"no stage needs time", [3]time.Duration{0, 0, 0}, 0, [3]time.Duration{0, 0, 0}, 0, ""},
		{"each after the other", [3]time.Duration{1 * s, 2 * s, 3 * s}, 0, [3]time.Duration{0, 1 * s, 3 * s}, 6 * s, ""},
		{"a slow first stage has a third of the time", [3]time.Duration{11 * s, 0, 0}, 0, [3]time.Duration{0, 4 * s, 4 * s}, 11 * s, ""},
		{"a slow second stage has half of the rest", [3]time.Duration{2 * s, 11 * s, 0}, 0, [3]time.Duration{0, 2 * s, 7 * s}, 13 * s,
			"graceful: drained after force (the drain took longer than 12s): 2 guards: main ×1, two ×1; also: " +
				"ctxshutdown: Wait ended (graceful: InOrder: the time for the stages is over: graceful: the drain took longer than 12s) with work still running: 1 guard: two ×1; " +
				"wait longer, or call Force to cancel that work"},
		{"unused time flows on", [3]time.Duration{0, 0, 11 * s}, 0, [3]time.Duration{0, 0, 0}, 11 * s, ""},
		{"two slow stages", [3]time.Duration{never, never, 0}, 0, [3]time.Duration{0, 4 * s, 8 * s}, 14 * s, "abandoned"},
		{"three slow stages", [3]time.Duration{never, never, never}, 0, [3]time.Duration{0, 4 * s, 8 * s}, 14 * s, "abandoned"},
		{"three slow stages, and an extension", [3]time.Duration{never, never, never}, 18 * s, [3]time.Duration{0, 6 * s, 12 * s}, 20 * s, "abandoned"},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(b *testRun) {
				began := time.Now().Add(s) // the time at which the context of Run ends
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
							time.Sleep(s) // wait until the first stage's share has begun
							graceful.Extend(r, test.extend-s, "")
						}
					})
					return graceful.InOrder(r, stages...)
				}, graceful.WithSoft(12*s))
				over := time.Since(began)
				time.Sleep(2 * never) // wait until abandoned goroutines have ended
				synctest.Wait()
				testkit.Equal(t, "stopped", stopped, test.stopped)
				testkit.Equal(t, "over", over, test.over)
				if test.want == "abandoned" {
					testkit.Equal(t, "exit code", graceful.ExitCode(err), 3)
				} else {
					testkit.Equal(t, "error", testkit.ErrorText(err), test.want)
				}
			})
		})
	}
}

// If the phase Soft has its maximum duration, 24 hours, the Status names no end of the phase.
// InOrder nevertheless gives the first stage time to drain.
func TestInOrder_StagesHaveTimeIfSoftPhaseHasMaximumDuration(t *testing.T) {
	bubble(t, func(b *testRun) {
		var second time.Duration
		err := b.run(func(s *ctxshutdown.Swansong) error {
			ingress, _ := ctxshutdown.WithCancel(s.Work(), ctxshutdown.WithName("ingress"))
			storage, _ := ctxshutdown.WithCancel(s.Work(), ctxshutdown.WithName("storage"))
			hold(ingress, "connections", ingress, time.Hour)
			context.AfterFunc(s, func() {
				began := time.Now()
				<-storage.Done()
				second = time.Since(began)
			})
			return graceful.InOrder(s, ingress, storage)
		}, graceful.WithSoft(24*time.Hour))
		testkit.Equal(t, "error", err, nil)
		synctest.Wait()
		testkit.Equal(t, "time until the second stage is stopped", second, time.Hour)
	})
}

// A stage is stopped only when the previous stage has drained, so the previous stage can still pass
// work to the next one.
func TestInOrder_StopsStageAfterPreviousDrained(t *testing.T) {
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
		testkit.Equal(t, "error", testkit.ErrorText(err), "")
		testkit.Equal(t, "stored", stored.Load(), int32(10))
	})
}

func TestInOrder_ReturnsErrorIfStageStopsOutOfTurn(t *testing.T) {
	bubble(t, func(b *testRun) {
		err := b.run(func(s *ctxshutdown.Swansong) error {
			first, _ := ctxshutdown.WithCancel(s.Work(), ctxshutdown.WithName("first"))
			early, _ := ctxshutdown.WithCancel(s.Work(), ctxshutdown.WithName("early"))
			wrong, _ := ctxshutdown.WithCancel(s, ctxshutdown.WithName("wrong"))
			early.Shutdown() // a stage that has already ended does not cause an error
			return graceful.InOrder(s, first, early, wrong)
		})
		testkit.Equal(t, "error", testkit.ErrorText(err), "graceful: InOrder: Swansong(wrong) was stopped together with its parent instead of in its turn; create it from the context Work() of its parent")
	})
}

// After a second signal or a call of Force, InOrder stops all remaining stages without waiting for
// the current one, and returns.
func TestInOrder_ForceStopsRemainingStagesAtOnce(t *testing.T) {
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
		testkit.Equal(t, "exit code", graceful.ExitCode(err), 2)
		testkit.Equal(t, "took", time.Since(began), 2*time.Second)
	})
}

// If the scope that is given to InOrder does not come from Run, the stages have ten seconds in all.
func TestInOrder_StagesShareTenSecondsIfScopeIsNotFromRun(t *testing.T) {
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
		testkit.Equal(t, "error", testkit.ErrorText(graceful.InOrder(s, stages...)), "")
		testkit.Equal(t, "stopped", stopped, [2]time.Duration{0, 5 * time.Second})
		testkit.Equal(t, "over", time.Since(began), 12*time.Second)
		<-s.Completion().Done()
	})
}
