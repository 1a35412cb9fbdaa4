package proc_test

import (
	"bufio"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/swansong-go/swansong/internal/proc"
)

func init() {
	// The role "keeper" starts a child in a containment, prints what Adopt needs, and waits to be
	// killed. The second argument is the directory of the cgroup; see below.
	roles["keeper"] = func(args []string) {
		containment := containmentBelow(args[1:])
		if args[0] == "walk" {
			containment.Cgroup = ""
		}
		containment.Make()
		spec := self("forked twice")
		spec.In, spec.NoCgroup = containment, args[0] == "walk"
		p, err := proc.Start(spec)
		if err != nil {
			panic(err)
		}
		for lines := bufio.NewScanner(p.Stdout()); lines.Scan() && lines.Text() != "left"; {
		}
		json.NewEncoder(os.Stdout).Encode(p.Adoptable(containment))
		forever()
	}
	roles["forked"] = func(args []string) {
		signal.Ignore(syscall.SIGTERM)
		leave(args[0], "hidden")
		syscall.Wait4(-1, nil, 0, nil) // reaps the child of this process that has forked and exited
		fmt.Println("left")
		forever()
	}
}

// withContainments runs a test twice: with containments that have a cgroup, and with containments
// that have none.
func withContainments(t *testing.T, test func(t *testing.T, kind string)) {
	t.Run("walk", func(t *testing.T) { test(t, "walk") })
	t.Run("cgroup", func(t *testing.T) {
		containment := proc.NewContainment()
		containment.Make()
		_, err := os.Stat(containment.Cgroup)
		containment.Empty(time.Now())
		if err != nil {
			t.Skip("no cgroup of version 2 can be made here")
		}
		test(t, "cgroup")
	})
}

// containmentBelow returns a containment whose cgroup is in the first of dirs. If dirs is empty,
// the cgroup is beside the cgroups of all other programs.
func containmentBelow(dirs []string) proc.Containment {
	c := proc.NewContainment()
	if len(dirs) > 0 {
		c.Cgroup = filepath.Join(dirs[0], filepath.Base(c.Cgroup))
	}
	return c
}

// ownDirectory returns a containment whose cgroup is to contain the cgroups of a test. They cannot
// be in the directory of this program's cgroups: there, every program that starts a process removes
// the cgroups of dead programs.
func ownDirectory(t *testing.T) proc.Containment {
	c := proc.NewContainment()
	c.Make()
	t.Cleanup(func() { c.Empty(time.Now().Add(tooLong)) })
	return c
}

// startOrphan returns a process whose parent has been killed. The process ignores SIGTERM, and so
// does its child, which has a session of its own.
func startOrphan(t *testing.T, kind string) proc.Adoptable {
	t.Helper()
	spec := self("keeper " + kind)
	spec.NoCgroup = true
	spec.Linger = -1
	parent := start(t, spec)
	var k proc.Adoptable
	if err := json.Unmarshal([]byte(readLine(t, parent)), &k); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { k.Empty(time.Now().Add(tooLong)) })
	// Kill only the parent, with a plain SIGKILL. Ending it with the methods of its Process would
	// end the child, too.
	syscall.Kill(parent.Pid(), syscall.SIGSTOP)
	if !k.Alive() {
		t.Fatal("the child is not running")
	}
	return k
}

// markedPids returns the pids of the processes in a containment.
func markedPids(containment proc.Containment) []int { return withVariable(containment.Mark) }

// NewContainment only chooses names, and Make creates the cgroup. Between the two calls the caller
// can write the names to a file.
func TestNewContainment_CreatesNothingBeforeMake(t *testing.T) {
	withContainments(t, func(t *testing.T, kind string) {
		containment := proc.NewContainment()
		if kind == "walk" {
			containment.Cgroup = ""
		}
		there := func() bool { _, err := os.Stat(containment.Cgroup); return err == nil }
		if there() {
			t.Error("the cgroup exists before Make")
		}
		containment.Make()
		if want := kind == "cgroup"; there() != want {
			t.Errorf("the cgroup exists: %v, want %v", there(), want)
		}
		if left := containment.Empty(time.Now()); len(left) > 0 || there() {
			t.Errorf("processes left: %v; the cgroup exists: %v", left, there())
		}
	})
}

// Empty ends all processes of a containment without knowing a pid.
func TestEmpty_KillsEveryProcessInContainmentWithoutKnowingPids(t *testing.T) {
	withContainments(t, func(t *testing.T, kind string) {
		k := startOrphan(t, kind)
		if n := len(markedPids(k.Containment)); n != 2 {
			t.Fatalf("%d processes carry the mark, want the child and its grandchild", n)
		}
		if left := k.Containment.Empty(time.Now().Add(tooLong)); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
		if pids := markedPids(k.Containment); len(pids) > 0 {
			t.Errorf("these processes are still running: %v", pids)
		}
		if _, err := os.Stat(k.Cgroup); k.Cgroup != "" && !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the cgroup still exists: %v", err)
		}
	})
}

// Leader finds the process that was started in a containment.
func TestLeader_ReturnsProcessThatWasStartedInContainment(t *testing.T) {
	withContainments(t, func(t *testing.T, kind string) {
		k := startOrphan(t, kind)
		if got, ok := k.Containment.Leader(); !ok || got != k {
			t.Errorf("got %+v, %v; want %+v", got, ok, k)
		}
		k.Containment.Empty(time.Now().Add(tooLong))
		if got, ok := k.Containment.Leader(); ok {
			t.Errorf("Leader returned %+v although no process is running", got)
		}
	})
}

// FindMarked finds a process and its descendants by a variable in their environment, and returns
// what Adopt needs. It does not find processes that were not started in a containment.
func TestFindMarked_FindsProcessAndDescendantsByEnvironment(t *testing.T) {
	withContainments(t, func(t *testing.T, kind string) {
		variable := "FIND_ME=" + rand.Text()
		name, value, _ := strings.Cut(variable, "=")
		t.Setenv(name, value)
		stranger := exec.Command("sleep", "60")
		if err := stranger.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { stranger.Process.Kill(); stranger.Wait() }()
		k := startOrphan(t, kind)
		found := proc.FindMarked(variable)
		if len(found) != 2 || found[0].Adoptable != k || found[1].Born < k.Born {
			t.Fatalf("found %+v, want %+v and a descendant", found, k)
		}
		if got := found[0].Getenv(name); !found[0].LeadsGroup || got != value || found[0].Getenv("FIND") != "" {
			t.Errorf("LeadsGroup is %v, the variable is %q", found[0].LeadsGroup, got)
		}
		k.Empty(time.Now().Add(tooLong))
		if found := proc.FindMarked(variable); len(found) > 0 {
			t.Errorf("found %+v after their end", found)
		}
	})
}

// An adopted process is ended together with its children. Its exit status is unknown.
func TestEnd_EndsAdoptedProcessAndItsChildren(t *testing.T) {
	withContainments(t, func(t *testing.T, kind string) {
		k := startOrphan(t, kind)
		p, err := proc.Adopt(k, proc.Spec{Args: []string{"orphan"}, Linger: -1})
		if err != nil {
			t.Fatal(err)
		}
		if n := len(p.Members()); n != 2 || p.Pid() != k.PID {
			t.Errorf("pid %d with %d members; want %d with 2", p.Pid(), n, k.PID)
		}
		exit, err := p.End(soon())
		if err != nil || !exit.Unseen || exit.Status != "" || len(exit.Survivors) > 0 || !exit.Killed {
			t.Errorf("%+v, %v", exit, err)
		}
		if got, want := exit.String(), "ended with an unknown status"; got != want {
			t.Errorf("String returned %q, want %q", got, want)
		}
		if pids := markedPids(k.Containment); len(pids) > 0 {
			t.Errorf("these processes are still running: %v", pids)
		}
		if err := p.Signal(syscall.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("Signal after the end returned %v", err)
		}
	})
}

// If another process has the pid of a process that has ended, Adopt does not confuse the two.
func TestAdopt_DetectsThatAnotherProcessHasThePidNow(t *testing.T) {
	other := start(t, self("wait"))
	readLine(t, other)
	k := other.Adoptable(proc.Containment{Mark: "unused"})
	// With an earlier start time, k stands for a process that had the same pid before.
	k.Born--
	p, err := proc.Adopt(k, proc.Spec{Args: []string{"gone"}, Linger: -1})
	if err != nil {
		t.Fatal(err)
	}
	p.Kill()
	p.Terminate()
	if exit := awaitDone(t, p); !exit.Unseen || len(exit.Left) > 0 {
		t.Errorf("%+v", exit)
	}
	select {
	case <-other.Exited():
		t.Errorf("the process that has the pid now was ended: %v", awaitDone(t, other))
	default:
	}
	if k.Alive() {
		t.Error("Alive returned true for a process that has ended")
	}
}

// If a leader has ended before it could be adopted, the processes that it left behind are ended
// nevertheless.
func TestAdopt_EndsChildrenOfProcessThatExitedBeforeAdoption(t *testing.T) {
	withContainments(t, func(t *testing.T, kind string) {
		k := startOrphan(t, kind)
		syscall.Kill(k.PID, syscall.SIGKILL)
		p, err := proc.Adopt(k, proc.Spec{Args: []string{"orphan"}, Linger: -1})
		if err != nil {
			t.Fatal(err)
		}
		if exit := awaitDone(t, p); len(exit.Left) != 1 || len(exit.Survivors) > 0 {
			t.Errorf("left: %v, survivors: %v; want one, and none", exit.Left, exit.Survivors)
		}
		if pids := markedPids(k.Containment); len(pids) > 0 {
			t.Errorf("these processes are still running: %v", pids)
		}
	})
}

// BenchmarkContainment_Empty measures how long it takes to search for the processes of a
// containment. A launcher does this once, when it starts.
func BenchmarkContainment_Empty(b *testing.B) {
	for b.Loop() {
		containment := proc.NewContainment()
		containment.Make()
		containment.Empty(time.Now())
	}
	b.ReportMetric(float64(len(withVariable(""))), "processes")
}
