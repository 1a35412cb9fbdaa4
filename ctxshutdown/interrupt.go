package ctxshutdown

// Interrupts: the options and helpers that they share.
//
// An interrupt ends if and only if the context that it was given is done. It never asks for the
// state of a scope: see docs/internals/core.md#rule-1. It checks the context before each operation,
// so that nothing is taken from a source after the stop. If a blocked operation can be woken, the
// interrupt registers with the context by context.AfterFunc, and unregisters when it ends, because
// a context can live as long as the program and keeps registered functions in memory.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/swansong-go/swansong/internal/worktext"
)

// An InterruptOption configures a [Reader], a [Writer] or a listener. A nil InterruptOption is
// ignored.
type InterruptOption interface{ applyInterrupt(*interruptOptions) }

type interruptOptions struct{ guarded, detached bool }

type interruptOption func(*interruptOptions)

func (f interruptOption) applyInterrupt(o *interruptOptions) { f(o) }

// Guarded makes the wrapper hold a guard of the nearest scope in its context until the wrapper ends
// or is closed. A wrapper that is created when its context is done holds no guard.
//
// A Reader or Writer ends when one of its methods reports the end of the input, an error other than
// a time-out, or the end of the context. So if the context ends between two Reads, a Reader holds
// its guard until the next Read: only then has the caller handled what the last Read returned. A
// listener ends when Close or the end of the context closes it.
func Guarded() InterruptOption {
	return interruptOption(func(o *interruptOptions) { o.guarded = true })
}

// Detached makes a [Reader] read in a background goroutine if its source cannot be woken. Read then
// returns at once when the context ends, and [Reader.Rest] first returns what the background
// goroutine reads after that. Detached costs a goroutine and a copy for each Read. It is ignored if
// the source can be woken, and by writers and listeners. A Reader of [os.Stdin] always has it,
// unless standard input is a regular file.
//
// The background goroutine stays blocked until the source returns from its Read. It leaks if
// nothing is ever written to the source and the source is not closed.
func Detached() InterruptOption {
	return interruptOption(func(o *interruptOptions) { o.detached = true })
}

// newInterruptOptions returns the settings that result from opts.
func newInterruptOptions(opts []InterruptOption) (o interruptOptions) {
	for _, opt := range opts {
		if opt != nil {
			opt.applyInterrupt(&o)
		}
	}
	return o
}

// guardSlot contains the guard of a wrapper that was created with the option Guarded.
type guardSlot struct{ guard atomic.Pointer[Guard] }

// acquire acquires a guard of the nearest scope in ctx, if the option Guarded was given and ctx is
// not done.
func (s *guardSlot) acquire(ctx context.Context, o interruptOptions) {
	if o.guarded {
		g, _ := Acquire(ctx)
		s.guard.Store(g)
	}
}

// release releases the guard in the first call, and does nothing in later ones. Several causes can
// end a wrapper, even at the same time: an error of one call, the end of the context in another
// call, and Close.
func (s *guardSlot) release() {
	if s.guard.Load() != nil {
		s.guard.Swap(nil).Release()
	}
}

// checkContext panics if ctx is nil, or a Swansong that New or WithCancel has not made.
func checkContext(ctx context.Context) {
	if ctx == nil {
		panic("ctxshutdown: nil context")
	}
	if s, ok := ctx.(*Swansong); ok {
		s.parentContext()
	}
}

// panicIf panics with text if wrong is true. It is for the checks of arguments.
func panicIf(wrong bool, text string) {
	if wrong {
		panic(text)
	}
}

// pollable returns a context with the same Err, Done and Cause as ctx, for code that calls Err for
// each element. If ctx is a scope, that is the standard context of the scope, whose Err is twice as
// fast. Like checkContext, pollable panics if ctx is nil.
func pollable(ctx context.Context) context.Context {
	checkContext(ctx)
	if s, ok := ctx.(*Swansong); ok {
		return s.derive().ctx
	}
	return ctx
}

// mustBeMade panics if ctx, the context of a wrapper, is nil: then the wrapper is a zero value. The
// message contains typeName, the name of its type.
func mustBeMade(ctx context.Context, typeName string) {
	if ctx == nil {
		panic("ctxshutdown: use of a zero " + typeName + "; make one with New" + typeName)
	}
}

// closedError returns the error of a call on a closed Reader or Writer.
func closedError(what string) error {
	return fmt.Errorf("ctxshutdown: use of a closed %s: %w", what, os.ErrClosed)
}

// countError returns the error for a Read or a Write, named by op, that returned the invalid count
// n for a buffer of the given size.
func countError(of any, op string, n, size int) error {
	return fmt.Errorf("ctxshutdown: %T is broken: its %s returned the count %d for a buffer of %s", of, op, n, worktext.Pluralize(size, "byte"))
}

// isTimeout reports whether err is the error of an operation whose deadline has passed.
func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &t) && t.Timeout()
}

// io.Copy lets the kernel move the bytes between sockets, pipes and files, if it recognizes them by
// their types. Therefore Reader.WriteTo and Writer.ReadFrom pass the wrapped source and destination
// to package copyio, in one of three ways, depending on how the end of the context can end the
// copy:
//
//	the source can be woken    as a whole; the end of the context makes its blocked Read return
//	a regular file             in pieces, with a check of the context before each
//	other sources              by single Reads and Writes, through a readerFunc and a writerFunc

// readerFunc is a source with the method Read only.
type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// writerFunc is a destination with the method Write only.
type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
