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

	"github.com/swansong-go/swansong/lspconn"
)

// What the table of docs/lspconn.md says of servers, seen without a Conn: if one no longer does it, something here may have
// become superfluous, or has to be found out anew.
func TestReal_Behaviour(t *testing.T) {
	dir := workspace(t)
	for _, r := range reals {
		t.Run(r.name, func(t *testing.T) {
			server := r.server(t, dir)
			b := bareServer(t, server)
			b.initialize()
			b.stdin.Close()
			if code := b.end().ExitCode(); code < 0 || r.name == "gopls" && code != 0 {
				t.Errorf("at EOF: exit code %d", code)
			}

			b = bareServer(t, server)
			if r.name == "tsc" {
				b.send(-1, "exit", nil) // which it ignores
			}
			b.initialize()
			if r.name != "tsc" { // that leaves, with code 2
				b.ask(2, "shutdown", nil)
				if m := b.ask(3, "textDocument/hover", r.position(dir)); m.Error != nil && m.Error.Code == lspconn.CodeInvalidRequest {
					t.Error("it keeps to the specification, and refuses requests after shutdown as invalid")
				}
			}
			b.cmd.Process.Signal(syscall.SIGTERM)
			if ws := b.end().Sys().(syscall.WaitStatus); ws.Signal() != syscall.SIGTERM {
				t.Errorf("it handles SIGTERM: %v", ws)
			}
			leaves := r.name == "tsc" || r.name == "typescript-language-server"
			if left := carrying(b.mark); leaves && len(left) == 0 {
				t.Error("SIGTERM to it alone leaves nobody behind")
			}
		})
	}
}

// A bare is a server with nothing of ours around it but the framing.
type bare struct {
	t      *testing.T
	server lspconn.Server
	mark   string
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	next   func() ([]byte, error)
}

func bareServer(t *testing.T, server lspconn.Server) *bare {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), tooLong)
	b := &bare{t: t, server: server, mark: server.Env[len(server.Env)-1], cmd: exec.CommandContext(ctx, server.Command[0], server.Command[1:]...)}
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
		cancel()
		b.stdin.Close()
		for _, p := range carrying(b.mark) {
			syscall.Kill(p.pid, syscall.SIGKILL)
		}
		b.cmd.Wait()
	})
	return b
}

func (b *bare) send(id int64, method string, params json.RawMessage) {
	if _, err := b.stdin.Write(lspconn.Frame(id, method, params)); err != nil {
		b.t.Fatal(err)
	}
}

// A response, or what the server asks.
type response struct {
	ID     json.RawMessage
	Method string
	Params json.RawMessage
	Error  *lspconn.ResponseError
}

// ask returns the response to a request, and answers what the server asks meanwhile.
func (b *bare) ask(id int64, method string, params json.RawMessage) response {
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

func (b *bare) initialize() {
	b.t.Helper()
	b.ask(1, "initialize", b.server.Initialize)
	b.send(-1, "initialized", json.RawMessage("{}"))
}

// end waits for the server, and leaves its pipes open: whom it leaves behind is not to be ended by them.
func (b *bare) end() *os.ProcessState {
	b.t.Helper()
	state, err := b.cmd.Process.Wait()
	if err != nil {
		b.t.Fatal(err)
	}
	return state
}
