package lifecycle

import (
	"fmt"
	"strings"
	"time"

	"github.com/swansong-go/swansong/internal/worktext"
	"github.com/swansong-go/swansong/launcher/internal/spec"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
	"google.golang.org/grpc/codes"
)

// onReadiness handles the answer to a call of GetReadinessStatus, or the error of that call.
//
// The answer to an older call can be out of date: the call may have been sent before the process
// became ready, or before it notified the launcher that it is ready. callStale marks such a call,
// and its answer is ignored.
func (m *Machine) onReadiness(e Event) []Action {
	m.callPending = false
	stale := m.callStale
	m.callStale = false
	if m.phase != starting && m.phase != running {
		return nil
	}
	// An answer that is out of date is ignored, except for DRAINING: a draining process never
	// becomes ready again.
	if stale && e.Readiness.GetState() != pb.ReadinessResponse_DRAINING {
		return m.tick(e.At)
	}
	if e.Readiness == nil {
		return m.onReadinessError(e)
	}
	m.usesLifecycle(e.At)
	m.Message = e.Readiness.GetMessage()
	switch e.Readiness.GetState() {
	case pb.ReadinessResponse_STARTING:
		if m.phase == running {
			return m.notReadyAnyMore(e.At, "the process reports that it is starting")
		}
		m.Reported.Ready = false
		m.enter(Starting)
	case pb.ReadinessResponse_WARMING:
		if m.phase == running {
			return m.notReadyAnyMore(e.At, "the process reports that it is warming up")
		}
		m.Reported.Ready = false
		m.enter(Warming)
	case pb.ReadinessResponse_READY:
		m.failures, m.Reported.Ready, m.readyMessage = 0, true, m.Message
		return m.becomeReadyIfComplete(e.At)
	case pb.ReadinessResponse_DRAINING:
		return m.onStop(Event{At: e.At, Reason: "the process drains by itself: " + m.Message})
	case pb.ReadinessResponse_UNHEALTHY:
		if m.phase == starting {
			return m.failStart(e.At, "the process reports that it is unhealthy: "+m.Message)
		}
		return m.failLiveness(e.At, "the process reports that it is unhealthy: "+m.Message)
	}
	return m.tick(e.At)
}

// onReadinessError handles a failed call of GetReadinessStatus. A process that is not known to
// serve the protocol may never do so, so the failure says nothing about it. Of one that does,
// Unavailable and DeadlineExceeded are normal while it starts; any other code is an answer that
// will not change, so the start has failed.
func (m *Machine) onReadinessError(e Event) []Action {
	if e.Code != codes.Unavailable && m.cfg.Protocol == spec.Auto && m.uses == "" {
		// If no process listened for calls, the error would be Unavailable. So the process listens,
		// and uses the lifecycle protocol.
		m.uses = spec.GRPC
	}
	if m.Uses() != spec.GRPC && m.expects != spec.GRPC {
		return m.tick(e.At)
	}
	m.Message, m.callFailure = e.Err, e.Err
	if m.phase == running {
		return m.failLiveness(e.At, e.Err)
	}
	if e.Code != codes.Unavailable && e.Code != codes.DeadlineExceeded {
		return m.failStart(e.At, e.Err)
	}
	return m.tick(e.At)
}

// onPushedReady handles the notification of a process that it is ready. Without the notification,
// the launcher would learn that only at its next poll.
func (m *Machine) onPushedReady(e Event) []Action {
	m.usesLifecycle(e.At)
	if m.phase != starting {
		m.Reported.Ready = true
		return m.tick(e.At)
	}
	if m.cfg.Transport.Network == "tcp" {
		// The process sent its report to the launcher's unix socket. That does not show whether the
		// launcher can call the process over TCP, so the launcher calls it at once.
		m.pollAt = e.At
		return m.tick(e.At)
	}
	m.Reported.Ready, m.Message, m.readyMessage = true, e.Reason, e.Reason
	m.callStale = m.callPending
	return m.becomeReadyIfComplete(e.At)
}

// notReadyAnyMore handles the report of a ready process that it is not ready. If the process has
// counted as ready only because it had said nothing, the report is not a failure.
func (m *Machine) notReadyAnyMore(now time.Time, reason string) []Action {
	if !m.Reported.Ready {
		return m.tick(now)
	}
	return m.failLiveness(now, reason)
}

// becomeReady makes a process ready whose protocol and probes all say so, and adds it to routing.
// It is also called when a readiness probe succeeds again after it has failed.
func (m *Machine) becomeReady(now time.Time, message string) []Action {
	m.enter(Ready)
	m.phase, m.ReadyAt, m.Message = running, now, message
	m.callStale = m.callPending
	m.scheduleLivenessCheck(now)
	m.startWatchdog(now)
	return []Action{{Kind: DoRegister}}
}

// scheduleLivenessCheck schedules the next liveness check, if the configuration has any.
func (m *Machine) scheduleLivenessCheck(now time.Time) {
	m.pollAt = time.Time{}
	if m.Uses() == spec.GRPC && m.cfg.LivenessInterval > 0 {
		m.pollAt = now.Add(m.cfg.LivenessInterval)
	}
}

// failStart gives up a process that has never been ready. The process gets SIGTERM at once and no
// request to stop, because it has no work to lose.
func (m *Machine) failStart(now time.Time, reason string) []Action {
	m.enter(Unhealthy)
	m.Reason, m.StopAt = reason, now
	return m.terminate(now, reason)
}

// failLiveness counts a failed liveness check, and stops the process after too many in a row.
func (m *Machine) failLiveness(now time.Time, reason string) []Action {
	if m.failures++; m.failures < m.cfg.LivenessFailures {
		return m.tick(now)
	}
	m.enter(Unhealthy)
	return m.onStop(Event{At: now, Reason: fmt.Sprintf("unhealthy, %s in a row: %s", worktext.Pluralize(m.failures, "time"), reason)})
}

// lastReport returns what the process has reported before it failed to become ready.
//
// The text ends up in the error of a roll or in an alarm, so it names the usual mistake: a program
// without the lifecycle protocol that was not configured as one.
func (m *Machine) lastReport() string {
	const hint = "if it does not serve the lifecycle protocol, set protocol signals"
	if report := m.probeReport(); report != "" {
		return report
	}
	switch {
	case m.Uses() == spec.Notify:
		return strings.TrimPrefix("last status: "+m.Message+"; the process has not sent READY=1", "last status: ; ")
	case m.cfg.Protocol == spec.Auto && m.uses == "" && m.expects != "":
		return fmt.Sprintf("earlier processes of the group were ready by protocol %s, which this one has not used; if that is intended, set protocol signals", m.expects)
	case m.responsive && m.Message == "":
		return "last report: " + m.State.String()
	case m.responsive:
		return "last report: " + m.Message
	case m.Message != "":
		return "the process has never answered: " + m.Message + "; " + hint
	}
	return "the process has never answered; " + hint
}
