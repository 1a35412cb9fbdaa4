package launcher

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/swansong-go/swansong/internal/unwind"
)

// A panicError says that something that a program has put into a [Config] has panicked, or ended its goroutine by
// runtime.Goexit, where the launcher had called it on a goroutine of its own. The launcher goes on, since all processes
// depend on it; what becomes of the call is said with each field. It is told as an [Event], with the stack.
type panicError struct {
	callback string // as in "Router.Add"
	value    any    // what it panicked with, or unwind.ErrGoexit
	stack    []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic in %s: %v", e.callback, e.value) }

// protect calls f, and then, also where f has called Goexit, with what it has panicked with, nil if it has not.
func protect(callback string, f func(), then func(*panicError)) {
	unwind.Catch(f, func(value any, stack []byte) {
		if value == nil {
			then(nil)
		} else {
			then(&panicError{callback, value, stack})
		}
	})
}

// stackOf is the stack of a panic, for an event.
func stackOf(err error) string {
	var p *panicError
	if errors.As(err, &p) {
		return string(p.stack)
	}
	return ""
}

// guarded returns a writer whose panic is an error.
func guarded(w io.Writer) io.Writer {
	if _, ok := w.(*os.File); ok {
		return w
	}
	return &guardedWriter{w}
}

type guardedWriter struct{ w io.Writer }

func (g *guardedWriter) Write(b []byte) (n int, err error) {
	done := make(chan struct{})
	go protect("Output.Write", func() {
		if n, err = g.w.Write(b); err != nil {
			err = errors.New(err.Error()) // its Error may panic, too: here, and nowhere else
		}
	}, func(p *panicError) {
		if p != nil {
			n, err = 0, p
		}
		close(done)
	})
	<-done
	return n, err
}
