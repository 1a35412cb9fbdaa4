package eventloop_test

import (
	"context"
	"errors"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/eventloop"
)

// knob returns the number in the first of the given environment variables that is set, or the
// parameter fallback if none is set.
func knob(t *testing.T, fallback int, names ...string) int {
	t.Helper()
	for _, name := range names {
		s := os.Getenv(name)
		if s == "" {
			continue
		}
		n, err := strconv.Atoi(s)
		if err != nil || n < 0 {
			t.Fatalf("%s=%q: give it a number from 0 on", name, s)
		}
		return n
	}
	return fallback
}

// A scenario is a load of requests. For each request, the loop offloads a call of a node, with a
// time-out.
type scenario struct {
	name     string
	deadline time.Duration // after this time, a request times out
	node     time.Duration // how long a node takes to answer
}

// TestSoak runs two scenarios many times: in one, every request times out, and in the other, most requests succeed. Each
// run has a loop, a pool and a shutdown of its own, and must end within TIMEOUT_PER_RUN seconds. Each request must be
// answered exactly once, and in the end nothing may be left.
//
//	RUNS=50 TIMEOUT_PER_RUN=10 make soak-eventloop
//
// DEADLINE_MS and NODE_TIMEOUT_MS apply to both scenarios. With _TIMEOUT or _SUCCESS at the end of their names, they
// apply to one of them.
func TestSoak(t *testing.T) {
	runs := knob(t, 20, "RUNS")
	concurrency := knob(t, 32, "CONCURRENCY")
	guard := time.Duration(knob(t, 30, "TIMEOUT_PER_RUN")) * time.Second
	of := func(kind string, deadline, node int) scenario {
		return scenario{kind,
			time.Duration(knob(t, deadline, "DEADLINE_MS_"+kind, "DEADLINE_MS")) * time.Millisecond,
			time.Duration(knob(t, node, "NODE_TIMEOUT_MS_"+kind, "NODE_TIMEOUT_MS")) * time.Millisecond}
	}
	scenarios := []scenario{of("TIMEOUT", 2, 20), of("SUCCESS", 1_000, 1)}

	var all tallied
	var slowest time.Duration
	for run := range runs {
		for _, s := range scenarios {
			over := make(chan tallied, 1)
			began := time.Now()
			go func() { over <- s.run(t, concurrency) }()
			select {
			case r := <-over:
				all.add(r)
				slowest = max(slowest, time.Since(began))
			case <-time.After(guard):
				t.Fatalf("run %d of %d, scenario %s: not over after %v (TIMEOUT_PER_RUN)", run+1, runs, s.name, guard)
			}
		}
	}
	t.Logf("%d runs of %d scenarios, %d requests at once: %d answered, %d timed out, %d refused, %d late; the slowest run took %v",
		runs, len(scenarios), concurrency, all.answered, all.timedOut, all.refused, all.late, slowest)
}

type tallied struct {
	answered, timedOut, refused, late int
}

func (a *tallied) add(b tallied) {
	a.answered += b.answered
	a.timedOut += b.timedOut
	a.refused += b.refused
	a.late += b.late
}

func (s scenario) run(t *testing.T, concurrency int) (r tallied) {
	app := ctxshutdown.New(context.Background())
	defer app.Shutdown()
	l, p := eventloop.New(app), eventloop.NewPool(app, 4)
	if err := l.Start(); err != nil {
		t.Error(err)
		return r
	}
	const each = 4 // the number of consecutive requests of each client
	answers := make([]int, concurrency*each)
	var refused atomic.Int64
	var clients sync.WaitGroup
	for c := range concurrency {
		clients.Go(func() {
			for i := range each {
				n := c*each + i
				answered := make(chan struct{})
				asked := l.Post(func() {
					err := eventloop.OffloadTimeout(l, p, s.deadline, func(context.Context) (int, error) {
						time.Sleep(s.node) // the node ignores its context
						return n, nil
					}, func(v int, err error) {
						defer close(answered)
						answers[n]++
						switch {
						case err == nil && v == n:
							r.answered++
						case errors.Is(err, eventloop.ErrOffloadTimeout):
							r.timedOut++
						default:
							t.Errorf("request %d: %d, %v", n, v, err)
						}
					})
					if err != nil { // the loop is being stopped
						refused.Add(1)
						close(answered)
					}
				})
				if !asked {
					refused.Add(1)
					return
				}
				<-answered
				if n == len(answers)/2 {
					app.Shutdown() // this happens while requests are in progress
				}
			}
		})
	}
	clients.Wait()
	<-app.Shutdown().Done()
	for n, times := range answers {
		if times > 1 {
			t.Errorf("request %d was answered %d times", n, times)
		}
	}
	stats := l.Stats().Snapshot()
	if stats.Accepted != stats.Executed || l.Counts() != (eventloop.Counts{}) || p.Running() != 0 {
		t.Errorf("something is left after the run: %+v, %v, %d jobs", stats, l.Counts(), p.Running())
	}
	r.refused, r.late = int(refused.Load()), int(stats.LateCompletions)
	return r
}
