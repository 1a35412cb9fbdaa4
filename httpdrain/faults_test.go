package httpdrain_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/swansong-go/swansong/httpdrain"
)

var errFault = errors.New("injected")

// faults are the ways in which an option does not return, and what is then said of it.
var faults = map[string]struct {
	do   func()
	says string
}{
	"panic":  {func() { panic(errFault) }, "injected"},
	"Goexit": {goexit, "runtime.Goexit"},
}

func blames(t *testing.T, err error, option, says string) {
	t.Helper()
	var p *httpdrain.PanicError
	if !errors.As(err, &p) || p.Option != option || !strings.Contains(err.Error(), says) {
		t.Fatalf("Serve: %v; want a PanicError of %s that says %q", err, option, says)
	}
	if !strings.Contains(string(p.Stack), "faults_test.go") {
		t.Errorf("the stack does not show the place:\n%s", p.Stack)
	}
}

// A route that does not return keeps nobody from being cut, or from being named.
func TestFaults_WithRoute(t *testing.T) {
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			var entered sync.WaitGroup
			entered.Add(2)
			leave := make(chan struct{})
			v := start(t, handler(func(w http.ResponseWriter, r *http.Request) {
				entered.Done()
				<-leave
			}), patient, httpdrain.WithRoute(func(_, path string) string {
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
			blames(t, err, "WithRoute", fault.says)
			var cut *httpdrain.CutError
			if !errors.As(err, &cut) {
				t.Fatalf("Serve: %v; want a CutError besides", err)
			}
			sortCuts(cut.Cut)
			var routes []string
			for _, c := range cut.Cut {
				routes = append(routes, c.Route)
			}
			if diff := cmp.Diff([]string{"/a", "a route"}, routes); diff != "" {
				t.Errorf("cut (-want +got):\n%s", diff)
			}
			a.closed()
			b.closed()
			close(leave)
		})
	}
}

// A route may wait for a handler that is writing: it is called under no lock.
func TestFaults_WithRouteWaits(t *testing.T) {
	entered, routing, written := make(chan struct{}), make(chan struct{}), make(chan struct{})
	v := start(t, handler(func(w http.ResponseWriter, r *http.Request) {
		close(entered)
		<-routing
		w.Write([]byte("too late"))
		close(written)
	}), patient, httpdrain.WithRoute(func(string, string) string {
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
		t.Errorf("Serve: %v", err)
	}
}

// A faultyHandler is a log handler that breaks at everything.
type faultyHandler struct{ fault func() }

func (h faultyHandler) Enabled(context.Context, slog.Level) bool  { return true }
func (h faultyHandler) WithAttrs([]slog.Attr) slog.Handler        { return h }
func (h faultyHandler) WithGroup(string) slog.Handler             { return h }
func (h faultyHandler) Handle(context.Context, slog.Record) error { h.fault(); return nil }

// A log handler that does not return keeps the requests that are under way from nothing, and the idle from no end.
func TestFaults_WithLogger(t *testing.T) {
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			entered, leave := make(chan struct{}), make(chan struct{})
			v := start(t, handler(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/slow" {
					close(entered)
					<-leave
				}
				ok(w, r)
			}), httpdrain.WithLinger(0), httpdrain.WithLogger(slog.New(faultyHandler{fault.do})), httpdrain.WithPacing(1000))
			idle, slow := dial(t, v.addr), dial(t, v.addr)
			idle.send(get)
			idle.answered()
			slow.send("GET /slow HTTP/1.1\r\nHost: test\r\n\r\n")
			<-entered
			v.s.Shutdown()
			idle.closed()
			close(leave)
			slow.receives(200, "ok")
			slow.closed()
			blames(t, <-v.done, "WithLogger", fault.says)
		})
	}
}
