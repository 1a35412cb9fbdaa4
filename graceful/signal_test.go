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
	"github.com/swansong-go/swansong/internal/ctxkey"
	"github.com/swansong-go/swansong/internal/testkit"
)

// The tests in this file start real processes and send real signals. Unless stated otherwise, the
// phases are so long that only signals end them. A test sends each signal when the process has
// printed its phase.

const (
	roleVar     = "GRACEFUL_ROLE"
	terminalVar = "GRACEFUL_TERMINAL" // set in a process that runs on a terminal
)

// long returns options for phases that last longer than any test.
func long(opts ...graceful.Option) []graceful.Option {
	return append([]graceful.Option{graceful.WithSoft(time.Hour), graceful.WithHard(time.Hour)}, opts...)
}

var lameDuck = graceful.WithLameDuck(time.Hour)

// roles are the programs that the tests start. The tests read their standard output.
var roles = map[string]func() error{
	// The work of "soft" ends when the scope is stopped, that of "hard" when the context of Work
	// ends, and that of "never" does not end.
	"soft":      func() error { return watched(worker((*ctxshutdown.Swansong).Done), long()...) },
	"soft-duck": func() error { return watched(worker((*ctxshutdown.Swansong).Done), long(lameDuck)...) },
	"hard":      func() error { return watched(worker(work), long()...) },
	"hard-duck": func() error { return watched(worker(work), long(lameDuck)...) },
	"never":     func() error { return watched(worker(never), long()...) },
	"never-day": func() error { return watched(worker(never), long(graceful.WithSoft(24*time.Hour))...) },
	"never-duck": func() error {
		return watched(worker(never), long(lameDuck)...)
	},
	"traced": func() error {
		return watched(worker(never), long(graceful.WithScope(ctxshutdown.WithName("app"), ctxshutdown.WithTrace()))...)
	},
	// In this program, phases end only when their time is over.
	"short": func() error {
		return main1(func(s *ctxshutdown.Swansong) error { select {} }, graceful.WithSoft(time.Millisecond), graceful.WithHard(time.Millisecond))
	},
	"main never": func() error {
		return main1(func(s *ctxshutdown.Swansong) error { select {} }, long()...)
	},
	// In this program, f returns at once, and the goroutines that it has started continue.
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
	"late panic of a loop": func() error {
		var tell func(who string, value any, stack []byte)
		err := main1(func(s *ctxshutdown.Swansong) error {
			tell = s.Value(ctxkey.Panicked{}).(func(who string, value any, stack []byte))
			return nil
		})
		fmt.Println("error:", err)
		tell(`pool "audits"`, "oops", nil)
		select {}
	},
	"late panic in Watch": func() error {
		release := make(chan struct{})
		fmt.Println("error:", main1(func(s *ctxshutdown.Swansong) error {
			p, _ := graceful.FromContext(s)
			p.Watch(func(st graceful.Status) {
				if st.Phase == graceful.Exit {
					<-release // the callback blocks for longer than Run waits
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
	// This program has work that lasts until standard input ends. The name of its scope and the
	// reason of its extension contain escape sequences.
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
	// This program calls Run twice. Afterwards it runs until a signal ends it.
	"twice": func() error {
		for range 2 {
			if err := main1(untilStopped, long()...); err != nil {
				return err
			}
		}
		fmt.Println("over")
		select {}
	},
	"hup": func() error { return main1(untilStopped, long(graceful.WithSignals(syscall.SIGHUP))...) },
}

func work(s *ctxshutdown.Swansong) <-chan struct{} { return s.Work().Done() }
func never(*ctxshutdown.Swansong) <-chan struct{}  { return nil }

// worker returns a function to pass to Run. It starts work in the scope "jobs" that lasts until the
// channel returned by until is ready.
func worker(until func(s *ctxshutdown.Swansong) <-chan struct{}) func(s *ctxshutdown.Swansong) error {
	return func(s *ctxshutdown.Swansong) error {
		jobs, _ := ctxshutdown.WithCancel(s.Work(), ctxshutdown.WithName("jobs"))
		jobs.Go(func(context.Context) { <-until(s) })
		printPhases(s) // the last call: the test sends a signal when it reads the first phase
		<-s.Done()
		return nil
	}
}

// main1 takes the place of the main function of a program. It prints the phases of Run, and prints
// a line in a deferred call.
func main1(f func(s *ctxshutdown.Swansong) error, opts ...graceful.Option) error {
	return watched(func(s *ctxshutdown.Swansong) error {
		printPhases(s)
		return f(s)
	}, opts...)
}

func printPhases(s *ctxshutdown.Swansong) {
	p, _ := graceful.FromContext(s)
	p.Watch(func(st graceful.Status) { fmt.Println(st.Phase, st.Signals) })
}

// watched takes the place of the main function of a program, as main1 does. But it prints no
// phases: f calls printPhases itself.
func watched(f func(s *ctxshutdown.Swansong) error, opts ...graceful.Option) error {
	defer fmt.Println("deferred")
	ctx := context.Background()
	if os.Getenv(roleVar) == "early" {
		ctx = signallingContext{ctx}
	}
	return graceful.Run(ctx, f, opts...)
}

// A signallingContext is a context that sends a signal to its own process when Run calls Done. At
// that time Run handles signals but has not called f yet.
type signallingContext struct{ context.Context }

func (c signallingContext) Done() <-chan struct{} {
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
		// When the leader of a session exits, its terminal discards output that has not been read.
		// So the process waits for input before it exits.
		fmt.Println("bye")
		os.Stdin.Read(make([]byte, 1))
	}
	return graceful.ExitCode(err)
}

// A program is a subprocess that runs this test binary.
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
	return startCommand(t, role, exec.Command(os.Args[0]), env...)
}

// startCommand is like start, for a command that becomes the test binary.
func startCommand(t *testing.T, role string, cmd *exec.Cmd, env ...string) *program {
	t.Helper()
	p := &program{T: t, cmd: cmd}
	p.cmd.Env = append(append(os.Environ(), roleVar+"="+role, "GORACE=atexit_sleep_ms=0"), env...)
	if cmd.Stderr == nil {
		p.cmd.Stderr = &p.stderr
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill := time.AfterFunc(tooLong, func() { cmd.Process.Kill() })
	t.Cleanup(func() { kill.Stop() })
	p.out = bufio.NewScanner(out)
	return p
}

// tooLong is a time-out that is reached only if the code under test is broken.
const tooLong = 30 * time.Second

// readUntil reads the output of the program until a line begins with the given text.
func (p *program) readUntil(says string) {
	p.Helper()
	for p.out.Scan() {
		p.said = append(p.said, p.out.Text())
		if strings.HasPrefix(p.out.Text(), says) {
			return
		}
	}
	p.cmd.Wait()
	p.Fatalf("the program ended (%v) without printing %q; it printed\n%s\n%s", p.cmd.ProcessState, says, strings.Join(p.said, "\n"), p.stderr.String())
}

func (p *program) signal(s os.Signal) {
	p.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.Fatal(err)
	}
}

// awaitExit waits until the process has exited and returns its exit code, or -1 if a signal ended
// it.
func (p *program) awaitExit() int {
	p.Helper()
	for p.out.Scan() {
		p.said = append(p.said, p.out.Text())
	}
	p.cmd.Wait()
	return p.cmd.ProcessState.ExitCode()
}

// output returns the lines that the process has printed.
func (p *program) output() string { return strings.Join(p.said, "\n") }

// A program receives one to four signals. Its work ends in one of the phases, or never.
func TestRun_EachSignalStartsNextPhase(t *testing.T) {
	for _, test := range []struct {
		role   string
		phases string // the phases that the program prints, in this order; a signal is sent in each of them except the last
		code   int
	}{
		{"soft", "Serving 0, Soft 1, Exit 1", 0},
		{"hard", "Serving 0, Soft 1, Hard 2, Exit 2", 2},
		{"never", "Serving 0, Soft 1, Hard 2, Exit 3", 3},
		{"soft-duck", "Serving 0, LameDuck 1, Soft 2, Exit 2", 0},
		{"hard-duck", "Serving 0, LameDuck 1, Soft 2, Hard 3, Exit 3", 2},
		{"never-duck", "Serving 0, LameDuck 1, Soft 2, Hard 3, Exit 4", 3},
		{"main never", "Serving 0, Soft 1, Hard 2, Exit 3", 3},
		{"returned", "Serving 0, Soft 0, Soft 1, Hard 2, Exit 3", 3}, // the first signal has no effect, because the drain has already begun
		{"failed", "Serving 0, Soft 1, Exit 1", 1},
	} {
		for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
			t.Run(fmt.Sprint(test.role, " ", sig), func(t *testing.T) {
				t.Parallel()
				p := start(t, test.role)
				phases := strings.Split(test.phases, ", ")
				next := os.Signal(sig)
				for i, phase := range phases {
					p.readUntil(phase)
					var before, after int
					fmt.Sscanf(phase[strings.Index(phase, " "):], "%d", &before)
					if i+1 < len(phases) {
						fmt.Sscanf(phases[i+1][strings.Index(phases[i+1], " "):], "%d", &after)
					}
					if after > before {
						p.signal(next)
						// within a second, SIGTERM or SIGHUP would count as repeated
						next = os.Interrupt
					}
				}
				testkit.Equal(t, "exit code", p.awaitExit(), test.code)
				var said []string
				deferred := false
				for _, line := range p.said {
					deferred = deferred || line == "deferred"
					if regexp.MustCompile(`^(Serving|LameDuck|Soft|Hard|Exit) \d`).MatchString(line) {
						said = append(said, line)
					}
				}
				testkit.Equal(t, "phases", strings.Join(said, ", "), test.phases)
				testkit.Equal(t, "the defers of main ran", deferred, true)
				testkit.Equal(t, "standard error says what was abandoned", strings.Contains(p.stderr.String(), "abandoned"), test.code == 3)
			})
		}
	}
}

// A program receives one signal. After that the phases end when their time is over, and the result
// is the same as with more signals.
func TestRun_OneSignalLeadsThroughAllPhasesAsTimePasses(t *testing.T) {
	p := start(t, "short")
	p.readUntil("Serving 0")
	p.signal(syscall.SIGTERM)
	testkit.Equal(t, "exit code", p.awaitExit(), 3)
	printed, _, _ := strings.Cut(p.stderr.String(), "1 goroutine of the program:\n")
	testkit.Equal(t, "standard error", printed, `
graceful: abandoned (cancelled work did not return within 1ms); guards still held: 1
	main ×1
	Set CTXSHUTDOWN_TRACE=1 to see where guards were acquired and how long they have been held.
`[1:])
}

func TestRun_PrintsGuardsStillHeldAtExit(t *testing.T) {
	p := start(t, "traced")
	for _, phase := range []string{"Serving 0", "Soft 1", "Hard 2"} {
		p.readUntil(phase)
		p.signal(os.Interrupt)
	}
	testkit.Equal(t, "exit code", p.awaitExit(), 3)
	shape := regexp.MustCompile(`^graceful: abandoned \(interrupt signal received\); guards still held: 1
	app/jobs ×1 at signal_test\.go:\d+ for \d+(\.\d+)?m?s
1 goroutine of app/jobs:
	\S*graceful_test\.\S*worker\S*
		\S*signal_test\.go:\d+
$`)
	if got := p.stderr.String(); !shape.MatchString(got) {
		t.Errorf("standard error:\n%s", got)
	}
	if want := "error: graceful: abandoned (interrupt signal received): 1 guard: app/jobs ×1 at signal_test.go:"; !strings.Contains(p.output(), want) {
		t.Errorf("the error of Run:\n%s\nwant %s", p.output(), want)
	}
}

func TestRun_DrainsBeforePanicEndsProcess(t *testing.T) {
	p := start(t, "panic")
	testkit.Equal(t, "exit code", p.awaitExit(), 2)
	flushed, deferred := strings.Index(p.output(), "flushed"), strings.Index(p.output(), "deferred")
	if flushed < 0 || deferred < flushed {
		t.Errorf("Run did not drain, or not before the deferred calls of main:\n%s", p.output())
	}
	for _, want := range []string{"panic: ", "index out of range", "graceful_test.init.func", "signal_test.go:", "graceful.Run("} {
		if !strings.Contains(p.stderr.String(), want) {
			t.Errorf("the traceback does not contain %q:\n%s", want, p.stderr.String())
		}
	}
}

// If f panics after Run has returned, the process crashes as after a panic in any other goroutine.
func TestRun_FunctionThatPanicsAfterRunReturnedCrashesProgram(t *testing.T) {
	for role, says := range map[string]string{
		"late panic":           "error: graceful: abandoned",
		"late panic of a hook": "error: graceful: abandoned",
		"late panic in Watch":  "error: <nil>",
	} {
		t.Run(role, func(t *testing.T) {
			p := start(t, role)
			p.readUntil("Serving 0")
			p.signal(syscall.SIGTERM)
			testkit.Equal(t, "exit code", p.awaitExit(), 2)
			if !strings.Contains(p.output(), says) || !strings.Contains(p.stderr.String(), "panic: oops") {
				t.Errorf("the process printed\n%s\n%s", p.output(), p.stderr.String())
			}
		})
	}
}

func TestRun_StopsOnSignalBeforeItsFunctionIsCalled(t *testing.T) {
	p := start(t, "early")
	testkit.Equal(t, "exit code", p.awaitExit(), 0)
	if !strings.Contains(p.output(), "graceful: terminated signal received") {
		t.Errorf("the scope that f received was not stopped by the signal:\n%s", p.output())
	}
}

// A second ^C that arrives after Run has returned does not end the process before main has run its
// deferred calls. Run can be called again, and signals have their default effect again some seconds
// after the last call.
func TestRun_SecondControlCAfterReturnDoesNotSkipDeferredCalls(t *testing.T) {
	t.Parallel()
	p := start(t, "twice")
	p.readUntil("Serving 0")
	p.signal(os.Interrupt)
	p.readUntil("Serving 0") // send no ^C between the Runs, because the second Run could receive it
	p.signal(os.Interrupt)
	returned := time.Now() // approximately the time at which Run returns
	p.readUntil("deferred")
	p.signal(os.Interrupt)
	p.readUntil("over")
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	exited := make(chan int)
	go func() { exited <- p.awaitExit() }()
	for {
		select {
		case <-tick.C:
			p.cmd.Process.Signal(os.Interrupt) // the call fails if the process has ended
			continue
		case code := <-exited:
			testkit.Equal(t, "exit code", code, -1)
		}
		break
	}
	testkit.Equal(t, "end", p.cmd.ProcessState.String(), "signal: interrupt")
	if took := time.Since(returned); took < 5*time.Second {
		t.Errorf("a signal ended the process %v after the return of Run", took)
	}
}

func TestWithSignals_HandlesListedSignalsOnly(t *testing.T) {
	p := start(t, "hup")
	p.readUntil("Serving 0")
	p.signal(syscall.SIGHUP)
	testkit.Equal(t, "exit code", p.awaitExit(), 0)

	p = start(t, "hup")
	p.readUntil("Serving 0")
	p.signal(syscall.SIGTERM)
	testkit.Equal(t, "exit code", p.awaitExit(), -1)
}
