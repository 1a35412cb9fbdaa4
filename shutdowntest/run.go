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

// Within sets how long the scenario may take to drain and to return once it has been told to stop, by the clock of the
// bubble: 10 seconds by default, which is how long graceful.Run waits before it cancels work. Run fails where d is not
// positive.
func Within(d time.Duration) Option { return option(func(c *config) { c.within = d }) }

// most is how many stops there are at most. Each of them runs the scenario, whose length is likely to grow with them.
const most = 1000

// Run runs scenario in a bubble of its own, once to the end, and then as often as it has come to a moment at which it
// acquires or releases a guard, with s told to stop at that moment: before or after the operation, on the goroutine that
// does it. Of more than 1000 moments, as many are tried, evenly spread.
//
// A run fails unless, within 10 seconds of the stop (see [Within]), scenario has returned and all guards of s and below
// have been released, and within as long again, when the cleanups of t have run, all goroutines have ended. A run that
// is not stopped in its course is stopped when scenario returns, or after an hour. Then check is called; nil checks
// nothing. What happened before the releases of the guards synchronizes before it. Run stops at the first run that fails.
//
// The t of scenario is for the run, and as in [synctest.Test]: without Run, Parallel and Deadline. Scenario runs in a
// goroutine that may call t.FailNow. It may stop s by itself, and is called again, so it keeps nothing.
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
		t.Fatalf("shutdowntest: Within(%v): must be positive; the clock of a bubble costs nothing", c.within)
	}
	whole := &run{scenario: scenario, within: c.within}
	whole.do(t)
	n := whole.moments
	if n == 0 {
		t.Fatal("shutdowntest: the scenario has come to no guard, so there is no moment to stop it at; derive the scopes of the code under test from s")
	}
	if n > most {
		t.Logf("shutdowntest: the scenario has %d moments; the stop comes at %d of them", n, most)
	}
	for _, k := range spread(n, most) {
		if !t.Run(fmt.Sprintf("stop=%d", k), func(t *testing.T) {
			t.Helper()
			(&run{scenario: scenario, within: c.within, stopAt: k}).do(t)
		}) {
			return
		}
	}
}

// spread returns the numbers from 1 to n, or so many of them, evenly spread, with the first and the last.
func spread(n, most int) (ks []int) {
	some := min(n, most)
	for i := range some {
		ks = append(ks, 1+i*(n-1)/max(some-1, 1))
	}
	return ks
}
