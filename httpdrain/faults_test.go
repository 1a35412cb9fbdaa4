package httpdrain_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/swansong-go/swansong/httpdrain"
	"github.com/swansong-go/swansong/internal/testkit"
)

var errFault = errors.New("injected")

// faults are the ways in which a function that is given as an option can end without returning. For
// each there is a text that the error message must then contain.
var faults = map[string]struct {
	do   func()
	want string
}{
	"panic":  {func() { panic(errFault) }, "injected"},
	"Goexit": {goexit, "runtime.Goexit"},
}

func wantPanicError(t *testing.T, err error, option, want string) {
	t.Helper()
	var p *httpdrain.PanicError
	if !errors.As(err, &p) || p.Option != option || !strings.Contains(err.Error(), want) {
		t.Fatalf("Serve: %v; want a PanicError of %s that contains %q", err, option, want)
	}
	if !strings.Contains(string(p.Stack), "faults_test.go") {
		t.Errorf("the stack does not contain the function that panicked:\n%s", p.Stack)
	}
}

// If the function given to WithRoute panics or calls Goexit, all connections are still closed and
// listed.
func TestWithRoute_PanicOfFunctionDoesNotBlockDrain(t *testing.T) {
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			var entered sync.WaitGroup
			entered.Add(2)
			leave := make(chan struct{})
			v := start(t, handler(func(w http.ResponseWriter, r *http.Request) {
				entered.Done()
				<-leave
			}), longLinger, httpdrain.WithRoute(func(_, path string) string {
				if path == "/a" {
					fault.do()
				}
				return "a route"
			}))
			a, b := dial(t, v.addr), dial(t, v.addr)
			a.send("GET /a HTTP/1.1\r\nHost: test\r\n\r\n")
			b.send("GET /b HTTP/1.1\r\nHost: test\r\n\r\n")
			entered.Wait()
			v.s.Shutdown()
			<-v.drains
			v.s.Force(errTooLate)
			err := <-v.done
			wantPanicError(t, err, "WithRoute", fault.want)
			var cut *httpdrain.CutError
			if !errors.As(err, &cut) {
				t.Fatalf("Serve returned %v; want a CutError too", err)
			}
			sortCuts(cut.Cut)
			var routes []string
			for _, c := range cut.Cut {
				routes = append(routes, c.Route)
			}
			testkit.Equal(t, "cut", routes, []string{"/a", "a route"})
			a.closed()
			b.closed()
			close(leave)
		})
	}
}

// The function given to WithRoute may wait for a handler that is writing, because Serve holds no
// lock during the call.
func TestWithRoute_FunctionMayWaitForHandlerThatWrites(t *testing.T) {
	entered, routing, written := make(chan struct{}), make(chan struct{}), make(chan struct{})
	v := start(t, handler(func(w http.ResponseWriter, r *http.Request) {
		close(entered)
		<-routing
		w.Write([]byte("too late"))
		close(written)
	}), longLinger, httpdrain.WithRoute(func(string, string) string {
		close(routing)
		<-written
		return ""
	}))
	p := dial(t, v.addr)
	p.send(get)
	<-entered
	v.s.Shutdown()
	<-v.drains
	v.s.Force(errTooLate)
	if err := <-v.done; !errors.Is(err, errTooLate) {
		t.Errorf("Serve returned an unexpected result: %v", err)
	}
}

// A faultyHandler is a log handler whose Handle panics or calls Goexit.
type faultyHandler struct{ fault func() }

func (h faultyHandler) Enabled(context.Context, slog.Level) bool  { return true }
func (h faultyHandler) WithAttrs([]slog.Attr) slog.Handler        { return h }
func (h faultyHandler) WithGroup(string) slog.Handler             { return h }
func (h faultyHandler) Handle(context.Context, slog.Record) error { h.fault(); return nil }

// If the log handler panics or calls Goexit, requests are still answered and idle connections
// closed.
func TestWithLogger_PanicOfLoggerDoesNotBlockDrain(t *testing.T) {
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			entered, leave := make(chan struct{}), make(chan struct{})
			v := start(t, handler(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/slow" {
					close(entered)
					<-leave
				}
				ok(w, r)
			}), httpdrain.WithLinger(0, 0), httpdrain.WithLogger(slog.New(faultyHandler{fault.do})), httpdrain.WithPacing(1000))
			idle, slow := dial(t, v.addr), dial(t, v.addr)
			idle.send(get)
			idle.answered()
			slow.send("GET /slow HTTP/1.1\r\nHost: test\r\n\r\n")
			<-entered
			v.s.Shutdown()
			idle.closed()
			close(leave)
			slow.readResponse(200, "ok")
			slow.closed()
			wantPanicError(t, <-v.done, "WithLogger", fault.want)
		})
	}
}
