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

// script is a group of test runners that a shell decides about first.
func script(name string, desired int, decide string) launcher.GroupConfig {
	g := runners(name, desired)
	g.Command = []string{"/bin/sh", "-c", decide + "\nexec " + os.Args[0] + " --process-id {id} --work-duration 1ms"}
	return g
}

// begin begins a roll, and returns what it will come to.
func begin(h *harness, g launcher.GroupConfig) <-chan error {
	over := make(chan error, 1)
	go func() { over <- h.Roll(context.Background(), g, "test") }()
	return over
}

func comes(t *testing.T, h *harness, over <-chan error) error {
	t.Helper()
	select {
	case err := <-over:
		return err
	case <-time.After(tooLong):
		t.Fatalf("the roll does not come to an end\n%s", h.story())
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

func step(phase, says string) func(launcher.Event) bool {
	return func(e launcher.Event) bool {
		return e.Kind == launcher.RollStep && e.Roll == phase && strings.Contains(e.Message, says)
	}
}

// A roll that would have a group depend on others, or on itself, is refused: nobody would look whether they are there, and the
// group would wait for them at its start or its stop for ever.
func TestRollKeepsDependencies(t *testing.T) {
	web := runners("web", 1)
	web.DependsOn = []string{"db"}
	h := launch(t, runners("db", 1), web).ready()
	for _, names := range [][]string{nil, {"db", "nobody"}, {"web"}} {
		web.DependsOn = names
		err := h.Roll(soon(t), web, "test")
		if bad := (*launcher.ConfigError)(nil); !errors.As(err, &bad) || bad.Field != "DependsOn" {
			t.Errorf("to depend on %q: %v", names, err)
		}
	}
	web.DependsOn = []string{"db"}
	equal(t, "to depend on who it does", h.Roll(soon(t), web, "test"), nil)
}

// Canaries go first and are waited for, which can be seen. An old process that fails meanwhile is started again, as what it
// was, and an order takes all of it back.
func TestCanary(t *testing.T) {
	g := runners("web", 3)
	h := launch(t, g).ready()
	g.Roll = launcher.RollConfig{Canary: 1, CanaryWait: time.Hour}
	over := begin(h, g)
	h.until("the canary is waited for", step("canary", "1 go first"))
	h.until("an old one has made room", func(e launcher.Event) bool { return e.To == launcher.Complete })
	equal(t, "processes by revision", revisions(h, "web"), map[int]int{1: 2, 2: 1})
	health, _ := h.GroupHealth("web")
	if r := health.Roll; r == nil || r.Phase != "canary" || r.Canaries != 1 || time.Until(r.Until) < time.Minute || !strings.Contains(health.Message, "the others follow") ||
		!strings.HasSuffix(health.Message, fmt.Sprintf("; 1 of %d replaced", health.Desired)) {
		t.Errorf("the wait is not shown: %+v, %q", r, health.Message)
	}

	kill(t, h.running("web")[0].PID)
	next := h.until("somebody takes its place", func(e launcher.Event) bool { return e.To == launcher.Spawning })
	st, _ := h.Process(next.Process)
	if st.Revision != 1 {
		t.Fatalf("%s takes the place of one of revision 1, and is of revision %d", st.ID, st.Revision)
	}
	h.enters(next.Process, launcher.Ready)

	// One that is stopped by an order, too.
	health, _ = h.GroupHealth("web")
	equal(t, "what is wrong with the roll", health.Roll.Why, "")
	stopped := h.running("web")[0]
	equal(t, "revision of the oldest one", stopped.Revision, 1)
	if err := h.StopProcess(stopped.ID, launcher.Stop{Reason: "it leaks"}); err != nil {
		t.Fatal(err)
	}
	next = h.until("somebody takes the place of "+stopped.ID, func(e launcher.Event) bool { return e.To == launcher.Spawning })
	st, _ = h.Process(next.Process)
	equal(t, "revision of who takes the place of "+stopped.ID, st.Revision, 1)
	h.enters(next.Process, launcher.Ready)

	ctx, cancel := context.WithTimeout(context.Background(), tooLong)
	defer cancel()
	if err := h.Rollback(ctx, "web", "it looks bad"); err != nil {
		t.Fatalf("%v\n%s", err, h.story())
	}
	var failure *launcher.RollError
	if err := comes(t, h, over); !errors.As(err, &failure) || !failure.RolledBack || !strings.Contains(err.Error(), "it looks bad") {
		t.Errorf("Roll: %v", err)
	}
	equal(t, "processes by revision", revisions(h, "web"), map[int]int{1: 3})
	equal(t, "rolls that have failed", h.count(launcher.RollFailed), 0)
	equal(t, "rolls that were done", h.count(launcher.RollDone), 1)
	equal(t, "rolls that were turned back", h.Stats().Groups["web"].Rolls["rolled back"], uint64(1))
	if err := h.Rollback(ctx, "web", "again"); !errors.Is(err, launcher.ErrNotRolling) {
		t.Errorf("a second time: %v", err)
	}
}

// When the canaries have stayed, the others follow.
func TestCanariesThatStay(t *testing.T) {
	g := runners("web", 3)
	h := launch(t, g).ready()
	g.Roll = launcher.RollConfig{Canary: 1, CanaryWait: 200 * time.Millisecond}
	over := begin(h, g)
	h.until("the canary is waited for", step("canary", "1 go first"))
	began := 0
	h.until("the others follow", func(e launcher.Event) bool {
		if e.Kind == launcher.Transition && e.To == launcher.Spawning {
			began++
		}
		return step("rolling", "the others follow")(e)
	})
	equal(t, "who was started while the canary was waited for", began, 0)
	if err := comes(t, h, over); err != nil {
		t.Error(err)
	}
	equal(t, "processes by revision", revisions(h, "web"), map[int]int{2: 3})
}

// A roll that is paused goes on by an order, where it was.
func TestResume(t *testing.T) {
	fixed := filepath.Join(shortDir(t), "fixed")
	h := launch(t, runners("web", 2)).ready()
	ctx, cancel := context.WithTimeout(context.Background(), tooLong)
	defer cancel()
	if err := h.Resume(ctx, "web", "too early"); !errors.Is(err, launcher.ErrNotPaused) {
		t.Errorf("with nothing to resume: %v", err)
	}
	bad := script("web", 2, "test -e "+fixed+" || exit 3; until [ -e "+fixed+"/go ]; do sleep 0.01; done")
	var failure *launcher.RollError
	if err := h.Roll(ctx, bad, "a bad build"); !errors.As(err, &failure) || failure.RolledBack || failure.Degraded {
		t.Fatalf("Roll: %v", err)
	}
	health, _ := h.GroupHealth("web")
	if r := health.Roll; r == nil || !r.Paused || !strings.Contains(r.Why, "web-3") {
		t.Errorf("the pause is not shown: %+v", r)
	}
	reason := health.Roll.Why
	kill(t, h.running("web")[0].PID) // which is no reason for the pause
	h.enters("web-4", launcher.Ready)
	health, _ = h.GroupHealth("web")
	equal(t, "reason", health.Roll.Why, reason)
	if err := os.Mkdir(fixed, 0o700); err != nil {
		t.Fatal(err)
	}
	resumed := make(chan error, 1)
	go func() { resumed <- h.Resume(ctx, "web", "mended") }()
	h.enters("web-5", launcher.Spawning)
	health, _ = h.GroupHealth("web")
	equal(t, "reason when it goes on", health.Roll.Why, "")
	if err := os.WriteFile(filepath.Join(fixed, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := comes(t, h, resumed); err != nil {
		t.Fatalf("Resume: %v\n%s", err, h.story())
	}
	equal(t, "processes by revision", revisions(h, "web"), map[int]int{2: 2})
}

// With continue, a group goes on with fewer when some cannot be replaced, until the next order.
func TestContinue(t *testing.T) {
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
	equal(t, "who has failed", failure.Process, "web-6")
	health, _ := h.GroupHealth("web")
	equal(t, "missing", health.Missing, 1)
	equal(t, "processes by revision", revisions(h, "web"), map[int]int{2: 2})
	equal(t, "least that were ready", leastReady(h), 2)
	if err := h.Restart(ctx, "web", "mended"); err != nil {
		t.Fatalf("%v\n%s", err, h.story())
	}
	equal(t, "processes by revision", revisions(h, "web"), map[int]int{3: 3})
}

// An order to have one less holds when it comes in a roll, for one that the roll is stopping, also when that turns back; once for each.
func TestOneFewerInARoll(t *testing.T) {
	g := runners("web", 3, "--behavior", "hang")
	g.Shutdown.Grace, g.Shutdown.Max = time.Hour, time.Hour
	h := launchWith(t, launcher.Config{Groups: []launcher.GroupConfig{g}, TotalDeadline: 100 * time.Millisecond}).ready()
	g.Roll.CanaryWait, g.Roll.Canary = time.Hour, 1
	over := begin(h, g)
	stopped := h.until("an old one is to stop", func(e launcher.Event) bool { return e.To == launcher.ShutdownRequested }).Process
	for range 2 {
		if err := h.StopProcess(stopped, launcher.Stop{NoReplacement: true}); err != nil {
			t.Fatal(err)
		}
	}
	desired := func(when string) {
		t.Helper()
		health, _ := h.GroupHealth("web")
		equal(t, "desired "+when, health.Desired, 2)
		if want := "1 fewer than desired_instances, 3, by order"; !strings.HasSuffix(health.Message, want) {
			t.Errorf("it is said %s: %q, and not %q", when, health.Message, want)
		}
	}
	desired("on the way there")
	turned := make(chan error, 1)
	go func() { turned <- h.Rollback(soon(t), "web", "test") }()
	hangs := func(id string) {
		st, _ := h.Process(id)
		kill(t, st.PID)
	}
	hangs(stopped)
	h.until("it has turned back", func(e launcher.Event) bool {
		if e.To == launcher.ShutdownRequested {
			hangs(e.Process)
		}
		return e.Roll == "rolled back"
	})
	if err := comes(t, h, turned); err != nil {
		t.Fatalf("%v\n%s", err, h.story())
	}
	<-over
	desired("after the way back")
	equal(t, "processes by revision", revisions(h, "web"), map[int]int{1: 2})
}

// Who is one too many has no replacement, and to say that it is to have none changes nothing.
func TestOneFewer_OfOneTooMany(t *testing.T) {
	g := runners("web", 3, "--behavior", "hang")
	g.Shutdown.Grace, g.Shutdown.Max = time.Hour, time.Hour
	h := launchWith(t, launcher.Config{Groups: []launcher.GroupConfig{g}, TotalDeadline: 100 * time.Millisecond}).ready()
	g.Desired, g.MinHealthy = 2, nil
	if err := h.Reload(soon(t), launcher.Config{Dir: h.dir, Groups: []launcher.GroupConfig{g}, TotalDeadline: 100 * time.Millisecond}, "test"); err != nil {
		t.Fatal(err)
	}
	stopped := h.until("one is to stop", func(e launcher.Event) bool { return e.To == launcher.ShutdownRequested }).Process
	if err := h.StopProcess(stopped, launcher.Stop{NoReplacement: true}); err != nil {
		t.Fatal(err)
	}
	health, _ := h.GroupHealth("web")
	equal(t, "desired", health.Desired, 2)
}

// Nor does it take another one away where somebody is through, and has yet to end: in a roll, where that turns back. What it leads to
// has one fewer, as for any other one that a roll replaces.
func TestOneFewer_OfWhoIsThrough(t *testing.T) {
	for _, rolled := range []bool{false, true} {
		t.Run(fmt.Sprintf("rolled %v", rolled), func(t *testing.T) {
			g := runners("job", 2)
			g.Restart.Policy = launcher.Never
			g.LivenessInterval, g.LivenessFailures = 20*time.Millisecond, 2
			g.Shutdown.Grace, g.Shutdown.Max = time.Hour, time.Hour
			h := launchWith(t, launcher.Config{Groups: []launcher.GroupConfig{g}, TotalDeadline: 100 * time.Millisecond}).ready()
			var over <-chan error
			if rolled {
				next := runners("job", 2, "--ready-after", "-1s")
				next.HealthCheckTimeout = time.Hour
				over = begin(h, next)
				h.enters("job-3", launcher.Spawning)
			}
			h.answers("job-1")
			silent, _ := h.Process("job-1")
			if err := syscall.Kill(silent.PID, syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			h.enters("job-1", launcher.Unhealthy)
			desired := func(when string, want int) {
				t.Helper()
				health, _ := h.GroupHealth("job")
				equal(t, "desired "+when, health.Desired, want)
			}
			before := 1
			if rolled {
				before = 2
			}
			h.desires("job", before)
			if err := h.StopProcess("job-1", launcher.Stop{NoReplacement: true}); err != nil {
				t.Fatal(err)
			}
			desired("after the order", 1)
			if rolled {
				turned := make(chan error, 1)
				go func() { turned <- h.Rollback(soon(t), "job", "test") }()
				h.enters("job-3", launcher.ShutdownRequested)
				desired("on the way back", 1)
				kill(t, silent.PID)
				if err := comes(t, h, turned); err != nil {
					t.Fatalf("%v\n%s", err, h.story())
				}
				<-over
			}
			equal(t, "state of the other one", stateOf(h, "job-2"), launcher.Ready)
		})
	}
}

// Nor where a roll has left somebody in the place of one that could not be replaced: that one is not missing any more.
func TestOneFewer_OfWhoIsLeft(t *testing.T) {
	g := runners("web", 3, "--behavior", "hang")
	g.Shutdown.Grace, g.Shutdown.Max = time.Hour, time.Hour
	h := launchWith(t, launcher.Config{Groups: []launcher.GroupConfig{g}, TotalDeadline: 100 * time.Millisecond}).ready()
	odd := script("web", 3, "test {id} != web-4 || { until [ -e {dir}/go ]; do sleep 0.01; done; exit 3; }")
	odd.MinHealthy, odd.Roll.OnFailure = launcher.Int(2), launcher.Continue
	over := begin(h, odd)
	stops := func() (id string, pid int) {
		t.Helper()
		id = h.until("one is to stop", func(e launcher.Event) bool { return e.To == launcher.ShutdownRequested }).Process
		st, _ := h.Process(id)
		return id, st.PID
	}
	_, pid := stops() // and with it there is no place for another one yet
	if err := os.WriteFile(filepath.Join(h.dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h.until("web-4 is given up", step("rolling", "goes on without 1"))
	kill(t, pid)
	second, pid := stops() // the roll is not over before it is gone
	h.until("both new ones are there", func(launcher.Event) bool { return revisions(h, "web")[2] == 2 })
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
	equal(t, "what has come of the roll", comes(t, h, over), nil)
	equal(t, "processes by revision", revisions(h, "web"), map[int]int{2: 2})
	if story := h.story(); strings.Contains(story, "one too many") {
		t.Errorf("somebody is taken for one too many:\n%s", story)
	}
}

// With continue, and none that works, nobody is there to go on with: the group is again what it was, and its successors are of that.
func TestContinue_WithNobody(t *testing.T) {
	h := launch(t, runners("web", 3)).ready()
	bad := script("web", 3, "exit 3")
	bad.MinHealthy, bad.Roll = launcher.Int(2), launcher.RollConfig{OnFailure: launcher.Continue}
	var failure *launcher.RollError
	if err := h.Roll(soon(t), bad, "a bad build"); !errors.As(err, &failure) || !failure.RolledBack {
		t.Fatalf("Roll: %v\n%s", err, h.story())
	}
	health, _ := h.GroupHealth("web")
	equal(t, "revision", health.Revision, 1)
	equal(t, "message", health.Message, "")
	equal(t, "processes by revision", revisions(h, "web"), map[int]int{1: 3})
	h.drainEvents()
	kill(t, h.running("web")[0].PID)
	next := h.until("somebody takes its place", func(e launcher.Event) bool { return e.To == launcher.Spawning })
	st, _ := h.Process(next.Process)
	equal(t, "revision of who takes the place of one", st.Revision, 1)
}

// With continue, and some that cannot be replaced, it is said how many that are: also where others serve in their place.
func TestContinue_WithSome(t *testing.T) {
	h := launch(t, runners("web", 3)).ready()
	odd := script("web", 3, "test {id} != web-4 || exit 3")
	odd.Roll.OnFailure = launcher.Continue
	var failure *launcher.RollError
	if err := h.Roll(soon(t), odd, "one bad machine"); !errors.As(err, &failure) || !failure.Degraded {
		t.Fatalf("Roll: %v\n%s", err, h.story())
	}
	health, _ := h.GroupHealth("web")
	equal(t, "processes by revision", revisions(h, "web"), map[int]int{1: 1, 2: 2})
	equal(t, "missing", health.Missing, 0)
	equal(t, "message", health.Message, "degraded: 1 of 3 could not be replaced; restart the group when that is mended")

	// When somebody has taken the place of that one, nothing is to be done any more.
	kill(t, h.running("web")[0].PID)
	h.until("somebody takes its place", func(e launcher.Event) bool { return e.To == launcher.Ready && revisions(h, "web")[2] == 3 })
	health, _ = h.GroupHealth("web")
	equal(t, "message when it has a successor", health.Message, "")
}

// leastReady is how few were ready at a time, from the moment that three were.
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

// A roll of which nothing comes is a failure.
func TestProgressDeadline(t *testing.T) {
	h := launch(t, runners("web", 1)).ready()
	g := runners("web", 1, "--ready-after", "-1s")
	g.Roll.ProgressDeadline = 200 * time.Millisecond
	err := comes(t, h, begin(h, g))
	if err == nil || !strings.Contains(err.Error(), "nothing has got better for 200ms") {
		t.Errorf("Roll: %v", err)
	}
	equal(t, "state of the old one", stateOf(h, "web-1"), launcher.Ready)
	ctx, cancel := context.WithTimeout(context.Background(), tooLong)
	defer cancel()
	if err := h.Rollback(ctx, "web", "test"); err != nil {
		t.Errorf("Rollback: %v\n%s", err, h.story())
	}
	equal(t, "processes by revision", revisions(h, "web"), map[int]int{1: 1})
}

// A reload that drops a slow group takes none of its time where the total deadline is made from what the groups may take, and
// holds at once where it is what somebody wants.
func TestTotalDeadlineOfWhoIsLeaving(t *testing.T) {
	for _, c := range []struct {
		had     time.Duration
		derived bool
		drain   string
		want    launcher.Outcome
	}{{0, true, "1s", launcher.Clean}, {time.Hour, true, "1s", launcher.Clean}, {time.Hour, false, "1h", launcher.Killed}} {
		t.Run(fmt.Sprint(c.had, c.derived), func(t *testing.T) {
			slow, kv := runners("slow", 1, "--behavior", "slow-drain", "--drain-duration", c.drain), runners("kv", 1)
			slow.Shutdown.Grace, slow.Shutdown.Max = time.Hour, time.Hour
			h := launchWith(t, launcher.Config{Groups: []launcher.GroupConfig{slow, kv}, TotalDeadline: c.had, TotalDeadlineDerived: true}).ready()
			next := launcher.Config{Dir: h.dir, Groups: []launcher.GroupConfig{kv}, TotalDeadline: 250 * time.Millisecond, TotalDeadlineDerived: c.derived}
			begun, cancel := context.WithCancel(context.Background())
			cancel()
			if err := h.Reload(begun, next, "test"); !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			h.Shutdown()
			equal(t, "outcome", h.ends("slow-1").Outcome, c.want)
		})
	}
}

// A stop of everything is bounded, whatever the groups may take by themselves.
func TestTotalDeadlineOfAll(t *testing.T) {
	g := runners("web", 2, "--behavior", "hang")
	g.Shutdown.Grace, g.Shutdown.Max = 20*time.Minute, 20*time.Minute
	db := runners("db", 1)
	g.DependsOn = []string{"db"}
	h := launchWith(t, launcher.Config{Groups: []launcher.GroupConfig{g, db}, TotalDeadline: time.Second}).ready()
	h.Shutdown()
	for _, id := range []string{"web-1", "web-2"} {
		st := h.ends(id)
		equal(t, "outcome of "+id, st.Outcome, launcher.Killed)
		if !strings.Contains(st.Message, "total deadline") || st.Took() < 800*time.Millisecond {
			t.Errorf("%s was ended after %v, for %q", id, st.Took(), st.Message)
		}
	}
}
