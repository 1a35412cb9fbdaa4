package launcher

import (
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/swansong-go/swansong/internal/proc"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
	"google.golang.org/grpc/codes"
)

func (m *machine) stop(e event) []action {
	if m.phase > running {
		return nil // it is being stopped, for the first reason that there was
	}
	routed := m.phase == running
	if e.reason != "" {
		m.reason = e.reason
	}
	if m.state != Unhealthy { // which is shown for as long as it leaves routing
		m.enter(ShutdownRequested)
	}
	m.phase, m.asked, m.grace = leaving, e.at, e.grace
	if !e.asked.IsZero() {
		m.asked = e.asked
	}
	if m.grace <= 0 {
		m.grace = m.cfg.Shutdown.Grace
	}
	if total := m.cfg.Shutdown.TotalDeadline; total > 0 {
		m.escalateBy = m.asked.Add(total / 5 * 4)
	}
	if !e.began.IsZero() {
		return m.goOn(e)
	}
	if !routed && len(m.cfg.PreStop) == 0 {
		return m.begin(e.at)
	}
	if m.leaveBy = m.asked.Add(m.cfg.leaveBound()); !m.leaveBy.After(e.at) { // under another launcher
		return m.begin(e.at)
	}
	return []action{{kind: doLeave}}
}

// begin asks the process to stop.
func (m *machine) begin(now time.Time) []action {
	m.enter(ShutdownRequested)
	m.began = now
	m.maxAt = m.bounded(now.Add(m.cfg.Shutdown.Max))
	if m.cfg.Protocol == Signals {
		return m.signal(now, "it has no protocol")
	}
	m.phase, m.deadline = asking, m.bounded(now.Add(min(m.grace, m.cfg.Shutdown.Max)))
	return m.ask(now, doShutdown, m.cfg.Shutdown.Poll)
}

// goOn asks a process to stop that another launcher has asked before: its grace period and its maximum have begun then. While there was no
// launcher it could not ask for more time: where its deadline has passed meanwhile, it can still do so once, which takes two calls.
func (m *machine) goOn(e event) []action {
	m.enter(ShutdownRequested)
	m.began, m.granted = e.began, e.granted
	m.maxAt = m.bounded(e.began.Add(m.cfg.Shutdown.Max))
	if m.cfg.Protocol == Signals {
		return m.signal(e.at, "it has no protocol")
	}
	latest := slices.MaxFunc([]time.Time{e.began.Add(m.grace), e.granted, e.at.Add(2 * m.cfg.Shutdown.Poll)}, time.Time.Compare)
	m.phase, m.deadline = asking, slices.MinFunc([]time.Time{latest, m.maxAt}, time.Time.Compare)
	return m.ask(e.at, doShutdown, m.cfg.Shutdown.Poll)
}

// bounded cuts a deadline at four fifths of the total, where there is one, and at the end of the time that another launcher
// has begun to count.
func (m *machine) bounded(t time.Time) time.Time {
	for _, by := range []time.Time{m.escalateBy, m.stopBy} {
		if !by.IsZero() && by.Before(t) {
			t = by
		}
	}
	return t
}

func (m *machine) acked(e event) []action {
	switch {
	case e.ack != nil && e.ack.GetAcknowledged():
		m.phase, m.message = draining, e.ack.GetMessage()
		if m.cfg.Shutdown.GraceAdvisory {
			m.deadline = m.maxAt
		}
		m.pollAt = e.at
		return m.tick(e.at)
	case e.ack != nil:
		return m.signal(e.at, "it declines: "+e.ack.GetMessage())
	case e.code == codes.Unimplemented:
		return m.signal(e.at, "it does not know the call")
	}
	// Not there yet, or not there any more, or too slow: it is asked again until the grace period is over.
	m.hung = m.hung || e.code != codes.Unavailable
	m.message = e.err
	if e.code == codes.Unavailable { // which costs nobody a time-out, and is most often over in a moment
		m.pollAt = e.at.Add(m.cfg.Shutdown.Poll / 10)
	}
	return m.tick(e.at)
}

func (m *machine) status(e event) []action {
	if e.status == nil { // of the process this says nothing; the deadline stands
		if !m.complete { // whose last word is the better message
			m.message = e.err
		}
		return m.tick(e.at)
	}
	m.message, m.metrics = e.status.GetMessage(), e.status.GetMetrics()
	if e.status.GetDrainError() != "" {
		m.drainError = e.status.GetDrainError()
	}
	switch e.status.GetState() {
	case pb.ShutdownStatus_SHUTDOWN_DRAINING:
		m.enter(Draining)
	case pb.ShutdownStatus_SHUTDOWN_BLOCKED:
		m.enter(Blocked)
	case pb.ShutdownStatus_SHUTDOWN_COMPLETE:
		m.complete = true
	}
	asks := e.status.GetNeedMoreTime() && !m.complete
	if asks {
		m.extend(e)
	}
	return append(m.count(e.status.GetMoreTimeRequests(), asks), m.tick(e.at)...)
}

// extend grants more time, up to maxAt, which nothing moves.
func (m *machine) extend(e event) {
	more := wireDuration(e.status.GetAdditionalSeconds(), e.status.GetAdditionalMs())
	if more == 0 {
		more = m.grace
	}
	to := e.at.Add(more)
	if to.After(m.maxAt) {
		to = m.maxAt
	}
	if to.After(m.deadline) {
		m.deadline, m.granted = to, to
	}
}

// requestsTold bounds what is told of the requests of one poll. How many there were, only the process says, and it could crowd out all
// other events.
const requestsTold = 10

// count tells of the requests for more time since the last poll, be the time that they asked for over by now. The process says how
// many it has made; one that does not count has made another one where it asks.
func (m *machine) count(made int32, asks bool) (todo []action) {
	fresh := int64(made) - int64(m.requests) // 0: those that were told already
	if asks && (made == 0 || fresh < 0) {
		fresh = 1
	}
	m.requests = made
	for range min(fresh, requestsTold) {
		m.extensions++
		todo = append(todo, action{kind: doExtended, number: m.extensions})
	}
	return todo
}

func (m *machine) why(now time.Time) string {
	what := "its grace period"
	switch {
	case m.complete:
		what = "the time that it had, and it said that it was complete,"
	case !m.deadline.Before(m.maxAt):
		what = "its maximum"
	case m.extensions > 0:
		what = "the time that it had asked for"
	}
	why := fmt.Sprintf("%s is over, after %v", what, now.Sub(m.began).Round(time.Millisecond))
	if blocked := m.metrics.GetBlockingOperations(); len(blocked) > 0 {
		why += fmt.Sprintf("; blocked by %s", shorten(blocked[0]))
		if len(blocked) > 1 {
			why += fmt.Sprintf(" and %d more", len(blocked)-1)
		}
	}
	return why
}

// signal is for who does not take part: a signal, and all of the maximum.
func (m *machine) signal(now time.Time, why string) []action {
	m.enter(Draining)
	m.phase, m.message = signalled, why
	m.killAt = m.maxAt
	if least := now.Add(m.cfg.Shutdown.SIGTERMTimeout); least.After(m.killAt) {
		m.killAt = m.reserved(least)
	}
	return m.nextSignal(now)
}

func (m *machine) nextSignal(now time.Time) []action {
	s := m.cfg.Shutdown.StopSignals[m.signals]
	m.signals++
	m.signalAt = time.Time{}
	if m.signals < len(m.cfg.Shutdown.StopSignals) {
		m.signalAt = now.Add(m.cfg.Shutdown.SIGTERMTimeout)
	}
	return []action{{kind: doSignal, signal: s}}
}

func (m *machine) terminate(now time.Time, why string) []action {
	m.phase, m.forcedBecause = terminating, why
	m.killAt = m.reserved(now.Add(m.cfg.Shutdown.SIGTERMTimeout))
	return []action{{kind: doTerminate}}
}

// reserved cuts the time of a kill at nine tenths of the total, where there is one: the last tenth is for the reap.
func (m *machine) reserved(t time.Time) time.Time {
	if total := m.cfg.Shutdown.TotalDeadline; total > 0 && !m.asked.IsZero() {
		if by := m.asked.Add(total / 10 * 9); by.Before(t) {
			return by
		}
	}
	return t
}

func (m *machine) kill(now time.Time) []action {
	m.enter(ShutdownRequested)
	m.phase, m.giveUpAt = killing, now.Add(reapPatience)
	return []action{{kind: doKill}}
}

// end decides what it was.
func (m *machine) end(e event) {
	m.phase = over
	switch {
	case e.kind == evSpawnFailed:
		m.state, m.outcome, m.message = Crashed, Crash, e.err
		return
	case e.kind == evLostSight || e.exit.State == nil:
		m.state, m.outcome, m.message = Gone, Unknown, "ended, and nobody can know how"
		return
	}
	clean := m.succeeded(e.exit)
	switch {
	case e.exit.Killed || e.exit.Terminated:
		m.state, m.outcome, m.message = Forced, Killed, m.forcedBecause
	case m.drainError != "":
		m.state, m.outcome, m.message = Crashed, DrainFailed, m.drainError
	case clean:
		m.state, m.outcome = Complete, Clean
		if !m.complete {
			m.message = "" // that of a call which failed, if anything
		}
	default:
		m.state, m.outcome, m.message = Crashed, Crash, e.exit.String()
	}
}

// succeeded says whether an exit is one that a process should end with: a code of success, or death by the signal that it
// was asked to end with.
func (m *machine) succeeded(exit proc.Exit) bool {
	if exit.Signal != 0 {
		sent := m.cfg.Shutdown.StopSignals[:m.signals]
		return slices.ContainsFunc(sent, func(s string) bool { return signalNumber(s) == exit.Signal })
	}
	return slices.Contains(m.cfg.Shutdown.SuccessCodes, exit.Code)
}

func signalNumber(name string) syscall.Signal { return stopSignals[name] }

func shorten(s string) string {
	const most = 80
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}

func wireDuration(sec int32, ms int64) time.Duration {
	const longest = 24 * time.Hour
	d := time.Duration(max(0, sec)) * time.Second
	if ms > 0 {
		d = time.Duration(min(ms, longest.Milliseconds())) * time.Millisecond
	}
	return min(d, longest)
}
