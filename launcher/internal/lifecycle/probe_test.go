package lifecycle_test

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher/internal/lifecycle"
	"github.com/swansong-go/swansong/launcher/internal/probe"
	"github.com/swansong-go/swansong/launcher/internal/spec"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
)

func (m *simulation) probe(r probe.Role, err string) []string {
	return m.step(lifecycle.Event{Kind: lifecycle.OnProbe, Probe: r, Err: err})
}

func tcp() spec.Probe { return spec.Probe{TCPSocket: spec.TCPSocketAction{Port: "1"}} }

// A process with protocol signals and probes becomes ready when its startup and readiness probes
// have succeeded, and not before.
func TestReadiness_NeedsStartupAndReadinessProbe(t *testing.T) {
	m := spawn(config(func(cfg *spec.Group) {
		cfg.Protocol, cfg.StartupProbe, cfg.ReadinessProbe = spec.Signals, tcp(), tcp()
	}))
	testkit.Equal(t, "state after the start", m.State, lifecycle.Spawning)
	testkit.Equal(t, "message after the start", m.Message, "the startup probe has not succeeded")
	m.probe(probe.Startup, "")
	testkit.Equal(t, "state after the startup probe", m.State, lifecycle.Warming)
	testkit.Equal(t, "message after the startup probe", m.Message, "the readiness probe has not succeeded")
	m.probe(probe.Readiness, "refused")
	testkit.Equal(t, "message after the readiness probe has failed", m.Message, "refused")
	testkit.Equal(t, "actions", m.probe(probe.Readiness, ""), []string{"register"})
	testkit.Equal(t, "state after the readiness probe", m.State, lifecycle.Ready)
	testkit.Equal(t, "message after the readiness probe", m.Message, "the probes succeed")
}

// A process notifies the launcher that it is ready before its probe succeeds. If a call fails
// meanwhile, because there is no connection yet or no answer in time, the process is ready with its
// own message nevertheless.
func TestReadiness_ProcessIsReadyWithItsOwnMessageAfterFailedCall(t *testing.T) {
	for _, code := range []codes.Code{codes.Unavailable, codes.DeadlineExceeded} {
		m := spawn(config(func(cfg *spec.Group) { cfg.ReadinessProbe = tcp() }))
		m.readinessFails(codes.Unavailable) // the call that was made when the process was started
		m.step(lifecycle.Event{Kind: lifecycle.OnPushedReady, Reason: "12 caches loaded"})
		m.readinessFails(code)
		testkit.Equal(t, "message while the probe has not succeeded", m.Message, "failed")
		testkit.Equal(t, "actions when the probe succeeds", m.probe(probe.Readiness, ""), []string{"register"})
		testkit.Equal(t, "message of the ready process", m.Message, "12 caches loaded")
	}
}

// A process with the lifecycle protocol and a readiness probe becomes ready when it has said that
// it is ready and the probe has succeeded, in either order.
func TestReadiness_NeedsBothProbeAndProtocol(t *testing.T) {
	cfg := config(func(cfg *spec.Group) { cfg.ReadinessProbe = tcp() })
	m := spawn(cfg)
	m.readiness(pb.ReadinessResponse_READY)
	testkit.Equal(t, "state after the answer", m.State, lifecycle.Spawning)
	m.probe(probe.Readiness, "")
	testkit.Equal(t, "state after both", m.State, lifecycle.Ready)

	m = spawn(cfg)
	m.probe(probe.Readiness, "")
	testkit.Equal(t, "state after the probe", m.State, lifecycle.Spawning)
	m.pushReady()
	testkit.Equal(t, "state after both", m.State, lifecycle.Ready)

	m = spawn(cfg)
	m.readiness(pb.ReadinessResponse_READY)
	m.readiness(pb.ReadinessResponse_WARMING)
	m.probe(probe.Readiness, "")
	testkit.Equal(t, "state of a process that is warming up again", m.State, lifecycle.Warming)
}

// When a process becomes ready, its message no longer says that its readiness probe has failed.
func TestReadiness_ReadyProcessHasNoMessageOfEarlierFailedProbe(t *testing.T) {
	for _, protocol := range []spec.Protocol{spec.GRPC, spec.Notify, spec.Auto, spec.Signals} {
		m := spawn(config(func(cfg *spec.Group) { cfg.Protocol, cfg.ReadinessProbe = protocol, tcp() }))
		m.pushReady()
		m.probe(probe.Readiness, "refused")
		testkit.Equal(t, "message while the probe fails", m.Message, "refused")
		m.probe(probe.Readiness, "")
		testkit.Equal(t, "state", m.State, lifecycle.Ready)
		if m.Message != "the readiness probe succeeds" && m.Message != "the probes succeed" {
			t.Errorf("the message of a ready process with protocol %s is %q", protocol, m.Message)
		}
	}
}

// A process with a probe reports that it is ready. Then the answer to an earlier call arrives,
// which says that it is not ready. That answer does not replace the report, so the process is ready
// as soon as the probe has succeeded.
func TestReadiness_AnswerToEarlierCallDoesNotReplaceReadyReport(t *testing.T) {
	for name, answer := range map[string]func(m *simulation) []string{
		"warming":   func(m *simulation) []string { return m.readiness(pb.ReadinessResponse_WARMING) },
		"no answer": func(m *simulation) []string { return m.readinessFails(codes.Unavailable) },
	} {
		t.Run(name, func(t *testing.T) {
			m := spawn(config(func(cfg *spec.Group) { cfg.ReadinessProbe = tcp() }))
			m.pass(0)
			m.pushReady()
			answer(m)
			testkit.Equal(t, "message", m.Message, "")
			m.probe(probe.Readiness, "")
			testkit.Equal(t, "state after the probe", m.State, lifecycle.Ready)
		})
	}
}

// While the readiness probe of a ready process fails, it is WARMING and not in routing. It is not
// stopped.
func TestProbe_ReadinessFailureTakesProcessOutOfRouting(t *testing.T) {
	m := ready(config(func(cfg *spec.Group) { cfg.LivenessInterval = 0 }))
	m.pass(time.Minute)
	testkit.Equal(t, "actions", m.probe(probe.Readiness, "refused"), []string{"leave routing"})
	testkit.Equal(t, "state", m.State, lifecycle.Warming)
	testkit.Equal(t, "message", m.Message, "refused")
	m.pass(time.Hour)
	testkit.Equal(t, "actions", m.probe(probe.Readiness, ""), []string{"register"})
	testkit.Equal(t, "state", m.State, lifecycle.Ready)
	testkit.Equal(t, "ready since", m.ReadyAt, m.now)

	m.probe(probe.Readiness, "refused")
	testkit.Equal(t, "actions of a stop", m.stop(), []string{"deregister"})
	testkit.Equal(t, "actions of a late result", m.probe(probe.Readiness, ""), none)
}

// A failed liveness probe stops the process as any other stop: it leaves the routing and drains,
// within the termination grace period of the probe.
func TestProbe_LivenessFailureStopsProcess(t *testing.T) {
	for _, limit := range []time.Duration{0, 4 * time.Second} {
		m := spawn(config(func(cfg *spec.Group) {
			cfg.Protocol, cfg.LivenessProbe = spec.Signals, tcp()
			cfg.LivenessProbe.TerminationGrace = limit
		}))
		testkit.Equal(t, "actions", m.probe(probe.Liveness, "its probe has failed"), []string{"deregister"})
		testkit.Equal(t, "state", m.State, lifecycle.Unhealthy)
		testkit.Equal(t, "reason", m.Reason, "unhealthy: its probe has failed")
		testkit.Equal(t, "actions", m.deregistered(), []string{"signal SIGTERM"})
		want := 10 * time.Second
		if limit > 0 {
			want = limit
		}
		testkit.Equal(t, "time until SIGKILL", m.next(), want)
	}
}

// A failed startup probe, or a liveness probe that fails before the process is ready, gives the
// process up: there is no work to lose.
func TestProbe_StartupFailureTerminatesProcess(t *testing.T) {
	for _, role := range []probe.Role{probe.Startup, probe.Liveness} {
		m := spawn(config(func(cfg *spec.Group) {
			cfg.Protocol, cfg.StartupProbe, cfg.LivenessProbe = spec.Signals, tcp(), tcp()
			cfg.StartupProbe.TerminationGrace, cfg.LivenessProbe.TerminationGrace = 7*time.Second, 7*time.Second
		}))
		testkit.Equal(t, "actions", m.probe(role, "refused"), []string{"terminate"})
		testkit.Equal(t, "state", m.State, lifecycle.Unhealthy)
		testkit.Equal(t, "time until SIGKILL", m.next(), 7*time.Second)
		testkit.Equal(t, "probing", m.Probing(), false)
	}
}

// A process that is not ready in time says which probe it has waited for, and why.
func TestProbe_TimeoutNamesProbe(t *testing.T) {
	m := spawn(config(func(cfg *spec.Group) { cfg.Protocol, cfg.StartupProbe = spec.Signals, tcp() }))
	m.pass(30 * time.Second)
	testkit.Equal(t, "reason", m.Reason, "not ready within 30s (the startup probe has not succeeded)")
	m = spawn(config(func(cfg *spec.Group) { cfg.Protocol, cfg.ReadinessProbe = spec.Auto, tcp() }))
	m.probe(probe.Readiness, "its readiness probe has failed 3 times in a row: connection refused")
	m.pass(30 * time.Second)
	testkit.Equal(t, "reason", m.Reason, "not ready within 30s (its readiness probe has failed 3 times in a row: connection refused)")
}

// An adopted process that was ready is ready without new results of its probes.
func TestProbe_AdoptedReadyProcessIsReadyWithoutNewResult(t *testing.T) {
	m := simulate(config(func(cfg *spec.Group) {
		cfg.Protocol, cfg.StartupProbe, cfg.ReadinessProbe = spec.Signals, tcp(), tcp()
	}))
	testkit.Equal(t, "actions", m.step(lifecycle.Event{Kind: lifecycle.OnAdopted, ReadyAt: m.begin}), []string{"register"})
	testkit.Equal(t, "actions", m.probe(probe.Readiness, "refused"), []string{"leave routing"})
}
