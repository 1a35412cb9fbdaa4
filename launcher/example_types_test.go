//go:build unix

package launcher_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/swansong-go/swansong/launcher"
)

// Start checks the configuration before it starts anything. Omitted fields have defaults. For each
// invalid field there is an error that names the group and the field.
func ExampleConfig() {
	web := launcher.GroupConfig{
		Name:      "web",
		Command:   []string{"/usr/local/bin/web", "--id", "{id}"},
		Protocol:  launcher.GRPC,
		Transport: launcher.TransportConfig{Network: "unix"},
		Desired:   4,
		MinReady:  5 * time.Second,
		Listen:    []launcher.Listen{{Name: "http", Address: ":8080"}},
		PreStop:   []launcher.Hook{{Command: []string{"/usr/local/bin/deregister"}, Timeout: time.Second}},
		Shutdown:  launcher.ShutdownConfig{Grace: 5 * time.Second, Max: 20 * time.Second},
		Restart:   launcher.RestartConfig{Policy: launcher.Always, CrashLimit: 5},
		Roll:      launcher.RollConfig{Canary: 1, OnFailure: launcher.Rollback, Retry: launcher.Exponential},
		Log:       launcher.LogConfig{Dir: "/var/log/web"},

		OnLauncherDeath: launcher.Kill,
	}
	cfg := launcher.Config{
		Dir:    "/run/swansong",
		Admin:  launcher.AdminConfig{Address: ":9443", TLS: launcher.TLS{Cert: "launcher.pem", Key: "launcher.key", CA: "ca.pem"}},
		Groups: []launcher.GroupConfig{web},
	}
	fmt.Println(cfg.Validate())

	cfg.Groups[0].MinHealthy = launcher.Int(5)
	var wrong *launcher.ConfigError
	if errors.As(cfg.Validate(), &wrong) {
		fmt.Println(wrong.Group, wrong.Field)
	}
	// Output:
	// <nil>
	// web MinHealthy
}

// Each limit bounds a part of a stop. Bound returns the longest time that the whole stop can take.
func ExampleGroupConfig() {
	g := launcher.GroupConfig{Shutdown: launcher.ShutdownConfig{Max: 20 * time.Second, SIGTERMTimeout: 3 * time.Second}}
	fmt.Println("gone within", g.Bound())
	g.PreStop = []launcher.Hook{{Command: []string{"deregister"}, Timeout: 5 * time.Second}}
	fmt.Println("and with a hook, within", g.Bound())
	// Output:
	// gone within 29s
	// and with a hook, within 34s
}

// A status says what a process is doing and how it has ended.
func ExampleStatus() {
	dir, remove := exampleDir()
	defer remove()
	ctx := context.Background()
	m, err := launcher.Start(ctx, launcher.Config{Dir: dir, Groups: []launcher.GroupConfig{sleepers(1)}})
	if err != nil {
		fmt.Println(err)
		return
	}
	show := func(st launcher.Status) {
		fmt.Println(st.ID, st.State, "stops:", st.State.Stopping(), "took time:", st.Took() > 0)
	}
	fmt.Println("ready:", m.Ready(ctx))
	st, _ := m.Process("sleeper-1")
	show(st)
	m.Shutdown()
	st, _ = m.Wait(ctx, "sleeper-1")
	show(st)
	fmt.Println("drained:", m.Completion().Wait(ctx))
	// Output:
	// ready: <nil>
	// sleeper-1 READY stops: false took time: false
	// sleeper-1 COMPLETE stops: false took time: true
	// drained: <nil>
}

// A State says whether the process is stopping and whether it has ended.
func ExampleState() {
	for _, st := range []launcher.State{launcher.Ready, launcher.Draining, launcher.Complete} {
		fmt.Println(st, st.Stopping(), st.Ended())
	}
	// Output:
	// READY false false
	// DRAINING true false
	// COMPLETE false true
}

// A manager stops one process without a replacement, and then the group. Its statistics count the
// starts and the clean ends.
func ExampleManager() {
	dir, remove := exampleDir()
	defer remove()
	ctx := context.Background()
	g := sleepers(2)
	g.Listen = []launcher.Listen{{Name: "http", Address: "127.0.0.1:0"}}
	m, err := launcher.Start(ctx, launcher.Config{Dir: dir, Groups: []launcher.GroupConfig{g}})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := m.Ready(ctx); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("listens at", len(m.Addrs("sleeper")), "address, for operators at", m.AdminAddr())
	fmt.Println("the scope is", m.Scope().State())

	// One process is stopped without a replacement.
	if err := m.StopProcess("sleeper-1", launcher.Stop{Reason: "too many", NoReplacement: true}); err != nil {
		fmt.Println(err)
	}
	var ended launcher.Status
	ended, err = m.Wait(ctx, "sleeper-1")
	fmt.Println(ended.State, ended.Outcome, err)
	still, err := m.Process("sleeper-2")
	fmt.Println(still.State, err)
	var health launcher.Health
	health, err = m.GroupHealth("sleeper")
	fmt.Println(health.Ready, "of", health.Desired, "healthy:", health.Healthy, err)
	_, err = m.GroupHealth("web")
	fmt.Println(errors.Is(err, launcher.ErrNotFound))

	m.Shutdown()
	fmt.Println("drained:", m.Completion().Wait(ctx))
	var stats launcher.Stats = m.Stats()
	var counts launcher.GroupStats = stats.Groups["sleeper"]
	fmt.Println(counts.Starts, "starts,", counts.Ends[launcher.Clean], "clean ends")
	// Output:
	// listens at 1 address, for operators at <nil>
	// the scope is Running
	// COMPLETE CLEAN <nil>
	// READY <nil>
	// 1 of 1 healthy: true <nil>
	// true
	// drained: <nil>
	// 2 starts, 2 clean ends
}

// Each change of a process's state is an event.
func ExampleManager_Watch() {
	dir, remove := exampleDir()
	defer remove()
	ctx := context.Background()
	m, err := launcher.Start(ctx, launcher.Config{Dir: dir, Groups: []launcher.GroupConfig{sleepers(1)}})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := m.Ready(ctx); err != nil {
		fmt.Println(err)
		return
	}
	events, stop := m.Watch()
	defer stop()
	show := func(e launcher.Event) {
		if e.Kind == launcher.Transition {
			fmt.Println(e.Process, e.From, "→", e.To)
		}
	}
	m.Shutdown()
	for e := range events { // the channel is closed when the manager has ended
		show(e)
	}
	// Output:
	// sleeper-1 READY → SHUTDOWN_REQUESTED
	// sleeper-1 SHUTDOWN_REQUESTED → DRAINING
	// sleeper-1 DRAINING → COMPLETE
}

// A build that does not run pauses the roll, and the old processes keep running. An operator rolls
// it back.
func ExampleManager_Roll() {
	dir, remove := exampleDir()
	defer remove()
	ctx := context.Background()
	m, err := launcher.Start(ctx, launcher.Config{Dir: dir, Groups: []launcher.GroupConfig{sleepers(1)}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer m.Completion().Wait(ctx)
	defer m.Shutdown()
	if err := m.Ready(ctx); err != nil {
		fmt.Println(err)
		return
	}

	bad := sleepers(1)
	bad.Command = []string{"sh", "-c", "exit 3"}
	// A new process counts as available once it has been ready for a minute.
	bad.MinReady = time.Minute
	err = m.Roll(ctx, bad, "a new build")
	var failed *launcher.RollError
	if errors.As(err, &failed) {
		fmt.Println(failed.Process, "has failed, rolled back:", failed.RolledBack)
	}
	health, _ := m.GroupHealth("sleeper")
	var how *launcher.RollStatus = health.Roll
	fmt.Println("ready:", health.Ready, "revision", how.From, "→", how.To, "paused:", how.Paused)

	fmt.Println("rolled back:", m.Rollback(ctx, "sleeper", "the build is bad"))
	fmt.Println("again:", errors.Is(m.Rollback(ctx, "sleeper", "really"), launcher.ErrNotRolling))
	// Output:
	// sleeper-2 has failed, rolled back: false
	// ready: 1 revision 1 → 2 paused: true
	// rolled back: <nil>
	// again: true
}

// When the cause of the failure has been removed, Resume continues the roll.
func ExampleManager_Resume() {
	dir, remove := exampleDir()
	defer remove()
	ctx := context.Background()
	m, err := launcher.Start(ctx, launcher.Config{Dir: dir, Groups: []launcher.GroupConfig{runners("web", 2)}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer m.Completion().Wait(ctx)
	defer m.Shutdown()
	if err := m.Ready(ctx); err != nil {
		fmt.Println(err)
		return
	}

	migrated := filepath.Join(dir, "migrated")
	err = m.Roll(ctx, script("web", 2, "test -e "+migrated+" || exit 3"), "needs the new tables")
	fmt.Println("paused:", errors.As(err, new(*launcher.RollError)))

	if err := os.WriteFile(migrated, nil, 0o600); err != nil {
		fmt.Println(err)
	}
	fmt.Println("resumed:", m.Resume(ctx, "web", "the tables are there"))
	health, _ := m.GroupHealth("web")
	fmt.Println("revision", health.Revision, "updated:", health.Updated)
	// Output:
	// paused: true
	// resumed: <nil>
	// revision 2 updated: 2
}

// Reload applies what differs in another configuration: here, one more process and one more group.
func ExampleManager_Reload() {
	dir, remove := exampleDir()
	defer remove()
	ctx := context.Background()
	cfg := launcher.Config{Dir: dir, Groups: []launcher.GroupConfig{sleepers(1)}}
	next := func() launcher.Config {
		batch := sleepers(1)
		batch.Name = "batch"
		return launcher.Config{Dir: dir, Groups: []launcher.GroupConfig{sleepers(2), batch}}
	}
	// Reread is called when an operator orders a reload. It would read the file of the
	// configuration, which this example does not have.
	cfg.Reread = func(ctx context.Context, source any) (launcher.Config, []string, error) {
		return next(), []string{"sleeper: 1 → 2", "batch is new"}, nil
	}
	m, err := launcher.Start(ctx, cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer m.Completion().Wait(ctx)
	defer m.Shutdown()

	changes, err := m.Reread(ctx, true, "to look at it")
	fmt.Println(strings.Join(changes, ", "), err)
	fmt.Println(m.Reload(ctx, next(), "more load"), m.Ready(ctx))
	for _, h := range m.Health() {
		fmt.Println(h.Group, h.Desired)
	}
	// Output:
	// sleeper: 1 → 2, batch is new <nil>
	// <nil> <nil>
	// sleeper 2
	// batch 1
}

// Force kills all processes. The launcher still reaps them.
func ExampleManager_Force() {
	dir, remove := exampleDir()
	defer remove()
	ctx := context.Background()
	g := sleepers(1)
	// The program ignores SIGTERM, so that only SIGKILL ends it. It prints a line when it has begun
	// to ignore SIGTERM.
	g.Command = []string{"sh", "-c", "trap '' TERM; echo deaf; exec sleep 1000"}
	m, err := launcher.Start(ctx, launcher.Config{Dir: dir, Output: io.Discard, Groups: []launcher.GroupConfig{g}})
	if err != nil {
		fmt.Println(err)
		return
	}
	lines, more, stop, err := m.Printed("sleeper", 10)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()
	if len(lines) == 0 {
		<-more
	}
	fmt.Println(m.Force(errors.New("the power is going")).Wait(ctx))
	st, err := m.Process("sleeper-1")
	fmt.Println(st.Outcome, err)
	// Output:
	// <nil>
	// FORCED <nil>
}

// Recent output of processes is kept, and new lines can be followed.
func ExampleManager_Printed() {
	dir, remove := exampleDir()
	defer remove()
	ctx := context.Background()
	g := sleepers(1)
	g.Command = []string{"sh", "-c", "echo hello; exec sleep 1000"}
	m, err := launcher.Start(ctx, launcher.Config{Dir: dir, Output: io.Discard, Groups: []launcher.GroupConfig{g}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer m.Completion().Wait(ctx)
	defer m.Shutdown()

	lines, more, stop, err := m.Printed("sleeper", 10)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()
	if len(lines) == 0 {
		lines = append(lines, <-more) // the process had not printed its line before the call of Printed
	}
	var first launcher.Line = lines[0]
	fmt.Println(first.Process, first.Stream, first.Text)
	// Output:
	// sleeper-1 out hello
}

// A router is called when a process is ready, and before it is stopped.
func ExampleRouter() {
	dir, remove := exampleDir()
	defer remove()
	ctx := context.Background()
	m, err := launcher.Start(ctx, launcher.Config{Dir: dir, Router: printed{}, Groups: []launcher.GroupConfig{sleepers(1)}})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("ready:", m.Ready(ctx))
	fmt.Println("drained:", m.Shutdown().Wait(ctx))
	// Output:
	// add sleeper-1
	// ready: <nil>
	// remove sleeper-1
	// drained: <nil>
}

// printed is a router that prints its calls.
type printed struct{}

func (printed) Add(_ context.Context, i launcher.Instance) error {
	fmt.Println("add", i.ID)
	return nil
}

func (printed) Remove(_ context.Context, i launcher.Instance) error {
	fmt.Println("remove", i.ID)
	return nil
}

// A program that always fails is given up after some starts. When it has been fixed, the group is
// restarted.
func ExampleGivenUpError() {
	dir, remove := exampleDir()
	defer remove()
	ctx := context.Background()
	g := sleepers(1)
	g.Command = []string{"sh", "-c", "exit 3"}
	g.MinReady = time.Minute
	g.Restart = launcher.RestartConfig{MinBackoff: time.Millisecond, CrashLimit: 2}
	m, err := launcher.Start(ctx, launcher.Config{Dir: dir, Groups: []launcher.GroupConfig{g}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer m.Completion().Wait(ctx)
	defer m.Shutdown()
	var given *launcher.GivenUpError
	if errors.As(m.Ready(ctx), &given) {
		fmt.Println(given.Group, given.Failures)
		fmt.Println(given.Rule())
	}
	// Output:
	// sleeper 2
	// given up after 2 failures in a row; the last: sleeper-2: CRASHED: exit status 3; restart the group when that is fixed
}

// A dry run says what a stop would have to wait for.
func ExampleManager_DryRun() {
	dir, remove := exampleDir()
	defer remove()
	ctx := context.Background()
	m, err := launcher.Start(ctx, launcher.Config{Dir: dir, Groups: []launcher.GroupConfig{runners("web", 1)}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer m.Completion().Wait(ctx)
	defer m.Shutdown()
	if err := m.Ready(ctx); err != nil {
		fmt.Println(err)
		return
	}
	var what []launcher.DryRun
	what, err = m.DryRun(ctx, "web-1", "") // asks one process; the last argument could name a group instead
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(what[0].ID, what[0].State, "says what is in flight:", what[0].Metrics != nil)
	// Output:
	// web-1 READY says what is in flight: true
}

// Starts, ends and durations of processes are counted.
func ExampleHistogram() {
	dir, remove := exampleDir()
	defer remove()
	ctx := context.Background()
	g := sleepers(2)
	g.Command = []string{"sh", "-c", "echo hello; exec sleep 1000"}
	g.Log = launcher.LogConfig{Path: filepath.Join(dir, "sleeper.log")}
	m, err := launcher.Start(ctx, launcher.Config{Dir: dir, Groups: []launcher.GroupConfig{g}})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(m.Ready(ctx), m.Shutdown().Wait(ctx))

	var stats launcher.Stats = m.Stats()
	var counts launcher.GroupStats = stats.Groups["sleeper"]
	var startup launcher.Histogram = counts.Startup
	within := startup.Buckets() // within[d] is the number of starts that took at most d
	fmt.Println(startup.Count, "were started,", within[time.Minute], "within a minute")
	var printed launcher.LogStats = counts.Log
	fmt.Println(printed.DroppedLines, "lines were lost to a slow disk")
	// Output:
	// <nil> <nil>
	// 2 were started, 2 within a minute
	// 0 lines were lost to a slow disk
}

// A launcher that finds the file of another program, or of a later version, in the place of its
// state file does not start, because processes may be running.
func ExampleStateError() {
	dir, remove := exampleDir()
	defer remove()
	if err := os.WriteFile(filepath.Join(dir, "state.json"), []byte(`{"format": "shopping list"}`), 0o600); err != nil {
		fmt.Println(err)
		return
	}
	_, err := launcher.Start(context.Background(), launcher.Config{Dir: dir, Groups: []launcher.GroupConfig{sleepers(1)}})
	var unusable *launcher.StateError
	if errors.As(err, &unusable) {
		fmt.Println(filepath.Base(unusable.Path)+":", unusable.Cause)
	}
	// Output:
	// state.json: unsupported format "shopping list", want "swansong launcher state"
}

// A command judges the first process of a roll, and turns the roll back when it finds errors.
func ExampleCanaryCheck() {
	dir, remove := exampleDir()
	defer remove()
	ctx := context.Background()
	web := sleepers(3)
	m, err := launcher.Start(ctx, launcher.Config{Dir: dir, Groups: []launcher.GroupConfig{web}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { m.Shutdown().Wait(ctx) }()
	fmt.Println("ready:", m.Ready(ctx))

	web.Roll = launcher.RollConfig{Canary: 1, CanaryWait: 5 * time.Minute, Check: launcher.CanaryCheck{
		Command:  []string{"sh", "-c", "echo 7 errors; exit 1"},
		Interval: time.Millisecond,
	}}
	fmt.Println(m.Roll(ctx, web, "a new version"))
	// Output:
	// ready: <nil>
	// launcher: group "sleeper": the roll has failed: the canaries have failed their check: exit status 1: 7 errors; it has been rolled back
}
