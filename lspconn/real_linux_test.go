//go:build !race

package lspconn_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/swansong-go/swansong/lspconn"
)

// TestRealServers_BehaveAsDocumented checks the table in docs/reference/lspconn.md without using a
// Conn. If it fails, a server has changed its behaviour, and a workaround in this package may have
// become superfluous. The race detector has nothing to find here: the test uses the servers, and
// hardly any code of this package.
func TestRealServers_BehaveAsDocumented(t *testing.T) {
	dir := workspace(t)
	for _, r := range reals {
		t.Run(r.name, func(t *testing.T) {
			server := r.server(t, dir)
			atEOF := bareServer(t, server)
			atEOF.initialize()
			atEOF.stdin.Close()
			if code := atEOF.end(); code == nil {
				// The test does not fail here, because bash-language-server sometimes does not exit
				// on a busy machine.
				t.Log("the server has not noticed the end of its stdin")
			} else if code.ExitCode() < 0 || r.name == "gopls" && code.ExitCode() != 0 {
				t.Errorf("after the end of stdin, the server exited with %v", code)
			}

			b := bareServer(t, server)
			if r.name == "tsc" {
				b.send(-1, "exit", nil) // tsc ignores an exit notification that comes before initialize
			}
			b.initialize()
			if r.name != "tsc" { // at a request after shutdown, tsc exits with code 2
				b.ask(2, "shutdown", nil)
				m := b.ask(3, "textDocument/hover", r.position(dir))
				if refused := m.Error != nil && m.Error.Code == lspconn.CodeInvalidRequest; refused != (r.name == "ast-grep") {
					t.Errorf("a request after shutdown is refused as invalid: %v; the specification demands it", refused)
				}
			}
			b.cmd.Process.Signal(syscall.SIGTERM)
			if state := b.end(); state == nil {
				t.Log("the server has not noticed SIGTERM")
			} else if handled := state.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM; handled != (r.name == "clangd") {
				t.Errorf("the server handles SIGTERM: %v (%v)", handled, state)
			}
			t.Logf("left behind after SIGTERM: %v", withVariable(b.mark)) // children of the server; some may have ended by now
		})
	}
}

// A rawServer is a real language server that the test controls directly. The test uses only the
// framing of this package.
type rawServer struct {
	t      *testing.T
	server lspconn.Server
	mark   string
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	next   func() ([]byte, error)
}

func bareServer(t *testing.T, server lspconn.Server) *rawServer {
	t.Helper()
	b := &rawServer{t: t, server: server, mark: server.Env[len(server.Env)-1], cmd: exec.Command(server.Command[0], server.Command[1:]...)}
	b.cmd.Dir, b.cmd.Env = server.Dir, server.Env
	var stdout io.Reader
	var err error
	if b.stdin, err = b.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if stdout, err = b.cmd.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	b.next = lspconn.Frames(stdout)
	if err := b.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.stdin.Close()
		for _, p := range withVariable(b.mark) {
			syscall.Kill(p.pid, syscall.SIGKILL)
		}
		b.cmd.Wait()
	})
	return b
}

func (b *rawServer) send(id int64, method string, params json.RawMessage) {
	if _, err := b.stdin.Write(lspconn.Frame(id, method, params)); err != nil {
		b.t.Fatal(err)
	}
}

// A response is a message from a rawServer: the response to a request, or a request of the server.
type response struct {
	ID     json.RawMessage
	Method string
	Params json.RawMessage
	Error  *lspconn.ResponseError
}

// ask sends a request and returns its response. While it waits, it answers requests of the server.
func (b *rawServer) ask(id int64, method string, params json.RawMessage) response {
	b.t.Helper()
	b.send(id, method, params)
	for {
		body, err := b.next()
		var m response
		if err == nil {
			err = json.Unmarshal(body, &m)
		}
		if err != nil {
			b.t.Fatalf("%s: %v", method, err)
		}
		switch {
		case m.Method == "" && string(m.ID) == strconv.FormatInt(id, 10):
			return m
		case m.Method != "" && m.ID != nil:
			result, _ := b.server.OnRequest(context.Background(), m.Method, m.Params)
			body := encoded(map[string]any{"jsonrpc": "2.0", "id": m.ID, "result": result})
			fmt.Fprintf(b.stdin, "Content-Length: %d\r\n\r\n%s", len(body), body)
		}
	}
}

func (b *rawServer) initialize() {
	b.t.Helper()
	b.ask(1, "initialize", b.server.Initialize)
	b.send(-1, "initialized", json.RawMessage("{}"))
}

// end waits until the server has exited. If it runs for five seconds more, end kills it and
// returns nil. It leaves the pipes open, because closing them could end processes that the server
// leaves behind.
func (b *rawServer) end() *os.ProcessState {
	b.t.Helper()
	late := make(chan struct{})
	kill := time.AfterFunc(5*time.Second, func() {
		defer close(late)
		b.cmd.Process.Kill()
	})
	state, err := b.cmd.Process.Wait()
	if err != nil {
		b.t.Fatal(err)
	}
	if !kill.Stop() {
		<-late
		return nil
	}
	return state
}
