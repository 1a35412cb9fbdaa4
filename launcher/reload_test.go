//go:build unix

package launcher_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher"
)

// A reload changes limits and numbers of processes without stopping a process, and everything else
// by a roll of the group. It adds and removes groups. A refused configuration changes nothing.
func TestReload_ChangesAddsAndRemovesGroups(t *testing.T) {
	web, gone := runners("web", 2), runners("gone", 1)
	h := launch(t, web, gone).ready()
	ctx, cancel := context.WithTimeout(context.Background(), tooLong)
	defer cancel()
	reload := func(groups ...launcher.GroupConfig) error {
		t.Helper()
		return h.Reload(ctx, launcher.Config{Dir: h.dir, Groups: groups}, "test")
	}
	started := func() (ids []string) {
		h.drainEvents()
		for _, e := range h.events {
			if e.To == launcher.Spawning {
				ids = append(ids, e.Process)
			}
		}
		h.events = nil
		return ids
	}
	started()

	web.Desired = 3
	web.Shutdown.Max *= 2
	if err := reload(web, gone); err != nil {
		t.Fatal(err)
	}
	h.ready()
	h.waitForState("web-3", launcher.Ready)
	testkit.Equal(t, "processes started by scaling", started(), []string{"web-3"})
	scaled, _ := h.Process("web-3")
	st, _ := h.Process("web-1")
	testkit.Equal(t, "bound of a process that was not replaced", st.Bound, scaled.Bound)

	web.Env = append(web.Env, "COLOUR=green")
	added := runners("added", 1)
	if err := reload(added, web); err != nil {
		t.Fatal(err)
	}
	h.ready()
	testkit.Equal(t, "processes by revision", revisions(h, "web"), map[int]int{2: 3})
	var names []string
	for _, g := range h.Health() {
		names = append(names, g.Group)
	}
	testkit.Equal(t, "groups", len(names), 2)
	testkit.Equal(t, "groups", names, []string{"added", "web"})

	if err := reload(added, web); err != nil {
		t.Fatal(err)
	}
	started()

	listens := web
	listens.Listen = []launcher.Listen{{Address: "127.0.0.1:0"}}
	fresh := runners("fresh", 1)
	var rule *launcher.ConfigError
	if err := reload(fresh, added, listens); !errors.As(err, &rule) || rule.Field != "Listen" {
		t.Errorf("reload with another listener: %v", err)
	}
	wrong := web
	wrong.Command = []string{"/no/such/program"}
	if err := reload(fresh, added, wrong); !errors.As(err, &rule) || rule.Field != "Command" {
		t.Errorf("reload with a missing program: %v", err)
	}
	testkit.Equal(t, "processes started by refused reloads", started(), []string(nil))
	if _, err := h.GroupHealth("fresh"); !errors.Is(err, launcher.ErrNotFound) {
		t.Errorf("health of a group of a refused reload: %v", err)
	}
}

// A reload and a roll create the log directory. If they cannot, they are refused before they change
// anything, because output would be lost.
func TestReload_CreatesLogDirectoryOrIsRefused(t *testing.T) {
	web := runners("web", 1)
	h := launch(t, web).ready()
	orders := map[string]func(g launcher.GroupConfig) error{
		"a reload": func(g launcher.GroupConfig) error {
			return h.Reload(soon(t), launcher.Config{Dir: h.dir, Groups: []launcher.GroupConfig{g}}, "test")
		},
		"a roll": func(g launcher.GroupConfig) error { return h.Roll(soon(t), g, "test") },
	}
	for what, order := range orders {
		for _, c := range []struct {
			field string
			log   launcher.LogConfig
		}{
			{"Log.Dir", launcher.LogConfig{Dir: "/dev/null/logs"}},
			{"Log.Path", launcher.LogConfig{Path: filepath.Join(t.TempDir(), "none", "log")}},
		} {
			wrong := web
			wrong.Log = c.log
			var rule *launcher.ConfigError
			if err := order(wrong); !errors.As(err, &rule) || rule.Group != "web" || rule.Field != c.field {
				t.Errorf("%s, %s: %v", what, c.field, err)
			}
		}
	}
	testkit.Equal(t, "processes by revision after refusals", revisions(h, "web"), map[int]int{1: 1})
	for what, order := range orders {
		next := web
		next.Log.Dir = filepath.Join(t.TempDir(), "not", "there")
		if err := order(next); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if _, err := os.Stat(next.Log.Dir); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A group that a reload has removed exists until its last process has ended, also after another
// reload. Until then the group is listed, and the group that it depends on is not stopped.
func TestReload_ListsRemovedGroupUntilItsLastProcessEnds(t *testing.T) {
	kv, web := runners("kv", 1), runners("web", 1, "--behavior", "slow-drain", "--drain-duration", "1h")
	web.DependsOn = []string{"kv"}
	web.Shutdown.Grace, web.Shutdown.Max = time.Hour, time.Hour
	h := launch(t, kv, web).ready()
	begun, cancel := context.WithCancel(context.Background())
	cancel()
	if err := h.Reload(begun, launcher.Config{Dir: h.dir, Groups: []launcher.GroupConfig{kv}}, "test"); !errors.Is(err, context.Canceled) {
		t.Fatalf("the reload that removes web: %v", err)
	}
	kv.HealthCheckTimeout = time.Hour
	if err := h.Reload(soon(t), launcher.Config{Dir: h.dir, Groups: []launcher.GroupConfig{kv}}, "test"); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, g := range h.Health() {
		names = append(names, g.Group)
	}
	testkit.Equal(t, "groups", names, []string{"kv", "web"})

	h.waitForState("web-1", launcher.Blocked)
	h.Shutdown()
	st, err := h.Process("web-1")
	if err != nil {
		t.Fatal(err)
	}
	testkit.Equal(t, "reason of the stop", st.Reason, "launcher: a reload has removed the group")
	kill(t, st.PID)
	h.readUntil("web-1 ends before kv-1 is stopped", func(e launcher.Event) bool {
		if e.Process == "kv-1" && e.To >= launcher.Unhealthy {
			t.Error("kv-1 is stopped before web-1, which depends on it, has ended")
		}
		return e.Process == "web-1" && e.To.Ended()
	})
}

// After a reload has changed dependencies, a rollback keeps the new dependencies. The earlier ones
// could name a group that no longer exists, or form a cycle with the new ones, in which no group
// would be stopped.
func TestRollback_KeepsReloadedDependencies(t *testing.T) {
	for _, c := range []struct {
		name         string
		before, next map[string][]string // for each group, the groups that it depends on
		message      string
	}{
		{"the reload removes the earlier dependency", map[string][]string{"web": {"kv"}, "kv": nil}, map[string][]string{"web": nil}, `it was ["kv"] and is now []`},
		{"the reload reverses the dependency", map[string][]string{"web": {"kv"}, "kv": nil}, map[string][]string{"web": nil, "kv": {"web"}}, `it was ["kv"] and is now []`},
	} {
		t.Run(c.name, func(t *testing.T) {
			groups := func(needs map[string][]string, args ...string) (all []launcher.GroupConfig) {
				for _, name := range slices.Sorted(maps.Keys(needs)) {
					g := runners(name, 1)
					if name == "web" {
						g = runners(name, 1, args...)
						g.Roll.OnFailure = launcher.Rollback
					}
					g.DependsOn = needs[name]
					all = append(all, g)
				}
				return all
			}
			h := launch(t, groups(c.before)...).ready()
			next := groups(c.next, "--ready-after", "-1s")
			// This timeout applies to the replacements only: the old processes were started with
			// another timeout.
			next[len(next)-1].HealthCheckTimeout = 10 * time.Millisecond
			var failure *launcher.RollError
			err := h.Reload(soon(t), launcher.Config{Dir: h.dir, Groups: next}, "test")
			if !errors.As(err, &failure) || !failure.RolledBack {
				t.Fatalf("Reload: %v\n%s", err, h.story())
			}
			testkit.Equal(t, "what web depends on", launcher.ConfigOf(h.Manager, "web").DependsOn, []string(nil))
			testkit.Equal(t, "processes by revision", revisions(h, "web"), map[int]int{1: 1})
			if story := h.story(); !strings.Contains(story, c.message) {
				t.Errorf("no event contains %q:\n%s", c.message, story)
			}
		})
	}
}

// A roll replaces some processes and is then superseded by another roll. A rollback of the second
// roll returns to the revision that the group had before the second roll.
func TestRollback_ReturnsToRevisionBeforeSupersedingRoll(t *testing.T) {
	for name, turnBack := range map[string]func(h *harness, third launcher.GroupConfig) error{
		"by itself": func(h *harness, third launcher.GroupConfig) error {
			third.Roll.OnFailure = launcher.Rollback
			return h.Roll(soon(t), third, "third")
		},
		"by order": func(h *harness, third launcher.GroupConfig) error {
			if err := h.Roll(soon(t), third, "third"); err == nil {
				t.Error("the third roll succeeds, want an error")
			}
			if err := h.Rollback(soon(t), "web", "test"); err != nil {
				t.Fatal(err)
			}
			return &launcher.RollError{RolledBack: true}
		},
	} {
		t.Run(name, func(t *testing.T) {
			web := runners("web", 2)
			h := launch(t, web).ready()
			second, third := web, web
			once := "mkdir " + filepath.Join(t.TempDir(), "once") + ` || exit 3; exec "$0" "$@"`
			second.Command = append([]string{"/bin/sh", "-c", once}, web.Command...)
			third.Command = []string{"/bin/sh", "-c", "exit 4"}
			if err := h.Roll(soon(t), second, "second"); err == nil {
				t.Error("the second roll succeeds, want an error")
			}
			testkit.Equal(t, "processes by revision during the pause", revisions(h, "web"), map[int]int{1: 1, 2: 1})
			var failure *launcher.RollError
			if err := turnBack(h, third); !errors.As(err, &failure) || !failure.RolledBack {
				t.Errorf("the roll is not rolled back: %v\n%s", err, h.story())
			}
			testkit.Equal(t, "processes by revision after the rollback", revisions(h, "web"), map[int]int{1: 2})
		})
	}
}

// After ScaleDown, the smaller number of processes stays until a reload changes the number.
func TestReload_DoesNotUndoScaleDown(t *testing.T) {
	web := runners("web", 2)
	h := launch(t, web).ready()
	h.stopAndWait("web-1")
	for _, c := range []struct{ loaded, desired int }{{2, 1}, {3, 3}} {
		if err := h.Restart(soon(t), "web", "test"); err != nil {
			t.Fatal(err)
		}
		health, _ := h.GroupHealth("web")
		testkit.Equal(t, "desired after a restart", health.Desired, 1)
		testkit.Equal(t, "message after a restart", health.Message, "an operator has scaled the group down by 1 from desired_instances (2)")
		web.Desired = c.loaded
		web.HealthCheckTimeout += time.Hour
		if err := h.Reload(soon(t), launcher.Config{Dir: h.dir, Groups: []launcher.GroupConfig{web}}, "test"); err != nil {
			t.Fatal(err)
		}
		health, err := h.GroupHealth("web")
		if err != nil {
			t.Fatal(err)
		}
		testkit.Equal(t, "desired", health.Desired, c.desired)
	}
}

// A reload that changes something of a degraded group starts the processes that the roll has left
// missing.
func TestReload_StartsProcessesThatFailedRollLeftMissing(t *testing.T) {
	fixed := filepath.Join(t.TempDir(), "fixed")
	web := runners("web", 2)
	web.MinHealthy, web.MaxSurge, web.Roll.OnFailure = launcher.Int(1), launcher.Int(0), launcher.Continue
	h := launch(t, web).ready()
	web.Command = append([]string{"/bin/sh", "-c", "test {id} = web-3 || test -e " + fixed + ` || exit 3; exec "$0" "$@"`}, web.Command...)
	var failure *launcher.RollError
	if err := h.Roll(soon(t), web, "test"); !errors.As(err, &failure) || !failure.Degraded {
		t.Fatalf("the roll is not degraded: %v", err)
	}
	testkit.Equal(t, "processes by revision after the roll", revisions(h, "web"), map[int]int{2: 1})
	if err := os.WriteFile(fixed, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	web.HealthCheckTimeout = time.Hour
	if err := h.Reload(soon(t), launcher.Config{Dir: h.dir, Groups: []launcher.GroupConfig{web}}, "test"); err != nil {
		t.Fatal(err)
	}
	h.readUntil("a second process is ready", func(e launcher.Event) bool {
		return e.To == launcher.Ready && revisions(h, "web")[2] > 1
	})
}

// A group that was given up starts processes again after a reload that changes it, also if the
// change needs no roll.
func TestReload_RestartsGivenUpGroup(t *testing.T) {
	web := runners("web", 1, "--ready-after", "-1s")
	web.HealthCheckTimeout, web.Restart.CrashLimit = 10*time.Millisecond, 2
	h := launch(t, web)
	var givenUp *launcher.GivenUpError
	if err := h.Manager.Ready(soon(t)); !errors.As(err, &givenUp) {
		t.Fatalf("the group is not given up: %v", err)
	}
	web.HealthCheckTimeout = time.Hour
	if err := h.Reload(soon(t), launcher.Config{Dir: h.dir, Groups: []launcher.GroupConfig{web}}, "test"); err != nil {
		t.Fatal(err)
	}
	if health, err := h.GroupHealth("web"); err != nil || health.GivenUp {
		t.Fatalf("the group is still given up: %+v, %v", health, err)
	}
	h.waitForState("web-3", launcher.Spawning)
}

// A reload of the same configuration, written differently, changes nothing: an empty field is the
// same as one that is left out, and a relative path is the same as its absolute form. No group is
// rolled, and a group that was given up stays so.
func TestReload_OfSameConfigurationWrittenDifferentlyChangesNothing(t *testing.T) {
	t.Chdir(t.TempDir())
	web := launcher.GroupConfig{Name: "web", Command: []string{"sleep", "3600"}, Protocol: launcher.Signals, Desired: 1}
	broken := web
	broken.Name, broken.Command, broken.Protocol, broken.Restart.CrashLimit = "broken", []string{"false"}, launcher.GRPC, 1
	web.Log.Dir, broken.Log.Path = "logs", "broken.log"
	h := launch(t, web, broken)
	var givenUp *launcher.GivenUpError
	if err := h.Manager.Ready(soon(t)); !errors.As(err, &givenUp) {
		t.Fatalf("the group is not given up: %v", err)
	}
	for _, c := range []struct {
		name    string
		rewrite func(g *launcher.GroupConfig)
	}{
		{"nothing", func(*launcher.GroupConfig) {}},
		{"Env", func(g *launcher.GroupConfig) { g.Env = []string{} }},
		{"Listen", func(g *launcher.GroupConfig) { g.Listen = []launcher.Listen{} }},
		{"PreStop", func(g *launcher.GroupConfig) { g.PreStop = []launcher.Hook{} }},
		{"DependsOn", func(g *launcher.GroupConfig) { g.DependsOn = []string{} }},
		{"Shutdown.StopSignals", func(g *launcher.GroupConfig) { g.Shutdown.StopSignals = []string{} }},
		{"Shutdown.SuccessCodes", func(g *launcher.GroupConfig) { g.Shutdown.SuccessCodes = []int{} }},
		{"Log.Dir", func(g *launcher.GroupConfig) { g.Log.Dir = absolute(t, g.Log.Dir) }},
		{"Log.Path", func(g *launcher.GroupConfig) { g.Log.Path = absolute(t, g.Log.Path) }},
	} {
		next := launcher.Config{Dir: h.dir, Groups: []launcher.GroupConfig{web, broken}}
		for i := range next.Groups {
			c.rewrite(&next.Groups[i])
		}
		before := revisionOf(h, "web")
		if err := h.Reload(soon(t), next, "test"); err != nil {
			t.Fatal(err)
		}
		testkit.Equal(t, c.name+": revision", revisionOf(h, "web"), before)
		health, err := h.GroupHealth("broken")
		if err != nil {
			t.Fatal(err)
		}
		testkit.Equal(t, c.name+": still given up", health.GivenUp, true)
	}
}

// absolute returns the absolute form of a path, empty for an empty one.
func absolute(t *testing.T, path string) string {
	t.Helper()
	if path == "" {
		return ""
	}
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// A roll begins after a reload has made its checks and before it applies its changes. The reload
// loads the configuration from before the roll, so the reload turns the roll back.
func TestReload_SupersedesRollThatBeginsDuringReload(t *testing.T) {
	web := runners("web", 1)
	h := launch(t, web).ready()
	first, meetFirst := fifoLog(t, "first")
	second, meetSecond := fifoLog(t, "second")
	reloaded := make(chan error, 1)
	go func() {
		reloaded <- h.Reload(soon(t), launcher.Config{Dir: h.dir, Groups: []launcher.GroupConfig{web, first, second}}, "test")
	}()
	meetFirst() // by now the reload has checked the groups and is opening the logs of the new ones
	if err := h.Roll(canceled(), runners("web", 1, "--ready-after", "-1s"), "another order"); !errors.Is(err, context.Canceled) {
		t.Fatalf("the roll during the reload: %v", err)
	}
	meetSecond()
	if err := <-reloaded; err != nil {
		t.Fatalf("%v\n%s", err, h.story())
	}
	testkit.Equal(t, "rollbacks", h.Stats().Groups["web"].Rolls["rolled back"], uint64(1))
	testkit.Equal(t, "processes by revision", revisions(h, "web"), map[int]int{1: 1})
	h.close() // the launcher must not write to the logs any more when their directory is removed
}

// fifoLog returns a group whose log is a FIFO, so that the launcher waits in opening it until the
// test calls open.
func fifoLog(t *testing.T, name string) (g launcher.GroupConfig, open func()) {
	t.Helper()
	g = runners(name, 1)
	g.Log.Path = filepath.Join(t.TempDir(), name)
	if err := syscall.Mkfifo(g.Log.Path, 0o600); err != nil {
		t.Fatal(err)
	}
	return g, func() {
		t.Helper()
		f, err := os.Open(g.Log.Path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		os.Remove(g.Log.Path) // the log of the next process is then a regular file instead of the FIFO
	}
}

// The launcher is stopped during a reload. The reload returns an error, applies nothing, and leaves
// no address in use.
func TestReload_IsRefusedWhenLauncherStops(t *testing.T) {
	web := runners("web", 1)
	h := launch(t, web).ready()
	first, meetFirst := fifoLog(t, "first")
	second, meetSecond := fifoLog(t, "second")
	first.Listen = []launcher.Listen{{Address: freeAddress(t)}}
	reloaded := make(chan error, 1)
	go func() {
		reloaded <- h.Reload(soon(t), launcher.Config{Dir: h.dir, Groups: []launcher.GroupConfig{web, first, second}}, "test")
	}()
	meetFirst() // meetFirst returns when the reload has opened the address of the first group
	h.close()
	meetSecond()
	if err := <-reloaded; !errors.Is(err, ctxshutdown.ErrShutdown) {
		t.Errorf("the reload is not refused: %v", err)
	}
	ln, err := net.Listen("tcp", first.Listen[0].Address)
	if err != nil {
		t.Fatalf("the address is not free: %v", err)
	}
	ln.Close()
	if _, err := h.GroupHealth("first"); !errors.Is(err, launcher.ErrNotFound) {
		t.Errorf("health of a group of a refused reload: %v", err)
	}
}

// A second reload is refused while the first one runs, and does not wait for it.
func TestReload_IsRefusedDuringAnotherReload(t *testing.T) {
	slow, meet := fifoLog(t, "slow")
	web := runners("web", 0)
	h := launch(t, web).ready()
	reload := func(groups ...launcher.GroupConfig) error {
		return h.Reload(soon(t), launcher.Config{Dir: h.dir, Groups: groups}, "test")
	}
	reloaded := make(chan error, 1)
	go func() {
		err := reload(web, slow)
		for errors.Is(err, launcher.ErrReloading) {
			err = reload(web, slow)
		}
		reloaded <- err
	}()
	for err := error(nil); !errors.Is(err, launcher.ErrReloading); runtime.Gosched() { // retry until the first reload has begun
		if err = reload(web); err != nil && !errors.Is(err, launcher.ErrReloading) {
			t.Fatal(err)
		}
	}
	meet()
	if err := <-reloaded; err != nil {
		t.Error(err)
	}
}

// An order to roll a group reads the configuration of the launcher, of which a concurrent reload
// replaces the Source. The race detector would report a read without a lock.
func TestReload_HasNoDataRaceWithOrderToRoll(t *testing.T) {
	web := runners("web", 1)
	h := launch(t, web).ready()
	reloaded := make(chan struct{})
	go func() {
		defer close(reloaded)
		for i := range 20 {
			if err := h.Reload(context.Background(), launcher.Config{Dir: h.dir, Groups: []launcher.GroupConfig{web}, Source: i}, "test"); err != nil {
				t.Error(err)
			}
		}
	}()
	missing := web
	missing.Command = []string{"/does/not/exist"} // because no program is at this path, Roll refuses the order before it locks anything
	for !testkit.IsClosed(reloaded) {
		if h.Roll(context.Background(), missing, "test") == nil {
			t.Error("a command that does not exist is not refused")
		}
	}
}

// From the time that Reread reads a configuration until it is applied, other reloads are refused,
// so that the configuration read last is the one applied last. A dry run is allowed.
func TestReload_IsRefusedWhileRereadFunctionRuns(t *testing.T) {
	reading := make(chan chan<- int)
	cfg := launcher.Config{Dir: shortDir(t), Groups: []launcher.GroupConfig{runners("web", 0)}}
	cfg.Reread = func(context.Context, any) (launcher.Config, []string, error) {
		desired := make(chan int)
		reading <- desired
		n := <-desired
		return launcher.Config{Dir: cfg.Dir, Groups: []launcher.GroupConfig{runners("web", n)}}, []string{fmt.Sprint("web: ", n)}, nil
	}
	h := launchWith(t, cfg).ready()
	type result struct {
		changes []string
		err     error
	}
	reread := func(dry bool) <-chan result {
		results := make(chan result, 1)
		go func() {
			changes, err := h.Reread(soon(t), dry, "test")
			results <- result{changes, err}
		}()
		return results
	}
	first := reread(false)
	desired := <-reading
	if err := h.Reload(soon(t), cfg, "test"); !errors.Is(err, launcher.ErrReloading) {
		t.Errorf("Reload during Reread: %v", err)
	}
	select {
	case other := <-reading:
		t.Error("the second Reread reads, too")
		other <- 3
	case other := <-reread(false):
		if !errors.Is(other.err, launcher.ErrReloading) {
			t.Errorf("second Reread: %v", other.err)
		}
	}
	dryRun := reread(true)
	(<-reading) <- 2
	testkit.Equal(t, "result of the dry run", fmt.Sprint(<-dryRun), "{[web: 2] <nil>}")
	desired <- 1
	testkit.Equal(t, "result of the first Reread", fmt.Sprint(<-first), "{[web: 1] <nil>}")
	h.ready()
	testkit.Equal(t, "processes", len(h.running("web")), 1)
}

// ErrNotReloaded matches the errors of refused reloads, and not those of reloads that have begun.
// It does not change the text of an error.
func TestErrNotReloaded_MatchesErrorsOfRefusedReloads(t *testing.T) {
	release := make(chan struct{})
	web, gone := runners("web", 0), runners("gone", 1)
	h := launchWith(t, launcher.Config{Groups: []launcher.GroupConfig{web, gone}, Router: removes(func(context.Context) { <-release })}).ready()
	reload := func(ctx context.Context, dir string, groups ...launcher.GroupConfig) error {
		return h.Reload(ctx, launcher.Config{Dir: dir, Groups: groups}, "test")
	}
	err := reload(soon(t), shortDir(t), web)
	if bad := (*launcher.ConfigError)(nil); !errors.Is(err, launcher.ErrNotReloaded) || !errors.As(err, &bad) || bad.Error() != err.Error() {
		t.Errorf("reload with another directory: %v", err)
	}
	if _, err := h.Reread(soon(t), true, "test"); !errors.Is(err, launcher.ErrNotReloaded) || errors.Is(err, launcher.ErrReloading) {
		t.Errorf("Reread without a file: %v", err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := reload(over, h.dir, web); !errors.Is(err, context.Canceled) || errors.Is(err, launcher.ErrNotReloaded) {
		t.Errorf("reload whose context has ended: %v", err)
	}
	close(release)
}

// When a reload returns, the addresses and the names of the removed groups can be used again.
func TestReload_WaitsForRemovedGroup(t *testing.T) {
	web, gone := runners("web", 0), runners("gone", 1, "--behavior", "slow-drain", "--drain-duration", "100ms")
	gone.Listen = []launcher.Listen{{Address: freeAddress(t)}}
	h := launch(t, web, gone).ready()
	for range 3 {
		if err := h.Reload(soon(t), launcher.Config{Dir: h.dir, Groups: []launcher.GroupConfig{web}}, "test"); err != nil {
			t.Fatal(err)
		}
		if conn, err := net.Dial("tcp", gone.Listen[0].Address); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("connected: %v, %v, want connection refused", conn != nil, err)
		}
		if _, err := h.Process("gone-1"); !errors.Is(err, launcher.ErrNotFound) {
			t.Errorf("process of a removed group: %v", err)
		}
		if err := h.Reload(soon(t), launcher.Config{Dir: h.dir, Groups: []launcher.GroupConfig{web, gone}}, "test"); err != nil {
			t.Fatal(err)
		}
		h.ready()
		if _, err := h.Process("gone-1"); err != nil {
			t.Error(err)
		}
	}
}

// removes is a router whose method Remove calls the function. Its other method does nothing.
type removes func(ctx context.Context)

func (removes) Add(context.Context, launcher.Instance) error { return nil }
func (f removes) Remove(ctx context.Context, _ launcher.Instance) error {
	f(ctx)
	return nil
}

// A removed group is kept as long as the router is being called for one of its processes, because
// another group of the same name would use the same ids. But when its last process has ended,
// clients are refused at once.
func TestReload_KeepsRemovedGroupUntilRouterCallReturns(t *testing.T) {
	var h *harness
	removing, reloaded, seen := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	web, other := runners("web", 1), runners("other", 0)
	web.Restart.Policy = launcher.Never
	web.Listen = []launcher.Listen{{Address: freeAddress(t)}}
	check := func(ctx context.Context) error {
		conn, err := net.Dial("tcp", web.Listen[0].Address) // the process web-1 has ended, but its listener is still open
		close(removing)
		if err != nil {
			return err
		}
		defer conn.Close()
		late, _ := ctx.Deadline()
		conn.SetReadDeadline(late)
		if _, err := conn.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
			return errors.New("a client is connected although no process accepts")
		}
		next := runners("next", 0)
		next.Listen = web.Listen
		var rule *launcher.ConfigError
		err = launcher.ErrReloading // until the reload that has closed the connection has ended
		for errors.Is(err, launcher.ErrReloading) {
			err = h.Reload(ctx, launcher.Config{Dir: h.dir, Groups: []launcher.GroupConfig{other, next}}, "test")
		}
		if !errors.As(err, &rule) || !strings.HasPrefix(rule.Rule, `group "web" listens on tcp `+web.Listen[0].Address+" until its last process has ended") {
			return fmt.Errorf("another group on the same address: %w", err)
		}
		select {
		case <-reloaded:
		case <-time.After(200 * time.Millisecond): // time enough for a faulty launcher to forget the group
		}
		// ctx ends when the call of the router times out. From then on the launcher may forget the
		// group.
		if _, err := h.GroupHealth("web"); err != nil && ctx.Err() == nil {
			return fmt.Errorf("the group is forgotten while the router is called for web-1: %w", err)
		}
		return nil
	}
	h = launchWith(t, launcher.Config{Router: removes(func(ctx context.Context) { seen <- check(ctx) }), Groups: []launcher.GroupConfig{web, other}}).ready()
	st, err := h.Process("web-1")
	if err != nil {
		t.Fatal(err)
	}
	kill(t, st.PID)
	<-removing
	err = h.Reload(soon(t), launcher.Config{Dir: h.dir, Groups: []launcher.GroupConfig{other}}, "test")
	close(reloaded)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-seen; err != nil {
		t.Error(err)
	}
}

func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// restarts begins to restart a group again and again. The function stop ends that, and waits until
// the last restart has finished.
func (h *harness) restarts(group string) (stop func()) {
	var restarting sync.WaitGroup
	over := make(chan struct{})
	restarting.Go(func() {
		for {
			err := h.Restart(context.Background(), group, "test")
			// The error if a reload has superseded the roll of the restart, or rolled it back.
			var ended *launcher.RollError
			if err != nil && !errors.As(err, &ended) {
				h.t.Error(err)
			}
			select {
			case <-over:
				return
			default:
			}
		}
	})
	return func() {
		close(over)
		restarting.Wait()
	}
}

// While one of two groups is being rolled again and again, a reload of both groups changes both.
func TestReload_ChangesAllGroupsWhileOneIsRolledRepeatedly(t *testing.T) {
	a, b := runners("a", 0), runners("b", 0) // no processes, so that rolls are quick
	h := launch(t, a, b).ready()
	defer h.restarts("b")()
	for n := range 40 {
		a.WorkDir, b.WorkDir = []string{"/", "/dev"}[n%2], []string{"/", "/dev"}[n%2]
		err := h.Reload(soon(t), launcher.Config{Dir: h.dir, Groups: []launcher.GroupConfig{a, b}}, "test")
		if err != nil && !errors.Is(err, launcher.ErrSuperseded) {
			t.Fatal(err)
		}
		for _, name := range []string{"a", "b"} {
			testkit.Equal(t, "working directory of "+name, launcher.ConfigOf(h.Manager, name).WorkDir, a.WorkDir)
		}
	}
}

// A restart during concurrent reloads uses the configuration that was loaded last.
func TestRestart_UsesConfigurationLoadedLast(t *testing.T) {
	g := runners("a", 0) // no processes, so that a roll ends at once
	h := launch(t, g).ready()
	defer h.restarts("a")()
	restarts := 0
	for n := 1; restarts < 300; n++ {
		g.HealthCheckTimeout = time.Hour + time.Duration(n)*time.Millisecond
		err := h.Reload(soon(t), launcher.Config{Dir: h.dir, Groups: []launcher.GroupConfig{g}}, "test")
		if err != nil {
			t.Fatal(err)
		}
		before := revisionOf(h, "a")
		for revisionOf(h, "a") == before { // wait until one of the concurrent restarts has begun
			runtime.Gosched()
		}
		restarts++
		if got := launcher.ConfigOf(h.Manager, "a").HealthCheckTimeout; got != g.HealthCheckTimeout {
			t.Fatalf("a restart has brought back %v after %v was loaded", got, g.HealthCheckTimeout)
		}
	}
}

func revisionOf(h *harness, group string) int {
	h.t.Helper()
	health, err := h.GroupHealth(group)
	if err != nil {
		h.t.Fatal(err)
	}
	return health.Revision
}
