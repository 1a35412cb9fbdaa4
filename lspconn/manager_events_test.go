package lspconn_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/lspconn"
)

// inProcessManager returns a manager whose servers run in this process, and a function that returns
// the servers that were started, in their order.
func inProcessManager(t *testing.T, opts ...lspconn.ManagerOption) (*lspconn.Manager, func() []*inProcess) {
	t.Helper()
	m, err := lspconn.NewManager(t.Context(), func(key string) (lspconn.Server, error) {
		return lspconn.Server{Name: "server-" + key, Command: []string{key}}, nil
	}, opts...)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var started []*inProcess
	lspconn.SetStart(m, func(lspconn.Server) (lspconn.ServerProcess, error) {
		g := serveInProcess(behaviours{Code: 7})
		mu.Lock()
		defer mu.Unlock()
		started = append(started, g)
		return g, nil
	})
	return m, func() []*inProcess {
		mu.Lock()
		defer mu.Unlock()
		return started
	}
}

func mustConn(t *testing.T, m *lspconn.Manager, key string) *lspconn.Conn {
	t.Helper()
	conn, err := m.Conn(context.Background(), key)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func methods(g *inProcess) (all []string) {
	for _, m := range g.Received() {
		all = append(all, m.Method)
	}
	return all
}

// The messages that the function of WithOnRestart sends precede those of the callers of Conn. The
// function is not called for the first start of a server, nor if Conn returns a connection that
// exists already.
func TestWithOnRestart_IsCalledBeforeConnReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var restarted []string
		m, started := inProcessManager(t, lspconn.WithRestart(lspconn.Restart{Max: -1}),
			lspconn.WithOnRestart(func(ctx context.Context, key string, conn *lspconn.Conn) {
				restarted = append(restarted, key)
				if err := lspconn.Notify(ctx, conn, "open", "main.go"); err != nil {
					t.Error(err)
				}
			}))
		first := mustConn(t, m, "k")
		first.Call(t.Context(), "die", nil)
		<-first.Done()
		second := mustConn(t, m, "k")
		testkit.Equal(t, "another connection", second != first, true)
		mustConn(t, m, "k").Call(t.Context(), "echo", nil)
		testkit.Equal(t, "restarted", restarted, []string{"k"})
		m.Close(t.Context())
		testkit.Equal(t, "messages", methods(started()[1]), []string{"initialize", "initialized", "open", "echo", "shutdown", "exit"})
	})
}

// If the function of WithOnRestart panics, the next call of Conn calls it again, so that no caller
// gets a server without the documents.
func TestWithOnRestart_IsCalledAgainIfItPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		m, _ := inProcessManager(t, lspconn.WithRestart(lspconn.Restart{Max: -1}),
			lspconn.WithOnRestart(func(context.Context, string, *lspconn.Conn) {
				if calls++; calls == 1 {
					panic("no documents")
				}
			}))
		first := mustConn(t, m, "k")
		first.Call(t.Context(), "die", nil)
		<-first.Done()
		func() {
			defer func() { testkit.Equal(t, "panic", recover(), any("no documents")) }()
			m.Conn(t.Context(), "k")
		}()
		mustConn(t, m, "k")
		mustConn(t, m, "k")
		testkit.Equal(t, "calls", calls, 2)
		m.Close(t.Context())
	})
}

// The function of WithOnFailure is called for each failure, even if no caller uses the connection,
// and may start the server again. It is not called for a server that is closed.
func TestWithOnFailure_IsCalledForEachFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m *lspconn.Manager
		restarted := make(chan *lspconn.Conn)
		m, _ = inProcessManager(t, lspconn.WithRestart(lspconn.Restart{Max: 1}),
			lspconn.WithOnFailure(func(key string, err error) {
				var exited *lspconn.ExitError
				if key != "k" || !errors.As(err, &exited) || exited.Exit.Code != 7 {
					t.Errorf("%q: %v", key, err)
				}
				conn, _ := m.Conn(context.Background(), key)
				restarted <- conn
			}))
		conn := mustConn(t, m, "k")
		go conn.Call(context.Background(), "die", nil)
		next := <-restarted
		testkit.Equal(t, "another connection", next != nil && next != conn, true)
		next.Close(t.Context())
		synctest.Wait()
		select {
		case <-restarted:
			t.Error("a close was reported as a failure")
		default:
		}
		m.Close(t.Context())
	})
}

// A panic in the function of WithOnFailure does not end the program: it becomes the error of the
// connection, and the manager can still be closed.
func TestManager_SurvivesPanicOfOnFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := inProcessManager(t, lspconn.WithOnFailure(func(string, error) { panic("oops") }))
		conn := mustConn(t, m, "k")
		conn.Call(t.Context(), "die", nil)
		<-conn.Done()
		synctest.Wait()
		var p *lspconn.PanicError
		if err := conn.Err(); !errors.As(err, &p) || p.Error() != "panic in the function given to WithOnFailure: oops" {
			t.Errorf("%v", err)
		}
		m.Close(t.Context())
	})
}

// CloseKey closes the connection for its key, which the manager then forgets. The other connections
// go on.
func TestManager_CloseKeyClosesOneConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := inProcessManager(t)
		a, b := mustConn(t, m, "a"), mustConn(t, m, "b")
		a.Ready(t.Context())
		r, err := m.CloseKey(t.Context(), "a")
		testkit.Equal(t, "error", err, nil)
		testkit.Equal(t, "report", r.Key+" "+r.Outcome.String(), "a Clean")
		testkit.Equal(t, "state of the other connection", b.Err(), nil)
		if r, err := m.CloseKey(t.Context(), "a"); r.Key != "" || err != nil {
			t.Errorf("a key without a connection: %v, %v", r, err)
		}
		if r, err := m.CloseKey(t.Context(), "never used"); r.String() != "no connection" || err != nil {
			t.Errorf("a key that was never used: %v, %v", r, err)
		}
		reports, err := m.Close(t.Context())
		if len(reports) != 1 || reports[0].Key != "b" || err != nil {
			t.Errorf("reports of Close: %v, %v", reports, err)
		}
	})
}

func TestManager_CloseKeyAllowsRestartOfServerThatWasGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := inProcessManager(t)
		conn := mustConn(t, m, "k")
		conn.Call(t.Context(), "die", nil)
		<-conn.Done()
		if _, err := m.Conn(t.Context(), "k"); err == nil {
			t.Error("a failed server was restarted without a policy")
		}
		m.CloseKey(t.Context(), "k")
		testkit.Equal(t, "error of the next server", mustConn(t, m, "k").Err(), nil)
		m.Close(t.Context())
	})
}

// If CloseKey cannot end a process by the deadline, Close still reports this process.
func TestManager_CloseReportsServerThatCloseKeyCouldNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := &unkillable{serveInProcess(behaviours{}), make(chan struct{})}
		m, _ := inProcessManager(t)
		lspconn.SetStart(m, func(lspconn.Server) (lspconn.ServerProcess, error) { return stuck, nil })
		mustConn(t, m, "k").Ready(t.Context())
		if _, err := m.CloseKey(t.Context(), "k"); !errors.Is(err, lspconn.ErrUnconfirmed) {
			t.Errorf("CloseKey: %v", err)
		}
		if reports, err := m.Close(t.Context()); len(reports) != 1 || !errors.Is(err, lspconn.ErrUnconfirmed) {
			t.Errorf("Close: %v, %v", reports, err)
		}
		close(stuck.dies)
		time.Sleep(time.Hour)
	})
}

// Eight goroutines call CloseKey and Conn for the same key. No server is forgotten: Manager.Close
// ends each one that has been started and not ended by CloseKey.
func TestManager_CloseEndsAllServersThatConcurrentConnStarted(t *testing.T) {
	m, started := inProcessManager(t)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 20 {
				if i%2 == 0 {
					m.CloseKey(t.Context(), "k")
				} else if _, err := m.Conn(t.Context(), "k"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if _, err := m.Close(t.Context()); err != nil {
		t.Error(err)
	}
	for _, g := range started() {
		select {
		case <-g.exited:
		default:
			t.Error("a server is still running")
		}
	}
}
