// Package lifecycle is the state machine of one process, from its start to its reap.
//
// It is free of side effects: a [Machine] takes events and returns the actions to perform. It
// starts no goroutine, reads no clock and makes no call, so tests can walk each path.
package lifecycle

import (
	"time"

	"github.com/swansong-go/swansong/launcher/internal/probe"
	"github.com/swansong-go/swansong/launcher/internal/spec"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
)

// A Machine is the state machine of one process.
//
//	SPAWNING ─▶ STARTING ─▶ WARMING ◀─▶ READY ─────┐ the launcher stops it, or it drains by itself
//	    │           │           │        │         ▼
//	    └───────────┴───────────┴──▶ UNHEALTHY ─▶ SHUTDOWN_REQUESTED ─▶ DRAINING ◀──▶ BLOCKED
//
//	and from each of them, when the process has been reaped: COMPLETE, FORCED, CRASHED or GONE
//
// No state is entered twice, except DRAINING and BLOCKED, and READY and WARMING, which alternate as
// the readiness probe of a process says. Intermediate states may be skipped.
//
// A state does not determine what to do next; the phase does:
//
//	starting       ask for readiness, or wait for a message or for probes, until readyBy; then
//	               terminating
//	running        ask for readiness at the liveness interval; the state is WARMING while the
//	               readiness probe fails
//	deregistering  wait until the process has left routing, then for the delay and the pre-stop hooks
//	requesting     call Shutdown until the process answers, at most for the grace period
//	draining       ask for the status until the deadline: MaxAt; or, with an enforced grace period, its
//	               end, extended by requests for more time, but never beyond MaxAt
//	signalled      wait for a process that does not take part in the protocol: it got the stop
//	               signals, and has until MaxAt
//	terminating    SIGTERM was sent to the process and all that it has started; killAt follows
//	killing        SIGKILL was sent likewise; giveUpAt follows
//	exited         wait for the reap of the zombie, which package proc bounds
//	ended          the process has been reaped
//
// Invariants:
//
//   - Only OnReaped and OnSpawnFailed lead to an end. Neither a report of the process nor a failed
//     call proves that the process has ended.
//   - Each phase from deregistering on has a deadline. Next returns the earliest one, so a call
//     that hangs delays nothing.
//   - MaxAt is set once.
//
// The exported fields are for the launcher to read.
type Machine struct {
	State   State
	Outcome Outcome
	Message string              // the last message from the process, or from the launcher about it
	Metrics *pb.ShutdownMetrics // the last metrics that the process has reported
	Report  string              // what the drain waits for, with the goroutines of the process; empty if the process was not asked for a report

	ReadyAt  time.Time
	Reported Reported

	Reason        string    // why the process is to be stopped
	StopAt        time.Time // when the launcher decided to stop the process
	AskedAt       time.Time // when the process was first asked to stop, by Shutdown or a signal
	Grace         time.Duration
	GraceEnforced bool      // the end of the grace period ends the process, unless it asks for more time
	Deadline      time.Time // the deadline of the drain
	GrantedUntil  time.Time // the deadline granted by the last request for more time
	MaxAt         time.Time // the latest possible Deadline
	Extensions    int       // number of requests for more time
	SignalsSent   int       // number of stop signals that were sent
	ForceReason   string    // why the process was sent SIGTERM or SIGKILL

	cfg       spec.Group
	hasRouter bool
	phase     phase

	callPending  bool // the launcher has called the process, and has no answer yet
	callStale    bool // the pending call began before the process became ready or reported that it is ready, so its answer is out of date
	pollAt       time.Time
	readyBy      time.Time
	failures     int // consecutive failed liveness checks
	startedAt    time.Time
	passed       map[probe.Role]bool // the verdicts of the probes; a probe without a verdict counts as failed
	probeFailure string              // the last failure of the readiness probe; "" if it has not failed
	callFailure  string              // the last failure of a call of GetReadinessStatus; "" if none has failed
	readyMessage string              // the message with which the process has reported that it is ready

	uses           spec.Protocol // with protocol auto, the protocol that the process is known to use; empty if none is known yet
	expects        spec.Protocol // the protocol that earlier processes of the group have used, if it is grpc or notify
	settleAt       time.Time     // when a process that has said nothing counts as ready; zero if it never does
	hasStatus      bool          // the process has sent an sd_notify(3) message with STATUS=
	watchdog       time.Duration // time within which the process must send WATCHDOG=1 again; 0: it need not send that
	watchdogAt     time.Time
	watchdogReason string

	deregisterBy time.Time // when the stop continues even if the process has not left routing
	// terminateBy is when four fifths of the total deadline have passed; zero if there is none.
	terminateBy time.Time
	stopBy      time.Time // deadline of an adopted process that was already being stopped; otherwise zero
	callHung    bool      // a Shutdown call failed with an error other than Unavailable
	responsive  bool      // the process takes part in the protocol: it has answered a call or sent a notification
	requests    int32     // number of requests for more time, as the process counts them
	limit       time.Time // when the launcher sends SIGTERM because it is itself being stopped; zero if it is not being stopped
	lessTime    bool      // Shutdown must be called again after the pending call, to tell the process that it has less time; see onLessTime
	graceAt     time.Time // when the end of the grace period is to be reported; zero if it need not be, or has been reported
	graceOver   bool      // the grace period is over, and the launcher reports that after the next answer to GetShutdownStatus
	drainError  string
	complete    bool // the process has reported that its drain is complete
	signalAt    time.Time
	killAt      time.Time
	giveUpAt    time.Time
}

type phase int

const (
	starting phase = iota
	running
	deregistering
	requesting
	draining
	signalled
	terminating
	killing
	exited
	ended
)

// New returns the machine of a process that is about to be started or adopted. hasRouter says
// whether the launcher has a router. If it has, a process that is being stopped waits in the phase
// deregistering until the router has been called.
func New(cfg spec.Group, hasRouter bool) *Machine {
	return &Machine{cfg: cfg, hasRouter: hasRouter, State: Spawning, passed: map[probe.Role]bool{}, watchdog: cfg.Watchdog}
}

// Running reports whether the process is ready, and is not being stopped.
func (m *Machine) Running() bool { return m.phase == running }

// Ended reports whether the process has been reaped, or was never started.
func (m *Machine) Ended() bool { return m.phase == ended }

// Config returns the configuration that the machine uses.
func (m *Machine) Config() spec.Group { return m.cfg }

// Step records an event, and returns the actions to perform because of it.
func (m *Machine) Step(e Event) []Action {
	if m.phase == ended {
		return nil
	}
	switch e.Kind {
	case OnSpawned:
		return m.onSpawned(e)
	case OnAdopted:
		return m.onAdopted(e)
	case OnReadiness:
		return m.onReadiness(e)
	case OnPushedReady:
		return m.onPushedReady(e)
	case OnStop:
		return m.onStop(e)
	case OnDeregistered:
		return m.onDeregistered(e)
	case OnAck:
		return m.onAck(e)
	case OnStatus:
		return m.onStatus(e)
	case OnPushedEnd:
		m.complete, m.drainError, m.Message = true, e.DrainError, e.Reason
	case OnForce:
		return m.onForce(e)
	case OnLessTime:
		return m.onLessTime(e)
	case OnTerminate:
		return m.onTerminate(e)
	case OnConfig:
		return m.onConfig(e)
	case OnProbe:
		return m.onProbe(e)
	case OnNotified:
		return m.onNotified(e)
	case OnExited:
		if m.phase < exited {
			m.phase, m.callPending = exited, false
		}
		return nil
	case OnReaped, OnSpawnFailed:
		m.end(e)
		return nil
	}
	return m.tick(e.At)
}

func (m *Machine) onSpawned(e Event) []Action {
	return m.start(e.At)
}

// start begins to wait until the process is ready.
func (m *Machine) start(now time.Time) []Action {
	m.startedAt, m.readyBy = now, now.Add(m.cfg.HealthCheckTimeout)
	switch m.cfg.Protocol {
	case spec.Signals:
		m.Reported.Ready = true
		return m.becomeReadyIfComplete(now)
	case spec.Auto:
		m.settleAt = now.Add(min(SettleTime, m.cfg.HealthCheckTimeout))
	}
	if m.cfg.Protocol.CallsProcess() {
		m.pollAt = now
	}
	return m.tick(now)
}

// onAdopted continues with a process where the earlier launcher left off.
func (m *Machine) onAdopted(e Event) []Action {
	m.uses, m.startedAt, m.Reported = e.Uses, e.At, e.Reported
	switch {
	case !e.StopAt.IsZero():
		// The launcher does not know how far the stop of the adopted process has come, so it asks
		// the process again to stop. In total the process gets no more time than the earlier
		// launcher would have given it.
		leave := m.cfg.Delays()
		if m.hasRouter {
			leave = m.cfg.LeaveBound()
		}
		m.stopBy = e.StopAt.Add(leave + m.cfg.Shutdown.Max)
		m.requests = unknownRequests
		return m.onStop(e)
	// This case needs a readiness probe in the present configuration. Without one, the process is
	// ready, by the case below.
	case !e.ReadyAt.IsZero() && e.Warming && m.cfg.ReadinessProbe.IsSet():
		m.Reported.Ready, m.passed[probe.Startup] = true, true
		m.enter(Warming)
		m.phase, m.ReadyAt, m.Message = running, e.ReadyAt, "the readiness probe failed when the process was adopted"
		m.scheduleLivenessCheck(e.At)
		m.startWatchdog(e.At)
		return m.tick(e.At)
	case !e.ReadyAt.IsZero():
		m.Reported.Ready, m.passed[probe.Startup], m.passed[probe.Readiness] = true, true, true
		actions := m.becomeReady(e.At, "ready when it was adopted")
		m.ReadyAt = e.ReadyAt
		if m.Uses() == spec.GRPC {
			m.pollAt = e.At // check at once whether the process is still ready
		}
		return actions
	}
	actions := m.start(e.At)
	if m.Reported.Ready && m.phase == starting {
		actions = append(actions, m.becomeReadyIfComplete(e.At)...)
	}
	return actions
}

// onConfig applies a changed configuration. A process that is already being stopped keeps the old
// one.
func (m *Machine) onConfig(e Event) []Action {
	if m.phase > running {
		return nil
	}
	if m.phase == starting {
		m.readyBy = m.readyBy.Add(e.Config.HealthCheckTimeout - m.cfg.HealthCheckTimeout)
	}
	m.cfg = *e.Config
	if m.phase == running {
		m.scheduleLivenessCheck(e.At)
	}
	return m.tick(e.At)
}

// enter changes the state to s, unless s cannot follow the current state.
func (m *Machine) enter(s State) {
	if m.State.CanBecome(s) {
		m.State = s
	}
}

// call returns the action with which the launcher calls the process, and schedules the next call.
func (m *Machine) call(now time.Time, kind ActionKind, interval time.Duration) []Action {
	m.callPending, m.pollAt = true, now.Add(interval)
	return []Action{{Kind: kind}}
}
