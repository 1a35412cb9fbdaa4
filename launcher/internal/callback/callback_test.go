package callback_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/swansong-go/swansong/internal/panics"
	"github.com/swansong-go/swansong/launcher/internal/callback"
)

var errInjected = errors.New("injected")

// An errorThatPanics is an error whose Error method panics.
type errorThatPanics struct{}

func (errorThatPanics) Error() string { panic(errInjected) }

func TestCall_ReturnsPanicOrGoexitAsError(t *testing.T) {
	for name, c := range map[string]struct {
		f    func()
		want any // the value of the panic; nil if no panic is expected
	}{
		"return": {func() {}, nil},
		"panic":  {func() { panic(errInjected) }, errInjected},
		"Goexit": {func() { runtime.Goexit() }, panics.ErrGoexit},
	} {
		t.Run(name, func(t *testing.T) {
			p := callback.Call("F", c.f)
			if c.want == nil {
				if p != nil {
					t.Errorf("got %v, want no panic", p)
				}
				return
			}
			if p == nil || p.Value != c.want || p.Callback != "F" || !strings.Contains(callback.StackOf(p), "callback_test.go") {
				t.Errorf("got %+v, want a panic with the value %v and its stack", p, c.want)
			}
		})
	}
}

func TestCallContext_ReturnsErrorOrPanicOfFunction(t *testing.T) {
	late := func(p *callback.PanicError) { t.Errorf("%v was reported as late", p) }
	for want, f := range map[string]func(context.Context) error{
		"injected":             func(context.Context) error { return errInjected },
		"panic in F: injected": func(context.Context) error { panic(errInjected) },
		"panic in F: runtime.Goexit was called": func(context.Context) error {
			runtime.Goexit()
			return nil
		},
	} {
		if err := callback.CallContext(t.Context(), "F", f, late); err == nil || err.Error() != want {
			t.Errorf("got %v, want %v", err, want)
		}
	}
	err := callback.CallContext(t.Context(), "F", func(context.Context) error { return errorThatPanics{} }, late)
	if err == nil || err.Error() != "panic in F: injected" {
		t.Errorf("error whose Error method panics: got %v", err)
	}
}

// CallContext returns when its context ends. A panic after that is passed to late.
func TestCallContext_PanicAfterItReturnedIsPassedToCallback(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	proceed, late := make(chan struct{}), make(chan *callback.PanicError)
	err := callback.CallContext(ctx, "F", func(context.Context) error { cancel(); <-proceed; panic(errInjected) },
		func(p *callback.PanicError) { late <- p })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	close(proceed)
	if p := <-late; p.Value != errInjected {
		t.Errorf("late panic is %v, want %v", p.Value, errInjected)
	}
}

type writerFunc func([]byte) (int, error)

func (w writerFunc) Write(b []byte) (int, error) { return w(b) }

func TestWriter_ReturnsPanicInWriteAsError(t *testing.T) {
	w := callback.Writer("Output", writerFunc(func([]byte) (int, error) { panic(errInjected) }))
	n, err := w.Write([]byte("text"))
	if n != 0 || err == nil || err.Error() != "panic in Output.Write: injected" || callback.StackOf(err) == "" {
		t.Errorf("got %d, %v", n, err)
	}
	w = callback.Writer("Output", writerFunc(func([]byte) (int, error) { return 2, errInjected }))
	if n, err := w.Write([]byte("text")); n != 2 || err == nil || err.Error() != "injected" {
		t.Errorf("got %d, %v", n, err)
	}
	var out bytes.Buffer
	if n, err := callback.Writer("Output", &out).Write([]byte("text")); n != 4 || err != nil || out.String() != "text" {
		t.Errorf("got %d, %v, %q", n, err, &out)
	}
}

func TestWriter_ReturnsNilOrFileUnchanged(t *testing.T) {
	for _, w := range []io.Writer{nil, os.Stdout} {
		if got := callback.Writer("Output", w); got != w {
			t.Errorf("got %v, want %v", got, w)
		}
	}
}
