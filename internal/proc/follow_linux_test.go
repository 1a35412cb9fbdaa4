package proc_test

import (
	"bufio"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/swansong-go/swansong/internal/proc"
)

// After a leader has handed over to a process that it has started, that process is signalled, its end
// is the end of the Process, and it is not ended as one that was left behind.
func TestFollow_ProcessTakesPlaceOfLeader(t *testing.T) {
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
				default: // called again after the other process has ended
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
		leader := p.Pid()
		pid <- n
		close(begun)
		for p.Pid() == leader { // until the leader has exited and Follow has returned
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
		if exit := p.Exit(); !followed || !exit.Unseen || exit.State != nil || exit.Code != -1 || len(exit.Left) > 0 || len(exit.Survivors) > 0 {
			t.Errorf("followed %v, exit %+v", followed, exit)
		}
	}
}

// When the process that has taken the place of the leader has ended, the leader is ended, too.
func TestFollow_EndsLeaderAfterProcess(t *testing.T) {
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
	if exit := p.Exit(); !exit.Unseen || exit.Killed {
		t.Errorf("exit %+v", exit)
	}
}

// Only a living process of the container can take the place of the leader.
func TestFollow_RefusesAllButLivingMembers(t *testing.T) {
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
