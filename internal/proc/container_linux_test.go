package proc_test

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/swansong-go/swansong/internal/proc"
)

func init() {
	roles["ignore"] = func([]string) {
		signal.Ignore(syscall.SIGTERM)
		fmt.Println("ready")
		forever()
	}
	roles["stopped"] = func([]string) {
		fmt.Println("ready")
		syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		forever()
	}
	// The following roles start other processes, which print their pids. The first argument says
	// how to start the process; see the function leave. The second one says what the leader does
	// after that.
	roles["leave"] = func(args []string) {
		leave(args[0], "hidden")
		if args[1] == "wait" {
			signal.Ignore(syscall.SIGTERM)
			forever()
		}
		if args[1] != "exit" { // the leader runs until the test ends it
			io.Copy(io.Discard, os.Stdin)
		}
	}
	// The role "leave-marked" starts a process in a session of its own that inherits file
	// descriptor 3. The process has the mark, the text in the environment by which a container
	// finds its processes. The role "leave-unmarked" starts the same process without the mark.
	roles["leave-unmarked"] = func([]string) {
		os.Unsetenv("SWANSONG_PROC")
		roles["leave-marked"](nil)
	}
	roles["leave-marked"] = func([]string) {
		cmd := exec.Command(os.Args[0])
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		cmd.Env, cmd.Stdout = append(os.Environ(), asRole+"=ignore"), os.Stdout
		cmd.ExtraFiles = []*os.File{os.NewFile(3, "until")}
		if err := cmd.Start(); err != nil {
			panic(err)
		}
		forever()
	}
	roles["leave-twice"] = func(args []string) { leave(args[0], cmp.Or(os.Getenv("LEAF"), "hidden")) }
	// The role "marked" starts a process that carries the given mark, and so is a member of the
	// container with that mark. The process in the role "marked" itself is not a member.
	roles["marked"] = func(args []string) {
		os.Setenv(proc.MarkVariable, args[0])
		leave("setsid", "hidden")
		io.Copy(io.Discard, os.Stdin)
	}
	if strings.HasPrefix(os.Getenv(asRole), "headless") {
		runtime.LockOSThread() // keeps the main goroutine on the main thread
	}
	// The role "headless" ends the main thread. Another thread runs on, in the role args[0], or in
	// the role "hidden" if there is no argument.
	roles["headless"] = func(args []string) {
		go func() {
			for stateOf("self/task/"+strconv.Itoa(os.Getpid())) != "Z" {
				runtime.Gosched()
			}
			roles[append(args, "hidden")[0]](nil)
		}()
		syscall.Syscall(syscall.SYS_EXIT, 0, 0, 0)
	}
	roles["hidden"] = func([]string) {
		signal.Ignore(syscall.SIGTERM)
		fmt.Println(os.Getpid())
		os.NewFile(3, "tell").Close()
		if os.Getenv("UNTIL") != "" { // a process that has escaped lives until the test ends
			io.Copy(io.Discard, os.NewFile(4, "until"))
			os.Exit(0)
		}
		forever()
	}
	roles["polite"] = func([]string) {
		fmt.Println(os.Getpid())
		os.NewFile(3, "tell").Close()
		forever()
	}
	roles["pingable"] = func([]string) { fmt.Println("ready"); io.Copy(os.Stdout, os.Stdin) }
	// The role "parent" starts a child from a thread that ends right afterwards, and then waits.
	roles["parent"] = func([]string) {
		spec := self("pingable")
		spec.ParentDeath, spec.NoCgroup = syscall.SIGKILL, true
		spec.Stdin, spec.Stdout, spec.Stderr = os.Stdin, os.Stdout, os.Stderr
		spec.ExtraFiles = []*os.File{os.NewFile(3, "until")}
		var thread sync.WaitGroup
		thread.Go(func() {
			// The thread is never unlocked, so it ends with the goroutine.
			runtime.LockOSThread()
			if _, err := proc.Start(spec); err != nil {
				panic(err)
			}
		})
		thread.Wait()
		forever()
	}
}

// leave starts a process with the given role, in one of the ways in which processes can evade their
// container. It returns when the process has printed its pid.
func leave(how, role string) {
	ready, tell, err := os.Pipe()
	if err != nil {
		panic(err)
	}
	cmd := exec.Command(os.Args[0])
	if how != "fork" {
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	}
	switch how {
	case "twice": // the process forks a second time, so init becomes the parent
		role = "leave-twice setsid"
	case "escape": // as in the case "twice"; in addition, the process does not get the mark
		os.Unsetenv("SWANSONG_PROC")
		role = "leave-twice setsid"
	}
	cmd.Env = append(os.Environ(), asRole+"="+role)
	cmd.Stdout = os.Stdout
	cmd.ExtraFiles = []*os.File{tell}
	switch os.Getenv("UNTIL") {
	case "3": // the process has inherited file descriptor 3 from the test
		cmd.ExtraFiles = append(cmd.ExtraFiles, os.NewFile(3, "until"))
		cmd.Env = append(cmd.Env, "UNTIL=4")
	case "4":
		cmd.ExtraFiles = append(cmd.ExtraFiles, os.NewFile(4, "until"))
	}
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	tell.Close()
	io.Copy(io.Discard, ready)
	if how == "twice" || how == "escape" {
		cmd.Wait() // wait, because the process closes its pipe shortly before it exits
	}
}

// alive reports whether a thread of a process is running. A zombie does not count.
func alive(pid int) bool {
	threads, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	return slices.ContainsFunc(threads, func(t os.DirEntry) bool {
		return !strings.Contains("XZ", stateOf(fmt.Sprintf("%d/task/%s", pid, t.Name())))
	})
}

// stateOf returns the state of the process or thread with the given directory in /proc, such as "R"
// for a running one. It returns "" if there is none.
func stateOf(dir string) string {
	text, _ := os.ReadFile("/proc/" + dir + "/stat")
	_, rest, _ := strings.Cut(string(text), ") ")
	state, _, _ := strings.Cut(rest, " ")
	return state
}

// eachContainment runs a test with every kind of containment that this machine offers.
func eachContainment(t *testing.T, test func(t *testing.T, contain func(proc.Spec) proc.Spec)) {
	t.Run("walk", func(t *testing.T) {
		test(t, func(s proc.Spec) proc.Spec { s.NoCgroup = true; return s })
	})
	t.Run("cgroup", func(t *testing.T) {
		if kind := start(t, self("exit 0")).Containment(); kind != "cgroup" {
			t.Skip("no cgroup of version 2 can be made here")
		}
		test(t, func(s proc.Spec) proc.Spec { return s })
	})
}

// A walk through /proc sees every process that was started before it began, even while other
// goroutines walk continuously.
func TestWalkOfProc_FindsEveryProcessStartedBeforeIt(t *testing.T) {
	var lookers sync.WaitGroup
	for range 8 {
		lookers.Go(func() {
			for range 40 {
				cmd := exec.Command("true")
				if err := cmd.Start(); err != nil {
					t.Error(err)
					return
				}
				if !proc.Listed(cmd.Process.Pid) { // a process that has exited is listed as a zombie
					t.Errorf("the process with pid %d was started, but is not listed", cmd.Process.Pid)
				}
				cmd.Wait()
			}
		})
	}
	lookers.Wait()
}

// A process without an environment might be in the middle of an exec, so a walk through /proc waits
// for the environment. After a while it stops waiting.
func TestWalkOfProc_StopsWaitingForProcessWithEmptyEnvironment(t *testing.T) {
	spec := self("wait")
	spec.NoCgroup = true
	p := start(t, spec)
	readLine(t, p)
	bare := exec.Command("sleep", "60")
	bare.Env = []string{}
	if err := bare.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { bare.Process.Kill(); bare.Wait() }()
	for end := time.Now().Add(tooLong); p.Unsure(); {
		if time.Now().After(end) {
			t.Fatal("the walk still waits for the environment of a process that has none")
		}
	}
}

// A walk through /proc has stopped waiting for the environment of a process that had none. When the
// process has executed another program, and has no environment then either, the walk waits again.
func TestWalkOfProc_WaitsForEnvironmentOfProcessThatHasCalledExec(t *testing.T) {
	spec := self("wait")
	spec.NoCgroup = true
	p := start(t, spec)
	readLine(t, p)
	bare := exec.Command("sh", "-c", `read x; exec env -i A=1 sh -c "echo; read x; exec env -i sleep 60"`)
	bare.Env = []string{}
	in, out := pipes(t, bare)
	if err := bare.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { bare.Process.Kill(); bare.Wait() }()
	until := func(what string, done func() bool) {
		for end := time.Now().Add(tooLong); !done(); {
			if time.Now().After(end) {
				t.Fatal(what)
			}
		}
	}
	until("the walk still waits for the environment of the process", func() bool { return !p.Unsure() })
	in.Write([]byte("\n"))
	out.Read(make([]byte, 1))
	until("the process has an environment, and the walk still waits for it", func() bool { return !p.Unsure() })
	in.Write([]byte("\n"))
	until("the process does not execute sleep", func() bool {
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", bare.Process.Pid))
		return string(name) == "sleep\n"
	})
	if !p.Unsure() {
		t.Error("a process in the middle of an exec is taken for one that never had an environment")
	}
}

func pipes(t *testing.T, cmd *exec.Cmd) (io.Writer, io.Reader) {
	t.Helper()
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := cmp.Or(err1, err2); err != nil {
		t.Fatal(err)
	}
	return in, out
}

func TestEnd_EscalatesToSIGKILL(t *testing.T) {
	eachContainment(t, func(t *testing.T, contain func(proc.Spec) proc.Spec) {
		for _, test := range []struct {
			role string
			want syscall.Signal
			kill bool
		}{
			{"wait", syscall.SIGTERM, false},
			{"ignore", syscall.SIGKILL, true},
			{"stopped", syscall.SIGTERM, false}, // because of SIGCONT, the stopped process receives SIGTERM
		} {
			t.Run(test.role, func(t *testing.T) {
				p := start(t, contain(self(test.role)))
				readLine(t, p)
				at := proc.Deadlines{Kill: time.Now().Add(tooLong), GiveUp: time.Now().Add(2 * tooLong)}
				if test.kill {
					at.Kill = time.Now()
				}
				exit, err := p.End(at)
				if err != nil || exit.Signal != test.want || exit.Killed != test.kill || !exit.Terminated {
					t.Errorf("exit %+v, error %v; want signal %v", exit, err, test.want)
				}
			})
		}
	})
}

// If the deadline for SIGKILL is not later than that for SIGTERM, End sends only SIGKILL.
func TestEnd_SendsOnlySIGKILLIfItIsDueNoLaterThanSIGTERM(t *testing.T) {
	eachContainment(t, func(t *testing.T, contain func(proc.Spec) proc.Spec) {
		p := start(t, contain(self("wait")))
		readLine(t, p)
		exit, err := p.End(proc.Deadlines{GiveUp: time.Now().Add(tooLong)})
		if err != nil || exit.Signal != syscall.SIGKILL || exit.Terminated {
			t.Errorf("exit %+v, error %v; want SIGKILL alone", exit, err)
		}
	})
}

// A slow search for members delays neither SIGKILL nor the return of End. The error of End then
// lists the processes that are known without the search. The test holds up the search.
func TestEnd_ReturnsAtDeadlineEvenIfSearchForDescendantsIsSlow(t *testing.T) {
	p := start(t, self("ignore"))
	readLine(t, p)
	finishSearch := p.BlockSearches()
	exit, err := p.End(proc.Deadlines{Kill: time.Now(), GiveUp: time.Now().Add(10 * time.Millisecond)})
	if !errors.Is(err, proc.ErrUnconfirmed) || !exit.Killed {
		t.Errorf("%+v, %v; want ErrUnconfirmed after SIGKILL", exit, err)
	}
	<-p.Exited() // SIGKILL has been sent
	finishSearch()
	if exit := awaitDone(t, p); exit.Signal != syscall.SIGKILL {
		t.Errorf("the process ended with %v", exit)
	}
}

// Kill reaches a process that has left the process group of the leader, and has cleared its
// environment, without a search: it is a descendant of the leader.
func TestKill_ReachesDescendantOutsideProcessGroupWithoutSearch(t *testing.T) {
	until, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer until.Close()
	spec := self("leave-unmarked")
	spec.NoCgroup = true
	spec.ExtraFiles = []*os.File{theirs}
	p := start(t, spec)
	theirs.Close()
	readLine(t, p)
	finishSearch := p.BlockSearches()
	p.Kill()
	until.SetReadDeadline(time.Now().Add(tooLong))
	// io.EOF means that no process has the other end of the pipe open.
	if _, err := until.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the descendant is still running: %v", err)
	}
	finishSearch()
	awaitDone(t, p)
}

// If a search for a signal is queued already, a further call with the same signal queues no second
// search, because that would delay the reap.
func TestKill_ManyCallsShareOneSearchForDescendants(t *testing.T) {
	spec := self("wait")
	spec.NoCgroup = true
	p := start(t, spec)
	readLine(t, p)
	finishSearch := p.BlockSearches()
	for range 100 {
		p.Kill()
	}
	finishSearch()
	awaitDone(t, p)
	// Three searches are enough: one for the signal of all calls of Kill, one that finds the
	// processes that the leader has left behind, and one that finds none left.
	if n := p.Searches(); n > 3 {
		t.Errorf("a hundred signals took %d searches", n)
	}
}

// awaitEnd waits until a process that is not a child of this program has ended. If that takes too
// long, awaitEnd fails the test and kills the process.
func awaitEnd(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(tooLong); alive(pid); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Errorf("the process with pid %d is still running", pid)
			syscall.Kill(pid, syscall.SIGKILL)
			return
		}
	}
}

// A process that was found once is ended with the others, even if later searches do not find it.
// The test uses a process that no search can find.
func TestProcess_EndsDescendantFoundOnceThatLaterSearchesMiss(t *testing.T) {
	eachContainment(t, func(t *testing.T, contain func(proc.Spec) proc.Spec) {
		spec := contain(self("echo"))
		spec.Linger = -1
		p, other := start(t, spec), start(t, self("wait"))
		p.Remember(other.Pid())
		p.Stdin().Close()
		exit := awaitDone(t, p)
		if alive(other.Pid()) {
			t.Error("the process is still running")
		}
		if len(exit.Left) != 1 || exit.Left[0].PID != other.Pid() {
			t.Errorf("left: %v, want pid %d", exit.Left, other.Pid())
		}
	})
}

// A search after the call of Kill may find a member that Kill did not know. It must be killed
// before its end is awaited; otherwise the wait would last until its limit. In the test, Remember
// adds such a member, a process that the searches themselves do not find.
func TestKill_AlsoKillsDescendantThatOnlyLaterSearchFinds(t *testing.T) {
	eachContainment(t, func(t *testing.T, contain func(proc.Spec) proc.Spec) {
		spec, started, other := contain(self("wait")), make(chan *proc.Process, 1), start(t, self("wait"))
		spec.OnLeaderExit = func() {
			p := <-started
			p.SetFirstWait(time.Hour) // on a busy machine the end of a member can take longer than a second
			p.Remember(other.Pid())
		}
		p := start(t, spec)
		started <- p
		// Kill can now send no signal to the processes that a search finds. So only the goroutine
		// that waits for p can send SIGKILL to the process other.
		finishSearch := p.BlockSearches()
		p.Kill()
		if exit := awaitDone(t, other); exit.Signal != syscall.SIGKILL {
			t.Errorf("the member ended with %v, want SIGKILL", exit)
		}
		finishSearch()
		if exit := awaitDone(t, p); len(exit.Left) > 0 {
			t.Errorf("the member was still running when the wait for it was over: %v", exit.Left)
		}
	})
}

// A process whose main thread has ended is alive as long as it has other threads, although /proc
// shows it as a zombie without an environment.
func TestProcess_EndsProcessWhoseMainThreadHasEnded(t *testing.T) {
	eachContainment(t, func(t *testing.T, contain func(proc.Spec) proc.Spec) {
		spec := contain(self("leave twice exit"))
		spec.Env = append(spec.Env, "LEAF=headless")
		spec.Linger = -1
		p := start(t, spec)
		pid, err := strconv.Atoi(readLine(t, p))
		if err != nil {
			t.Fatal(err)
		}
		exit := awaitDone(t, p)
		if alive(pid) {
			t.Errorf("the process with pid %d is still running", pid)
			syscall.Kill(pid, syscall.SIGKILL)
		}
		if len(exit.Left) != 1 || exit.Left[0].PID != pid {
			t.Errorf("left: %v, want pid %d", exit.Left, pid)
		}
	})
}

// If a process has been reaped, End does not report it as unconfirmed, even if its cgroup is still
// being removed.
func TestEnd_ReturnsExitOfReapedProcessBeforeCgroupIsRemoved(t *testing.T) {
	p := start(t, self("exit 3"))
	awaitDone(t, p)
	exit, err := p.NotDone().End(proc.Deadlines{})
	if err != nil || exit.Code != 3 {
		t.Errorf("%+v, %v; want code 3", exit, err)
	}
}

// When a Process is done, no process that its leader left behind is still running, however the
// leader ended.
func TestProcess_WhenDoneNoDescendantIsLeft(t *testing.T) {
	eachContainment(t, func(t *testing.T, contain func(proc.Spec) proc.Spec) {
		for _, how := range []string{"fork", "setsid", "twice"} {
			for _, leader := range []string{"exit", "read", "wait"} {
				t.Run(how+"/"+leader, func(t *testing.T) {
					spec := contain(self("leave " + how + " " + leader))
					spec.Linger = -1 // the process ignores SIGTERM, so do not wait for it to exit
					p := start(t, spec)
					pid, err := strconv.Atoi(readLine(t, p))
					if err != nil {
						t.Fatal(err)
					}
					switch leader {
					case "read":
						if !alive(pid) {
							t.Error("the process ended before the leader did")
						}
						p.Stdin().Close()
					case "wait":
						p.End(soon())
					}
					exit := awaitDone(t, p)
					if alive(pid) {
						t.Errorf("the process with pid %d is still running", pid)
					}
					if len(exit.Survivors) != 0 {
						t.Errorf("survivors: %v", exit.Survivors)
					}
					// In the case "wait", End may kill the leader and the process that it leaves
					// by one write to cgroup.kill. Either may end first, so the process that the
					// leader leaves is in Left or not.
					if leader != "wait" && (len(exit.Left) != 1 || exit.Left[0].PID != pid) {
						t.Errorf("left: %v, want pid %d", exit.Left, pid)
					}
				})
			}
		}
	})
}

// Processes that the leader leaves behind receive SIGTERM and then have the time Linger to exit.
func TestProcess_DescendantsThatOutliveProcessGetTimeBetweenSIGTERMAndSIGKILL(t *testing.T) {
	eachContainment(t, func(t *testing.T, contain func(proc.Spec) proc.Spec) {
		roleOf := func(s string) proc.Spec { spec := contain(self(s)); spec.Linger = time.Hour; return spec }
		p := start(t, roleOf("leave-polite"))
		readLine(t, p)
		exit := awaitDone(t, p) // the process ends long before Linger is over
		if len(exit.Left) != 1 || len(exit.Survivors) != 0 {
			t.Errorf("%+v", exit)
		}
	})
}

func init() {
	roles["leave-polite"] = func([]string) { leave("fork", "polite") }
}

// Members lists the processes that are alive. Exited is closed when the leader exits, and Done only
// when the other processes have ended, too.
func TestProcess_MembersListsLivingProcesses(t *testing.T) {
	eachContainment(t, func(t *testing.T, contain func(proc.Spec) proc.Spec) {
		spec := contain(self("leave fork read"))
		spec.Linger = time.Hour
		p := start(t, spec)
		pid, _ := strconv.Atoi(readLine(t, p))
		var pids []int
		for _, m := range p.Members() {
			pids = append(pids, m.PID)
		}
		if len(pids) != 2 || pids[0] != p.Pid() || pids[1] != pid {
			t.Errorf("members %v, want the leader %d and %d", pids, p.Pid(), pid)
		}
		p.Stdin().Close()
		<-p.Exited()
		select {
		case <-p.Done():
			t.Error("Done was closed while a process had time left to exit")
		default:
		}
		if m := p.Members(); len(m) != 1 || m[0].PID != pid {
			t.Errorf("members %v, want %d alone", m, pid)
		}
		if err := syscall.Kill(p.Pid(), 0); err != nil { // kill also succeeds if the leader is a zombie
			t.Errorf("the leader was reaped although its group has members: %v", err)
		}
		p.Kill()
		if exit := awaitDone(t, p); exit.Killed {
			t.Errorf("the leader had ended before the kill: %+v", exit)
		}
		if len(p.Members()) != 0 {
			t.Errorf("members after the end: %v", p.Members())
		}
	})
}

// If a grandchild has escaped and keeps the pipe open, the reader is not blocked, and no output is
// lost.
func TestOutput_ReaderEndsEvenIfEscapedGrandchildKeepsPipeOpen(t *testing.T) {
	until, end, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	spec := self("leave escape exit")
	spec.NoCgroup = true
	spec.Env = append(spec.Env, "UNTIL=3")
	spec.ExtraFiles = []*os.File{until}
	p := start(t, spec)
	until.Close()
	text, err := io.ReadAll(p.Stdout()) // the grandchild prints its pid and keeps the pipe open
	if err != nil {
		t.Error(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || !alive(pid) {
		t.Errorf("%q should be the pid of the escaped process: %v", text, err)
	}
	if exit := awaitDone(t, p); exit.Code != 0 || len(exit.Survivors) != 0 {
		t.Errorf("%+v", exit)
	}
	end.Close()
}

// The child lives as long as its parent and is killed when the parent dies, although the parent's
// thread that started it has ended before.
func TestProcess_IsKilledWhenParentDies(t *testing.T) {
	until, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer until.Close()
	spec := self("parent")
	spec.NoCgroup = true
	spec.ExtraFiles = []*os.File{theirs}
	parent := start(t, spec)
	theirs.Close()
	if got := readLine(t, parent); got != "ready" {
		t.Fatalf("the child printed %q", got)
	}
	for range 3 { // the child still answers, although the thread that called Start has ended
		fmt.Fprintln(parent.Stdin(), "ping")
		if got := readLine(t, parent); got != "ping" {
			t.Fatalf("the child printed %q", got)
		}
	}
	parent.Signal(syscall.SIGKILL)
	// io.Copy returns when the child is dead and the kernel has closed the child's end of the pipe.
	io.Copy(io.Discard, until)
	awaitDone(t, parent)
}

// If a process is not known to have ended when End gives up, End returns ErrUnconfirmed. The test
// gives the process no time to end. It can nevertheless end before End gives up, so the test makes
// up to a hundred attempts.
func TestEnd_ReturnsErrUnconfirmedIfProcessRunsAtGiveUpDeadline(t *testing.T) {
	for range 100 {
		p := start(t, self("ignore"))
		readLine(t, p)
		exit, err := p.End(proc.Deadlines{})
		if err == nil {
			continue
		}
		if !errors.Is(err, proc.ErrUnconfirmed) || exit.Status != "" || exit.Code != -1 {
			t.Errorf("%+v, %v; want ErrUnconfirmed", exit, err)
		}
		if exit := awaitDone(t, p); exit.Signal != syscall.SIGKILL {
			t.Errorf("the process ended later, with %v", exit)
		}
		return
	}
	t.Error("each of a hundred processes ended before End gave up")
}

// If one scan of /proc misses a process, the next scan finds it. The test replaces the scans,
// because it cannot control which scan misses which process.
func TestWalkOfProc_FindsProcessThatFirstReadingOfProcMissed(t *testing.T) {
	type scan struct {
		found  []int
		unsure bool
	}
	const leader, child, other = 1, 2, 3
	none, alone := scan{}, scan{found: []int{leader}}
	for _, test := range []struct {
		name  string
		scans []scan // the result of each scan; all further scans have the last result
		want  []int
		after int // after how many scans the search must end
	}{
		{"the first scan finds the leader and a child", []scan{{found: []int{leader, child}}}, []int{leader, child}, 1},
		{"the first scan misses the child of a process that has just ended", []scan{none, {found: []int{child}}}, []int{child}, 2},
		{"the first scan misses a child of the leader", []scan{alone, {found: []int{leader, child}}}, []int{leader, child}, 2},
		{"two scans find no process", []scan{none, none}, nil, 2},
		{"two scans find the leader only", []scan{alone, alone}, []int{leader}, 2},
		{"a process has no environment during the first scan", []scan{{found: []int{child}, unsure: true}, {found: []int{child, other}}}, []int{child, other}, 2},
		{"the second scan cannot read an environment", []scan{none, {unsure: true}, none, {found: []int{other}}}, nil, 3},
		{"a process never has an environment", []scan{{found: []int{child}, unsure: true}}, []int{child}, proc.MaxScans},
	} {
		t.Run(test.name, func(t *testing.T) {
			scans := 0
			var got []int
			for _, m := range proc.Walk(func() (found []proc.Member, unsure bool) {
				l := test.scans[min(scans, len(test.scans)-1)]
				scans++
				for _, pid := range l.found {
					found = append(found, proc.Member{PID: pid})
				}
				return found, l.unsure
			}, func(m proc.Member) bool { return m.PID == leader }) {
				got = append(got, m.PID)
			}
			if scans != test.after || !slices.Equal(got, test.want) {
				t.Errorf("after %d scans %v, want %v after %d", scans, got, test.want, test.after)
			}
		})
	}
}

// TestStress_LeavesNoProcess starts processes in 84 combinations: they differ in what the process
// does, how it is contained and when it is ended. Many are ended at random times, between a fork
// and the following exec. No process may be left.
func TestStress_LeavesNoProcess(t *testing.T) {
	token := rand.Text()
	var all sync.WaitGroup
	slots := make(chan struct{}, 4)
	for i := range 84 {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			spec := self([]string{"leave twice exit", "exit 7", "leave twice exit", "ignore", "leave twice wait", "wait", "leave fork exit"}[i%7])
			spec.Env = append(spec.Env, "STRESS="+token)
			spec.NoCgroup, spec.Linger = i%4 > 0, -1
			p, err := proc.Start(spec)
			if err != nil {
				t.Error(err)
				return
			}
			defer p.Close()
			if i%3 == 0 {
				io.ReadFull(p.Stdout(), make([]byte, 1))
			} else {
				time.Sleep(time.Duration(mathrand.IntN(10_000)) * time.Microsecond) // wait until a random time in the life of the process
			}
			if exit, err := p.End(soon()); err != nil || len(exit.Survivors) > 0 {
				t.Errorf("%+v, %v", exit, err)
			}
		})
	}
	all.Wait()
	for _, pid := range withVariable("STRESS=" + token) {
		t.Errorf("pid %d has survived", pid)
		syscall.Kill(pid, syscall.SIGKILL)
	}
}

// withVariable returns the processes whose environment contains the given variable.
func withVariable(variable string) (pids []int) {
	dirs, _ := os.ReadDir("/proc")
	for _, d := range dirs {
		env, _ := os.ReadFile("/proc/" + d.Name() + "/environ")
		if pid, err := strconv.Atoi(d.Name()); err == nil && strings.Contains(string(env), variable) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// After SIGKILL, End searches /proc to confirm that all processes have ended. If such searches are
// slow, End sends SIGKILL earlier than the deadline Kill says, so that the last search ends before
// the deadline GiveUp. The test sets how long a search has taken.
func TestEnd_SendsSIGKILLEarlierIfSearchesForDescendantsAreSlow(t *testing.T) {
	spec := self("ignore")
	spec.NoCgroup = true
	p := start(t, spec)
	readLine(t, p)
	p.SetSlowest(tooLong)
	now := time.Now()
	exit, err := p.End(proc.Deadlines{Terminate: now, Kill: now.Add(4 * tooLong), GiveUp: now.Add(5 * tooLong)})
	if err != nil || exit.Signal != syscall.SIGKILL || time.Since(now) >= 4*tooLong {
		t.Errorf("%+v, %v after %v; want SIGKILL before its time", exit, err, time.Since(now))
	}
}

// After Kill, the processes that the leader has left behind are killed at once, and get no time to
// exit.
func TestKill_AtOnceKillsProcessesThatLeaderHasLeftBehind(t *testing.T) {
	spec := self("wait")
	spec.NoCgroup, spec.Linger = true, time.Hour
	p := start(t, spec)
	readLine(t, p)
	// The process that is left behind is started by a process that does not descend from the
	// leader. So it is no descendant of the leader, and only the search that the waiter makes finds
	// it.
	other := start(t, self("marked "+p.Identity().Mark))
	pid, err := strconv.Atoi(readLine(t, other))
	if err != nil {
		t.Fatal(err)
	}
	finishSearch := p.BlockSearches()
	p.Kill()
	awaitEnd(t, pid)
	finishSearch()
	if exit := awaitDone(t, p); len(exit.Survivors) > 0 {
		t.Errorf("survivors: %v", exit.Survivors)
	}
}

// All processes with a parent-death signal are children of one OS thread. The thread ends when the
// last of them has ended: otherwise goleak would report the goroutine of that thread at the end of
// the tests.
func TestStart_OneThreadForksAllProcessesWithParentDeathSignal(t *testing.T) {
	const n = 8
	started := make(chan *proc.Process, n)
	for range n {
		go func() {
			spec := self("echo")
			spec.ParentDeath = syscall.SIGKILL
			p, err := proc.Start(spec)
			if err != nil {
				t.Error(err)
			}
			started <- p
		}()
	}
	var all []*proc.Process
	for range n {
		if p := <-started; p != nil {
			all = append(all, p)
		}
	}
	parents := map[string]int{}
	for _, p := range all {
		files, _ := filepath.Glob("/proc/self/task/*/children")
		for _, name := range files {
			children, _ := os.ReadFile(name)
			if slices.Contains(strings.Fields(string(children)), strconv.Itoa(p.Pid())) {
				parents[name]++
			}
		}
	}
	if len(parents) != 1 {
		t.Errorf("threads with the number of their children: %v; want one with %d", parents, n)
	}
	for _, p := range all {
		p.Stdin().Close()
		awaitDone(t, p)
		p.Close()
	}
}
