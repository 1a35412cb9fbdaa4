// Package proc starts subprocesses, and ends them within a deadline, each together with all
// processes that the subprocess has started, directly or not.
//
// A process counts as ended only when the kernel has reported its exit. A signal that was sent, a
// pipe that was closed, or a protocol message that announces the exit is no proof.
package proc

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"
)

// A Process is a subprocess, called the leader, with all processes that it has started.
//
//	running ──the leader exits──▶ Exited ──the remaining processes have ended or cannot be ended──▶ Done
//
// One goroutine per process, the waiter, makes both transitions. Invariants:
//
//   - Between Exited and Done the leader is a zombie, so its pid and its process group id cannot be
//     reused: a signal to the group reaches only the group. No signal is sent after Done. On
//     platforms that contain the leader alone, it has been reaped at Exited, and no signal is sent
//     after that.
//   - Processes that the leader leaves behind receive SIGTERM, have Spec.Linger to exit, and are
//     then killed. If Kill has been called, they are killed at once.
//   - The waiter sends signals before it reaps the leader. Other goroutines send them only while
//     they hold mu or search and reaped is false.
//
// The platform determines which processes are found. On Linux these are all processes in a cgroup
// made for the leader. If no cgroup can be made, they are the process group, the session, the
// descendants, and every process whose environment carries the leader's mark; a process escapes
// only if it calls setsid, clears its environment, and loses its parent before it is found. On
// macOS and the BSDs it is the process group, whose members cannot be listed. On Windows and other
// Unix systems it is the leader alone. Windows has no SIGTERM, so the leader is killed instead.
//
// The methods may be called concurrently.
type Process struct {
	pid            int
	cmd            *exec.Cmd // the command that was started; nil for an adopted process
	linger         time.Duration
	firstWait      time.Duration // how long sweep waits before it searches: defaultFirstWait, except in tests
	beforeReap     func()        // called before the leader is reaped; may be nil
	contain        *container
	stdin          *os.File
	stdout, stderr *Output
	exited, done   chan struct{}
	onLeaderExit   func() // called when the leader has exited; may be nil

	// search is held by a goroutine that searches for members in order to signal them, and by the
	// waiter, the goroutine that waits for the leader, while it reaps the leader. It is locked
	// before mu.
	search sync.Mutex

	mu            sync.Mutex
	reaped        bool
	followed      *Member  // the process that has taken the place of the leader; nil if there is none
	followedPidfd *os.File // the pidfd of followed; nil if the kernel does not support pidfds
	killing       bool     // SIGKILL has been sent
	exit          Exit
	queued        map[syscall.Signal]bool // signals whose search for members has not begun yet
	searches      int                     // how many searches for members have begun
	slowest       time.Duration           // how long the slowest search for members has taken
	known         []Member                // the members that have been found so far, without those that are known to have ended
}

// An Exit describes how a process ended.
type Exit struct {
	Code   int            // the exit code, or -1 if a signal ended the process
	Signal syscall.Signal // the signal that ended the process, or 0
	Status string         // the exit code or the signal, in the format of os.ProcessState; empty if it is not known

	Terminated  bool // whether SIGTERM was sent before the leader had exited
	Killed      bool // whether SIGKILL was sent before the leader had exited
	OutOfMemory bool // whether the kernel has killed processes because they have reached Limits.Memory
	Unseen      bool // the exit status is unknown because the process is not a child of this program

	Left      []Member // the processes that were still running when the leader exited
	Survivors []Member // the processes that could not be ended
}

// String returns the exit status, or that it is not known.
func (e Exit) String() string {
	switch {
	case e.Unseen:
		return "ended with an unknown status"
	case e.Status == "":
		return "not known to have ended"
	case e.OutOfMemory:
		return e.Status + " (out of memory: it reached its limit)"
	}
	return e.Status
}

// A Member is one of the processes in a container.
type Member struct {
	PID, PPID, PGID, SID int
	Command              string

	start  uint64 // the start time in clock ticks since boot, which together with PID is unique
	zombie bool
	kernel bool // whether the member is a kernel thread
}

func (m Member) String() string { return fmt.Sprintf("%s[%d]", m.Command, m.PID) }

// Start starts a process. The error names the command and wraps what os/exec and package os return.
// It does not name this package, which users do not know.
func Start(spec Spec) (*Process, error) {
	p := newProcess(spec)
	cmd, err := spec.command()
	if err != nil {
		p.Close()
		return nil, err
	}
	p.cmd = cmd
	var childFiles []*os.File
	defer func() {
		for _, f := range childFiles {
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
			childFiles = append(childFiles, r)
			return r, w
		}
		childFiles = append(childFiles, w)
		return w, r
	}
	var child, ours *os.File
	if child, ours = pipe(spec.Stdin, true); child != nil {
		cmd.Stdin, p.stdin = child, ours
	}
	if child, ours = pipe(spec.Stdout, false); child != nil {
		cmd.Stdout = child
		if ours != nil {
			p.stdout = newOutput(ours)
		}
	}
	if child, ours = pipe(spec.Stderr, false); child != nil {
		cmd.Stderr = child
		if ours != nil {
			p.stderr = newOutput(ours)
		}
	}
	if err != nil {
		p.Close()
		return nil, startError(spec.Args[0], err)
	}
	started := make(chan error)
	go p.wait(spec, started)
	if err := <-started; err != nil {
		p.Close()
		return nil, startError(spec.Args[0], err)
	}
	return p, nil
}

func newProcess(spec Spec) *Process {
	p := &Process{
		linger: spec.linger(), firstWait: defaultFirstWait, beforeReap: spec.BeforeReap, onLeaderExit: spec.OnLeaderExit,
		exited: make(chan struct{}), done: make(chan struct{}), queued: map[syscall.Signal]bool{},
	}
	if spec.ReadStdout != nil {
		p.stdout = newOutput(spec.ReadStdout)
	}
	if spec.ReadStderr != nil {
		p.stderr = newOutput(spec.ReadStderr)
	}
	return p
}

// wait is the body of the waiter, the goroutine that waits for the process. It starts the process,
// sends the error of the start, or nil, to the channel started, and waits until the process has
// ended.
func (p *Process) wait(spec Spec, started chan<- error) {
	var contain *container
	var err error
	fork := func() { contain, err = startContained(p.cmd, spec) }
	if spec.ParentDeath != 0 || forker.isMain.Load() {
		release := onForkingThread(fork)
		defer release()
	} else {
		fork()
	}
	if err != nil {
		started <- err
		return
	}
	p.contain, p.pid = contain, p.cmd.Process.Pid
	started <- nil
	p.awaitEnd()
}

// awaitEnd waits for the leader to exit, ends the processes that the leader left behind, and reaps
// the leader.
func (p *Process) awaitEnd() {
	contain := p.contain
	p.awaitExit()
	close(p.exited)
	left, survivors := p.sweep()
	outOfMemory := contain.ranOutOfMemory()
	followedStatus, seen := exitStatus(p.followedPidfd) // from now on, Follow returns false
	if p.beforeReap != nil {
		p.beforeReap()
	}

	p.search.Lock()
	p.mu.Lock()
	state, err := contain.reap()
	p.reaped = true
	p.exit.Code, p.exit.Left, p.exit.Survivors = -1, left, survivors
	p.exit.OutOfMemory = outOfMemory
	p.exit.Unseen = true
	switch {
	// another process has taken the place of the leader, so its exit status counts, not that of the
	// leader
	case p.followed != nil:
		if seen {
			p.exit.set(followedStatus)
		}
	case err == nil && state != nil:
		p.exit.Code, p.exit.Status, p.exit.Unseen = state.ExitCode(), state.String(), false
		if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			p.exit.Signal = ws.Signal()
		}
		if runtime.GOOS == "windows" {
			p.exit = withSignalOnWindows(p.exit)
		}
	}
	p.mu.Unlock()
	p.search.Unlock()
	p.stdout.finish()
	p.stderr.finish()
	if p.followedPidfd != nil {
		p.followedPidfd.Close()
	}
	contain.release()
	close(p.done)
}

// withSignalOnWindows adds the signal to the exit of a process that this program has ended. Windows
// has no signals: [os.Process.Kill] makes the process exit with code 1, so a process that exits
// with code 1 after that counts as ended by the first signal that was sent.
func withSignalOnWindows(e Exit) Exit {
	switch {
	case e.Code != 1:
	case e.Terminated:
		e.Code, e.Signal = -1, syscall.SIGTERM
	case e.Killed:
		e.Code, e.Signal = -1, syscall.SIGKILL
	}
	return e
}

// The time limits between the exit of the leader and Done. A limit that is not reached costs
// nothing: each wait ends when the processes have ended.
//
//	the leader exits
//	   │ Kill was called:  the members that are known may end, up to defaultFirstWait
//	   │ otherwise:        SIGTERM to what it has left, which may end, up to Spec.Linger (1 s by default)
//	SIGKILL to what a search finds, repeated until a search finds no member
//	   │                   up to killTimeout, or refusedTimeout if this program may signal none of them
//	the leader is reaped; what is still alive is in Exit.Survivors
//	   │                   the cgroup may become empty, up to emptyTimeout
//	Done
//
// The deadlines of [Process.End] are the caller's, and limit only how long End waits.
const (
	// Before sweep searches /proc for members that are still alive, it waits, because on a busy
	// machine a search is slow while many processes are ending. The wait is short, because a member
	// that only the search can find receives SIGKILL only after it.
	defaultFirstWait = time.Second

	// Only a process that is blocked in the kernel, for example by a failing disk, takes longer to
	// end after SIGKILL. On a machine on which fifty processes wait for a processor, an exit took
	// more than a second.
	killTimeout = 5 * time.Second

	// A process that this program has no permission to signal is not killed, but it may end by
	// itself when the other processes have ended.
	refusedTimeout = time.Second
)

// sweep ends the processes that the leader has left behind. Because a process that is being ended
// may start others, sweep repeats this until it finds none.
func (p *Process) sweep() (left, survivors []Member) {
	if p.isKilling() { // wait first, so that no search finds processes that are about to end
		known := slices.DeleteFunc(p.knownMembers(), Member.refusesSignals)
		// Kill has killed the members that were known then; kill also those that a search has found
		// since
		p.contain.signal(known, syscall.SIGKILL)
		p.contain.awaitMembers(known, time.Now().Add(p.firstWait))
	}
	left = p.members()
	if !p.contain.lists() {
		p.contain.signalGroup(syscall.SIGKILL) // the members cannot be listed, so they are killed without waiting for them
		return nil, nil
	}
	if len(left) == 0 {
		return nil, nil
	}
	if p.linger > 0 && !p.isKilling() {
		p.contain.signal(left, syscall.SIGTERM)
		p.contain.awaitMembers(left, time.Now().Add(p.linger))
	}
	for begin := time.Now(); ; {
		survivors = p.members()
		awaited, deadline := slices.DeleteFunc(slices.Clone(survivors), Member.refusesSignals), begin.Add(killTimeout)
		if len(awaited) == 0 {
			awaited, deadline = survivors, begin.Add(refusedTimeout)
		}
		if len(survivors) == 0 || time.Now().After(deadline) {
			return left, survivors
		}
		p.contain.signal(survivors, syscall.SIGKILL)
		p.contain.awaitMembers(awaited, deadline)
	}
}

// Pid returns the process id of the leader, the process that Start has started. It is also the id
// of the leader's process group. If another process has taken the place of the leader (see Follow),
// Pid returns the id of that process.
func (p *Process) Pid() int {
	if m, ok := p.main(); ok {
		return m.PID
	}
	return p.pid
}

// Stdin returns the pipe to the process, or nil if Spec.Stdin was set. The caller closes it.
func (p *Process) Stdin() *os.File { return p.stdin }

// Stdout returns the pipe from the process, or nil if Spec.Stdout was set.
func (p *Process) Stdout() *Output { return p.stdout }

// Stderr returns the pipe from the process, or nil if Spec.Stderr was set.
func (p *Process) Stderr() *Output { return p.stderr }

// Exited returns a channel that is closed when the leader, the process that Start has started, has
// exited. The leader might not have been reaped yet.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Done returns a channel that is closed when the leader has been reaped and the processes that it
// left behind have been ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exit returns how the process ended. Before Done, only Terminated and Killed are set.
func (p *Process) Exit() Exit {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.exit
}

// Containment returns how processes are contained: "cgroup", "walk" (through /proc), "group" or
// "leader".
func (p *Process) Containment() string { return p.contain.name() }

// Close closes this program's ends of the pipes. It does not end the process.
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
