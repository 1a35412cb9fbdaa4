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

// asRole has the test binary be a subprocess: a name in roles, and its arguments.
const asRole = "PROC_TEST_ROLE"

func TestMain(m *testing.M) {
	if words := strings.Fields(os.Getenv(asRole)); len(words) > 0 {
		os.Unsetenv(asRole)
		roles[words[0]](words[1:])
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// tooLong is for broken code.
const tooLong = 20 * time.Second

var roles = map[string]func(args []string){
	"exit": func(args []string) { code, _ := strconv.Atoi(args[0]); os.Exit(code) },
	"echo": func([]string) { io.Copy(os.Stdout, os.Stdin) },
	"dir":  func([]string) { dir, _ := os.Getwd(); fmt.Println(dir) },
	"env":  func(args []string) { fmt.Println(os.Getenv(args[0])) },
	"fd":   func([]string) { io.Copy(os.Stdout, os.NewFile(3, "extra")) },
	"print": func(args []string) { // as many bytes to each of stdout and stderr, and the end
		n, _ := strconv.Atoi(args[0])
		for _, f := range []*os.File{os.Stderr, os.Stdout} {
			f.WriteString(strings.Repeat("x", n-5) + "last\n")
		}
	},
	"wait": func([]string) { fmt.Println("ready"); forever() },
}

// forever is longer than any test, and has an end for the sake of those whose test program was killed.
func forever() {
	time.Sleep(5 * time.Minute)
	os.Exit(99)
}

// self returns a Spec of the test binary in a role.
func self(role string) proc.Spec {
	env := append(os.Environ(), asRole+"="+role, "GORACE=atexit_sleep_ms=0") // else each takes a second longer to end
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

// says reads a line that the process must print.
func says(t *testing.T, p *proc.Process) string {
	t.Helper()
	line, err := bufio.NewReaderSize(p.Stdout(), 16).ReadString('\n')
	if err != nil {
		t.Fatalf("after %q: %v", line, err)
	}
	return strings.TrimSpace(line)
}

// ends waits for a process that must end.
func ends(t *testing.T, p *proc.Process) proc.Exit {
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
