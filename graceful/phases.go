package graceful

import (
	"fmt"
	"time"
)

// A Phase is a part of the life of a process. A process only goes on to a later phase.
type Phase int

const (
	Serving  Phase = iota // the process works and has not been asked to stop
	LameDuck              // the process reports that it is not ready, but still accepts work
	Soft                  // pre-stop hooks run, and then Shutdown makes the process refuse new work
	Hard                  // Force has been called, which cancels Work contexts
	Exit                  // all work has drained or was abandoned, and Run returns
)

func (p Phase) String() string {
	if p < Serving || p > Exit {
		return "Phase(?)"
	}
	return [...]string{"Serving", "LameDuck", "Soft", "Hard", "Exit"}[p]
}

// Status is the current phase of a process, together with when and why the phase began.
type Status struct {
	Phase    Phase
	Since    time.Time     // when the current phase began
	Until    time.Time     // when the next phase begins at the latest; zero if this phase has no time limit, or is a Soft of 24 h (see WithSoft)
	Cause    error         // why the process stops; nil while Serving
	Why      error         // why the current phase began, as in "the drain took longer than 10s"; nil while Serving, and in Exit if everything has drained
	Signals  int           // the number of signals received; repeats within a second do not count
	Extended time.Duration // the total time granted by Extend
	Reason   string        // the reason passed to the latest call of Extend
	Ready    bool          // whether Ready was called while Serving
}

// The type phases is the state machine of the phases of a stop. It has no side effects: it takes
// events and returns actions for the caller to execute.
//
//	           asked: signal, or end of the context          stopped, or f returned
//	Serving ───────────────┬───────────────────────────────────────────┐
//	                       │ delay 0 ─────────────────────────────────▶│
//	                       ▼          delay over, signal               ▼        soft over, signal        hard over, signal
//	                    LameDuck ───────────────────────────────────▶ Soft ──────────────────────▶ Hard ──────────────────▶ Exit
//	                    readiness false                               hooks, then Shutdown         Force                    abandoned
//	                                                                   │ drained                    │ drained
//	                                                                   ▼                            ▼
//	                                                                  Exit                         Exit
//	                                                                  clean                        forced
//
// Invariants:
//
//   - Phases only advance. None is skipped except LameDuck, and those before Hard by a Force of
//     other code.
//   - The first signal asks the process to stop. It has no effect if the process is already
//     stopping for another reason, so a single SIGTERM never cuts a drain short. Each further
//     signal advances by one phase, except that a SIGTERM or SIGHUP within repeatTime of a signal
//     does not count.
//   - The end of Soft moves by extensions only, in total by no more than maxExtension.
type phases struct {
	delay, soft, hard time.Duration // the durations of LameDuck, Soft and Hard
	maxExtension      time.Duration // how much time Extend grants in total at most

	Status
	stopped    time.Time // when Soft began
	lastSignal time.Time // when the last signal was received that was not a repeat; see repeatTime
	outcome    outcome   // how the drain ended; valid in phase Exit only
}

// shown returns the Status that the program, logs and reports get. If the phase Soft has its
// maximum duration, 24 hours, that Status names no end of the phase. A program that allows so much
// time bounds its drain by itself, as the launcher does, so the end of the phase says nothing about
// when the drain ends.
func (p *phases) shown() Status {
	st := p.Status
	if st.Phase == Soft && p.soft == longest {
		st.Until = time.Time{}
	}
	return st
}

type eventKind int

const (
	asked      eventKind = iota // the context given to Run has ended, or no process reads the output any more
	signalled                   // a signal was received
	returned                    // f, the function given to Run, has returned
	stopped                     // the root scope was shut down by other code
	forced                      // the root scope was forced by other code
	hooksDone                   // the pre-stop hooks have returned or used up their time
	timerFired                  // a timer has fired: the time of the current phase may be over
	drained                     // the root scope is complete
)

// An event is an input of the state machine of the phases. The events asked, signalled, returned,
// stopped and forced have a cause.
type event struct {
	kind      eventKind
	at        time.Time
	cause     error
	mayRepeat bool // whether a signal may repeat the previous one, so that it counts only after repeatTime
}

type action int

const (
	turnUnready action = iota // close the channel that LameDuck returns
	runHooks                  // start the pre-stop hooks, whose end is the event hooksDone
	shutdown                  // shut down the root scope
	force                     // force the root scope
	abandon                   // record the guards that are still held, for the AbandonedError
)

// step processes an event and returns the actions that the caller must execute, one after another.
func (p *phases) step(e event) []action {
	switch e.kind {
	case signalled:
		return p.signal(e)
	case asked:
		if p.Phase == Serving {
			return p.begin(e)
		}
	case returned, stopped:
		if p.Phase < Soft {
			return p.enter(Soft, e)
		}
	case forced:
		if p.Phase < Hard {
			return p.enter(Hard, e)
		}
	case hooksDone:
		if p.Phase == Soft {
			return []action{shutdown}
		}
	case timerFired:
		if !p.Until.IsZero() && !e.at.Before(p.Until) {
			e.cause = p.timeout()
			return p.advance(e)
		}
	case drained:
		// Before Soft, the scope cannot drain: the function given to Run holds a guard until then.
		if p.Phase == Soft || p.Phase == Hard {
			if p.Phase == Hard {
				p.outcome = cutShort
			}
			p.Phase, p.Since, p.Until, p.Why = Exit, e.at, time.Time{}, e.cause
		}
	}
	return nil
}

// signal counts a signal, unless it repeats the previous one, and changes the phase.
func (p *phases) signal(e event) []action {
	if e.mayRepeat && p.Signals > 0 && e.at.Sub(p.lastSignal) < repeatTime {
		return nil
	}
	p.Signals++
	p.lastSignal = e.at
	switch {
	case p.Phase == Serving:
		return p.begin(e)
	case p.Signals > 1:
		return p.advance(e)
	}
	return nil
}

// timeout returns the cause of the end of a phase whose time is over.
func (p *phases) timeout() error {
	limit := p.Until.Sub(p.Since)
	switch p.Phase {
	case LameDuck:
		return fmt.Errorf("graceful: the lame-duck time of %v is over", limit)
	case Soft:
		return fmt.Errorf("graceful: the drain took longer than %v", limit)
	}
	return fmt.Errorf("graceful: cancelled work did not return within %v", limit)
}

// begin changes the phase from Serving to LameDuck or, if the lame-duck delay is 0, to Soft.
func (p *phases) begin(e event) []action {
	if p.delay > 0 {
		return p.enter(LameDuck, e)
	}
	return p.enter(Soft, e)
}

func (p *phases) advance(e event) []action {
	if p.Phase == Exit {
		return nil
	}
	return p.enter(p.Phase+1, e)
}

func (p *phases) enter(next Phase, e event) (actions []action) {
	if p.Phase == Serving {
		p.Cause = e.cause
		actions = append(actions, turnUnready)
	}
	p.Phase, p.Since, p.Until, p.Why = next, e.at, time.Time{}, e.cause
	if next >= Soft && p.stopped.IsZero() {
		p.stopped = e.at
	}
	switch next {
	case LameDuck:
		p.Until = e.at.Add(p.delay)
		return actions
	case Soft:
		p.Until = e.at.Add(p.soft + p.Extended)
		return append(actions, runHooks)
	case Hard:
		p.Until = e.at.Add(p.hard)
		return append(actions, force)
	}
	p.outcome = abandoned
	return append(actions, abandon)
}

// softEnd returns the latest time at which Hard begins. It returns the zero time in the phases in
// which Extend has no effect.
func (p *phases) softEnd() time.Time {
	switch p.Phase {
	case LameDuck:
		return p.Until.Add(p.soft + p.Extended)
	case Soft:
		return p.Until
	}
	return time.Time{}
}

// extend moves the end of Soft so that it is at least d from now, within the limit maxExtension. It
// returns how much of d is available now, and by how much the end of Soft has moved.
func (p *phases) extend(now time.Time, d time.Duration, reason string) (granted, moved time.Duration) {
	end := p.softEnd()
	if end.IsZero() || d <= 0 {
		return 0, 0
	}
	if moved = min(now.Add(d).Sub(end), p.maxExtension-p.Extended); moved > 0 {
		p.Extended += moved
		p.Reason = reason
		if p.Phase == Soft {
			p.Until = p.Until.Add(moved)
		}
		end = end.Add(moved)
	}
	return max(0, min(d, end.Sub(now))), max(0, moved)
}
