package lspconn_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/swansong-go/swansong/lspconn"
)

const asCrash = "LSPCONN_TEST_CRASH"

// A boom is what handlers panic with. The runtime asks for its text when all deferred calls have run, and before it prints
// anything. If the guard of the handler is gone by then, a main that waits for the drain may be quicker: here it is.
type boom struct {
	conn func() *lspconn.Conn
	held string
}

func (b boom) Error() string {
	if held := b.conn().Scope().GuardReport().String(); !strings.Contains(held, b.held) {
		os.Exit(0)
	}
	return "boom"
}

// TestHandler_Crash is the process that crashes; by itself it checks nothing.
func TestHandler_Crash(t *testing.T) {
	var conn *lspconn.Conn
	made := make(chan struct{})
	get := func() *lspconn.Conn { <-made; return conn }
	server, method := lspconn.Server{}, ""
	switch os.Getenv(asCrash) {
	case "":
		return
	case "OnRequest":
		method = "ask"
		server.OnRequest = func(context.Context, string, json.RawMessage) (any, error) { panic(boom{get, "here/requests"}) }
	case "OnNotify":
		method = "notes"
		server.OnNotify = func(string, json.RawMessage) { panic(boom{get, "here/notifications"}) }
	}
	conn, _ = here(t, context.Background(), server, behaviours{})
	close(made)
	conn.Ready(context.Background())
	conn.Call(context.Background(), method, json.RawMessage("1"))
	select {}
}

// As in any goroutine: the panic is printed and the exit code is 2, whoever waits for the connection.
func TestAPanicInAHandlerEndsTheProgram(t *testing.T) {
	for _, handler := range []string{"OnRequest", "OnNotify"} {
		t.Run(handler, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHandler_Crash$", "-test.timeout=10s")
			cmd.Env = append(os.Environ(), asCrash+"="+handler, "GORACE=atexit_sleep_ms=0")
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(string(out), "panic: boom") {
				t.Errorf("%v, want exit status 2 and the panic:\n%s", err, out)
			}
		})
	}
}
