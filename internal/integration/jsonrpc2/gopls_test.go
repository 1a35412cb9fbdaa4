package jsonrpc2

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/sourcegraph/jsonrpc2"
	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/lspconn"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// startGopls starts gopls in a folder. lspconn owns the process, and jsonrpc2 exchanges the
// messages. To use another library, copy this function: only the names differ.
func startGopls(ctx context.Context, command, dir string) (*lspconn.Process, *jsonrpc2.Conn, error) {
	server, err := lspconn.StartProcess(ctx, lspconn.Server{Command: []string{command}, Dir: dir})
	if err != nil {
		return nil, nil, err
	}
	answer := jsonrpc2.HandlerWithError(func(context.Context, *jsonrpc2.Conn, *jsonrpc2.Request) (any, error) { return nil, nil })
	stream := jsonrpc2.NewBufferedStream(server.Stream(), jsonrpc2.VSCodeObjectCodec{})
	rpc := jsonrpc2.NewConn(context.WithoutCancel(ctx), stream, answer) // the connection must outlive ctx, for the call of shutdown below
	server.OnClose(func(ctx context.Context) error {
		if err := rpc.Call(ctx, "shutdown", nil, nil); err != nil {
			return err
		}
		return rpc.Notify(ctx, "exit", nil)
	})
	params := map[string]any{"processId": os.Getpid(), "rootUri": "file://" + filepath.ToSlash(dir), "capabilities": struct{}{}}
	if err := rpc.Call(ctx, "initialize", params, nil); err != nil {
		server.Force(err)
		server.Close(context.Background())
		return nil, nil, err
	}
	return server, rpc, rpc.Notify(ctx, "initialized", struct{}{})
}

func workspace(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"go.mod": "module example.com/small\n\ngo 1.25\n", "main.go": "package main\n\nfunc main() {}\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// A client of package jsonrpc2 calls gopls. When the context of the program ends, gopls is closed
// by the messages shutdown and exit.
func TestProcess_StopClosesGoplsThatIsCalledThroughJSONRPC2(t *testing.T) {
	program, stop := context.WithCancel(t.Context())
	server, rpc, err := startGopls(program, testkit.Gopls(t), workspace(t))
	if err != nil {
		t.Fatal(err)
	}
	var symbols []json.RawMessage
	if err := rpc.Call(program, "workspace/symbol", map[string]string{"query": "main"}, &symbols); err != nil || len(symbols) == 0 {
		t.Errorf("%d symbols, %v", len(symbols), err)
	}
	stop()
	r, err := server.Close(context.Background())
	if err != nil || r.Outcome != lspconn.Clean || r.Exit.Code != 0 || len(r.Survivors) > 0 {
		t.Errorf("%v, %v; want Clean", r, err)
	}
	<-rpc.DisconnectNotify()
	<-server.Done()
}

// Force kills the server although the library jsonrpc2 still waits for an answer of it.
func TestProcess_ForceEndsPendingCallsOfJSONRPC2(t *testing.T) {
	server, rpc, err := startGopls(t.Context(), testkit.Gopls(t), workspace(t))
	if err != nil {
		t.Fatal(err)
	}
	server.Force(nil)
	r, err := server.Close(t.Context())
	if err != nil || r.Outcome != lspconn.Killed {
		t.Errorf("%v, %v; want Killed", r, err)
	}
	if err := rpc.Call(t.Context(), "workspace/symbol", map[string]string{"query": "main"}, nil); err == nil {
		t.Error("a call after the end of the server was answered")
	}
	<-rpc.DisconnectNotify()
	<-server.Done()
}
