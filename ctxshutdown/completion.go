package ctxshutdown

// Scopes: completions, and the result of Wait.
//
// The most common mistake in a graceful shutdown is to pass Wait a context that the shutdown itself
// ends. Wait would then return at once, with an error that looks like a drain that took too long.
// So Wait finds out whether its context ended because of the stop that it waits for, and then
// returns ErrWaitContext. See docs/internals/core.md#semantic-8.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/swansong-go/swansong/internal/ctxkey"
)

// ErrWaitContext is returned by [Completion.Wait] if the context passed to Wait ended because of
// the stop that Wait waits for: it derives from the scope or from another scope that this stop
// ended, or it is the context from which the scope derives. Wait has then not waited for the guards
// to be released. ErrWaitContext does not match context.Canceled or context.DeadlineExceeded, so
// that callers do not mistake it for a drain that took too long.
var ErrWaitContext = errors.New("ctxshutdown: the context passed to Wait ended with the shutdown, so Wait did not wait; " +
	"pass a separate context, such as context.WithTimeout(context.Background(), 10*time.Second)")

// errNoError replaces the cause of a context whose Done channel is closed although its Err is nil.
// The contract of context.Context forbids such a context.
var errNoError = errors.New("the Done channel of the context is closed, but its Err is nil")

// A Completion resolves when its scope is complete, and then stays resolved. If a guard is acquired
// after that, the scope has a new Completion, which waits for that guard. The methods of [Swansong]
// return Completions. The methods of a Completion may be called concurrently.
type Completion struct {
	scope *Swansong
	done  <-chan struct{}
}

// completion returns a new Completion of s. It does not tell s to stop.
func (s *Swansong) completion() *Completion {
	return &Completion{scope: s, done: s.node.Done()}
}

// Done returns a channel that is closed when the scope has been told to stop and no guard is held
// in its subtree.
func (c *Completion) Done() <-chan struct{} {
	c.checkInit()
	return c.done
}

// checkInit panics if c is nil or the zero value.
func (c *Completion) checkInit() {
	if c == nil || c.scope == nil {
		panic("ctxshutdown: use of a nil or zero Completion; get one from Shutdown or Completion of a scope")
	}
}

// Wait waits until the scope is complete or ctx ends. It does not tell the scope to stop. It
// returns
//
//   - nil if the scope is complete, even if ctx has ended,
//   - [ErrWaitContext] if ctx ended because of the stop that Wait waits for,
//   - eventloop.ErrInCallback if the scope is that of an event loop and a callback called Wait,
//   - otherwise a [*DrainError] that names the guards still held and unwraps to the cause of ctx.
//
// With a context that has ended, Wait therefore returns at once and tells which guards are held.
// Wait panics if ctx is nil.
func (c *Completion) Wait(ctx context.Context) error {
	c.checkInit()
	if ctx == nil {
		panic("ctxshutdown: Wait with a nil context")
	}
	if c.isComplete() {
		return nil
	}
	ended := ctx.Done()
	if check, ok := c.scope.Value(ctxkey.CheckWait{}).(func() error); ok && ctx.Err() == nil {
		if err := check(); err != nil {
			return err
		}
	}
	// survived is set if ctx, the context passed to Wait, is not done after the scope has stopped.
	// Then the stop has not ended ctx.
	survived := false
	for stopped, waiting := c.scope.Done(), true; waiting; {
		if stopped != nil && c.scope.Err() != nil {
			stopped = nil // a nil channel, because a closed one would end every further select at once
			if top := c.commonScope(ctx); top != nil {
				// If the scope top has been told to stop, State returns only when the stop has
				// ended ctx.
				top.State()
			}
			survived = ctx.Err() == nil
		}
		select {
		case <-c.done:
			return nil
		case <-stopped:
		case <-ended:
			waiting = false
		}
	}
	if c.isComplete() {
		return nil
	}
	cause := cmp.Or(context.Cause(ctx), errNoError)
	if !survived && c.endedByStop(ctx, ended, cause) {
		return ErrWaitContext
	}
	report := c.scope.GuardReport()
	if report.Count() == 0 && c.isComplete() {
		return nil // the last guard was released only after isComplete had been called above
	}
	if now := time.Now(); c.scope.Err() != nil {
		c.scope.gaveUpAt.CompareAndSwap(nil, &now)
	}
	return &DrainError{Report: report, Cause: cause, Stacks: report.stacks()}
}

// isComplete reports whether the completion has resolved. It takes into account that a context
// above the scope may have ended without a call of this package.
func (c *Completion) isComplete() bool {
	c.scope.State() // if the context of the scope has ended, State can complete the scope
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// endedByStop reports whether ctx has ended because of the stop of the scope. ctxDone and cause are
// the Done channel and the cause of ctx. Comparing causes is not enough, because two contexts can
// be cancelled with the same error. So it also requires a scope whose stop ends both ctx and the
// scope of c.
func (c *Completion) endedByStop(ctx context.Context, ctxDone <-chan struct{}, cause error) bool {
	top := c.commonScope(ctx)
	for s := c.scope; s != nil; s = s.stoppedWith() {
		// A context that only adds values has the Done channel of the context that it derives from.
		if s.parentContext().Done() == ctxDone {
			// The scope s derives from ctx. Wait for its end, which can be a moment after that of
			// ctx.
			<-s.Done()
			top = s
		}
	}
	if top == nil {
		return false
	}
	// If the scope top has been told to stop, State returns only when the stop has ended c.scope.
	top.State()
	return isSameCause(cause, context.Cause(top)) && isSameCause(cause, context.Cause(c.scope))
}

// commonScope returns the lowest scope whose stop ends both the scope of c and ctx, or nil if there
// is none. It can be the scope of c itself. A context that derives from [Swansong.Work] derives
// from no scope in this sense.
func (c *Completion) commonScope(ctx context.Context) *Swansong {
	s, _ := ctx.Value(ctxkey.SoftScope{}).(*Swansong)
	for ; s != nil; s = s.stoppedWith() {
		for above := c.scope; above != nil; above = above.stoppedWith() {
			if s == above {
				return s
			}
		}
	}
	return nil
}

// stoppedWith returns the nearest scope above s whose stop also ends s, or nil if there is none. If
// s derives from context.WithoutCancel or from [Swansong.Work] of another scope, the guards of s
// count in the other scope, but the stop of the other scope does not end s.
func (s *Swansong) stoppedWith() *Swansong {
	if s.parentContext().Done() == nil {
		return nil
	}
	above, _ := s.parent.Value(ctxkey.SoftScope{}).(*Swansong)
	return above
}

// isSameCause reports whether a == b. If that cannot be computed, because their dynamic type does
// not support ==, causes of the same type count as equal.
func isSameCause(a, b error) bool {
	if reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() {
		return a == b
	}
	return reflect.TypeOf(a) == reflect.TypeOf(b)
}

// A DrainError is returned by [Completion.Wait] if its context ended before the scope was complete.
type DrainError struct {
	Report GuardReport // the guards that were still held
	Cause  error       // context.Cause of the context that was passed to Wait

	// Stacks has the stacks of the goroutines that Go had started in the traced scopes of Report.
	// It is empty if no scope is traced. Error does not print Stacks.
	Stacks string
}

// Error returns one line that names the guards still held.
func (e *DrainError) Error() string {
	if e.Report.Count() == 0 {
		return fmt.Sprintf("ctxshutdown: Wait ended (%v) although no guard was held; if the scope was not told to stop, call Shutdown before Wait", e.Cause)
	}
	return fmt.Sprintf("ctxshutdown: Wait ended (%v) with work still running: %v; wait longer, or call Force to cancel that work", e.Cause, e.Report)
}

// Unwrap returns Cause.
func (e *DrainError) Unwrap() error { return e.Cause }
