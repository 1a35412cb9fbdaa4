package launcher_test

import (
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher"
	"github.com/swansong-go/swansong/launcher/internal/testrunner"
	"golang.org/x/sys/unix"
)

func init() {
	// A test runner that starts two processes that ignore SIGTERM: one in a session of its own, and
	// one that has forked twice and has no parent in the group.
	roles["trio"] = func(args []string) {
		out, in, err := os.Pipe()
		if err != nil {
			panic(err)
		}
		for _, role := range []string{"deaf", "forker"} {
			startAway(role, in)
			out.Read(make([]byte, len("deaf\n")))
		}
		os.Exit(testrunner.Main(args, os.Stderr))
	}
	roles["forker"] = func([]string) { startAway("deaf", os.Stdout) }
}

func startAway(role string, stdout *os.File) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asRole+"="+role)
	cmd.Stdout = stdout
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		panic(err)
	}
}

// However a process ends, the event of its end comes after it has been reaped and after all its
// descendants have ended.
func TestExitEvent_ComesAfterKernelRemovedAllDescendants(t *testing.T) {
	ends := map[string]launcher.State{
		"clean": launcher.Complete, "slow-drain": launcher.Complete, "request-more": launcher.Complete, "hang": launcher.Forced,
		"crash": launcher.Crashed, "killed": launcher.Crashed, "silent": launcher.Forced,
	}
	marks := map[string]string{}
	var groups []launcher.GroupConfig
	for name := range ends {
		behavior := name
		if !slices.Contains(testrunner.Behaviors, name) {
			behavior = "clean"
		}
		g := group(name, 1, "trio", "--process-id", "{id}", "--work-duration", "1ms", "--behavior", behavior, "--drain-duration", "600ms", "--more", "20s")
		marks[name] = "LAUNCHER_TEST_MARK=" + rand.Text()
		g.Env = append(g.Env, marks[name])
		switch name {
		case "hang", "silent":
			g.Shutdown.Grace, g.Shutdown.GraceEnforced, g.Shutdown.SIGTERMTimeout = 200*time.Millisecond, true, 200*time.Millisecond
		}
		g.Restart.Policy = launcher.Never
		g.LivenessFailures = 1000
		groups = append(groups, g)
	}
	h := launch(t, groups...).ready()
	leaders := map[string]int{}
	for name := range ends {
		if n := len(marked(t, marks[name])); n != 3 {
			t.Fatalf("%s: %d processes, want 3", name, n)
		}
		pid := h.running(name)[0].PID
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		leaders[name] = fd
		switch name {
		case "killed":
			kill(t, pid)
		case "silent":
			unix.PidfdSendSignal(fd, unix.SIGSTOP, nil, 0)
		}
	}
	h.Shutdown()
	got := map[string]launcher.State{}
	for len(got) < len(ends) {
		e := h.readUntil("the next end of a process", func(e launcher.Event) bool { return e.To.Ended() })
		// A zombie can be signalled, but a reaped process cannot.
		if err := unix.PidfdSendSignal(leaders[e.Group], 0, nil, 0); err != unix.ESRCH {
			t.Errorf("%s is %v before it has been reaped: %v", e.Process, e.To, err)
		}
		if left := marked(t, marks[e.Group]); len(left) > 0 {
			t.Errorf("%s is %v, and its descendants %v are left", e.Process, e.To, left)
		}
		got[e.Group] = e.To
	}
	testkit.Equal(t, "ends", got, ends)
}

// marked returns the processes with this mark in their environment.
func marked(t *testing.T, mark string) (pids []string) {
	t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if env, err := os.ReadFile(name); err == nil && slices.Contains(strings.Split(string(env), "\x00"), mark) {
			pids = append(pids, filepath.Base(filepath.Dir(name)))
		}
	}
	return pids
}
