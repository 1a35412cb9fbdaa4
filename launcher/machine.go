package launcher

import (
	"fmt"
	"math"
	"time"

	"github.com/swansong-go/swansong/internal/proc"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
	"google.golang.org/grpc/codes"
)

// A machine is what a launcher does with one process, without the doing: it takes what has happened, and says what to do.
// It starts no goroutine, asks no clock and calls nobody, so that each of its paths can be walked in a test.
//
//	SPAWNING ─▶ STARTING ─▶ WARMING ─▶ READY ──────┐ stop, or it drains by itself
//	    │           │           │        │         ▼
//	    └───────────┴───────────┴──▶ UNHEALTHY ─▶ SHUTDOWN_REQUESTED ─▶ DRAINING ◀──▶ BLOCKED
//
//	and from each of them, when the process has been reaped: COMPLETE, FORCED, CRASHED or GONE
//
// A state is never entered again, but for DRAINING and BLOCKED; states on the way may be skipped.
//
// What is done is in phases, since one state can mean several things to do:
//
//	starting   asks for readiness until startBy; then terminating
//	running    asks for readiness at the interval of liveness
//	leaving    out of routing, the delay for that, pre-stop hooks
//	asking     calls Shutdown until it is answered, at most for the grace period
//	draining   asks for the status until the deadline: the grace period, moved by requests for more time, never beyond max
//	signalled  one that does not take part got the stop signals, and has all of max
//	terminating  SIGTERM to all that it is, killAt follows
//	killing    SIGKILL to all that it is, giveUpAt follows
//	exited     the leader is a zombie; proc sees to the rest, within bounds of its own
//	over       reaped
//
// Invariants:
//
//   - Nothing but evReaped leads to an end. What a process or a failed call says proves nothing.
//   - Each phase from leaving on has a deadline, and next returns the earliest one, so a call that hangs delays nothing.
//   - maxAt is set once.
type machine struct {
	cfg    GroupConfig // complete: defaults are filled in
	router bool        // there is one, which takes its time

	state State
	phase phase
	asks  bool // a call is under way
	stale bool // and was when it became ready, so that its answer may be of before

	pollAt   time.Time
	startBy  time.Time
	readyAt  time.Time
	failures int // checks of liveness that failed, in a row

	reason        string
	asked         time.Time // stop
	leaveBy       time.Time // when leaving is over, whatever has come of it
	left          bool      // routing and hooks have been seen to
	began         time.Time // the first Shutdown call, or the stop signal
	deadline      time.Time
	granted       time.Time // what it was moved to, for a request
	maxAt         time.Time
	escalateBy    time.Time // zero without a total deadline
	stopBy        time.Time // zero unless another launcher has told it to stop
	hung          bool      // a Shutdown call was not refused but not answered either
	spoke         bool      // it takes part in the protocol: has answered, or pushed
	grace         time.Duration
	extensions    int   // requests for more time
	requests      int32 // as the process counts them
	drainError    string
	complete      bool // it says so
	signals       int  // stop signals sent
	signalAt      time.Time
	killAt        time.Time
	giveUpAt      time.Time
	forcedBecause string
	message       string
	metrics       *pb.ShutdownMetrics
	outcome       Outcome
}

type phase int

const (
	starting phase = iota
	running
	leaving
	asking
	draining
	signalled
	terminating
	killing
	exited
	over
)

// reapPatience is how long a process may take to die of SIGKILL, and those that it leaves behind to follow it.
const reapPatience = 2 * time.Second

type eventKind int

const (
	evSpawned     eventKind = iota // it runs
	evReadiness                    // readiness, or code
	evPushedReady                  // it says so by itself
	evStop                         // reason, grace
	evLeft                         // routing and hooks have been seen to
	evAck                          // ack, or code
	evStatus                       // status, or code
	evPushedEnd                    // drainError
	evForce                        // reason
	evTerminate                    // reason
	evRules                        // rules
	evTick                         // time has passed
	evExited                       // the leader has ended
	evReaped                       // exit
	evSpawnFailed                  // it never ran
	evLostSight                    // it cannot be watched any more
	evAdopted                      // it runs, and another launcher has started it: readyAt, asked, began, granted, reason, grace
	numEventKinds = int(evAdopted) + 1
)

type event struct {
	kind       eventKind
	at         time.Time
	code       codes.Code // of a call that failed
	err        string
	readiness  *pb.ReadinessResponse
	ack        *pb.ShutdownAck
	status     *pb.ShutdownStatus
	reason     string
	grace      time.Duration // zero: the configured one
	rules      *GroupConfig
	readyAt    time.Time
	asked      time.Time // zero: it was not told to stop before
	began      time.Time // zero: nor asked to
	granted    time.Time // zero: nor given more time
	drainError string
	exit       proc.Exit
}

type actionKind int

const (
	doAskReadiness actionKind = iota
	doJoin                    // enter routing
	doLeave                   // leave routing, run hooks; evLeft follows
	doShutdown                // call Shutdown; evAck follows
	doAskStatus               // evStatus follows
	doSignal                  // the leader
	doTerminate
	doKill
	doUnconfirmed // nobody knows whether it has ended: say so
	doExtended    // more time was asked for: say so
)

type action struct {
	kind   actionKind
	signal string
	number int // of the request
}

func newMachine(cfg GroupConfig) *machine { return &machine{cfg: cfg, state: Spawning} }

// step takes an event, and returns what is to be done because of it.
func (m *machine) step(e event) []action {
	if m.phase == over {
		return nil
	}
	switch e.kind {
	case evSpawned:
		m.startBy = e.at.Add(m.cfg.HealthCheckTimeout)
		if m.cfg.Protocol == Signals {
			return m.ready(e.at, "started; it has no protocol to say more")
		}
		m.pollAt = e.at
	case evAdopted:
		return m.adopt(e)
	case evReadiness:
		m.asks = false
		return m.readiness(e)
	case evPushedReady:
		m.spoke = true
		if m.phase == starting && m.cfg.Transport.Network == "tcp" {
			m.pollAt = e.at // what it pushes comes by another way than what it is asked, which may not be open
		} else if m.phase == starting {
			return m.ready(e.at, e.reason)
		}
	case evStop:
		return m.stop(e)
	case evLeft:
		m.left = true
		if m.phase == leaving {
			// The delay begins when nobody new is sent here, and not when that was asked for.
			m.leaveBy = e.at.Add(m.cfg.Shutdown.DeregisterDelay)
		}
	case evAck:
		m.asks = false
		if m.phase == asking {
			return m.acked(e)
		}
	case evStatus:
		m.asks = false
		if m.phase == draining {
			return m.status(e)
		}
	case evPushedEnd:
		m.complete, m.drainError, m.message = true, e.drainError, e.reason
	case evForce:
		if m.phase < killing {
			m.forcedBecause = e.reason
			return m.kill(e.at)
		}
	case evTerminate:
		if m.phase < terminating {
			if m.asked.IsZero() {
				m.asked, m.reason = e.at, e.reason
			}
			m.enter(ShutdownRequested)
			return m.terminate(e.at, e.reason)
		}
	case evRules:
		return m.rule(e)
	case evExited:
		if m.phase < exited {
			m.phase, m.asks = exited, false
		}
		return nil
	case evReaped, evSpawnFailed, evLostSight:
		m.end(e)
		return nil
	}
	return m.tick(e.at)
}

// next returns when the machine wants to be told that time has passed, zero if never.
func (m *machine) next() time.Time {
	var next time.Time
	at := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	poll := func() {
		if !m.asks {
			at(m.pollAt)
		}
	}
	switch m.phase {
	case starting:
		poll()
		at(m.startBy)
	case running:
		poll()
	case leaving:
		at(m.leaveBy)
		at(m.escalateBy)
	case asking, draining:
		poll()
		at(m.deadline)
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

// tick does what is due.
func (m *machine) tick(now time.Time) []action {
	due := func(t time.Time) bool { return !t.IsZero() && !t.After(now) }
	poll := !m.asks && due(m.pollAt)
	switch m.phase {
	case starting:
		if due(m.startBy) {
			return m.unready(now, fmt.Sprintf("not ready within %v (%s)", m.cfg.HealthCheckTimeout, m.heard()))
		}
		if poll {
			return m.ask(now, doAskReadiness, m.cfg.Shutdown.Poll)
		}
	case running:
		if poll {
			todo := m.ask(now, doAskReadiness, 0)
			m.watch(now) // without liveness, it was one look at one that was adopted, and there is no other
			return todo
		}
	case leaving:
		switch {
		case due(m.escalateBy):
			return m.terminate(now, fmt.Sprintf("four fifths of its total deadline of %v went by before it was asked", m.cfg.Shutdown.TotalDeadline))
		case due(m.leaveBy):
			return m.begin(now)
		}
	case asking:
		switch {
		case due(m.deadline) && (m.hung || m.spoke):
			return m.terminate(now, "it has not answered the shutdown request")
		case due(m.deadline):
			return m.signal(now, "nobody is there to be asked")
		case poll:
			return m.ask(now, doShutdown, m.cfg.Shutdown.Poll)
		}
	case draining:
		switch {
		case due(m.deadline):
			return m.terminate(now, m.why(now))
		case poll:
			return m.ask(now, doAskStatus, m.cfg.Shutdown.Poll)
		}
	case signalled:
		switch {
		case due(m.killAt):
			m.forcedBecause = fmt.Sprintf("it did not end within %v of %s", now.Sub(m.began).Round(time.Millisecond), m.cfg.Shutdown.StopSignals[0])
			return m.kill(now)
		case due(m.signalAt):
			return m.nextSignal(now)
		}
	case terminating:
		if due(m.killAt) {
			return m.kill(now)
		}
	case killing:
		if due(m.giveUpAt) {
			m.giveUpAt = time.Time{}
			m.outcome, m.message = Unconfirmed, "killed, and not known to have ended"
			return []action{{kind: doUnconfirmed}}
		}
	}
	return nil
}

func (m *machine) ask(now time.Time, what actionKind, again time.Duration) []action {
	m.asks, m.pollAt = true, now.Add(again)
	return []action{{kind: what}}
}

// enter changes the state, if that leads anywhere.
func (m *machine) enter(s State) {
	if follows(m.state, s) {
		m.state = s
	}
}

// follows says whether a state may be followed by another.
func follows(from, to State) bool {
	switch {
	case from.Ended() || from == to:
		return false
	case from == Blocked && to == Draining:
		return true
	default:
		return to > from
	}
}

func (m *machine) readiness(e event) []action {
	stale := m.stale
	m.stale = false
	if m.phase != starting && m.phase != running {
		return nil
	}
	if stale && e.readiness.GetState() != pb.ReadinessResponse_DRAINING { // which is never taken back
		return m.tick(e.at)
	}
	if e.readiness == nil {
		m.message = e.err
		if m.phase == running {
			return m.failed(e.at, e.err)
		}
		if e.code != codes.Unavailable && e.code != codes.DeadlineExceeded {
			return m.unready(e.at, e.err)
		}
		return m.tick(e.at)
	}
	m.spoke, m.message = true, e.readiness.GetMessage()
	switch e.readiness.GetState() {
	case pb.ReadinessResponse_STARTING:
		if m.phase == running {
			return m.failed(e.at, "it says that it is starting")
		}
		m.enter(Starting)
	case pb.ReadinessResponse_WARMING:
		if m.phase == running {
			return m.failed(e.at, "it says that it is warming up")
		}
		m.enter(Warming)
	case pb.ReadinessResponse_READY:
		m.failures = 0
		if m.phase == starting {
			return m.ready(e.at, m.message)
		}
	case pb.ReadinessResponse_DRAINING:
		return m.stop(event{at: e.at, reason: "it drains by itself: " + m.message})
	case pb.ReadinessResponse_UNHEALTHY:
		if m.phase == starting {
			return m.unready(e.at, "it says that it is unhealthy: "+m.message)
		}
		return m.failed(e.at, "it says that it is unhealthy: "+m.message)
	}
	return m.tick(e.at)
}

// adopt goes on where another launcher was.
func (m *machine) adopt(e event) []action {
	m.startBy, m.pollAt = e.at.Add(m.cfg.HealthCheckTimeout), e.at
	switch {
	case !e.asked.IsZero():
		// How far it is, nobody knows, so it is told to stop anew; but all in all it gets no more time than it had.
		leaving := m.cfg.delays()
		if m.router {
			leaving = m.cfg.leaveBound()
		}
		m.stopBy = e.asked.Add(leaving + m.cfg.Shutdown.Max)
		m.requests = math.MaxInt32 // nor how often it has asked for more, and nobody is told twice
		return m.stop(e)
	case !e.readyAt.IsZero() || m.cfg.Protocol == Signals:
		todo := m.ready(e.at, "it was ready")
		if !e.readyAt.IsZero() {
			m.readyAt = e.readyAt
		}
		if m.cfg.Protocol == GRPC {
			m.pollAt = e.at // whether it still is
		}
		return todo
	}
	return m.tick(e.at)
}

func (m *machine) ready(now time.Time, message string) []action {
	m.enter(Ready)
	m.phase, m.readyAt, m.message = running, now, message
	m.stale = m.asks
	m.watch(now)
	return []action{{kind: doJoin}}
}

// watch has liveness checked from now on, if it is to be.
func (m *machine) watch(now time.Time) {
	m.pollAt = time.Time{}
	if m.cfg.Protocol == GRPC && m.cfg.LivenessInterval > 0 {
		m.pollAt = now.Add(m.cfg.LivenessInterval)
	}
}

// rule takes over what is configured now. A stop goes on by the rules that it has begun with.
func (m *machine) rule(e event) []action {
	if m.phase > running {
		return nil
	}
	if m.phase == starting {
		m.startBy = m.startBy.Add(e.rules.HealthCheckTimeout - m.cfg.HealthCheckTimeout)
	}
	m.cfg = *e.rules
	if m.phase == running {
		m.watch(e.at)
	}
	return m.tick(e.at)
}

// unready gives up on one that has never been ready: it has no work to lose, and is not asked.
func (m *machine) unready(now time.Time, why string) []action {
	m.enter(Unhealthy)
	m.reason, m.asked = why, now
	return m.terminate(now, why)
}

// failed counts a check that one that was ready has failed.
func (m *machine) failed(now time.Time, why string) []action {
	if m.failures++; m.failures < m.cfg.LivenessFailures {
		return m.tick(now)
	}
	m.enter(Unhealthy)
	return m.stop(event{at: now, reason: fmt.Sprintf("unhealthy, %d times in a row: %s", m.failures, why)})
}

func (m *machine) heard() string {
	const hint = "if it does not speak the protocol, say so: protocol signals"
	switch {
	case m.spoke && m.message == "":
		return "it says no more than " + m.state.String()
	case m.spoke:
		return "last heard: " + m.message
	case m.message != "":
		return "it has never answered: " + m.message + "; " + hint
	}
	return "it has never answered; " + hint
}
