package lspconn_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/lspconn"
)

// The reports and errors of a Manager contain the key of the connection.
func TestManager_ReportsAndErrorsContainKeyOfConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := lspconn.Server{Name: "gopls", Command: []string{"gopls"}, CloseTimeout: 5 * time.Second}
		m, err := lspconn.NewManager(t.Context(), func(string) (lspconn.Server, error) { return server, nil })
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var logged strings.Builder
		server.Logger = slog.New(slog.NewTextHandler(&lockedWriter{&mu, &logged}, nil))
		dies := make(chan struct{})
		var conns []*lspconn.Conn
		for _, key := range []string{"go /a", "go /b", "gopls"} {
			lspconn.SetStart(m, func(lspconn.Server) (lspconn.ServerProcess, error) {
				g := serveInProcess(behaviours{})
				if key == "go /b" {
					return &unkillable{g, dies}, nil
				}
				return g, nil
			})
			conn, err := m.Conn(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			conn.Ready(t.Context())
			conns = append(conns, conn)
		}
		reports, err := m.Close(context.Background())
		keys, lines := map[string]lspconn.Outcome{}, []string{}
		for _, r := range reports {
			keys[r.Key] = r.Outcome
			lines = append(lines, r.String())
		}
		testkit.Equal(t, "reports", keys, map[string]lspconn.Outcome{
			"go /a": lspconn.Clean, "go /b": lspconn.Unconfirmed, "gopls": lspconn.Clean})
		for _, want := range []string{"go /a: gopls: Clean, exit code 0", "go /b: gopls: Unconfirmed, in ", "gopls: Clean"} {
			if !strings.Contains(strings.Join(lines, "\n"), want) {
				t.Errorf("no line of %q begins with %q", lines, want)
			}
		}
		testkit.Equal(t, "error", err.Error(), "lspconn: go /b: gopls: not known to have ended")
		var refused *lspconn.ConnError
		if _, err := conns[0].Call(t.Context(), "hover", nil); !errors.As(err, &refused) || refused.Key != "go /a" ||
			err.Error() != "lspconn: go /a: gopls: hover: connection closing (-32803); process: exit code 0" {
			t.Errorf("a call after Close: %v", err)
		}
		if _, err := m.Conn(t.Context(), "go /c"); !errors.As(err, &refused) || refused.Key != "go /c" {
			t.Errorf("a new connection after Close: %v", err)
		}
		close(dies)
		time.Sleep(time.Second)
		mu.Lock()
		defer mu.Unlock()
		for _, key := range []string{`key="go /a"`, `key="go /b"`, "key=gopls"} {
			if !strings.Contains(logged.String(), "msg=\"lspconn: ended\" "+key) {
				t.Errorf("no end of a connection with %s in the log:\n%s", key, logged.String())
			}
		}
	})
}

// The error for a server that a manager cannot start names the key.
func TestManager_ErrorOfStartNamesKey(t *testing.T) {
	servers := map[string]lspconn.Server{
		"missing":    {Command: []string{"no-such-server"}},
		"no command": {},
		"negative":   {Command: []string{"gopls"}, CloseTimeout: -1},
	}
	m, err := lspconn.NewManager(t.Context(), func(key string) (lspconn.Server, error) { return servers[key], nil })
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for key := range servers {
		_, err := m.Conn(t.Context(), key)
		got[key] = fmt.Sprint(err)
	}
	testkit.Equal(t, "errors", got, map[string]string{
		"missing":    `lspconn: missing: cannot start "no-such-server": executable file not found in $PATH`,
		"no command": "lspconn: no command: Server.Command is empty; set it to the program and its arguments",
		"negative":   "lspconn: negative: gopls: Server.CloseTimeout is -1ns; it must be between 1s and 15s, or zero for the default of 10s",
	})
}

// No error or report contains the same information twice or names an internal package.
func TestErrors_ContainNoInformationTwice(t *testing.T) {
	_, err := lspconn.Start(t.Context(), lspconn.Server{Command: []string{"no-such-server"}})
	testkit.Equal(t, "error of Start", err.Error(), `lspconn: cannot start "no-such-server": executable file not found in $PATH`)
	var lookup *exec.Error
	if !errors.Is(err, exec.ErrNotFound) || !errors.As(err, &lookup) {
		t.Error("the error of Start does not wrap that of os/exec")
	}
	testkit.Equal(t, "ErrUnconfirmed", lspconn.ErrUnconfirmed.Error(), "not known to have ended")

	conn := startReady(t, fake(role{Behaviour: behaviours{Code: 3, Stderr: "panic: at the disco\n\ngoroutine 1 [running]:\n"}}))
	_, err = conn.Call(t.Context(), "die", nil)
	r := mustClose(t, conn)
	r.Total = 0
	testkit.Equal(t, "report", r.String(), `fake: ExitedEarly, in 0s (the server exited unexpectedly: exit code 3); stderr: "panic: at the disco"`)
	testkit.Equal(t, "error of Call", err.Error(), `lspconn: fake: die: connection failed: the server exited unexpectedly: exit code 3; stderr: "panic: at the disco"`)
}

// A lockedWriter writes to w under a lock.
type lockedWriter struct {
	mu *sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}
