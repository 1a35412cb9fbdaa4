package lifecycle

import (
	"fmt"
	"time"

	"github.com/swansong-go/swansong/launcher/internal/probe"
	"github.com/swansong-go/swansong/launcher/internal/spec"
)

// becomeReadyIfComplete makes a starting process ready if both conditions hold: by its protocol the
// process is ready, and its startup and readiness probes have succeeded.
func (m *Machine) becomeReadyIfComplete(now time.Time) []Action {
	if m.cfg.Protocol == spec.Signals && m.phase == starting {
		m.Message = m.messageOfSignals()
	}
	if m.phase != starting || !m.Reported.Ready && !m.decideByProbes() || m.missingProbe() != "" {
		return m.tick(now)
	}
	// A call that fails while the process waits for its probes says nothing about a process that is
	// ready: until package grpc has a connection, calls fail with the error of an earlier attempt
	// to connect, and on a busy machine an answer can take too long.
	if m.callFailure != "" && m.Message == m.callFailure {
		m.Message = m.readyMessage
	}
	return m.becomeReady(now, m.Message)
}

// messageOfSignals returns the message of a process with protocol signals, which sends none itself.
func (m *Machine) messageOfSignals() string {
	switch missing := m.missingProbe(); {
	case missing != "":
		return fmt.Sprintf("the %s probe has not succeeded", missing)
	case m.hasGate():
		return "the probes succeed"
	}
	return "started; with protocol signals a running process is ready"
}

// missingProbe returns the name of the probe for whose success the process waits to become ready.
func (m *Machine) missingProbe() string {
	switch {
	case m.cfg.StartupProbe.IsSet() && !m.passed[probe.Startup]:
		return probe.Startup.String()
	case m.cfg.ReadinessProbe.IsSet() && !m.passed[probe.Readiness]:
		return probe.Readiness.String()
	}
	return ""
}

// hasGate reports whether a probe decides when the process is ready.
func (m *Machine) hasGate() bool { return m.cfg.StartupProbe.IsSet() || m.cfg.ReadinessProbe.IsSet() }

// onProbe handles a result of a probe, which is a change of its verdict.
func (m *Machine) onProbe(e Event) []Action {
	if m.phase != starting && m.phase != running {
		return nil
	}
	m.passed[e.Probe] = e.Err == ""
	switch {
	case e.Err == "" && e.Probe == probe.Startup:
		m.enter(Warming)
		return m.becomeReadyIfComplete(e.At)
	case e.Err == "" && e.Probe == probe.Readiness:
		if m.phase == running && m.State == Warming {
			return m.becomeReady(e.At, "the readiness probe succeeds again")
		}
		if m.phase == starting && m.probeFailure != "" && m.Message == m.probeFailure {
			m.Message = "the readiness probe succeeds"
		}
		return m.becomeReadyIfComplete(e.At)
	case e.Err == "":
		return m.tick(e.At)
	case e.Probe == probe.Readiness:
		m.Message, m.probeFailure = e.Err, e.Err
		if m.State == Ready {
			m.enter(Warming)
			return append([]Action{{Kind: DoLeaveRouting}}, m.tick(e.At)...)
		}
		return m.tick(e.At)
	}
	p := m.cfg.LivenessProbe
	if e.Probe == probe.Startup {
		p = m.cfg.StartupProbe
	}
	return m.failProbe(e.At, e.Err, p)
}

// failProbe stops a process that has failed its startup or liveness probe.
func (m *Machine) failProbe(now time.Time, reason string, p spec.Probe) []Action {
	if m.phase == starting {
		actions := m.failStart(now, reason)
		if p.TerminationGrace > 0 {
			m.killAt = m.capKill(now.Add(p.TerminationGrace))
		}
		return actions
	}
	if p.TerminationGrace > 0 {
		m.cfg.Shutdown.Max = min(m.cfg.Shutdown.Max, p.TerminationGrace)
		m.cfg.Shutdown.Grace = min(m.cfg.Shutdown.Grace, p.TerminationGrace)
	}
	return m.failRunning(now, reason)
}

// failRunning stops a ready process that is not healthy any more.
func (m *Machine) failRunning(now time.Time, reason string) []Action {
	m.enter(Unhealthy)
	return m.onStop(Event{At: now, Reason: "unhealthy: " + reason})
}

// Probing reports whether the process is to be probed: it is neither being stopped nor has it
// ended.
func (m *Machine) Probing() bool { return m.phase == starting || m.phase == running }

// probeReport returns why a process that is not ready yet waits for a probe, or "".
func (m *Machine) probeReport() string {
	missing := m.missingProbe()
	if missing == "" || (m.Uses() == spec.GRPC || m.Uses() == spec.Notify) && !m.Reported.Ready {
		return ""
	}
	if m.Message == "" {
		return fmt.Sprintf("the %s probe has not succeeded", missing)
	}
	return m.Message
}
