package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/swansong-go/swansong/lspconn"
	"go.uber.org/goleak"
)

// hoverAddrVar names the environment variable with the address that the fake zls connects to when
// it receives a hover request.
const hoverAddrVar = "LSPCLOSE_TEST_HOVER_ADDR"

// TestMain makes the test binary a fake language server if it is started under the name of one.
func TestMain(m *testing.M) {
	if name := filepath.Base(os.Args[0]); name == "gopls" || name == "clangd" || name == "zls" {
		serveFake(name)
	}
	goleak.VerifyTestMain(m)
}

// serveFake answers every request with null. Under the name clangd it exits at the request
// shutdown, which is too early. Under the name zls it does not answer the request hover.
func serveFake(name string) {
	in := bufio.NewReader(os.Stdin)
	for {
		header, err := textproto.NewReader(in).ReadMIMEHeader()
		n, _ := strconv.Atoi(header.Get("Content-Length"))
		body := make([]byte, n)
		if err != nil {
			os.Exit(5)
		}
		io.ReadFull(in, body)
		var m struct {
			ID     json.RawMessage
			Method string
		}
		json.Unmarshal(body, &m)
		switch {
		case m.Method == "exit":
			os.Exit(0)
		case m.Method == "shutdown" && name == "clangd":
			os.Exit(9)
		case m.Method == "textDocument/hover" && name == "zls":
			net.Dial("tcp", os.Getenv(hoverAddrVar))
		case m.ID != nil:
			reply := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":null}`, m.ID)
			fmt.Printf("Content-Length: %d\r\n\r\n%s", len(reply), reply)
		}
	}
}

// setPath makes PATH a folder that contains the test binary under the given names, and nothing
// else.
func setPath(t *testing.T, names ...string) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("needs symbolic links")
	}
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := os.Symlink(self, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
	t.Setenv("GORACE", "atexit_sleep_ms=0")
}

func TestRun_PrintsReportsAsJSON(t *testing.T) {
	setPath(t, "gopls", "clangd")
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), []string{"-json", "-timeout", "15s"}, &stdout, &stderr)
	var got []struct{ Server, Outcome, Exit, Failure string }
	if err := json.Unmarshal(stdout.Bytes(), &got); err != nil {
		t.Fatalf("%v\n%s%s", err, &stdout, &stderr)
	}
	want := []struct{ Server, Outcome, Exit, Failure string }{
		{"clangd", "ExitedEarly", "exit code 9", "the server exited unexpectedly: exit code 9"},
		{"gopls", "Clean", "exit code 0", ""},
	}
	if diff := cmp.Diff(want, got); diff != "" || code != 1 || stderr.Len() > 0 {
		t.Errorf("code %d (-want +got):\n%s%s", code, diff, &stderr)
	}
}

func TestRun_PrintsReportsAsTable(t *testing.T) {
	setPath(t, "gopls")
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), nil, &stdout, &stderr)
	lines := strings.Split(stdout.String(), "\n")
	if code != 0 || len(lines) < 2 || !strings.HasPrefix(lines[0], "server  outcome") || !strings.HasPrefix(lines[1], "gopls   Clean    0") {
		t.Errorf("code %d:\n%s%s", code, &stdout, &stderr)
	}
}

// A server that does not answer counts as a failure, even if it exits cleanly.
func TestRun_ReportsServerThatDoesNotAnswer(t *testing.T) {
	setPath(t, "zls")
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), []string{"-start-timeout", "300ms"}, &stdout, &stderr)
	if code != 1 || !strings.Contains(stderr.String(), "zls: context deadline exceeded") {
		t.Errorf("code %d:\n%s%s", code, &stdout, &stderr)
	}
}

// A ^C while a request is in flight does not count as a failure of the server.
func TestRun_ReportsNoFailureWhenInterruptedDuringRequest(t *testing.T) {
	setPath(t, "zls")
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(hoverAddrVar, ln.Addr().String())
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		ln.Accept()
		ln.Close()
		cancel()
	}()
	var stdout, stderr bytes.Buffer
	if code := run(ctx, nil, &stdout, &stderr); code != 0 {
		t.Errorf("code %d:\n%s%s", code, &stdout, &stderr)
	}
}

// After a ^C before any server was started, run returns.
func TestRun_ReturnsWhenInterruptedBeforeServersStart(t *testing.T) {
	setPath(t, "gopls")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stdout, stderr bytes.Buffer
	if code := run(ctx, nil, &stdout, &stderr); code != 1 || !strings.Contains(stderr.String(), "gopls") {
		t.Errorf("code %d:\n%s", code, &stderr)
	}
}

func TestRun_RefusesInvalidArguments(t *testing.T) {
	setPath(t)
	for _, test := range []struct {
		args string
		code int
		want string
	}{
		{"", 1, "no language server on PATH"},
		{"x", 2, `unexpected argument "x"`},
		{"-nonsense", 2, "flag provided but not defined"},
		{"-h", 0, "Usage of lspclose"},
	} {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), strings.Fields(test.args), &stdout, &stderr); code != test.code || !strings.Contains(stderr.String(), test.want) {
			t.Errorf("%q: code %d, want %d and %q:\n%s", test.args, code, test.code, test.want, &stderr)
		}
	}
	setPath(t, "gopls")
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"-timeout", "900ms"}, &stdout, &stderr); code != 2 || !strings.Contains(stderr.String(), "between 1s and 15s") {
		t.Errorf("code %d:\n%s", code, &stderr)
	}
}

func TestPrintTable_PrintsLineForEachReport(t *testing.T) {
	reports := []lspconn.Report{
		{Name: "a-server", Exit: &lspconn.Exit{Code: 1}, Handshake: 1500 * time.Microsecond, Leave: time.Second, Total: 1002 * time.Millisecond, Left: []string{"node[7]"}},
		{Name: "b", Outcome: lspconn.Unconfirmed, Drain: 2 * time.Second, Total: 10 * time.Second, Survivors: []string{"b[8]", "c[9]"}},
		{Name: "c", Outcome: lspconn.ExitedEarly, Exit: &lspconn.Exit{Code: 9}, Failure: errors.New("exited unexpectedly")},
	}
	for _, colour := range []bool{false, true} {
		var b bytes.Buffer
		printTable(&b, reports, colour)
		want := `server    outcome      exit     drain  handshake  leave   total  left behind  survivors
a-server  <32>Clean<0>        1            0        2ms     1s  1.002s  node[7]      none
b         <31>Unconfirmed<0>  unknown     2s          0      0     10s  none         b[8] c[9]
c         <33>ExitedEarly<0>  9            0          0      0       0  none         none

c: exited unexpectedly

closed in parallel in 10s; one after another would have taken 11.002s
`
		r := strings.NewReplacer("<", "\x1b[", ">", "m")
		if !colour {
			r = strings.NewReplacer("<32>", "", "<31>", "", "<33>", "", "<0>", "")
		}
		if diff := cmp.Diff(r.Replace(want), b.String()); diff != "" {
			t.Errorf("colour %v (-want +got):\n%s", colour, diff)
		}
	}
}
