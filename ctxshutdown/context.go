package ctxshutdown

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"github.com/swansong-go/swansong/internal/packed"
	"github.com/swansong-go/swansong/internal/scopekey"
)

// A Swansong is one scope of work that is stopped and drained as a whole: a [context.Context] that is done once the
// scope is told to stop, and a registry of guards. Scopes form a tree.
//
//	Running ──Shutdown, or the context it derives from ends──▶ ShuttingDown ──last guard released──▶ Complete
//	                                                              ▲                                    │
//	                                                              └──────────── a late Guard ──────────┘
//
// Two things are kept apart on purpose. The signal is a plain standard-library context derived from the parent
// context, so Err, Cause, deadlines and every function of package context are exactly right. The tree only counts.
// Invariants:
//
//   - signal is set at most once. While it is nil, the scope has no context of its own: nobody has waited on it, and
//     Err asks the parent. The first Done, the first error seen and the first Shutdown compete for setting it.
//   - The node is told to stop after the signal has been given, here and in everything that derives from here.
//   - No function of package context is called under a lock of the tree: they call back.
//
// All methods may be called from any number of goroutines at once. A Swansong must not be copied. The zero value is
// not usable: its methods panic, String excepted.
type Swansong struct {
	node   packed.Node
	parent context.Context
	signal atomic.Pointer[signal]
	watch  atomic.Pointer[func() bool] // undoes the AfterFunc on signal
	work   atomic.Pointer[work]
	forced atomic.Pointer[error]     // the cause of Force, written before either tier ends
	late   atomic.Pointer[time.Time] // when somebody first gave up waiting for the stopped scope
	name   string
	// trace is nil where not traced. Each guard looks at it. Beside what it writes, in the first line, it would be one line less to
	// fetch for scopes out of cache, 1.0 instead of 1.8 misses of a simulated first level, and four or five instructions less;
	// but a TryGuard in a loop took 0.89 instead of 0.86 of a WaitGroup, and scopes out of cache 0.94 of the time, give or take 0.3.
	trace *scopeTrace
}

// State is what a scope is doing.
type State int

const (
	Running      State = iota // not told to stop
	ShuttingDown              // told to stop, with guards held in its subtree
	Complete                  // told to stop, and no guard held in its subtree
)

func (st State) String() string {
	switch st {
	case Running:
		return "Running"
	case ShuttingDown:
		return "ShuttingDown"
	case Complete:
		return "Complete"
	}
	return "State(?)"
}

// New returns a running root scope whose signal derives from ctx: when ctx ends, the scope is told to stop, with the
// error and the cause of ctx. A scope found in ctx does not become its parent; that is what [WithCancel] is for.
//
// Call [Swansong.Shutdown] when done with it. New panics if ctx is nil, as context.WithCancel does.
func New(ctx context.Context, opts ...Option) *Swansong {
	s := newScope(ctx, nil, opts)
	s.wire()
	s.reportLoss()
	return s
}

// WithCancel returns a child scope and a function that stops it. Its signal derives from parent, and its place in the
// tree is under the nearest scope that parent carries, through any number of derived contexts; it is a root if parent
// carries none. A child of a context derived from [Swansong.Work] keeps running when that scope is told to stop: its
// guards count there, and its own signal is the end of that Work.
//
// cancel is [Swansong.Shutdown] without the result, and as with context.WithCancel the code should call it when done.
// A child that is never cancelled costs no more than a context.WithCancel never cancelled.
//
// WithCancel panics if parent is nil, as context.WithCancel does.
func WithCancel(parent context.Context, opts ...Option) (s *Swansong, cancel context.CancelFunc) {
	up, _ := fromContext(parent)
	s = newScope(parent, up, opts)
	if up == nil {
		s.wire()
		s.reportLoss()
	}
	return s, s.cancel
}

func newScope(ctx context.Context, up *Swansong, opts []Option) *Swansong {
	if ctx == nil {
		panic("ctxshutdown: cannot create a scope from a nil context")
	}
	s := &Swansong{parent: ctx}
	// What is between two scopes, or above a root, may end by itself.
	if up == nil {
		s.node.Init(nil, (*owner)(s), ctx.Done() != nil)
	} else {
		up.from()
		s.node.Init(&up.node, (*owner)(s), ctx != up)
	}
	if len(opts) != 0 || up == nil || up.trace != nil {
		s.configure(up, opts)
	}
	return s
}

func (s *Swansong) cancel() { s.stop(ErrShutdown) }

// FromContext returns the nearest scope that ctx carries, through any number of derived contexts. For a context
// derived from [Swansong.Work] that is the scope whose Work it is.
func FromContext(ctx context.Context) (*Swansong, bool) { return fromContext(ctx) }

func fromContext(ctx context.Context) (*Swansong, bool) {
	switch c := ctx.(type) {
	case nil:
		panic("ctxshutdown: nil context")
	case *Swansong:
		return c, true
	}
	s, ok := ctx.Value(scopekey.Nearest{}).(*Swansong)
	return s, ok
}

// Deadline returns the deadline of the context that the scope derives from.
func (s *Swansong) Deadline() (deadline time.Time, ok bool) { return s.from().Deadline() }

// Done returns a channel that is closed when the scope is told to stop: the soft tier. What must outlive the stop
// takes [Swansong.Work] instead.
func (s *Swansong) Done() <-chan struct{} { return s.wire().ctx.Done() }

// Err is nil until the scope is told to stop, then [context.Canceled], or [context.DeadlineExceeded] if that was what
// ended it. [context.Cause] tells more.
func (s *Swansong) Err() error {
	if g := s.signal.Load(); g != nil {
		return g.ctx.Err()
	}
	return s.pull()
}

// Value returns the value that the context it derives from associates with key.
func (s *Swansong) Value(key any) any {
	if key == (scopekey.Nearest{}) || key == (scopekey.Soft{}) {
		return s
	}
	g := s.signal.Load()
	if g == nil {
		return s.from().Value(key)
	}
	if v := g.ctx.Value(key); v != nil || !g.detached() {
		return v
	}
	return s.from().Value(key)
}

// Shutdown tells the scope and everything below it to stop, with the cause [ErrShutdown], and returns what to wait
// on. It never waits for guards, is idempotent, and may be called from anywhere. When it returns, Err is set here and
// in all that derives from here (through context types that are not the standard library's, a moment later), and every
// guard acquired before is counted.
func (s *Swansong) Shutdown() *Completion { return s.ShutdownCause(ErrShutdown) }

// ShutdownCause is [Swansong.Shutdown] with a cause for [context.Cause]. The first cause wins; nil means ErrShutdown.
func (s *Swansong) ShutdownCause(cause error) *Completion {
	if cause == nil {
		cause = ErrShutdown
	}
	s.stop(cause)
	return s.completion()
}

// Completion returns what to wait on, without telling anybody to stop.
func (s *Swansong) Completion() *Completion {
	s.observe()
	return s.completion()
}

// State returns what the scope is doing. Complete can become ShuttingDown again by a late [Swansong.Guard].
func (s *Swansong) State() State {
	if s.Err() == nil {
		return Running
	}
	s.settle()
	if s.node.Complete() {
		return Complete
	}
	return ShuttingDown
}

// GuardCount returns the number of guards held in the subtree. It takes time proportional to the scopes that hold
// guards, and guards that come and go meanwhile may be counted or not.
func (s *Swansong) GuardCount() int {
	s.from()
	total := 0
	s.node.Walk(func(_ packed.Owner, guards int) { total += guards })
	return total
}

// BaseContext returns [Swansong.Work]; it is for [net/http.Server.BaseContext], so that requests outlive the stop.
//
// It counts nothing by itself. Without a guard per request, Shutdown completes at once and every request's context
// ends with it: use it with a handler that calls [Acquire] on the request's context.
func (s *Swansong) BaseContext(net.Listener) context.Context { return s.Work() }

// String returns the scope's path, for logs and for the String methods of derived contexts.
func (s *Swansong) String() string {
	if p := s.path(); p != "" {
		return "Swansong(" + p + ")"
	}
	return "Swansong"
}

// from returns the context the scope derives from. Every method of a zero Swansong ends up here or in the node.
func (s *Swansong) from() context.Context {
	if s.parent == nil {
		panic("ctxshutdown: use of a zero Swansong; make one with New or WithCancel")
	}
	return s.parent
}

// up returns the parent scope, nil for a root.
func (s *Swansong) up() *Swansong {
	if p := s.node.Parent(); p != nil {
		return scopeOf(p.Owner())
	}
	return nil
}

// An owner is a Swansong as its node knows it; the type keeps Completed out of the public method set.
type owner Swansong

func (o *owner) Completed() { (*Swansong)(o).endWork() }

func scopeOf(o packed.Owner) *Swansong { return (*Swansong)(o.(*owner)) }
