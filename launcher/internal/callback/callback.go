// Package callback calls the functions that a program has set in a launcher.Config. The launcher
// goes on when one of them panics or calls [runtime.Goexit], because all processes depend on it.
package callback

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/internal/panics"
)

// A PanicError reports that a callback panicked or called [runtime.Goexit]. How the launcher goes
// on after the failed call depends on the callback. It is documented at the field of
// launcher.Config that contains the callback.
type PanicError struct {
	Callback string // name of the function, such as "Router.Add"
	Value    any    // the value of the panic, or [panics.ErrGoexit]
	Stack    []byte // stack of the panic, as [runtime/debug.Stack] returns it
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic in %s: %v", e.Callback, e.Value) }

// StackOf returns the stack of the PanicError in err, or "" if there is none.
func StackOf(err error) string {
	var p *PanicError
	if errors.As(err, &p) {
		return string(p.Stack)
	}
	return ""
}

// Call calls f, and returns nil if f returned and its panic otherwise. It calls f on a goroutine of
// its own and waits for it, because Goexit ends the goroutine that calls it. The name of the
// callback becomes part of the error.
func Call(name string, f func()) *PanicError {
	result := make(chan *PanicError, 1)
	go panics.Catch(f, func(value any, stack []byte) {
		if value == nil {
			result <- nil
		} else {
			result <- &PanicError{name, value, stack}
		}
	})
	return <-result
}

// CallContext calls f and returns its error. It waits no longer than ctx lasts. A panic of f, or of
// the Error method of f's error, becomes a [*PanicError]. If f panics after the end of ctx,
// CallContext has returned already, and the panic is passed to the function late.
func CallContext(ctx context.Context, name string, f func(context.Context) error, late func(*PanicError)) error {
	_, err := ctxshutdown.Call(ctx, func(ctx context.Context) (struct{}, error) {
		p, err := callError(name, func() error { return f(ctx) })
		if p != nil && ctx.Err() != nil {
			late(p)
		}
		return struct{}{}, err
	})
	return err
}

// callError calls f and returns its error. If f panics, or the Error method of the error that f
// returns, callError returns a [*PanicError] in each of its two results.
func callError(name string, f func() error) (p *PanicError, err error) {
	p = Call(name, func() {
		if err = f(); err != nil {
			// The method Error of err may panic, so it is called here, where Call recovers panics.
			// Only its text is kept.
			err = errors.New(err.Error())
		}
	})
	if p != nil {
		err = p
	}
	return p, err
}

// Writer returns a writer that calls w, and that returns a [*PanicError] if w panics. It returns w
// itself if w is nil or an *os.File.
func Writer(name string, w io.Writer) io.Writer {
	if w == nil {
		return nil
	}
	if _, ok := w.(*os.File); ok {
		return w
	}
	return &writer{name, w}
}

type writer struct {
	name string
	w    io.Writer
}

func (w *writer) Write(b []byte) (n int, err error) {
	p, err := callError(w.name+".Write", func() (err error) {
		n, err = w.w.Write(b)
		return err
	})
	if p != nil {
		n = 0
	}
	return n, err
}
