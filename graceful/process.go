package graceful

import (
	"context"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// A Process is a run of the ladder. It is found with [FromContext] in the scope that [Run] gives to f, and in whatever
// derives from it; the zero value is not usable. Its methods may be called concurrently, and after the run.
type Process struct {
	config config
	scope  *ctxshutdown.Swansong
	lame   chan struct{} // closed when Serving ends
	poke   chan struct{} // the end of the rung has moved

	mu       sync.Mutex
	ladder   ladder
	watchers []*watcher
	failed   *PanicError // the first of those who are told of the run
	raised   bool        // Run looks at failed no more
	broken   chan error  // holds failed until the ladder knows
}

type processKey struct{}

// FromContext returns the process whose [Run] ctx comes from.
func FromContext(ctx context.Context) (*Process, bool) {
	if ctx == nil {
		panic("graceful: nil context")
	}
	p, ok := ctx.Value(processKey{}).(*Process)
	return p, ok
}

func newProcess(ctx context.Context, c config) *Process {
	p := &Process{config: c, lame: make(chan struct{}), poke: make(chan struct{}, 1), broken: make(chan error, 1)}
	p.ladder = ladder{delay: c.lameDuck, soft: c.soft, hard: c.hard, most: c.most}
	p.ladder.Since = time.Now()
	// Values only: the end of ctx enters the ladder at its top, and not in the middle of it.
	values := context.WithValue(context.WithoutCancel(ctx), processKey{}, p)
	p.scope = ctxshutdown.New(values, c.scope...)
	return p
}

// Scope returns the root scope.
func (p *Process) Scope() *ctxshutdown.Swansong { return p.scope }

// Status returns where the process is now.
func (p *Process) Status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ladder.Status
}

// LameDuck returns a channel that is closed when readiness turns false: at the first signal or whatever else makes the
// process stop, whatever the delay.
func (p *Process) LameDuck() <-chan struct{} { return p.lame }

// Watch calls f with the status now, and after every change of it, one call at a time and in order, until stop is
// called. The calls come from a goroutine of their own: an f that blocks misses nothing and keeps nobody waiting, except
// that [Run] gives it up to a second to see the end. A call that is under way when stop is called, by f itself even, may
// outlast it. A panic in f is treated as one of the function that [Run] runs is, and f is told no more.
func (p *Process) Watch(f func(Status)) (stop func()) {
	if f == nil {
		panic("graceful: Watch with a nil function")
	}
	w := &watcher{f: f, fail: p.fail}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watchers = append(p.watchers, w)
	w.tell(p.ladder.Status)
	return func() {
		w.stop()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.watchers = slices.DeleteFunc(p.watchers, func(o *watcher) bool { return o == w })
	}
}

// fail has the process stop, and Run raise err in the end: it is what somebody who was to be told of the run has panicked
// with, on a goroutine of ours. Where Run is gone, nobody else is there to raise it.
func (p *Process) fail(err error) {
	failed, ok := err.(*PanicError)
	if !ok {
		failed = &PanicError{err, debug.Stack()} // a Goexit
	}
	p.mu.Lock()
	raised := p.raised
	if !raised && p.failed == nil {
		p.failed = failed
		p.broken <- failed
	}
	p.mu.Unlock()
	if raised {
		panic(failed)
	}
}

// raise returns what Run is to panic with, if anything. From then on, fail panics itself.
func (p *Process) raise() *PanicError {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.raised = true
	return p.failed
}

// step takes note of an event, tells those who watch, and returns what is to be done.
func (p *Process) step(e event) ([]action, ladder) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.ladder.Status
	todo := p.ladder.step(e)
	if p.ladder.Rung != before.Rung || p.ladder.Signals != before.Signals {
		p.changed()
	}
	return todo, p.ladder
}

func (p *Process) changed() {
	for _, w := range p.watchers {
		w.tell(p.ladder.Status)
	}
}

func (p *Process) look() ladder {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ladder
}

// Ready says that the program is up: that it serves. Under systemd this is READY=1, which a unit with Type=notify is
// waiting for, so f calls it when its listeners are open. It does nothing when called again, when the process has been
// asked to stop, and where ctx does not come from [Run].
func Ready(ctx context.Context) {
	p, ok := FromContext(ctx)
	if !ok {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ladder.Rung == Serving && !p.ladder.Ready {
		p.ladder.Ready = true
		p.changed()
	}
}

// Extend asks that the caller, who holds a guard, have d from now on before Work is cancelled. It returns how much of
// that there is. Where the drain would end sooner, its end moves, but in all runs of Extend together by no more than
// [WithMaxExtension], so that many who ask at once share one extension. The reason is for people.
//
// While [Serving] nothing is granted, since no time runs: ask when the scope is done. From [Hard] on nothing is granted
// either, and a signal ends what was granted. It returns 0 then, and where d is not positive or ctx does not come from
// [Run]. It does not block.
func Extend(ctx context.Context, d time.Duration, reason string) (granted time.Duration) {
	p, ok := FromContext(ctx)
	if !ok {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	granted, moved := p.ladder.extend(time.Now(), d, reason)
	if moved > 0 {
		counters.Lock()
		counters.Extensions++
		counters.Unlock()
		p.changed()
		select {
		case p.poke <- struct{}{}:
		default:
		}
	}
	return granted
}

// A watcher gets every status in order. It has a goroutine only while there is something to tell.
type watcher struct {
	f    func(Status)
	fail func(error) // is told what f has panicked with

	mu      sync.Mutex
	queue   []Status
	idle    chan struct{} // closed once the queue has been told; nil at first
	telling bool
	stopped bool
}

func (w *watcher) tell(st Status) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return
	}
	w.queue = append(w.queue, st)
	if !w.telling {
		w.telling, w.idle = true, make(chan struct{})
		go w.run()
	}
}

func (w *watcher) run() {
	for {
		w.mu.Lock()
		if w.stopped || len(w.queue) == 0 {
			w.telling = false
			close(w.idle)
			w.mu.Unlock()
			return
		}
		st := w.queue[0]
		w.queue = w.queue[1:]
		w.mu.Unlock()
		ok := false
		protect(func() error { w.f(st); return nil }, func(err error) {
			if ok = err == nil; !ok {
				w.fail(err) // before Run hears that this one knows everything
				w.mu.Lock()
				defer w.mu.Unlock()
				w.stopped, w.telling = true, false
				close(w.idle)
			}
		})
		if !ok {
			return
		}
	}
}

func (w *watcher) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
}

// told returns a channel that is closed when the watcher knows everything; nil if it has never been told anything.
func (w *watcher) told() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.idle
}
