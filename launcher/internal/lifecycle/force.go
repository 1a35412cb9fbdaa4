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
// signals, and has time until MaxAt.
func (m *Machine) stopBySignals(now time.Time, message string) []Action {
	m.enter(Draining)
	m.phase, m.Message = signalled, message
	m.killAt = m.MaxAt
	if m.GraceEnforced && m.Uses() == spec.Notify { // a process that sends messages as for sd_notify(3) can ask for more time
		m.killAt = slices.MinFunc([]time.Time{m.MaxAt, m.AskedAt.Add(m.Grace)}, time.Time.Compare)
	}
	if least := now.Add(m.cfg.Shutdown.SIGTERMTimeout); least.After(m.killAt) {
		m.killAt = m.capKill(least)
	}
	if m.Said.Stopping { // the process is already stopping by itself, and a signal could interrupt that
		return m.tick(now)
	}
	if m.SignalsSent > 0 { // an earlier launcher has sent a stop signal; a program may take a second one for an order to end at once
		m.scheduleNextSignal(now)
		return m.tick(now)
	}
	return m.sendNextSignal(now)
}

func (m *Machine) sendNextSignal(now time.Time) []Action {
	s := m.cfg.Shutdown.StopSignals[m.SignalsSent]
	m.SignalsSent++
	m.scheduleNextSignal(now)
	return []Action{{Kind: DoSignal, Signal: s}}
}

func (m *Machine) scheduleNextSignal(now time.Time) {
	m.signalAt = time.Time{}
	if m.SignalsSent < len(m.cfg.Shutdown.StopSignals) {
		m.signalAt = now.Add(m.cfg.Shutdown.SIGTERMTimeout)
	}
}

func (m *Machine) terminate(now time.Time, reason string) []Action {
	m.phase, m.ForceReason = terminating, reason
	m.killAt = m.capKill(now.Add(m.cfg.Shutdown.SIGTERMTimeout))
	return []Action{{Kind: DoTerminate}}
}

func (m *Machine) kill(now time.Time) []Action {
	m.enter(ShutdownRequested)
	m.phase, m.giveUpAt = killing, now.Add(spec.ReapTimeout)
	return []Action{{Kind: DoKill}}
}

// end records how the process has ended.
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
			m.Message = "" // the message could only be the error of a failed call
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
