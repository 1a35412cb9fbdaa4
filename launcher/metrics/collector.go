package metrics

import (
	"errors"
	"runtime/debug"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/swansong-go/swansong/launcher"
)

// New returns a collector for the groups of a launcher. It looks when it is scraped and costs nothing in between. For several
// launchers in one registry, tell them apart by
// [prometheus.WrapRegistererWith](prometheus.Labels{"launcher": "…"}, registry).
func New(m *launcher.Manager) (prometheus.Collector, error) {
	if m == nil {
		return nil, errors.New("metrics: New of no launcher")
	}
	return &collector{manager: m}, nil
}

type collector struct{ manager *launcher.Manager }

// prefix is that of all names here.
const prefix = "swansong_launcher_"

// described are all metrics, in the order in which they were made.
var described []*prometheus.Desc

func describe(name, help string, labels ...string) *prometheus.Desc {
	d := prometheus.NewDesc(prefix+name, help, labels, nil)
	described = append(described, d)
	return d
}

var (
	build = describe("build_info", "1, for the version that the launcher was built from.", "version", "goversion")

	desired    = describe("desired_processes", "Processes that the group should have.", "group")
	minHealthy = describe("min_healthy_processes", "Processes that have to be ready for the group to be healthy.", "group")
	ready      = describe("ready_processes", "Processes that are ready, for long enough, and routed to.", "group")
	updated    = describe("updated_processes", "Processes that are ready and of the newest revision: while a group is rolled, so many of the desired are replaced.", "group")
	healthy    = describe("group_healthy", "1 if the group is healthy.", "group")
	givenUp    = describe("group_given_up", "1 if too many processes have failed, so that no more are started.", "group")
	processes  = describe("processes", "Processes by state.", "group", "state")
	rolling    = describe("roll_state", "1 for what the roll does that is under way.", "group", "state")

	stopping = describe("stopping_longest_seconds", "How long ago the first of those that are stopping was told to.", "group")
	bound    = describe("stopping_bound_seconds", "The longest that the stop of a process can take, by its configuration.", "group")

	starts     = describe("starts_total", "Processes started.", "group")
	restarts   = describe("restarts_total", "Processes that have failed and are replaced.", "group")
	unready    = describe("readiness_failures_total", "Processes that were given up, or ended, before they were ready.", "group")
	dead       = describe("liveness_failures_total", "Processes that were ready, and were given up.", "group")
	ends       = describe("ends_total", "Processes that have ended, by outcome.", "group", "outcome")
	startup    = describe("startup_duration_seconds", "From the start of a process until it was ready.", "group")
	shutdowns  = describe("shutdown_duration_seconds", "From the order to stop a process until it was reaped, by outcome.", "group", "outcome")
	extensions = describe("shutdown_extensions_total", "Requests for more time.", "group")
	unknown    = describe("kills_unconfirmed_total", "Processes that were killed, and not known to have ended two seconds later.", "group")
	survivors  = describe("survivors_total", "Processes, left behind by others, that could not be ended.", "group")

	rollsBegun = describe("rolls_begun_total", "Rolls that have begun.", "group")
	rolls      = describe("rolls_total", "Rolls by what has come of them; one that was paused, and has gone on, counts twice.", "group", "result")
	router     = describe("router_errors_total", "Times that the router could not be told.", "group")

	logLines     = describe("log_lines_total", "Lines of the processes that have been written to the log.", "group")
	logBytes     = describe("log_bytes_total", "Bytes that have been written to the log.", "group")
	droppedLines = describe("log_dropped_lines_total", "Lines that were dropped because the disk, or who reads the launcher's output, was too slow, or the disk full.", "group")
	droppedBytes = describe("log_dropped_bytes_total", "Bytes that were dropped because the disk, or who reads the launcher's output, was too slow, or the disk full.", "group")

	missed  = describe("events_missed_total", "Events that those who watch were too slow for.")
	failing = describe("state_file_failing", "1 while the state file, which the next launcher goes by, cannot be written.")
)

// states are those that a process can be in before it has ended.
var states = []launcher.State{launcher.Spawning, launcher.Starting, launcher.Warming, launcher.Ready, launcher.Unhealthy,
	launcher.ShutdownRequested, launcher.Draining, launcher.Blocked}

// outcomes are those that a process can have when it has ended.
var outcomes = []launcher.Outcome{launcher.Clean, launcher.DrainFailed, launcher.Killed, launcher.Crash, launcher.Unknown}

// rollStates are those of [launcher.RollStatus].
var rollStates = []string{"canary", "rolling", "rolling back", "paused"}

// rollResults are those of [launcher.GroupStats].
var rollResults = []string{"done", "rolled back", "degraded", "interrupted", "paused"}

// label writes names as Prometheus' own metrics have them.
func label(s string) string { return strings.ReplaceAll(strings.ToLower(s), " ", "_") }

func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range described {
		ch <- d
	}
}

func (c *collector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, n uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	version, goversion := built()
	gauge(build, 1, version, goversion)
	// Health first: who is seen as ready has been counted by then.
	health := c.manager.Health()
	stats := c.manager.Stats()
	counter(missed, stats.EventsMissed)
	gauge(failing, truth(stats.StateFailing))
	for _, h := range health {
		now(gauge, h)
		sinceTheStart(counter, h.Group, stats.Groups[h.Group])
		durations(ch, h.Group, stats.Groups[h.Group])
	}
}

// now shows how a group is. All states are there, also those that nobody is in: a series that comes and goes cannot be
// alerted on.
func now(gauge func(*prometheus.Desc, float64, ...string), h launcher.Health) {
	gauge(desired, float64(h.Desired), h.Group)
	gauge(minHealthy, float64(h.MinHealthy), h.Group)
	gauge(ready, float64(h.Ready), h.Group)
	gauge(updated, float64(h.Updated), h.Group)
	gauge(healthy, truth(h.Healthy), h.Group)
	gauge(givenUp, truth(h.GivenUp), h.Group)
	roll := ""
	if h.Roll != nil {
		roll = h.Roll.Phase
		if h.Roll.Paused {
			roll = "paused"
		}
	}
	for _, s := range rollStates {
		gauge(rolling, truth(roll == s), h.Group, label(s))
	}
	in := map[launcher.State]int{}
	var longest, limit time.Duration
	for _, p := range h.Processes {
		if p.State.Ended() {
			continue
		}
		in[p.State]++
		longest, limit = max(longest, p.Took()), max(limit, p.Bound)
	}
	for _, s := range states {
		gauge(processes, float64(in[s]), h.Group, label(s.String()))
	}
	gauge(stopping, longest.Seconds(), h.Group)
	gauge(bound, limit.Seconds(), h.Group)
}

func sinceTheStart(counter func(*prometheus.Desc, uint64, ...string), group string, s launcher.GroupStats) {
	for d, n := range map[*prometheus.Desc]uint64{
		starts: s.Starts, restarts: s.Restarts, unready: s.ReadinessFailures, dead: s.LivenessFailures, extensions: s.Extensions,
		unknown: s.Unconfirmed, survivors: s.Survivors, rollsBegun: s.RollsBegun, router: s.RouterErrors,
		logLines: s.Log.Lines, logBytes: s.Log.Bytes, droppedLines: s.Log.DroppedLines, droppedBytes: s.Log.DroppedBytes,
	} {
		counter(d, n, group)
	}
	for _, o := range outcomes {
		counter(ends, s.Ends[o], group, label(o.String()))
	}
	for _, r := range rollResults {
		counter(rolls, s.Rolls[r], group, label(r))
	}
}

func durations(ch chan<- prometheus.Metric, group string, s launcher.GroupStats) {
	histogram := func(d *prometheus.Desc, h launcher.Histogram, labels ...string) {
		upTo := map[float64]uint64{}
		for b, n := range h.Buckets() {
			upTo[b.Seconds()] = n
		}
		ch <- prometheus.MustNewConstHistogram(d, h.Count, h.Sum.Seconds(), upTo, labels...)
	}
	histogram(startup, s.Startup, group)
	for _, o := range outcomes {
		histogram(shutdowns, s.Shutdowns[o], group, label(o.String()))
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// built returns the version of the program, and that of Go.
func built() (version, goversion string) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown", "unknown"
	}
	return info.Main.Version, info.GoVersion
}
