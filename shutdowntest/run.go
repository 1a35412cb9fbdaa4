package shutdowntest

import (
	"fmt"
	"testing"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// An Option configures [Run]. A nil Option is ignored.
type Option interface{ apply(*config) }

type option func(*config)

func (f option) apply(c *config) { f(c) }

type config struct {
	within time.Duration
}

// Within sets how long the scenario may take to return and to drain after the stop, by the clock of
// the bubble. The default is 10 seconds, after which graceful.Run would cancel the work. Run fails
// the test if d is not positive.
func Within(d time.Duration) Option { return option(func(c *config) { c.within = d }) }

// maxStops is the largest number of runs in which Run stops the scope. In a long scenario there are
// more moments for a stop than that, and a run for each of them would take too long.
const maxStops = 1000

// Run runs scenario in a synctest bubble: once without a stop, and then once for each moment at
// which it acquires or releases a guard, with s stopped at that moment. The moments are those just
// before and just after each of these operations, and the goroutine that performs the operation
// stops s. If there are more than 1000 moments, Run chooses 1000 of them, evenly distributed.
//
// A run fails unless scenario returns and all guards of s and of the scopes below are released
// within 10 seconds of the stop (see [Within]), and all goroutines end within the same time after
// the cleanups of t. The first run, and a run that does not reach its moment, is stopped when
// scenario returns, or after an hour. After the drain, Run calls check, the function that scenario
// has returned, unless it is nil. The releases of the guards synchronize before the call of check.
// Run stops after the first run that fails.
//
// The t of scenario belongs to the run and has the limits that [synctest.Test] documents: no Run,
// Parallel and Deadline. scenario runs in a goroutine that may call t.FailNow. It may stop s
// itself. It is called many times, so it must not keep state.
func Run(t *testing.T, scenario func(t *testing.T, s *ctxshutdown.Swansong) (check func()), opts ...Option) {
	t.Helper()
	if scenario == nil {
		panic("shutdowntest: Run with a nil scenario")
	}
	c := config{within: 10 * time.Second}
	for _, opt := range opts {
		if opt != nil {
			opt.apply(&c)
		}
	}
	if c.within <= 0 {
		t.Fatalf("shutdowntest: Within(%v): must be positive; time in a synctest bubble costs nothing", c.within)
	}
	whole := &run{scenario: scenario, within: c.within}
	whole.do(t)
	n := whole.moments
	if n == 0 {
		t.Fatal("shutdowntest: the scenario has acquired no guard, so there is no moment to stop it at; derive the scopes of the code under test from s")
	}
	if n > maxStops {
		t.Logf("shutdowntest: the scenario has %d moments; the stop is made at %d of them", n, maxStops)
	}
	for _, k := range spread(n, maxStops) {
		if !t.Run(fmt.Sprintf("stop=%d", k), func(t *testing.T) {
			t.Helper()
			(&run{scenario: scenario, within: c.within, stopAt: k}).do(t)
		}) {
			return
		}
	}
}

// spread returns the numbers from 1 to n. If n is greater than maxCount, it returns only maxCount
// of them, evenly distributed and including the first and the last.
func spread(n, maxCount int) (ks []int) {
	some := min(n, maxCount)
	for i := range some {
		ks = append(ks, 1+i*(n-1)/max(some-1, 1))
	}
	return ks
}
