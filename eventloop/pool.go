package eventloop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/internal/ctxkey"
)

// ErrPoolStopped is returned by an offload to a pool that has been stopped.
var ErrPoolStopped = errors.New("eventloop: the pool has been stopped; create another with NewPool")

// A Pool runs jobs on a bounded number of goroutines, which exist only while there are jobs. Its
// scope is a child of the nearest scope in its context: stopping that scope stops the pool. The
// pool holds a guard of its scope while it has accepted jobs that have not finished. Reports name
// the pool and say how many jobs there are. If the scope is traced, each job holds a guard of its
// own, and reports name the line that submitted it.
//
// The methods may be called concurrently. The zero value is not usable: create a Pool with
// [NewPool].
type Pool struct {
	scope   *ctxshutdown.Swansong
	trace   tracer
	name    string
	limit   int // the greatest number of workers
	queue   int // the greatest number of jobs that have not finished; 0 for no limit
	onPanic func(*PanicError) (resume bool)

	panics  atomic.Uint64
	failure atomic.Pointer[PanicError] // the first panic of a job
	stopped atomic.Bool                // whether a panic has stopped the pool
	// crashing is set when a panic is about to end the program. From then on, no guard is released
	// and no worker is started.
	crashing atomic.Bool

	refusedFull atomic.Uint64 // the number of jobs that were refused because the queue was full

	jobs    counter // counts the jobs that were accepted and have not finished; its mutex guards the following fields
	queued  jobQueue
	guard   *ctxshutdown.Guard // a guard that stands for all jobs and is held while there are any, unless the pool is traced
	workers int
	waiters waitList[job]
}

// A job is a function that a pool has accepted. Queues contain jobs by value, so a job is small.
type job struct {
	f    func()
	more *jobDetails // further details of the job; nil if there are none
}

type jobDetails struct {
	offload completion         // the offload whose work the job is; nil for other jobs
	guard   *ctxshutdown.Guard // in a traced pool, the guard of the job, held until the job has finished
	site    fmt.Stringer       // where the job was submitted, if the pool is traced
}

// newJob returns a job that calls f. offload is nil unless f is the work of an offload.
func (p *Pool) newJob(f func(), offload completion) job {
	if offload == nil && !p.trace.on() {
		return job{f: f}
	}
	return job{f, &jobDetails{offload: offload, site: p.trace.caller()}}
}

// offload returns the completion of j if j is the work of an offload, and nil otherwise.
func (j job) offload() completion {
	if j.more == nil {
		return nil
	}
	return j.more.offload
}

// release releases the guard of the job, if it has one.
func (j job) release() {
	if j.more != nil {
		j.more.guard.Release()
	}
}

// A completion receives the result of a job. The pool calls both methods on the worker's goroutine.
type completion interface {
	// acceptsPanic is called if the job has panicked or called runtime.Goexit. It reports whether
	// the completion will receive that as its error. If not, no other code receives it.
	acceptsPanic() bool
	// finish is the pool's last call for the job. It passes the panic of the job, or nil if there
	// was none.
	finish(*PanicError)
}

// NewPool returns a pool with the given number of workers, or [runtime.GOMAXPROCS] workers if the
// number is less than one. Goroutines are started when jobs are submitted. Call [Pool.Stop] when
// the pool is no longer needed. NewPool panics if ctx is nil.
func NewPool(ctx context.Context, workers int, opts ...Option) *Pool {
	if ctx == nil {
		panic("eventloop: NewPool with a nil context")
	}
	if workers < 1 {
		workers = runtime.GOMAXPROCS(0)
	}
	o := optionsOf("pool", opts)
	p := &Pool{name: o.name, limit: workers, queue: o.queueLimit, onPanic: o.onPanic}
	p.scope = describedScope(ctx, o.name, p.describe)
	p.trace = newTracer(p.scope, nil, nil)
	return p
}

// describe says in reports what the pool's guards stand for. The scope may have other guards,
// which the user has acquired; describe reports them as extra.
func (p *Pool) describe(guards int) ctxkey.Work {
	jobs := p.Running()
	own := min(jobs, 1)
	if p.trace.on() {
		own = jobs
	}
	return ctxkey.Work{Noun: "job", Count: jobs, Shared: true, Extra: max(guards-own, 0)}
}

// Scope returns the pool's scope.
func (p *Pool) Scope() *ctxshutdown.Swansong { return p.scope }

// Submit queues f for a worker and returns true. If the pool has been stopped, Submit returns false
// and f never runs. Jobs start in the order in which they were submitted. Submit never blocks. The
// queue is limited by memory only, unless [WithQueueLimit] was given: then Submit also returns
// false when the queue is full, and [Pool.SubmitWait] waits for room. Submit synchronizes before
// the call of f, and panics if f is nil or the pool was not created with [NewPool].
//
// A panic in f ends the program, unless the pool has a panic handler; see [WithPanicHandler]. A
// [runtime.Goexit] in f ends only the job and is counted by [Pool.Panics]; a panic handler is
// called for it as for a panic, with the value [ErrGoexit], and can stop the pool.
func (p *Pool) Submit(f func()) bool {
	mustFunc(f != nil, "Submit")
	mustPool(p, "Submit")
	return p.submit(p.newJob(f, nil)) == nil
}

func mustPool(p *Pool, what string) {
	if p == nil {
		panic("eventloop: " + what + " to a nil pool")
	}
	if p.scope == nil {
		panic("eventloop: " + what + " to a pool that was not created with NewPool")
	}
}

func (p *Pool) submit(j job) error {
	err := p.accept(j)
	if err == ErrQueueFull {
		p.refusedFull.Add(1)
	}
	return err
}

// accept queues j, or returns ErrPoolStopped or ErrQueueFull.
func (p *Pool) accept(j job) error {
	if !p.guardTraced(j) {
		return ErrPoolStopped
	}
	lock(&p.jobs.mu)
	full := p.queue > 0 && p.jobs.n >= p.queue
	accepted := !full && p.push(j)
	p.jobs.mu.Unlock()
	switch {
	case accepted:
		return nil
	case full && p.scope.Err() == nil:
		j.release()
		return ErrQueueFull
	}
	j.release()
	return ErrPoolStopped
}

// guardTraced acquires the guard of j if the pool is traced. It returns false if the pool has been
// stopped.
func (p *Pool) guardTraced(j job) bool {
	if !p.trace.on() {
		return true
	}
	guard, ok := p.scope.TryGuard()
	if ok {
		// Name the guard by the line that called Submit, which j contains. The stack need not have
		// that line: fillRoom calls guardTraced on the goroutine of a worker.
		p.trace.Name(guard, j.more.site)
		j.more.guard = guard
	}
	return ok
}

// push queues j, or returns false if the pool has been stopped. The caller has locked p.jobs, and
// has called guardTraced.
//
// The guard of an accepted job was counted before the stop was signalled: either TryGuard has
// succeeded, or the pool already held its guard and the scope was not done after that.
func (p *Pool) push(j job) bool {
	switch {
	case p.trace.on():
	case p.guard == nil:
		guard, ok := p.scope.TryGuard()
		if !ok {
			return false
		}
		p.guard = guard
	case p.scope.Err() != nil:
		return false
	}
	p.jobs.n++
	p.queued.push(j)
	if p.workers < p.limit {
		p.workers++
		go p.work(job{})
	}
	return true
}

// fillRoom queues jobs that wait for room, unless the pool has been stopped. The caller has locked
// p.jobs.
func (p *Pool) fillRoom() {
	for len(p.waiters) > 0 && p.jobs.n < p.queue {
		j := p.waiters[0].what
		if !p.guardTraced(j) || !p.push(j) {
			return
		}
		p.waiters.next()
	}
}

// work runs jobs until the queue is empty. If j is not the zero job, it is a job that another
// worker has run; work first counts it as finished.
func (p *Pool) work(j job) {
	p.trace.label()
	emptied := false
	defer func() {
		// The job has called runtime.Goexit, which ends this goroutine, so a new goroutine takes
		// the place of the worker.
		if !emptied && !p.crashing.Load() {
			go p.work(j)
		}
	}()
	for {
		finished := j
		next, ok, guard := p.next(finished.f != nil)
		j = next
		finished.release()
		guard.Release()
		if !ok {
			break
		}
		p.run(j)
	}
	emptied = true
}

// next counts the job that the worker has run, if any, as finished, which makes room in the queue,
// and returns the next job. If there is no next job, the worker must end, and ok is false. One call
// does both, because locking the mutex takes most of the time that a pool needs for a job. If all
// jobs have finished, next also returns the guard of the pool, which the caller releases.
func (p *Pool) next(finished bool) (j job, ok bool, guard *ctxshutdown.Guard) {
	lock(&p.jobs.mu)
	defer p.jobs.mu.Unlock()
	if finished {
		p.jobs.decrement()
		p.fillRoom()
		if p.jobs.n == 0 {
			guard, p.guard = p.guard, nil
		}
	}
	if j, ok = p.queued.pop(); !ok {
		p.workers--
	}
	return j, ok, guard
}

func (p *Pool) run(j job) {
	var err *PanicError
	defer func() {
		if o := j.offload(); o != nil && !p.crashing.Load() {
			o.finish(err)
		}
	}()
	returned := false
	defer func() {
		if !returned {
			value := recover()
			in, accepted := "job", false
			if o := j.offload(); o != nil {
				in, accepted = "offload", o.acceptsPanic()
			}
			err = newPanicError(in, value)
			p.handlePanic(err, value != nil && !accepted) // the panic handler may call Goexit, so the rest of run is in a deferred call
		}
	}()
	j.f()
	returned = true
}

// handlePanic counts a panic and calls the panic handler. If there is no panic handler and mayCrash
// is set, it ends the program. If the handler panics or calls runtime.Goexit, handlePanic counts
// that, too.
func (p *Pool) handlePanic(err *PanicError, mayCrash bool) {
	p.panics.Add(1)
	p.failure.CompareAndSwap(nil, err)
	if p.onPanic == nil {
		if mayCrash {
			p.crash(err)
		}
		return
	}
	returned := false
	defer func() {
		if !returned {
			recover()
			p.panics.Add(1)
		}
	}()
	resume := p.onPanic(err)
	returned = true
	if !resume {
		p.abort(err)
	}
}

// crash ends the program with the panic err; see loop.crash.
func (p *Pool) crash(err *PanicError) {
	p.crashing.Store(true)
	in := "a job"
	if err.In == "offload" {
		in = "the work or a discard function of an offload"
	}
	fmt.Fprintf(os.Stderr, "eventloop: panic in %s of the pool %q; jobs not finished: %d\n", in, p.name, p.Running())
	panic(err.Value)
}

// abort stops the pool because of a panic.
func (p *Pool) abort(err *PanicError) {
	p.scope.ShutdownCause(err)
	if !p.stopped.Swap(true) {
		stoppedByPanic(p.scope, "pool", p.name, err)
	}
}

// Running returns the number of jobs that have been accepted and have not finished.
func (p *Pool) Running() int { return p.jobs.count() }

// RefusedFull returns the number of jobs and offloads that were refused because the queue was full.
func (p *Pool) RefusedFull() uint64 { return p.refusedFull.Load() }

// Panics returns the number of panics in jobs and in calls of the panic handler.
func (p *Pool) Panics() uint64 { return p.panics.Load() }

// Err returns the first panic of a job from which the pool has recovered, or nil.
func (p *Pool) Err() error {
	if err := p.failure.Load(); err != nil {
		return err
	}
	return nil
}

// WaitIdle waits until no job is queued or running. The jobs synchronize before its return, so the
// completions of their offloads have been queued at their loops. If ctx ends first, it returns a
// [*WaitError]; if the pool is idle, it returns nil even if ctx has ended. WaitIdle does not keep
// other goroutines from submitting jobs. If a callback of a loop would have to wait, it returns
// [ErrInCallback]. A job of p that calls WaitIdle waits until ctx ends, because the job itself is
// running. WaitIdle panics if ctx is nil.
func (p *Pool) WaitIdle(ctx context.Context) error { return p.jobs.wait(ctx, "jobs") }

// Stop stops the pool and returns the completion to wait for. From then on nothing is accepted;
// accepted jobs run. Stop never blocks, may be called repeatedly, and may be called from anywhere,
// even from jobs.
func (p *Pool) Stop() *ctxshutdown.Completion { return p.scope.Shutdown() }
