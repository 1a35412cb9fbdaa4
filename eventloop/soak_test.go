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

// knob returns the number in the first of the given environment variables that is set, or fallback
// if none is set.
func knob(t *testing.T, fallback int, names ...string) int {
	t.Helper()
	for _, name := range names {
		s := os.Getenv(name)
		if s == "" {
			continue
		}
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			t.Fatalf("%s=%q: give it a number from 1 on", name, s)
		}
		return n
	}
	return fallback
}

// A scenario is a load of requests. Each request calls two nodes, one after the other, from the
// loop: one occupies a worker of a pool, the other calls back.
type scenario struct {
	name        string
	deadline    time.Duration // DEADLINE_MS: the time limit of a request
	nodeTimeout time.Duration // NODE_TIMEOUT_MS: the time limit of each node, if the deadline is not earlier
	answering   bool          // whether nodes answer at once; otherwise they are late. See plan.
}

// A behaviour says when a node, a simulated remote machine, answers a request.
type behaviour int

const (
	atOnce       behaviour = iota
	beforeLimit            // the node answers after three quarters of its time limit
	atLimit                // the node answers at its time limit, so that either the answer or the time-out may come first
	afterRequest           // the node answers only when the request has ended, so the loop discards the answer
)

// raceLimit is the time limit of a node of the kind atLimit, which answers just when its time limit
// ends.
const raceLimit = 2 * time.Millisecond

// plan returns how the two nodes of request n behave. In the scenario of time-outs, every other
// request ends at the time limit of a node, and the rest at the time limit of the request. In the
// other scenario, one of eight requests has a node that answers at the same time as it times out.
func (s scenario) plan(n int) (first, second behaviour) {
	switch {
	case !s.answering && n%2 == 0:
		return beforeLimit, afterRequest
	case !s.answering:
		return afterRequest, afterRequest
	case n%16 == 0:
		return atLimit, atOnce
	case n%16 == 8:
		return atOnce, atLimit
	}
	return atOnce, atOnce
}

// TestSoak_EveryRequestEndsOnce runs two scenarios many times: in one, every request times out, and
// in the other, most requests succeed and the others are answered when their time ends. Each run
// has its own loop, pool and shutdown, and must end within TIMEOUT_PER_RUN seconds. Each request
// must end exactly once, and no offload, job or timer may be left.
//
//	RUNS=50 TIMEOUT_PER_RUN=10 make soak-eventloop
//
// DEADLINE_MS and NODE_TIMEOUT_MS apply to both scenarios. With _TIMEOUT or _SUCCESS at the end of
// their names, they apply to one of them. CONCURRENCY is the number of clients that wait for
// answers at the same time.
//
// docs/internals/eventloop.md#soak
func TestSoak_EveryRequestEndsOnce(t *testing.T) {
	runs := knob(t, 20, "RUNS")
	concurrency := knob(t, 32, "CONCURRENCY")
	guard := time.Duration(knob(t, 30, "TIMEOUT_PER_RUN")) * time.Second
	of := func(kind string, answering bool, deadline, node int) scenario {
		return scenario{kind,
			time.Duration(knob(t, deadline, "DEADLINE_MS_"+kind, "DEADLINE_MS")) * time.Millisecond,
			time.Duration(knob(t, node, "NODE_TIMEOUT_MS_"+kind, "NODE_TIMEOUT_MS")) * time.Millisecond, answering}
	}
	// The limits of the second scenario are so long that a busy machine does not exceed them.
	scenarios := []scenario{of("TIMEOUT", false, 3, 2), of("SUCCESS", true, 60_000, 30_000)}

	for _, s := range scenarios {
		var all tallied
		var slowest time.Duration
		for run := range runs {
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
		t.Logf("%s: %d runs, %d clients: %d answered, %d timed out, %d refused, %d late values discarded; the slowest run took %v",
			s.name, runs, concurrency, all.answered, all.timedOut, all.refused, all.discarded, slowest)
	}
}

type tallied struct {
	answered, timedOut, refused, discarded int
}

func (a *tallied) add(b tallied) {
	a.answered += b.answered
	a.timedOut += b.timedOut
	a.refused += b.refused
	a.discarded += b.discarded
}

// request simulates request n, which calls the nodes of its plan on the loop. When the request has
// ended, the loop calls the function over once, with nil or the error of the node that failed. If
// the loop is being stopped, request returns an error and over is not called.
func (s scenario) request(n int, l *eventloop.Loop, p *eventloop.Pool, over func(error), discard func(int)) error {
	until := time.Now().Add(s.deadline)
	isOver := make(chan struct{})
	end := func(err error) { close(isOver); over(err) }
	// A node is a simulated remote machine that the request calls. node returns the time limit for
	// the answer of a node, and a function that blocks until the node answers. The returned
	// function takes no context, so it cannot be interrupted.
	node := func(b behaviour) (limit time.Duration, answer func() (int, error)) {
		began := time.Now()
		if limit = min(s.nodeTimeout, time.Until(until)); b == atLimit {
			limit = min(limit, raceLimit)
		}
		return limit, func() (int, error) {
			switch b {
			case beforeLimit:
				time.Sleep(limit * 3 / 4)
			// The node answers up to 0.2 ms before the limit. Its answer takes longer to reach the
			// loop than the time-out does, so the two arrive at about the same time.
			case atLimit:
				time.Sleep(time.Until(began.Add(limit - time.Duration(n/16%5)*50*time.Microsecond)))
			case afterRequest:
				<-isOver
			}
			return 1, nil
		}
	}
	firstPlan, secondPlan := s.plan(n)
	second := func(_ int, err error) {
		if err == nil {
			limit, answer := node(secondPlan)
			err = eventloop.Async(l, limit, func(_ context.Context, complete func(int, error)) { go func() { complete(answer()) }() },
				func(_ int, err error) { end(err) }, discard)
			if err == nil {
				return
			}
		}
		end(err)
	}
	limit, answer := node(firstPlan)
	return eventloop.OffloadTimeout(l, p, limit, func(context.Context) (int, error) { return answer() }, second, discard)
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
	ends := make([]int, concurrency*each)
	var refused, ended, discarded atomic.Int64
	var clients sync.WaitGroup
	for c := range concurrency {
		clients.Go(func() {
			for i := range each {
				n := c*each + i
				answered := make(chan struct{})
				asked := l.Post(func() {
					err := s.request(n, l, p, func(err error) {
						defer close(answered)
						ends[n]++
						switch {
						case err == nil:
							r.answered++
						case errors.Is(err, eventloop.ErrOffloadTimeout):
							r.timedOut++
							if first, second := s.plan(n); first == atOnce && second == atOnce {
								t.Errorf("request %d timed out, although its nodes answer at once", n)
							}
						case errors.Is(err, eventloop.ErrStopped): // the loop was stopped after one node of the request and before the next
							refused.Add(1)
						default:
							t.Errorf("request %d: %v", n, err)
						}
					}, func(int) { discarded.Add(1) })
					if err != nil {
						refused.Add(1)
						close(answered)
					}
				})
				if !asked {
					refused.Add(1)
					continue
				}
				<-answered
				if ended.Add(1) == int64(len(ends)*3/4) {
					app.Shutdown() // the scope is stopped while requests are in progress
				}
			}
		})
	}
	clients.Wait()
	<-app.Shutdown().Done()
	for n, times := range ends {
		if times > 1 {
			t.Errorf("request %d ended %d times", n, times)
		}
	}
	stats := l.Stats().Snapshot()
	if stats.Accepted != stats.Executed || l.Counts() != (eventloop.Counts{}) || p.Running() != 0 {
		t.Errorf("offloads, jobs or timers are left after the run: %+v, %v, %d jobs", stats, l.Counts(), p.Running())
	}
	r.refused, r.discarded = int(refused.Load()), int(discarded.Load())
	if sum := r.answered + r.timedOut + r.refused; sum != len(ends) {
		t.Errorf("%d of %d requests are accounted for: %+v", sum, len(ends), r)
	}
	if uint64(r.discarded) != stats.LateCompletions {
		t.Errorf("%d late values, but %d were discarded", stats.LateCompletions, r.discarded)
	}
	if !s.answering && (r.answered > 0 || r.timedOut == 0) {
		t.Errorf("scenario %s: %d requests were answered and %d timed out; all should time out", s.name, r.answered, r.timedOut)
	}
	if s.answering && r.answered < len(ends)/2 {
		t.Errorf("scenario %s: only %d of %d requests were answered; most should be", s.name, r.answered, len(ends))
	}
	return r
}
