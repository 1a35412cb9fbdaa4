//go:build unix

package metrics_test

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher"
	"github.com/swansong-go/swansong/launcher/metrics"
)

// Names, units and help texts follow the conventions of Prometheus, and all series exist from the
// first scrape on.
func TestCollector_FollowsConventions(t *testing.T) {
	m := launch(t, runners("web", 1), runners("worker", 1))
	if err := m.Ready(soon(t)); err != nil {
		t.Fatal(err)
	}
	reg := registry(t, m)
	problems, err := testutil.GatherAndLint(reg)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	before, err := testutil.GatherAndCount(reg)
	if err != nil {
		t.Fatal(err)
	}
	stop(t, m, "web-1", true)
	if err := m.Restart(soon(t), "worker", "to see what that adds"); err != nil {
		t.Fatal(err)
	}
	after, err := testutil.GatherAndCount(reg)
	if err != nil {
		t.Fatal(err)
	}
	testkit.Equal(t, "series after a stop and a roll, compared with before", after, before)
}

func stop(t *testing.T, m *launcher.Manager, id string, replace bool) launcher.Status {
	t.Helper()
	if err := m.StopProcess(id, launcher.Stop{Reason: "the test says so", NoReplacement: !replace}); err != nil {
		t.Fatal(err)
	}
	st, err := m.Wait(soon(t), id)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// The metrics have the expected values after a known sequence of events.
func TestCollector_HasExpectedValuesAfterKnownEvents(t *testing.T) {
	web := runners("web", 2)
	hang := runners("hang", 1, "--behavior", "hang")
	hang.Shutdown.Grace, hang.Shutdown.GraceEnforced, hang.Shutdown.SIGTERMTimeout = 50*time.Millisecond, true, 50*time.Millisecond
	more := runners("more", 1, "--behavior", "request-more", "--drain-duration", "1s")
	loop := group("loop", 1, "exit")
	loop.Restart.CrashLimit = 3
	m := launch(t, web, hang, more, loop)
	events, done := m.Watch()
	defer done()
	for _, h := range m.Health() {
		if h.Group != "loop" {
			await(t, m, events, h.Group, func(h launcher.Health) bool { return h.Healthy })
		}
	}
	await(t, m, events, "loop", func(h launcher.Health) bool { return h.GivenUp })
	testkit.Equal(t, "outcome of web-1", stop(t, m, "web-1", false).Outcome, launcher.Clean)
	testkit.Equal(t, "outcome of hang-1", stop(t, m, "hang-1", false).Outcome, launcher.Killed)
	testkit.Equal(t, "outcome of more-1", stop(t, m, "more-1", false).Outcome, launcher.Clean)
	if err := m.Restart(soon(t), "web", "a roll"); err != nil {
		t.Fatal(err)
	}
	await(t, m, events, "web", func(h launcher.Health) bool { return h.Healthy && h.Total == h.Desired })

	got := gather(t, registry(t, m))
	web2 := got["desired_processes web"] // number of processes of web; the roll has restored the configured number
	for key, least := range map[string]float64{"stopping_bound_seconds web": 40} {
		if got[key] < least {
			t.Errorf("%s is %v, want at least %v", key, got[key], least)
		}
		delete(got, key)
	}
	want := map[string]float64{
		"desired_processes web": web2, "min_healthy_processes web": web2, "ready_processes web": web2, "updated_processes web": web2,
		"group_healthy web":   1,
		"processes web READY": web2, "starts_total web": 2 + web2, "startup_duration_seconds web": 2 + web2,
		"ends_total web CLEAN": 2, "shutdown_duration_seconds web CLEAN": 2, "rolls_begun_total web": 1, "rolls_total web done": 1,

		"starts_total hang": 1, "startup_duration_seconds hang": 1, "ends_total hang FORCED": 1, "group_healthy hang": 1,
		"shutdown_duration_seconds hang FORCED": 1,

		"starts_total more": 1, "startup_duration_seconds more": 1, "ends_total more CLEAN": 1, "group_healthy more": 1,
		"shutdown_duration_seconds more CLEAN": 1, "shutdown_extensions_total more": 1,

		"desired_processes loop": 1, "min_healthy_processes loop": 1, "group_given_up loop": 1, "starts_total loop": 3,
		"restarts_total loop": 2, "ends_total loop CRASHED": 3, "readiness_failures_total loop": 3,
	}
	testkit.Equal(t, "metrics", got, want)
}

// await waits until the group satisfies a condition. It checks after each event, because every
// change of the health comes with an event.
func await(t *testing.T, m *launcher.Manager, events <-chan launcher.Event, group string, is func(launcher.Health) bool) {
	t.Helper()
	ctx := soon(t)
	for {
		h, err := m.GroupHealth(group)
		if err != nil {
			t.Fatal(err)
		}
		if is(h) {
			return
		}
		select {
		case <-events:
		case <-ctx.Done():
			t.Fatalf("group %s did not reach the expected health: %+v", group, h)
		}
	}
}

// The launcher stops a ready process that no longer answers. The stop counts as a failure of the
// process, so the process is replaced only after the back-off.
func TestCollector_CountsLivenessFailures(t *testing.T) {
	g := runners("web", 1)
	g.LivenessInterval, g.LivenessTimeout, g.LivenessFailures = time.Second, 300*time.Millisecond, 3
	// The process is not started again during the test, so only one failure is counted.
	g.Restart.MinBackoff, g.Restart.MaxBackoff = time.Hour, time.Hour
	g.Shutdown.Grace, g.Shutdown.GraceEnforced, g.Shutdown.SIGTERMTimeout = 50*time.Millisecond, true, 50*time.Millisecond
	m := launch(t, g)
	events, done := m.Watch()
	defer done()
	await(t, m, events, "web", func(h launcher.Health) bool { return h.Healthy })
	if err := syscall.Kill(m.Health()[0].Processes[0].PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Wait(soon(t), "web-1"); err != nil {
		t.Fatal(err)
	}
	got := gather(t, registry(t, m))
	testkit.Equal(t, "liveness failures", got["liveness_failures_total web"], 1.0)
	testkit.Equal(t, "restarts", got["restarts_total web"], 1.0)
}

// The metric is 1 for as long as the state file cannot be written.
func TestCollector_ReportsUnwritableStateFile(t *testing.T) {
	dir := shortDir(t)
	m := launchIn(t, dir, runners("web", 1))
	events, done := m.Watch()
	defer done()
	await(t, m, events, "web", func(h launcher.Health) bool { return h.Healthy })
	reg := registry(t, m)
	seen := func(kind launcher.Kind) float64 {
		t.Helper()
		for ctx := soon(t); ; {
			select {
			case e := <-events:
				if e.Kind == kind {
					return gather(t, reg)["state_file_failing"]
				}
			case <-ctx.Done():
				t.Fatalf("no event of kind %s", kind)
			}
		}
	}
	next := filepath.Join(dir, "state.json.next") // a directory at this path makes writing fail
	for err := os.Mkdir(next, 0o700); err != nil; err = os.Mkdir(next, 0o700) {
		if !errors.Is(err, fs.ErrExist) { // the launcher is writing the file at the moment, so try again
			t.Fatal(err)
		}
	}
	stop(t, m, "web-1", true)
	testkit.Equal(t, "failing, while it cannot be written", seen(launcher.Alarm), 1.0)
	if err := os.Remove(next); err != nil {
		t.Fatal(err)
	}
	testkit.Equal(t, "failing, when it can be again", seen(launcher.AllClear), 0.0)
}

// The events that a slow watcher misses are counted.
func TestCollector_CountsEventsThatSlowWatcherMissed(t *testing.T) {
	g := group("loop", 0, "")
	g.Command = []string{"false"}
	g.Restart.CrashLimit, g.Restart.MaxBackoff = 5, time.Millisecond
	dir := shortDir(t)
	m := launchIn(t, dir, g)
	_, done := m.Watch() // these events are never read, so the watcher is too slow
	defer done()
	ctx := soon(t)
	reload := func() {
		t.Helper()
		if err := m.Reload(ctx, launcher.Config{Dir: dir, Groups: []launcher.GroupConfig{g}}, "one more event"); err != nil {
			t.Fatal(err)
		}
	}
	// Each reload causes an event. 1100 events are more than the launcher keeps for a watcher.
	for range 1100 {
		reload()
	}
	events, stopped := m.Watch()
	defer stopped()
	// The slow watcher misses the crashes that follow, but the collector counts them.
	g.Desired = 1
	reload()
	await(t, m, events, "loop", func(h launcher.Health) bool { return h.GivenUp })
	got := gather(t, registry(t, m))
	if got["events_missed_total"] == 0 {
		t.Error("no event was missed")
	}
	testkit.Equal(t, "ends", got["ends_total loop CRASHED"], 5.0)
}

// The metrics can be scraped over HTTP until the last process has ended.
func TestServe_AnswersUntilLastProcessEnds(t *testing.T) {
	m := launch(t, runners("web", 1, "--behavior", "slow-drain", "--drain-duration", "10s"))
	if err := m.Ready(soon(t)); err != nil {
		t.Fatal(err)
	}
	addr, err := metrics.Serve(m, ":0")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(addr.String(), "127.0.0.1:") {
		t.Errorf("an address without a host listens on %s", addr)
	}
	url := "http://" + addr.String() + "/metrics"
	first := scrape(t, url)
	testkit.Equal(t, "ready", first["ready_processes web"], 1.0)

	events, done := m.Watch()
	defer done()
	completion := m.Shutdown()
	await(t, m, events, "web", func(h launcher.Health) bool { return h.Processes[0].State.Stopping() })
	during := scrape(t, url)
	testkit.Equal(t, "stopping", during["processes web SHUTDOWN_REQUESTED"]+during["processes web DRAINING"]+during["processes web BLOCKED"], 1.0)
	if during["stopping_longest_seconds web"] <= 0 {
		t.Errorf("no process is stopping: %v", during)
	}
	if err := completion.Wait(soon(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := http.Get(url); err == nil {
		t.Error("the metrics are still served after the launcher has ended")
	}
	if _, err := metrics.Serve(m, ":0"); err == nil {
		t.Error("Serve succeeds after the launcher has ended")
	}
}

func scrape(t *testing.T, url string) map[string]float64 {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %v, %s", resp.Status, err, body)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(string(body)))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"go_goroutines", "swansong_launcher_build_info"} {
		if families[want] == nil {
			t.Errorf("the scrape has no %s", want)
		}
	}
	return values(slices.Collect(maps.Values(families)))
}

func TestServe_RefusesInvalidAddresses(t *testing.T) {
	m := launch(t, runners("web", 1))
	for address, want := range map[string]string{"9464": "host:port", "127.0.0.1:none": "port", "192.0.2.1:9464": "listen"} {
		if _, err := metrics.Serve(m, address); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want it to contain %q", address, err, want)
		}
	}
	if _, err := metrics.New(nil); err == nil {
		t.Error("New accepts a nil Manager")
	}
	if _, err := metrics.Serve(nil, ":0"); err == nil {
		t.Error("Serve accepts a nil Manager")
	}
	c, err := metrics.New(m)
	if err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewRegistry()
	if err := reg.Register(c); err != nil {
		t.Fatal(err)
	}
	if err := reg.Register(c); err == nil {
		t.Error("the collector can be registered twice")
	}
}
