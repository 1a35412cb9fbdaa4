package lifecycle

import (
	"slices"
	"time"

	"github.com/swansong-go/swansong/internal/proc"
	"github.com/swansong-go/swansong/launcher/internal/spec"
)

// onTerminate sends SIGTERM at once, unless SIGTERM has already been sent.
func (m *Machine) onTerminate(e Event) []Action {
	if m.phase >= terminating {
		return m.tick(e.At)
	}
	if m.StopAt.IsZero() {
		m.StopAt, m.Reason = e.At, e.Reason
	}
	m.enter(ShutdownRequested)
	return m.terminate(e.At, e.Reason)
}

// onForce sends SIGKILL at once, unless SIGKILL has already been sent.
func (m *Machine) onForce(e Event) []Action {
	if m.phase >= killing {
		return m.tick(e.At)
	}
	m.ForceReason = e.Reason
	return m.kill(e.At)
}

// stopBySignals stops a process that does not take part in the protocol: the process gets the stop
// signals, and has time until MaxAt, when the maximum time of the stop is over.
//
// The time is MaxAt and not the grace period, because such a process cannot ask for more time. It
// is at least the SIGTERM timeout, even if MaxAt has passed while the launcher tried to call the
// process, but never beyond the total deadline.
func (m *Machine) stopBySignals(now time.Time, message string) []Action {
	m.enter(Draining)
	m.phase, m.Message = signalled, message
	m.killAt = m.MaxAt
	// A process that sends sd_notify(3) messages can ask for more time, so the enforced
	// grace period bounds it.
	if m.GraceEnforced && m.Uses() == spec.Notify {
		m.killAt = slices.MinFunc([]time.Time{m.MaxAt, m.AskedAt.Add(m.Grace)}, time.Time.Compare)
	}
	if least := now.Add(m.cfg.Shutdown.SIGTERMTimeout); least.After(m.killAt) {
		m.killAt = m.capKill(least)
	}
	if m.Reported.Stopping { // the process has sent STOPPING=1, and a signal could interrupt its stop
		return m.tick(now)
	}
	// If an earlier launcher has already sent a stop signal, do not send another one now: a program
	// may interpret a second signal as the order to end at once.
	if m.SignalsSent > 0 {
		m.scheduleNextSignal(now)
		return m.tick(now)
	}
	return m.sendNextSignal(now)
}

// sendNextSignal returns the action for the next of the configured stop signals, and schedules the
// one after it. The caller has checked that one is left.
func (m *Machine) sendNextSignal(now time.Time) []Action {
	s := m.cfg.Shutdown.StopSignals[m.SignalsSent]
	m.SignalsSent++
	m.scheduleNextSignal(now)
	return []Action{{Kind: DoSignal, Signal: s}}
}

// scheduleNextSignal sets signalAt to the time of the next stop signal, one SIGTERM timeout from
// now, or to zero if all were sent.
func (m *Machine) scheduleNextSignal(now time.Time) {
	m.signalAt = time.Time{}
	if m.SignalsSent < len(m.cfg.Shutdown.StopSignals) {
		m.signalAt = now.Add(m.cfg.Shutdown.SIGTERMTimeout)
	}
}

// terminate sends SIGTERM to the process and to all that it has started, for the given reason.
// SIGKILL follows after the SIGTERM timeout. This SIGTERM ends the process by force, unlike the
// stop signals, which only the process itself gets: the outcome is Killed even if the process then
// exits with 0.
func (m *Machine) terminate(now time.Time, reason string) []Action {
	m.phase, m.ForceReason = terminating, reason
	m.killAt = m.capKill(now.Add(m.cfg.Shutdown.SIGTERMTimeout))
	return []Action{{Kind: DoTerminate}}
}

// kill sends SIGKILL to the process and to all that it has started. A process in an uninterruptible
// system call survives SIGKILL for as long as that call takes. So after ReapTimeout the launcher
// reports the process as Unconfirmed, and goes on waiting for it.
func (m *Machine) kill(now time.Time) []Action {
	m.enter(ShutdownRequested)
	m.phase, m.giveUpAt = killing, now.Add(spec.ReapTimeout)
	return []Action{{Kind: DoKill}}
}

// end records how the process has ended.
//
// It goes by the exit status that the kernel has given, and not by what the process has reported
// before. More than one case can apply, so their order matters: an unknown exit status, as of an
// adopted process, hides all else; a process that was forced is not called crashed; and a drain
// that has failed is named rather than its exit code.
func (m *Machine) end(e Event) {
	m.phase = ended
	if e.Kind == OnSpawnFailed {
		m.State, m.Outcome, m.Message = Crashed, Crash, e.Err
		return
	}
	switch {
	case e.Exit.Status == "":
		m.State, m.Outcome, m.Message = Gone, Unknown, e.Exit.String()
	case e.Exit.Killed || e.Exit.Terminated:
		m.State, m.Outcome, m.Message = Forced, Killed, m.ForceReason
	case m.drainError != "":
		m.State, m.Outcome, m.Message = Crashed, DrainFailed, m.drainError
	case m.succeeded(e.Exit):
		m.State, m.Outcome = Complete, Clean
		if !m.complete {
			// Drop the last message: it is about the drain or about a failed call, and does not say
			// how the process ended.
			m.Message = ""
		}
	default:
		m.State, m.Outcome, m.Message = Crashed, Crash, e.Exit.String()
	}
}

// succeeded reports whether the process ended successfully: its exit code is one of the success
// codes, or it died of a stop signal that the launcher sent.
func (m *Machine) succeeded(exit proc.Exit) bool {
	if exit.Signal != 0 {
		sent := m.cfg.Shutdown.StopSignals[:m.SignalsSent]
		return slices.ContainsFunc(sent, func(s string) bool { return StopSignals[s] == exit.Signal })
	}
	return slices.Contains(m.cfg.Shutdown.SuccessCodes, exit.Code)
}
