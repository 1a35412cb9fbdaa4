package lspconn_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/swansong-go/swansong/lspconn"
	"github.com/swansong-go/swansong/lspconn/internal/fakelsp"
	"go.uber.org/goleak"
)

// If the environment contains asServer, the test binary runs as a language server. The value of the
// variable is a role.
const asServer = "LSPCONN_TEST_SERVER"

// A role describes how the test binary behaves as a server.
type role struct {
	fakelsp.Behaviour
	// Child says what process the server starts that ignores SIGTERM and outlives the server:
	// "fork" is a child, "setsid" a child in a session of its own, "twice" a grandchild whose
	// parent has exited.
	Child  string
	Flood  int    // the number of bytes to write to stderr at the start
	Text   string // if set, the server prints this text to stdout instead of messages, and exits
	Hold   string // a named pipe that the server opens for writing and never closes
	Listen string // a socket on which the server waits for its client, instead of using stdin and stdout
	Log    string // a file to which the server writes each method that it receives, and violations of the protocol
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
		os.Exit(0) // exit, so that init becomes the parent of the grandchild
	case "client":
		runClient(os.Getenv("LSPCONN_TEST_ROLE"))
	}
	var r role
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		panic(err)
	}
	if r.IgnoreTerm {
		signal.Ignore(syscall.SIGTERM)
	}
	if r.Hold != "" {
		if _, err := os.OpenFile(r.Hold, os.O_WRONLY, 0); err != nil {
			panic(err)
		}
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
	in, out := io.Reader(os.Stdin), io.Writer(os.Stdout)
	if r.Listen != "" {
		l, err := net.Listen("unix", r.Listen)
		if err != nil {
			panic(err)
		}
		client, err := l.Accept()
		if err != nil {
			panic(err)
		}
		in, out = client, client
	}
	code := s.Serve(in, out, forever)
	if r.Log != "" {
		f, err := os.Create(r.Log)
		if err != nil {
			panic(err)
		}
		for _, m := range s.Received() {
			fmt.Fprintln(f, m.Method)
		}
		for _, fault := range s.Faults() {
			fmt.Fprintln(f, "FAULT", fault)
		}
		f.Close()
	}
	os.Exit(code)
}

// runClient is the main function of a client process, which a test kills. It decodes a role from
// text, starts a server with that role, prints a line and waits until it is killed.
func runClient(text string) {
	var r role
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		panic(err)
	}
	if _, err := lspconn.Start(context.Background(), fake(r)); err != nil {
		panic(err)
	}
	fmt.Println("started")
	forever()
}

// spawn starts the test binary once more, with the value text for the variable asServer. The new
// process inherits stdout and stderr.
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

// forever sleeps longer than any test takes. It ends eventually, so that no process remains for
// good if the test program is killed.
func forever() {
	time.Sleep(5 * time.Minute)
	os.Exit(99)
}

// fake returns a Server that runs the test binary in a role. It has the longest deadline that is
// allowed, so that tests have the same outcome on slow machines.
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

// tooLong is a time-out that is reached only if the code under test is broken.
const tooLong = 30 * time.Second

func start(t *testing.T, server lspconn.Server) *lspconn.Conn {
	t.Helper()
	conn, err := lspconn.Start(t.Context(), server)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mustClose(t, conn) })
	return conn
}

// startReady starts a server and waits until it has answered initialize.
func startReady(t *testing.T, server lspconn.Server) *lspconn.Conn {
	t.Helper()
	conn := start(t, server)
	if _, err := conn.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	return conn
}

// mustClose closes a connection and checks that its process has ended.
func mustClose(t *testing.T, conn *lspconn.Conn) lspconn.Report {
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

// histories returns how many random histories a test runs. Under the race detector a history takes
// seven times as long, so a test runs only a quarter of them.
func histories() int {
	n := 10_000
	if build, ok := debug.ReadBuildInfo(); ok && slices.Contains(build.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		n /= 4
	}
	if testing.Short() {
		n = 500
	}
	return n
}

func contains(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("got no error, want one that contains %q", parts)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not contain %q", err, part)
		}
	}
}
