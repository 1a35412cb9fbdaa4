//go:build unix

package launcher_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher"
)

// plainGroup returns a group that does not know the launcher.
func plainGroup(name string, desired int) launcher.GroupConfig {
	g := group(name, desired, "plain")
	g.Protocol = launcher.Signals
	return g
}

// A group has as many processes as Scale says, also after restarts, until a reload changes the
// number. MinHealthy rises and falls with it.
func TestScale_NumberStaysUntilReloadChangesIt(t *testing.T) {
	g := plainGroup("web", 2)
	h := launch(t, g).ready()
	for _, c := range []struct{ n, minHealthy int }{{4, 4}, {1, 1}, {0, 0}, {3, 3}} {
		if err := h.Scale(soon(t), "web", c.n, "test"); err != nil {
			t.Fatalf("to %d: %v\n%s", c.n, err, h.story())
		}
		got := h.Health()[0]
		testkit.Equal(t, "ready processes", got.Ready, c.n)
		testkit.Equal(t, "all processes", got.Total, c.n)
		testkit.Equal(t, "MinHealthy", got.MinHealthy, c.minHealthy)
	}
	testkit.Equal(t, "message", h.Health()[0].Message, "an operator has scaled the group up by 1 from desired_instances (2)")
	if err := h.Restart(soon(t), "web", "test"); err != nil {
		t.Fatal(err)
	}
	testkit.Equal(t, "after a restart", h.Health()[0].Ready, 3)

	g.Restart.MaxBackoff = time.Minute
	reload(t, h, g)
	testkit.Equal(t, "after a reload of another key", h.Health()[0].Desired, 3)
	g.Desired = 1
	reload(t, h, g)
	testkit.Equal(t, "after a reload of the number", h.Health()[0].Desired, 1)

	var wrong *launcher.ConfigError
	if err := h.Scale(soon(t), "web", -1, "test"); !errors.As(err, &wrong) || wrong.Field != "Desired" {
		t.Errorf("to -1: %v", err)
	}
	if err := h.Scale(soon(t), "mail", 1, "test"); !errors.Is(err, launcher.ErrNotFound) {
		t.Errorf("an unknown group: %v", err)
	}
}

func reload(t *testing.T, h *harness, groups ...launcher.GroupConfig) {
	t.Helper()
	if err := h.Reload(soon(t), launcher.Config{Dir: h.dir, Groups: groups}, "test"); err != nil {
		t.Fatal(err)
	}
}

// An order to scale during a roll holds when the roll is rolled back.
func TestScale_NumberSurvivesRollback(t *testing.T) {
	g := runners("web", 1)
	h := launch(t, g).ready()
	g.Command = append(g.Command, "--ready-after", "-1s")
	rolled := make(chan error, 1)
	go func() { rolled <- h.Roll(context.Background(), g, "test") }()
	h.readUntil("the roll has begun", func(e launcher.Event) bool { return e.Kind == launcher.RollBegun })
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	if err := h.Scale(gone, "web", 2, "test"); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if err := h.Rollback(soon(t), "web", "test"); err != nil {
		t.Fatal(err)
	}
	<-rolled
	testkit.Equal(t, "desired", h.Health()[0].Desired, 2)
	if err := h.Scale(soon(t), "web", 2, "test"); err != nil {
		t.Fatal(err)
	}
}

// A newer order to scale ends the wait for an older one, with an error.
func TestScale_NewerOrderEndsWaitForOlderOne(t *testing.T) {
	g := plainGroup("web", 0)
	g.HealthCheckTimeout = time.Hour // no process becomes ready during the test, and none is replaced
	g.StartupProbe = launcher.Probe{Exec: launcher.ExecAction{Command: []string{"false"}}, Period: time.Hour, FailureThreshold: 2}
	h := launch(t, g)
	scaled := make(chan error, 1)
	go func() { scaled <- h.Scale(context.Background(), "web", 2, "test") }()
	h.readUntil("it is ordered", func(e launcher.Event) bool { return e.Kind == launcher.Ordered })
	if err := h.Scale(soon(t), "web", 0, "test"); err != nil {
		t.Fatal(err)
	}
	if err := <-scaled; err == nil || err.Error() != `launcher: group "web": a newer order or a reload has changed the number of its processes from 2 to 0` {
		t.Errorf("the older order: %v", err)
	}
}

// A stopped group has no process before it is started by order: not after a reload that rolls it,
// nor after its dependency was restarted. A group that depends on it does not start meanwhile.
func TestStopGroup_StaysStoppedUntilStarted(t *testing.T) {
	db, web := plainGroup("db", 1), plainGroup("web", 2)
	web.DependsOn = []string{"db"}
	h := launch(t, db, web).ready()
	if err := h.StopGroup(soon(t), "web", "test"); err != nil {
		t.Fatal(err)
	}
	check := func(when string) {
		t.Helper()
		got, err := h.GroupHealth("web")
		if err != nil || !got.Stopped || !got.Healthy || got.Total != 0 || got.Message != "stopped by an operator; launcher start web starts it" {
			t.Errorf("%s: %+v, %v", when, got, err)
		}
	}
	check("after the stop")
	if err := h.Restart(soon(t), "db", "test"); err != nil {
		t.Fatal(err)
	}
	web.Env = append(web.Env, "VERSION=2")
	late := plainGroup("late", 1)
	late.DependsOn = []string{"web"}
	reload(t, h, db, web, late)
	check("after a reload")
	if err := h.Restart(soon(t), "web", "test"); !errors.Is(err, launcher.ErrStopped) {
		t.Errorf("restart of a stopped group: %v", err)
	}
	if err := h.Scale(soon(t), "web", 1, "test"); err != nil {
		t.Fatal(err)
	}
	check("after it was scaled")
	if got, _ := h.GroupHealth("late"); got.Total != 0 {
		t.Errorf("the group that depends on the stopped one: %+v", got)
	}
	if err := h.StartGroup(soon(t), "web", "test"); err != nil {
		t.Fatal(err)
	}
	if got, _ := h.GroupHealth("web"); got.Ready != 1 || got.Stopped {
		t.Errorf("after the start: %+v", got)
	}
	h.ready()
}

// The order to stop a group supersedes a roll of the group, and ends the wait of an order to start
// it.
func TestStopGroup_SupersedesRoll(t *testing.T) {
	g := runners("web", 1)
	h := launch(t, g).ready()
	g.Command = append(g.Command, "--ready-after", "-1s")
	rolled := make(chan error, 1)
	go func() { rolled <- h.Roll(context.Background(), g, "test") }()
	h.readUntil("the roll has begun", func(e launcher.Event) bool { return e.Kind == launcher.RollBegun })
	if err := h.StopGroup(soon(t), "web", "test"); err != nil {
		t.Fatal(err)
	}
	if err := <-rolled; !errors.Is(err, launcher.ErrSuperseded) {
		t.Errorf("the roll: %v", err)
	}
	started := make(chan error, 1)
	go func() { started <- h.StartGroup(context.Background(), "web", "test") }()
	h.readUntil("it is started", func(e launcher.Event) bool {
		return e.Kind == launcher.Ordered && strings.HasPrefix(e.Message, "started")
	})
	if err := h.StopGroup(soon(t), "web", "test"); err != nil {
		t.Fatal(err)
	}
	if err := <-started; !errors.Is(err, launcher.ErrStopped) {
		t.Errorf("the wait for the start: %v", err)
	}
}

// If an operator starts a group that was given up, it starts processes again.
func TestStartGroup_RestartsGivenUpGroup(t *testing.T) {
	gate := filepath.Join(t.TempDir(), "gate")
	g := jobThat("web", "[ -e "+gate+" ] || exit 3; exec sleep 1000")
	g.Job = false
	h := launch(t, g)
	h.readUntil("it is given up", func(e launcher.Event) bool { return e.Kind == launcher.Alarm })
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := h.StartGroup(soon(t), "web", "test"); err != nil {
		t.Errorf("%v\n%s", err, h.story())
	}
}

// An order to start a group ends the pause after a failure.
func TestStartGroup_EndsBackoffPauseAfterFailure(t *testing.T) {
	gate := filepath.Join(t.TempDir(), "gate")
	g := jobThat("web", "[ -e "+gate+" ] || exit 3; exec sleep 1000")
	g.Job, g.Restart = false, launcher.RestartConfig{MinBackoff: time.Hour}
	h := launch(t, g)
	h.readUntil("it waits for its restart", func(e launcher.Event) bool { return e.Kind == launcher.Restart })
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := h.StartGroup(soon(t), "web", "test"); err != nil {
		t.Errorf("%v\n%s", err, h.story())
	}
}

// A signal reaches the processes of a group, or one process, and only that one.
func TestSignal_ReachesAllProcessesOfGroupOrOneProcess(t *testing.T) {
	dir := t.TempDir()
	g := jobThat("web", "trap 'touch "+dir+"/$SWANSONG_PROCESS_ID.hup' HUP; touch "+dir+"/$SWANSONG_PROCESS_ID; while :; do sleep 0.1; done")
	g.Desired = 2
	h := launch(t, g).ready() // a process can create its file before the launcher knows that it runs
	awaitFile(t, filepath.Join(dir, "web-1"), true)
	awaitFile(t, filepath.Join(dir, "web-2"), true)
	ids, err := h.Signal("web-2", syscall.SIGHUP, "test")
	testkit.Equal(t, "processes", ids, []string{"web-2"})
	testkit.Equal(t, "error", err, nil)
	awaitFile(t, filepath.Join(dir, "web-2.hup"), true)
	if _, err := os.Stat(filepath.Join(dir, "web-1.hup")); err == nil {
		t.Error("the signal has reached another process")
	}
	ids, err = h.Signal("web", syscall.SIGHUP, "test")
	testkit.Equal(t, "processes", ids, []string{"web-1", "web-2"})
	testkit.Equal(t, "error", err, nil)
	awaitFile(t, filepath.Join(dir, "web-1.hup"), true)
	if _, err = h.Signal("mail", syscall.SIGHUP, "test"); !errors.Is(err, launcher.ErrNotFound) {
		t.Errorf("an unknown name: %v", err)
	}
	if err := h.StopGroup(soon(t), "web", "test"); err != nil {
		t.Fatal(err)
	}
	if _, err = h.Signal("web", syscall.SIGHUP, "test"); err == nil || errors.Is(err, launcher.ErrNotFound) {
		t.Errorf("a group without processes: %v", err)
	}
}
