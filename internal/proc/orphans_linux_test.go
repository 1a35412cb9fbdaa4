package proc_test

import (
	"bufio"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/swansong-go/swansong/internal/proc"
	"github.com/swansong-go/swansong/internal/testkit"
)

func init() {
	// The role "owner" makes an empty cgroup in a directory, prints the path of the cgroup, and
	// waits. The argument is the directory.
	roles["owner"] = func(args []string) {
		containment := containmentBelow(args)
		containment.Make()
		fmt.Println(containment.Cgroup)
		forever()
	}
	// The role "client" starts a process that must die with it. That process starts another one,
	// which leaves its group and inherits file descriptor 3. The first argument is "cgroup" or
	// "walk", the way in which descendants are found. The second one is the directory of the
	// cgroup, or a namespace for the walk; see randomNamespace.
	roles["client"] = func(args []string) {
		spec := self("leave-unmarked")
		spec.In.Cgroup = args[1]
		if args[0] == "walk" {
			proc.SetNamespace(args[1])
			spec = self("leave-marked")
			spec.NoCgroup = true
		}
		spec.ParentDeath, spec.ExtraFiles = syscall.SIGKILL, []*os.File{os.NewFile(3, "held")}
		p, err := proc.Start(spec)
		if err != nil {
			panic(err)
		}
		line, _ := bufio.NewReader(p.Stdout()).ReadString('\n')
		fmt.Print(line)
		forever()
	}
	// The role "next" is a program that starts a process without a cgroup. The argument is its
	// namespace; see randomNamespace.
	roles["next"] = func(args []string) {
		proc.SetNamespace(args[0])
		spec := self("exit 0")
		spec.ParentDeath, spec.NoCgroup = syscall.SIGKILL, true
		p, err := proc.Start(spec)
		if err != nil {
			panic(err)
		}
		<-p.Done()
	}
	// In the role "scan-twice" the test binary starts an orphan and calls KillOrphansIn. It starts
	// another orphan just before KillOrphansIn lists the processes for the second time. It prints
	// how each of the two has ended. The argument is its namespace; see randomNamespace.
	roles["scan-twice"] = func(args []string) {
		proc.SetNamespace(args[0])
		orphans, scans := []*exec.Cmd{mustStartOrphan(args[0])}, 0
		proc.KillOrphansIn(func() []int {
			if scans++; scans == 2 {
				orphans = append(orphans, mustStartOrphan(args[0]))
			}
			return proc.PIDs()
		})
		for _, cmd := range orphans {
			cmd.Process.Signal(syscall.SIGTERM) // ends the process unless it has received SIGKILL before
			fmt.Println(cmd.Wait())
		}
	}
	// In the role "scan-often" the test binary calls KillOrphansIn. Whenever KillOrphansIn lists
	// the processes, the test binary starts a new orphan, and this is the only process in the list.
	// It prints how often KillOrphansIn has listed the processes. The argument is its namespace;
	// see randomNamespace.
	roles["scan-often"] = func(args []string) {
		proc.SetNamespace(args[0])
		scans := 0
		proc.KillOrphansIn(func() []int {
			scans++
			cmd := mustStartOrphan(args[0])
			go cmd.Wait()
			return []int{cmd.Process.Pid}
		})
		fmt.Println(scans)
	}
	// The role "blind" makes the test binary unable to open files. Its argument is a mark, which
	// names a program. The role prints the result of OwnerIsDead for this mark: whether that
	// program is dead.
	roles["blind"] = func(args []string) {
		// The first call of OwnerIsDead reads the start time and the namespaces of this process
		// from /proc and keeps them. The second call compares the kept values with those in the
		// mark. It could not read them itself, because this process can open no files by then.
		proc.OwnerIsDead(args[0])
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{}); err != nil {
			panic(err)
		}
		fmt.Println(proc.OwnerIsDead(args[0]))
	}
	// The role "judge" prints whether OwnerIsDead takes a program for dead if no process has the
	// pid of the program.
	roles["judge"] = func([]string) {
		namespaces := proc.Owner()[strings.LastIndexByte(proc.Owner(), '-')+1:]
		fmt.Println(proc.OwnerIsDead("4194305-1-" + namespaces + "-RANDOM"))
	}
}

// Starting a process removes the empty cgroups of programs that were killed, and no cgroup of a
// program that is running.
func TestStart_RemovesCgroupsOfDeadPrograms(t *testing.T) {
	withContainments(t, func(t *testing.T, kind string) {
		if kind != "cgroup" {
			return
		}
		next := self("exit 0")
		next.In = ownDirectory(t)
		owner := start(t, self("owner "+next.In.Cgroup))
		path := readLine(t, owner)
		awaitDone(t, start(t, next))
		if _, err := os.Stat(path); err != nil {
			t.Errorf("the cgroup of a running program was removed: %v", err)
		}
		owner.Signal(syscall.SIGKILL)
		awaitDone(t, owner)
		awaitDone(t, start(t, next))
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the cgroup of a program that was killed still exists: %v", err)
		}
	})
}

// A program starts a process that must die with it, and is killed. The next program that starts a
// process kills the processes that are left in the cgroup of that process, or that carry its mark.
func TestStart_KillsProcessesThatDeadProgramLeft(t *testing.T) {
	withContainments(t, func(t *testing.T, kind string) {
		held, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer held.Close()
		where := randomNamespace()
		next := self("next " + where)
		if kind == "cgroup" {
			next = self("exit 0")
			next.In = ownDirectory(t)
			where = next.In.Cgroup
		}
		runUntilKilled(t, "client "+kind+" "+where, w)
		awaitDone(t, start(t, next))
		held.SetReadDeadline(time.Now().Add(tooLong))
		if _, err := held.Read(make([]byte, 1)); err != io.EOF { // io.EOF: all processes that have inherited the pipe are dead
			t.Errorf("a process that the client has left behind is still running: %v", err)
		}
	})
}

// randomNamespace returns a name that the programs of one test use in place of the id of their pid
// namespace. Programs outside of the test take the processes that the first program leaves behind
// for those of another namespace, and do not kill them.
func randomNamespace() string { return strings.ToLower(rand.Text()) }

// runUntilKilled runs the test binary in a role, kills it when it has printed a line, and returns
// the line. It does not use package proc, which would also contain and end the processes that the
// role starts. It closes the given files.
func runUntilKilled(t *testing.T, role string, files ...*os.File) string {
	t.Helper()
	spec := self(role)
	cmd := exec.Command(spec.Args[0])
	cmd.Env, cmd.ExtraFiles = spec.Env, files
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	for _, f := range files {
		f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Errorf("%s: %q, %v", role, line, err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	return line
}

// Starting a process does not kill processes that may outlive the program that has started them,
// because a new launcher adopts such processes.
func TestStart_DoesNotKillProcessesThatMayOutliveTheirProgram(t *testing.T) {
	withContainments(t, func(t *testing.T, kind string) {
		if kind != "cgroup" {
			return
		}
		var orphan proc.Adoptable
		next := self("exit 0")
		next.In = ownDirectory(t)
		if err := json.Unmarshal([]byte(runUntilKilled(t, "keeper "+kind+" "+next.In.Cgroup)), &orphan); err != nil {
			t.Fatal(err)
		}
		awaitDone(t, start(t, next))
		if !orphan.Alive() {
			t.Error("the process was killed")
		}
		orphan.Empty(time.Now().Add(tooLong))
	})
}

// When a program starts a process, it also kills processes that a dead program has left behind. It
// kills only those that belong to the same user, and whose last mark names a dead program of the
// same namespaces.
func TestStart_KillsOnlyProcessesThatShouldHaveDiedWithDeadProgram(t *testing.T) {
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	zombie := exec.Command("true")
	if err := zombie.Start(); err != nil {
		t.Fatal(err)
	}
	defer zombie.Wait()
	if err := proc.AwaitZombie(zombie.Process.Pid); err != nil {
		t.Fatal(err)
	}
	ns := randomNamespace()
	mark := func(pid int, born uint64, ns string) string { return fmt.Sprintf("%d-%d-%s-RANDOM", pid, born, ns) }
	here := proc.Self()
	ofDead, ofThis := mark(dead.Process.Pid, 1, ns), mark(here.PID, here.Born, ns)
	type orphan struct {
		marks string
		user  uint32
	}
	orphans := map[string]orphan{
		"of a dead program":                         {marks: ofDead},
		"of a dead program whose pid is reused":     {marks: mark(here.PID, here.Born-1, ns)},
		"of a dead program that is a zombie":        {marks: mark(zombie.Process.Pid, proc.BornOf(zombie.Process.Pid), ns)},
		"of a dead program below a living one":      {marks: ofThis + " " + ofDead},
		"of a living program":                       {marks: ofThis},
		"of a living program below a dead one":      {marks: ofDead + " " + ofThis},
		"of a program in another namespace":         {marks: mark(dead.Process.Pid, 1, "1")},
		"that may outlive its program":              {marks: "RANDOM"},
		"that may outlive its program below a dead": {marks: ofDead + " RANDOM"},
		"without a mark":                            {},
	}
	if os.Geteuid() == 0 {
		orphans["of another user"] = orphan{ofDead, 65534}
	}
	running := map[string]*exec.Cmd{}
	for name, o := range orphans {
		cmd, err := startMarked(o.marks, o.user)
		if err != nil {
			t.Fatal(err)
		}
		defer cmd.Process.Kill()
		running[name] = cmd
	}
	awaitDone(t, start(t, self("next "+ns)))
	got, want := map[string]string{}, map[string]string{}
	for name, cmd := range running {
		cmd.Process.Signal(syscall.SIGTERM) // ends the process unless it has received SIGKILL before
		got[name], want[name] = fmt.Sprint(cmd.Wait()), "signal: terminated"
		if strings.HasPrefix(name, "of a dead program") {
			want[name] = "signal: killed"
		}
	}
	testkit.Equal(t, "ends", got, want)
}

// startMarked starts a process with the given marks, which waits for its stdin to end, as another
// user if user is not 0. It returns once the process runs its program.
func startMarked(marks string, user uint32) (*exec.Cmd, error) {
	cmd := exec.Command("sh", "-c", "echo ready; read line") // not the test binary, which another user may not execute
	cmd.Env = append(os.Environ(), proc.MarkVariable+"="+marks)
	if user != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		_, err = cmd.StdinPipe()
	}
	if err == nil {
		err = cmd.Start()
	}
	if err == nil {
		_, err = io.ReadFull(out, make([]byte, len("ready\n")))
	}
	return cmd, err
}

// mustStartOrphan starts a process with the mark of a dead program: one that had the pid of this
// program, but was started earlier.
func mustStartOrphan(ns string) *exec.Cmd {
	cmd, err := startMarked(fmt.Sprintf("%d-1-%s-RANDOM", os.Getpid(), ns), 0)
	if err != nil {
		panic(err)
	}
	return cmd
}

// A process whose main thread has ended is killed like others that a dead program has left behind,
// although /proc shows it without an environment.
func TestStart_KillsLeftProcessWhoseMainThreadHasEnded(t *testing.T) {
	ns := randomNamespace()
	spec := self("headless polite")
	orphan := exec.Command(spec.Args[0])
	orphan.Env = append(spec.Env, fmt.Sprintf("%s=%d-1-%s-RANDOM", proc.MarkVariable, os.Getpid(), ns))
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	orphan.Stdout, orphan.ExtraFiles = w, []*os.File{w}
	err = orphan.Start()
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(r).ReadString('\n'); err != nil {
		t.Error(err)
	}
	awaitDone(t, start(t, self("next "+ns)))
	orphan.Process.Signal(syscall.SIGTERM) // ends the process if it has not received SIGKILL before
	testkit.Equal(t, "end", fmt.Sprint(orphan.Wait()), "signal: killed")
}

// The search for what dead programs have left ends, even if they start new processes faster than
// these are killed.
func TestStart_ReturnsEvenIfProcessesToBeKilledStartNewOnes(t *testing.T) {
	scans := readLine(t, start(t, self("scan-often "+randomNamespace())))
	testkit.Equal(t, "scans", scans, strconv.Itoa(proc.MaxScans))
}

// Start kills the processes that a dead program has left. If one more of them is started while
// Start lists them, Start kills that one as well.
func TestStart_KillsOrphanThatIsStartedWhileOrphansAreListed(t *testing.T) {
	p := start(t, self("scan-twice "+randomNamespace()))
	out, err := io.ReadAll(p.Stdout())
	if err != nil {
		t.Fatal(err)
	}
	testkit.Equal(t, "ends", string(out), "signal: killed\nsignal: killed\n")
}

// A program that starts a process kills what dead programs have left. If it carries the mark of a
// dead program itself, it does not kill itself.
func TestStart_DoesNotKillProgramThatCallsIt(t *testing.T) {
	ns := randomNamespace()
	spec := self("next " + ns)
	next := exec.Command(spec.Args[0])
	next.Env = append(spec.Env, fmt.Sprintf("%s=%d-1-%s-RANDOM", proc.MarkVariable, os.Getpid(), ns))
	if err := next.Run(); err != nil {
		t.Errorf("the program that has started a process: %v", err)
	}
}

// The mark of a bound process names the namespaces in which the pid and the start time of its
// program are valid. The start time of a running program is a different number in another time
// namespace.
func TestStart_MarkInEnvironmentNamesPidAndTimeNamespace(t *testing.T) {
	number := func(kind string) string {
		link, _ := os.Readlink("/proc/self/ns/" + kind)
		return strings.TrimSuffix(strings.TrimPrefix(link, kind+":["), "]")
	}
	spec := self("env " + proc.MarkVariable)
	spec.ParentDeath = syscall.SIGKILL
	marks := strings.Fields(readLine(t, start(t, spec)))
	here := proc.Self()
	want := fmt.Sprintf("%d-%d-%s.%s", here.PID, here.Born, number("pid"), number("time"))
	if got := marks[len(marks)-1]; got[:strings.LastIndexByte(got, '-')] != want {
		t.Errorf("the mark is %q, want one that begins with %q", got, want)
	}
}

// A program that has no file descriptor left cannot read from /proc whether another program runs.
// It does not take that program for dead.
func TestStart_TakesNoProgramForDeadIfFilesCannotBeOpened(t *testing.T) {
	dead, err := strconv.ParseBool(readLine(t, start(t, self("blind "+proc.Owner()+"-RANDOM"))))
	if err != nil || dead {
		t.Errorf("a program that runs is taken for dead: %v, %v", dead, err)
	}
}

// A program whose /proc shows another pid namespace knows nothing about other programs, so it
// concludes of none that it is dead.
func TestStart_TakesNoProgramForDeadIfProcShowsOtherPidNamespace(t *testing.T) {
	for _, flags := range []uintptr{0, syscall.CLONE_NEWPID} {
		spec := self("judge")
		cmd := exec.Command(spec.Args[0])
		cmd.Env, cmd.Stderr, cmd.SysProcAttr = spec.Env, os.Stderr, &syscall.SysProcAttr{Cloneflags: flags}
		out, err := cmd.Output()
		if errors.Is(err, syscall.EPERM) {
			t.Skip("this user may not create a pid namespace")
		}
		dead, _ := strconv.ParseBool(strings.TrimSpace(string(out)))
		if err != nil || dead != (flags == 0) {
			t.Errorf("flags %#x: taken for dead: %q, %v", flags, out, err)
		}
	}
}
