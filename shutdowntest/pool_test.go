package shutdowntest_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/shutdowntest"
)

// A pool runs jobs on goroutines. At a stop, it must still run every job that it has accepted.
type pool struct {
	s    *ctxshutdown.Swansong
	jobs chan job
	done atomic.Int32
}

type job struct{ guard *ctxshutdown.Guard }

func newPool(s *ctxshutdown.Swansong, workers int, work func(p *pool)) *pool {
	p := &pool{s: s, jobs: make(chan job)}
	for range workers {
		go work(p)
	}
	return p
}

// submit acquires a guard for the job, which is held until the job is done.
func (p *pool) submit() bool {
	g, ok := p.s.TryGuard()
	if ok {
		p.jobs <- job{g}
	}
	return ok
}

// work does jobs until the last guard has been released. After that no job can be submitted.
func (p *pool) work() {
	for j := range ctxshutdown.All(p.s.Work(), p.jobs) {
		p.do()
		j.guard.Release()
	}
}

func (p *pool) do() {
	time.Sleep(time.Millisecond)
	p.done.Add(1)
}

func TestPool_DoesEveryAcceptedJob(t *testing.T) {
	shutdowntest.Run(t, poolScenario((*pool).work, (*pool).submit))
}

func poolScenario(work func(*pool), submit func(*pool) bool) scenario {
	return func(t *testing.T, s *ctxshutdown.Swansong) func() {
		p := newPool(s, 2, work)
		var accepted int32
		for accepted < 5 && submit(p) {
			accepted++
			// Wait, so that no two operations are simultaneous and all runs are alike.
			ctxshutdown.Sleep(s, 300*time.Microsecond)
		}
		return func() {
			if done := p.done.Load(); done != accepted {
				t.Errorf("%d of %d accepted jobs are done", done, accepted)
			}
		}
	}
}

// These are typical first versions of a pool. The tests check what shutdowntest reports about their
// bugs.

func submitWithoutAGuard(p *pool) bool {
	select {
	case p.jobs <- job{}:
		return true
	case <-p.s.Done():
		return false
	}
}

func workThatTakesAndThenAsks(p *pool) {
	for range ctxshutdown.All(p.s, p.jobs) {
		g, ok := p.s.TryGuard()
		if !ok {
			return // the bug: the worker has taken a job, and ends without doing it
		}
		p.do()
		g.Release()
	}
}

func workThatReleasesTooEarly(p *pool) {
	for j := range ctxshutdown.All(p.s.Work(), p.jobs) {
		j.guard.Release()
		p.done.Add(1)
	}
}

func workThatEndsWithTheStop(p *pool) {
	for j := range ctxshutdown.All(p.s, p.jobs) {
		p.do()
		j.guard.Release()
	}
}

func workThatForgetsAGuard(p *pool) {
	first := true
	for j := range ctxshutdown.All(p.s.Work(), p.jobs) {
		p.do()
		if !first {
			j.guard.Release()
		}
		first = false
	}
}

func workThatNeverEnds(p *pool) {
	for j := range p.jobs {
		p.do()
		j.guard.Release()
	}
}
