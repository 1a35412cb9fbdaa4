package graceful

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/internal/ctxkey"
)

// A Process is one call of [Run]. [FromContext] finds it in the scope that Run passes to its
// function f, and in every context derived from that scope. The zero value is not usable. The
// methods may be called concurrently, and after Run has returned.
type Process struct {
	config   config
	scope    *ctxshutdown.Swansong
	lameDuck chan struct{} // closed when the phase Serving ends
	extended chan struct{} // receives a value when the end of the current phase has moved

	panics chan error // passes the first panic of a callback, an event loop or a pool to Run; has room for one error

	mu              sync.Mutex
	phases          phases
	watchers        []*watcher
	blockers        *ctxshutdown.GuardReport // the guards held before the latest change of the phase to Hard or Exit
	callbackPanic   *PanicError              // the first panic of a callback
	panicTaken      bool                     // Run has called takePanic, and raises no later panic
	loopPanics      []*PanicError            // the panics that have stopped an event loop or a pool
	loopPanicsTaken bool                     // Run has called takeLoopPanics; it returns no later one
	logged          []<-chan struct{}        // for each panic that Run logs at once, a channel that is closed when it has been logged
}

type processKey struct{}

// FromContext returns the process of the [Run] from whose scope ctx derives.
func FromContext(ctx context.Context) (*Process, bool) {
	if ctx == nil {
		panic("graceful: nil context")
	}
	p, ok := ctx.Value(processKey{}).(*Process)
	return p, ok
}

func newProcess(ctx context.Context, c config) *Process {
	p := &Process{config: c, lameDuck: make(chan struct{}), extended: make(chan struct{}, 1), panics: make(chan error, 1)}
	p.phases = phases{delay: c.lameDuck, soft: c.soft, hard: c.hard, maxExtension: c.maxExtension}
	p.phases.Since = time.Now()
	// The scope takes only the values of ctx, not its cancellation: when ctx ends, the process
	// begins its first phase instead of being cancelled.
	values := context.WithValue(context.WithoutCancel(ctx), processKey{}, p)
	values = context.WithValue(values, ctxkey.Panicked{}, p.loopPanicked)
	p.scope = ctxshutdown.New(values, c.scope...)
	return p
}

// Scope returns the root scope.
func (p *Process) Scope() *ctxshutdown.Swansong { return p.scope }

// Status returns the current status.
func (p *Process) Status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.phases.shown()
}

// LameDuck returns a channel that is closed when the process stops being ready. This is when the
// process is first asked to stop, even if the lame-duck delay is 0.
func (p *Process) LameDuck() <-chan struct{} { return p.lameDuck }

// Watch calls f with the current status and after every change of it, in order and one call at a
// time, until stop is called. The calls come from a separate goroutine: an f that blocks misses
// nothing and delays nothing, except that [Run] waits up to one second for f to see the end. A call
// of f that is in progress when stop is called may still run after stop has returned. So f may call
// stop. If f panics, it is not called again, and the panic is treated like a panic of the function
// that [Run] runs.
func (p *Process) Watch(f func(Status)) (stop func()) {
	if f == nil {
		panic("graceful: Watch with a nil function")
	}
	w := &watcher{f: f, fail: p.fail}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watchers = append(p.watchers, w)
	w.notify(p.phases.shown())
	return func() {
		w.stop()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.watchers = slices.DeleteFunc(p.watchers, func(o *watcher) bool { return o == w })
	}
}

// step passes an event to the state machine of the phases, notifies watchers if the status has
// changed, and returns the actions to execute.
func (p *Process) step(e event) ([]action, phases) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.phases.Status
	actions := p.phases.step(e)
	if p.phases.Phase != before.Phase || p.phases.Signals != before.Signals {
		p.notifyWatchers()
	}
	return actions, p.phases
}

func (p *Process) setBlockers(r ctxshutdown.GuardReport) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.blockers = &r
}

// lastBlockers returns the guards that were held when phase Hard or Exit began. In other phases,
// and after a drain, it returns those that are held now.
func (p *Process) lastBlockers(phase Phase) ctxshutdown.GuardReport {
	p.mu.Lock()
	blockers, outcome := p.blockers, p.phases.outcome
	p.mu.Unlock()
	if blockers != nil && (phase == Hard || phase == Exit && outcome == abandoned) {
		return *blockers
	}
	return p.scope.GuardReport()
}

func (p *Process) notifyWatchers() {
	for _, w := range p.watchers {
		w.notify(p.phases.shown())
	}
}

func (p *Process) current() phases {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.phases
}

// Ready reports that the program is serving. Under systemd it sends READY=1, which a unit with
// Type=notify waits for, so the function given to [Run] calls it when its listeners are open. It
// has no effect if it was called before, if the process has been asked to stop, or if ctx does not
// derive from the scope of [Run]. If [Listen] was called, and has not returned some of the
// inherited listeners, Ready reports these as a warning.
func Ready(ctx context.Context) {
	p, ok := FromContext(ctx)
	if !ok {
		return
	}
	p.mu.Lock()
	isFirst := p.phases.Phase == Serving && !p.phases.Ready
	if isFirst {
		p.phases.Ready = true
		p.notifyWatchers()
	}
	p.mu.Unlock()
	if isFirst {
		p.warnOfUnusedListeners()
	}
}

// Extend requests that Work is not cancelled before d has passed. The caller must hold a guard.
// Extend returns how much of d is available.
//
// If Soft would end earlier, its end moves, but in total by no more than [WithMaxExtension].
// Callers that ask at the same time share one extension. The reason is shown in logs and on the
// progress line.
//
// Extend returns 0 while [Serving], since no time limit runs yet: call it once the scope is done.
// It also returns 0 from [Hard] on, if d is not positive, and if ctx does not derive from the scope
// of [Run]. A signal ends an extension. Extend does not block.
func Extend(ctx context.Context, d time.Duration, reason string) (granted time.Duration) {
	p, ok := FromContext(ctx)
	if !ok {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	granted, moved := p.phases.extend(time.Now(), d, reason)
	if moved > 0 {
		counters.Lock()
		counters.Extensions++
		counters.Unlock()
		p.notifyWatchers()
		select {
		case p.extended <- struct{}{}:
		default:
		}
	}
	return granted
}
