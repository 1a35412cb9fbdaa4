package lspconn_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/lspconn"
)

func manager(t *testing.T, servers func(key string) (lspconn.Server, error), opts ...lspconn.ManagerOption) *lspconn.Manager {
	t.Helper()
	m, err := lspconn.NewManager(t.Context(), servers, append(opts, lspconn.WithCloseTimeout(15*time.Second))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := m.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return m
}

// A server is started when Conn is first called for its key. Concurrent calls start it only once.
func TestManager_FirstCallToConnStartsServer(t *testing.T) {
	var mu sync.Mutex
	started := map[string]int{}
	m := manager(t, func(key string) (lspconn.Server, error) {
		mu.Lock()
		defer mu.Unlock()
		started[key]++
		s := fake(role{})
		s.Name = key
		return s, nil
	})
	testkit.Equal(t, "started", started, map[string]int{})
	conns := make([]*lspconn.Conn, 20)
	var all sync.WaitGroup
	for i := range conns {
		all.Go(func() {
			var err error
			if conns[i], err = m.Conn(t.Context(), fmt.Sprint("server-", i%2)); err != nil {
				t.Error(err)
				return
			}
			if result, err := conns[i].Call(t.Context(), "echo", json.RawMessage(fmt.Sprint(i))); err != nil || string(result) != fmt.Sprint(i) {
				t.Errorf("%s, %v", result, err)
			}
		})
	}
	all.Wait()
	testkit.Equal(t, "started", started, map[string]int{"server-0": 1, "server-1": 1})
	for i, c := range conns {
		if c != conns[i%2] {
			t.Errorf("caller %d received a connection of its own", i)
		}
	}
	reports, err := m.Close(t.Context())
	if err != nil || len(reports) != 2 || reports[0].Name != "server-0" || reports[1].Outcome != lspconn.Clean {
		t.Errorf("%v, %v", reports, err)
	}
	again, err := m.Close(t.Context())
	testkit.Equal(t, "reports of a second Close", fmt.Sprint(again, nil), fmt.Sprint(reports, err))
	var refused *lspconn.ConnError
	if _, err := m.Conn(t.Context(), "server-0"); !errors.As(err, &refused) || !errors.Is(err, lspconn.ErrClosing) {
		t.Errorf("Conn after Close returned %v", err)
	}
}

// When a Manager closes, a fast server does not wait for a slow one, and all servers have the same
// deadline.
func TestManager_ClosesConnectionsInParallel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := map[string]behaviours{
			"polite":     {},
			"hangs":      {Shutdown: "never", EOF: "ignore", Exit: "ignore"},
			"unkillable": {Shutdown: "never", EOF: "ignore", Exit: "ignore", IgnoreTerm: true},
			"crashed":    {},
		}
		m, err := lspconn.NewManager(t.Context(), func(key string) (lspconn.Server, error) {
			return lspconn.Server{Name: key, Command: []string{key}}, nil
		}, lspconn.WithCloseTimeout(5*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		lspconn.SetStart(m, func(s lspconn.Server) (lspconn.ServerProcess, error) { return serveInProcess(servers[s.Name]), nil })
		for key := range servers {
			conn, err := m.Conn(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			conn.Ready(t.Context())
			if key == "crashed" {
				conn.Call(t.Context(), "die", nil)
				<-conn.Done()
			}
		}
		reports, err := m.Close(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, r := range reports {
			got[r.Key] = fmt.Sprint(r.Outcome, " in ", r.Total)
		}
		testkit.Equal(t, "outcomes", got, map[string]string{
			"polite": "Clean in 0s", "hangs": "Terminated in 3.5s", "unkillable": "Killed in 4s", "crashed": "ExitedEarly in 0s"})
	})
}

// All connections begin to close at the same time, however many there are.
func TestManager_BeginsToCloseAllConnectionsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		side := gather(10)
		m, err := lspconn.NewManager(t.Context(), func(key string) (lspconn.Server, error) {
			return lspconn.Server{Name: key, Command: []string{key}, Logger: at("Closing", func() { side.by(t) })}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		lspconn.SetStart(m, func(lspconn.Server) (lspconn.ServerProcess, error) { return serveInProcess(behaviours{}), nil })
		for i := range 10 {
			conn, err := m.Conn(t.Context(), fmt.Sprint(i))
			if err != nil {
				t.Fatal(err)
			}
			conn.Ready(t.Context())
		}
		if reports, err := m.Close(context.Background()); err != nil || len(reports) != 10 {
			t.Errorf("%v, %v", reports, err)
		}
	})
}

// A barrier blocks goroutines until all of them have arrived.
type barrier struct {
	missing atomic.Int64
	all     chan struct{}
}

func gather(n int) *barrier {
	g := &barrier{all: make(chan struct{})}
	g.missing.Store(int64(n))
	return g
}

func (g *barrier) by(t *testing.T) {
	if g.missing.Add(-1) == 0 {
		close(g.all)
	}
	select {
	case <-g.all:
	case <-time.After(time.Minute): // a minute of the synctest bubble, which does not depend on the machine
		t.Errorf("the servers do not close at the same time: %d have not arrived", g.missing.Load())
	}
}

// Without a policy a failed server is not restarted. With a policy it is restarted after a wait,
// and a limited number of times.
func TestManager_RestartsFailedServerByPolicy(t *testing.T) {
	crash := func(t *testing.T, m *lspconn.Manager) *lspconn.Conn {
		t.Helper()
		conn, err := m.Conn(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Call(t.Context(), "die", nil); err == nil {
			t.Fatal("the server is still running")
		}
		<-conn.Done()
		return conn
	}
	servers := func(string) (lspconn.Server, error) { return fake(role{Behaviour: behaviours{Code: 7}}), nil }

	t.Run("never", func(t *testing.T) {
		m := manager(t, servers)
		crash(t, m)
		var exited *lspconn.ExitError
		_, err := m.Conn(t.Context(), "k")
		if !errors.As(err, &exited) || exited.Exit.Code != 7 {
			t.Errorf("%v", err)
		}
		contains(t, err, "not started again, because Restart.Max is 0 (see WithRestart)")
	})
	t.Run("twice", func(t *testing.T) {
		m := manager(t, servers, lspconn.WithRestart(lspconn.Restart{Max: 2, First: 50 * time.Millisecond}))
		first := crash(t, m)
		begin := time.Now()
		second := crash(t, m)
		third := crash(t, m)
		if d := time.Since(begin); d < 50*time.Millisecond {
			t.Errorf("the second restart came after %v", d)
		}
		if first == second || second == third {
			t.Error("the manager returned an earlier connection")
		}
		testkit.Equal(t, "state of the first", first.State(), lspconn.Closed)
		var exited *lspconn.ExitError
		_, err := m.Conn(t.Context(), "k")
		if !errors.As(err, &exited) {
			t.Errorf("after two restarts: %v", err)
		}
		contains(t, err, "Restart.Max is 2")
	})
	t.Run("Close wakes a caller of Conn that waits for the restart", func(t *testing.T) {
		m := manager(t, servers, lspconn.WithRestart(lspconn.Restart{Max: -1, First: time.Hour, Limit: time.Hour}))
		crash(t, m)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := m.Conn(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		errs := make(chan error)
		go func() {
			_, err := m.Conn(context.Background(), "k")
			errs <- err
		}()
		m.Close(t.Context())
		if err := <-errs; !errors.Is(err, lspconn.ErrClosing) {
			t.Errorf("%v", err)
		}
	})
	t.Run("a server that was closed has not failed", func(t *testing.T) {
		m := manager(t, servers)
		conn, err := m.Conn(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		mustClose(t, conn)
		again, err := m.Conn(t.Context(), "k")
		if err != nil || again == conn {
			t.Errorf("%v", err)
		}
	})
}

func TestRestart_WaitDoublesUpToLimit(t *testing.T) {
	for _, test := range []struct {
		r    lspconn.Restart
		want []time.Duration
	}{
		{lspconn.Restart{}, nil},
		{lspconn.Restart{Max: 3, First: 1, Limit: 100}, []time.Duration{1, 2, 4}},
		{lspconn.Restart{Max: -1, First: 1, Limit: 5}, []time.Duration{1, 2, 4, 5, 5, 5, 5, 5, 5, 5}},
		{lspconn.Restart{Max: 2, First: 10, Limit: 5}, []time.Duration{5, 5}},
	} {
		var got []time.Duration
		for n := range 10 {
			if d, ok := lspconn.WaitOf(test.r, n+1); ok {
				got = append(got, d)
			}
		}
		testkit.Equal(t, fmt.Sprintf("%+v", test.r), got, test.want)
	}
}

// If Conn and Close are called at the same time, no connection stays open.
func TestManager_ClosesConnectionsStartedDuringClose(t *testing.T) {
	for range 10 {
		program := ctxshutdown.New(context.Background())
		m, err := lspconn.NewManager(program, func(key string) (lspconn.Server, error) { return fake(role{}), nil })
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for i := range 6 {
			all.Go(func() {
				conn, err := m.Conn(t.Context(), fmt.Sprint(i%3))
				switch {
				case err == nil:
					<-conn.Done()
				case !errors.Is(err, lspconn.ErrClosing):
					t.Error(err)
				}
			})
		}
		all.Go(func() {
			if _, err := m.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
		all.Wait()
		if err := program.Shutdown().Wait(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestNewManager_RejectsBadInput(t *testing.T) {
	servers := func(key string) (lspconn.Server, error) { return lspconn.Server{}, errors.New("unknown server") }
	for _, opt := range []lspconn.ManagerOption{
		lspconn.WithCloseTimeout(time.Second - 1),
		lspconn.WithCloseTimeout(-1),
		lspconn.WithRestart(lspconn.Restart{First: -1}),
	} {
		_, err := lspconn.NewManager(t.Context(), servers, opt)
		contains(t, err, "lspconn: NewManager: ")
	}
	m, err := lspconn.NewManager(t.Context(), servers, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = m.Conn(t.Context(), "k")
	contains(t, err, `lspconn: no server for the key "k": unknown server`)
	if reports, err := m.Close(t.Context()); len(reports) != 0 || err != nil {
		t.Errorf("%v, %v", reports, err)
	}
}

// Close returns by its deadline even if servers are still being started, and its error names them.
func TestManager_CloseErrorNamesServersStillBeingStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		m, err := lspconn.NewManager(t.Context(), func(string) (lspconn.Server, error) {
			<-release
			return lspconn.Server{}, errors.New("too late")
		}, lspconn.WithCloseTimeout(5*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"a", "b", "c"} {
			go m.Conn(context.Background(), key)
		}
		synctest.Wait()
		begin := time.Now()
		_, err = m.Close(context.Background())
		testkit.Equal(t, "time", time.Since(begin), 5*time.Second)
		if !errors.Is(err, lspconn.ErrUnconfirmed) {
			t.Errorf("%v, while three are being started", err)
		}
		contains(t, err, `"a" is still being started`, `"b"`, `"c"`)

		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(errors.New("the caller does not wait longer"))
		_, err = m.Close(ctx)
		contains(t, err, `"c" is still being started`)
		close(release)
		synctest.Wait()
		// The deadline of Close has passed. But no server is still being started, so Close returns
		// no error.
		if _, err := m.Close(context.Background()); err != nil {
			t.Errorf("a second Close: %v", err)
		}
	})
}

// A connection is closing with a deadline of its own when its manager is closed with an earlier
// one. The connection, too, is then closed by the manager's deadline.
func TestManager_CloseShortensDeadlineOfClosingConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := &unkillable{serveInProcess(behaviours{}), make(chan struct{})}
		slow := serveInProcess(behaviours{Shutdown: "never", EOF: "ignore", Exit: "ignore", IgnoreTerm: true})
		m, err := lspconn.NewManager(t.Context(), func(key string) (lspconn.Server, error) {
			return lspconn.Server{Name: key, Command: []string{key}, CloseTimeout: 15 * time.Second}, nil
		}, lspconn.WithCloseTimeout(5*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		lspconn.SetStart(m, func(s lspconn.Server) (lspconn.ServerProcess, error) {
			if s.Name == "stuck" {
				return stuck, nil
			}
			return slow, nil
		})
		for _, key := range []string{"slow", "stuck"} {
			conn, err := m.Conn(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			conn.Ready(t.Context())
			go conn.Close(context.Background())
		}
		synctest.Wait()
		begin := time.Now()
		reports, err := m.Close(context.Background())
		testkit.Equal(t, "time", time.Since(begin), 5*time.Second)
		if !errors.Is(err, lspconn.ErrUnconfirmed) {
			t.Errorf("%v", err)
		}
		contains(t, err, "stuck")
		testkit.Equal(t, "outcomes", fmt.Sprint(reports[0].Outcome, " ", reports[1].Outcome), "Killed Unconfirmed")
		close(stuck.dies)
		time.Sleep(time.Hour)
		// Close must return the complete reports even if the deadline has passed. Repeat the call,
		// because select chooses at random.
		for range 20 {
			again, _ := m.Close(context.Background())
			testkit.Equal(t, "reports of a second Close", fmt.Sprint(again[0]), fmt.Sprint(reports[0]))
		}
	})
}

// When the program stops, all connections close by the manager's deadline, even if their own
// deadlines are earlier or later. This includes connections on which Close was called before, or is
// called afterwards.
func TestManager_ClosesAllConnectionsWhenProgramStops(t *testing.T) {
	for _, keys := range [][]string{{"never"}, {"before"}, {"before", "after", "never"}} {
		synctest.Test(t, func(t *testing.T) { stopOfTheProgram(t, keys) })
	}
}

func stopOfTheProgram(t *testing.T, keys []string) {
	program := ctxshutdown.New(context.Background())
	m, err := lspconn.NewManager(program, func(key string) (lspconn.Server, error) {
		return lspconn.Server{Name: key, Command: []string{key}, CloseTimeout: 15 * time.Second}, nil
	}, lspconn.WithCloseTimeout(5*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	lspconn.SetStart(m, func(lspconn.Server) (lspconn.ServerProcess, error) {
		return serveInProcess(behaviours{Shutdown: "never", EOF: "ignore", Exit: "ignore", IgnoreTerm: true}), nil
	})
	conns := map[string]*lspconn.Conn{}
	for _, key := range keys {
		if conns[key], err = m.Conn(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		conns[key].Ready(t.Context())
	}
	if conn := conns["before"]; conn != nil {
		go conn.Close(context.Background())
	}
	synctest.Wait()
	begin := time.Now()
	drained := program.Shutdown()
	if conn := conns["after"]; conn != nil {
		go conn.Close(context.Background())
	}
	if err := drained.Wait(context.Background()); err != nil {
		t.Error(err)
	}
	testkit.Equal(t, "time", time.Since(begin), 4*time.Second) // SIGKILL is sent at this time
	reports, err := m.Close(context.Background())
	if err != nil {
		t.Error(err)
	}
	for _, r := range reports {
		testkit.Equal(t, r.Name, r.Outcome, lspconn.Killed)
	}
	testkit.Equal(t, "reports", len(reports), len(keys))
}

// Restart.Reset is compared with the time for which a server was running, without the time from its
// failure to the next call of Conn.
func TestManager_RestartResetDoesNotCountTimeAfterFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		started := 0
		up := time.Millisecond
		m, err := lspconn.NewManager(t.Context(), func(string) (lspconn.Server, error) {
			return lspconn.Server{Name: "here", Command: []string{"here"}}, nil
		}, lspconn.WithRestart(lspconn.Restart{Max: 1, First: time.Millisecond, Reset: time.Second}))
		if err != nil {
			t.Fatal(err)
		}
		lspconn.SetStart(m, func(lspconn.Server) (lspconn.ServerProcess, error) {
			started++
			return serveInProcess(behaviours{Code: 1}), nil
		})
		ask := func() error {
			conn, err := m.Conn(t.Context(), "k")
			if err != nil {
				return err
			}
			time.Sleep(up)
			conn.Call(t.Context(), "die", nil)
			return nil
		}
		for range 5 {
			err = ask()
			time.Sleep(1100 * time.Millisecond)
		}
		var exited *lspconn.ExitError
		if !errors.As(err, &exited) {
			t.Errorf("the last call of Conn returned %v", err)
		}
		testkit.Equal(t, "started", started, 2)
		m.Close(context.Background())
	})
}

// A server that ran for longer than Reset may be restarted Max times again, even if Conn is called
// at once.
func TestManager_ServerThatRanLongGetsAllRestartsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, err := lspconn.NewManager(t.Context(), func(string) (lspconn.Server, error) {
			return lspconn.Server{Name: "here", Command: []string{"here"}}, nil
		}, lspconn.WithRestart(lspconn.Restart{Max: 1, First: time.Millisecond, Reset: time.Second}))
		if err != nil {
			t.Fatal(err)
		}
		lspconn.SetStart(m, func(lspconn.Server) (lspconn.ServerProcess, error) { return serveInProcess(behaviours{Code: 1}), nil })
		for range 5 {
			conn, err := m.Conn(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			conn.Call(t.Context(), "die", nil)
		}
		m.Close(context.Background())
	})
}

// If a server was unconfirmed at the deadline and has ended since, the next call of Conn starts a
// new server.
func TestManager_ReplacesServerThatEndedOnlyAfterCloseDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := &unkillable{serveInProcess(behaviours{}), make(chan struct{})}
		m, err := lspconn.NewManager(t.Context(), func(string) (lspconn.Server, error) {
			return lspconn.Server{Name: "here", Command: []string{"here"}}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		links := []lspconn.ServerProcess{stuck, serveInProcess(behaviours{})}
		lspconn.SetStart(m, func(lspconn.Server) (lspconn.ServerProcess, error) {
			l := links[0]
			links = links[1:]
			return l, nil
		})
		conn, err := m.Conn(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		conn.Ready(t.Context())
		if _, err := conn.Close(t.Context()); !errors.Is(err, lspconn.ErrUnconfirmed) {
			t.Errorf("%v", err)
		}
		time.AfterFunc(time.Hour, func() { close(stuck.dies) })
		next, err := m.Conn(t.Context(), "k")
		if err != nil || next == conn {
			t.Errorf("%v", err)
		}
		m.Close(context.Background())
	})
}
