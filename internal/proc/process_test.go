package proc_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/swansong-go/swansong/internal/proc"
)

func TestExit_StringHasCodeOrSignal(t *testing.T) {
	for _, code := range []string{"0", "3", "255"} {
		exit := awaitDone(t, start(t, self("exit "+code)))
		if got := exit.String(); got != "exit status "+code {
			t.Errorf("got %q, want exit status %s", got, code)
		}
		if exit.Killed || exit.Terminated || exit.Signal != 0 {
			t.Errorf("the process ended by itself, but the exit is %+v", exit)
		}
	}
}

// Windows reports no signals, so a process that this program has ended exits with code 1.
func TestExit_NamesSignalOfProcessKilledOnWindows(t *testing.T) {
	for _, test := range []struct{ given, want proc.Exit }{
		{proc.Exit{Code: 0, Killed: true}, proc.Exit{Code: 0, Killed: true}},
		{proc.Exit{Code: 1}, proc.Exit{Code: 1}},
		{proc.Exit{Code: 1, Killed: true}, proc.Exit{Code: -1, Signal: syscall.SIGKILL, Killed: true}},
		{proc.Exit{Code: 1, Terminated: true, Killed: true}, proc.Exit{Code: -1, Signal: syscall.SIGTERM, Terminated: true, Killed: true}},
	} {
		if got := proc.WithSignalOnWindows(test.given); got.Code != test.want.Code || got.Signal != test.want.Signal {
			t.Errorf("got %+v, want %+v", got, test.want)
		}
	}
}

func TestProcess_StdinAndStdoutAreConnectedToProgram(t *testing.T) {
	p := start(t, self("echo"))
	go func() {
		io.WriteString(p.Stdin(), strings.Repeat("0123456789", 100_000))
		p.Stdin().Close()
	}()
	got, err := io.ReadAll(p.Stdout())
	if err != nil || len(got) != 1_000_000 {
		t.Errorf("read %d bytes, %v", len(got), err)
	}
	awaitDone(t, p)
}

func TestSpec_SetsDirEnvAndFiles(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	spec := self("dir")
	spec.Dir = dir
	p := start(t, spec)
	if got := readLine(t, p); got != dir {
		t.Errorf("directory %q, want %q", got, dir)
	}
	spec = self("env SOME")
	spec.Env = append(spec.Env, "SOME=thing")
	if got := readLine(t, start(t, spec)); got != "thing" {
		t.Errorf("environment: %q", got)
	}

	// If the Spec contains files, the process uses them. The caller still has to close them.
	file, err := os.Create(filepath.Join(dir, "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	spec = self("print 100")
	spec.Stdout = file
	p = start(t, spec)
	if p.Stdout() != nil || p.Stderr() == nil {
		t.Error("a pipe was made for what was given, or none for what was not")
	}
	awaitDone(t, p)
	if text, err := os.ReadFile(file.Name()); err != nil || len(text) != 100 {
		t.Errorf("the file has %d bytes, %v", len(text), err)
	}
	if _, err := file.WriteString("!"); err != nil {
		t.Errorf("the file was closed: %v", err)
	}
}

func TestStart_RejectsBadInput(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	garbage := filepath.Join(dir, "garbage")
	if err := os.WriteFile(garbage, []byte("\x00garbage"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name string
		spec proc.Spec
		is   error
		says string
	}{
		{"no command", proc.Spec{}, nil, "no command: Args[0] has to name one"},
		{"an empty name", proc.Spec{Args: []string{""}}, nil, "no command: Args[0] has to name one"},
		{"not in PATH", proc.Spec{Args: []string{"swansong-no-such-command"}}, exec.ErrNotFound,
			`cannot start "swansong-no-such-command": executable file not found in $PATH`},
		{"no such file", proc.Spec{Args: []string{filepath.Join(dir, "none")}}, fs.ErrNotExist, "none"},
		{"not executable", proc.Spec{Args: []string{plain}}, fs.ErrPermission, "plain"},
		{"not a program", proc.Spec{Args: []string{garbage}}, syscall.ENOEXEC, "garbage"},
		{"no such directory", proc.Spec{Args: []string{os.Args[0]}, Dir: filepath.Join(dir, "none")}, fs.ErrNotExist, "in its directory"},
		{"a file for a directory", proc.Spec{Args: []string{os.Args[0]}, Dir: plain}, syscall.ENOTDIR, "plain"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, err := proc.Start(test.spec)
			if err == nil {
				p.End(soon())
				t.Fatal("the process was started")
			}
			if test.is != nil && !errors.Is(err, test.is) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %q, which should be %v and say %q", err, test.is, test.says)
			}
		})
	}
}

// What a process has written can still be read, in full, after the process has been reaped.
func TestOutput_CanBeReadAfterReap(t *testing.T) {
	p := start(t, self("print 30000")) // 30000 bytes fit into a pipe on every platform
	awaitDone(t, p)
	for _, o := range []*proc.Output{p.Stdout(), p.Stderr()} {
		text, err := io.ReadAll(o)
		if err != nil || len(text) != 30000 || !strings.HasSuffix(string(text), "last\n") {
			t.Errorf("read %d bytes, %v", len(text), err)
		}
		if n, err := o.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Errorf("Read after the end returned %d, %v", n, err)
		}
	}
}

// A Tail accepts any amount of output and keeps only the end.
func TestTail_KeepsEndOfOutput(t *testing.T) {
	p := start(t, self("print 5000000"))
	tail := proc.NewTail(4 << 10)
	var reading sync.WaitGroup
	reading.Go(func() { io.Copy(tail, p.Stderr()) })
	reading.Go(func() { io.Copy(io.Discard, p.Stdout()) })
	awaitDone(t, p)
	reading.Wait()
	if got := tail.String(); tail.Total() != 5_000_000 || len(got) != 4<<10 || !strings.HasSuffix(got, "xlast\n") {
		t.Errorf("of %d bytes, the Tail kept %d, which end in %q", tail.Total(), len(got), got[max(0, len(got)-10):])
	}

	for _, test := range []struct {
		writes []string
		want   string
	}{
		{nil, ""},
		{[]string{"one\n", "two\n"}, "one\ntwo\n"},
		{[]string{"one\n", "two\n", "three\n", "4\n"}, "three\n4\n"},
		{[]string{"a very long line that is cut"}, "ne that is cut"[4:]},
		{strings.Split(strings.Repeat("ab\n", 100), ""), "ab\nab\nab\n"},
	} {
		tail := proc.NewTail(10)
		for _, w := range test.writes {
			tail.Write([]byte(w))
		}
		if diff := cmp.Diff(test.want, tail.String()); diff != "" {
			t.Errorf("%q (-want +got):\n%s", test.writes, diff)
		}
	}
}

func TestEnd_SendsNoSignalBeforeTerminateDeadline(t *testing.T) {
	p := start(t, self("echo"))
	go p.Stdin().Close()
	far := time.Now().Add(tooLong)
	exit, err := p.End(proc.Deadlines{Terminate: far, Kill: far, GiveUp: far})
	if err != nil || exit.Code != 0 || exit.Terminated || exit.Killed {
		t.Errorf("the process did not end by itself: %+v, %v", exit, err)
	}
}

func TestEnd_EarliestDeadlineOfAllCallersApplies(t *testing.T) {
	p := start(t, self("wait"))
	readLine(t, p)
	exits := make(chan proc.Exit, 8)
	far := time.Now().Add(tooLong)
	for range 7 {
		go func() {
			exit, _ := p.End(proc.Deadlines{Terminate: far, Kill: far, GiveUp: far})
			exits <- exit
		}()
	}
	exit, err := p.End(soon()) // of all concurrent calls of End, the earliest deadline applies
	if err != nil {
		t.Fatal(err)
	}
	exits <- exit
	for range 8 {
		if got := <-exits; got.Status != exit.Status {
			t.Errorf("got %v, want %v", got, exit)
		}
	}
	p.Kill() // after the exit, Kill has no effect
	p.Terminate()
	if err := p.Signal(os.Interrupt); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("Signal after the end returned %v", err)
	}
}
