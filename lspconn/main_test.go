package lspconn_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/swansong-go/swansong/lspconn"
	"github.com/swansong-go/swansong/lspconn/internal/fakelsp"
	"go.uber.org/goleak"
)

// asServer has the test binary be a language server; its value is a role.
const asServer = "LSPCONN_TEST_SERVER"

// A role is what the test binary does as a server.
type role struct {
	fakelsp.Behaviour
	Child string // "": none, "fork", "setsid", "twice": starts one that ignores SIGTERM and outlives its parent
	Flood int    // bytes to stderr, at the start
	Text  string // printed to stdout in place of a conversation, and then it ends
	Log   string // a file: each message's method, and the faults
}

func TestMain(m *testing.M) {
	if text := os.Getenv(asServer); text != "" {
		os.Unsetenv(asServer)
		serve(text)
	}
	goleak.VerifyTestMain(m)
}

func serve(text string) {
	switch text {
	case "forever":
		signal.Ignore(syscall.SIGTERM)
		forever()
	case "twice":
		spawn("forever", true)
		os.Exit(0) // and it is init's child
	}
	var r role
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		panic(err)
	}
	if r.IgnoreTerm {
		signal.Ignore(syscall.SIGTERM)
	}
	fmt.Fprint(os.Stderr, r.Stderr)
	if r.Text != "" {
		fmt.Print(r.Text)
		os.Exit(r.Code)
	}
	switch r.Child {
	case "fork", "setsid":
		spawn("forever", r.Child == "setsid")
	case "twice":
		spawn("twice", false).Wait()
	}
	for n := r.Flood; n > 0; n -= 1000 {
		fmt.Fprintf(os.Stderr, "%999d\n", n)
	}
	s := &fakelsp.Server{Behaviour: r.Behaviour}
	code := s.Serve(os.Stdin, os.Stdout, forever)
	if r.Log != "" {
		f, err := os.Create(r.Log)
		if err != nil {
			panic(err)
		}
		for _, m := range s.Seen() {
			fmt.Fprintln(f, m.Method)
		}
		for _, fault := range s.Faults() {
			fmt.Fprintln(f, "FAULT", fault)
		}
		f.Close()
	}
	os.Exit(code)
}

// spawn has the test binary start itself once more. That holds the pipes.
func spawn(text string, session bool) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asServer+"="+text)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if session {
		newSession(cmd)
	}
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	return cmd
}

// forever is longer than any test, and has an end for the sake of those whose test program was killed.
func forever() {
	time.Sleep(5 * time.Minute)
	os.Exit(99)
}

// fake returns a Server that is the test binary in a role. Its deadline is the longest: nothing here is to depend on how
// fast the machine is.
func fake(r role) lspconn.Server {
	text, err := json.Marshal(r)
	if err != nil {
		panic(err)
	}
	return lspconn.Server{
		Name:         "fake",
		Command:      []string{os.Args[0]},
		Env:          append(os.Environ(), asServer+"="+string(text), "GORACE=atexit_sleep_ms=0"),
		CloseTimeout: 15 * time.Second,
	}
}

// tooLong is for broken code.
const tooLong = 30 * time.Second

func start(t *testing.T, server lspconn.Server) *lspconn.Conn {
	t.Helper()
	conn, err := lspconn.Start(t.Context(), server)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, conn) })
	return conn
}

// ready starts a server and waits until it is.
func ready(t *testing.T, server lspconn.Server) *lspconn.Conn {
	t.Helper()
	conn := start(t, server)
	if _, err := conn.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	return conn
}

// closed closes a connection, whose process must then be gone.
func closed(t *testing.T, conn *lspconn.Conn) lspconn.Report {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), tooLong)
	defer cancel()
	r, err := conn.Close(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if conn.State() != lspconn.Closed {
		t.Errorf("state %v after Close", conn.State())
	}
	return r
}

func call(t *testing.T, conn *lspconn.Conn, method, params string) string {
	t.Helper()
	result, err := conn.Call(t.Context(), method, json.RawMessage(params))
	if err != nil {
		t.Fatal(err)
	}
	return string(result)
}

func equal(t *testing.T, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func contains(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want %q", parts)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
}
