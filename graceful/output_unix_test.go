//go:build linux || darwin || freebsd

package graceful_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
	"github.com/swansong-go/swansong/internal/testkit"
)

// fileVar is the environment variable with the path of a log. The programs in this source file
// write to that log what happened, because no process reads their standard output and standard
// error.
const fileVar = "GRACEFUL_FILE"

func report(format string, args ...any) {
	f, err := os.OpenFile(os.Getenv(fileVar), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	fmt.Fprintf(f, format+"\n", args...)
}

// untilWriteFails writes to standard output until a write fails, because no process reads the
// output any more.
func untilWriteFails() {
	for {
		if _, err := fmt.Println("line"); err != nil {
			return
		}
	}
}

// flush is the work of a program. During the drain it writes to standard output. Then it writes to
// the file whose path is in the environment variable fileVar.
func flush(s *ctxshutdown.Swansong) error {
	<-s.Done()
	untilWriteFails()
	report("flushed after %v", context.Cause(s))
	return nil
}

func init() {
	loud := graceful.WithLogger(slog.New(slog.NewTextHandler(os.Stderr, nil)))
	program := func(f func(s *ctxshutdown.Swansong) error, opts ...graceful.Option) func() error {
		return func() error {
			defer report("deferred")
			err := graceful.Run(context.Background(), f, long(opts...)...)
			untilWriteFails()
			return err
		}
	}
	ready := func(s *ctxshutdown.Swansong) error { fmt.Println("ready"); return flush(s) }
	roles["writes in its drain"] = program(ready)
	roles["writes in its drain, and logs"] = program(ready, loud)
	roles["writes in its drain, without SIGPIPE"] = program(ready, loud, graceful.WithSignals(os.Interrupt))
	writing := func(s *ctxshutdown.Swansong) error { untilWriteFails(); return flush(s) }
	roles["writes while it serves"] = program(writing, loud)
	roles["writes while it serves, without SIGPIPE"] = program(writing, graceful.WithSignals(os.Interrupt))
	roles["writes to another pipe"] = func() error {
		return main1(func(s *ctxshutdown.Swansong) error {
			r, w, err := os.Pipe()
			if err != nil {
				return err
			}
			r.Close()
			pipe := make(chan os.Signal, 1)
			signal.Notify(pipe, syscall.SIGPIPE)
			// When this goroutine receives its second SIGPIPE, Run has received the first one.
			for range 20 {
				if _, err := w.WriteString("x"); !errors.Is(err, syscall.EPIPE) {
					return fmt.Errorf("the write returned %v", err)
				}
				<-pipe
			}
			fmt.Println("written")
			<-s.Done()
			fmt.Println(context.Cause(s))
			return nil
		}, long()...)
	}
	roles["batch"] = func() error {
		defer report("deferred")
		return graceful.Run(context.Background(), func(s *ctxshutdown.Swansong) error {
			fmt.Println("ready")
			in := ctxshutdown.NewReader(s, os.Stdin)
			defer in.Close()
			lines := 0
			for scanner := bufio.NewScanner(in); scanner.Scan(); lines++ {
				fmt.Println("got", scanner.Text())
			}
			report("%d lines, stopped: %v", lines, in.Stopped())
			return nil
		}, long()...)
	}
	roles["ignored"] = func() error {
		return main1(func(s *ctxshutdown.Swansong) error {
			<-s.Done()
			fmt.Println(context.Cause(s))
			return nil
		}, long()...)
	}
	roles["panic in Go"] = func() error {
		return main1(func(s *ctxshutdown.Swansong) error {
			s.Go(func(context.Context) { panic("oops") })
			return untilStopped(s)
		}, long()...)
	}
}

// The process that reads the output of a program ends while the program serves, or while it drains.
// In both cases the program drains, and writing its last line to the closed pipe does not end it.
func TestRun_DrainsEvenIfProcessThatReadsOutputEnds(t *testing.T) {
	for _, test := range []struct {
		role  string
		first os.Signal // the signal that the program gets before the reader of its output ends; nil for none
		want  string
	}{
		{"writes in its drain", os.Interrupt, "flushed after graceful: interrupt signal received\ndeferred\n"},
		{"writes in its drain, and logs", os.Interrupt, "flushed after graceful: interrupt signal received\ndeferred\n"},
		{"writes in its drain, without SIGPIPE", os.Interrupt, "flushed after graceful: interrupt signal received\ndeferred\n"},
		{"writes while it serves", nil, "flushed after graceful: broken pipe signal received\ndeferred\n"},
	} {
		t.Run(test.role, func(t *testing.T) {
			t.Parallel()
			result, end := loseOutput(t, test.role, test.first)
			testkit.Equal(t, "what the program has done", result, test.want)
			testkit.Equal(t, "end", end, "exit status 0")
		})
	}
}

// If SIGPIPE is not among the signals of WithSignals, SIGPIPE has its usual effect while the
// process serves.
func TestWithSignals_UnlistedSIGPIPEKeepsItsEffect(t *testing.T) {
	result, end := loseOutput(t, "writes while it serves, without SIGPIPE", nil)
	testkit.Equal(t, "what the program has done", result, "")
	testkit.Equal(t, "end", end, "signal: broken pipe")
}

// loseOutput starts a program, reads its first line and closes its standard output and standard
// error. It returns what the program has written to its file, and how the program has ended.
func loseOutput(t *testing.T, role string, first os.Signal) (result, end string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "result")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), tooLong)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), roleVar+"="+role, fileVar+"="+file, "GORACE=atexit_sleep_ms=0")
	cmd.Stdout, cmd.Stderr = w, w
	err = cmd.Start()
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(r)
	for lines.Scan() && lines.Text() != "ready" && lines.Text() != "line" {
	}
	if first != nil {
		cmd.Process.Signal(first)
		for lines.Scan() && lines.Text() != "line" { // the program drains
		}
	}
	r.Close()
	cmd.Wait()
	b, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(b), cmd.ProcessState.String()
}

// A write to a pipe or connection that the peer has closed is not a reason to stop.
func TestRun_KeepsServingAfterWriteToClosedPipe(t *testing.T) {
	p := start(t, "writes to another pipe")
	p.readUntil("written")
	p.signal(syscall.SIGTERM)
	testkit.Equal(t, "exit code", p.awaitExit(), 0)
	if !strings.Contains(p.output(), "graceful: terminated signal received") {
		t.Errorf("the cause of the stop is not the SIGTERM:\n%s", p.output())
	}
}

// nohup starts a program with SIGHUP ignored, and a shell script starts background jobs with SIGINT
// ignored. The signals stay ignored.
func TestRun_LeavesIgnoredSignalsIgnored(t *testing.T) {
	for name, sig := range map[string]os.Signal{"HUP": syscall.SIGHUP, "INT": os.Interrupt} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := startCommand(t, "ignored", exec.Command("sh", "-c", `trap "" `+name+`; exec "$0"`, os.Args[0]))
			p.readUntil("Serving 0")
			p.signal(sig)
			p.signal(syscall.SIGTERM)
			testkit.Equal(t, "exit code", p.awaitExit(), 0)
			if !strings.Contains(p.output(), "graceful: terminated signal received") {
				t.Errorf("the cause of the stop is not the SIGTERM:\n%s", p.output())
			}
		})
	}
}

// A panic in a goroutine that the method Go of a scope has started ends the process at once:
// neither the drain nor the deferred calls of main are executed.
func TestRun_PanicInGoroutineOfGoEndsProcessWithoutDrain(t *testing.T) {
	p := start(t, "panic in Go")
	testkit.Equal(t, "exit code", p.awaitExit(), 2)
	testkit.Equal(t, "deferred calls of main ran", strings.Contains(p.output(), "deferred"), false)
	if !strings.Contains(p.stderr.String(), "panic: oops") {
		t.Errorf("standard error:\n%s", p.stderr.String())
	}
}
