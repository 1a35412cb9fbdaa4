package lifecycle_test

import (
	"strings"
	"testing"
	"time"

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher/internal/lifecycle"
	"github.com/swansong-go/swansong/launcher/internal/notify"
	"github.com/swansong-go/swansong/launcher/internal/probe"
	"github.com/swansong-go/swansong/launcher/internal/spec"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
	"google.golang.org/grpc/codes"
)

func auto(cfg *spec.Group)          { cfg.Protocol = spec.Auto }
func usesNotify(cfg *spec.Group)    { cfg.Protocol = spec.Notify }
func withWatchdog(cfg *spec.Group)  { cfg.Protocol, cfg.Watchdog = spec.Notify, 10*time.Second }
func graceNotify(cfg *spec.Group)   { enforced(cfg); cfg.Protocol = spec.Notify }
func autoWithProbe(cfg *spec.Group) { cfg.Protocol, cfg.ReadinessProbe = spec.Auto, tcp() }

// none is what a test expects of a step of the state machine that leads to no action.
var none []string

func (m *simulation) notify(text string) []string {
	return m.step(lifecycle.Event{Kind: lifecycle.OnNotified, Notification: notify.Parse(text)})
}

// spawnExpecting returns the machine of a process. Earlier processes of its group used protocol p.
func spawnExpecting(cfg spec.Group, p spec.Protocol) *simulation {
	m := simulate(cfg)
	m.SetExpected(p)
	m.step(lifecycle.Event{Kind: lifecycle.OnSpawned})
	return m
}

// A process with protocol auto that says nothing is ready after the settle time, and is stopped by
// signals after one call that it does not answer.
func TestAuto_ProcessThatSendsNoMessageIsReadyAfterSettleTime(t *testing.T) {
	m := spawn(config(auto))
	m.readinessFails(codes.Unavailable)
	m.pass(lifecycle.SettleTime - time.Millisecond)
	testkit.Equal(t, "state just before", m.State, lifecycle.Spawning)
	m.readinessFails(codes.Unavailable)
	m.pass(time.Millisecond)
	testkit.Equal(t, "state", m.State, lifecycle.Ready)
	testkit.Equal(t, "uses", m.Uses(), spec.Signals)
	testkit.Equal(t, "time until the next action", m.next(), time.Duration(-1))

	m.stop()
	testkit.Equal(t, "action of the stop", m.deregistered(), []string{"shutdown"})
	testkit.Equal(t, "action after the call", m.ackFails(codes.Unavailable), []string{"signal SIGTERM"})
	testkit.Equal(t, "time until SIGKILL", m.next(), 10*time.Second)
	m.reaped(0, 0, false, false)
	testkit.Equal(t, "outcome", m.Outcome, lifecycle.Clean)
}

// If HealthCheckTimeout is shorter than the settle time, a process that answers no call counts as
// ready after HealthCheckTimeout.
func TestAuto_ShorterHealthCheckTimeoutReplacesSettleTime(t *testing.T) {
	m := spawn(config(func(cfg *spec.Group) { cfg.Protocol, cfg.HealthCheckTimeout = spec.Auto, 100*time.Millisecond }))
	m.readinessFails(codes.Unavailable)
	m.pass(100 * time.Millisecond)
	testkit.Equal(t, "state", m.State, lifecycle.Ready)
}

// A process with protocol auto that answers a call, or sends READY=1, is ready when it says so,
// even long after the settle time.
func TestAuto_ReportingProcessIsReadyWhenItSaysSo(t *testing.T) {
	m := spawn(config(auto))
	m.readiness(pb.ReadinessResponse_STARTING)
	m.pass(20 * time.Second)
	testkit.Equal(t, "state with the lifecycle protocol", m.State, lifecycle.Starting)
	m.readiness(pb.ReadinessResponse_READY)
	testkit.Equal(t, "state", m.State, lifecycle.Ready)
	testkit.Equal(t, "uses", m.Uses(), spec.GRPC)
	testkit.Equal(t, "time until the next check", m.next(), 2*time.Second)
	m.stop()
	m.deregistered()
	m.pass(0)
	testkit.Equal(t, "actions after an unavailable call", m.ackFails(codes.Unavailable), none)

	m = spawn(config(auto))
	m.notify("STATUS=loading 40 %")
	m.pass(20 * time.Second)
	testkit.Equal(t, "state with sd_notify", m.State, lifecycle.Spawning)
	testkit.Equal(t, "message", m.Message, "loading 40 %")
	m.notify("READY=1\nSTATUS=serving")
	testkit.Equal(t, "state", m.State, lifecycle.Ready)
	testkit.Equal(t, "message", m.Message, "serving")
	testkit.Equal(t, "uses", m.Uses(), spec.Notify)

	m = spawn(config(auto)) // this process listens, but does not answer yet
	m.readinessFails(codes.DeadlineExceeded)
	m.pass(20 * time.Second)
	testkit.Equal(t, "state of a process that listens", m.State, lifecycle.Spawning)
}

// If a process uses both the lifecycle protocol and sd_notify, the launcher uses the lifecycle
// protocol, whichever of the two the process has used first.
func TestAuto_LifecycleProtocolWinsIfProcessUsesNotifyToo(t *testing.T) {
	m := spawn(config(auto))
	m.readinessFails(codes.Unavailable)
	m.notify("READY=1")
	m.pushReady()
	testkit.Equal(t, "uses", m.Uses(), spec.GRPC)
	testkit.Equal(t, "actions", m.notify("STOPPING=1"), none)
	testkit.Equal(t, "state", m.State, lifecycle.Ready)
	testkit.Equal(t, "time until the next check", m.next(), 2*time.Second)

	m = spawn(config(auto))
	m.readiness(pb.ReadinessResponse_WARMING)
	m.notify("READY=1\nSTATUS=no")
	testkit.Equal(t, "state", m.State, lifecycle.Warming)
	testkit.Equal(t, "message", m.Message, "message")
}

// If earlier processes of the group have reported that they are ready, a new process must report it
// as well. The end of the settle time does not make it ready, and without a report it fails.
func TestAuto_ProcessMustReportReadyIfEarlierOnesDid(t *testing.T) {
	for _, p := range []spec.Protocol{spec.GRPC, spec.Notify} {
		for _, edit := range []func(*spec.Group){auto, autoWithProbe} {
			m := spawnExpecting(config(edit), p)
			m.readinessFails(codes.Unavailable)
			m.probe(probe.Readiness, "")
			m.pass(29 * time.Second)
			testkit.Equal(t, "state after the settle time", m.State, lifecycle.Spawning)
			m.readinessFails(codes.Unavailable)
			testkit.Equal(t, "actions at the end of the time", m.pass(time.Second), []string{"terminate"})
			if !strings.Contains(m.Reason, "if that is intended, set protocol signals") {
				t.Errorf("the reason %q does not say what to do", m.Reason)
			}
		}
	}
	m := spawnExpecting(config(auto), spec.Notify)
	m.notify("READY=1")
	testkit.Equal(t, "state", m.State, lifecycle.Ready)
}

// If a group has probes, a process that sends no message is ready as soon as the probes succeed.
func TestAuto_ProcessThatSendsNoMessageIsReadyWhenProbesSucceed(t *testing.T) {
	m := spawn(config(autoWithProbe))
	m.readinessFails(codes.Unavailable)
	m.pass(20 * time.Second)
	testkit.Equal(t, "state before the probe", m.State, lifecycle.Spawning)
	m.probe(probe.Readiness, "")
	testkit.Equal(t, "state", m.State, lifecycle.Ready)

	// The success of the probe is not enough if the process has answered a call: then it must also
	// report that it is ready.
	m = spawn(config(autoWithProbe))
	m.readiness(pb.ReadinessResponse_STARTING)
	m.probe(probe.Readiness, "")
	testkit.Equal(t, "state", m.State, lifecycle.Starting)
}

// A process that at first seems not to use the lifecycle protocol, and then does, is stopped
// through the protocol. It may report that it is still starting, and is not failed for that.
func TestAuto_ProcessThatUsesLifecycleProtocolLateIsStoppedByIt(t *testing.T) {
	m := spawn(config(auto))
	m.readinessFails(codes.Unavailable)
	m.pass(lifecycle.SettleTime)
	// The process may have given this answer before the settle time ended, so a process that is
	// ready by then stays ready.
	m.readiness(pb.ReadinessResponse_STARTING)
	testkit.Equal(t, "state", m.State, lifecycle.Ready)
	m.pushReady()
	testkit.Equal(t, "uses", m.Uses(), spec.GRPC)
	testkit.Equal(t, "time until the next check", m.next(), 2*time.Second)
	m.stop()
	m.deregistered()
	m.pass(0)
	m.ack(true)
	testkit.Equal(t, "state", m.State, lifecycle.ShutdownRequested)
	m.pass(0)
	m.status(reports(pb.ShutdownStatus_SHUTDOWN_DRAINING))
	testkit.Equal(t, "state", m.State, lifecycle.Draining)
}

// The launcher that adopts a process knows its protocol from the earlier launcher.
func TestAuto_AdoptedProcessKeepsProtocolOfEarlierLauncher(t *testing.T) {
	m := simulate(config(auto))
	actions := m.step(lifecycle.Event{Kind: lifecycle.OnAdopted, ReadyAt: m.begin, Uses: spec.GRPC})
	testkit.Equal(t, "actions", actions, []string{"register"})
	testkit.Equal(t, "uses", m.Uses(), spec.GRPC)
	testkit.Equal(t, "time until the first check", m.next(), time.Duration(0))

	m = simulate(config(auto))
	m.step(lifecycle.Event{Kind: lifecycle.OnAdopted, ReadyAt: m.begin, Uses: spec.Notify})
	testkit.Equal(t, "uses", m.Uses(), spec.Notify)
	testkit.Equal(t, "time until the first check", m.next(), time.Duration(-1))
}

// With protocol notify, a process is ready with READY=1 and is stopped by signals.
func TestNotify_ProcessIsReadyByMessageAndStoppedBySignal(t *testing.T) {
	m := spawn(config(usesNotify))
	testkit.Equal(t, "time until the deadline", m.next(), 30*time.Second)
	m.notify("RELOADING=1")
	m.notify("READY=0")
	testkit.Equal(t, "state", m.State, lifecycle.Spawning)
	testkit.Equal(t, "actions", m.notify("READY=1"), []string{"register"})
	m.stop()
	testkit.Equal(t, "actions", m.deregistered(), []string{"signal SIGTERM"})
	m.notify("STOPPING=1\nSTATUS=saving")
	testkit.Equal(t, "state", m.State, lifecycle.Draining)
	testkit.Equal(t, "message", m.Message, "saving")
}

// A process that never sends READY=1 fails at the health check timeout, with its last status.
func TestNotify_ProcessThatIsNeverReadyFails(t *testing.T) {
	m := spawn(config(usesNotify))
	m.notify("STATUS=waiting for the disk")
	testkit.Equal(t, "actions", m.pass(30*time.Second), []string{"terminate"})
	testkit.Equal(t, "reason", m.Reason, "not ready within 30s (last status: waiting for the disk; the process has not sent READY=1)")
}

// A process that sends STOPPING=1 by itself leaves routing, and gets no signal before its maximum.
func TestNotify_ProcessStoppingByItselfGetsNoSignalBeforeMaximum(t *testing.T) {
	m := spawn(config(usesNotify))
	m.notify("READY=1")
	testkit.Equal(t, "actions", m.notify("STOPPING=1"), []string{"deregister"})
	testkit.Equal(t, "actions of the stop", m.deregistered(), none)
	testkit.Equal(t, "state", m.State, lifecycle.Draining)
	testkit.Equal(t, "time until the maximum", m.next(), 10*time.Second)
	testkit.Equal(t, "actions at the maximum", m.pass(10*time.Second), []string{"terminate"})
	testkit.Equal(t, "actions then", m.pass(2*time.Second), []string{"kill"})
}

// EXTEND_TIMEOUT_USEC moves the deadline of the start, by at most the maximum duration in total.
func TestNotify_MessageExtendsDeadlineOfStart(t *testing.T) {
	m := spawn(config(usesNotify))
	m.pass(29 * time.Second)
	m.notify("EXTEND_TIMEOUT_USEC=5000000")
	testkit.Equal(t, "time until the deadline", m.next(), 5*time.Second)
	m.notify("EXTEND_TIMEOUT_USEC=1000000")
	testkit.Equal(t, "a shorter time changes nothing", m.next(), 5*time.Second)
	m.notify("EXTEND_TIMEOUT_USEC=3600000000")
	testkit.Equal(t, "time until the last possible deadline", m.next(), 11*time.Second)
}

// With an enforced grace period, EXTEND_TIMEOUT_USEC moves the deadline of the stop, up to the
// maximum.
func TestNotify_MessageExtendsDeadlineOfStop(t *testing.T) {
	m := spawn(config(graceNotify))
	m.notify("READY=1")
	m.stop()
	m.deregistered()
	m.pass(0)
	testkit.Equal(t, "time until the end of the grace period", m.next(), 3*time.Second)
	m.pass(2 * time.Second)
	testkit.Equal(t, "actions", m.notify("EXTEND_TIMEOUT_USEC=4000000"), []string{"report extension"})
	testkit.Equal(t, "time until the deadline", m.next(), 4*time.Second)
	m.notify("EXTEND_TIMEOUT_USEC=60000000")
	testkit.Equal(t, "time until the maximum", m.next(), 8*time.Second)
	testkit.Equal(t, "requests", m.Extensions, 2)
	testkit.Equal(t, "actions at the maximum", m.pass(8*time.Second), []string{"kill"})
}

// A ready process that is silent for the time of its watchdog is stopped as unhealthy. The watchdog
// begins when the process is ready, and the process can change its time.
func TestWatchdog_StopsSilentProcess(t *testing.T) {
	m := spawn(config(withWatchdog))
	m.pass(20 * time.Second)
	m.notify("READY=1")
	testkit.Equal(t, "time after READY", m.next(), 10*time.Second)
	m.pass(9 * time.Second)
	m.notify("WATCHDOG=1")
	testkit.Equal(t, "time after a message", m.next(), 10*time.Second)
	m.notify("WATCHDOG_USEC=2000000")
	testkit.Equal(t, "time after a change", m.next(), 2*time.Second)
	testkit.Equal(t, "actions", m.pass(2*time.Second), []string{"deregister"})
	testkit.Equal(t, "state", m.State, lifecycle.Unhealthy)
	testkit.Equal(t, "reason", m.Reason, "unhealthy: the process has not sent WATCHDOG=1 within 2s")

	m = spawn(config(withWatchdog))
	m.notify("READY=1")
	testkit.Equal(t, "actions", m.notify("WATCHDOG=trigger"), []string{"deregister"})
	testkit.Equal(t, "reason", m.Reason, "unhealthy: the process has sent WATCHDOG=trigger")
}

// The watchdog also holds for a process that uses the lifecycle protocol.
func TestWatchdog_StopsSilentProcessThatUsesLifecycleProtocolToo(t *testing.T) {
	m := spawn(config(func(cfg *spec.Group) { cfg.Protocol, cfg.Watchdog, cfg.LivenessInterval = spec.Auto, 10*time.Second, 0 }))
	m.readiness(pb.ReadinessResponse_READY)
	m.pass(9 * time.Second)
	m.notify("WATCHDOG=1")
	testkit.Equal(t, "time", m.next(), 10*time.Second)
	testkit.Equal(t, "actions", m.pass(10*time.Second), []string{"deregister"})
}
