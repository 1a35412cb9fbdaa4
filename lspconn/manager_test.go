package lspconn_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
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

// Servers are started when they are first asked for, once for each key however many ask.
func TestManager_IsLazy(t *testing.T) {
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
	equal(t, "started", map[string]int{}, started)
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
	equal(t, "started", map[string]int{"server-0": 1, "server-1": 1}, started)
	for i, c := range conns {
		if c != conns[i%2] {
			t.Errorf("%d has a connection of its own", i)
		}
	}
	reports, err := m.Close(t.Context())
	if err != nil || len(reports) != 2 || reports[0].Name != "server-0" || reports[1].Outcome != lspconn.Clean {
		t.Errorf("%v, %v", reports, err)
	}
	again, err := m.Close(t.Context())
	equal(t, "reports of a second Close", fmt.Sprint(reports, err), fmt.Sprint(again, nil))
	var refused *lspconn.ConnError
	if _, err := m.Conn(t.Context(), "server-0"); !errors.As(err, &refused) || !errors.Is(err, lspconn.ErrClosing) {
		t.Errorf("after the close: %v", err)
	}
}

// A fast server does not wait for a slow one, nor does the slow one get more time because of others.
func TestManager_ClosesSideBySide(t *testing.T) {
	m, err := lspconn.NewManager(t.Context(), func(key string) (lspconn.Server, error) {
		b := map[string]behaviours{
			"polite":   {},
			"hangs":    {Shutdown: "never", EOF: "ignore", Exit: "ignore"},
			"immortal": {Shutdown: "never", EOF: "ignore", Exit: "ignore", IgnoreTerm: true},
			"crashed":  {},
		}
		s := fake(role{Behaviour: b[key]})
		s.Name = key
		return s, nil
	}, lspconn.WithCloseTimeout(5*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	conns := map[string]*lspconn.Conn{}
	for _, key := range []string{"polite", "hangs", "immortal", "crashed"} {
		if conns[key], err = m.Conn(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		if _, err := conns[key].Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	conns["crashed"].Call(t.Context(), "die", nil)
	type end struct {
		reports []lspconn.Report
		err     error
	}
	ends := make(chan end)
	go func() {
		r, err := m.Close(t.Context())
		ends <- end{r, err}
	}()
	<-conns["polite"].Done()
	select { // both have 4 s and more to go
	case <-conns["hangs"].Done():
		t.Error("the polite one has waited for the one that hangs")
	case <-conns["immortal"].Done():
		t.Error("the polite one has waited for the immortal")
	default:
	}
	e := <-ends
	if e.err != nil {
		t.Fatal(e.err)
	}
	got := map[string]string{}
	for _, r := range e.reports {
		got[r.Name] = r.Outcome.String()
		if r.Total > 5*time.Second {
			t.Errorf("past the deadline: %v", r)
		}
	}
	equal(t, "outcomes", map[string]string{"polite": "Clean", "hangs": "Terminated", "immortal": "Killed", "crashed": "ExitedEarly"}, got)
}

// Without a policy a server that has failed stays so; with one it is started again, but not at once, and not for ever.
func TestManager_Restart(t *testing.T) {
	crash := func(t *testing.T, m *lspconn.Manager) *lspconn.Conn {
		t.Helper()
		conn, err := m.Conn(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Call(t.Context(), "die", nil); err == nil {
			t.Fatal("it lives")
		}
		<-conn.Done()
		return conn
	}
	servers := func(string) (lspconn.Server, error) { return fake(role{Behaviour: behaviours{Code: 7}}), nil }

	t.Run("never", func(t *testing.T) {
		m := manager(t, servers)
		crash(t, m)
		var exited *lspconn.ExitError
		if _, err := m.Conn(t.Context(), "k"); !errors.As(err, &exited) || exited.Exit.Code != 7 {
			t.Errorf("%v", err)
		}
	})
	t.Run("twice", func(t *testing.T) {
		m := manager(t, servers, lspconn.WithRestart(lspconn.Restart{Max: 2, First: 50 * time.Millisecond}))
		first := crash(t, m)
		begin := time.Now()
		second := crash(t, m)
		third := crash(t, m)
		if d := time.Since(begin); d < 50*time.Millisecond {
			t.Errorf("two restarts after %v", d)
		}
		if first == second || second == third {
			t.Error("a connection has come back")
		}
		equal(t, "state of the first", lspconn.Closed, first.State())
		var exited *lspconn.ExitError
		if _, err := m.Conn(t.Context(), "k"); !errors.As(err, &exited) {
			t.Errorf("after two restarts: %v", err)
		}
	})
	t.Run("who waits for it is woken by the close", func(t *testing.T) {
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
	t.Run("one that was closed is no failure", func(t *testing.T) {
		m := manager(t, servers)
		conn, err := m.Conn(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		closed(t, conn)
		again, err := m.Conn(t.Context(), "k")
		if err != nil || again == conn {
			t.Errorf("%v", err)
		}
	})
}

func TestRestart_Waits(t *testing.T) {
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
		equal(t, fmt.Sprintf("%+v", test.r), test.want, got)
	}
}

// Starting and closing race: nobody gets a connection that is left behind.
func TestManager_Races(t *testing.T) {
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

func TestNewManager_BadInput(t *testing.T) {
	servers := func(key string) (lspconn.Server, error) { return lspconn.Server{}, errors.New("which one?") }
	for _, opt := range []lspconn.ManagerOption{
		lspconn.WithCloseTimeout(4 * time.Second),
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
	contains(t, err, `lspconn: no server for "k": which one?`)
	if reports, err := m.Close(t.Context()); len(reports) != 0 || err != nil {
		t.Errorf("%v, %v", reports, err)
	}
}
