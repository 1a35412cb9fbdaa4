//go:build unix

package ctxshutdown_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/swansong-go/swansong/ctxshutdown"
)

func TestReader_EndsAtStopForEveryKindOfSourceOnUnix(t *testing.T) {
	testOrigins(t, []origin{
		{"os.Pipe", woken, true, "IO wait", func(t *testing.T) (io.Reader, io.Writer) { return openPipe(t) }},
		{"*os.File after Fd", atBoundary, true, "syscall", func(t *testing.T) (io.Reader, io.Writer) {
			r, w := openPipe(t)
			r.Fd()
			return r, w
		}},
		{"inherited files other than os.Stdin", atBoundary, false, "syscall", func(t *testing.T) (io.Reader, io.Writer) {
			r, w := openPipe(t)
			return inherited(t, r), w
		}},
	})
}

func openPipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close(); r.Close() })
	return r, w
}

// inherited returns a duplicate of the file in blocking mode, like a file that a child process
// inherits.
func inherited(t *testing.T, f *os.File) *os.File {
	t.Helper()
	fd, err := syscall.Dup(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	same := os.NewFile(uintptr(fd), f.Name())
	t.Cleanup(func() { same.Close() })
	return same
}

const stdinCase = "CTXSHUTDOWN_TEST_STDIN"

// If the context of a Reader of standard input ends while a Read waits for input, the Read stops
// waiting. Rest returns the input that arrives later.
func TestReader_StopEndsReadThatWaitsForStdin(t *testing.T) {
	for _, tier := range tiers {
		t.Run(tier.name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHelperProcess_ReadsStdin$")
			cmd.Env = append(os.Environ(), stdinCase+"="+tier.name, "GORACE=atexit_sleep_ms=0")
			cmd.Stderr = os.Stderr
			stdin, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewReader(stdout)
			says := func(want string) {
				t.Helper()
				line := make(chan string, 1)
				go func() {
					text, _ := lines.ReadString('\n')
					line <- text
				}()
				if got := await(t, line); got != want+"\n" {
					t.Errorf("the process says %q, want %q", got, want)
				}
			}
			io.WriteString(stdin, "early\n")
			says(`"early\n" <nil>`)
			says(`"" EOF, stopped: true`)
			io.WriteString(stdin, "late\n")
			says(`"late\n" <nil>`)
			stdin.Close()
			says(`"" EOF`)
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestHelperProcess_ReadsStdin is not a test. TestReader_StopEndsReadThatWaitsForStdin runs it in
// another process.
func TestHelperProcess_ReadsStdin(t *testing.T) {
	name := os.Getenv(stdinCase)
	if name == "" {
		return
	}
	for _, tier := range tiers {
		if tier.name != name {
			continue
		}
		ctx, end := tier.make(t)
		r := ctxshutdown.NewReader(ctx, os.Stdin) // a Reader of os.Stdin always has the option Detached
		got := readOnce(r)
		fmt.Printf("%q %v\n", got.Text, got.Err)
		blocked := reading(r)
		awaitState(t, "backgroundReader", "syscall")
		end()
		got = await(t, blocked)
		fmt.Printf("%q %v, stopped: %v\n", got.Text, got.Err, r.Stopped())
		rest := r.Rest()
		for range 2 {
			got = readOnce(rest)
			fmt.Printf("%q %v\n", got.Text, got.Err)
		}
		os.Exit(0)
	}
}
