package ctxshutdown

// Scopes: completions, and the result of Wait.
//
// The most common mistake in a graceful shutdown is to pass Wait a context that the shutdown itself
// ends. Wait would then return at once, with an error that looks like a drain that took too long.
// So Wait finds out whether the shutdown ended the context that was passed to it, and then returns
// ErrWaitContext. See docs/internals/core.md#semantic-8.

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/swansong-go/swansong/internal/ctxkey"
)

// ErrWaitContext is returned by [Completion.Wait] if the context passed to Wait had ended before
// the call, or was ended by the shutdown that Wait waits for. In both cases Wait has not waited for
// the guards to be released. ErrWaitContext does not match context.Canceled or
// context.DeadlineExceeded, so that callers do not mistake it for a drain that took too long.
var ErrWaitContext = errors.New("ctxshutdown: the context passed to Wait had ended, or ended with the shutdown, so Wait did not wait; " +
	"pass a separate context, such as context.WithTimeout(context.Background(), 10*time.Second)")

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
func (c *Completion) Done() <-chan struct{} { return c.done }

// Wait waits until the scope is complete or ctx ends. It does not tell the scope to stop. It
// returns
//
//   - nil if the scope is complete, even if ctx has ended,
//   - [ErrWaitContext] if ctx had ended before the call, or was ended by the shutdown of the scope,
//   - otherwise a [*DrainError] that names the guards still held and unwraps to the cause of ctx.
//
// Wait panics if ctx is nil.
func (c *Completion) Wait(ctx context.Context) error {
	if ctx == nil {
		panic("ctxshutdown: Wait with a nil context")
	}
	// If ctx is not done after the stop has been signalled, then this stop is not what ends ctx
	// later. The check of ctx must follow the call of State, because State returns only after the
	// stop has reached every context that derives from the scope.
	stopped := c.scope.Done()
	survivedStop := c.scope.State() != Running
	if c.isClosed() {
		return nil
	}
	if ctx.Err() != nil {
		return ErrWaitContext
	}
	ended := ctx.Done()
	if ended == nil { // ctx never ends, and receiving from one channel is faster than select
		<-c.done
		return nil
	}
	if survivedStop {
		stopped = nil // this channel is closed already, and would end the first select at once
	}
	// The scope can be told to stop while Wait blocks. Then Wait checks ctx once more, after the
	// stop has reached every context that derives from the scope.
	for waiting := true; waiting; {
		select {
		case <-c.done:
			return nil
		case <-stopped:
			stopped = nil
			c.scope.State()
			survivedStop = survivedStop || ctx.Err() == nil
		case <-ended:
			waiting = false
		}
	}
	if c.isComplete() {
		return nil
	}
	if c.endedByShutdown(ctx, survivedStop) {
		return ErrWaitContext
	}
	report := c.scope.GuardReport()
	if report.Count() == 0 && c.isComplete() {
		return nil // the last guard was released after the check of isComplete above
	}
	if now := time.Now(); c.scope.Err() != nil {
		c.scope.gaveUpAt.CompareAndSwap(nil, &now)
	}
	return &DrainError{Report: report, Cause: context.Cause(ctx), Stacks: report.stacks()}
}

// isComplete reports whether the completion has resolved. Unlike isClosed, it takes into account
// that a context above the scope may have ended without a call of this package.
func (c *Completion) isComplete() bool {
	c.scope.State() // State stops the node if the context of the scope has ended
	return c.isClosed()
}

// isClosed reports whether the Done channel is closed.
func (c *Completion) isClosed() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// endedByShutdown reports whether ctx was ended by the shutdown of the scope. survivedStop tells
// whether ctx was still running after the stop had reached every context that derives from the
// scope.
//
// A context that was ended by the shutdown has the cause of the scope. The converse holds only for
// causes that identify one stop:
//
//   - A pointer that is not a well-known error identifies one stop.
//   - A well-known error does not identify a stop: a time-out of ctx and a deadline of the scope
//     are both DeadlineExceeded. With such a cause, ctx counts as ended by the shutdown only if ctx
//     is related to the scope.
//   - Any other error can be equal to another one without being the same: signal.NotifyContext gives
//     equal causes for a first and a second ^C. So it identifies a stop only if ctx did not survive
//     that stop.
func (c *Completion) endedByShutdown(ctx context.Context, survivedStop bool) bool {
	cause, stop := context.Cause(ctx), context.Cause(c.scope)
	switch {
	case !isSameCause(cause, stop):
		return false
	case isUnique(cause):
		return true
	case survivedStop:
		return false
	case !isWellKnown(cause) && isComparable(cause):
		return true
	case isEqual(cause, ErrShutdown) || isEqual(cause, ErrForced):
		return true
	}
	for s := c.scope; s != nil; s = s.parentScope() {
		if isEqual(ctx, s) || isEqual(ctx, s.parent) {
			return true
		}
	}
	s, _ := ctx.Value(ctxkey.SoftScope{}).(*Swansong)
	return s != nil && s.Err() != nil && isSameCause(cause, context.Cause(s)) &&
		(s.isWithin(c.scope) || c.scope.isWithin(s))
}

// isWithin reports whether s is t or a descendant of t.
func (s *Swansong) isWithin(t *Swansong) bool {
	for ; s != nil; s = s.parentScope() {
		if s == t {
			return true
		}
	}
	return false
}

// wellKnownCauses are causes that unrelated contexts share.
var wellKnownCauses = []error{context.Canceled, context.DeadlineExceeded, ErrShutdown, ErrForced}

// isWellKnown reports whether cause is one of wellKnownCauses.
func isWellKnown(cause error) bool {
	return slices.ContainsFunc(wellKnownCauses, func(err error) bool { return isEqual(err, cause) })
}

// isUnique reports whether only cause itself is equal to cause: whether it is a pointer, and not
// one of wellKnownCauses.
func isUnique(cause error) bool {
	return reflect.TypeOf(cause).Kind() == reflect.Pointer && !isWellKnown(cause)
}

// isEqual reports whether a == b. It returns false, instead of panicking, if the dynamic type of a
// or b cannot be compared.
func isEqual(a, b any) bool { return isComparable(a) && isComparable(b) && a == b }

// isSameCause reports whether a and b are equal. Errors that cannot be compared count as equal if
// they have the same type.
func isSameCause(a, b error) bool {
	return isEqual(a, b) || !isComparable(a) && reflect.TypeOf(a) == reflect.TypeOf(b)
}

func isComparable(v any) bool { return reflect.ValueOf(v).Comparable() }

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
