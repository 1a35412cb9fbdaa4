package metrics

import (
	"errors"
	"runtime/debug"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/swansong-go/swansong/launcher"
)

// New returns a collector for the groups of a launcher. It works only when it is scraped. To
// register several launchers, distinguish them by
// [prometheus.WrapRegistererWith](prometheus.Labels{"launcher": "…"}, registry).
func New(m *launcher.Manager) (prometheus.Collector, error) {
	if m == nil {
		return nil, errors.New("metrics: New with a nil launcher.Manager")
	}
	return &collector{manager: m}, nil
}

// A collector has no state of its own: each scrape asks the Manager, which counts from its start.
type collector struct{ manager *launcher.Manager }

// prefix is the beginning of the names of all metrics.
const prefix = "swansong_launcher_"

// described contains the descriptions of all metrics, in the order of their declaration. It is
// complete when the variables of the package are initialized, and not changed later.
var described []*prometheus.Desc

func describe(name, help string, labels ...string) *prometheus.Desc {
	d := prometheus.NewDesc(prefix+name, help, labels, nil)
	described = append(described, d)
	return d
}

var (
	build = describe("build_info", "Always 1; the labels have the version of the launcher.", "version", "goversion")

	desired    = describe("desired_processes", "Processes that the group should have.", "group")
	minHealthy = describe("min_healthy_processes", "Processes that must be ready for the group to be healthy.", "group")
	ready      = describe("ready_processes", "Processes that have been ready for min_ready, and are in routing.", "group")
	updated    = describe("updated_processes", "Ready processes of the newest revision; during a roll, the number of processes that have been replaced.", "group")
	healthy    = describe("group_healthy", "1 if the group is healthy.", "group")
	givenUp    = describe("group_given_up", "1 if no more processes are started because too many have failed.", "group")
	unrecorded = describe("unrecorded_processes", "Processes that end with the launcher despite on_launcher_death: keep, because the state file cannot be written, or their pipes could not be made.", "group")
	processes  = describe("processes", "Processes by state.", "group", "state")
	rolling    = describe("roll_state", "1 for the current state of the roll; all 0 if no roll is under way.", "group", "state")

	stopping = describe("stopping_longest_seconds", "Time since the order to stop, for the process that has been stopping for the longest time.", "group")
	bound    = describe("stopping_bound_seconds", "The longest time that the stop of a process can take with its configuration.", "group")

	starts      = describe("starts_total", "Processes started.", "group")
	restarts    = describe("restarts_total", "Failures of processes after which a replacement is started.", "group")
	neverReady  = describe("readiness_failures_total", "Processes that ended, or were terminated, before they were ready.", "group")
	notAlive    = describe("liveness_failures_total", "Ready processes that were stopped because liveness checks failed.", "group")
	ends        = describe("ends_total", "Processes that have ended, by outcome.", "group", "outcome")
	startup     = describe("startup_duration_seconds", "Time from the start of a process until it was ready.", "group")
	shutdowns   = describe("shutdown_duration_seconds", "Time from the order to stop a process until it was reaped, by outcome.", "group", "outcome")
	extensions  = describe("shutdown_extensions_total", "Requests for more time.", "group")
	unconfirmed = describe("kills_unconfirmed_total", "Killed processes that were not known to have ended two seconds later.", "group")
	survivors   = describe("survivors_total", "Descendants that processes have left behind and that could not be killed.", "group")

	rollsBegun = describe("rolls_begun_total", "Rolls that have begun.", "group")
	rolls      = describe("rolls_total", "Rolls by result; a roll that was paused and resumed counts twice.", "group", "result")
	router     = describe("router_errors_total", "Failed calls of the router.", "group")

	logLines     = describe("log_lines_total", "Output lines of processes that were written to the log.", "group")
	logBytes     = describe("log_bytes_total", "Bytes of output that were written to the log.", "group")
	droppedLines = describe("log_dropped_lines_total", "Lines that were dropped because the disk was full, or the disk or the reader of the output too slow.", "group")
	droppedBytes = describe("log_dropped_bytes_total", "Bytes that were dropped because the disk was full, or the disk or the reader of the output too slow.", "group")

	missed  = describe("events_missed_total", "Events that watchers missed because they were too slow.")
	failing = describe("state_file_failing", "1 while the state file cannot be written.")
)

// states are the states of a process that has not ended.
var states = []launcher.State{launcher.Spawning, launcher.Starting, launcher.Warming, launcher.Ready, launcher.Unhealthy,
	launcher.ShutdownRequested, launcher.Draining, launcher.Blocked}

// outcomes are the outcomes of a process that has ended.
var outcomes = []launcher.Outcome{launcher.Clean, launcher.DrainFailed, launcher.Killed, launcher.Crash, launcher.Unknown}

// rollStates are the states of a [launcher.RollStatus].
var rollStates = []string{"canary", "rolling", "rolling back", "paused"}

// rollResults are the keys of [launcher.GroupStats].Rolls.
var rollResults = []string{"done", "rolled back", "degraded", "interrupted", "paused", "superseded"}

// label returns the phase or the result of a roll as the value of a label. States and outcomes keep
// the names that they have in events, in JSON and in the protocol.
func label(s string) string { return strings.ReplaceAll(strings.ToLower(s), " ", "_") }

// Describe implements [prometheus.Collector].
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range described {
		ch <- d
	}
}

// Collect implements [prometheus.Collector]. It may be called concurrently, by each scrape.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, n uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	version, goversion := buildVersions()
	gauge(build, 1, version, goversion)
	// Read the health first, so that every process that it shows has been counted in the stats.
	health := c.manager.Health()
	stats := c.manager.Stats()
	counter(missed, stats.EventsMissed)
	gauge(failing, boolValue(stats.StateFailing))
	for _, h := range health {
		collectHealth(gauge, h)
		collectCounters(counter, h.Group, stats.Groups[h.Group])
		collectHistograms(ch, h.Group, stats.Groups[h.Group])
	}
}

// collectHealth sends the gauges of a group. It includes states without processes, because alerts
// need series that always exist.
func collectHealth(gauge func(*prometheus.Desc, float64, ...string), h launcher.Health) {
	gauge(desired, float64(h.Desired), h.Group)
	gauge(minHealthy, float64(h.MinHealthy), h.Group)
	gauge(ready, float64(h.Ready), h.Group)
	gauge(updated, float64(h.Updated), h.Group)
	gauge(healthy, boolValue(h.Healthy), h.Group)
	gauge(givenUp, boolValue(h.GivenUp), h.Group)
	gauge(unrecorded, float64(len(h.Unrecorded)), h.Group)
	roll := ""
	if h.Roll != nil {
		roll = h.Roll.Phase
		if h.Roll.Paused {
			roll = "paused"
		}
	}
	for _, s := range rollStates {
		gauge(rolling, boolValue(roll == s), h.Group, label(s))
	}
	byState := map[launcher.State]int{}
	var longest, limit time.Duration
	for _, p := range h.Processes {
		if p.State.Ended() {
			continue
		}
		byState[p.State]++
		longest, limit = max(longest, p.Took()), max(limit, p.Bound)
	}
	for _, s := range states {
		gauge(processes, float64(byState[s]), h.Group, s.String())
	}
	gauge(stopping, longest.Seconds(), h.Group)
	gauge(bound, limit.Seconds(), h.Group)
}

func collectCounters(counter func(*prometheus.Desc, uint64, ...string), group string, s launcher.GroupStats) {
	for d, n := range map[*prometheus.Desc]uint64{
		starts: s.Starts, restarts: s.Restarts, neverReady: s.ReadinessFailures, notAlive: s.LivenessFailures, extensions: s.Extensions,
		unconfirmed: s.Unconfirmed, survivors: s.Survivors, rollsBegun: s.RollsBegun, router: s.RouterErrors,
		logLines: s.Log.Lines, logBytes: s.Log.Bytes, droppedLines: s.Log.DroppedLines, droppedBytes: s.Log.DroppedBytes,
	} {
		counter(d, n, group)
	}
	for _, o := range outcomes {
		counter(ends, s.Ends[o], group, o.String())
	}
	for _, r := range rollResults {
		counter(rolls, s.Rolls[r], group, label(r))
	}
}

func collectHistograms(ch chan<- prometheus.Metric, group string, s launcher.GroupStats) {
	histogram := func(d *prometheus.Desc, h launcher.Histogram, labels ...string) {
		upTo := map[float64]uint64{}
		for b, n := range h.Buckets() {
			upTo[b.Seconds()] = n
		}
		ch <- prometheus.MustNewConstHistogram(d, h.Count, h.Sum.Seconds(), upTo, labels...)
	}
	histogram(startup, s.Startup, group)
	for _, o := range outcomes {
		histogram(shutdowns, s.Shutdowns[o], group, o.String())
	}
}

func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// buildVersions returns the version of the program, and the version of Go.
func buildVersions() (version, goversion string) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown", "unknown"
	}
	return info.Main.Version, info.GoVersion
}
