//go:build unix

package proc_test

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/swansong-go/swansong/internal/proc"
)

func init() {
	// The role "abandon" starts a child in the same process group, which inherits file descriptor
	// 3, and exits.
	roles["abandon"] = func([]string) {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), asRole+"=wait")
		cmd.ExtraFiles = []*os.File{os.NewFile(3, "held")}
		if err := cmd.Start(); err != nil {
			panic(err)
		}
	}
}

// Processes left in the leader's group are ended with it on every platform that has process groups.
func TestProcess_EndsProcessesLeftInItsProcessGroup(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	spec := self("abandon")
	spec.NoCgroup, spec.ExtraFiles, spec.Linger = true, []*os.File{w}, -1
	p := start(t, spec)
	w.Close()
	if p.Containment() == "leader" {
		t.Skip("the process group is out of reach here")
	}
	r.SetReadDeadline(time.Now().Add(tooLong))
	// io.EOF means that no process has the other end of the pipe open.
	if _, err := r.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the child is still running: %v", err)
	}
	if exit := awaitDone(t, p); exit.Code != 0 {
		t.Errorf("%v", exit)
	}
}

// A leader that SIGSTOP has suspended does not count as exited.
func TestProcess_SuspendedBySIGSTOPDoesNotCountAsExited(t *testing.T) {
	p := start(t, self("echo"))
	out := bufio.NewReader(p.Stdout())
	for range 3 {
		for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
			if err := p.Signal(sig); err != nil {
				t.Fatal(err)
			}
		}
		io.WriteString(p.Stdin(), "still here\n")
		if line, err := out.ReadString('\n'); err != nil || strings.TrimSpace(line) != "still here" {
			t.Fatalf("%q, %v", line, err)
		}
	}
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	exit, err := p.End(proc.Deadlines{Kill: time.Now().Add(tooLong), GiveUp: time.Now().Add(tooLong)})
	if err != nil || !exit.Terminated || exit.Killed || exit.Signal != syscall.SIGTERM {
		t.Errorf("a stopped process did not receive SIGTERM: %+v, %v", exit, err)
	}
}
