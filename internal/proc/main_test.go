package proc_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/swansong-go/swansong/internal/proc"
	"go.uber.org/goleak"
)

// If the environment contains asRole, the test binary runs as a subprocess. The value is the name
// of a role, followed by its arguments.
const asRole = "PROC_TEST_ROLE"

func TestMain(m *testing.M) {
	if words := strings.Fields(os.Getenv(asRole)); len(words) > 0 {
		os.Unsetenv(asRole)
		roles[words[0]](words[1:])
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// tooLong is a time-out that is reached only if the code under test is broken.
const tooLong = 20 * time.Second

var roles = map[string]func(args []string){
	"exit": func(args []string) { code, _ := strconv.Atoi(args[0]); os.Exit(code) },
	"echo": func([]string) { io.Copy(os.Stdout, os.Stdin) },
	"dir":  func([]string) { dir, _ := os.Getwd(); fmt.Println(dir) },
	"env":  func(args []string) { fmt.Println(os.Getenv(args[0])) },
	"fd":   func([]string) { io.Copy(os.Stdout, os.NewFile(3, "extra")) },
	// The role "print" prints the given number of bytes to stdout and to stderr, and exits.
	"print": func(args []string) {
		n, _ := strconv.Atoi(args[0])
		for _, f := range []*os.File{os.Stderr, os.Stdout} {
			f.WriteString(strings.Repeat("x", n-5) + "last\n")
		}
	},
	"wait": func([]string) { fmt.Println("ready"); forever() },
}

// forever sleeps longer than any test takes. It ends eventually, so that no process remains for
// good if the test program is killed.
func forever() {
	time.Sleep(5 * time.Minute)
	os.Exit(99)
}

// self returns a Spec of the test binary in a role.
func self(role string) proc.Spec {
	// Without this GORACE setting, each process takes a second longer to exit under the race
	// detector.
	env := append(os.Environ(), asRole+"="+role, "GORACE=atexit_sleep_ms=0")
	return proc.Spec{Args: []string{os.Args[0]}, Env: env}
}

func start(t *testing.T, spec proc.Spec) *proc.Process {
	t.Helper()
	p, err := proc.Start(spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := p.End(proc.Deadlines{GiveUp: time.Now().Add(tooLong)}); err != nil {
			t.Error(err)
		}
		p.Close()
	})
	return p
}

// readLine reads a line from the process. If there is none, the test fails.
func readLine(t *testing.T, p *proc.Process) string {
	t.Helper()
	line, err := bufio.NewReaderSize(p.Stdout(), 16).ReadString('\n')
	if err != nil {
		t.Fatalf("after %q: %v", line, err)
	}
	return strings.TrimSpace(line)
}

// awaitDone waits until the process is done and returns its exit. If it does not end, the test
// fails.
func awaitDone(t *testing.T, p *proc.Process) proc.Exit {
	t.Helper()
	select {
	case <-p.Done():
	case <-time.After(tooLong):
		t.Fatalf("pid %d has not ended; members: %v", p.Pid(), p.Members())
	}
	return p.Exit()
}

func soon() proc.Deadlines {
	now := time.Now()
	return proc.Deadlines{Terminate: now, Kill: now, GiveUp: now.Add(tooLong)}
}
