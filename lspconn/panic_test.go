package lspconn_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/lspconn"
)

var errFault = errors.New("injected")

// faults contains the ways in which a callback can end without returning, and the text that the
// resulting error must contain.
var faults = map[string]struct {
	do   func()
	says string
}{
	"panic":     {func() { panic(errFault) }, "injected"},
	"panic nil": {func() { panic(nil) }, "nil"},
	"Goexit":    {runtime.Goexit, "runtime.Goexit"},
}

// An unmarshalable can be returned by a handler as its result or its error. Its methods panic or
// call runtime.Goexit.
type unmarshalable struct{ fault func() }

func (u unmarshalable) MarshalJSON() ([]byte, error) { u.fault(); return nil, nil }
func (u unmarshalable) Error() string                { u.fault(); return "" }

// A writer is an io.Writer that calls a function.
type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }

func logTo(f func(slog.Record)) *slog.Logger { return slog.New(handler(f)) }
func at(message string, f func()) *slog.Logger {
	return logTo(func(r slog.Record) { on(r, message, f) })
}
func on(r slog.Record, message string, f func()) {
	if r.Message == "lspconn: "+message {
		f()
	}
}
func asked(f func() (any, error)) lspconn.Server {
	s := fake(role{})
	s.OnRequest = request(f)
	return s
}
func notified(f func(ctx context.Context, method string, params json.RawMessage)) lspconn.Server {
	s := fake(role{})
	s.OnNotify = f
	return s
}

func request(f func() (any, error)) func(context.Context, string, json.RawMessage) (any, error) {
	return func(context.Context, string, json.RawMessage) (any, error) { return f() }
}

// checkPanic checks that err names a callback, the value of its panic, and the place of the panic.
func checkPanic(t *testing.T, what string, err error, callback, method, says string) {
	t.Helper()
	var p *lspconn.PanicError
	if !errors.As(err, &p) {
		t.Fatalf("%s: %v, want a PanicError", what, err)
	}
	testkit.Equal(t, what+": callback", p.Callback, callback)
	testkit.Equal(t, what+": method", p.Method, method)
	contains(t, p, "panic in Server."+callback, says)
	if !strings.Contains(string(p.Stack), "panic_test.go") {
		t.Errorf("%s: the stack does not show where the panic happened:\n%s", what, p.Stack)
	}
}

// A callback that panics fails its connection. Every pending call returns, the process is reaped,
// no guard is left, and the error names the callback.
func TestPanic_InCallbackFailsConnection(t *testing.T) {
	for _, test := range []struct {
		name, callback, method string
		server                 func(fault func()) lspconn.Server
		trigger                string // the method of a message after which the callback is called; empty if no message is needed
	}{
		{"OnRequest", "OnRequest", "client/ask", func(fault func()) lspconn.Server {
			return asked(func() (any, error) { fault(); return nil, nil })
		}, "ask"},
		{"the result of OnRequest", "OnRequest", "client/ask", func(fault func()) lspconn.Server {
			return asked(func() (any, error) { return unmarshalable{fault}, nil })
		}, "ask"},
		{"the error of OnRequest", "OnRequest", "client/ask", func(fault func()) lspconn.Server {
			return asked(func() (any, error) { return nil, unmarshalable{fault} })
		}, "ask"},
		{"OnNotify", "OnNotify", "note", func(fault func()) lspconn.Server {
			return notified(func(context.Context, string, json.RawMessage) { fault() })
		}, "notes"},
		{"Logger, of a change of state", "Logger", "", func(fault func()) lspconn.Server {
			s := fake(role{})
			s.Logger = at("Ready", fault)
			return s
		}, ""},
		{"Logger, of a stray response", "Logger", "", func(fault func()) lspconn.Server {
			s := fake(role{})
			s.Logger = at("ignored a response: its call has been answered or cancelled", fault)
			return s
		}, "twice"},
		{"Trace", "Trace", "", func(fault func()) lspconn.Server {
			s := fake(role{})
			s.Trace = writer(func(b []byte) (int, error) { fault(); return len(b), nil })
			return s
		}, ""},
	} {
		for name, fault := range faults {
			t.Run(test.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				conn := start(t, test.server(fault.do))
				pending := make(chan error)
				go func() {
					_, err := conn.Call(context.Background(), "never", nil)
					pending <- err
				}()
				if test.trigger != "" {
					go conn.Call(context.Background(), test.trigger, json.RawMessage("2000")) // 2000 is more than maxWaiting
				}
				err := <-pending
				checkPanic(t, "the caller that waits", err, test.callback, test.method, fault.says)
				if !errors.Is(err, lspconn.ErrClosing) {
					t.Errorf("%v does not match ErrClosing", err)
				}
				<-conn.Done()
				testkit.Equal(t, "state", conn.State(), lspconn.Failed)
				checkPanic(t, "Err", conn.Err(), test.callback, test.method, fault.says)
				r := mustClose(t, conn)
				checkPanic(t, "report", r.Failure, test.callback, test.method, fault.says)
				if r.Exit == nil {
					t.Errorf("the process was not reaped: %v", r)
				}
				if !strings.Contains(r.LogValue().String(), "panic_test.go") {
					t.Error("the report has no stack for the log")
				}
				if err := conn.Scope().Completion().Wait(context.Background()); err != nil {
					t.Errorf("a guard has not been released: %v", err)
				}
			})
		}
	}
}

// While the connection is closing, a panicking callback does not change how the server ends. The
// report names the panic.
func TestPanic_OfCallbackDuringCloseIsNamedInReport(t *testing.T) {
	for _, test := range []struct {
		name, callback, method string
		server                 func(fault func()) lspconn.Server
	}{
		{"OnRequest", "OnRequest", "client/ask", func(fault func()) lspconn.Server { // the server sends a request before it answers shutdown
			s := fake(role{Behaviour: behaviours{Shutdown: "ask"}})
			s.OnRequest = request(func() (any, error) { fault(); return nil, nil })
			return s
		}},
		{"Logger, of the closing", "Logger", "", func(fault func()) lspconn.Server {
			s := fake(role{})
			s.Logger = at("Closing", fault)
			return s
		}},
		{"Logger, of the report", "Logger", "", func(fault func()) lspconn.Server {
			s := fake(role{})
			s.Logger = at("ended", fault)
			return s
		}},
	} {
		for name, fault := range faults {
			t.Run(test.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				conn := startReady(t, test.server(fault.do))
				r := mustClose(t, conn)
				testkit.Equal(t, "outcome", r.Outcome, lspconn.Clean)
				checkPanic(t, "report", r.Failure, test.callback, test.method, fault.says)
				if err := conn.Scope().Completion().Wait(context.Background()); err != nil {
					t.Errorf("a guard has not been released: %v", err)
				}
			})
		}
	}
}

// OnNotify panics while its queue is full and the connection is closing. The read loop must still
// read the response to shutdown.
func TestPanic_InOnNotifyDoesNotBlockClose(t *testing.T) {
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				closing := make(chan struct{})
				calls := 0 // needs no lock, because OnNotify is not called concurrently
				conn, _ := startInProcess(t, t.Context(), lspconn.Server{
					OnNotify: func(context.Context, string, json.RawMessage) { calls++; <-closing; fault.do() },
					Logger:   at("Closing", func() { close(closing) }),
				}, behaviours{})
				conn.Ready(t.Context())
				go conn.Call(context.Background(), "notes", json.RawMessage("2000"))
				synctest.Wait() // wait until the read loop blocks
				r := mustClose(t, conn)
				testkit.Equal(t, "outcome", r.Outcome, lspconn.Clean)
				checkPanic(t, "report", r.Failure, "OnNotify", "note", fault.says)
				if err := conn.Scope().Completion().Wait(context.Background()); err != nil {
					t.Errorf("a guard has not been released: %v", err)
				}
				testkit.Equal(t, "calls", calls, 1)
			})
		})
	}
}

// A handler can outlive the connection and panic after the report was made. Err and the Logger then
// report the panic.
func TestPanic_AfterCloseReturnedIsReportedByErr(t *testing.T) {
	called, release, logged := make(chan struct{}), make(chan struct{}), make(chan string, 1)
	s := fake(role{})
	s.OnRequest = func(ctx context.Context, _ string, _ json.RawMessage) (any, error) {
		lspconn.Async(ctx) // without Async, Close would wait a fifth of the deadline for the handler
		close(called)
		<-release
		panic(errFault)
	}
	s.Logger = logTo(func(r slog.Record) {
		if r.Level == slog.LevelError {
			logged <- r.Message
		}
	})
	conn := startReady(t, s)
	go conn.Call(context.Background(), "ask", nil)
	<-called
	r := mustClose(t, conn)
	if r.Failure != nil {
		t.Errorf("failure %v", r.Failure)
	}
	close(release)
	testkit.Equal(t, "logged", <-logged, "lspconn: panic in Server.OnRequest, for client/ask: injected")
	if err := conn.Scope().Completion().Wait(context.Background()); err != nil {
		t.Errorf("a guard has not been released: %v", err)
	}
	checkPanic(t, "Err", conn.Err(), "OnRequest", "client/ask", "injected")
}

// The function that returns the server for a key runs on the goroutine of the caller of
// Manager.Conn. A panic in the function reaches that caller and does not block later calls for the
// key.
func TestPanic_InFunctionOfNewManagerReachesCallerOfConn(t *testing.T) {
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			first := true
			m := manager(t, func(string) (lspconn.Server, error) {
				if first {
					first = false
					fault.do()
				}
				return fake(role{}), nil
			})
			value := make(chan any)
			go func() {
				defer func() { value <- recover() }()
				m.Conn(context.Background(), "k")
				t.Error("Conn returned instead of panicking")
			}()
			if v := <-value; (v == nil) != (name == "Goexit") {
				t.Errorf("the caller received %v", v)
			}
			conn, err := m.Conn(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			testkit.Equal(t, "works", call(t, conn, "echo", "1"), "1")
			reports, err := m.Close(t.Context())
			if err != nil || len(reports) != 1 || reports[0].Outcome != lspconn.Clean {
				t.Errorf("%v, %v", reports, err)
			}
		})
	}
}

// If the Manager has a restart policy, a server whose callback has panicked is restarted like any
// other failed server.
func TestPanic_InCallbackRestartsServerAsPolicySays(t *testing.T) {
	m := manager(t, func(string) (lspconn.Server, error) {
		return asked(func() (any, error) { panic(errFault) }), nil
	}, lspconn.WithRestart(lspconn.Restart{Max: 1, First: 1}))
	for range 2 {
		conn, err := m.Conn(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		go conn.Call(context.Background(), "ask", nil)
		_, err = conn.Call(t.Context(), "never", nil)
		checkPanic(t, "the caller that waits", err, "OnRequest", "client/ask", "injected")
	}
	_, err := m.Conn(t.Context(), "k")
	checkPanic(t, "no more restarts", err, "OnRequest", "client/ask", "injected")
}

// A brokenContext is a context whose method Value, which context.Cause calls, panics.
type brokenContext struct{ context.Context }

func (brokenContext) Value(any) any { panic(errFault) }

// The connection holds no lock while it calls methods of the context of a caller. So a panic in
// these methods affects only that caller.
func TestPanic_InMethodOfContextReachesOnlyItsCaller(t *testing.T) {
	called, goOn := make(chan bool), make(chan bool)
	conn := startReady(t, asked(func() (any, error) { close(called); <-goOn; return nil, nil }))
	ctx, cancel := context.WithCancel(context.Background())
	value := make(chan any)
	go func() {
		defer func() { value <- recover() }()
		conn.Call(brokenContext{ctx}, "ask", nil)
	}()
	<-called // wait until the server has received the call and sent a request of its own
	cancel()
	testkit.Equal(t, "the caller gets", any((<-value).(error).Error()), any(errFault.Error()))
	close(goOn)
	testkit.Equal(t, "works", call(t, conn, "echo", "1"), "1")
	testkit.Equal(t, "outcome", mustClose(t, conn).Outcome, lspconn.Clean)
}
