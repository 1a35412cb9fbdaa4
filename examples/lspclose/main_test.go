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

// atHover is the address that zls calls when it is asked for hover.
const atHover = "LSPCLOSE_TEST_AT_HOVER"

// The test binary is a language server when it is called by the name of one.
func TestMain(m *testing.M) {
	if name := filepath.Base(os.Args[0]); name == "gopls" || name == "clangd" || name == "zls" {
		serve(name)
	}
	goleak.VerifyTestMain(m)
}

// serve answers everything with null. clangd leaves when it is told shutdown, and zls does not answer hover.
func serve(name string) {
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
			net.Dial("tcp", os.Getenv(atHover))
		case m.ID != nil:
			reply := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":null}`, m.ID)
			fmt.Printf("Content-Length: %d\r\n\r\n%s", len(reply), reply)
		}
	}
}

// onPath has the test binary be found under the names, and nothing else.
func onPath(t *testing.T, names ...string) {
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

func TestRun(t *testing.T) {
	onPath(t, "gopls", "clangd")
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), []string{"-json", "-timeout", "15s"}, &stdout, &stderr)
	var got []struct{ Server, Outcome, Exit, Failure string }
	if err := json.Unmarshal(stdout.Bytes(), &got); err != nil {
		t.Fatalf("%v\n%s%s", err, &stdout, &stderr)
	}
	want := []struct{ Server, Outcome, Exit, Failure string }{
		{"clangd", "ExitedEarly", "exit code 9", "the server has ended by itself: exit code 9"},
		{"gopls", "Clean", "exit code 0", ""},
	}
	if diff := cmp.Diff(want, got); diff != "" || code != 1 || stderr.Len() > 0 {
		t.Errorf("code %d (-want +got):\n%s%s", code, diff, &stderr)
	}
}

func TestRun_Table(t *testing.T) {
	onPath(t, "gopls")
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), nil, &stdout, &stderr)
	lines := strings.Split(stdout.String(), "\n")
	if code != 0 || len(lines) < 2 || !strings.HasPrefix(lines[0], "server  outcome") || !strings.HasPrefix(lines[1], "gopls   Clean    0") {
		t.Errorf("code %d:\n%s%s", code, &stdout, &stderr)
	}
}

// A server that does not answer could not be used, however well it leaves.
func TestRun_NoAnswer(t *testing.T) {
	onPath(t, "zls")
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), []string{"-patience", "300ms"}, &stdout, &stderr)
	if code != 1 || !strings.Contains(stderr.String(), "zls: context deadline exceeded") {
		t.Errorf("code %d:\n%s%s", code, &stdout, &stderr)
	}
}

// A ^C while it is at work is no fault of the server's.
func TestRun_InterruptedAtWork(t *testing.T) {
	onPath(t, "zls")
	asked, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(atHover, asked.Addr().String())
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		asked.Accept()
		asked.Close()
		cancel()
	}()
	var stdout, stderr bytes.Buffer
	if code := run(ctx, nil, &stdout, &stderr); code != 0 {
		t.Errorf("code %d:\n%s%s", code, &stdout, &stderr)
	}
}

// A ^C before anything was started is no reason to hang.
func TestRun_Interrupted(t *testing.T) {
	onPath(t, "gopls")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stdout, stderr bytes.Buffer
	if code := run(ctx, nil, &stdout, &stderr); code != 1 || !strings.Contains(stderr.String(), "gopls") {
		t.Errorf("code %d:\n%s", code, &stderr)
	}
}

func TestRun_BadInput(t *testing.T) {
	onPath(t)
	for _, test := range []struct {
		args string
		code int
		says string
	}{
		{"", 1, "no language server on PATH"},
		{"x", 2, `unexpected argument "x"`},
		{"-nonsense", 2, "flag provided but not defined"},
		{"-h", 0, "Usage of lspclose"},
	} {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), strings.Fields(test.args), &stdout, &stderr); code != test.code || !strings.Contains(stderr.String(), test.says) {
			t.Errorf("%q: code %d, want %d and %q:\n%s", test.args, code, test.code, test.says, &stderr)
		}
	}
	onPath(t, "gopls")
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"-timeout", "1s"}, &stdout, &stderr); code != 2 || !strings.Contains(stderr.String(), "from 5s to 15s") {
		t.Errorf("code %d:\n%s", code, &stderr)
	}
}

func TestTable(t *testing.T) {
	reports := []lspconn.Report{
		{Name: "a-server", Exit: &lspconn.Exit{Code: 1}, Handshake: 1500 * time.Microsecond, Leave: time.Second, Total: 1002 * time.Millisecond, Left: []string{"node[7]"}},
		{Name: "b", Outcome: lspconn.Unconfirmed, Drain: 2 * time.Second, Total: 10 * time.Second, Survivors: []string{"b[8]", "c[9]"}},
		{Name: "c", Outcome: lspconn.ExitedEarly, Exit: &lspconn.Exit{Code: 9}, Failure: errors.New("it has ended by itself")},
	}
	for _, colour := range []bool{false, true} {
		var b bytes.Buffer
		table(&b, reports, colour)
		want := `server    outcome      exit     drain  handshake  leave   total  left behind  survivors
a-server  <32>Clean<0>        1            0        2ms     1s  1.002s  node[7]      none
b         <31>Unconfirmed<0>  unknown     2s          0      0     10s  none         b[8] c[9]
c         <33>ExitedEarly<0>  9            0          0      0       0  none         none

c: it has ended by itself

closed side by side in 10s; one after the other it would have been 11.002s
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
