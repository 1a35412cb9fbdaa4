package lspconn_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/swansong-go/swansong/lspconn"
)

// A server can be killed at any point of a conversation, for example by the kernel when memory runs
// out. All pending calls must then return, the report must name the signal that killed the server,
// and no child process must be left.
func TestConn_FailsWhenServerIsKilledAtAnyPoint(t *testing.T) {
	dir := workspace(t)
	for _, test := range []struct {
		name   string
		rounds int
		calls  int // the largest number of calls that the server answers before it is killed
		server func(t *testing.T) lspconn.Server
		method string
		params string
	}{
		{"fake", 30, 200, func(*testing.T) lspconn.Server { return fake(role{}) }, "echo", "[1]"},
		{"gopls", 5, 10, func(t *testing.T) lspconn.Server { return reals[0].server(t, dir) }, "workspace/symbol", `{"query":"main"}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			seed := rand.Uint64()
			random := rand.New(rand.NewPCG(seed, 0))
			for range test.rounds {
				killAfter(t, test.server(t), test.method, test.params, random.IntN(test.calls))
				if t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
		})
	}
}

// killAfter kills a server after it has answered n calls, while other calls are pending. If n is 0,
// the server may be killed before it has answered initialize.
func killAfter(t *testing.T, server lspconn.Server, method, params string, answers int) {
	t.Helper()
	before := children(t)
	conn := start(t, server)
	pid := 0
	for child := range children(t) {
		if !before[child] {
			pid = child
		}
	}
	if pid == 0 {
		t.Fatal("no process was started")
	}
	var callers sync.WaitGroup
	var answered atomic.Int64
	enough := make(chan struct{})
	reached := sync.OnceFunc(func() { close(enough) })
	for range 8 {
		callers.Go(func() {
			for {
				if int(answered.Load()) >= answers {
					reached()
				}
				_, err := conn.Call(context.Background(), method, json.RawMessage(params))
				if err == nil {
					answered.Add(1)
					continue
				}
				reached()
				var failed *lspconn.ConnError
				// On a busy machine, the end of the output can be seen long before the exit.
				named := strings.Contains(err.Error(), "killed") || strings.Contains(err.Error(), "closed its output")
				if !errors.As(err, &failed) || !named {
					t.Errorf("after %d answers, a pending call returned %v", answered.Load(), err)
				}
				return
			}
		})
	}
	<-enough
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	callers.Wait()
	r := mustClose(t, conn)
	if r.Exit == nil || r.Exit.Signal != "killed" || len(r.Survivors) > 0 {
		t.Errorf("after %d answers: %v", answers, r)
	}
}

// If a program is killed, the server that it has started is killed, too, even if the server ignores
// the end of its stdin.
func TestStart_ServerIsKilledWithProgram(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "held")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(role{Behaviour: behaviours{EOF: "ignore"}, Hold: fifo})
	if err != nil {
		t.Fatal(err)
	}
	client := exec.Command(os.Args[0])
	client.Env = append(os.Environ(), asServer+"=client", "LSPCONN_TEST_ROLE="+string(text))
	if err := client.Start(); err != nil {
		t.Fatal(err)
	}
	defer client.Wait()
	held, err := os.Open(fifo) // Open returns when the server has opened the other end
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	client.Process.Kill()
	held.SetReadDeadline(time.Now().Add(tooLong))
	// When the server is dead, the kernel closes its end of the connection.
	if _, err := held.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the server is still running: %v", err)
	}
}

// children returns the pids of this process's children.
func children(t *testing.T) map[int]bool {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	found := map[int]bool{}
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // the process has ended
		}
		// In /proc/<pid>/stat, the command in parentheses is followed by the state of the process
		// and the pid of its parent.
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if parent, _ := strconv.Atoi(fields[1]); parent == os.Getpid() {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			found[pid] = true
		}
	}
	return found
}
