package process

import (
	"strings"
	"time"

	"github.com/swansong-go/swansong/launcher/internal/events"
	"github.com/swansong-go/swansong/launcher/internal/lifecycle"
	"github.com/swansong-go/swansong/launcher/internal/spec"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
)

// A Status is what the launcher knows of a process.
type Status struct {
	ID, Group string
	Revision  int
	State     lifecycle.State
	Since     time.Time // when the process entered State
	Message   string
	PID       int
	Started   time.Time
	ReadyAt   time.Time // zero if the process has never been ready
	Routed    bool      // the process has been added to the Router, if there is one
	Asked     time.Time // when the process was ordered to stop; zero if it was not
	Ended     time.Time
	Reason    string // why the process was ordered to stop
	Metrics   *pb.ShutdownMetrics
	Extension int // number of requests of the process for more time
	Outcome   lifecycle.Outcome
	Report    string   // if the process was forced: what it waited for, and where its goroutines were, as it has reported just before
	Exit      string   // exit status, such as "exit status 1"
	Survivors []string // descendants of the process that could not be killed, as far as they can be found
	// Contained says how the launcher finds the descendants: "cgroup", "walk" (through /proc),
	// "group" (its process group) or "leader" (not at all).
	Contained string
	Bound     time.Duration // the longest time that stopping the process can take
}

// Took returns how long stopping the process has taken so far, 0 if it was not ordered to stop.
func (s Status) Took() time.Duration {
	switch {
	case s.Asked.IsZero():
		return 0
	case s.Ended.IsZero():
		return time.Since(s.Asked)
	}
	return s.Ended.Sub(s.Asked)
}

// Status returns a copy of what is known of the process at this moment. It may be called by any
// goroutine. What it points to is never changed, but replaced.
func (p *Process) Status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status
}

// update takes the status from the state machine after an event, and publishes what has changed.
//
// The goroutine of run calls it after each event. It must not hold mu, because what it calls, such
// as Changed, asks for the Status, and that locks mu.
func (p *Process) update(m *lifecycle.Machine, before lifecycle.State, e lifecycle.Event) {
	wasReady := !p.Status().ReadyAt.IsZero()
	st, isNew := p.store(m, before, e)
	if st.State != before {
		t := p.transition(st, before, wasReady)
		t.Forced = st.State.Ended() && (e.Exit.Killed || e.Exit.Terminated)
		p.publish(t)
	}
	if len(st.Survivors) > 0 && m.Ended() {
		p.publish(events.Event{Kind: events.Alarm, Message: "could not be killed: " + strings.Join(st.Survivors, ", ")})
	}
	if isNew && p.isKept() {
		p.group.StateFile.Changed()
	}
	if st.State != before || e.Kind == lifecycle.OnReaped {
		p.group.StateFile.Changed()
		p.group.Changed(p)
	}
}

// store copies the state of m, the state machine of the process, to the status. It returns the
// status, and whether the field stopTimes or the field said has changed.
//
// A process may have a secret in its message, so secrets are masked here, before other goroutines
// can ask for the status. With protocol auto, store also records for the group which protocol a
// process uses that has become ready. Later processes of the group are expected to use the same
// one.
func (p *Process) store(m *lifecycle.Machine, before lifecycle.State, e lifecycle.Event) (st Status, isNew bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s, hidden := &p.status, p.group.Secrets
	s.State, s.Message, s.Reason, s.Metrics = m.State, hidden.Mask(m.Message), hidden.Mask(m.Reason), hidden.MaskMetrics(m.Metrics)
	s.ReadyAt, s.Asked, s.Extension, s.Outcome = m.ReadyAt, m.StopAt, m.Extensions, m.Outcome
	if m.Grace != p.cfg.Shutdown.Grace {
		p.grace = m.Grace
	}
	if m.State != before {
		s.Since = p.enteredAt(m.State, e.At)
	}
	if m.Ended() {
		s.Ended = e.At
	}
	if m.State == lifecycle.Forced {
		s.Report = hidden.Mask(m.Report)
	}
	if e.Kind == lifecycle.OnReaped && m.Ended() {
		s.Exit = e.Exit.String()
		for _, survivor := range e.Exit.Survivors {
			s.Survivors = append(s.Survivors, survivor.String())
		}
	}
	uses := m.Uses()
	if p.uses = uses; p.cfg.Protocol == spec.Auto && m.State == lifecycle.Ready {
		p.group.uses.Store(&uses)
	}
	times := stopTimes{m.AskedAt, m.GrantedUntil, m.SignalsSent}
	isNew = p.stopTimes != times || p.reported != m.Reported
	p.stopTimes, p.reported = times, m.Reported
	return *s, isNew
}

// enteredAt returns the time at which the process entered a state that its machine has entered now.
// For an adopted process, the state machine goes through the states again. For the state that the
// process had under the earlier launcher, the result is the time at which the process entered it
// then. The caller holds mu.
func (p *Process) enteredAt(s lifecycle.State, now time.Time) time.Time {
	before := p.earlier
	if s < before.state {
		return now
	}
	p.earlier = earlier{}
	if s == before.state {
		return before.since
	}
	return now
}

// transition returns the event of a change of state.
func (p *Process) transition(st Status, before lifecycle.State, wasReady bool) events.Event {
	message := st.Message
	switch {
	case st.State == lifecycle.ShutdownRequested || st.State == lifecycle.Unhealthy:
		message = st.Reason
	case st.State.Ended() && st.Exit != "" && st.Message != st.Exit:
		message = strings.TrimPrefix(st.Message+"; "+st.Exit, "; ")
	}
	took := st.Took()
	switch {
	case st.State == lifecycle.Ready && wasReady:
		// If the process becomes ready again, Took is 0: the time since the start of the process
		// would mislead, because the process was ready before, perhaps under an earlier launcher.
		took = 0
	case st.State == lifecycle.Ready:
		took = st.ReadyAt.Sub(st.Started)
	}
	return events.Event{Kind: events.Transition, From: before, To: st.State, WasReady: wasReady, Outcome: st.Outcome, Message: message, Took: took, Survivors: len(st.Survivors), Stack: st.Report}
}
