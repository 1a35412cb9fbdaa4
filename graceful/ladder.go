package graceful

import (
	"fmt"
	"time"
)

// A Rung is a step of the ladder that a process goes down when it ends.
type Rung int

const (
	Serving  Rung = iota // nobody has asked the process to stop
	LameDuck             // readiness is false, work is still accepted
	Soft                 // pre-stop hooks, then Shutdown: no new work
	Hard                 // Force: Work contexts are cancelled
	Exit                 // given up, or over
)

func (r Rung) String() string {
	if r < Serving || r > Exit {
		return "Rung(?)"
	}
	return [...]string{"Serving", "LameDuck", "Soft", "Hard", "Exit"}[r]
}

// Status is where a process is on the ladder.
type Status struct {
	Rung     Rung
	Since    time.Time     // when the rung was entered
	Until    time.Time     // when the next one is entered if nothing happens before; zero: by a signal only, or never
	Cause    error         // why the process stops; nil while Serving
	Signals  int           // signals received
	Extended time.Duration // time granted by Extend, in all
	Reason   string        // of the last extension, as it was given
	Ready    bool          // Ready was called while Serving
}

// A ladder decides, and does nothing: events go in, and what is to be done comes out.
//
//	           asked: signal, or end of the context          stopped, or f returned
//	Serving ───────────────┬───────────────────────────────────────────┐
//	                       │ delay 0: straight on ────────────────────▶│
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
//   - It goes down only, and skips no rung but LameDuck, except that somebody else's Force leads to Hard from anywhere.
//   - The first signal asks the process to stop, so it changes nothing where that was asked for in another way already:
//     one SIGTERM never cuts a drain short. Each signal after it goes one rung down.
//   - The end of Soft moves by extensions only, and by no more than most in all.
type ladder struct {
	delay, soft, hard time.Duration // of LameDuck, Soft and Hard
	most              time.Duration // that Extend grants in all

	Status
	why     error     // what has led to the rung
	stopped time.Time // when Soft was entered
	outcome outcome   // once on Exit
}

type eventKind int

const (
	asked     eventKind = iota // to stop, by the end of the context that Run was given
	signalled                  // to stop, or to hurry
	returned                   // f has
	stopped                    // by somebody else's Shutdown of the root scope
	forced                     // by somebody else's Force of it
	hooked                     // the pre-stop hooks are over, or out of time
	ticked                     // the time may have come
	drained                    // no guard is held
)

// An event is what has happened. The cause is for asked, signalled, returned, stopped and forced.
type event struct {
	kind  eventKind
	at    time.Time
	cause error
}

type action int

const (
	turnUnready action = iota // close LameDuck
	runHooks                  // and report hooked
	shutdown                  // the root scope
	force                     // it
	abandon                   // whoever is left
)

// step takes note of an event and returns what to do, in that order.
func (l *ladder) step(e event) []action {
	switch e.kind {
	case signalled:
		l.Signals++
		switch {
		case l.Rung == Serving:
			return l.begin(e)
		case l.Signals > 1:
			return l.down(e)
		}
	case asked:
		if l.Rung == Serving {
			return l.begin(e)
		}
	case returned, stopped:
		if l.Rung < Soft {
			return l.enter(Soft, e)
		}
	case forced:
		if l.Rung < Hard {
			return l.enter(Hard, e)
		}
	case hooked:
		if l.Rung == Soft {
			return []action{shutdown}
		}
	case ticked:
		if !l.Until.IsZero() && !e.at.Before(l.Until) {
			e.cause = fmt.Errorf("graceful: not drained after %v on rung %v", l.Until.Sub(l.Since), l.Rung)
			return l.down(e)
		}
	case drained:
		if l.Rung == Soft || l.Rung == Hard { // f is a guard: there is no drained scope before
			if l.Rung == Hard {
				l.outcome = cutShort
			}
			l.Rung, l.Since, l.Until, l.why = Exit, e.at, time.Time{}, e.cause
		}
	}
	return nil
}

// begin leaves Serving.
func (l *ladder) begin(e event) []action {
	if l.delay > 0 {
		return l.enter(LameDuck, e)
	}
	return l.enter(Soft, e)
}

func (l *ladder) down(e event) []action {
	if l.Rung == Exit {
		return nil
	}
	return l.enter(l.Rung+1, e)
}

func (l *ladder) enter(r Rung, e event) (todo []action) {
	if l.Rung == Serving {
		l.Cause = e.cause
		todo = append(todo, turnUnready)
	}
	l.Rung, l.Since, l.Until, l.why = r, e.at, time.Time{}, e.cause
	if r >= Soft && l.stopped.IsZero() {
		l.stopped = e.at
	}
	switch r {
	case LameDuck:
		l.Until = e.at.Add(l.delay)
		return todo
	case Soft:
		l.Until = e.at.Add(l.soft + l.Extended)
		return append(todo, runHooks)
	case Hard:
		l.Until = e.at.Add(l.hard)
		return append(todo, force)
	}
	l.outcome = abandoned
	return append(todo, abandon)
}

// softEnd returns when Hard is entered if nothing happens before; zero if no time runs, or that time is past.
func (l *ladder) softEnd() time.Time {
	switch l.Rung {
	case LameDuck:
		return l.Until.Add(l.soft + l.Extended)
	case Soft:
		return l.Until
	}
	return time.Time{}
}

// extend sees to it that Soft ends no sooner than d from now, as far as that can be granted. It returns how much of d
// there is now, and by how much the end has moved.
func (l *ladder) extend(now time.Time, d time.Duration, reason string) (granted, moved time.Duration) {
	end := l.softEnd()
	if end.IsZero() || d <= 0 {
		return 0, 0
	}
	if moved = min(now.Add(d).Sub(end), l.most-l.Extended); moved > 0 {
		l.Extended += moved
		l.Reason = reason
		if l.Rung == Soft {
			l.Until = l.Until.Add(moved)
		}
		end = end.Add(moved)
	}
	return max(0, min(d, end.Sub(now))), max(0, moved)
}
