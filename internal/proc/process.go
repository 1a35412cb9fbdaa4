// Package proc starts subprocesses, contains what they start in turn, and ends all of it, within bounds.
//
// Death is proven by the wait and by nothing else: not by a signal that was sent, not by a pipe that has ended, not by a
// protocol that has said goodbye.
package proc

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A Process is a subprocess, the leader, with all that it has started.
//
//	running ──the leader ends──▶ Exited ──the rest is gone, or given up on──▶ Done
//
// One goroutine per process, the waiter, does both steps, from the start and by itself; nobody else waits. Invariants:
//
//   - While Exited is not followed by Done, the leader is a zombie. That keeps its pid and the number of its process group
//     from being given to somebody else, so a signal to the group hits nobody but the group. After Done no signal is sent.
//     Where the leader alone is contained, it has been reaped by then, and no signal is sent after Exited.
//   - What the leader leaves behind is told to end (SIGTERM), has Linger to do so, and is killed.
//   - Signals are sent by the waiter before it reaps, and by others under mu, with reaped false.
//
// What is contained is what the container of the platform finds: on Linux all processes in a cgroup made for it; where
// none can be made, the process group, the session, the descendants, and whoever carries the mark that was put into the
// environment of the leader. A process that leaves all of these (it takes two forks, setsid, and an environment without
// the mark) escapes where there is no cgroup. On macOS and the BSDs the process group is all there is, and nobody can be
// listed. On Windows it is the leader alone, and there is no SIGTERM; on other Unix systems it is the leader alone, too, and
// what that leaves behind stays.
//
// All methods may be called concurrently.
type Process struct {
	name           string // Args[0]
	pid            int
	cmd            *exec.Cmd // nil: adopted
	linger         time.Duration
	contain        *container
	stdin          *os.File
	stdout, stderr *Output
	exited, done   chan struct{}

	mu     sync.Mutex
	reaped bool
	exit   Exit
}

// An Exit is how a process ended.
type Exit struct {
	Code   int            // -1 where a signal ended it
	Signal syscall.Signal // 0 where none did
	State  *os.ProcessState

	Terminated bool // SIGTERM was sent before the leader had ended
	Killed     bool // SIGKILL was sent before the leader had ended
	Unseen     bool // it has ended, and nobody can know how: it was adopted

	Left      []Member // who was alive when the leader had ended
	Survivors []Member // who could not be ended
}

// String says it as os.ProcessState does.
func (e Exit) String() string {
	switch {
	case e.Unseen:
		return "ended, and nobody can know how"
	case e.State == nil:
		return "not known to have ended"
	}
	return e.State.String()
}

// A Member is a process among those contained.
type Member struct {
	PID, PPID, PGID, SID int
	Command              string

	start  uint64 // with PID it identifies the process for ever
	zombie bool
	kernel bool // a thread of the kernel
}

func (m Member) String() string { return fmt.Sprintf("%s[%d]", m.Command, m.PID) }

// Start starts a process. Errors name the command, and match what os/exec and package os return for it.
func Start(spec Spec) (*Process, error) {
	p := newProcess(spec)
	cmd, err := spec.command()
	if err != nil {
		p.Close()
		return nil, err
	}
	p.cmd = cmd
	var theirs []*os.File
	defer func() {
		for _, f := range theirs {
			f.Close()
		}
	}()
	pipe := func(given *os.File, in bool) (child, ours *os.File) {
		if given != nil || err != nil {
			return given, nil
		}
		var r, w *os.File
		if r, w, err = os.Pipe(); err != nil {
			return nil, nil
		}
		if in {
			theirs = append(theirs, r)
			return r, w
		}
		theirs = append(theirs, w)
		return w, r
	}
	var child, ours *os.File
	if child, ours = pipe(spec.Stdin, true); child != nil {
		cmd.Stdin, p.stdin = child, ours
	}
	if child, ours = pipe(spec.Stdout, false); child != nil {
		cmd.Stdout = child
		if ours != nil {
			p.stdout = &Output{file: ours}
		}
	}
	if child, ours = pipe(spec.Stderr, false); child != nil {
		cmd.Stderr = child
		if ours != nil {
			p.stderr = &Output{file: ours}
		}
	}
	if err != nil {
		p.Close()
		return nil, fmt.Errorf("proc: cannot start %q: %w", spec.Args[0], err)
	}
	started := make(chan error)
	go p.wait(spec, started)
	if err := <-started; err != nil {
		p.Close()
		return nil, fmt.Errorf("proc: cannot start %q: %w", spec.Args[0], err)
	}
	return p, nil
}

func newProcess(spec Spec) *Process {
	p := &Process{linger: spec.linger(), exited: make(chan struct{}), done: make(chan struct{})}
	if len(spec.Args) > 0 {
		p.name = spec.Args[0]
	}
	if spec.ReadStdout != nil {
		p.stdout = &Output{file: spec.ReadStdout}
	}
	if spec.ReadStderr != nil {
		p.stderr = &Output{file: spec.ReadStderr}
	}
	return p
}

// wait is the waiter. It starts the process too, because the thread that forks is the parent as the kernel sees it.
func (p *Process) wait(spec Spec, started chan<- error) {
	if spec.ParentDeath != 0 {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
	}
	contain, err := startContained(p.cmd, spec)
	if err != nil {
		started <- err
		return
	}
	p.contain, p.pid = contain, p.cmd.Process.Pid
	started <- nil
	p.see()
}

// see is the rest of the waiter's life.
func (p *Process) see() {
	contain := p.contain
	contain.awaitExit()
	close(p.exited)
	left, survivors := p.sweep()

	p.mu.Lock()
	state, err := contain.reap()
	p.reaped = true
	p.exit.Code, p.exit.State, p.exit.Left, p.exit.Survivors = -1, state, left, survivors
	p.exit.Unseen = p.cmd == nil
	if err == nil && state != nil {
		p.exit.Code = state.ExitCode()
		if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			p.exit.Signal = ws.Signal()
		}
	}
	p.mu.Unlock()
	contain.release()
	p.stdout.reaped()
	p.stderr.reaped()
	close(p.done)
}

// stuck is how long somebody may take to die of SIGKILL; it takes a broken disk, or the like.
const stuck = time.Second

// sweep ends what the leader has left behind, to a fixpoint: who is being ended may start others.
func (p *Process) sweep() (left, survivors []Member) {
	left = p.contain.members()
	if !p.contain.lists() {
		p.contain.signal(nil, syscall.SIGKILL) // nobody can be listed, so nobody can be waited for
		return nil, nil
	}
	if len(left) == 0 {
		return nil, nil
	}
	if p.linger > 0 {
		p.contain.signal(left, syscall.SIGTERM)
		p.contain.awaitMembers(left, time.Now().Add(p.linger))
	}
	for give := time.Now().Add(stuck); ; {
		survivors = p.contain.members()
		if len(survivors) == 0 || time.Now().After(give) {
			return left, survivors
		}
		p.contain.signal(survivors, syscall.SIGKILL)
		p.contain.awaitMembers(survivors, give)
	}
}

// Pid returns the leader's process id, which is also that of its process group.
func (p *Process) Pid() int { return p.pid }

// Stdin is the pipe to the process, nil where the Spec had a file. Whoever writes to it closes it.
func (p *Process) Stdin() *os.File { return p.stdin }

// Stdout is the pipe from the process, nil where the Spec had a file.
func (p *Process) Stdout() *Output { return p.stdout }

// Stderr is the pipe from the process, nil where the Spec had a file.
func (p *Process) Stderr() *Output { return p.stderr }

// Exited returns a channel that is closed when the leader has ended, and has not yet been reaped.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Done returns a channel that is closed when the leader has been reaped and what it left behind has been seen to.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exit returns how the process ended. Before Done only what was sent is known.
func (p *Process) Exit() Exit {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.exit
}

// Containment names what holds the process and what it starts: "cgroup", "walk", "group" or "leader".
func (p *Process) Containment() string { return p.contain.name() }

// Members returns who is alive, the leader among them, as far as the platform can tell. It is a snapshot.
func (p *Process) Members() []Member {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return p.exit.Survivors
	}
	members := p.contain.members()
	if leader, ok := p.contain.leader(); ok {
		members = append([]Member{leader}, members...)
	}
	return members
}

// Signal sends sig to the leader alone. It returns [os.ErrProcessDone] once that has ended.
func (p *Process) Signal(sig os.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hasExited() {
		return os.ErrProcessDone
	}
	return p.contain.signalLeader(sig)
}

func (p *Process) hasExited() bool {
	select {
	case <-p.exited:
		return true
	default:
		return p.reaped
	}
}

// Terminate sends SIGTERM to all, and SIGCONT, without which one that is stopped would not see it. On Windows it kills.
func (p *Process) Terminate() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return
	}
	p.exit.Terminated = p.exit.Terminated || !p.hasExited()
	members := p.contain.members()
	p.contain.signal(members, syscall.SIGTERM)
	p.contain.wake(members)
}

// Kill sends SIGKILL to all, by cgroup.kill where there is one.
func (p *Process) Kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return
	}
	p.exit.Killed = p.exit.Killed || !p.hasExited()
	p.contain.signal(p.contain.members(), syscall.SIGKILL)
}

// Deadlines are the steps by which a process is ended. Times in the past mean: at once. They should come from time.Now, so
// that they are on the monotonic clock and a clock that is set moves none of them.
type Deadlines struct {
	Terminate time.Time // when SIGTERM is sent to all, if the process has not ended by itself
	Kill      time.Time // when SIGKILL is
	GiveUp    time.Time // when End stops waiting
}

// ErrUnconfirmed is returned by [Process.End] where the process is not known to have ended.
var ErrUnconfirmed = errors.New("proc: not known to have ended")

// End waits for the process, escalates, and returns how it ended once it has been reaped. At GiveUp it returns an error
// that matches [ErrUnconfirmed] and names who is alive; the waiter goes on. Calls may overlap: the earlier deadline of
// each kind counts.
func (p *Process) End(at Deadlines) (Exit, error) {
	if p.doneBy(at.Terminate) {
		return p.Exit(), nil
	}
	p.Terminate()
	if p.doneBy(at.Kill) {
		return p.Exit(), nil
	}
	p.Kill()
	if p.doneBy(at.GiveUp) {
		return p.Exit(), nil
	}
	exit := p.Exit()
	exit.Code, exit.Survivors = -1, p.Members()
	names := make([]string, len(exit.Survivors))
	for i, m := range exit.Survivors {
		names[i] = m.String()
	}
	return exit, fmt.Errorf("%w after SIGKILL: %q, pid %d; still there: %s", ErrUnconfirmed, p.name, p.Pid(),
		strings.Join(names, ", "))
}

func (p *Process) doneBy(at time.Time) bool {
	select {
	case <-p.done:
		return true
	default:
	}
	d := time.Until(at)
	if d <= 0 {
		return false
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-p.done:
		return true
	case <-t.C:
		return false
	}
}

// Close closes this side of the pipes. It does not end the process.
func (p *Process) Close() {
	if p.stdin != nil {
		p.stdin.Close()
	}
	for _, o := range []*Output{p.stdout, p.stderr} {
		if o != nil {
			o.Close()
		}
	}
}
