package shutdowntest_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/shutdowntest"
)

// A pool does jobs. One that has been accepted is done, whatever happens.
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

// submit holds a guard for the job from the moment it is accepted.
func (p *pool) submit() bool {
	g, ok := p.s.TryGuard()
	if ok {
		p.jobs <- job{g}
	}
	return ok
}

// work takes jobs as long as there can be any: until the last guard has been released.
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

func TestPool(t *testing.T) {
	shutdowntest.Run(t, poolScenario((*pool).work, (*pool).submit))
}

func poolScenario(work func(*pool), submit func(*pool) bool) scenario {
	return func(t *testing.T, s *ctxshutdown.Swansong) func() {
		p := newPool(s, 2, work)
		var accepted int32
		for accepted < 5 && submit(p) {
			accepted++
			ctxshutdown.Sleep(s, 300*time.Microsecond) // so that no two things happen at once, and each run is like the other
		}
		return func() {
			if done := p.done.Load(); done != accepted {
				t.Errorf("%d of %d accepted jobs are done", done, accepted)
			}
		}
	}
}

// What people write at first, and what the kit says to it.

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
			return // with a job in its hands
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
