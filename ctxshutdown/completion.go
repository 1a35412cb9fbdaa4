package ctxshutdown

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/swansong-go/swansong/internal/scopekey"
)

// ErrWaitContext is returned by [Completion.Wait] where its context had ended already, or was ended by the very
// shutdown that it should have waited for: the drain was not waited for at all. It does not match context.Canceled or
// context.DeadlineExceeded, so that this mistake cannot pass for a drain that took too long.
var ErrWaitContext = errors.New("ctxshutdown: Wait was given a context that ends with the shutdown, so nothing was waited for; " +
	"give it one of its own, such as context.WithTimeout(context.Background(), 10*time.Second)")

// A Completion is the end of one drain. Once resolved it stays resolved; after a late guard, a new Completion waits for
// that guard. Completions come from the methods of [Swansong]; their own may be called concurrently.
type Completion struct {
	scope *Swansong
	done  <-chan struct{}
}

func (s *Swansong) completion() *Completion {
	return &Completion{scope: s, done: s.node.Done()}
}

// Done returns a channel that is closed when the scope is complete: told to stop, with no guard held in its subtree.
func (c *Completion) Done() <-chan struct{} { return c.done }

// Wait waits until the scope is complete or ctx ends. It returns
//
//   - nil if the scope is complete, whatever ctx is,
//   - [ErrWaitContext] if ctx had ended on entry, or was ended by this very shutdown,
//   - otherwise a [*DrainError] that names the guards still held and unwraps to the cause of ctx.
//
// Wait does not tell anybody to stop.
func (c *Completion) Wait(ctx context.Context) error {
	if ctx == nil {
		panic("ctxshutdown: Wait with a nil context")
	}
	// A stop that ctx has survived is not what ends it. State waits until the stop has reached all that derives from
	// the scope, so the order of these looks matters.
	stopped := c.scope.Done()
	survived := c.scope.State() != Running
	if c.closed() {
		return nil
	}
	if ctx.Err() != nil {
		return ErrWaitContext
	}
	ended := ctx.Done()
	if ended == nil { // nothing else can happen, and waiting for one channel is quicker
		<-c.done
		return nil
	}
	if survived {
		stopped = nil // it has told all it can, and would be ready at once: a select more, a fifth of the time to wake up
	}
	for waiting := true; waiting; {
		select {
		case <-c.done:
			return nil
		case <-stopped:
			stopped = nil
			c.scope.State()
			survived = survived || ctx.Err() == nil
		case <-ended:
			waiting = false
		}
	}
	if c.resolved() {
		return nil
	}
	if c.endedByShutdown(ctx, survived) {
		return ErrWaitContext
	}
	held := c.scope.GuardReport()
	if held.Count() == 0 && c.resolved() {
		return nil // released while we were looking who holds it up
	}
	if now := time.Now(); c.scope.Err() != nil {
		c.scope.late.CompareAndSwap(nil, &now)
	}
	return &DrainError{Report: held, Cause: context.Cause(ctx), Stacks: held.stacks()}
}

func (c *Completion) resolved() bool {
	c.scope.State() // where a signal came from above, somebody has to look
	return c.closed()
}

func (c *Completion) closed() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// endedByShutdown reports whether the shutdown that c stands for is what ended ctx, which survived the stop or did
// not. The two have the same cause then. A cause of the user's own is proof. Those that everybody uses prove nothing by
// themselves: a time-out of ctx and a deadline of the scope are both DeadlineExceeded. Nor do those that are equal without
// being the same: the causes that signal.NotifyContext gives to a first and to a second ^C.
func (c *Completion) endedByShutdown(ctx context.Context, survived bool) bool {
	cause, stop := context.Cause(ctx), context.Cause(c.scope)
	switch {
	case !sameCause(cause, stop):
		return false
	case isUnique(cause):
		return true
	case survived:
		return false
	case !isCommon(cause) && comparable(cause):
		return true
	case same(cause, ErrShutdown) || same(cause, ErrForced):
		return true
	}
	for s := c.scope; s != nil; s = s.up() {
		if same(ctx, s) || same(ctx, s.parent) {
			return true
		}
	}
	s, _ := ctx.Value(scopekey.Soft{}).(*Swansong)
	return s != nil && s.Err() != nil && sameCause(cause, context.Cause(s)) && (s.under(c.scope) || c.scope.under(s))
}

// under reports whether s is t or below it.
func (s *Swansong) under(t *Swansong) bool {
	for ; s != nil; s = s.up() {
		if s == t {
			return true
		}
	}
	return false
}

func isCommon(cause error) bool {
	return slices.ContainsFunc(commonCauses, func(err error) bool { return same(err, cause) })
}

// isUnique reports whether equal to cause means the same one.
func isUnique(cause error) bool {
	return reflect.TypeOf(cause).Kind() == reflect.Pointer && !isCommon(cause)
}

var commonCauses = []error{context.Canceled, context.DeadlineExceeded, ErrShutdown, ErrForced}

// same is == for contexts and errors, whose values need not be comparable.
func same(a, b any) bool { return comparable(a) && comparable(b) && a == b }

// sameCause takes causes that cannot be compared for the same if their types are.
func sameCause(a, b error) bool {
	return same(a, b) || !comparable(a) && reflect.TypeOf(a) == reflect.TypeOf(b)
}

func comparable(v any) bool { return reflect.ValueOf(v).Comparable() }

// A DrainError says that a wait ended before the scope was complete.
type DrainError struct {
	Report GuardReport // who still held guards at that moment
	Cause  error       // why the wait ended

	// Stacks says where the goroutines that Go had started in traced scopes of the report were at that moment, one stack
	// after the other, in lines. Error, which is one line, leaves them out. It is empty where nothing is traced.
	Stacks string
}

// Error names the guards that the drain was waiting for.
func (e *DrainError) Error() string {
	if e.Report.Count() == 0 {
		return fmt.Sprintf("ctxshutdown: the wait ended first (%v), with no guard held: has the scope been told to stop?", e.Cause)
	}
	return fmt.Sprintf("ctxshutdown: not drained when the wait ended (%v): %v; wait longer, or cancel their Work with Force", e.Cause, e.Report)
}

// Unwrap returns the cause.
func (e *DrainError) Unwrap() error { return e.Cause }
