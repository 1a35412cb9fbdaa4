//go:build unix

package launcher_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher"
)

// A process that fails is replaced after a pause, which doubles each time, until the group is given
// up.
func TestCrashLoop_GroupBacksOffThenIsGivenUp(t *testing.T) {
	g := group("bad", 1, "exit", "3")
	g.Restart = launcher.RestartConfig{MinBackoff: 20 * time.Millisecond, MaxBackoff: 80 * time.Millisecond, CrashLimit: 5}
	h := launch(t, g)
	ctx, cancel := context.WithTimeout(context.Background(), tooLong)
	defer cancel()
	err := h.Ready(ctx)
	if err == nil || !strings.Contains(err.Error(), "given up after 5 failures") {
		t.Fatalf("Ready: %v", err)
	}
	h.drainEvents()
	var ended, started []time.Time
	for _, e := range h.events {
		switch e.To {
		case launcher.Crashed:
			ended = append(ended, e.Time)
		case launcher.Spawning:
			started = append(started, e.Time)
		}
	}
	testkit.Equal(t, "how many were started", len(started), 5)
	for n, least := range []time.Duration{20, 40, 80, 80} {
		if got := started[n+1].Sub(ended[n]); got < least*time.Millisecond {
			t.Errorf("start %d came %v after the previous failure, want at least %d ms", n+2, got, least)
		}
	}
}

// One process is ready, and another one fails again and again. The ready process started before
// these failures, so it does not show that processes started now work, and the failures are still
// counted.
func TestCrashLoop_ReadyProcessDoesNotResetFailures(t *testing.T) {
	g := script("web", 2, `case {id} in web-1) ;; *) until [ -e {dir}/go ]; do sleep 0.1; done; exit 3;; esac`)
	g.Restart = launcher.RestartConfig{MinBackoff: 20 * time.Millisecond, MaxBackoff: 80 * time.Millisecond, CrashLimit: 4, ResetAfter: time.Millisecond}
	h := launch(t, g)
	h.waitForState("web-1", launcher.Ready)
	if err := os.WriteFile(filepath.Join(h.dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	last := h.readUntil("an alarm", func(e launcher.Event) bool {
		return e.Kind == launcher.Alarm || e.Process == "web-6"
	})
	testkit.Equal(t, "kind of the event", last.Kind, launcher.Alarm)
	health, _ := h.GroupHealth("web")
	testkit.Equal(t, "given up", health.GivenUp, true)
	if !strings.Contains(health.Message, "given up after 4 failures in a row") {
		t.Errorf("message is %q\n%s", health.Message, h.story())
	}
	testkit.Equal(t, "state of the ready process", stateOf(h, "web-1"), launcher.Ready)
}

func TestRestartPolicy_DecidesByExitCode(t *testing.T) {
	for _, c := range []struct {
		policy  launcher.RestartPolicy
		code    string
		again   bool
		desired int
	}{
		{launcher.OnFailure, "0", false, 0},
		{launcher.OnFailure, "3", true, 1},
		{launcher.Always, "0", true, 1},
		{launcher.Never, "0", false, 0},
		{launcher.Never, "3", false, 1}, // the group is given up, because the process has never been ready
	} {
		t.Run(string(c.policy)+" "+c.code, func(t *testing.T) {
			g := group("job", 1, "exit", c.code)
			g.Job = true
			g.Restart = launcher.RestartConfig{Policy: c.policy, MinBackoff: time.Millisecond, MaxBackoff: time.Millisecond, CrashLimit: -1}
			h := launch(t, g)
			if c.again {
				h.waitForState("job-2", launcher.Spawning)
				return
			}
			h.waitForEnd("job-1")
			health, _ := h.GroupHealth("job")
			testkit.Equal(t, "desired", health.Desired, c.desired)
			testkit.Equal(t, "healthy", health.Healthy, c.desired == 0)
			testkit.Equal(t, "number of processes so far", len(health.Processes), 1)
			testkit.Equal(t, "message says completed", strings.HasPrefix(health.Message, "completed: the process has finished; with restart policy "+string(c.policy)), c.desired == 0)
		})
	}
}

// A service is not meant to end: if its only process exits with 0, the group is not healthy.
func TestHealth_ServiceThatExitsIsNotHealthy(t *testing.T) {
	h := launch(t, group("web", 1, "exit", "0"))
	h.readUntil("web is finished", func(e launcher.Event) bool { return e.Kind == launcher.GroupFinished })
	health, _ := h.GroupHealth("web")
	testkit.Equal(t, "healthy", health.Healthy, false)
	testkit.Equal(t, "desired", health.Desired, 1)
	testkit.Equal(t, "message", health.Message,
		"the process has finished; with restart policy on-failure it is started again only on request; if it is meant to end, make the group a job")
}

// A job group reports how many processes have finished and how many of them have failed. Restart
// runs the finished processes again.
func TestJob_ReportsFinishedProcesses(t *testing.T) {
	g := runners("job", 2)
	g.Job, g.Restart.Policy = true, launcher.Never
	h := launch(t, g).ready()
	message := func(what, want string) {
		t.Helper()
		health, _ := h.GroupHealth("job")
		testkit.Equal(t, what, health.Message, want)
	}
	message("message while they run", "")
	for n, want := range []string{
		"1 of 2 has finished, with a failure; with restart policy never it is started again only on request",
		"completed: all 2 processes have finished, 2 of them with a failure; with restart policy never they are started again only on request",
	} {
		id := fmt.Sprintf("job-%d", n+1)
		kill(t, h.running("job")[0].PID)
		h.waitForEnd(id)
		message("message after the end of "+id, want)
	}
	if err := h.Restart(soon(t), "job", "once more"); err != nil {
		t.Fatalf("%v\n%s", err, h.story())
	}
	health, _ := h.GroupHealth("job")
	for ctx := soon(t); health.Ready != 2 && ctx.Err() == nil; health, _ = h.GroupHealth("job") {
		// GroupHealth counts a process as ready only once it is routed. That is a moment after the
		// event that reports the process as ready.
		runtime.Gosched()
	}
	testkit.Equal(t, "ready after the order", health.Ready, 2)
	message("message after the order", "")
}

// A process that drains without having been asked to is replaced at once. Its replacement stays,
// however the first process ends.
func TestRestartNever_ProcessThatDrainsByItselfIsReplaced(t *testing.T) {
	g := runners("web", 1, "--behavior", "hang")
	g.Restart.Policy = launcher.Never
	g.LivenessInterval, g.LivenessTimeout = time.Second, time.Second
	g.Shutdown.Grace, g.Shutdown.GraceEnforced, g.Shutdown.SIGTERMTimeout = 300*time.Millisecond, true, 50*time.Millisecond
	h := launch(t, g).ready()
	if err := syscall.Kill(h.running("web")[0].PID, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	h.waitForState("web-2", launcher.Ready)
	testkit.Equal(t, "state of the first process", h.waitForEnd("web-1").State, launcher.Forced)
	health, _ := h.GroupHealth("web")
	testkit.Equal(t, "desired", health.Desired, 1)
	testkit.Equal(t, "state of the second process", stateOf(h, "web-2"), launcher.Ready)
}

// brief returns a job of two processes. Each appends a word to a file and exits with the given
// code, before it counts as available.
func brief(file, word, code string) launcher.GroupConfig {
	g := group("job", 2, "")
	g.Command, g.Protocol, g.MinReady = []string{"/bin/sh", "-c", "echo " + word + " >>" + file + "; exit " + code}, launcher.Signals, time.Minute
	g.Job, g.Restart.Policy = true, launcher.Never
	return g
}

// A restart and a reload of a job group run each process once more, however fast it ends.
func TestJob_RunsAgainOnRestartAndReload(t *testing.T) {
	for _, policy := range []launcher.RestartPolicy{launcher.Never, launcher.OnFailure} {
		t.Run(string(policy), func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "ran")
			job := func(word string) launcher.GroupConfig {
				g := brief(file, word, "0")
				g.Restart.Policy = policy
				return g
			}
			ran := func(what, want string) {
				t.Helper()
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				testkit.Equal(t, "what has run after the "+what, string(text), want)
			}
			h := launch(t, job("a"))
			h.waitForEnd("job-1")
			h.waitForEnd("job-2")
			ran("start", "a\na\n")
			if err := h.Restart(soon(t), "job", "once more"); err != nil {
				t.Fatalf("%v\n%s", err, h.story())
			}
			h.waitForEnd("job-3")
			h.waitForEnd("job-4")
			ran("restart", "a\na\na\na\n")
			if err := h.Reload(soon(t), launcher.Config{Dir: h.dir, Groups: []launcher.GroupConfig{job("b")}}, "another one"); err != nil {
				t.Fatalf("%v\n%s", err, h.story())
			}
			h.waitForEnd("job-5")
			h.waitForEnd("job-6")
			ran("reload", "a\na\na\na\nb\nb\n")
			health, _ := h.GroupHealth("job")
			testkit.Equal(t, "desired", health.Desired, 0)
			if want := "completed: all 2 processes have finished; with restart policy " + string(policy); !strings.HasPrefix(health.Message, want) {
				t.Errorf("message is %q, want prefix %q", health.Message, want)
			}
			testkit.Equal(t, "rolls", h.count(launcher.RollBegun), 0)
		})
	}
}

// A restart of a job stops the processes that still run, and the next run begins when they have
// ended. What had finished before runs again, too.
func TestJob_NextRunBeginsAfterEarlierRunHasEnded(t *testing.T) {
	g := runners("job", 2)
	g.Job, g.Restart.Policy = true, launcher.Never
	h := launch(t, g).ready()
	kill(t, h.running("job")[0].PID)
	h.waitForEnd("job-1")
	h.waitForDesired("job", 1)
	if err := h.Restart(soon(t), "job", "once more"); err != nil {
		t.Fatalf("%v\n%s", err, h.story())
	}
	h.allReady("job", 2)
	testkit.Equal(t, "processes by revision", revisions(h, "job"), map[int]int{2: 2})
	testkit.Equal(t, "rolls", h.count(launcher.RollBegun), 0)
	ended := slices.IndexFunc(h.events, func(e launcher.Event) bool { return e.Process == "job-2" && e.To == launcher.Complete })
	last := slices.IndexFunc(h.events, func(e launcher.Event) bool { return e.Process == "job-4" && e.To == launcher.Spawning })
	if ended < 0 || last < ended {
		t.Errorf("the next run overlaps the earlier one:\n%s", h.story())
	}
}

// write creates an empty file.
func write(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// With restart policy on-failure, a replacement that exits with 0 at once fails the roll and
// replaces no running server.
func TestRoll_FailsWhenReplacementExitsAtOnce(t *testing.T) {
	h := launch(t, runners("web", 2)).ready()
	bad := brief(filepath.Join(t.TempDir(), "ran"), "bad", "0")
	bad.Name, bad.Job, bad.Restart.Policy = "web", false, launcher.OnFailure
	var failure *launcher.RollError
	if err := h.Roll(soon(t), bad, "it prints its version"); !errors.As(err, &failure) {
		t.Fatalf("Roll: %v\n%s", err, h.story())
	}
	health, _ := h.GroupHealth("web")
	testkit.Equal(t, "desired", health.Desired, 2)
	testkit.Equal(t, "state of the first process", stateOf(h, "web-1"), launcher.Ready)
	testkit.Equal(t, "state of the second process", stateOf(h, "web-2"), launcher.Ready)
}

// A process that ends before it is ready counts as failed at once, although its health check
// timeout has not passed.
func TestProcess_ThatExitsBeforeReadyFailsAtOnce(t *testing.T) {
	g := runners("web", 1, "--ready-after", "-1s")
	g.HealthCheckTimeout = time.Hour
	h := launch(t, g)
	h.waitForState("web-1", launcher.Starting)
	kill(t, h.running("web")[0].PID)
	next := h.readUntil("web-1 changes", func(e launcher.Event) bool { return e.Process == "web-1" && e.Kind == launcher.Transition })
	testkit.Equal(t, "state", next.To, launcher.Crashed)
	testkit.Equal(t, "message", next.Message, "signal: killed")
	h.waitForState("web-2", launcher.Starting)
}

// A ready process that ends without having been stopped counts as failed at once, although no poll
// is due.
func TestProcess_ThatExitsWhileReadyFailsAtOnce(t *testing.T) {
	g := group("web", 1, "plain")
	g.Protocol = launcher.Signals
	h := launch(t, g).ready()
	kill(t, h.running("web")[0].PID)
	h.waitForState("web-1", launcher.Crashed)
	h.waitForState("web-2", launcher.Ready)
}

// If a replacement does not become ready, the old processes keep running.
func TestRoll_FailedReplacementLeavesOldProcessesRunning(t *testing.T) {
	bad := func(g launcher.GroupConfig) launcher.GroupConfig {
		g.Env = append(group("web", 2, "exit").Env, "BAD=1")
		g.Command = []string{os.Args[0], "3"}
		return g
	}
	roll := func(t *testing.T, how launcher.RollConfig) (*harness, *launcher.RollError) {
		t.Helper()
		g := runners("web", 2)
		h := launch(t, g).ready()
		g = bad(g)
		g.Roll = how
		ctx, cancel := context.WithTimeout(context.Background(), tooLong)
		defer cancel()
		err := h.Roll(ctx, g, "a bad build")
		var failure *launcher.RollError
		if !errors.As(err, &failure) {
			t.Fatalf("Roll: %v\n%s", err, h.story())
		}
		return h, failure
	}
	old := func(t *testing.T, h *harness) {
		t.Helper()
		h.readUntil("two processes are ready", func(e launcher.Event) bool {
			health, _ := h.GroupHealth("web")
			return health.Ready == 2 && health.Total == 2 || e.Kind == launcher.GroupHealthy
		})
		testkit.Equal(t, "state of the first process", stateOf(h, "web-1"), launcher.Ready)
		testkit.Equal(t, "state of the second process", stateOf(h, "web-2"), launcher.Ready)
	}
	t.Run("pause", func(t *testing.T) {
		h, failure := roll(t, launcher.RollConfig{})
		testkit.Equal(t, "process that failed", failure.Process, "web-3")
		testkit.Equal(t, "rolled back", failure.RolledBack, false)
		old(t, h)

		// A process that fails while the roll is paused is replaced by one of the old revision.
		h.drainEvents()
		kill(t, h.running("web")[0].PID)
		h.readUntil("a process is ready", func(e launcher.Event) bool { return e.To == launcher.Ready })
		testkit.Equal(t, "state of the new process", stateOf(h, "web-4"), launcher.Ready)

		// A roll with a good build succeeds after the failed one.
		ctx, cancel := context.WithTimeout(context.Background(), tooLong)
		defer cancel()
		if err := h.Roll(ctx, runners("web", 2), "a good build"); err != nil {
			t.Error(err)
		}
	})
	t.Run("rollback", func(t *testing.T) {
		h, failure := roll(t, launcher.RollConfig{OnFailure: launcher.Rollback})
		testkit.Equal(t, "rolled back", failure.RolledBack, true)
		old(t, h)
		health, _ := h.GroupHealth("web")
		testkit.Equal(t, "revision", health.Revision, 1)
	})
	t.Run("retry", func(t *testing.T) {
		h, failure := roll(t, launcher.RollConfig{Retry: launcher.Immediate, Retries: 2})
		testkit.Equal(t, "process that failed last", failure.Process, "web-5")
		old(t, h)
	})
}

func stateOf(h *harness, id string) launcher.State {
	st, err := h.Process(id)
	if err != nil {
		h.t.Error(err)
	}
	return st.State
}

// A roll without surge stops one process before it starts the next.
func TestRoll_WithoutSurgeStopsOldProcessBeforeReplacement(t *testing.T) {
	g := runners("web", 2)
	g.MaxSurge = launcher.Int(0)
	h := launch(t, g).ready()
	ctx, cancel := context.WithTimeout(context.Background(), tooLong)
	defer cancel()
	if err := h.Restart(ctx, "web", "test"); err != nil {
		t.Fatal(err)
	}
	here, most := map[string]bool{}, 0
	h.drainEvents()
	for _, e := range h.events {
		switch {
		case e.Kind != launcher.Transition:
		case e.To.Ended():
			delete(here, e.Process)
		default:
			here[e.Process] = true
			most = max(most, len(here))
		}
	}
	testkit.Equal(t, "largest number of processes", most, 2)
}

// A group starts after the groups that it depends on, and stops before them.
func TestDependsOn_OrdersStartAndStop(t *testing.T) {
	db, web := runners("db", 1, "--ready-after", "200ms"), runners("web", 1, "--behavior", "slow-drain", "--drain-duration", "200ms")
	web.DependsOn = []string{"db"}
	h := launch(t, web, db).ready()
	h.Shutdown()
	h.waitForEnd("db-1")
	h.waitForEnd("web-1")
	var order []string
	for _, e := range h.events {
		if e.Kind == launcher.Transition && (e.To == launcher.Ready || e.To == launcher.ShutdownRequested || e.To.Ended()) {
			order = append(order, e.Process+" "+e.To.String())
		}
	}
	testkit.Equal(t, "order", order, []string{"db-1 READY", "web-1 READY",
		"web-1 SHUTDOWN_REQUESTED", "web-1 COMPLETE", "db-1 SHUTDOWN_REQUESTED", "db-1 COMPLETE"})
}

// A group that waits for a dependency starts when a reload removes the dependency.
func TestDependsOn_GroupStartsWhenReloadRemovesDependency(t *testing.T) {
	db, web := runners("db", 1, "--ready-after", "-1s"), runners("web", 1)
	web.DependsOn = []string{"db"}
	h := launch(t, db, web)
	h.waitForState("db-1", launcher.Starting) // the process does not become ready
	web.DependsOn = nil
	if err := h.Reload(soon(t), launcher.Config{Dir: h.dir, Groups: []launcher.GroupConfig{db, web}}, "test"); err != nil {
		t.Fatal(err)
	}
	h.waitForState("web-1", launcher.Ready)
	health, _ := h.GroupHealth("web")
	testkit.Equal(t, "message", health.Message, "")
}

// A group that waits for a dependency starts with the configuration that was loaded last. Nothing
// is rolled, and the progress deadline does not run.
func TestDependsOn_WaitingGroupStartsWithReloadedConfiguration(t *testing.T) {
	dir := t.TempDir()
	web := func(word string) launcher.GroupConfig {
		g := script("web", 1, "echo "+word+" >>"+filepath.Join(dir, "began"))
		g.DependsOn, g.Roll.ProgressDeadline = []string{"db"}, time.Millisecond
		return g
	}
	db := script("db", 1, "until [ -e "+filepath.Join(dir, "go")+" ]; do sleep 0.1; done")
	h := launch(t, db, web("first"))
	h.waitForState("db-1", launcher.Spawning) // the process does not become ready
	for _, word := range []string{"second", "third"} {
		if err := h.Reload(soon(t), launcher.Config{Dir: h.dir, Groups: []launcher.GroupConfig{db, web(word)}}, "test"); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.Restart(soon(t), "web", "test"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h.waitForState("web-1", launcher.Ready)
	health, _ := h.GroupHealth("web")
	testkit.Equal(t, "message", health.Message, "")
	testkit.Equal(t, "rolls", h.count(launcher.RollBegun), 0)
	text, err := os.ReadFile(filepath.Join(dir, "began"))
	if err != nil {
		t.Fatal(err)
	}
	testkit.Equal(t, "what was started", string(text), "third\n")
}

// A hook is killed at the total deadline of its process, before its own timeout.
func TestPreStopHooks_AreKilledAtTotalDeadline(t *testing.T) {
	g := runners("web", 1)
	g.PreStop = []launcher.Hook{
		{Command: []string{"/bin/sh", "-c", "exec sleep 1000"}, Timeout: time.Hour},
		{Command: []string{"/bin/sh", "-c", "exec sleep 1001"}, Timeout: time.Hour},
	}
	g.Shutdown.TotalDeadline = time.Second
	h := launch(t, g).ready()
	testkit.Equal(t, "outcome", h.stopAndWait("web-1").Outcome, launcher.Killed)
	hooks := 0
	for _, e := range h.events {
		if e.Kind == launcher.HookRun {
			hooks++
		}
	}
	testkit.Equal(t, "number of hooks", hooks, 1)
}

// Hooks run before the process is asked to stop. A hook that fails or hangs does not delay the stop
// beyond its timeout.
func TestPreStopHooks_RunBeforeStop(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	hook := func(script string) launcher.Hook {
		return launcher.Hook{Command: []string{"/bin/sh", "-c", script}, Timeout: 10 * time.Second}
	}
	g := runners("web", 1)
	slow := hook("sleep 100")
	slow.Timeout = 50 * time.Millisecond
	g.PreStop = []launcher.Hook{hook("echo $SWANSONG_PROCESS_ID {id} {dir} {socket} >> " + out), hook("exit 3"), slow, hook("kill -0 $SWANSONG_PROCESS_PID && echo alive >> " + out)}
	h := launch(t, g).ready()
	testkit.Equal(t, "outcome", h.stopAndWait("web-1").Outcome, launcher.Clean)
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	testkit.Equal(t, "what the hooks wrote", string(text), fmt.Sprintf("web-1 web-1 %s %[1]s/web-1.app\nalive\n", h.dir))
	var messages []string
	for _, e := range h.events {
		if e.Kind == launcher.HookRun {
			messages = append(messages, e.Message)
		}
	}
	testkit.Equal(t, "messages", messages, []string{"/bin/sh", "/bin/sh: exit status 3", "/bin/sh: the hook was killed after its timeout of 50ms", "/bin/sh"})
}

// When a process has ended, its running hook is killed, and further hooks are not run, because
// another process could have the same pid by then.
func TestPreStopHooks_EndWhenProcessEnds(t *testing.T) {
	dir := t.TempDir()
	begun, out := filepath.Join(dir, "begun"), filepath.Join(dir, "out")
	if err := syscall.Mkfifo(begun, 0o600); err != nil {
		t.Fatal(err)
	}
	g := runners("web", 1)
	g.PreStop = []launcher.Hook{
		{Command: []string{"/bin/sh", "-c", "echo >" + begun + "; exec sleep 1000"}, Timeout: time.Hour},
		{Command: []string{"/bin/sh", "-c", "echo $SWANSONG_PROCESS_PID >" + out}, Timeout: time.Hour},
	}
	h := launch(t, g).ready()
	pid := h.running("web")[0].PID
	if err := h.StopProcess("web-1", launcher.Stop{NoReplacement: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.ReadFile(begun); err != nil { // wait until the hook has begun
		t.Fatal(err)
	}
	kill(t, pid)
	h.waitForEnd("web-1")
	var messages []string
	for _, e := range h.events {
		if e.Kind == launcher.HookRun {
			messages = append(messages, e.Message)
		}
	}
	testkit.Equal(t, "messages", messages, []string{"/bin/sh: the hook was killed because its process has ended or is being killed"})
	if _, err := os.Stat(out); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the second hook has run: %v", err)
	}
}

// allReady waits until n processes of a group have become ready.
func (h *harness) allReady(group string, n int) {
	h.t.Helper()
	h.readUntil(fmt.Sprintf("%d of %s are ready", n, group), func(e launcher.Event) bool {
		if e.Group == group && e.To == launcher.Ready {
			n--
		}
		return n == 0
	})
}

// pidsOf returns the pids of the processes of a group, in order.
func pidsOf(h *harness, group string) (pids []int) {
	h.t.Helper()
	for _, st := range h.running(group) {
		pids = append(pids, st.PID)
	}
	slices.Sort(pids)
	return pids
}
