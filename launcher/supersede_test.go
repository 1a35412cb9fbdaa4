//go:build unix

package launcher_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher"
)

// revised returns a group that differs from g in an environment variable, so that it is rolled.
func revised(g launcher.GroupConfig, value string) launcher.GroupConfig {
	g.Env = append(slices.Clone(g.Env), "REVISED="+value)
	return g
}

// reload loads a configuration with one group.
func (h *harness) reload(g launcher.GroupConfig) error {
	return h.Reload(soon(h.t), launcher.Config{Dir: h.dir, Groups: []launcher.GroupConfig{g}}, "test")
}

// rollsToCanary begins a roll of three processes that waits for a canary for an hour.
func rollsToCanary(t *testing.T) (h *harness, was launcher.GroupConfig, over <-chan error) {
	t.Helper()
	was = runners("web", 3)
	h = launch(t, was).ready()
	next := revised(was, "2")
	next.Roll = launcher.RollConfig{Canary: 1, CanaryWait: time.Hour}
	over = begin(h, next)
	h.readUntil("the canary is waited for", step("canary", "the first 1 are available"))
	return h, was, over
}

// A newer order does not wait for the end of a roll. It replaces the processes of the old and of
// the superseded revision, and enough processes stay ready.
func TestReload_SupersedesRollThatWaitsForCanary(t *testing.T) {
	h, was, over := rollsToCanary(t)
	if err := h.reload(revised(was, "3")); err != nil {
		t.Fatalf("%v\n%s", err, h.story())
	}
	var failure *launcher.RollError
	if err := awaitRoll(t, h, over); !errors.As(err, &failure) || !errors.Is(err, launcher.ErrSuperseded) {
		t.Errorf("the first roll: %v", err)
	}
	testkit.Equal(t, "processes by revision", revisions(h, "web"), map[int]int{3: 3})
	testkit.Equal(t, "smallest number of ready processes", leastReady(h), 3)
	testkit.Equal(t, "superseded rolls", h.Stats().Groups["web"].Rolls["superseded"], uint64(1))
}

// A roll that has superseded another one is rolled back to the revision before both, because
// nothing shows that the superseded one works.
func TestRollback_NeverReturnsToRevisionOfSupersededRoll(t *testing.T) {
	h, was, _ := rollsToCanary(t)
	broken := was
	broken.Command, broken.Roll.OnFailure = []string{"/bin/sh", "-c", "exit 4"}, launcher.Rollback
	var failure *launcher.RollError
	if err := h.reload(broken); !errors.As(err, &failure) || !failure.RolledBack {
		t.Fatalf("the reload: %v\n%s", err, h.story())
	}
	testkit.Equal(t, "processes by revision", revisions(h, "web"), map[int]int{1: 3})
}

// A restart supersedes a roll whose replacement does not become ready.
func TestRestart_SupersedesRollThatIsStuck(t *testing.T) {
	open := t.TempDir() + "/open"
	h := launch(t, runners("web", 1)).ready()
	stuck := script("web", 1, "test {id} != web-2 || until test -e "+open+"; do sleep 0.1; done")
	stuck.Shutdown.Grace = 100 * time.Millisecond // web-2 does not answer the call Shutdown
	over := begin(h, stuck)
	h.waitForState("web-2", launcher.Spawning)
	if err := h.Restart(soon(t), "web", "again"); err != nil {
		t.Fatalf("%v\n%s", err, h.story())
	}
	if err := awaitRoll(t, h, over); !errors.Is(err, launcher.ErrSuperseded) {
		t.Errorf("the first roll: %v", err)
	}
	testkit.Equal(t, "processes by revision", revisions(h, "web"), map[int]int{3: 1})
}

// During a roll, the configuration from before the roll is loaded again, with changed time limits.
// The reload turns the roll back. The processes that the roll has not replaced yet keep running,
// and get the changed limits.
func TestReload_OfPreviousConfigurationDuringRollRevertsRoll(t *testing.T) {
	h, was, over := rollsToCanary(t)
	h.readUntil("an old process has ended", func(e launcher.Event) bool { return e.To == launcher.Complete })
	kept := pidsOf(h, "web")[:2]
	was.Shutdown.Grace = 9 * time.Second
	if err := h.reload(was); err != nil {
		t.Fatalf("%v\n%s", err, h.story())
	}
	var failure *launcher.RollError
	if err := awaitRoll(t, h, over); !errors.As(err, &failure) || !failure.RolledBack {
		t.Errorf("the first roll: %v", err)
	}
	testkit.Equal(t, "processes by revision", revisions(h, "web"), map[int]int{1: 3})
	testkit.Equal(t, "processes that were not replaced", pidsOf(h, "web")[:2], kept)
	testkit.Equal(t, "grace period", launcher.ConfigOf(h.Manager, "web").Shutdown.Grace, 9*time.Second)
	testkit.Equal(t, "reload of the same configuration", h.reload(was), nil)
	testkit.Equal(t, "rolls", h.count(launcher.RollBegun), 1)
}

// A reload that changes no process changes the rules of the roll that is under way. Here that roll
// is a restart. Its processes are those of the reloaded configuration, and the reload does not turn
// the roll back.
func TestReload_DuringRestartDoesNotRollRestartBack(t *testing.T) {
	g := runners("web", 3)
	g.Roll = launcher.RollConfig{Canary: 1, CanaryWait: time.Hour}
	h := launch(t, g).ready()
	over := make(chan error, 1)
	go func() { over <- h.Restart(context.Background(), "web", "test") }()
	h.readUntil("the canary is waited for", step("canary", "the first 1 are available"))
	g.Roll.CanaryWait = time.Millisecond
	if err := h.reload(g); err != nil {
		t.Fatal(err)
	}
	if err := awaitRoll(t, h, over); err != nil {
		t.Errorf("the restart: %v\n%s", err, h.story())
	}
	testkit.Equal(t, "processes by revision", revisions(h, "web"), map[int]int{2: 3})
}
