package lifecycle

import (
	"fmt"
	"time"

	"github.com/swansong-go/swansong/launcher/internal/notify"
	"github.com/swansong-go/swansong/launcher/internal/spec"
)

// SettleTime is how long a process with protocol auto, without a startup or readiness probe, must
// run without having used the lifecycle protocol or sd_notify, to be taken for a program that uses
// neither, and so for ready. A shorter health check timeout takes its place.
const SettleTime = time.Second

// With protocol auto, a Machine finds out which protocol the process uses. Its field uses has what
// is known:
//
//	""        nothing yet: the launcher asks for readiness, and listens to messages
//	grpc      the process has answered a call, or has sent a notification of the lifecycle protocol
//	notify    the process has sent an sd_notify(3) message, and has not used the lifecycle
//	          protocol
//	signals   the process has used neither of them until SettleTime, or until its probes succeeded
//
// The lifecycle protocol wins whenever it is used: it says all that sd_notify says. If a process
// uses both, the launcher handles only those messages of sd_notify that are about the watchdog.
//
// The field expects says what earlier processes of the group have used. If that is grpc or notify,
// the process must report by one of the two protocols that it is ready: neither time nor probes
// alone make it ready.

// Uses returns the protocol that the process uses: that of the configuration, or for auto what the
// process has used so far.
func (m *Machine) Uses() spec.Protocol {
	if m.cfg.Protocol == spec.Auto {
		return m.uses
	}
	return m.cfg.Protocol
}

// SetExpected says what earlier processes of the group have used. It must be called before the
// first event.
func (m *Machine) SetExpected(p spec.Protocol) { m.expects = p }

// usesLifecycle records that the process uses the lifecycle protocol. If the process is ready, it
// may have been taken for a program without the protocol, for which no liveness checks are
// scheduled. So the first check is scheduled now.
func (m *Machine) usesLifecycle(now time.Time) {
	m.responsive = true
	if known := m.Uses() == spec.GRPC; !known {
		m.uses = spec.GRPC
		if m.phase == running {
			m.scheduleLivenessCheck(now)
		}
	}
}

// mayBePlain reports whether the process can be taken for a program that uses signals only.
func (m *Machine) mayBePlain() bool {
	return m.cfg.Protocol == spec.Signals || m.cfg.Protocol == spec.Auto && m.uses == "" && m.expects == ""
}

// decideByProbes takes a process with probes, which have succeeded, for a program that uses signals
// only, unless it is known to use more.
func (m *Machine) decideByProbes() bool {
	if !m.hasGate() || m.missingProbe() != "" || !m.mayBePlain() {
		return false
	}
	m.becomePlain("the probes succeed")
	return true
}

func (m *Machine) becomePlain(message string) {
	m.uses, m.Message = spec.Signals, message
}

// tickAuto makes a running process ready if it has said nothing during the settle time.
func (m *Machine) tickAuto(now time.Time) ([]Action, bool) {
	if !due(m.settleAt, now) {
		return nil, false
	}
	m.settleAt = time.Time{}
	if !m.mayBePlain() || m.hasGate() {
		return nil, false
	}
	m.becomePlain("the process runs, and uses neither the lifecycle protocol nor sd_notify")
	return m.becomeReady(now, m.Message), true
}

// onNotified handles an sd_notify(3) message of the process.
func (m *Machine) onNotified(e Event) []Action {
	n := e.Notification
	m.onWatchdog(e.At, n)
	if m.cfg.Protocol == spec.Auto && m.uses == spec.GRPC || !m.cfg.Protocol.TakesMessages() {
		return m.tick(e.At)
	}
	if n.Ready || n.Stopping || n.Status != "" || n.ExtendTimeout > 0 {
		if m.phase < deregistering || m.uses == "" {
			m.uses = spec.Notify
		}
	}
	if n.Status != "" {
		m.Message, m.hasStatus = n.Status, true
	}
	if n.ExtendTimeout > 0 {
		if actions := m.onExtendTimeout(e.At, n.ExtendTimeout); actions != nil {
			return append(actions, m.tick(e.At)...)
		}
	}
	switch {
	case n.Stopping && m.phase <= running:
		m.Reported.Stopping = true
		return m.onStop(Event{At: e.At, Reason: "the process stops by itself (STOPPING=1)"})
	case n.Ready && m.phase == starting:
		m.Reported.Ready = true
		if !m.hasStatus {
			m.Message = "the process has sent READY=1"
		}
		m.readyMessage = m.Message
		return m.becomeReadyIfComplete(e.At)
	}
	return m.tick(e.At)
}

// onExtendTimeout gives a process more time to start or to stop, as it has requested: until d from
// now. In total a process gets no more than Shutdown.Max in addition to its time to start, and no
// more than Shutdown.Max to stop.
func (m *Machine) onExtendTimeout(now time.Time, d time.Duration) []Action {
	to := now.Add(min(d, spec.MaxDuration))
	switch m.phase {
	case starting:
		if most := m.startedAt.Add(m.cfg.HealthCheckTimeout + m.cfg.Shutdown.Max); to.After(most) {
			to = most
		}
		if to.After(m.readyBy) {
			m.readyBy = to
		}
	case signalled:
		m.Extensions++
		if to.After(m.MaxAt) {
			to = m.MaxAt
		}
		if to.After(m.killAt) {
			m.killAt, m.GrantedUntil = to, to
		}
		m.Deadline = m.killAt
		return []Action{{Kind: DoReportExtension, Request: m.Extensions}}
	}
	return nil
}

// onWatchdog handles what a message says about the watchdog.
func (m *Machine) onWatchdog(now time.Time, n notify.Message) {
	if n.WatchdogPeriod > 0 {
		m.watchdog = n.WatchdogPeriod
	}
	if n.Watchdog || n.WatchdogPeriod > 0 {
		m.startWatchdog(now)
	}
	if n.WatchdogTrigger && m.phase == running {
		m.watchdogAt, m.watchdogReason = now, "the process has sent WATCHDOG=trigger"
	}
}

// startWatchdog sets the time until which the process must send WATCHDOG=1.
func (m *Machine) startWatchdog(now time.Time) {
	m.watchdogAt = time.Time{}
	if m.watchdog > 0 && m.phase == running {
		m.watchdogAt = now.Add(m.watchdog)
		m.watchdogReason = fmt.Sprintf("the process has not sent WATCHDOG=1 within %v", m.watchdog)
	}
}
