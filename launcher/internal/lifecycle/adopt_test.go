package lifecycle_test

import (
	"testing"
	"time"

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher/internal/lifecycle"
	"github.com/swansong-go/swansong/launcher/internal/probe"
	"github.com/swansong-go/swansong/launcher/internal/spec"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
)

// adopt returns the machine of a process that a new launcher has adopted, and its first actions.
// sinceReady is the time since the process became ready, and sinceStop the time since its stop
// began; 0 means that this has not happened.
func adopt(cfg spec.Group, sinceReady, sinceStop time.Duration) (*simulation, []string) {
	m := simulate(cfg)
	e := lifecycle.Event{Kind: lifecycle.OnAdopted, Reason: "test"}
	if sinceReady > 0 {
		e.ReadyAt = m.now.Add(-sinceReady)
	}
	if sinceStop > 0 {
		e.StopAt = m.now.Add(-sinceStop)
	}
	return m, m.step(e)
}

// adoptAsked returns the machine of an adopted process, and its first actions. The earlier launcher
// decided to stop the process, and told it so. sinceAsked is the time since then. If granted is not
// 0, the process has requested more time and may take that long from now on.
func adoptAsked(cfg spec.Group, sinceAsked, granted time.Duration) (*simulation, []string) {
	m := simulate(cfg)
	e := lifecycle.Event{Kind: lifecycle.OnAdopted, Reason: "test", StopAt: m.now.Add(-sinceAsked), AskedAt: m.now.Add(-sinceAsked)}
	if granted > 0 {
		e.GrantedUntil = m.now.Add(granted)
	}
	return m, m.step(e)
}

func stopTimes(c *spec.Group) {
	c.Shutdown.Grace, c.Shutdown.Max, c.Shutdown.SIGTERMTimeout = 3*time.Second, 10*time.Second, 2*time.Second
}

// An adopted process keeps its state, ready or stopping. The time limits of its stop count from
// when the earlier launcher asked it to stop.
func TestAdoptedProcess_KeepsStateAndTimeSpentStopping(t *testing.T) {
	cfg := config(stopTimes)
	m, actions := adopt(cfg, time.Minute, 0)
	testkit.Equal(t, "actions for a ready process", actions, []string{"register"})
	testkit.Equal(t, "state", m.State, lifecycle.Ready)
	testkit.Equal(t, "its first liveness check", m.pass(0), []string{"ask readiness"})

	unchecked := cfg
	unchecked.LivenessInterval = 0
	m, _ = adopt(unchecked, time.Minute, 0)
	testkit.Equal(t, "without liveness checks, at once", m.pass(0), []string{"ask readiness"})
	testkit.Equal(t, "actions for the answer", m.readiness(pb.ReadinessResponse_READY), []string(nil))
	testkit.Equal(t, "time until another check", m.next(), time.Duration(-1))

	m, actions = adopt(cfg, 0, 0)
	testkit.Equal(t, "actions for a starting process", actions, []string{"ask readiness"})
	testkit.Equal(t, "state", m.State, lifecycle.Spawning)

	// Without a router, the stop that began 9 s ago may take 10 s in total, so 1 s is left.
	m, actions = adopt(cfg, time.Minute, 9*time.Second)
	testkit.Equal(t, "actions for a stopping process", actions, []string{"shutdown"})
	testkit.Equal(t, "state", m.State, lifecycle.ShutdownRequested)
	m.ack(true)
	before := moreTime(0)
	before.NeedMoreTime, before.MoreTimeRequests = false, 3
	m.status(before)
	testkit.Equal(t, "requests that the earlier launcher has counted", m.Extensions, 0)
	m.status(moreTime(5 * time.Second))
	testkit.Equal(t, "requests", m.Extensions, 1)
	m.pass(time.Second - 1)
	testkit.Equal(t, "when its time is over", m.pass(1), []string{"terminate"})
	testkit.Equal(t, "after the SIGTERM timeout", m.pass(2*time.Second), []string{"kill"})

	m, _ = adopt(cfg, time.Minute, time.Hour)
	testkit.Equal(t, "when its time was over before the adoption", m.pass(0), []string{"signal SIGTERM"})
	m.pass(2*time.Second - 1)
	testkit.Equal(t, "after the SIGTERM timeout", m.pass(1), []string{"kill"})
}

// The grace period and the maximum of an adopted process count from when the earlier launcher asked
// it to stop.
func TestAdoptedProcess_DeadlinesCountFromFirstShutdownRequest(t *testing.T) {
	cfg := config(stopTimes)
	cfg.Shutdown.GraceEnforced = true
	cfg.PreStop = []spec.Hook{{Command: []string{"hook"}, Timeout: time.Hour}} // the earlier launcher has already run this hook
	cfg.Shutdown.Poll = 500 * time.Millisecond
	for _, c := range []struct {
		name           string
		asked, granted time.Duration
		requests       bool // whether the process requests one more hour
		left           time.Duration
		reason         string
	}{
		{"in the grace period", 2 * time.Second, 0, false, time.Second, "the grace period is over, after 3s"},
		{"with more time granted", 4 * time.Second, 2 * time.Second, false, 2 * time.Second, "the grace period is over, after 6s"},
		{"in the grace period, and it requests more time", 2 * time.Second, 0, true, 8 * time.Second, "the maximum shutdown time is over, after 10s"},
		{"after the grace period, and it requests more time", 5 * time.Second, 0, true, 5 * time.Second, "the maximum shutdown time is over, after 10s"},
		{"after the grace period", 5 * time.Second, 0, false, time.Second, "the grace period is over, after 6s"},
		{"with more time granted than the maximum", 9 * time.Second, time.Hour, false, time.Second, "the maximum shutdown time is over, after 10s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, actions := adoptAsked(cfg, c.asked, c.granted)
			testkit.Equal(t, "first actions", actions, []string{"shutdown"})
			m.ack(true)
			status := &pb.ShutdownStatus{}
			if c.requests {
				status = moreTime(time.Hour)
			}
			m.status(status)
			m.pass(c.left - 1)
			testkit.Equal(t, "reason before its time is over", m.ForceReason, "")
			testkit.Equal(t, "when its time is over", m.pass(1), []string{"terminate"})
			testkit.Equal(t, "reason", m.ForceReason, c.reason)
		})
	}

	m, actions := adoptAsked(cfg, 11*time.Second, 0)
	testkit.Equal(t, "after its maximum: first actions", actions, []string{"shutdown"})
	testkit.Equal(t, "after its maximum: at once", m.pass(0), []string{"signal SIGTERM"})

	cfg.Protocol = spec.Signals
	m, actions = adoptAsked(cfg, 7*time.Second, 0)
	testkit.Equal(t, "without the protocol: first actions", actions, []string{"signal SIGTERM"})
	m.pass(3*time.Second - 1)
	testkit.Equal(t, "without the protocol: when its maximum is over", m.pass(1), []string{"kill"})
	testkit.Equal(t, "reason", m.ForceReason, "the process did not exit within 10s of SIGTERM")
}

// A process that has said that it is ready need not say so again to the launcher that adopts it.
func TestAdoptedProcess_NeedNotRepeatThatItIsReady(t *testing.T) {
	cfg := config(usesNotify)
	cfg.ReadinessProbe = tcp()
	m := simulate(cfg)
	m.step(lifecycle.Event{Kind: lifecycle.OnAdopted, Uses: spec.Notify, Reported: lifecycle.Reported{Ready: true}})
	testkit.Equal(t, "state before its probe succeeds", m.State, lifecycle.Spawning)
	testkit.Equal(t, "actions when its probe succeeds", m.probe(probe.Readiness, ""), []string{"register"})

	m = simulate(config(usesNotify)) // the configuration in a state file has no probes, because they can contain secrets
	actions := m.step(lifecycle.Event{Kind: lifecycle.OnAdopted, Uses: spec.Notify, Reported: lifecycle.Reported{Ready: true}})
	testkit.Equal(t, "actions without a probe", actions, []string{"register"})
}

// A process whose readiness probe failed when it was adopted gets no requests until the probe
// succeeds.
func TestAdoptedProcess_StaysWarmingUntilProbeSucceeds(t *testing.T) {
	cfg := config(usesNotify)
	cfg.ReadinessProbe = tcp()
	m := simulate(cfg)
	e := lifecycle.Event{Kind: lifecycle.OnAdopted, ReadyAt: m.now.Add(-time.Minute), Uses: spec.Notify, Reported: lifecycle.Reported{Ready: true}, Warming: true}
	testkit.Equal(t, "actions", m.step(e), none)
	testkit.Equal(t, "state", m.State, lifecycle.Warming)
	testkit.Equal(t, "actions while the probe fails", m.probe(probe.Readiness, "bad"), none)
	testkit.Equal(t, "time until the next action", m.next(), time.Duration(-1))
	testkit.Equal(t, "actions when the probe succeeds", m.probe(probe.Readiness, ""), []string{"register"})
	testkit.Equal(t, "state then", m.State, lifecycle.Ready)

	m = simulate(config(usesNotify))
	testkit.Equal(t, "actions without the probe", m.step(e), []string{"register"})
}

// A process that was stopping by itself when it was adopted gets no SIGTERM.
func TestAdoptedProcess_StoppingByItselfGetsNoSIGTERM(t *testing.T) {
	m := simulate(config(usesNotify))
	actions := m.step(lifecycle.Event{Kind: lifecycle.OnAdopted, StopAt: m.now, AskedAt: m.now, Uses: spec.Notify, Reported: lifecycle.Reported{Ready: true, Stopping: true}})
	testkit.Equal(t, "actions", actions, none)
	testkit.Equal(t, "state", m.State, lifecycle.Draining)
}

// A process that got a stop signal from an earlier launcher gets no second one, which it might take
// for an order to end at once. It is killed at the time at which the earlier launcher would have
// killed it.
func TestAdoptedProcess_GetsNoStopSignalTwice(t *testing.T) {
	cfg := config(stopTimes)
	cfg.Protocol = spec.Signals
	m := simulate(cfg)
	actions := m.step(lifecycle.Event{Kind: lifecycle.OnAdopted, StopAt: m.now.Add(-4 * time.Second), AskedAt: m.now.Add(-4 * time.Second), SignalsSent: 1})
	testkit.Equal(t, "actions", actions, []string(nil))
	testkit.Equal(t, "state", m.State, lifecycle.Draining)
	testkit.Equal(t, "time until the kill", m.next(), 6*time.Second)
	testkit.Equal(t, "actions then", m.pass(6*time.Second), []string{"kill"})

	cfg.Shutdown.StopSignals = []string{"SIGINT", "SIGTERM"}
	m = simulate(cfg)
	m.step(lifecycle.Event{Kind: lifecycle.OnAdopted, StopAt: m.now, AskedAt: m.now, SignalsSent: 1})
	testkit.Equal(t, "the next signal", m.pass(2*time.Second), []string{"signal SIGTERM"})
}
