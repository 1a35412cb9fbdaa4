package graceful_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
)

// The tests in this file start real processes and send real signals. No rung ends by itself in them, unless it is said:
// each signal is sent when the process has said on which rung it is.

const (
	roleVar     = "GRACEFUL_ROLE"
	terminalVar = "GRACEFUL_TERMINAL" // set for those on a terminal
)

// long rungs do not end before the test does.
func long(opts ...graceful.Option) []graceful.Option {
	return append([]graceful.Option{graceful.WithSoft(time.Hour), graceful.WithHard(time.Hour)}, opts...)
}

var lameDuck = graceful.WithLameDuck(time.Hour)

// roles are programs. What they print on standard output is what the tests go by.
var roles = map[string]func() error{
	// Work that ends at the stop, when it is cancelled, and never.
	"soft":      func() error { return main1(worker((*ctxshutdown.Swansong).Done), long()...) },
	"soft-duck": func() error { return main1(worker((*ctxshutdown.Swansong).Done), long(lameDuck)...) },
	"hard":      func() error { return main1(worker(work), long()...) },
	"hard-duck": func() error { return main1(worker(work), long(lameDuck)...) },
	"never":     func() error { return main1(worker(never), long()...) },
	"never-duck": func() error {
		return main1(worker(never), long(lameDuck)...)
	},
	"traced": func() error {
		return main1(worker(never), long(graceful.WithScope(ctxshutdown.WithName("app"), ctxshutdown.WithTrace()))...)
	},
	// By time alone.
	"short": func() error {
		return main1(func(s *ctxshutdown.Swansong) error { select {} }, graceful.WithSoft(time.Millisecond), graceful.WithHard(time.Millisecond))
	},
	"main never": func() error {
		return main1(func(s *ctxshutdown.Swansong) error { select {} }, long()...)
	},
	// f returns at once, and what it has started goes on.
	"returned": func() error {
		return main1(func(s *ctxshutdown.Swansong) error {
			s.Go(func(context.Context) { select {} })
			return nil
		}, long()...)
	},
	"late panic": func() error {
		release := make(chan struct{})
		fmt.Println("error:", main1(func(s *ctxshutdown.Swansong) error { <-release; panic("oops") },
			graceful.WithSoft(time.Millisecond), graceful.WithHard(time.Millisecond)))
		close(release)
		select {}
	},
	"late panic of a hook": func() error {
		release := make(chan struct{})
		fmt.Println("error:", main1(untilStopped, graceful.WithSoft(time.Millisecond), graceful.WithHard(time.Millisecond),
			graceful.WithPreStop("dereg", func(context.Context) error { <-release; panic("oops") })))
		close(release)
		select {}
	},
	"late panic in Watch": func() error {
		release := make(chan struct{})
		fmt.Println("error:", main1(func(s *ctxshutdown.Swansong) error {
			p, _ := graceful.FromContext(s)
			p.Watch(func(st graceful.Status) {
				if st.Rung == graceful.Exit {
					<-release // for longer than Run waits
					panic("oops")
				}
			})
			return untilStopped(s)
		}))
		close(release)
		select {}
	},
	"extends-duck": func() error {
		return main1(func(s *ctxshutdown.Swansong) error {
			p, _ := graceful.FromContext(s)
			<-p.LameDuck()
			graceful.Extend(s, 150*time.Minute, "")
			s.Shutdown()
			return nil
		}, long(lameDuck, graceful.WithMaxExtension(time.Hour))...)
	},
	"failed": func() error {
		return main1(func(s *ctxshutdown.Swansong) error {
			<-s.Done()
			return errors.New("the disk is full")
		}, long()...)
	},
	"panic": func() error {
		return main1(func(s *ctxshutdown.Swansong) error {
			s.Go(func(context.Context) {
				<-s.Done()
				fmt.Println("flushed")
			})
			return fmt.Errorf("%d", []int{}[len(os.Args)])
		}, long()...)
	},
	"extends": func() error {
		return main1(func(s *ctxshutdown.Swansong) error {
			graceful.Ready(s)
			<-s.Done()
			if got := graceful.Extend(s, 90*time.Minute, "one more batch"); got != 90*time.Minute {
				return fmt.Errorf("granted %v", got)
			}
			p, _ := graceful.FromContext(s)
			fmt.Println("extended by about", p.Status().Extended.Round(time.Minute))
			return nil
		}, long(graceful.WithMaxExtension(time.Hour), graceful.WithLogger(slog.New(slog.NewTextHandler(os.Stdout, nil))))...)
	},
	// Somebody who holds on until standard input ends, with a name and a reason that come from outside.
	"terminal": func() error {
		return main1(func(s *ctxshutdown.Swansong) error {
			jobs, _ := ctxshutdown.WithCancel(s, ctxshutdown.WithName("jobs\x1b[31m\r\n漢字"))
			<-s.Done()
			g := jobs.Guard()
			defer g.Release()
			graceful.Extend(s, 90*time.Minute, "\x1b]0;title\a\x1b[2J\u202egnp.\n")
			var b [1]byte
			os.Stdin.Read(b[:])
			return nil
		}, long()...)
	},
	"early": func() error {
		return main1(func(s *ctxshutdown.Swansong) error {
			<-s.Done()
			fmt.Println(context.Cause(s))
			return nil
		}, long()...)
	},
	"twice": func() error {
		for range 2 {
			if err := main1(untilStopped, long()...); err != nil {
				return err
			}
		}
		fmt.Println("over")
		<-time.After(5 * time.Second) // for broken code
		return nil
	},
	"hup": func() error { return main1(untilStopped, long(graceful.WithSignals(syscall.SIGHUP))...) },
}

func work(s *ctxshutdown.Swansong) <-chan struct{} { return s.Work().Done() }
func never(*ctxshutdown.Swansong) <-chan struct{}  { return nil }

// worker is an f whose work, in scope "jobs", goes on until there is something in the channel.
func worker(until func(s *ctxshutdown.Swansong) <-chan struct{}) func(s *ctxshutdown.Swansong) error {
	return func(s *ctxshutdown.Swansong) error {
		jobs, _ := ctxshutdown.WithCancel(s.Work(), ctxshutdown.WithName("jobs"))
		jobs.Go(func(context.Context) { <-until(s) })
		<-s.Done()
		return nil
	}
}

// main1 is a main function: it says where it is, and that its defers have run.
func main1(f func(s *ctxshutdown.Swansong) error, opts ...graceful.Option) error {
	defer fmt.Println("deferred")
	ctx := context.Background()
	if os.Getenv(roleVar) == "early" {
		ctx = eager{ctx}
	}
	return graceful.Run(ctx, func(s *ctxshutdown.Swansong) error {
		p, _ := graceful.FromContext(s)
		p.Watch(func(st graceful.Status) { fmt.Println(st.Rung, st.Signals) })
		return f(s)
	}, opts...)
}

// An eager context sends a signal when Run asks for its end: after the signals are wired, and before f.
type eager struct{ context.Context }

func (c eager) Done() <-chan struct{} {
	self, _ := os.FindProcess(os.Getpid())
	got := make(chan os.Signal, 1)
	signal.Notify(got, syscall.SIGTERM)
	defer signal.Stop(got)
	self.Signal(syscall.SIGTERM)
	<-got
	return c.Context.Done()
}

func play(role string) int {
	err := roles[role]()
	if err != nil {
		fmt.Println("error:", err)
	}
	if os.Getenv(terminalVar) != "" {
		// When the leader of a session ends, its terminal forgets what has not been read yet.
		fmt.Println("bye")
		os.Stdin.Read(make([]byte, 1))
	}
	return graceful.ExitCode(err)
}

// A program is a process of this very binary.
type program struct {
	*testing.T
	cmd    *exec.Cmd
	out    *bufio.Scanner
	said   []string
	stderr bytes.Buffer
}

func start(t *testing.T, role string, env ...string) *program {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("there are no signals to send")
	}
	ctx, cancel := context.WithTimeout(context.Background(), tooLong)
	t.Cleanup(cancel)
	p := &program{T: t, cmd: exec.CommandContext(ctx, os.Args[0])}
	p.cmd.Env = append(append(os.Environ(), roleVar+"="+role, "GORACE=atexit_sleep_ms=0"), env...)
	p.cmd.Stderr = &p.stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewScanner(out)
	return p
}

// tooLong is for broken code.
const tooLong = 30 * time.Second

// until reads until the program says something that begins with that.
func (p *program) until(says string) {
	p.Helper()
	for p.out.Scan() {
		p.said = append(p.said, p.out.Text())
		if strings.HasPrefix(p.out.Text(), says) {
			return
		}
	}
	p.cmd.Wait()
	p.Fatalf("the program ended (%v) without saying %q, but\n%s\n%s", p.cmd.ProcessState, says, strings.Join(p.said, "\n"), p.stderr.String())
}

func (p *program) signal(s os.Signal) {
	p.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.Fatal(err)
	}
}

// ends waits for the end, and returns the exit code, -1 if it was by a signal.
func (p *program) ends() int {
	p.Helper()
	for p.out.Scan() {
		p.said = append(p.said, p.out.Text())
	}
	p.cmd.Wait()
	return p.cmd.ProcessState.ExitCode()
}

// output is what the program has said, one line after the other.
func (p *program) output() string { return strings.Join(p.said, "\n") }

// One to four signals, at each rung, with work that ends there or does not.
func TestSignals(t *testing.T) {
	for _, test := range []struct {
		role  string
		rungs string // as the program says them; a signal is sent at each but the last
		code  int
	}{
		{"soft", "Serving 0, Soft 1, Exit 1", 0},
		{"hard", "Serving 0, Soft 1, Hard 2, Exit 2", 2},
		{"never", "Serving 0, Soft 1, Hard 2, Exit 3", 3},
		{"soft-duck", "Serving 0, LameDuck 1, Soft 2, Exit 2", 0},
		{"hard-duck", "Serving 0, LameDuck 1, Soft 2, Hard 3, Exit 3", 2},
		{"never-duck", "Serving 0, LameDuck 1, Soft 2, Hard 3, Exit 4", 3},
		{"main never", "Serving 0, Soft 1, Hard 2, Exit 3", 3},
		{"returned", "Serving 0, Soft 0, Soft 1, Hard 2, Exit 3", 3}, // the first signal asks for what is under way
		{"failed", "Serving 0, Soft 1, Exit 1", 1},
	} {
		for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
			t.Run(fmt.Sprint(test.role, " ", sig), func(t *testing.T) {
				t.Parallel()
				p := start(t, test.role)
				rungs := strings.Split(test.rungs, ", ")
				for i, rung := range rungs {
					p.until(rung)
					var now, next int
					fmt.Sscanf(rung[strings.Index(rung, " "):], "%d", &now)
					if i+1 < len(rungs) {
						fmt.Sscanf(rungs[i+1][strings.Index(rungs[i+1], " "):], "%d", &next)
					}
					if next > now {
						p.signal(sig)
					}
				}
				equal(t, "exit code", p.ends(), test.code)
				var said []string
				deferred := false
				for _, line := range p.said {
					deferred = deferred || line == "deferred"
					if regexp.MustCompile(`^(Serving|LameDuck|Soft|Hard|Exit) \d`).MatchString(line) {
						said = append(said, line)
					}
				}
				equal(t, "rungs", strings.Join(said, ", "), test.rungs)
				equal(t, "the defers of main ran", deferred, true)
				equal(t, "it says on standard error who was abandoned", strings.Contains(p.stderr.String(), "abandoned"), test.code == 3)
			})
		}
	}
}

// No signal comes after the first: time alone leads down, and to the same end.
func TestTimeIsEnough(t *testing.T) {
	p := start(t, "short")
	p.until("Serving 0")
	p.signal(syscall.SIGTERM)
	equal(t, "exit code", p.ends(), 3)
	equal(t, "standard error", p.stderr.String(), `
graceful: abandoned (not drained after 1ms on rung Hard), with 1 held:
	main ×1
	CTXSHUTDOWN_TRACE=1 tells where, for how long, and what they are doing.
`[1:])
}

func TestBlockersArePrinted(t *testing.T) {
	p := start(t, "traced")
	for _, rung := range []string{"Serving 0", "Soft 1", "Hard 2"} {
		p.until(rung)
		p.signal(syscall.SIGTERM)
	}
	equal(t, "exit code", p.ends(), 3)
	shape := regexp.MustCompile(`^graceful: abandoned \(terminated signal received\), with 1 held:
	app/jobs ×1 at signal_test\.go:\d+ for \d+m?s
1 goroutine of app/jobs:
	\S*graceful_test\.\S*worker\S*
		\S*signal_test\.go:\d+
$`)
	if got := p.stderr.String(); !shape.MatchString(got) {
		t.Errorf("standard error:\n%s", got)
	}
	if want := "error: graceful: abandoned (terminated signal received): 1 guard: app/jobs ×1 at signal_test.go:"; !strings.Contains(p.output(), want) {
		t.Errorf("the error of Run:\n%s\nwant %s", p.output(), want)
	}
}

func TestPanicDrainsFirst(t *testing.T) {
	p := start(t, "panic")
	equal(t, "exit code", p.ends(), 2)
	flushed, deferred := strings.Index(p.output(), "flushed"), strings.Index(p.output(), "deferred")
	if flushed < 0 || deferred < flushed {
		t.Errorf("not drained, or not before the defers of main:\n%s", p.output())
	}
	for _, want := range []string{"panic: ", "index out of range", "graceful_test.init.func", "signal_test.go:", "graceful.Run("} {
		if !strings.Contains(p.stderr.String(), want) {
			t.Errorf("the traceback does not have %q:\n%s", want, p.stderr.String())
		}
	}
}

// Nobody is there any more to raise it, so it does what a panic does in any goroutine.
func TestPanicAfterTheEnd(t *testing.T) {
	for role, says := range map[string]string{
		"late panic":           "error: graceful: abandoned",
		"late panic of a hook": "error: graceful: abandoned",
		"late panic in Watch":  "error: <nil>",
	} {
		t.Run(role, func(t *testing.T) {
			p := start(t, role)
			p.until("Serving 0")
			p.signal(syscall.SIGTERM)
			equal(t, "exit code", p.ends(), 2)
			if !strings.Contains(p.output(), says) || !strings.Contains(p.stderr.String(), "panic: oops") {
				t.Errorf("said\n%s\n%s", p.output(), p.stderr.String())
			}
		})
	}
}

func TestSignalBeforeF(t *testing.T) {
	p := start(t, "early")
	equal(t, "exit code", p.ends(), 0)
	if !strings.Contains(p.output(), "graceful: terminated signal received") {
		t.Errorf("f has not heard of the signal:\n%s", p.output())
	}
}

// Run after Run is fine, and after the last a signal does again what it does by default.
func TestSignalsAreRestored(t *testing.T) {
	p := start(t, "twice")
	for range 2 {
		p.until("Serving 0")
		p.signal(syscall.SIGTERM)
		p.until("deferred")
	}
	p.until("over")
	p.signal(syscall.SIGTERM)
	equal(t, "exit code", p.ends(), -1)
	equal(t, "end", p.cmd.ProcessState.String(), "signal: terminated")
}

func TestWithSignals(t *testing.T) {
	p := start(t, "hup")
	p.until("Serving 0")
	p.signal(syscall.SIGHUP)
	equal(t, "exit code", p.ends(), 0)

	p = start(t, "hup")
	p.until("Serving 0")
	p.signal(syscall.SIGTERM)
	equal(t, "exit code", p.ends(), -1)
}
