package shutdowntest_test

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/shutdowntest"
)

// TestRun_StopsScopeBeforeAndAfterEachGuardOperation calls a guard operation in each run and
// records its results, with a stop before or after the acquisition or the release.
func TestRun_StopsScopeBeforeAndAfterEachGuardOperation(t *testing.T) {
	acquire := func(s *ctxshutdown.Swansong) (*ctxshutdown.Guard, bool) { return ctxshutdown.Acquire(s) }
	child := func(s *ctxshutdown.Swansong) *ctxshutdown.Swansong {
		c, _ := ctxshutdown.WithCancel(s)
		return c
	}
	// The scenario may make another root scope, with a context that derives from s. Then Run also
	// stops s before and after operations on the guards of that root scope.
	root := func(s *ctxshutdown.Swansong) *ctxshutdown.Swansong { return ctxshutdown.New(s) }
	for name, test := range map[string]struct {
		take    func(s *ctxshutdown.Swansong) (*ctxshutdown.Guard, bool)
		refuses bool
	}{
		"TryGuard":            {(*ctxshutdown.Swansong).TryGuard, true},
		"TryGuard of a child": {func(s *ctxshutdown.Swansong) (*ctxshutdown.Guard, bool) { return child(s).TryGuard() }, true},
		"TryGuard of a root":  {func(s *ctxshutdown.Swansong) (*ctxshutdown.Guard, bool) { return root(s).TryGuard() }, true},
		"Acquire":             {acquire, true},
		"Guard":               {func(s *ctxshutdown.Swansong) (*ctxshutdown.Guard, bool) { return s.Guard(), true }, false},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			shutdowntest.Run(t, func(t *testing.T, s *ctxshutdown.Swansong) func() {
				var saw []string
				see := func(what string) { saw = append(saw, fmt.Sprintf("%s %v", what, s.State())) }
				see("began")
				g, ok := test.take(s)
				see(fmt.Sprintf("took it: %v,", ok))
				g.Release()
				see("released")
				return func() { got = append(got, strings.Join(saw, "; ")) }
			})
			before := "began Running; took it: true, ShuttingDown; released Complete"
			if test.refuses {
				before = "began Running; took it: false, Complete; released Complete"
			}
			held := "took it: true, ShuttingDown"
			if strings.HasSuffix(name, "a root") { // the guard belongs to another root, and not to s
				held = "took it: true, Complete"
			}
			testkit.Equal(t, "the runs", got, []string{
				"began Running; took it: true, Running; released Running",
				before,
				"began Running; " + held + "; released Complete",
				"began Running; took it: true, Running; released Complete",
				"began Running; took it: true, Running; released Complete",
			})
		})
	}
}

func TestRun_CountsClonesGroupsAndReadersAsGuardOperations(t *testing.T) {
	for name, test := range map[string]struct {
		moments int
		do      func(s *ctxshutdown.Swansong)
	}{
		"Clone":       {8, func(s *ctxshutdown.Swansong) { g := s.Guard(); g.Clone().Release(); g.Release() }},
		"method Go":   {4, func(s *ctxshutdown.Swansong) { s.Go(func(context.Context) {}) }},
		"function Go": {4, func(s *ctxshutdown.Swansong) { ctxshutdown.Go(s, func(context.Context) {}) }},
		"Group":       {4, func(s *ctxshutdown.Swansong) { g := ctxshutdown.NewGroup(s); g.Go(succeed); g.Wait() }},
		"Reader": {4, func(s *ctxshutdown.Swansong) {
			ctxshutdown.NewReader(s, strings.NewReader(""), ctxshutdown.Guarded()).Close()
		}},
		"a guard released twice": {4, func(s *ctxshutdown.Swansong) { g := s.Guard(); g.Release(); g.Release() }},
		"a scope not below s": {4, func(s *ctxshutdown.Swansong) {
			s.Guard().Release()
			ctxshutdown.New(context.Background()).Guard().Release()
		}},
		// Once the scenario itself has stopped the scope, Run tries no further stops.
		"an operation after the stop": {4, func(s *ctxshutdown.Swansong) { s.Guard().Release(); s.Shutdown(); s.Guard().Release() }},
	} {
		t.Run(name, func(t *testing.T) {
			runs := 0
			shutdowntest.Run(t, func(t *testing.T, s *ctxshutdown.Swansong) func() {
				runs++
				test.do(s)
				time.Sleep(time.Nanosecond) // wait until all goroutines are blocked or have ended
				return nil
			})
			testkit.Equal(t, "runs", runs, 1+test.moments)
		})
	}
}

func succeed(context.Context) error { return nil }

// If a scenario has more moments than the limit of 1000, Run chooses moments that are distributed
// evenly over the scenario.
func TestRun_SpreadsAtMost1000StopsEvenlyOverScenario(t *testing.T) {
	const guards = 255
	var stops []int
	shutdowntest.Run(t, func(t *testing.T, s *ctxshutdown.Swansong) func() {
		took := 0
		for ; took < guards; took++ {
			s.Guard().Release()
			if s.Err() != nil {
				break
			}
		}
		return func() { stops = append(stops, took) }
	})
	testkit.Equal(t, "runs", len(stops), 1+1000)
	stops = stops[1:]
	testkit.Equal(t, "the last stop is the last moment", []int{stops[0], stops[len(stops)-1]}, []int{0, guards - 1})
	for i, n := range stops[1:] {
		if d := n - stops[i]; d < 0 || d > 1 {
			t.Errorf("from stop %d to the next, it takes %d guards", i+1, d)
		}
	}
}

// A scenario that contains a server returns when it is stopped. A client of the server may request
// the stop.
func TestRun_AcceptsScenarioThatServesUntilStop(t *testing.T) {
	var took []time.Duration
	shutdowntest.Run(t, func(t *testing.T, s *ctxshutdown.Swansong) func() {
		start := time.Now()
		s.Guard().Release()
		<-s.Done()
		time.Sleep(time.Second)
		return func() { took = append(took, time.Since(start)) }
	})
	second := time.Second
	testkit.Equal(t, "times", took, []time.Duration{time.Hour + second, second, second, second, second})
}

func TestWithin_SetsTimeLimitOfEachRun(t *testing.T) {
	shutdowntest.Run(t, func(t *testing.T, s *ctxshutdown.Swansong) func() {
		s.Go(func(context.Context) { time.Sleep(59 * time.Minute) })
		return nil
	}, shutdowntest.Within(time.Hour), nil)
}

// A goroutine that ends shortly after the drain does not count as a leak.
func TestRun_DoesNotReportGoroutineThatIsAboutToEnd(t *testing.T) {
	shutdowntest.Run(t, func(t *testing.T, s *ctxshutdown.Swansong) func() {
		s.Guard().Release()
		over := make(chan struct{})
		t.Cleanup(func() { close(over) })
		go func() {
			<-over
			time.Sleep(9 * time.Second)
		}()
		return nil
	})
}

// The check may wait for the goroutine that releases the last guard. Then the run does not
// deadlock.
func TestRun_CheckMayWaitForGoroutineThatReleasesLastGuard(t *testing.T) {
	for name, wait := range map[string]func(mu *sync.Mutex, done <-chan struct{}){
		"lock":    func(mu *sync.Mutex, _ <-chan struct{}) { mu.Lock(); defer mu.Unlock() },
		"channel": func(_ *sync.Mutex, done <-chan struct{}) { <-done },
		"polling": func(_ *sync.Mutex, done <-chan struct{}) {
			for ended := false; !ended; {
				select {
				case <-done:
					ended = true
				default:
					runtime.Gosched()
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			shutdowntest.Run(t, func(t *testing.T, s *ctxshutdown.Swansong) func() {
				var mu sync.Mutex
				done := make(chan struct{})
				g := s.Guard()
				go func() {
					defer close(done)
					mu.Lock()
					defer mu.Unlock()
					defer g.Release()
				}()
				return func() { wait(&mu, done) }
			})
		})
	}
}

// If the scenario calls graceful.Run with s, a stop of s has the effect of a signal such as
// SIGTERM. shutdowntest.Run also stops s before and after operations on the guards of the root
// scope that graceful.Run makes.
func TestRun_StopsScenarioThatCallsGracefulRun(t *testing.T) {
	var ends []string
	shutdowntest.Run(t, func(t *testing.T, s *ctxshutdown.Swansong) func() {
		flushed := false
		err := graceful.Run(s, func(s *ctxshutdown.Swansong) error {
			for range 3 {
				g, ok := s.TryGuard()
				if !ok {
					break
				}
				ctxshutdown.Sleep(s.Work(), 3*time.Second)
				g.Release()
			}
			return nil
		}, graceful.WithSignals(), graceful.WithOutput(io.Discard), graceful.WithPreStop("flush", func(context.Context) error {
			flushed = true
			return nil
		}))
		return func() {
			ends = append(ends, fmt.Sprint(err, flushed))
		}
	})
	ends = slices.Compact(ends)
	testkit.Equal(t, "how it ends", ends, []string{"<nil> true"})
}

func TestRun_PanicsOnNilScenario(t *testing.T) {
	defer func() { testkit.Equal(t, "panic", recover(), any("shutdowntest: Run with a nil scenario")) }()
	shutdowntest.Run(t, nil)
}
