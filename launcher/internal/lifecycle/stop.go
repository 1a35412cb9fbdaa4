package lifecycle

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/swansong-go/swansong/internal/worktext"
	"github.com/swansong-go/swansong/launcher/internal/spec"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
	"google.golang.org/grpc/codes"
)

// onStop begins to stop the process. If the process is already being stopped, onStop does nothing,
// so the first reason is kept.
//
// A process in routing, or with pre-stop hooks, is deregistered first and is asked to stop only
// then: asked at once, it would refuse requests that the router still sends to it. A process that
// an earlier launcher has already asked continues where it was; see resumeShutdown.
func (m *Machine) onStop(e Event) []Action {
	if m.phase > running {
		return nil
	}
	routed := m.phase == running
	if e.Reason != "" {
		m.Reason = e.Reason
	}
	if m.State != Unhealthy { // the state of an unhealthy process stays visible until the process is asked to stop
		m.enter(ShutdownRequested)
	}
	m.phase, m.StopAt, m.Grace = deregistering, e.At, e.Grace
	if !e.StopAt.IsZero() {
		m.StopAt = e.StopAt
	}
	m.GraceEnforced = m.cfg.Shutdown.GraceEnforced || m.Grace > 0
	if m.Grace <= 0 {
		m.Grace = m.cfg.Shutdown.Grace
	}
	if total := m.cfg.Shutdown.TotalDeadline; total > 0 {
		m.terminateBy = m.StopAt.Add(total / 5 * 4)
	}
	if !e.AskedAt.IsZero() {
		return m.resumeShutdown(e)
	}
	if !routed && len(m.cfg.PreStop) == 0 {
		return m.requestShutdown(e.At)
	}
	m.deregisterBy = m.StopAt.Add(m.cfg.LeaveBound())
	// If an earlier launcher decided to stop this process, the time to leave routing may have
	// passed already.
	if !m.deregisterBy.After(e.At) {
		return m.requestShutdown(e.At)
	}
	return []Action{{Kind: DoDeregister}}
}

// onDeregistered is called when the router has returned, with or without an error, and the pre-stop
// hooks have run.
func (m *Machine) onDeregistered(e Event) []Action {
	if m.phase == deregistering {
		// The delay begins when the router has stopped sending work to the process, and not already
		// when the router is called.
		m.deregisterBy = e.At.Add(m.cfg.Shutdown.DeregisterDelay)
	}
	return m.tick(e.At)
}

// requestShutdown asks the process to stop.
//
// The time of the process counts from this moment: its grace period, and MaxAt, which no request
// for more time can exceed.
func (m *Machine) requestShutdown(now time.Time) []Action {
	m.enter(ShutdownRequested)
	m.AskedAt = now
	m.MaxAt = m.capDeadline(now.Add(m.cfg.Shutdown.Max))
	if !m.cfg.Protocol.CallsProcess() {
		return m.stopBySignals(now, m.noProtocol())
	}
	m.phase, m.Deadline = requesting, m.capDeadline(now.Add(min(m.Grace, m.cfg.Shutdown.Max)))
	return m.call(now, DoShutdown, m.cfg.Shutdown.Poll)
}

// noProtocol explains why a process is stopped by signals.
func (m *Machine) noProtocol() string {
	if m.cfg.Protocol != spec.Auto {
		return fmt.Sprintf("the group has protocol %s", m.cfg.Protocol)
	}
	return "the process does not use the lifecycle protocol"
}

// resumeShutdown repeats the shutdown request of an earlier launcher. The grace period and the
// maximum count from the first request. While no launcher ran, the process could not request more
// time. So if its deadline has passed meanwhile, the process gets the time for one such request,
// which takes two calls.
func (m *Machine) resumeShutdown(e Event) []Action {
	m.enter(ShutdownRequested)
	m.AskedAt, m.GrantedUntil, m.SignalsSent = e.AskedAt, e.GrantedUntil, min(e.SignalsSent, len(m.cfg.Shutdown.StopSignals))
	m.MaxAt = m.capDeadline(e.AskedAt.Add(m.cfg.Shutdown.Max))
	if !m.cfg.Protocol.CallsProcess() {
		return m.stopBySignals(e.At, m.noProtocol())
	}
	latest := slices.MaxFunc([]time.Time{e.AskedAt.Add(m.Grace), e.GrantedUntil, e.At.Add(2 * m.cfg.Shutdown.Poll)}, time.Time.Compare)
	m.phase, m.Deadline = requesting, slices.MinFunc([]time.Time{latest, m.MaxAt}, time.Time.Compare)
	return m.call(e.At, DoShutdown, m.cfg.Shutdown.Poll)
}

// onAck handles the answer to a call of Shutdown, or the error of that call.
//
// A process that acknowledges the call is trusted to end by itself: its deadline moves from the end
// of the grace period to MaxAt, and the end of the grace period is only reported. If the grace
// period is enforced, the deadline does not move. A process that declines, or lacks the call, is
// stopped by signals.
func (m *Machine) onAck(e Event) []Action {
	m.callPending = false
	if m.phase != requesting {
		return m.tick(e.At)
	}
	switch {
	case e.Ack != nil && e.Ack.GetAcknowledged():
		m.phase, m.Message = draining, e.Ack.GetMessage()
		if !m.GraceEnforced {
			m.Deadline = m.MaxAt
			if end := m.AskedAt.Add(m.Grace); end.After(e.At) && end.Before(m.MaxAt) {
				m.graceAt = end
			}
		}
		if m.lessTime {
			return m.call(e.At, DoShutdown, m.cfg.Shutdown.Poll)
		}
		m.pollAt = e.At
		return m.tick(e.At)
	case e.Ack != nil:
		return m.stopBySignals(e.At, "the process declined the shutdown request: "+e.Ack.GetMessage())
	case e.Code == codes.Unimplemented:
		return m.stopBySignals(e.At, "the process does not implement the call Shutdown")
	case e.Code == codes.Unavailable && m.cfg.Protocol == spec.Auto && m.uses != spec.GRPC && m.expects != spec.GRPC:
		return m.stopBySignals(e.At, m.noProtocol())
	}
	// The process does not serve the protocol yet, does not serve it any more, or is too slow. The
	// launcher repeats the call until the grace period has passed.
	m.callHung = m.callHung || e.Code != codes.Unavailable
	m.Message = e.Err
	if e.Code == codes.Unavailable {
		// A call that fails with Unavailable has failed without delay. The same call usually
		// succeeds soon after, so the launcher repeats it after a tenth of the poll interval.
		m.pollAt = e.At.Add(m.cfg.Shutdown.Poll / 10)
	}
	return m.tick(e.At)
}

// onStatus handles the answer to a call of GetShutdownStatus, or the error of that call.
//
// COMPLETE does not end the process here: only its exit does, because a program can report that it
// is done and then hang. A process that reports COMPLETE and asks for more time in the same answer
// contradicts itself, and gets no more time.
func (m *Machine) onStatus(e Event) []Action {
	m.callPending = false
	if m.phase != draining {
		return m.tick(e.At)
	}
	var actions []Action
	if m.graceOver {
		m.graceOver = false
		actions = append(actions, Action{Kind: DoReportGrace})
	}
	if e.Status == nil { // a failed call says nothing about the drain, so its deadline stays
		// If the drain of the process is complete, keep its last message, which says more than the
		// error of this call.
		if !m.complete {
			m.Message = e.Err
		}
		return append(actions, m.tick(e.At)...)
	}
	m.Message, m.Metrics = e.Status.GetMessage(), e.Status.GetMetrics()
	if r := e.Status.GetReport(); r != "" {
		m.Report = r
	}
	if e.Status.GetDrainError() != "" {
		m.drainError = e.Status.GetDrainError()
	}
	switch e.Status.GetState() {
	case pb.ShutdownStatus_SHUTDOWN_DRAINING:
		m.enter(Draining)
	case pb.ShutdownStatus_SHUTDOWN_BLOCKED:
		m.enter(Blocked)
	case pb.ShutdownStatus_SHUTDOWN_COMPLETE:
		m.complete = true
	}
	needsTime := e.Status.GetNeedMoreTime() && !m.complete
	if needsTime {
		m.extend(e)
	}
	if m.complete {
		actions = nil // the drain has ended, so do not report that it goes on after the grace period
	}
	actions = append(actions, m.countRequests(e.Status.GetMoreTimeRequests(), needsTime)...)
	return append(actions, m.tick(e.At)...)
}

// onLessTime tells a process that was asked to stop already that it has less time than it was told:
// the launcher itself is stopped, and its total deadline ends before the maximum of the process.
func (m *Machine) onLessTime(e Event) []Action {
	m.limit = e.Limit
	// While a call of Shutdown is pending, that call may have told the process the longer time. So
	// lessTime has the launcher call Shutdown again when the pending call has been answered.
	if m.phase == requesting {
		m.lessTime = e.Limit.Before(m.MaxAt)
	}
	if m.phase != draining || !e.Limit.Before(m.MaxAt) {
		return m.tick(e.At)
	}
	return m.call(e.At, DoShutdown, m.cfg.Shutdown.Poll)
}

// extend moves the deadline of the drain, up to MaxAt, as the process has requested.
//
// Without a duration, the process gets another grace period from now. A request never shortens the
// deadline: an answer that is late could otherwise undo a longer grant.
func (m *Machine) extend(e Event) {
	more := wireDuration(e.Status.GetAdditionalSeconds(), e.Status.GetAdditionalMs())
	if more == 0 {
		more = m.Grace
	}
	to := e.At.Add(more)
	if to.After(m.MaxAt) {
		to = m.MaxAt
	}
	if to.After(m.Deadline) {
		m.Deadline, m.GrantedUntil = to, to
	}
}

// maxReports bounds how many requests for more time are reported after one poll. The process counts
// its requests itself, and a wrong number must not crowd out all other events.
const maxReports = 10

// unknownRequests is the value of Machine.requests for an adopted process until its first status.
// The earlier launcher has reported the requests that the process made until then, but how many
// they are is not known. No count of a process exceeds this value, so countRequests reports at most
// one request at the first status.
const unknownRequests = math.MaxInt32

// countRequests returns a report for each request for more time since the last poll, even if the
// requested time has already passed. total is the number of requests that the process has made, or
// 0 if it does not count them. If it does not count them, or its number has fallen, the process has
// made one new request if needsTime is set.
func (m *Machine) countRequests(total int32, needsTime bool) (actions []Action) {
	added := int64(total) - int64(m.requests)
	if needsTime && (total == 0 || added < 0) {
		added = 1
	}
	m.requests = total
	for range min(added, maxReports) {
		m.Extensions++
		actions = append(actions, Action{Kind: DoReportExtension, Request: m.Extensions})
	}
	return actions
}

// expiredReason says which deadline of the drain has passed, and what blocks the drain.
func (m *Machine) expiredReason(now time.Time) string {
	took := now.Sub(m.AskedAt).Round(time.Millisecond)
	var reason string
	switch {
	case m.complete && m.drainError != "":
		reason = fmt.Sprintf("the process reported that its drain has failed, and did not exit within %v", took)
	case m.complete:
		reason = fmt.Sprintf("the process reported that its drain is complete, but did not exit within %v", took)
	case !m.Deadline.Before(m.MaxAt):
		reason = fmt.Sprintf("the maximum shutdown time is over, after %v", took)
	case m.Extensions > 0:
		reason = fmt.Sprintf("the additional time that the process requested is over, after %v", took)
	default:
		reason = fmt.Sprintf("the grace period is over, after %v", took)
	}
	return reason + m.blockers()
}

// blockers says what blocks the drain, or returns "" if that is not known.
func (m *Machine) blockers() string {
	blocked := m.Metrics.GetBlockingOperations()
	switch len(blocked) {
	case 0:
		return ""
	case 1:
		return "; blocked by " + Shorten(blocked[0], shownBlocker)
	}
	return fmt.Sprintf("; blocked by %s and %d more", Shorten(blocked[0], shownBlocker), len(blocked)-1)
}

// GraceReport describes a process that still drains after its grace period.
func (m *Machine) GraceReport() string {
	asked := "no"
	if m.Extensions > 0 {
		asked = worktext.Pluralize(m.Extensions, "time")
	}
	return fmt.Sprintf("the process still drains after its grace period of %v; it has asked for more time: %s; it must exit within %v of the stop request%s",
		m.Grace, asked, m.MaxAt.Sub(m.AskedAt).Round(time.Millisecond), m.blockers())
}

// shownBlocker is the number of characters to which a message shortens the name of a blocker.
const shownBlocker = 80

// Shorten bounds the text of a process within a message of the launcher. It counts characters and
// not bytes, so that it cuts none in half.
func Shorten(s string, limit int) string {
	if r := []rune(s); len(r) > limit {
		return string(r[:limit]) + "…"
	}
	return s
}

// wireDuration returns a duration from a message of the protocol, which contains it in seconds and,
// if ms is set, more exactly in milliseconds.
func wireDuration(sec int32, ms int64) time.Duration {
	const longest = 24 * time.Hour
	d := time.Duration(max(0, sec)) * time.Second
	if ms > 0 {
		d = time.Duration(min(ms, longest.Milliseconds())) * time.Millisecond
	}
	return min(d, longest)
}
