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

	"github.com/swansong-go/swansong/lspconn"
)

var errFault = errors.New("injected")

// faults are the ways in which a callback does not return, and what is then said of it.
var faults = map[string]struct {
	do   func()
	says string
}{
	"panic":     {func() { panic(errFault) }, "injected"},
	"panic nil": {func() { panic(nil) }, "nil"},
	"Goexit":    {runtime.Goexit, "runtime.Goexit"},
}

// unmarshalable is a result, and an error, that breaks when it is looked at.
type unmarshalable struct{ fault func() }

func (u unmarshalable) MarshalJSON() ([]byte, error) { u.fault(); return nil, nil }
func (u unmarshalable) Error() string                { u.fault(); return "" }

func told(f func(slog.Record)) *slog.Logger { return slog.New(handler(f)) }
func at(message string, f func()) *slog.Logger {
	return told(func(r slog.Record) { on(r, message, f) })
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
func notified(f func(method string, params json.RawMessage)) lspconn.Server {
	s := fake(role{})
	s.OnNotify = f
	return s
}

func request(f func() (any, error)) func(context.Context, string, json.RawMessage) (any, error) {
	return func(context.Context, string, json.RawMessage) (any, error) { return f() }
}

// blames checks that err names a callback, with what it has panicked with and where.
func blames(t *testing.T, what string, err error, callback, method, says string) {
	t.Helper()
	var p *lspconn.PanicError
	if !errors.As(err, &p) {
		t.Fatalf("%s: %v, want a PanicError", what, err)
	}
	equal(t, what+": callback", callback, p.Callback)
	equal(t, what+": method", method, p.Method)
	contains(t, p, "panic in Server."+callback, says)
	if !strings.Contains(string(p.Stack), "faults_test.go") {
		t.Errorf("%s: the stack does not show the place:\n%s", what, p.Stack)
	}
}

// A callback that does not return fails its connection: nobody who waits is forgotten, the process is reaped, no guard is
// left, and the error says which callback it was.
func TestFaults_Callbacks(t *testing.T) {
	for _, test := range []struct {
		name, callback, method string
		server                 func(fault func()) lspconn.Server
		trigger                string // what the server is called for; empty: nothing
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
			return notified(func(string, json.RawMessage) { fault() })
		}, "notes"},
		{"Logger, of a change of state", "Logger", "", func(fault func()) lspconn.Server {
			s := fake(role{})
			s.Logger = at("Ready", fault)
			return s
		}, ""},
		{"Logger, of a stray response", "Logger", "", func(fault func()) lspconn.Server {
			s := fake(role{})
			s.Logger = at("a response is ignored, its call was given up or has been answered", fault)
			return s
		}, "twice"},
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
					go conn.Call(context.Background(), test.trigger, json.RawMessage("2000")) // more than OnNotify may be behind
				}
				err := <-pending
				blames(t, "who waits", err, test.callback, test.method, fault.says)
				if !errors.Is(err, lspconn.ErrClosing) {
					t.Errorf("%v does not match ErrClosing", err)
				}
				<-conn.Done()
				equal(t, "state", lspconn.Failed, conn.State())
				blames(t, "Err", conn.Err(), test.callback, test.method, fault.says)
				r := closed(t, conn)
				blames(t, "report", r.Failure, test.callback, test.method, fault.says)
				if r.Exit == nil {
					t.Errorf("not reaped: %v", r)
				}
				if !strings.Contains(r.LogValue().String(), "faults_test.go") {
					t.Error("the report has no stack for the log")
				}
				if err := conn.Scope().Completion().Wait(context.Background()); err != nil {
					t.Errorf("a guard is left: %v", err)
				}
			})
		}
	}
}

// While the connection is closing, a callback that does not return changes nothing about how it ends; the report names it.
func TestFaults_WhileClosing(t *testing.T) {
	for _, test := range []struct {
		name, callback, method string
		server                 func(fault func()) lspconn.Server
	}{
		{"OnRequest", "OnRequest", "client/ask", func(fault func()) lspconn.Server { // before it answers shutdown
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
				conn := ready(t, test.server(fault.do))
				r := closed(t, conn)
				equal(t, "outcome", lspconn.Clean, r.Outcome)
				blames(t, "report", r.Failure, test.callback, test.method, fault.says)
				if err := conn.Scope().Completion().Wait(context.Background()); err != nil {
					t.Errorf("a guard is left: %v", err)
				}
			})
		}
	}
}

// OnNotify has fallen behind as far as it may when the connection closes, and does not return: what was notified after that
// does not keep the answer to shutdown from being read.
func TestFaults_OnNotifyWhileClosing(t *testing.T) {
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				closing := make(chan struct{})
				calls := 0 // one at a time
				conn, _ := here(t, t.Context(), lspconn.Server{
					OnNotify: func(string, json.RawMessage) { calls++; <-closing; fault.do() },
					Logger:   at("Closing", func() { close(closing) }),
				}, behaviours{})
				conn.Ready(t.Context())
				go conn.Call(context.Background(), "notes", json.RawMessage("2000"))
				synctest.Wait() // nothing is read any more
				r := closed(t, conn)
				equal(t, "outcome", lspconn.Clean, r.Outcome)
				blames(t, "report", r.Failure, "OnNotify", "note", fault.says)
				if err := conn.Scope().Completion().Wait(context.Background()); err != nil {
					t.Errorf("a guard is left: %v", err)
				}
				equal(t, "calls", 1, calls)
			})
		})
	}
}

// A handler outlives the connection, and panics after the report: Err has it, and so has the logger.
func TestFaults_TooLateForTheReport(t *testing.T) {
	release, logged := make(chan struct{}), make(chan string, 1)
	s := asked(func() (any, error) { <-release; panic(errFault) })
	s.Logger = told(func(r slog.Record) {
		if r.Level == slog.LevelError {
			logged <- r.Message
		}
	})
	conn := ready(t, s)
	go conn.Call(context.Background(), "ask", nil)
	call(t, conn, "echo", "1") // which is answered after it was asked
	r := closed(t, conn)
	if r.Failure != nil {
		t.Errorf("failure %v", r.Failure)
	}
	close(release)
	equal(t, "logged", "lspconn: panic in Server.OnRequest, for client/ask: injected", <-logged)
	if err := conn.Scope().Completion().Wait(context.Background()); err != nil {
		t.Errorf("a guard is left: %v", err)
	}
	blames(t, "Err", conn.Err(), "OnRequest", "client/ask", "injected")
}

// What tells a Manager which server to start runs on the goroutine of who asks: a panic is theirs, and nobody else's turn
// is lost by it.
func TestFaults_Manager(t *testing.T) {
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
				t.Error("Conn has returned")
			}()
			if v := <-value; (v == nil) != (name == "Goexit") {
				t.Errorf("the caller gets %v", v)
			}
			conn, err := m.Conn(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "works", "1", call(t, conn, "echo", "1"))
			reports, err := m.Close(t.Context())
			if err != nil || len(reports) != 1 || reports[0].Outcome != lspconn.Clean {
				t.Errorf("%v, %v", reports, err)
			}
		})
	}
}

// With a policy, a server whose callback has panicked is started again like any other that has failed.
func TestFaults_Restart(t *testing.T) {
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
		blames(t, "who waits", err, "OnRequest", "client/ask", "injected")
	}
	_, err := m.Conn(t.Context(), "k")
	blames(t, "no more restarts", err, "OnRequest", "client/ask", "injected")
}

// A brokenContext panics when it is asked for a value, which context.Cause does.
type brokenContext struct{ context.Context }

func (brokenContext) Value(any) any { panic(errFault) }

// The context of a call is asked under no lock: who brings one that panics has the panic, and nobody else notices.
func TestFaults_ContextOfACall(t *testing.T) {
	called, goOn := make(chan bool), make(chan bool)
	conn := ready(t, asked(func() (any, error) { close(called); <-goOn; return nil, nil }))
	ctx, cancel := context.WithCancel(context.Background())
	value := make(chan any)
	go func() {
		defer func() { value <- recover() }()
		conn.Call(brokenContext{ctx}, "ask", nil)
	}()
	<-called // the server has been called, and asks back
	cancel()
	equal(t, "the caller gets", any(errFault.Error()), any((<-value).(error).Error()))
	close(goOn)
	equal(t, "works", "1", call(t, conn, "echo", "1"))
	equal(t, "outcome", lspconn.Clean, closed(t, conn).Outcome)
}
