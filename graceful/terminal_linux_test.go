package graceful_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"
	"unsafe"

	"github.com/swansong-go/swansong/internal/testkit"
)

// A terminal is a pseudo-terminal on which a program runs.
type terminal struct {
	*testing.T
	cmd    *exec.Cmd
	master *os.File

	mu   sync.Mutex
	seen []byte
	more chan struct{}
	over chan struct{}
}

func ioctl(t *testing.T, f *os.File, request uintptr, arg unsafe.Pointer) {
	t.Helper()
	conn, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	conn.Control(func(fd uintptr) {
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, fd, request, uintptr(arg)); errno != 0 {
			t.Fatal(errno)
		}
	})
}

func startOnTerminal(t *testing.T, role string, columns uint16, env ...string) *terminal {
	t.Helper()
	return startCommandOnTerminal(t, exec.Command(os.Args[0]), role, columns, append([]string{terminalVar + "=1"}, env...)...)
}

// startCommandOnTerminal is like startOnTerminal, but runs a command that starts the test binary.
func startCommandOnTerminal(t *testing.T, cmd *exec.Cmd, role string, columns uint16, env ...string) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no pseudo-terminals: ", err)
	}
	t.Cleanup(func() { master.Close() })
	var n, unlock int32
	ioctl(t, master, syscall.TIOCSPTLCK, unsafe.Pointer(&unlock))
	ioctl(t, master, syscall.TIOCGPTN, unsafe.Pointer(&n))
	ioctl(t, master, syscall.TIOCSWINSZ, unsafe.Pointer(&struct{ rows, columns, x, y uint16 }{24, columns, 0, 0}))
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer slave.Close()
	cmd.Env = append(append(os.Environ(), roleVar+"="+role, "GORACE=atexit_sleep_ms=0", "TERM=xterm"), env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	tty := &terminal{T: t, cmd: cmd, master: master, more: make(chan struct{}, 1), over: make(chan struct{})}
	guard := time.AfterFunc(tooLong, func() { cmd.Process.Kill() })
	t.Cleanup(func() { guard.Stop() })
	go func() {
		defer close(tty.over)
		b := make([]byte, 4096)
		for {
			n, err := master.Read(b)
			tty.mu.Lock()
			tty.seen = append(tty.seen, b[:n]...)
			tty.mu.Unlock()
			select {
			case tty.more <- struct{}{}:
			default:
			}
			if err != nil {
				return // the error is EIO when no process has the other end open
			}
		}
	}()
	return tty
}

func (tty *terminal) screen() string {
	tty.mu.Lock()
	defer tty.mu.Unlock()
	return string(tty.seen)
}

func (tty *terminal) readUntil(says string) {
	tty.Helper()
	for !strings.Contains(tty.screen(), says) {
		select {
		case <-tty.more:
		case <-tty.over:
			tty.Fatalf("the program ended without printing %q; it printed\n%q", says, tty.screen())
		}
	}
}

func (tty *terminal) press(keys string) {
	tty.Helper()
	if _, err := tty.master.WriteString(keys); err != nil {
		tty.Fatal(err)
	}
}

func (tty *terminal) awaitExit() int {
	tty.Helper()
	tty.readUntil("bye")
	tty.press("\n")
	<-tty.over
	tty.cmd.Wait()
	return tty.cmd.ProcessState.ExitCode()
}

// The user presses ^C once, twice or three times on a terminal.
func TestTerminal_EachControlCStartsNextPhase(t *testing.T) {
	for _, test := range []struct {
		role   string
		phases []string // the phases in which the user presses ^C
		code   int
	}{
		{"soft", []string{"Serving 0"}, 0},
		{"hard", []string{"Serving 0", "Soft 1"}, 2},
		{"never", []string{"Serving 0", "Soft 1", "Hard 2"}, 3},
	} {
		t.Run(test.role, func(t *testing.T) {
			t.Parallel()
			tty := startOnTerminal(t, test.role, 80)
			for _, phase := range test.phases {
				tty.readUntil(phase)
				tty.press("\x03")
			}
			testkit.Equal(t, "exit code", tty.awaitExit(), test.code)
			testkit.Equal(t, "it was an interrupt", strings.Contains(tty.screen(), "interrupt"), test.code > 0)
		})
	}
}

// The progress line is redrawn in place, fits the width, and contains no escape sequence except one
// that erases the rest of the line, even if names and reasons contain escape sequences.
func TestTerminal_ProgressLineFitsWidth(t *testing.T) {
	for name, columns := range map[string]uint16{"200 columns": 200, "40 columns": 40, "7 columns": 7, "2 columns": 2, "1 column": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tty := startOnTerminal(t, "terminal", columns)
			tty.readUntil("Serving 0")
			tty.press("\x03")
			if columns < 3 {
				tty.readUntil("Soft 1")
				tty.press("\n")
				testkit.Equal(t, "exit code", tty.awaitExit(), 0)
				testkit.Equal(t, "there is no room for a line", strings.Contains(tty.screen(), "\x1b"), false)
				return
			}
			tty.readUntil("\x1b[K")
			if columns == 200 {
				tty.readUntil("extended by 30.0 s") // the program extends its time after it has acquired the guard of jobs
			}
			tty.press("\n")
			testkit.Equal(t, "exit code", tty.awaitExit(), 0)

			frames := regexp.MustCompile(`\r([^\r\n]*)\x1b\[K\r`).FindAllStringSubmatch(tty.screen(), -1)
			if len(frames) == 0 {
				t.Fatalf("there is no progress line:\n%q", tty.screen())
			}
			for i, f := range frames {
				if n := utf8.RuneCountInString(f[1]); n >= int(columns) {
					t.Errorf("%d characters on %d columns: %q", n, columns, f[1])
				}
				if strings.ContainsFunc(f[1], func(r rune) bool { return r < ' ' || r == '\u202e' || r == 0x7f }) {
					t.Errorf("unprintable characters in %q", f[1])
				}
				if i > 0 && f[1] == frames[i-1][1] {
					t.Errorf("%q was drawn twice", f[1])
				}
			}
			if columns == 200 {
				shape := regexp.MustCompile(`^draining · \d+\.\d s of 3630 s · extended by 30\.0 s \(\?]0;title\?\?\[2J\?gnp\.\?\)( · \^C again cuts it short)? · jobs\\x1b\[31m\\r\\n漢字 ×1$`)
				var last string
				for _, f := range frames {
					if strings.Contains(f[1], "jobs") { // the last lines of all may be drawn after the release of the guard
						last = f[1]
					}
				}
				if !shape.MatchString(last) {
					t.Errorf("the last progress line with the guard is %q", last)
				}
			}
			rest := regexp.MustCompile(`\r[^\r\n]*\x1b\[K\r?`).ReplaceAllString(tty.screen(), "")
			if strings.Contains(rest, "\x1b") {
				t.Errorf("escape sequences outside of the progress line: %q", rest)
			}
			end := tty.screen()[strings.LastIndex(tty.screen(), "\r\x1b[K")+len("\r\x1b[K"):]
			final, _, _ := strings.Cut(end, "\r\n")
			want := map[uint16]string{200: `^drained in \d+\.\d s$`, 40: `^drained in \d+\.\d s$`, 7: "^drai…$"}[columns]
			if !regexp.MustCompile(want).MatchString(final) || strings.Contains(end, "guard") {
				t.Errorf("the progress line was not replaced by a final line, but by %q:\n%q", final, tty.screen())
			}
		})
	}
}

func TestTerminal_DumbTerminalShowsNoProgressLine(t *testing.T) {
	tty := startOnTerminal(t, "terminal", 80, "TERM=dumb")
	tty.readUntil("Serving 0")
	tty.press("\x03")
	tty.readUntil("Soft 1")
	tty.press("\n")
	testkit.Equal(t, "exit code", tty.awaitExit(), 0)
	if bytes.Contains([]byte(tty.screen()), []byte("\x1b")) || strings.Contains(tty.screen(), "draining") {
		t.Errorf("progress on a dumb terminal:\n%q", tty.screen())
	}
}

func TestTerminal_ProgressLineNamesPhase(t *testing.T) {
	tty := startOnTerminal(t, "never-duck", 80)
	tty.readUntil("Serving 0")
	for _, says := range []string{
		"not ready, still serving · ",
		"draining · ",
		"cut short · ",
	} {
		tty.press("\x03")
		tty.readUntil(says)
	}
	tty.readUntil("^C again exits")
	tty.press("\x03")
	testkit.Equal(t, "exit code", tty.awaitExit(), 3)
	if before, _, ok := strings.Cut(tty.screen(), "graceful: abandoned"); !ok || strings.LastIndex(before, "\r\x1b[K") < strings.LastIndex(before, "guard") {
		t.Errorf("the abandoned guards are printed on the progress line:\n%q", tty.screen())
	}
}

// A phase Soft of 24 hours, the maximum, means that the program bounds its drain by itself, so the
// progress line shows how long the drain has taken, and not the limit, which says nothing about the
// end.
func TestTerminal_ProgressLineHasNoLimitIfSoftPhaseHasMaximumDuration(t *testing.T) {
	tty := startOnTerminal(t, "never-day", 80)
	tty.readUntil("Serving 0")
	for _, says := range []string{"draining · ", "cut short · "} {
		tty.press("\x03")
		tty.readUntil(says)
	}
	tty.press("\x03")
	testkit.Equal(t, "exit code", tty.awaitExit(), 3)
	if !regexp.MustCompile(`draining · \d+\.\d s · `).MatchString(tty.screen()) || strings.Contains(tty.screen(), "86400") {
		t.Errorf("the progress line does not show how long the drain has taken, or shows a limit:\n%q", tty.screen())
	}
}

// The user presses ^C on the terminal of `program 2>&1 | cat`. The terminal sends SIGINT to both
// programs, and cat ends first. The other program writes to the pipe during its drain, and this
// write does not end the drain.
func TestTerminal_ProgramInPipelineDrainsAfterControlCEndsItsReader(t *testing.T) {
	for _, role := range []string{"writes in its drain", "writes in its drain, and logs"} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "result")
			pipeline := `{ trap : INT; "$0"; echo "exit code $?" >>"$` + fileVar + `"; } 2>&1 | cat`
			tty := startCommandOnTerminal(t, exec.Command("sh", "-c", pipeline, os.Args[0]), role, 80, fileVar+"="+file)
			tty.readUntil("ready")
			tty.press("\x03")
			<-tty.over
			tty.cmd.Wait()
			b, _ := os.ReadFile(file)
			testkit.Equal(t, "what the program has done", string(b), "flushed after graceful: interrupt signal received\ndeferred\nexit code 0\n")
		})
	}
}

// The terminal of a program closes, which sends SIGHUP. The program drains.
func TestRun_DrainsWhenTerminalIsClosed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "result")
	tty := startCommandOnTerminal(t, exec.Command(os.Args[0]), "writes in its drain, and logs", 80, fileVar+"="+file)
	tty.readUntil("ready")
	tty.master.Close()
	<-tty.over
	tty.cmd.Wait()
	b, _ := os.ReadFile(file)
	testkit.Equal(t, "what the program has done", string(b), "flushed after graceful: hangup signal received\ndeferred\n")
	testkit.Equal(t, "exit code", tty.cmd.ProcessState.ExitCode(), 0)
}

// A program reloads on SIGHUP. But when its terminal closes, the SIGHUP that the kernel sends stops
// it.
func TestWithReload_SIGHUPOfClosedTerminalStopsProcess(t *testing.T) {
	tty := startCommandOnTerminal(t, exec.Command(os.Args[0]), "reloads", 80)
	tty.readUntil("Serving 0")
	tty.master.Close()
	<-tty.over
	tty.cmd.Wait()
	testkit.Equal(t, "exit code", tty.cmd.ProcessState.ExitCode(), 0)
}

// Standard error is a pipe to a process that reads the log. If that process has exited, SIGHUP
// still reloads: only the SIGHUP of a closed terminal stops the program.
func TestWithReload_SIGHUPReloadsEvenIfProcessThatReadsLogHasExited(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Stderr = w
	p := startCommand(t, "reloads", cmd)
	r.Close()
	w.Close()
	p.readUntil("Serving 0")
	p.signal(syscall.SIGHUP)
	p.readUntil("reload 1")
	p.signal(syscall.SIGTERM)
	testkit.Equal(t, "exit code", p.awaitExit(), 0)
}

// If the drain was not begun by a signal, the first signal has no effect, and the progress line
// says that ^C must be pressed twice.
func TestTerminal_ProgressLineSaysHowOftenToPressControlC(t *testing.T) {
	tty := startOnTerminal(t, "returned", 120)
	tty.readUntil("^C twice cuts it short")
	tty.press("\x03")
	tty.readUntil("^C again cuts it short")
	tty.press("\x03")
	tty.readUntil("cut short · ")
	tty.press("\x03")
	testkit.Equal(t, "exit code", tty.awaitExit(), 3)
}

// A program that waits for a line from the terminal ends at the first ^C, although no line follows.
func TestTerminal_ControlCEndsReadOfStdin(t *testing.T) {
	file := filepath.Join(t.TempDir(), "result")
	tty := startCommandOnTerminal(t, exec.Command(os.Args[0]), "batch", 80, fileVar+"="+file)
	tty.readUntil("ready")
	tty.press("one\n")
	tty.readUntil("got one")
	tty.press("\x03")
	<-tty.over
	tty.cmd.Wait()
	b, _ := os.ReadFile(file)
	testkit.Equal(t, "what the program has done", string(b), "1 lines, stopped: true\ndeferred\n")
	testkit.Equal(t, "exit code", tty.cmd.ProcessState.ExitCode(), 0)
}
