package eventloop

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// ErrPoolStopped is returned by an offload to a pool that has been told to stop.
var ErrPoolStopped = errors.New("eventloop: this pool has been told to stop, and takes on nothing; make another with NewPool")

// A Pool runs jobs on a bounded number of goroutines, which exist only while there is something to do. Its scope is a
// child of the context it is made with: stopping that scope stops the pool, every job accepted is a guard, and reports
// name the pool.
//
// All methods may be called concurrently. The zero value is not usable: make one with [NewPool].
type Pool struct {
	scope   *ctxshutdown.Swansong
	limit   int
	onPanic func(*PanicError)

	jobs    tally // accepted and not over
	panics  atomic.Uint64
	failure atomic.Pointer[PanicError] // the first

	mu          sync.Mutex
	first, last *job
	workers     int
}

// A job is under its guard from Submit until it is over.
type job struct {
	f     func()
	in    string            // what it is, for a PanicError
	over  func(*PanicError) // comes after f, whatever happens, and gets how f did not return; nil: nothing comes
	guard *ctxshutdown.Guard
	next  *job
}

// NewPool returns a pool of as many workers; of less than one, it has [runtime.GOMAXPROCS]. It starts no goroutine by
// itself. Call [Pool.Stop] when done with it. NewPool panics if ctx is nil.
func NewPool(ctx context.Context, workers int, opts ...Option) *Pool {
	if ctx == nil {
		panic("eventloop: cannot create a pool from a nil context")
	}
	if workers < 1 {
		workers = runtime.GOMAXPROCS(0)
	}
	o := optionsOf("pool", opts)
	p := &Pool{limit: workers, onPanic: o.onPanic}
	p.scope, _ = ctxshutdown.WithCancel(ctx, ctxshutdown.WithName(o.name))
	return p
}

// Scope returns the pool's scope.
func (p *Pool) Scope() *ctxshutdown.Swansong { return p.scope }

// Submit has a worker run f, and returns true; or returns false once the pool has been told to stop, and then f never
// runs. Jobs begin in the order in which they were submitted. Submit never waits: the queue has no limit but memory. It
// synchronizes before the call of f, and panics if f is nil, or the pool was not made with [NewPool].
//
// A panic in f, or a Goexit, ends that job only. It is counted, see [Pool.Panics] and [Pool.Err].
func (p *Pool) Submit(f func()) bool {
	mustFunc(f != nil, "Submit")
	mustPool(p, "Submit")
	return p.submit(&job{f: f, in: "job"})
}

func mustPool(p *Pool, what string) {
	if p == nil {
		panic("eventloop: " + what + " to a nil pool")
	}
	if p.scope == nil {
		panic("eventloop: " + what + " to a pool that was not made with NewPool")
	}
}

func (p *Pool) submit(j *job) bool {
	guard, ok := p.scope.TryGuard()
	if !ok {
		return false
	}
	p.jobs.add()
	j.guard = guard
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last == nil {
		p.first = j
	} else {
		p.last.next = j
	}
	p.last = j
	if p.workers < p.limit {
		p.workers++
		go p.work()
	}
	return true
}

// work runs jobs until there are none.
func (p *Pool) work() {
	ended := false
	defer func() {
		if !ended { // a job has called Goexit: the place is another goroutine's
			go p.work()
		}
	}()
	for j := p.take(); j != nil; j = p.take() {
		p.run(j)
	}
	ended = true
}

// take returns the next job, or gives up the worker's place.
func (p *Pool) take() *job {
	p.mu.Lock()
	defer p.mu.Unlock()
	j := p.first
	if j == nil {
		p.workers--
		return nil
	}
	if p.first = j.next; p.first == nil {
		p.last = nil
	}
	return j
}

func (p *Pool) run(j *job) {
	defer j.guard.Release()
	defer p.jobs.done()
	var err *PanicError
	if j.over != nil {
		defer func() { j.over(err) }()
	}
	returned := false
	defer func() {
		if !returned {
			err = unwinding(j.in, recover())
			p.failed(err) // which may not return: all that has to be done after it is deferred
		}
	}()
	j.f()
	returned = true
}

// failed counts a panic and tells the handler. One that does not come to its end is counted as well.
func (p *Pool) failed(err *PanicError) {
	p.panics.Add(1)
	p.failure.CompareAndSwap(nil, err)
	if p.onPanic == nil {
		return
	}
	returned := false
	defer func() {
		if !returned {
			recover()
			p.panics.Add(1)
		}
	}()
	p.onPanic(err)
	returned = true
}

// Running returns the number of jobs accepted and not over.
func (p *Pool) Running() int { return p.jobs.count() }

// Panics returns the number of jobs that have panicked, and of calls of the panic handler that have.
func (p *Pool) Panics() uint64 { return p.panics.Load() }

// Err returns the first panic of a job, nil if there was none.
func (p *Pool) Err() error {
	if err := p.failure.Load(); err != nil {
		return err
	}
	return nil
}

// WaitIdle waits until no job is accepted that is not over. What a job did synchronizes before that, so all completions
// that it owed to a loop have been queued there. If ctx ends first it returns a [*WaitError]; if the pool is idle, nil
// whatever ctx is. It stops nobody from submitting more. It panics if ctx is nil.
func (p *Pool) WaitIdle(ctx context.Context) error { return p.jobs.wait(ctx, "jobs") }

// Stop tells the pool to stop, and returns what to wait on. From then on nothing is accepted; what was accepted runs. It
// never waits, is idempotent and may be called from anywhere, jobs included.
func (p *Pool) Stop() *ctxshutdown.Completion { return p.scope.Shutdown() }
