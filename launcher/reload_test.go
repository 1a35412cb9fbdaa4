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

	"github.com/google/go-cmp/cmp"
	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/launcher"
)

// A configuration is taken over as gently as it can be: limits and counts without a process that ends, the rest by rolls.
func TestReload(t *testing.T) {
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
	h.enters("web-3", launcher.Ready)
	equal(t, "who was started to scale", started(), []string{"web-3"})
	scaled, _ := h.Process("web-3")
	st, _ := h.Process("web-1")
	equal(t, "bound of one that has run all the time", st.Bound, scaled.Bound)

	web.Env = append(web.Env, "COLOUR=green")
	added := runners("added", 1)
	if err := reload(added, web); err != nil {
		t.Fatal(err)
	}
	h.ready()
	equal(t, "who runs", revisions(h, "web"), map[int]int{2: 3})
	var names []string
	for _, g := range h.Health() {
		names = append(names, g.Group)
	}
	equal(t, "groups", len(names), 2)
	if diff := cmp.Diff([]string{"added", "web"}, names); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}

	if err := reload(added, web); err != nil {
		t.Fatal(err)
	}
	started()

	listens := web
	listens.Listen = []launcher.Listen{{Address: "127.0.0.1:0"}}
	fresh := runners("fresh", 1)
	var rule *launcher.ConfigError
	if err := reload(fresh, added, listens); !errors.As(err, &rule) || rule.Field != "Listen" {
		t.Errorf("another listener: %v", err)
	}
	wrong := web
	wrong.Command = []string{"/no/such/program"}
	if err := reload(fresh, added, wrong); !errors.As(err, &rule) || rule.Field != "Command" {
		t.Errorf("a program that is not there: %v", err)
	}
	equal(t, "who was started by what was refused", started(), []string(nil))
	if _, err := h.GroupHealth("fresh"); !errors.Is(err, launcher.ErrNotFound) {
		t.Errorf("a group of what was refused: %v", err)
	}
}

// Where a group that runs is to print to from now on is made, or refused before anything has changed: what it prints would be lost.
func TestReloadChecksWhereToPrint(t *testing.T) {
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
	equal(t, "who runs after what was refused", revisions(h, "web"), map[int]int{1: 1})
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

// A group that a reload has removed is there until its last process is gone, whatever is reloaded meanwhile: it is shown, and
// what it needs outlasts it.
func TestReloadRemembersWhoIsLeaving(t *testing.T) {
	kv, web := runners("kv", 1), runners("web", 1, "--behavior", "slow-drain", "--drain-duration", "1h")
	web.DependsOn = []string{"kv"}
	web.Shutdown.Grace, web.Shutdown.Max = time.Hour, time.Hour
	h := launch(t, kv, web).ready()
	begun, cancel := context.WithCancel(context.Background())
	cancel()
	if err := h.Reload(begun, launcher.Config{Dir: h.dir, Groups: []launcher.GroupConfig{kv}}, "test"); !errors.Is(err, context.Canceled) {
		t.Fatalf("the reload that web leaves by: %v", err)
	}
	kv.HealthCheckTimeout = time.Hour
	if err := h.Reload(soon(t), launcher.Config{Dir: h.dir, Groups: []launcher.GroupConfig{kv}}, "test"); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, g := range h.Health() {
		names = append(names, g.Group)
	}
	equal(t, "groups", names, []string{"kv", "web"})

	h.enters("web-1", launcher.Blocked)
	h.Shutdown()
	st, err := h.Process("web-1")
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "why it is leaving", st.Reason, "launcher: a reload has removed the group")
	kill(t, st.PID)
	h.until("kv-1 is asked to stop, after web-1 has ended", func(e launcher.Event) bool {
		if e.Process == "kv-1" && e.To >= launcher.Unhealthy {
			t.Error("kv-1 is asked to stop before web-1, which needs it, has ended")
		}
		return e.Process == "web-1" && e.To.Ended()
	})
}

// A roll that turns back after a reload leaves the order of the groups as the reload has made it: what there was before may
// be gone, or go in a circle, in which nobody would be stopped.
func TestRollbackAfterReloadKeepsOrder(t *testing.T) {
	for _, c := range []struct {
		name         string
		before, next map[string][]string // who depends on whom
		told         string
	}{
		{"gone", map[string][]string{"web": {"kv"}, "kv": nil}, map[string][]string{"web": nil}, `which was ["kv"], and stays []`},
		{"circle", map[string][]string{"web": {"kv"}, "kv": nil}, map[string][]string{"web": nil, "kv": {"web"}}, `which was ["kv"], and stays []`},
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
			next[len(next)-1].HealthCheckTimeout = 10 * time.Millisecond // who comes back has its own
			var failure *launcher.RollError
			err := h.Reload(soon(t), launcher.Config{Dir: h.dir, Groups: next}, "test")
			if !errors.As(err, &failure) || !failure.RolledBack {
				t.Fatalf("Reload: %v\n%s", err, h.story())
			}
			equal(t, "what web depends on", launcher.ConfigOf(h.Manager, "web").DependsOn, []string(nil))
			equal(t, "who runs", revisions(h, "web"), map[int]int{1: 1})
			if story := h.story(); !strings.Contains(story, c.told) {
				t.Errorf("nobody is told of %q:\n%s", c.told, story)
			}
		})
	}
}

// A roll that turns back leads to what was there before it, also where a roll that was given up for it had replaced some already.
func TestRollbackAfterAPausedRoll(t *testing.T) {
	for name, turnBack := range map[string]func(h *harness, third launcher.GroupConfig) error{
		"by itself": func(h *harness, third launcher.GroupConfig) error {
			third.Roll.OnFailure = launcher.Rollback
			return h.Roll(soon(t), third, "third")
		},
		"by an order": func(h *harness, third launcher.GroupConfig) error {
			if err := h.Roll(soon(t), third, "third"); err == nil {
				t.Error("the third one does not fail")
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
				t.Error("the second one does not fail")
			}
			equal(t, "who runs while it is paused", revisions(h, "web"), map[int]int{1: 1, 2: 1})
			var failure *launcher.RollError
			if err := turnBack(h, third); !errors.As(err, &failure) || !failure.RolledBack {
				t.Errorf("it is not rolled back: %v\n%s", err, h.story())
			}
			equal(t, "who runs after it has turned back", revisions(h, "web"), map[int]int{1: 2})
		})
	}
}

// A roll that turns back has the time for progress from then on, and each of those that are replaced is some, also where it is of
// neither of the two revisions.
func TestRollbackAfterAPausedRoll_IsNoStall(t *testing.T) {
	h := launch(t, runners("other", 0)).ready()
	web := runners("web", 4)
	web.Roll.OnFailure, web.Roll.ProgressDeadline = launcher.Rollback, 5*time.Second
	var failure *launcher.RollError
	if err := launcher.RollBack(h.Manager, web, 2*time.Second, 1, 2, 2, 2); !errors.As(err, &failure) || !failure.RolledBack {
		t.Errorf("it is not rolled back: %v", err)
	}
}

// That somebody has ordered one fewer holds until a reload says how many there shall be.
func TestReloadKeepsWhatWasOrdered(t *testing.T) {
	web := runners("web", 2)
	h := launch(t, web).ready()
	h.stops("web-1")
	for _, c := range []struct{ loaded, desired int }{{2, 1}, {3, 3}} {
		if err := h.Restart(soon(t), "web", "test"); err != nil {
			t.Fatal(err)
		}
		health, _ := h.GroupHealth("web")
		equal(t, "desired after a restart", health.Desired, 1)
		equal(t, "message after a restart", health.Message, "1 fewer than desired_instances, 2, by order")
		web.Desired = c.loaded
		web.HealthCheckTimeout += time.Hour
		if err := h.Reload(soon(t), launcher.Config{Dir: h.dir, Groups: []launcher.GroupConfig{web}}, "test"); err != nil {
			t.Fatal(err)
		}
		health, err := h.GroupHealth("web")
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "desired", health.Desired, c.desired)
	}
}

// What a roll has gone on without is made up for by a reload that changes something of the group.
func TestReloadMakesUpForWhatARollHasLost(t *testing.T) {
	mended := filepath.Join(t.TempDir(), "mended")
	web := runners("web", 2)
	web.MinHealthy, web.MaxSurge, web.Roll.OnFailure = launcher.Int(1), launcher.Int(0), launcher.Continue
	h := launch(t, web).ready()
	web.Command = append([]string{"/bin/sh", "-c", "test {id} = web-3 || test -e " + mended + ` || exit 3; exec "$0" "$@"`}, web.Command...)
	var failure *launcher.RollError
	if err := h.Roll(soon(t), web, "test"); !errors.As(err, &failure) || !failure.Degraded {
		t.Fatalf("it does not go on without some: %v", err)
	}
	equal(t, "who runs after the roll", revisions(h, "web"), map[int]int{2: 1})
	if err := os.WriteFile(mended, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	web.HealthCheckTimeout = time.Hour
	if err := h.Reload(soon(t), launcher.Config{Dir: h.dir, Groups: []launcher.GroupConfig{web}}, "test"); err != nil {
		t.Fatal(err)
	}
	h.until("there is another one", func(e launcher.Event) bool {
		return e.To == launcher.Ready && revisions(h, "web")[2] > 1
	})
}

// What a reload says is to be taken out is, from then on.
func TestReloadRedactsAtOnce(t *testing.T) {
	web := runners("web", 1)
	h := launch(t, web).ready()
	redact := func(s string) string { return strings.ReplaceAll(s, "hunter2", "[redacted]") }
	if err := h.Reload(soon(t), launcher.Config{Dir: h.dir, Groups: []launcher.GroupConfig{web}, Redact: redact}, "test"); err != nil {
		t.Fatal(err)
	}
	if err := h.StopProcess("web-1", launcher.Stop{Reason: "it has hunter2"}); err != nil {
		t.Fatal(err)
	}
	equal(t, "reason", h.ends("web-1").Reason, "it has [redacted]")
}

// A group that was given up begins anew with another configuration, also with one that rolls nobody: that is what mends it.
func TestReloadForgivesWhoWasGivenUp(t *testing.T) {
	web := runners("web", 1, "--ready-after", "-1s")
	web.HealthCheckTimeout, web.Restart.CrashLimit = 10*time.Millisecond, 2
	h := launch(t, web)
	var givenUp *launcher.GivenUpError
	if err := h.Manager.Ready(soon(t)); !errors.As(err, &givenUp) {
		t.Fatalf("it is not given up: %v", err)
	}
	web.HealthCheckTimeout = time.Hour
	if err := h.Reload(soon(t), launcher.Config{Dir: h.dir, Groups: []launcher.GroupConfig{web}}, "test"); err != nil {
		t.Fatal(err)
	}
	if health, err := h.GroupHealth("web"); err != nil || health.GivenUp {
		t.Fatalf("it is given up still: %+v, %v", health, err)
	}
	h.enters("web-3", launcher.Spawning)
}

// What is empty is what is left out, and a path is one from where the launcher runs: a reload to the same, written in another way, rolls
// nobody, and is no change that mends who was given up.
func TestReloadToTheSame(t *testing.T) {
	t.Chdir(t.TempDir())
	web := launcher.GroupConfig{Name: "web", Command: []string{"sleep", "3600"}, Protocol: launcher.Signals, Desired: 1}
	lost := web
	lost.Name, lost.Command, lost.Protocol, lost.Restart.CrashLimit = "lost", []string{"false"}, launcher.GRPC, 1
	web.Log.Dir, lost.Log.Path = "logs", "lost.log"
	h := launch(t, web, lost)
	var givenUp *launcher.GivenUpError
	if err := h.Manager.Ready(soon(t)); !errors.As(err, &givenUp) {
		t.Fatalf("it is not given up: %v", err)
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
		{"Log.Dir", func(g *launcher.GroupConfig) { g.Log.Dir = otherwise(t, g.Log.Dir) }},
		{"Log.Path", func(g *launcher.GroupConfig) { g.Log.Path = otherwise(t, g.Log.Path) }},
	} {
		next := launcher.Config{Dir: h.dir, Groups: []launcher.GroupConfig{web, lost}}
		for i := range next.Groups {
			c.rewrite(&next.Groups[i])
		}
		before := revisionOf(h, "web")
		if err := h.Reload(soon(t), next, "test"); err != nil {
			t.Fatal(err)
		}
		equal(t, c.name+": revision", revisionOf(h, "web"), before)
		health, err := h.GroupHealth("lost")
		if err != nil {
			t.Fatal(err)
		}
		equal(t, c.name+": still given up", health.GivenUp, true)
	}
}

// otherwise names the same place by another path, and none by none.
func otherwise(t *testing.T, path string) string {
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

// A roll that begins while a reload looks around is seen before anything is done: the reload is refused as a whole.
func TestReloadIsAllOrNothing(t *testing.T) {
	limits, web := runners("limits", 1), runners("web", 1)
	h := launch(t, limits, web).ready()
	first, meetFirst := fifoLog(t, "first")
	second, meetSecond := fifoLog(t, "second")
	changed, other := limits, web
	changed.Desired = 2
	other.Env = append(slices.Clone(web.Env), "COLOUR=green")
	reloaded := make(chan error, 1)
	go func() {
		reloaded <- h.Reload(soon(t), launcher.Config{Dir: h.dir, TotalDeadline: time.Hour, Groups: []launcher.GroupConfig{changed, other, first, second}}, "test")
	}()
	meetFirst() // it has looked at what the groups are doing, and claims what the new ones need
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := h.Roll(ctx, runners("web", 1, "--ready-after", "-1s"), "by somebody else"); !errors.Is(err, context.Canceled) {
		t.Fatalf("the roll that comes between: %v", err)
	}
	meetSecond()
	if err := <-reloaded; !errors.Is(err, launcher.ErrRolling) {
		t.Fatalf("it is not refused: %v", err)
	}
	h.drainEvents()
	for _, e := range h.events {
		if e.Kind == launcher.Reloaded {
			t.Errorf("it is told to have been taken over: %+v", e)
		}
	}
	was, err := h.GroupHealth("limits")
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "desired of what was to be scaled", was.Desired, 1)
	for _, name := range []string{"first", "second"} {
		if _, err := h.GroupHealth(name); !errors.Is(err, launcher.ErrNotFound) {
			t.Errorf("group %s of what was refused: %v", name, err)
		}
	}
}

// fifoLog is a group whose log is opened when the test opens it, by open.
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
		os.Remove(g.Log.Path) // whoever comes now gets a file
	}
}

// A launcher that has stopped while a reload looked around takes nothing over, does not say that it has, and keeps no address.
func TestReloadWhileEverythingStops(t *testing.T) {
	web := runners("web", 1)
	h := launch(t, web).ready()
	first, meetFirst := fifoLog(t, "first")
	second, meetSecond := fifoLog(t, "second")
	first.Listen = []launcher.Listen{{Address: freeAddress(t)}}
	reloaded := make(chan error, 1)
	go func() {
		reloaded <- h.Reload(soon(t), launcher.Config{Dir: h.dir, Groups: []launcher.GroupConfig{web, first, second}}, "test")
	}()
	meetFirst() // it listens
	h.close()
	meetSecond()
	if err := <-reloaded; !errors.Is(err, ctxshutdown.ErrShutdown) {
		t.Errorf("it is not refused: %v", err)
	}
	ln, err := net.Listen("tcp", first.Listen[0].Address)
	if err != nil {
		t.Fatalf("where it has listened: %v", err)
	}
	ln.Close()
	if _, err := h.GroupHealth("first"); !errors.Is(err, launcher.ErrNotFound) {
		t.Errorf("a group of what was refused: %v", err)
	}
}

// While one reload looks around, another one is refused, and not put off.
func TestReloadsOneAtATime(t *testing.T) {
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
	for err := error(nil); !errors.Is(err, launcher.ErrReloading); runtime.Gosched() { // which it is as soon as the first one has begun
		if err = reload(web); err != nil && !errors.Is(err, launcher.ErrReloading) {
			t.Fatal(err)
		}
	}
	meet()
	if err := <-reloaded; err != nil {
		t.Error(err)
	}
}

// Nobody else reads a configuration to take it over, or takes one over, from when one is read for that: what is taken over last is
// what was read last. To look at it is no matter.
func TestRereadsOneAtATime(t *testing.T) {
	reading := make(chan chan<- int)
	cfg := launcher.Config{Dir: shortDir(t), Groups: []launcher.GroupConfig{runners("web", 0)}}
	cfg.Reread = func(context.Context, any) (launcher.Config, []string, error) {
		desired := make(chan int)
		reading <- desired
		n := <-desired
		return launcher.Config{Dir: cfg.Dir, Groups: []launcher.GroupConfig{runners("web", n)}}, []string{fmt.Sprint("web: ", n)}, nil
	}
	h := launchWith(t, cfg).ready()
	type said struct {
		changes []string
		err     error
	}
	reread := func(dry bool) <-chan said {
		told := make(chan said, 1)
		go func() {
			changes, err := h.Reread(soon(t), dry, "test")
			told <- said{changes, err}
		}()
		return told
	}
	first := reread(false)
	desired := <-reading
	if err := h.Reload(soon(t), cfg, "test"); !errors.Is(err, launcher.ErrReloading) {
		t.Errorf("Reload meanwhile: %v", err)
	}
	select {
	case other := <-reading:
		t.Error("another one reads, too")
		other <- 3
	case other := <-reread(false):
		if !errors.Is(other.err, launcher.ErrReloading) {
			t.Errorf("Reread meanwhile: %v", other.err)
		}
	}
	look := reread(true)
	(<-reading) <- 2
	equal(t, "the look", fmt.Sprint(<-look), "{[web: 2] <nil>}")
	desired <- 1
	equal(t, "the first", fmt.Sprint(<-first), "{[web: 1] <nil>}")
	h.ready()
	equal(t, "processes", len(h.running("web")), 1)
}

// What was begun and has failed was taken over, and what was refused was not: the errors tell them apart, and say the same as ever.
func TestErrNotReloaded(t *testing.T) {
	release := make(chan struct{})
	web, gone := runners("web", 0), runners("gone", 1)
	h := launchWith(t, launcher.Config{Groups: []launcher.GroupConfig{web, gone}, Router: removes(func(context.Context) { <-release })}).ready()
	reload := func(ctx context.Context, dir string, groups ...launcher.GroupConfig) error {
		return h.Reload(ctx, launcher.Config{Dir: dir, Groups: groups}, "test")
	}
	err := reload(soon(t), shortDir(t), web)
	if bad := (*launcher.ConfigError)(nil); !errors.Is(err, launcher.ErrNotReloaded) || !errors.As(err, &bad) || bad.Error() != err.Error() {
		t.Errorf("another directory: %v", err)
	}
	if _, err := h.Reread(soon(t), true, "test"); !errors.Is(err, launcher.ErrNotReloaded) || errors.Is(err, launcher.ErrReloading) {
		t.Errorf("of nothing: %v", err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := reload(over, h.dir, web); !errors.Is(err, context.Canceled) || errors.Is(err, launcher.ErrNotReloaded) {
		t.Errorf("of what goes on: %v", err)
	}
	close(release)
}

// When a reload returns, what the groups that are gone have listened on is free, and their names are.
func TestReloadWaitsForWhoIsGone(t *testing.T) {
	web, gone := runners("web", 0), runners("gone", 1, "--behavior", "slow-drain", "--drain-duration", "100ms")
	gone.Listen = []launcher.Listen{{Address: freeAddress(t)}}
	h := launch(t, web, gone).ready()
	for range 3 {
		if err := h.Reload(soon(t), launcher.Config{Dir: h.dir, Groups: []launcher.GroupConfig{web}}, "test"); err != nil {
			t.Fatal(err)
		}
		if conn, err := net.Dial("tcp", gone.Listen[0].Address); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("connected: %v, %v; nobody is there to answer", conn != nil, err)
		}
		if _, err := h.Process("gone-1"); !errors.Is(err, launcher.ErrNotFound) {
			t.Errorf("who was of a group that is gone: %v", err)
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

// A removes is a router that looks around when somebody is removed.
type removes func(ctx context.Context)

func (removes) Add(context.Context, launcher.Instance) error { return nil }
func (f removes) Remove(ctx context.Context, _ launcher.Instance) error {
	f(ctx)
	return nil
}

// A group is not forgotten as long as the router is told of the end of one of its processes: another group of this name would
// have processes of the same names. But when the last of them has ended, nobody waits for an answer.
func TestReloadWaitsForTheRouter(t *testing.T) {
	var h *harness
	removing, reloaded, seen := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	web, other := runners("web", 1), runners("other", 0)
	web.Restart.Policy = launcher.Never
	web.Listen = []launcher.Listen{{Address: freeAddress(t)}}
	look := func(ctx context.Context) error {
		conn, err := net.Dial("tcp", web.Listen[0].Address) // web-1 has ended, and the launcher listens
		close(removing)
		if err != nil {
			return err
		}
		defer conn.Close()
		late, _ := ctx.Deadline()
		conn.SetReadDeadline(late)
		if _, err := conn.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
			return errors.New("whoever has connected waits for nobody")
		}
		next := runners("next", 0)
		next.Listen = web.Listen
		var rule *launcher.ConfigError
		err = h.Reload(ctx, launcher.Config{Dir: h.dir, Groups: []launcher.GroupConfig{other, next}}, "test")
		if !errors.As(err, &rule) || !strings.HasPrefix(rule.Rule, `group "web" has tcp `+web.Listen[0].Address+" until it is gone") {
			return fmt.Errorf("another one on the same address: %w", err)
		}
		select {
		case <-reloaded:
		case <-time.After(200 * time.Millisecond): // in which the group would be forgotten
		}
		if _, err := h.GroupHealth("web"); err != nil && ctx.Err() == nil { // or else nobody waits for the router any more
			return fmt.Errorf("the group is forgotten while the router is told of web-1: %w", err)
		}
		return nil
	}
	h = launchWith(t, launcher.Config{Router: removes(func(ctx context.Context) { seen <- look(ctx) }), Groups: []launcher.GroupConfig{web, other}}).ready()
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

// A group that turns back is on its way to what it had: what it was to be rolled to is another configuration by then, and takes another
// roll.
func TestReloadWhileARollTurnsBack(t *testing.T) {
	was := runners("web", 1)
	was.Shutdown.Grace, was.Shutdown.Max = time.Hour, time.Hour
	h := launch(t, was).ready()
	next := was
	next.Env = append(slices.Clone(was.Env), "REV=2")
	next.Command = append(slices.Clone(was.Command), "--behavior", "slow-drain", "--drain-duration", "1h")
	next.MinReady = 5 * time.Minute // so that web-1 stays
	rolled := make(chan error, 1)
	go func() { rolled <- h.Roll(context.Background(), next, "test") }()
	h.enters("web-2", launcher.Ready)
	if err := h.Rollback(canceled(), "web", "test"); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	reload := func(g launcher.GroupConfig) error {
		return h.Reload(soon(t), launcher.Config{Dir: h.dir, Groups: []launcher.GroupConfig{g}}, "test")
	}
	if err := reload(was); err != nil {
		t.Errorf("what it turns back to: %v", err)
	}
	if err := reload(next); !errors.Is(err, launcher.ErrRolling) {
		t.Errorf("what it turns back from: %v", err)
	}
	h.enters("web-2", launcher.Blocked)
	st, err := h.Process("web-2")
	if err != nil {
		t.Fatal(err)
	}
	kill(t, st.PID)
	<-rolled
}

func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// restarts restarts a group again and again, until stop, which waits for the last time.
func (h *harness) restarts(group string) (stop func()) {
	var restarting sync.WaitGroup
	over := make(chan struct{})
	restarting.Go(func() {
		for {
			if err := h.Restart(context.Background(), group, "test"); err != nil && !errors.Is(err, launcher.ErrRolling) {
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

// So it is for whoever comes at any other moment.
func TestReloadsAmongRolls(t *testing.T) {
	a, b := runners("a", 0), runners("b", 0) // rolls of nobody, which are quick
	h := launch(t, a, b).ready()
	defer h.restarts("b")()
	refused, taken := 0, 0
	for n := 0; refused < 20 || taken < 20; n++ {
		a.WorkDir, b.WorkDir = []string{"/", "/dev"}[n%2], []string{"/", "/dev"}[n%2]
		was := revisionOf(h, "a")
		err := h.Reload(soon(t), launcher.Config{Dir: h.dir, Groups: []launcher.GroupConfig{a, b}}, "test")
		switch is := revisionOf(h, "a"); {
		case err == nil && is <= was+1: // the same, after one that was refused
			taken++
		case errors.Is(err, launcher.ErrRolling) && is == was:
			refused++
		default:
			t.Fatalf("%v, and group a is of revision %d, after %d", err, is, was)
		}
	}
}

// A restart beside reloads is one to what was loaded last, and never puts back what was there before.
func TestRestartKeepsReloads(t *testing.T) {
	g := runners("a", 0) // a roll of nobody is quick
	h := launch(t, g).ready()
	defer h.restarts("a")()
	restarts := 0
	for n := 1; restarts < 300; n++ {
		g.HealthCheckTimeout = time.Hour + time.Duration(n)*time.Millisecond
		err := h.Reload(soon(t), launcher.Config{Dir: h.dir, Groups: []launcher.GroupConfig{g}}, "test")
		if errors.Is(err, launcher.ErrRolling) {
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		before := revisionOf(h, "a")
		for revisionOf(h, "a") == before { // the order that may have come at the same time, or the next one
			runtime.Gosched()
		}
		restarts++
		if got := launcher.ConfigOf(h.Manager, "a").HealthCheckTimeout; got != g.HealthCheckTimeout {
			t.Fatalf("a restart has put back %v, where %v had been loaded", got, g.HealthCheckTimeout)
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
