//go:build unix

package launcher_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/swansong-go/swansong/launcher"
)

// Processes that fail are replaced, later each time, and not for ever.
func TestCrashLoop(t *testing.T) {
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
	equal(t, "how many were started", len(started), 5)
	for n, least := range []time.Duration{20, 40, 80, 80} {
		if got := started[n+1].Sub(ended[n]); got < least*time.Millisecond {
			t.Errorf("start %d came %v after the failure before it, and had to wait for %d ms", n+2, got, least)
		}
	}
}

// One that has been sound since before the failures of another does not end the row of those: it says nothing of what is
// started now.
func TestCrashLoop_BesideASoundOne(t *testing.T) {
	g := script("web", 2, `case {id} in web-1) ;; *) until [ -e {dir}/go ]; do sleep 0.01; done; exit 3;; esac`)
	g.Restart = launcher.RestartConfig{MinBackoff: 20 * time.Millisecond, MaxBackoff: 80 * time.Millisecond, CrashLimit: 4, ResetAfter: time.Millisecond}
	h := launch(t, g)
	h.enters("web-1", launcher.Ready)
	if err := os.WriteFile(filepath.Join(h.dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	last := h.until("it is told that something is wrong", func(e launcher.Event) bool {
		return e.Kind == launcher.Alarm || e.Process == "web-6"
	})
	equal(t, "what is told", last.Kind, launcher.Alarm)
	health, _ := h.GroupHealth("web")
	equal(t, "given up", health.GivenUp, true)
	if !strings.Contains(health.Message, "given up after 4 failures in a row") {
		t.Errorf("it is said: %q\n%s", health.Message, h.story())
	}
	equal(t, "state of the sound one", stateOf(h, "web-1"), launcher.Ready)
}

func TestRestartPolicies(t *testing.T) {
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
		{launcher.Never, "3", false, 1}, // and given up: it has never been ready
	} {
		t.Run(string(c.policy)+" "+c.code, func(t *testing.T) {
			g := group("job", 1, "exit", c.code)
			g.Restart = launcher.RestartConfig{Policy: c.policy, MinBackoff: time.Millisecond, MaxBackoff: time.Millisecond, CrashLimit: -1}
			h := launch(t, g)
			if c.again {
				h.enters("job-2", launcher.Spawning)
				return
			}
			h.ends("job-1")
			health, _ := h.GroupHealth("job")
			equal(t, "desired", health.Desired, c.desired)
			equal(t, "healthy", health.Healthy, c.desired == 0)
			equal(t, "processes that there have been", len(health.Processes), 1)
			equal(t, "it is said to be completed", strings.HasPrefix(health.Message, "completed: all 1 have ended; by the restart policy, "+string(c.policy)), c.desired == 0)
		})
	}
}

// A group of processes that are to run once says how far it has come, and what has come of them, and runs them again by an
// order.
func TestRunsOnce(t *testing.T) {
	g := runners("job", 2)
	g.Restart.Policy = launcher.Never
	h := launch(t, g).ready()
	message := func(what, want string) {
		t.Helper()
		health, _ := h.GroupHealth("job")
		equal(t, what, health.Message, want)
	}
	message("message while they run", "")
	const policy = "; by the restart policy, never, nobody follows before an order"
	for n, want := range []string{"1 of 2 have ended for good, 1 of them with a failure", "completed: all 2 have ended, 2 of them with a failure"} {
		id := fmt.Sprintf("job-%d", n+1)
		kill(t, h.running("job")[0].PID)
		h.ends(id)
		message("message after the end of "+id, want+policy)
	}
	if err := h.Restart(soon(t), "job", "once more"); err != nil {
		t.Fatalf("%v\n%s", err, h.story())
	}
	health, _ := h.GroupHealth("job")
	equal(t, "ready after the order", health.Ready, 2)
	message("message after the order", "")
}

// A process that drains by itself has a successor at once, who stays, however it ends then.
func TestRunsOnce_DrainsByItself(t *testing.T) {
	g := runners("web", 1, "--behavior", "hang")
	g.Restart.Policy = launcher.Never
	g.LivenessInterval = 20 * time.Millisecond
	g.Shutdown.Grace, g.Shutdown.SIGTERMTimeout = 300*time.Millisecond, 50*time.Millisecond
	h := launch(t, g).ready()
	if err := syscall.Kill(h.running("web")[0].PID, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	h.enters("web-2", launcher.Ready)
	equal(t, "end of the first", h.ends("web-1").State, launcher.Forced)
	health, _ := h.GroupHealth("web")
	equal(t, "desired", health.Desired, 1)
	equal(t, "state of the second", stateOf(h, "web-2"), launcher.Ready)
}

// brief is a group of processes that write a word to a file and end with a code, before anybody could count on them.
func brief(file, word, code string) launcher.GroupConfig {
	g := group("job", 2, "")
	g.Command, g.Protocol, g.MinReady = []string{"/bin/sh", "-c", "echo " + word + " >>" + file + "; exit " + code}, launcher.Signals, time.Minute
	g.Restart.Policy = launcher.Never
	return g
}

// A group of processes that run once is restarted and reloaded by running each of them once more, however fast they end.
func TestRunsOnce_Again(t *testing.T) {
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
				equal(t, "who has run after the "+what, string(text), want)
			}
			h := launch(t, job("a"))
			h.ends("job-1")
			h.ends("job-2")
			ran("start", "a\na\n")
			if err := h.Restart(soon(t), "job", "once more"); err != nil {
				t.Fatalf("%v\n%s", err, h.story())
			}
			ran("restart", "a\na\na\na\n")
			if err := h.Reload(soon(t), launcher.Config{Dir: h.dir, Groups: []launcher.GroupConfig{job("b")}}, "another one"); err != nil {
				t.Fatalf("%v\n%s", err, h.story())
			}
			ran("reload", "a\na\na\na\nb\nb\n")
			health, _ := h.GroupHealth("job")
			equal(t, "desired", health.Desired, 0)
			if want := "completed: all 2 have ended; by the restart policy, " + string(policy); !strings.HasPrefix(health.Message, want) {
				t.Errorf("it is said: %q, want %q", health.Message, want)
			}
			equal(t, "rolls that have failed", h.count(launcher.RollFailed), 0)
		})
	}
}

// Where that fails, what was there before is not run again: it was through when the roll began.
func TestRunsOnce_AgainFails(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ran")
	h := launch(t, brief(file, "good", "0"))
	h.ends("job-1")
	h.ends("job-2")
	bad := brief(file, "bad", "3")
	bad.MaxSurge, bad.MinHealthy = launcher.Int(0), launcher.Int(0)
	var failure *launcher.RollError
	if err := h.Roll(soon(t), bad, "a bad one"); !errors.As(err, &failure) {
		t.Fatalf("Roll: %v\n%s", err, h.story())
	}
	desired := func(when string) {
		t.Helper()
		health, _ := h.GroupHealth("job")
		equal(t, "desired "+when, health.Desired, 0)
	}
	desired("while the roll is paused")
	if err := h.Rollback(soon(t), "job", "test"); err != nil {
		t.Fatalf("%v\n%s", err, h.story())
	}
	desired("after the rollback")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "how often the good one has run", strings.Count(string(text), "good"), 2)
}

// Who has ended for good while others were to take its place is through as well when those come to nothing.
func TestRunsOnce_EndsInARoll(t *testing.T) {
	g := runners("job", 2)
	g.Restart.Policy = launcher.Never
	h := launch(t, g).ready()
	next := script("job", 2, "until [ -e {dir}/go ]; do sleep 0.01; done; exit 3")
	next.Restart.Policy = launcher.Never
	over := begin(h, next)
	h.enters("job-3", launcher.Spawning)
	kill(t, h.running("job")[0].PID)
	h.ends("job-1")
	if err := os.WriteFile(filepath.Join(h.dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := comes(t, h, over); err == nil {
		t.Fatal("the roll does not fail")
	}
	health, _ := h.GroupHealth("job")
	equal(t, "desired", health.Desired, 1)
	equal(t, "those that there were", revisions(h, "job")[1], 1)
}

// A canary that has failed while the roll was paused, and has nobody follow, is none that has done what it was there for: as many as
// before go first when the roll goes on. One that has done that is one less.
func TestRunsOnce_CanaryEndsInAPause(t *testing.T) {
	for _, c := range []struct {
		name  string
		ends  func(t *testing.T, h *harness, st launcher.Status)
		first int
	}{
		{"killed", func(t *testing.T, _ *harness, st launcher.Status) { kill(t, st.PID) }, 2},
		{"done", func(t *testing.T, h *harness, _ launcher.Status) { write(t, filepath.Join(h.dir, "done")) }, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := runners("job", 4)
			g.Restart.Policy = launcher.Never
			h := launch(t, g).ready()
			next := group("job", 4, "")
			next.Command = []string{"/bin/sh", "-c", "case {id} in job-5) until [ -e {dir}/done ]; do sleep 0.01; done;; job-6) exit 3;; *) exec sleep 1000;; esac"}
			next.Protocol, next.Restart.Policy = launcher.Signals, launcher.Never
			next.Roll = launcher.RollConfig{Canary: 2, CanaryWait: time.Hour}
			if err := comes(t, h, begin(h, next)); err == nil {
				t.Fatal("the roll does not fail")
			}
			first, err := h.Process("job-5")
			if err != nil {
				t.Fatal(err)
			}
			c.ends(t, h, first)
			h.ends("job-5")
			ctx, cancel := context.WithCancel(soon(t))
			over := make(chan error, 1)
			go func() { over <- h.Resume(ctx, "job", "test") }()
			equal(t, "what is said of them", goFirst(h), fmt.Sprintf("%d go first", c.first))
			cancel()
			<-over
		})
	}
}

// goFirst is what is said when canaries are waited for.
func goFirst(h *harness) string {
	h.t.Helper()
	says, _, _ := strings.Cut(h.until("canaries are waited for, or not", func(e launcher.Event) bool {
		return step("canary", "go first")(e) || e.Kind == launcher.RollDone
	}).Message, ",")
	return says
}

// write makes a file.
func write(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// With a policy that only allows that a process ends well, one that does so at once takes the place of nobody who runs.
func TestRollToWhatEndsAtOnce(t *testing.T) {
	h := launch(t, runners("web", 2)).ready()
	bad := brief(filepath.Join(t.TempDir(), "ran"), "bad", "0")
	bad.Name, bad.Restart.Policy = "web", launcher.OnFailure
	var failure *launcher.RollError
	if err := h.Roll(soon(t), bad, "it prints its version"); !errors.As(err, &failure) {
		t.Fatalf("Roll: %v\n%s", err, h.story())
	}
	health, _ := h.GroupHealth("web")
	equal(t, "desired", health.Desired, 2)
	equal(t, "state of the first", stateOf(h, "web-1"), launcher.Ready)
	equal(t, "state of the second", stateOf(h, "web-2"), launcher.Ready)
}

// Before the group has taken note that one has ended, and so whether anybody is to take its place, it starts nobody.
func TestRunsOnce_StartsNobodyBeforeItKnows(t *testing.T) {
	h := launch(t, runners("other", 0)).ready()
	job := runners("job", 2)
	job.Restart.Policy = launcher.Never
	equal(t, "whether it starts another one", launcher.StartsForTheUntold(h.Manager, job), false)
}

// Who ends before it is ready has failed in that moment, whatever time it would have had.
func TestExitBeforeReady(t *testing.T) {
	g := runners("web", 1, "--ready-after", "-1s")
	g.HealthCheckTimeout = time.Hour
	h := launch(t, g)
	h.enters("web-1", launcher.Starting)
	kill(t, h.running("web")[0].PID)
	next := h.until("web-1 changes", func(e launcher.Event) bool { return e.Process == "web-1" && e.Kind == launcher.Transition })
	equal(t, "state", next.To, launcher.Crashed)
	equal(t, "message", next.Message, "signal: killed")
	h.enters("web-2", launcher.Starting)
}

// So has who ends after that, although nobody has asked for it, or would look for long.
func TestExitWhileReady(t *testing.T) {
	g := group("web", 1, "plain")
	g.Protocol = launcher.Signals
	h := launch(t, g).ready()
	kill(t, h.running("web")[0].PID)
	h.enters("web-1", launcher.Crashed)
	h.enters("web-2", launcher.Ready)
}

// A replacement that does not become ready costs nothing but itself.
func TestRollFailures(t *testing.T) {
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
		h.until("all is well", func(e launcher.Event) bool {
			health, _ := h.GroupHealth("web")
			return health.Ready == 2 && health.Total == 2 || e.Kind == launcher.GroupHealthy
		})
		equal(t, "state of the first", stateOf(h, "web-1"), launcher.Ready)
		equal(t, "state of the second", stateOf(h, "web-2"), launcher.Ready)
	}
	t.Run("pause", func(t *testing.T) {
		h, failure := roll(t, launcher.RollConfig{})
		equal(t, "who has failed", failure.Process, "web-3")
		equal(t, "rolled back", failure.RolledBack, false)
		old(t, h)

		// A process that is lost while the roll is paused is replaced by one that works.
		h.drainEvents()
		kill(t, h.running("web")[0].PID)
		h.until("somebody is there again", func(e launcher.Event) bool { return e.To == launcher.Ready })
		equal(t, "state of the new one", stateOf(h, "web-4"), launcher.Ready)

		// The next roll makes good.
		ctx, cancel := context.WithTimeout(context.Background(), tooLong)
		defer cancel()
		if err := h.Roll(ctx, runners("web", 2), "a good build"); err != nil {
			t.Error(err)
		}
	})
	t.Run("rollback", func(t *testing.T) {
		h, failure := roll(t, launcher.RollConfig{OnFailure: launcher.Rollback})
		equal(t, "rolled back", failure.RolledBack, true)
		old(t, h)
		health, _ := h.GroupHealth("web")
		equal(t, "revision", health.Revision, 1)
	})
	t.Run("retry", func(t *testing.T) {
		h, failure := roll(t, launcher.RollConfig{Retry: launcher.Immediate, Retries: 2})
		equal(t, "who has failed last", failure.Process, "web-5")
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

// A roll by surge 0 needs no room, and takes one away at a time.
func TestRollWithoutSurge(t *testing.T) {
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
	equal(t, "most at a time", most, 2)
}

// Groups start after those that they need, and stop before them.
func TestDependencies(t *testing.T) {
	db, web := runners("db", 1, "--ready-after", "200ms"), runners("web", 1, "--behavior", "slow-drain", "--drain-duration", "200ms")
	web.DependsOn = []string{"db"}
	h := launch(t, web, db).ready()
	h.Shutdown()
	h.ends("db-1")
	h.ends("web-1")
	var order []string
	for _, e := range h.events {
		if e.Kind == launcher.Transition && (e.To == launcher.Ready || e.To == launcher.ShutdownRequested || e.To.Ended()) {
			order = append(order, e.Process+" "+e.To.String())
		}
	}
	equal(t, "order", order, []string{"db-1 READY", "web-1 READY",
		"web-1 SHUTDOWN_REQUESTED", "web-1 COMPLETE", "db-1 SHUTDOWN_REQUESTED", "db-1 COMPLETE"})
}

// A group that waits for others hears of it when it is not to wait for them any more.
func TestDependencies_AreReloaded(t *testing.T) {
	db, web := runners("db", 1, "--ready-after", "-1s"), runners("web", 1)
	web.DependsOn = []string{"db"}
	h := launch(t, db, web)
	h.enters("db-1", launcher.Starting) // and no further
	web.DependsOn = nil
	if err := h.Reload(soon(t), launcher.Config{Dir: h.dir, Groups: []launcher.GroupConfig{db, web}}, "test"); err != nil {
		t.Fatal(err)
	}
	h.enters("web-1", launcher.Ready)
	health, _ := h.GroupHealth("web")
	equal(t, "message", health.Message, "")
}

// A group that waits for others begins with what was loaded last: nobody is there to replace, and no time for it passes.
func TestDependencies_ReloadedMeanwhile(t *testing.T) {
	dir := t.TempDir()
	web := func(word string) launcher.GroupConfig {
		g := script("web", 1, "echo "+word+" >>"+filepath.Join(dir, "began"))
		g.DependsOn, g.Roll.ProgressDeadline = []string{"db"}, time.Millisecond
		return g
	}
	db := script("db", 1, "until [ -e "+filepath.Join(dir, "go")+" ]; do sleep 0.01; done")
	h := launch(t, db, web("first"))
	h.enters("db-1", launcher.Spawning) // and no further
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
	h.enters("web-1", launcher.Ready)
	health, _ := h.GroupHealth("web")
	equal(t, "message", health.Message, "")
	equal(t, "rolls", h.count(launcher.RollBegun), 0)
	text, err := os.ReadFile(filepath.Join(dir, "began"))
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "what has begun", string(text), "third\n")
}

// A hook that has all the time in the world does not have more than the process, whose total is the bound of all.
func TestPreStopHooks_EndWithTheProcess(t *testing.T) {
	g := runners("web", 1)
	g.PreStop = []launcher.Hook{
		{Command: []string{"/bin/sh", "-c", "exec sleep 1000"}, Timeout: time.Hour},
		{Command: []string{"/bin/sh", "-c", "exec sleep 1001"}, Timeout: time.Hour},
	}
	g.Shutdown.TotalDeadline = time.Second
	h := launch(t, g).ready()
	equal(t, "outcome", h.stops("web-1").Outcome, launcher.Killed)
	hooks := 0
	for _, e := range h.events {
		if e.Kind == launcher.HookRun {
			hooks++
		}
	}
	equal(t, "hooks that were begun", hooks, 1)
}

// Hooks run before the process is asked to stop, and one that fails, or hangs, holds nobody up for longer than it may.
func TestPreStopHooks(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	hook := func(script string) launcher.Hook {
		return launcher.Hook{Command: []string{"/bin/sh", "-c", script}, Timeout: 10 * time.Second}
	}
	g := runners("web", 1)
	slow := hook("sleep 100")
	slow.Timeout = 50 * time.Millisecond
	g.PreStop = []launcher.Hook{hook("echo $SWANSONG_PROCESS_ID {id} {dir} {socket} >> " + out), hook("exit 3"), slow, hook("kill -0 $SWANSONG_PROCESS_PID && echo alive >> " + out)}
	h := launch(t, g).ready()
	equal(t, "outcome", h.stops("web-1").Outcome, launcher.Clean)
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "what the hooks wrote", string(text), fmt.Sprintf("web-1 web-1 %s %[1]s/web-1.app\nalive\n", h.dir))
	var told []string
	for _, e := range h.events {
		if e.Kind == launcher.HookRun {
			told = append(told, e.Message)
		}
	}
	equal(t, "what was told", told, []string{"/bin/sh", "/bin/sh: exit status 3", "/bin/sh: killed after 50ms", "/bin/sh"})
}

// A process that is gone has no hooks: its number may be that of somebody else.
func TestPreStopHooks_OfNobody(t *testing.T) {
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
	if _, err := os.ReadFile(begun); err != nil { // which waits for the hook
		t.Fatal(err)
	}
	kill(t, pid)
	h.ends("web-1")
	var told []string
	for _, e := range h.events {
		if e.Kind == launcher.HookRun {
			told = append(told, e.Message)
		}
	}
	equal(t, "what was told", told, []string{"/bin/sh: killed, since the process has ended, or has no more time to stop"})
	if _, err := os.Stat(out); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the hook after it has run: %v", err)
	}
}
