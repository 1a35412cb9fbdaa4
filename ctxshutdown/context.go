package ctxshutdown

// Scopes: the type Swansong, its creation, its state and its stop.
//
// A scope consists of a context and a node. The context tells whether the scope has been told to
// stop; it is a chain of standard contexts, see lazycontext.go. The node counts guards in a tree
// and tells whether the scope is complete; see package packed. The methods stop and syncTree
// connect the two.

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"github.com/swansong-go/swansong/internal/ctxkey"
	"github.com/swansong-go/swansong/internal/packed"
)

// A Swansong is a scope of work that is stopped and drained as a whole. It is a [context.Context]
// that is done once the scope is told to stop, and it counts guards. Scopes form a tree.
//
//	Running ──Shutdown, or end of the parent context──▶ ShuttingDown ──last Release──▶ Complete
//	                                                         ▲                            │
//	                                                         └──────── a late Guard ──────┘
//
// All methods may be called concurrently. A Swansong must not be copied. The zero value is not
// usable: its methods panic, except for String.
type Swansong struct {
	// The signal to stop is a standard context, std, so Err, Cause, deadlines and every function of
	// package context behave as they do for context.WithCancel. The node, which is the place of the
	// scope in the tree of package packed, only counts guards.
	//
	//   - std is set at most once. While it is nil, Err asks the parent context. The first call of
	//     Done, the first Err that is not nil and the first Shutdown compete for setting it.
	//   - The node is stopped after the context of the scope, and every context that derives from
	//     it, has been cancelled.
	//   - No function of package context is called with a lock of the tree held, because such
	//     functions call methods of scopes, which may need the same lock.
	node          packed.Node
	parent        context.Context
	std           atomic.Pointer[stdContext]
	stopAfterFunc atomic.Pointer[func() bool] // unregisters syncTree, which watchContext has passed to context.AfterFunc
	work          atomic.Pointer[work]
	// forced is the cause of a Force of this scope or an ancestor. It is set before a context is
	// cancelled.
	forced   atomic.Pointer[error]
	gaveUpAt atomic.Pointer[time.Time] // time when a Wait first gave up after the stop
	name     string
	// trace is nil if the scope is not traced and has no logger. Every guard operation reads it.
	trace *scopeTrace
}

// State is the phase of a scope: Running, ShuttingDown or Complete.
type State int

const (
	Running      State = iota // not told to stop
	ShuttingDown              // told to stop, with guards held in its subtree
	Complete                  // told to stop, and no guard held in its subtree
)

// String returns the name of the constant.
func (st State) String() string {
	if st < Running || st > Complete {
		return "State(?)"
	}
	return [...]string{"Running", "ShuttingDown", "Complete"}[st]
}

// New returns a running root scope that derives from ctx: when ctx ends, the scope is told to stop,
// with the error and the cause of ctx. If ctx carries a scope, that scope does not become the
// parent; use [WithCancel] for that.
//
// Call [Swansong.Shutdown] when the scope is no longer needed. New panics if ctx is nil.
func New(ctx context.Context, opts ...Option) *Swansong {
	s := newScope(ctx, nil, opts)
	s.derive()
	s.watchForLoss()
	return s
}

// WithCancel returns a child scope and a function that stops it. The child derives from the context
// parent, and its guards count at the nearest scope that parent carries, through any number of
// derived contexts, and at every scope above that. If parent carries no scope, the new scope is a
// root. A child of a context that derives from [Swansong.Work] keeps running when the scope is told
// to stop, and is told to stop when that Work ends.
//
// cancel is [Swansong.Shutdown] without the result. As with context.WithCancel, call it when the
// scope is no longer needed; a child that is never cancelled costs no more than a
// context.WithCancel that is never cancelled. WithCancel panics if parent is nil.
func WithCancel(parent context.Context, opts ...Option) (s *Swansong, cancel context.CancelFunc) {
	up, _ := FromContext(parent)
	s = newScope(parent, up, opts)
	if up == nil {
		s.derive()
		s.watchForLoss()
	}
	return s, s.cancel
}

// newScope returns a scope that derives from ctx and is a child of the scope up, or a root if up is
// nil.
func newScope(ctx context.Context, up *Swansong, opts []Option) *Swansong {
	if ctx == nil {
		panic("ctxshutdown: cannot create a scope from a nil context")
	}
	s := &Swansong{parent: ctx}
	// Before this package cancels the context of a scope, it marks the scope and its descendants,
	// and TryGuard of a marked scope checks the context. If code outside this package cancels a
	// context between two scopes, or above a root, no mark precedes that. So TryGuard of a scope
	// below such a context must always check the context.
	if up == nil {
		s.node.Init(nil, (*owner)(s), ctx.Done() != nil)
	} else {
		up.parentContext()
		s.node.Init(&up.node, (*owner)(s), ctx != up)
	}
	if len(opts) != 0 || up == nil || up.trace != nil {
		s.configure(up, opts)
	}
	return s
}

// cancel is the cancel function of WithCancel.
func (s *Swansong) cancel() { s.stop(ErrShutdown) }

// FromContext returns the nearest scope that ctx carries, through any number of derived contexts.
// For a context that derives from [Swansong.Work] it is the scope of that Work. FromContext panics
// if ctx is nil.
func FromContext(ctx context.Context) (*Swansong, bool) {
	switch c := ctx.(type) {
	case nil:
		panic("ctxshutdown: nil context")
	case *Swansong:
		c.mustNotBeNil()
		return c, true
	}
	s, ok := ctx.Value(ctxkey.NearestScope{}).(*Swansong)
	return s, ok
}

// Deadline returns the deadline of the context that the scope derives from.
func (s *Swansong) Deadline() (deadline time.Time, ok bool) { return s.parentContext().Deadline() }

// Done returns a channel that is closed when the scope is told to stop. Work that must outlive the
// stop uses the context of [Swansong.Work] instead.
func (s *Swansong) Done() <-chan struct{} { return s.derive().ctx.Done() }

// Err returns nil until the scope is told to stop. Then it returns [context.Canceled], or
// [context.DeadlineExceeded] if the scope was stopped by a deadline of the context that it derives
// from. [context.Cause] returns the reason.
func (s *Swansong) Err() error {
	s.mustNotBeNil()
	if c := s.std.Load(); c != nil {
		return c.ctx.Err()
	}
	parent := s.parentContext()
	if up := s.parentScope(); up != nil {
		// Give the parent scope a standard context. Then its Err need not ask every scope above it.
		up.derive()
	}
	if parent.Err() == nil {
		return nil
	}
	// The parent context has ended, and so has this scope. Create its standard context now, so that
	// a later Shutdown cannot change the cause that the caller sees. If the parent context is a
	// scope, its standard context will do: it has ended, and has the same values.
	if p, ok := parent.(*Swansong); ok {
		s.std.CompareAndSwap(nil, p.std.Load())
	}
	return s.derive().ctx.Err()
}

// Value returns the value for key in the context from which the scope derives.
func (s *Swansong) Value(key any) any {
	s.mustNotBeNil()
	if key == (ctxkey.NearestScope{}) || key == (ctxkey.SoftScope{}) {
		return s
	}
	if key == (ctxkey.Tracing{}) {
		return s.tracer()
	}
	c := s.std.Load()
	if c == nil && key == causeKey {
		// The function context.Cause asks for the cause of the scope. Create the standard context,
		// which fixes that cause. If Cause got the cause of the parent context instead, a
		// concurrent Shutdown could afterwards give the scope a different one.
		c = s.derive()
	}
	if c == nil {
		return s.parentContext().Value(key)
	}
	if v := c.ctx.Value(key); v != nil || c.isDerived() {
		return v
	}
	return s.parentContext().Value(key)
}

// causeKey is the key with which context.Cause asks a context for the standard context that stores
// its cause. Package context does not export it.
var causeKey = func() any {
	var k keyRecorder
	context.Cause(&k)
	return k.key
}()

// A keyRecorder is a context that has ended, and stores the key for which it is asked.
type keyRecorder struct {
	context.Context
	key any
}

func (*keyRecorder) Err() error          { return context.Canceled }
func (k *keyRecorder) Value(key any) any { k.key = key; return nil }

// Shutdown tells the scope and its descendants to stop, with the cause [ErrShutdown], and returns
// the [Completion] to wait for. It never waits for guards, may be called more than once, and from
// anywhere.
//
// When Shutdown returns, Err is set in the scope and in every context that derives from it, and
// every guard acquired before the call is counted. (A derived context whose type is not from the
// standard library can end a moment later.)
func (s *Swansong) Shutdown() *Completion { return s.ShutdownCause(ErrShutdown) }

// ShutdownCause is [Swansong.Shutdown] with a cause for [context.Cause]. The first cause wins; nil
// means [ErrShutdown].
func (s *Swansong) ShutdownCause(cause error) *Completion {
	if cause == nil {
		cause = ErrShutdown
	}
	s.stop(cause)
	return s.completion()
}

// Completion returns the [Completion] to wait for. Unlike [Swansong.Shutdown] it does not tell the
// scope to stop.
func (s *Swansong) Completion() *Completion {
	s.watchContext()
	return s.completion()
}

// State returns the phase of the scope. A late [Swansong.Guard] turns Complete into ShuttingDown
// again.
func (s *Swansong) State() State {
	if s.Err() == nil {
		return Running
	}
	s.syncTree()
	if s.node.IsComplete() {
		return Complete
	}
	return ShuttingDown
}

// GuardCount returns the number of guards held in the subtree. It takes time proportional to the
// number of scopes that hold guards. A guard that is acquired or released during the call may be
// counted or not.
func (s *Swansong) GuardCount() int {
	s.parentContext()
	total := 0
	s.node.Walk(func(_ packed.Owner, guards int) { total += guards })
	return total
}

// BaseContext returns [Swansong.Work]. It has the signature of [net/http.Server.BaseContext], so
// that requests outlive the stop.
//
// BaseContext acquires no guard. If requests hold no guards, the scope completes as soon as
// Shutdown is called, and the context of every request ends with the completion. So combine
// BaseContext with a handler that calls [Acquire] on the context of the request.
func (s *Swansong) BaseContext(net.Listener) context.Context { return s.Work() }

// String returns "Swansong(path)", with the names from the root to the scope, or "Swansong" if no
// scope on the path has a name.
func (s *Swansong) String() string {
	if p := s.path(); p != "" {
		return "Swansong(" + p + ")"
	}
	return "Swansong"
}

// parentContext returns the context that the scope derives from. It panics if s is the zero value.
// Every exported method of Swansong except String calls parentContext, or a method of the node that
// panics for a zero node.
func (s *Swansong) parentContext() context.Context {
	s.mustNotBeNil()
	if s.parent == nil {
		panic("ctxshutdown: use of a zero Swansong; make one with New or WithCancel")
	}
	return s.parent
}

// mustNotBeNil panics with a text that helps if s is nil. Every exported method of Swansong except
// String calls it first, directly or not.
func (s *Swansong) mustNotBeNil() {
	if s == nil {
		panic("ctxshutdown: use of a nil *Swansong; make one with New or WithCancel")
	}
}

// parentScope returns the parent of s in the tree, or nil if s is a root.
func (s *Swansong) parentScope() *Swansong {
	if p := s.node.Parent(); p != nil {
		return scopeOf(p.Owner())
	}
	return nil
}

// owner is a Swansong in the role of the owner of its node. It is a separate type so that
// OnComplete, which the node calls, is not an exported method of Swansong.
type owner Swansong

func (o *owner) OnComplete() { (*Swansong)(o).cancelWork() }

// scopeOf returns the Swansong that o is: package packed knows a Swansong only as an Owner.
func scopeOf(o packed.Owner) *Swansong { return (*Swansong)(o.(*owner)) }
