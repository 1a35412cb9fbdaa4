package proc_test

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/swansong-go/swansong/internal/proc"
	"github.com/swansong-go/swansong/internal/testkit"
)

// A process can exit and let a child take its place; see Process.Follow. Then the Process sends
// signals to the child, is done when the child has exited, and does not kill the child as a
// leftover of the first process.
func TestFollow_SignalAndDoneApplyToChildThatReplacedFirstProcess(t *testing.T) {
	for _, noCgroup := range []bool{false, true} {
		var p *proc.Process
		pid, begun := make(chan int, 1), make(chan struct{})
		followed := false
		p, err := proc.Start(proc.Spec{Args: []string{"/bin/sh", "-c", "setsid sleep 1000 </dev/null >/dev/null 2>&1 & echo $!"}, NoCgroup: noCgroup,
			OnLeaderExit: func() {
				<-begun
				select {
				case n := <-pid:
					followed = p.Follow(n)
				default: // OnLeaderExit is called again after the process that took the leader's place has ended
				}
			}})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		line, err := bufio.NewReader(p.Stdout()).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		n, _ := strconv.Atoi(strings.TrimSpace(line))
		// Wait until the child has executed sleep. In between, its environment cannot be read.
		for sleeps := false; !sleeps; runtime.Gosched() {
			name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", n))
			if err != nil {
				t.Fatal(err)
			}
			environ, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", n)) // empty for a moment
			sleeps = string(name) == "sleep\n" && len(environ) > 0
		}
		leader := p.Pid()
		pid <- n
		close(begun)
		for p.Pid() == leader { // waits until the leader has exited and Follow has returned
			runtime.Gosched()
		}
		if got := p.Pid(); got != n {
			t.Errorf("the pid is %d, want %d", got, n)
		}
		if got := p.Adoptable(proc.Containment{}).PID; got != n {
			t.Errorf("the pid of the adoptable process is %d, want %d", got, n)
		}
		if err := p.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		<-p.Done()
		exit := p.Exit()
		if !followed || len(exit.Left) > 0 || len(exit.Survivors) > 0 {
			t.Errorf("followed %v, exit %+v", followed, exit)
		}
	}
}

// After Follow, a child takes the place of the leader, the process that Start has started. When the
// child ends, the leader is killed.
func TestFollow_FirstProcessIsEndedAfterChildThatReplacedIt(t *testing.T) {
	p, err := proc.Start(proc.Spec{Args: []string{"/bin/sh", "-c", "trap '' TERM; sleep 1000 </dev/null >/dev/null 2>&1 & echo $!; read forever"}, Linger: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	line, err := bufio.NewReader(p.Stdout()).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	n, _ := strconv.Atoi(strings.TrimSpace(line))
	if !p.Follow(n) {
		t.Fatal("Follow has refused the process")
	}
	p.Signal(syscall.SIGKILL)
	<-p.Done()
	if exit := p.Exit(); exit.Killed {
		t.Errorf("exit %+v", exit)
	}
}

// Exit returns the exit status of the child that has taken the place of the leader, the process
// that Start has started, and not the leader's own. Since Linux 6.15, a program can learn the exit
// status of a process that is not its child, after the parent of that process has reaped it. The
// function OnLeaderExit of the test reaps the child, so the status can be read when OnLeaderExit
// returns.
func TestFollow_ExitReturnsStatusOfReplacement(t *testing.T) {
	becomeSubreaper := func(on uintptr) {
		const setChildSubreaper = 36
		syscall.RawSyscall6(syscall.SYS_PRCTL, setChildSubreaper, on, 0, 0, 0, 0)
	}
	becomeSubreaper(1)
	defer becomeSubreaper(0)
	for _, c := range []struct {
		how  string
		want proc.Exit
	}{
		{"exit 7", proc.Exit{Code: 7, Status: "exit status 7"}},
		{"kill -9 $$", proc.Exit{Code: -1, Signal: syscall.SIGKILL, Status: "signal: killed"}},
	} {
		var p *proc.Process
		var followed atomic.Int32
		p, err := proc.Start(proc.Spec{Args: []string{"/bin/sh", "-c", "exec 3<&0; sh -c 'read go; " + c.how + "' <&3 >/dev/null 2>&1 & echo $!; exec sleep 1000"},
			OnLeaderExit: func() {
				if pid := int(followed.Load()); pid > 0 { // this process is now a child of this program
					p.Stdin().WriteString("go\n")
					syscall.Wait4(pid, nil, 0, nil)
				}
			}})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		n, _ := strconv.Atoi(readLine(t, p))
		leader := p.Pid()
		if !p.Follow(n) {
			t.Fatal("Follow has refused the process")
		}
		followed.Store(int32(n))
		syscall.Kill(leader, syscall.SIGKILL)
		<-p.Done()
		if !proc.HasPidfdInfo() {
			c.want = proc.Exit{Code: -1, Unseen: true}
		}
		got := p.Exit()
		testkit.Equal(t, "exit after "+c.how, proc.Exit{Code: got.Code, Signal: got.Signal, Status: got.Status, Unseen: got.Unseen}, c.want)
	}
}

// Follow refuses a process that has ended, and one that was not started by the leader, the process
// that Start has started. It accepts the leader itself.
func TestFollow_RefusesProcessThatEndedOrIsNoDescendant(t *testing.T) {
	p, err := proc.Start(proc.Spec{Args: []string{"sleep", "1000"}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if p.Follow(os.Getpid()) || p.Follow(1) || p.Follow(-1) {
		t.Error("Follow has accepted a process that the leader has not started")
	}
	if !p.Follow(p.Pid()) {
		t.Error("Follow has refused the leader")
	}
	p.Kill()
	<-p.Done()
	if exit := p.Exit(); exit.Unseen || exit.Signal != syscall.SIGKILL {
		t.Errorf("exit %+v", exit)
	}
	if p.Follow(p.Pid()) {
		t.Error("Follow has accepted a process that has ended")
	}
}
