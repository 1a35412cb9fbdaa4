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

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher"
)

// script returns a group of test runners that first run a shell script.
func script(name string, desired int, decide string) launcher.GroupConfig {
	g := runners(name, desired)
	g.Command = []string{"/bin/sh", "-c", decide + "\nexec " + os.Args[0] + " --process-id {id} --work-duration 1ms"}
	return g
}

// begin begins a roll and returns a channel for its result.
func begin(h *harness, g launcher.GroupConfig) <-chan error {
	over := make(chan error, 1)
	go func() { over <- h.Roll(context.Background(), g, "test") }()
	return over
}

// awaitRoll returns the result of a roll.
func awaitRoll(t *testing.T, h *harness, over <-chan error) error {
	t.Helper()
	select {
	case err := <-over:
		return err
	case <-time.After(tooLong):
		t.Fatalf("the roll does not end\n%s", h.story())
		return nil
	}
}

// revisions counts the processes that run, by revision.
func revisions(h *harness, group string) map[int]int {
	n := map[int]int{}
	for _, st := range h.running(group) {
		n[st.Revision]++
	}
	return n
}

// step returns a function that reports whether an event is a RollStep to the phase, with a message
// that contains the given text.
func step(phase, message string) func(launcher.Event) bool {
	return func(e launcher.Event) bool {
		return e.Kind == launcher.RollStep && e.Roll == phase && strings.Contains(e.Message, message)
	}
}

// A roll cannot change dependencies, because a roll of one group does not check whether the others
// exist or depend on this one.
func TestRoll_RefusesChangedDependencies(t *testing.T) {
	web := runners("web", 1)
	web.DependsOn = []string{"db"}
	h := launch(t, runners("db", 1), web).ready()
	for _, names := range [][]string{nil, {"db", "missing"}, {"web"}} {
		web.DependsOn = names
		err := h.Roll(soon(t), web, "test")
		if bad := (*launcher.ConfigError)(nil); !errors.As(err, &bad) || bad.Field != "DependsOn" {
			t.Errorf("roll to a group that depends on %q: %v", names, err)
		}
	}
	web.DependsOn = []string{"db"}
	testkit.Equal(t, "roll with the same dependencies", h.Roll(soon(t), web, "test"), nil)
}

// A roll waits for its canaries, and the health of the group says so. An old process that fails
// meanwhile is started again with its old revision. A rollback by order gives all processes the old
// revision again.
func TestCanary_RollWaitsForCanaryAndCanBeRolledBack(t *testing.T) {
	g := runners("web", 3)
	h := launch(t, g).ready()
	g.Roll = launcher.RollConfig{Canary: 1, CanaryWait: time.Hour}
	over := begin(h, g)
	h.readUntil("the canary is waited for", step("canary", "the first 1 are available"))
	h.readUntil("an old process has ended", func(e launcher.Event) bool { return e.To == launcher.Complete })
	testkit.Equal(t, "processes by revision", revisions(h, "web"), map[int]int{1: 2, 2: 1})
	health, _ := h.GroupHealth("web")
	if r := health.Roll; r == nil || r.Phase != "canary" || r.Canaries != 1 || time.Until(r.Until) < time.Minute || !strings.Contains(health.Message, "the others follow") ||
		!strings.HasSuffix(health.Message, fmt.Sprintf("; 1 of %d replaced", health.Desired)) {
		t.Errorf("health does not show the wait: %+v, %q", r, health.Message)
	}

	kill(t, h.running("web")[0].PID)
	next := h.readUntil("a replacement is started", func(e launcher.Event) bool { return e.To == launcher.Spawning })
	st, _ := h.Process(next.Process)
	if st.Revision != 1 {
		t.Fatalf("%s, which replaces a process of revision 1, has revision %d", st.ID, st.Revision)
	}
	h.waitForState(next.Process, launcher.Ready)

	// A user stops a process of the old revision. The process that replaces it has the old
	// revision, too.
	health, _ = h.GroupHealth("web")
	testkit.Equal(t, "failure of the roll", health.Roll.Why, "")
	stopped := h.running("web")[0]
	testkit.Equal(t, "revision of the oldest process", stopped.Revision, 1)
	if err := h.StopProcess(stopped.ID, launcher.Stop{Reason: "memory leak"}); err != nil {
		t.Fatal(err)
	}
	next = h.readUntil("a replacement of "+stopped.ID+" is started", func(e launcher.Event) bool { return e.To == launcher.Spawning })
	st, _ = h.Process(next.Process)
	testkit.Equal(t, "revision of the replacement of "+stopped.ID, st.Revision, 1)
	h.waitForState(next.Process, launcher.Ready)

	ctx, cancel := context.WithTimeout(context.Background(), tooLong)
	defer cancel()
	if err := h.Rollback(ctx, "web", "too many errors"); err != nil {
		t.Fatalf("%v\n%s", err, h.story())
	}
	var failure *launcher.RollError
	if err := awaitRoll(t, h, over); !errors.As(err, &failure) || !failure.RolledBack || !strings.Contains(err.Error(), "too many errors") {
		t.Errorf("Roll: %v", err)
	}
	testkit.Equal(t, "processes by revision", revisions(h, "web"), map[int]int{1: 3})
	testkit.Equal(t, "failed rolls", h.count(launcher.RollFailed), 0)
	testkit.Equal(t, "completed rolls", h.count(launcher.RollDone), 1)
	testkit.Equal(t, "rollbacks in Stats", h.Stats().Groups["web"].Rolls["rolled back"], uint64(1))
	if err := h.Rollback(ctx, "web", "again"); !errors.Is(err, launcher.ErrNotRolling) {
		t.Errorf("second Rollback: %v", err)
	}
}

// When the canaries have stayed available for CanaryWait, the other processes are replaced.
func TestCanary_OtherProcessesAreReplacedAfterCanaryWait(t *testing.T) {
	g := runners("web", 3)
	h := launch(t, g).ready()
	g.Roll = launcher.RollConfig{Canary: 1, CanaryWait: 200 * time.Millisecond}
	over := begin(h, g)
	h.readUntil("the canary is waited for", step("canary", "the first 1 are available"))
	began := 0
	h.readUntil("the others follow", func(e launcher.Event) bool {
		if e.Kind == launcher.Transition && e.To == launcher.Spawning {
			began++
		}
		return step("rolling", "the others follow")(e)
	})
	testkit.Equal(t, "processes started during the wait", began, 0)
	if err := awaitRoll(t, h, over); err != nil {
		t.Error(err)
	}
	testkit.Equal(t, "processes by revision", revisions(h, "web"), map[int]int{2: 3})
}

// Resume continues a paused roll, and does not begin it anew.
func TestResume_ContinuesPausedRoll(t *testing.T) {
	fixed := filepath.Join(shortDir(t), "fixed")
	h := launch(t, runners("web", 2)).ready()
	ctx, cancel := context.WithTimeout(context.Background(), tooLong)
	defer cancel()
	if err := h.Resume(ctx, "web", "too early"); !errors.Is(err, launcher.ErrNotPaused) {
		t.Errorf("Resume without a roll: %v", err)
	}
	bad := script("web", 2, "test -e "+fixed+" || exit 3; until [ -e "+fixed+"/go ]; do sleep 0.1; done")
	var failure *launcher.RollError
	if err := h.Roll(ctx, bad, "a bad build"); !errors.As(err, &failure) || failure.RolledBack || failure.Degraded {
		t.Fatalf("Roll: %v", err)
	}
	health, _ := h.GroupHealth("web")
	if r := health.Roll; r == nil || !r.Paused || !strings.Contains(r.Why, "web-3") {
		t.Errorf("health does not show the pause: %+v", r)
	}
	reason := health.Roll.Why
	kill(t, h.running("web")[0].PID) // the exit of this process must not change the reason of the pause
	h.waitForState("web-4", launcher.Ready)
	health, _ = h.GroupHealth("web")
	testkit.Equal(t, "reason", health.Roll.Why, reason)
	if err := os.Mkdir(fixed, 0o700); err != nil {
		t.Fatal(err)
	}
	resumed := make(chan error, 1)
	go func() { resumed <- h.Resume(ctx, "web", "fixed") }()
	h.waitForState("web-5", launcher.Spawning)
	health, _ = h.GroupHealth("web")
	testkit.Equal(t, "reason after Resume", health.Roll.Why, "")
	if err := os.WriteFile(filepath.Join(fixed, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := awaitRoll(t, h, resumed); err != nil {
		t.Fatalf("Resume: %v\n%s", err, h.story())
	}
	testkit.Equal(t, "processes by revision", revisions(h, "web"), map[int]int{2: 2})
}

// With OnFailure set to Continue, a group whose process could not be replaced runs with one process
// fewer until the next order.
func TestOnFailureContinue_GroupRunsWithFewerProcesses(t *testing.T) {
	g := runners("web", 3)
	g.MaxSurge = launcher.Int(0)
	h := launch(t, g).ready()
	odd := script("web", 3, "test {id} != web-6 || exit 3")
	odd.MaxSurge, odd.Roll = launcher.Int(0), launcher.RollConfig{OnFailure: launcher.Continue}
	ctx, cancel := context.WithTimeout(context.Background(), tooLong)
	defer cancel()
	var failure *launcher.RollError
	if err := h.Roll(ctx, odd, "one bad machine"); !errors.As(err, &failure) || !failure.Degraded {
		t.Fatalf("Roll: %v\n%s", err, h.story())
	}
	testkit.Equal(t, "process that failed", failure.Process, "web-6")
	health, _ := h.GroupHealth("web")
	testkit.Equal(t, "missing", health.Missing, 1)
	testkit.Equal(t, "processes by revision", revisions(h, "web"), map[int]int{2: 2})
	testkit.Equal(t, "smallest number of ready processes", leastReady(h), 2)
	if err := h.Restart(ctx, "web", "fixed"); err != nil {
		t.Fatalf("%v\n%s", err, h.story())
	}
	testkit.Equal(t, "processes by revision", revisions(h, "web"), map[int]int{3: 3})
}

// A user scales down a process that a roll is already stopping. That reduces the number of
// processes by exactly one, also after a rollback.
func TestScaleDown_OfProcessThatRollIsStoppingRemovesExactlyOne(t *testing.T) {
	g := runners("web", 3, "--behavior", "hang")
	g.Shutdown.Grace, g.Shutdown.Max = time.Hour, time.Hour
	h := launchWith(t, launcher.Config{Groups: []launcher.GroupConfig{g}, TotalDeadline: 100 * time.Millisecond}).ready()
	g.Roll.CanaryWait, g.Roll.Canary = time.Hour, 1
	over := begin(h, g)
	stopped := h.readUntil("an old process is stopping", func(e launcher.Event) bool { return e.To == launcher.ShutdownRequested }).Process
	for range 2 {
		if err := h.StopProcess(stopped, launcher.Stop{NoReplacement: true}); err != nil {
			t.Fatal(err)
		}
	}
	desired := func(when string) {
		t.Helper()
		health, _ := h.GroupHealth("web")
		testkit.Equal(t, "desired "+when, health.Desired, 2)
		if want := "an operator has scaled the group down by 1 from desired_instances (3)"; !strings.HasSuffix(health.Message, want) {
			t.Errorf("message %s is %q, want suffix %q", when, health.Message, want)
		}
	}
	desired("during the roll")
	turned := make(chan error, 1)
	go func() { turned <- h.Rollback(soon(t), "web", "test") }()
	killHanging := func(id string) {
		st, _ := h.Process(id)
		kill(t, st.PID)
	}
	killHanging(stopped)
	h.readUntil("the rollback ends", func(e launcher.Event) bool {
		if e.To == launcher.ShutdownRequested {
			killHanging(e.Process)
		}
		return e.Roll == "rolled back"
	})
	if err := awaitRoll(t, h, turned); err != nil {
		t.Fatalf("%v\n%s", err, h.story())
	}
	<-over
	desired("after the rollback")
	testkit.Equal(t, "processes by revision", revisions(h, "web"), map[int]int{1: 2})
}

// Scaling down a process that is being stopped as surplus changes nothing, because it is not
// replaced anyway.
func TestScaleDown_OfSurplusProcessBeingStoppedChangesNothing(t *testing.T) {
	g := runners("web", 3, "--behavior", "hang")
	g.Shutdown.Grace, g.Shutdown.Max = time.Hour, time.Hour
	h := launchWith(t, launcher.Config{Groups: []launcher.GroupConfig{g}, TotalDeadline: 100 * time.Millisecond}).ready()
	g.Desired, g.MinHealthy = 2, nil
	if err := h.Reload(soon(t), launcher.Config{Dir: h.dir, Groups: []launcher.GroupConfig{g}, TotalDeadline: 100 * time.Millisecond}, "test"); err != nil {
		t.Fatal(err)
	}
	stopped := h.readUntil("a process is stopping", func(e launcher.Event) bool { return e.To == launcher.ShutdownRequested }).Process
	if err := h.StopProcess(stopped, launcher.Stop{NoReplacement: true}); err != nil {
		t.Fatal(err)
	}
	health, _ := h.GroupHealth("web")
	testkit.Equal(t, "desired", health.Desired, 2)
}

// Scaling down a process that counts as finished and has not ended yet stops no other process:
// neither without a roll, nor in a roll that is then rolled back. In the new revision there is one
// process fewer, as for any other old process.
func TestScaleDown_RemovesFinishedProcessAndStopsNoOther(t *testing.T) {
	for _, rolled := range []bool{false, true} {
		t.Run(fmt.Sprintf("rolled %v", rolled), func(t *testing.T) {
			g := runners("job", 2)
			g.Restart.Policy = launcher.Never
			g.Job = !rolled // a job takes no part in rolls; in a service, a finished process still counts as desired
			// The liveness probe of job-1 fails when the file exists. That of the other process
			// never fails, however slow the machine is.
			file := filepath.Join(t.TempDir(), "ill")
			g.LivenessInterval = -1
			g.LivenessProbe.Exec.Command = []string{"/bin/sh", "-c", "[ {id} != job-1 ] || [ ! -e " + file + " ]"}
			g.LivenessProbe.Period, g.LivenessProbe.Timeout, g.LivenessProbe.FailureThreshold = 20*time.Millisecond, time.Hour, 1
			g.Shutdown.Grace, g.Shutdown.Max = time.Hour, time.Hour
			h := launchWith(t, launcher.Config{Groups: []launcher.GroupConfig{g}, TotalDeadline: 100 * time.Millisecond}).ready()
			var over <-chan error
			if rolled {
				next := runners("job", 2, "--ready-after", "-1s")
				next.HealthCheckTimeout = time.Hour
				over = begin(h, next)
				h.waitForState("job-3", launcher.Spawning)
			}
			h.waitForAnswer("job-1")
			silent, _ := h.Process("job-1")
			if err := syscall.Kill(silent.PID, syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			h.waitForState("job-1", launcher.Unhealthy)
			desired := func(when string, want int) {
				t.Helper()
				health, _ := h.GroupHealth("job")
				testkit.Equal(t, "desired "+when, health.Desired, want)
			}
			before := 1
			if rolled {
				before = 2
			}
			h.waitForDesired("job", before)
			if err := h.StopProcess("job-1", launcher.Stop{NoReplacement: true}); err != nil {
				t.Fatal(err)
			}
			desired("after the order", 1)
			if rolled {
				turned := make(chan error, 1)
				go func() { turned <- h.Rollback(soon(t), "job", "test") }()
				h.waitForState("job-3", launcher.ShutdownRequested)
				desired("while rolling back", 1)
				kill(t, silent.PID)
				if err := awaitRoll(t, h, turned); err != nil {
					t.Fatalf("%v\n%s", err, h.story())
				}
				<-over
			}
			testkit.Equal(t, "state of the other process", stateOf(h, "job-2"), launcher.Ready)
		})
	}
}

// The replacement of an old process has failed, so the old process keeps running. Then the group is
// scaled down, which stops this process and no other.
func TestScaleDown_StopsOnlyOldProcessWhoseReplacementFailed(t *testing.T) {
	g := runners("web", 3, "--behavior", "hang")
	g.Shutdown.Grace, g.Shutdown.Max = time.Hour, time.Hour
	h := launchWith(t, launcher.Config{Groups: []launcher.GroupConfig{g}, TotalDeadline: 100 * time.Millisecond}).ready()
	odd := script("web", 3, "test {id} != web-4 || { until [ -e {dir}/go ]; do sleep 0.1; done; exit 3; }")
	odd.MinHealthy, odd.Roll.OnFailure = launcher.Int(2), launcher.Continue
	over := begin(h, odd)
	stops := func() (id string, pid int) {
		t.Helper()
		id = h.readUntil("a process is stopping", func(e launcher.Event) bool { return e.To == launcher.ShutdownRequested }).Process
		st, _ := h.Process(id)
		return id, st.PID
	}
	// this process still counts, so no other process may start before it has ended
	_, pid := stops()
	if err := os.WriteFile(filepath.Join(h.dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h.readUntil("web-4 is given up", step("rolling", "could not be replaced: 1"))
	kill(t, pid)
	second, pid := stops() // the roll waits for the end of this process
	h.readUntil("both new processes run", func(launcher.Event) bool { return revisions(h, "web")[2] == 2 })
	var left launcher.Status
	for _, st := range h.running("web") {
		if st.Revision == 1 && st.ID != second {
			left = st
		}
	}
	if err := h.StopProcess(left.ID, launcher.Stop{NoReplacement: true}); err != nil {
		t.Fatal(err)
	}
	kill(t, left.PID)
	kill(t, pid)
	testkit.Equal(t, "result of the roll", awaitRoll(t, h, over), nil)
	testkit.Equal(t, "processes by revision", revisions(h, "web"), map[int]int{2: 2})
	if story := h.story(); strings.Contains(story, "one too many") {
		t.Errorf("a process is stopped as surplus:\n%s", story)
	}
}

// With Continue, a roll is rolled back if all its replacements fail.
func TestOnFailureContinue_RollsBackIfAllReplacementsFail(t *testing.T) {
	h := launch(t, runners("web", 3)).ready()
	bad := script("web", 3, "exit 3")
	bad.MinHealthy, bad.Roll = launcher.Int(2), launcher.RollConfig{OnFailure: launcher.Continue}
	var failure *launcher.RollError
	if err := h.Roll(soon(t), bad, "a bad build"); !errors.As(err, &failure) || !failure.RolledBack {
		t.Fatalf("Roll: %v\n%s", err, h.story())
	}
	health, _ := h.GroupHealth("web")
	testkit.Equal(t, "revision", health.Revision, 1)
	testkit.Equal(t, "message", health.Message, "")
	testkit.Equal(t, "processes by revision", revisions(h, "web"), map[int]int{1: 3})
	h.drainEvents()
	kill(t, h.running("web")[0].PID)
	next := h.readUntil("a replacement is started", func(e launcher.Event) bool { return e.To == launcher.Spawning })
	st, _ := h.Process(next.Process)
	testkit.Equal(t, "revision of the replacement", st.Revision, 1)
}

// After a degraded roll, the health of the group says how many processes could not be replaced,
// also if old ones run in their place.
func TestOnFailureContinue_HealthReportsProcessesNotReplaced(t *testing.T) {
	h := launch(t, runners("web", 3)).ready()
	odd := script("web", 3, "test {id} != web-4 || exit 3")
	odd.Roll.OnFailure = launcher.Continue
	var failure *launcher.RollError
	if err := h.Roll(soon(t), odd, "one bad machine"); !errors.As(err, &failure) || !failure.Degraded {
		t.Fatalf("Roll: %v\n%s", err, h.story())
	}
	health, _ := h.GroupHealth("web")
	testkit.Equal(t, "processes by revision", revisions(h, "web"), map[int]int{1: 1, 2: 2})
	testkit.Equal(t, "missing", health.Missing, 0)
	testkit.Equal(t, "message", health.Message, "degraded: 1 of 3 could not be replaced; restart the group when that is fixed")

	// When the old process has been replaced, the message about the missing replacement disappears.
	kill(t, h.running("web")[0].PID)
	h.readUntil("a replacement is started", func(e launcher.Event) bool { return e.To == launcher.Ready && revisions(h, "web")[2] == 3 })
	health, _ = h.GroupHealth("web")
	testkit.Equal(t, "message after the replacement", health.Message, "")
}

// leastReady returns the smallest number of processes that were ready at the same time, counted
// from when three were ready.
func leastReady(h *harness) int {
	h.drainEvents()
	ready, least := 0, 3
	full := false
	for _, e := range h.events {
		switch {
		case e.Kind != launcher.Transition:
		case e.To == launcher.Ready:
			ready++
		case e.From == launcher.Ready:
			ready--
		}
		full = full || ready == 3
		if full {
			least = min(least, ready)
		}
	}
	return least
}

// A roll without progress until its deadline pauses with an error.
func TestProgressDeadline_PausesStalledRoll(t *testing.T) {
	h := launch(t, runners("web", 1)).ready()
	g := runners("web", 1, "--ready-after", "-1s")
	g.Roll.ProgressDeadline = 200 * time.Millisecond
	err := awaitRoll(t, h, begin(h, g))
	if err == nil || !strings.Contains(err.Error(), "no progress for 200ms") {
		t.Errorf("Roll: %v", err)
	}
	testkit.Equal(t, "state of the old process", stateOf(h, "web-1"), launcher.Ready)
	ctx, cancel := context.WithTimeout(context.Background(), tooLong)
	defer cancel()
	if err := h.Rollback(ctx, "web", "test"); err != nil {
		t.Errorf("Rollback: %v\n%s", err, h.story())
	}
	testkit.Equal(t, "processes by revision", revisions(h, "web"), map[int]int{1: 1})
}

// A reload that removes a slow group does not shorten a derived total deadline for it. A configured
// deadline holds at once.
func TestTotalDeadline_StillCoversSlowGroupThatReloadRemoved(t *testing.T) {
	for _, c := range []struct {
		name    string
		before  time.Duration
		derived bool
		drain   string
		want    launcher.Outcome
	}{
		{"no deadline becomes a derived one", 0, true, "1s", launcher.Clean},
		{"a longer deadline becomes a derived one", time.Hour, true, "1s", launcher.Clean},
		{"a longer deadline becomes a configured one", time.Hour, false, "1h", launcher.Killed},
	} {
		t.Run(c.name, func(t *testing.T) {
			slow, kv := runners("slow", 1, "--behavior", "slow-drain", "--drain-duration", c.drain), runners("kv", 1)
			slow.Shutdown.Grace, slow.Shutdown.Max = time.Hour, time.Hour
			h := launchWith(t, launcher.Config{Groups: []launcher.GroupConfig{slow, kv}, TotalDeadline: c.before, TotalDeadlineDerived: true}).ready()
			next := launcher.Config{Dir: h.dir, Groups: []launcher.GroupConfig{kv}, TotalDeadline: 250 * time.Millisecond, TotalDeadlineDerived: c.derived}
			begun, cancel := context.WithCancel(context.Background())
			cancel()
			if err := h.Reload(begun, next, "test"); !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			h.Shutdown()
			testkit.Equal(t, "outcome", h.waitForEnd("slow-1").Outcome, c.want)
		})
	}
}

// The total deadline bounds the stop of all groups, even if their own limits are longer.
func TestTotalDeadline_BoundsStopOfAllGroups(t *testing.T) {
	g := runners("web", 2, "--behavior", "hang")
	g.Shutdown.Grace, g.Shutdown.Max = 20*time.Minute, 20*time.Minute
	db := runners("db", 1)
	g.DependsOn = []string{"db"}
	h := launchWith(t, launcher.Config{Groups: []launcher.GroupConfig{g, db}, TotalDeadline: time.Second}).ready()
	h.Shutdown()
	for _, id := range []string{"web-1", "web-2"} {
		st := h.waitForEnd(id)
		testkit.Equal(t, "outcome of "+id, st.Outcome, launcher.Killed)
		if !strings.Contains(st.Message, "total_deadline") || st.Took() < 800*time.Millisecond {
			t.Errorf("%s ended after %v with message %q", id, st.Took(), st.Message)
		}
	}
}
