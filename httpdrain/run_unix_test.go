//go:build unix

package httpdrain_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/swansong-go/swansong/graceful"
	"github.com/swansong-go/swansong/httpdrain"
	"github.com/swansong-go/swansong/internal/testkit"
)

func init() { runOnAddress = runUntilRequest }

// runUntilRequest runs a server that stops at its first request, and returns the exit code.
func runUntilRequest(addr string) int {
	ctx, cancel := context.WithCancel(context.Background())
	return graceful.ExitCode(httpdrain.Run(ctx, addr, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		cancel()
		<-ctx.Done()
		fmt.Fprint(w, r.Context().Value(http.ServerContextKey).(*http.Server).ReadHeaderTimeout)
	})))
}

// Run serves the handler on the inherited listener for the address. When its context ends, it
// finishes the requests. It limits the time that a client may take for a header.
func TestRun_AnswersRequestsBeforeItReturns(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	f, err := ln.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p := dial(t, ln.Addr().String())
	p.send(get)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "SWANSONG_TEST_RUN="+ln.Addr().String(), "LISTEN_FDS=1", "GORACE=atexit_sleep_ms=0")
	cmd.ExtraFiles = []*os.File{f}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	answer, err := io.ReadAll(p)
	if err != nil {
		t.Fatal(err)
	}
	testkit.Equal(t, "the answer is complete", strings.HasSuffix(string(answer), "\r\n\r\n10s"), true)
}
