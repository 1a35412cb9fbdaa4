package lifecycle

import (
	"fmt"
	"time"
)

// Next returns the time at which the machine needs an OnTick event, or the zero time if it needs
// none. It is the earliest of the times that matter in the current phase. While a call is pending,
// there is no next poll: the answer, or the timeout of the call, is an event of its own.
func (m *Machine) Next() time.Time {
	var next time.Time
	at := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	poll := func() {
		if !m.callPending {
			at(m.pollAt)
		}
	}
	switch m.phase {
	case starting:
		poll()
		at(m.readyBy)
		at(m.settleAt)
	case running:
		poll()
		at(m.watchdogAt)
	case deregistering:
		at(m.deregisterBy)
		at(m.terminateBy)
	case requesting, draining:
		poll()
		at(m.Deadline)
		at(m.graceAt)
	case signalled:
		at(m.signalAt)
		at(m.killAt)
	case terminating:
		at(m.killAt)
	case killing:
		at(m.giveUpAt)
	}
	return next
}

// tick returns the actions that are due. Most handlers of events end with it: an event may have
// moved a time, and the caller sends OnTick only for the time that Next returns.
func (m *Machine) tick(now time.Time) []Action {
	switch m.phase {
	case starting:
		return m.tickStarting(now)
	case running:
		if due(m.watchdogAt, now) {
			return m.failRunning(now, m.watchdogReason)
		}
		if m.pollDue(now) {
			actions := m.call(now, DoAskReadiness, 0)
			// This schedules nothing if liveness checks are turned off. In that case DoAskReadiness
			// was due once, because the process has been adopted.
			m.scheduleLivenessCheck(now)
			return actions
		}
	case deregistering:
		return m.tickDeregistering(now)
	case requesting:
		return m.tickRequesting(now)
	case draining:
		return m.tickDraining(now)
	case signalled:
		return m.tickSignalled(now)
	case terminating:
		if due(m.killAt, now) {
			return m.kill(now)
		}
	case killing:
		if due(m.giveUpAt, now) {
			m.giveUpAt = time.Time{}
			m.Outcome, m.Message = Unconfirmed, "killed, and not known to have ended"
			return []Action{{Kind: DoReportUnconfirmed}}
		}
	}
	return nil
}

// due reports whether t is set and not after now.
func due(t, now time.Time) bool { return !t.IsZero() && !t.After(now) }

// pollDue reports whether it is time to call the process again.
func (m *Machine) pollDue(now time.Time) bool { return !m.callPending && due(m.pollAt, now) }

// tickStarting handles the phase starting. With protocol auto, it makes a process that has reported
// nothing ready at the end of the settle time. It checks that before it checks readyBy, because the
// two can be the same time: the settle time is never longer than the health check timeout.
func (m *Machine) tickStarting(now time.Time) []Action {
	if actions, ready := m.tickAuto(now); ready {
		return actions
	}
	if due(m.readyBy, now) {
		return m.failStart(now, fmt.Sprintf("not ready within %v (%s)", m.cfg.HealthCheckTimeout, m.lastReport()))
	}
	if m.pollDue(now) {
		return m.call(now, DoAskReadiness, m.cfg.Shutdown.Poll)
	}
	return nil
}

// tickDeregistering handles the phase deregistering. A router or a hook that hangs delays the
// request to stop until deregisterBy at most. With a total deadline, terminateBy can come first:
// then the process gets SIGTERM without having been asked, so that a fifth of the deadline is left
// for SIGTERM and SIGKILL.
func (m *Machine) tickDeregistering(now time.Time) []Action {
	switch {
	case due(m.terminateBy, now):
		return m.terminate(now, fmt.Sprintf("four fifths of the total deadline of %v had passed before the process could be asked to stop", m.cfg.Shutdown.TotalDeadline))
	case due(m.deregisterBy, now):
		return m.requestShutdown(now)
	}
	return nil
}

// tickRequesting handles the phase requesting, in which the process has not answered the call
// Shutdown. What follows at the deadline depends on whether the process is known to serve the
// protocol. If it is known, the process hangs, and gets SIGTERM at once. A process that was never
// reached may be a program without the protocol. So it gets its stop signals and the time until
// MaxAt, like every such program.
func (m *Machine) tickRequesting(now time.Time) []Action {
	switch {
	case due(m.Deadline, now) && (m.callHung || m.responsive):
		return m.terminate(now, "the process did not answer the shutdown request")
	case due(m.Deadline, now):
		return m.stopBySignals(now, "the process cannot be reached by the lifecycle protocol")
	case m.pollDue(now):
		return m.call(now, DoShutdown, m.cfg.Shutdown.Poll)
	}
	return nil
}

// tickDraining handles the phase draining. The launcher reports the end of a grace period that is
// not enforced, and the report says what blocks the drain at that time. So tickDraining first asks
// the process for its status, unless such a call is pending already. When the answer arrives,
// onStatus finds graceOver set, and returns the action that reports.
func (m *Machine) tickDraining(now time.Time) []Action {
	switch {
	case due(m.Deadline, now):
		return m.terminate(now, m.expiredReason(now))
	case due(m.graceAt, now):
		m.graceAt, m.graceOver = time.Time{}, true
		if m.callPending {
			return nil
		}
		return m.askStatus(now)
	case m.pollDue(now):
		return m.askStatus(now)
	}
	return nil
}

// askStatus asks the process for its status. In the last two polls before its deadline it also asks
// for a report; in two, because the process may not answer one of them. If the deadline is moved
// after that, the process is asked for reports again.
func (m *Machine) askStatus(now time.Time) []Action {
	end := m.Deadline
	if !m.limit.IsZero() && m.limit.Before(end) {
		end = m.limit
	}
	actions := m.call(now, DoAskStatus, m.cfg.Shutdown.Poll)
	actions[0].Report = !now.Before(end.Add(-2 * m.cfg.Shutdown.Poll))
	return actions
}

// tickSignalled handles the phase signalled. SignalsSent is 0 there only if the process has said by
// itself that it stops (STOPPING=1): then it is left alone until killAt, and SIGTERM comes before
// SIGKILL, because it has had no signal yet.
func (m *Machine) tickSignalled(now time.Time) []Action {
	switch {
	case due(m.killAt, now) && m.SignalsSent == 0:
		return m.terminate(now, fmt.Sprintf("the process did not exit within %v of its message that it stops", now.Sub(m.AskedAt).Round(time.Millisecond)))
	case due(m.killAt, now):
		m.ForceReason = fmt.Sprintf("the process did not exit within %v of %s", now.Sub(m.AskedAt).Round(time.Millisecond), m.cfg.Shutdown.StopSignals[0])
		return m.kill(now)
	case due(m.signalAt, now):
		return m.sendNextSignal(now)
	}
	return nil
}
