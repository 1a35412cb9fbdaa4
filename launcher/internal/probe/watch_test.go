package probe_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher/internal/probe"
	"github.com/swansong-go/swansong/launcher/internal/spec"
)

// In this test, two successes in a row are needed for the verdict success, and three failures in a
// row for the verdict failure. A different result begins a new row.
func TestThreshold_NeedsEqualResultsInARow(t *testing.T) {
	threshold := probe.Threshold{Success: 2, Failure: 3}
	var got strings.Builder
	for _, r := range "+-+++--+---+-++" {
		verdict := "."
		if threshold.Add(r == '+') {
			verdict = string(r)
		}
		got.WriteString(verdict)
	}
	testkit.Equal(t, "verdicts", got.String(), "...++.....-...+")
}

// probed returns a probe with a period of 10 s and a timeout of 1 s.
func probed(delay time.Duration, success, failure int) spec.Probe {
	return spec.Probe{TCPSocket: spec.TCPSocketAction{Port: "1"}, InitialDelay: delay, Period: 10 * time.Second, Timeout: time.Second,
		SuccessThreshold: success, FailureThreshold: failure}
}

// A record has what a watch has reported, with the times since the start of the process.
type record struct {
	mu    sync.Mutex
	lines []string
}

func (r *record) add(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
}

// watch runs the probes of g in a synctest bubble, for the time during, and returns what they
// report.
func watch(t *testing.T, g spec.Group, during time.Duration, check func(at time.Duration, ctx context.Context, p spec.Probe) error) []string {
	t.Helper()
	r := &record{}
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), during)
		defer cancel()
		probe.Watch(ctx, g, begin, func(ctx context.Context, p spec.Probe) error { return check(time.Since(begin), ctx, p) },
			func(role probe.Role, err error) { r.add("%v %v: %v", time.Since(begin), role, err) })
	})
	return r.lines
}

// Verdicts are reported when they are reached and when they change, and not with every result.
func TestWatch_ReportsChangedVerdictsOnly(t *testing.T) {
	down := errors.New("down")
	got := watch(t, spec.Group{ReadinessProbe: probed(5*time.Second, 2, 3)}, 3*time.Minute, func(at time.Duration, _ context.Context, _ spec.Probe) error {
		if at < 30*time.Second || at >= time.Minute && at < 2*time.Minute {
			return down
		}
		return nil
	})
	testkit.Equal(t, "reports", got, []string{
		"25s readiness: the readiness probe, tcpSocket on port 1, has failed 3 times in a row: down",
		"45s readiness: <nil>",
		"1m25s readiness: the readiness probe, tcpSocket on port 1, has failed 3 times in a row: down",
		"2m15s readiness: <nil>",
	})
}

// When the startup probe succeeds, it ends and the other probes begin. Their delays count from the
// start of the process, so a probe whose delay has already passed begins at once.
func TestWatch_OtherProbesWaitForStartupProbe(t *testing.T) {
	checks := map[time.Duration]int{}
	var mu sync.Mutex
	g := spec.Group{StartupProbe: probed(0, 1, 5), ReadinessProbe: probed(2*time.Second, 1, 1), LivenessProbe: probed(25*time.Second, 1, 1)}
	g.StartupProbe.TCPSocket.Port = "startup"
	got := watch(t, g, 59*time.Second, func(at time.Duration, _ context.Context, p spec.Probe) error {
		mu.Lock()
		defer mu.Unlock()
		if checks[at]++; p.TCPSocket.Port == "startup" && at < 20*time.Second {
			return errors.New("not yet")
		}
		return nil
	})
	testkit.Equal(t, "reports", got, []string{"20s startup: <nil>", "20s readiness: <nil>", "25s liveness: <nil>"})
	testkit.Equal(t, "checks", checks, map[time.Duration]int{0: 1, 10 * time.Second: 1, 20 * time.Second: 2, 25 * time.Second: 1, 30 * time.Second: 1,
		35 * time.Second: 1, 40 * time.Second: 1, 45 * time.Second: 1, 50 * time.Second: 1, 55 * time.Second: 1})
}

// After a failure of the startup or the liveness probe, that probe makes no more checks, because
// the process is being stopped.
func TestWatch_StartupAndLivenessProbesEndAfterFailure(t *testing.T) {
	for role, g := range map[string]spec.Group{"startup": {StartupProbe: probed(0, 1, 2), LivenessProbe: probed(0, 1, 1)}, "liveness": {LivenessProbe: probed(0, 1, 2)}} {
		checks := 0
		got := watch(t, g, time.Hour, func(time.Duration, context.Context, spec.Probe) error { checks++; return errors.New("down") })
		testkit.Equal(t, "reports", got, []string{"10s " + role + ": the " + role + " probe, tcpSocket on port 1, has failed 2 times in a row: down"})
		testkit.Equal(t, "checks", checks, 2)
	}
}

// A check that takes too long has failed. The next one begins a period after the beginning of the
// last.
func TestWatch_CheckThatTimesOutHasFailed(t *testing.T) {
	var begun []time.Duration
	got := watch(t, spec.Group{LivenessProbe: probed(0, 1, 2)}, time.Hour, func(at time.Duration, ctx context.Context, _ spec.Probe) error {
		begun = append(begun, at)
		<-ctx.Done()
		return errors.New("interrupted")
	})
	testkit.Equal(t, "reports", got, []string{"11s liveness: the liveness probe, tcpSocket on port 1, has failed 2 times in a row: no answer within 1s"})
	testkit.Equal(t, "checks", begun, []time.Duration{0, 10 * time.Second})
}

// A check that hangs does not delay the end of the probes. What it returns after their end is
// ignored.
func TestWatch_EndsEvenIfCheckHangs(t *testing.T) {
	g := spec.Group{ReadinessProbe: probed(0, 1, 1), LivenessProbe: probed(0, 1, 1)}
	g.ReadinessProbe.Timeout, g.LivenessProbe.Timeout = time.Hour, time.Hour
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, cancel)
		begin := time.Now()
		probe.Watch(ctx, g, begin, func(ctx context.Context, _ spec.Probe) error { <-ctx.Done(); return ctx.Err() },
			func(role probe.Role, err error) { t.Errorf("%v is reported: %v", role, err) })
		testkit.Equal(t, "time until Watch returns", time.Since(begin), time.Minute)
	})
}
