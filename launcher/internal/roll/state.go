package roll

import (
	"fmt"
	"slices"
	"time"
)

// A Phase is a phase of a roll.
type Phase int

const (
	Canary Phase = iota
	Rolling
	RollingBack
	Done       // every instance has the new version
	RolledBack // every instance has the old version
	Degraded   // some instances were given up, and are old or missing; the others are new
)

func (p Phase) String() string {
	return [...]string{"canary", "rolling", "rolling back", "done", "rolled back", "degraded"}[p]
}

// Ended reports whether the roll is over.
func (p Phase) Ended() bool { return p >= Done }

// target returns the version of which the roll starts instances in this phase.
func (p Phase) target() Version {
	if p == RollingBack || p == RolledBack {
		return Old
	}
	return New
}

// A State is what a roll remembers from one action to the next. States can be compared with ==. A
// State refers to the clock of one launcher and must not be stored: a launcher that is started anew
// begins a new roll with the instances that it finds. Only an upgrade in place goes on with it.
type State struct {
	Phase  Phase
	Paused bool
	Why    string // why the roll is in its phase or paused: the last failure, stall or order

	Tries    int           // number of failures in a row
	GivenUp  int           // number of instances whose replacement has failed and is not tried again
	Retry    time.Duration // when the next start after a failure may be tried
	Progress time.Duration // when the roll last made progress

	failuresSeen  int // number of failures, of instances of the target version, to which the roll has already reacted
	mostAvailable int // largest number of available instances of the target version since restart was called
	fewestOthers  int // smallest number of existing instances that are not of it since restart was called
}

// Begin returns the state at the beginning of a roll of the instances in v.
func Begin(c Config, v View) State {
	s := State{Phase: Rolling}
	if c.Canary > 0 && c.Canary < c.Desired {
		s.Phase = Canary
	}
	return s.restart(c, v)
}

// Resume returns s with its pause over and its failures forgotten.
func (s State) Resume(c Config, v View) State {
	if s.Phase.Ended() {
		return s
	}
	s.Paused, s.Why, s.GivenUp = false, "", 0
	return s.restart(c, v)
}

// Rollback returns the state s changed to rolling back, whether s was paused or not. If the roll
// has ended, Rollback returns s unchanged.
func (s State) Rollback(c Config, v View, why string) State {
	if s.Phase.Ended() {
		return s
	}
	s.Phase, s.Paused, s.Why, s.GivenUp = RollingBack, false, why, 0
	return s.restart(c, v)
}

// ScaleDown returns s after an order that stops the instance id without a replacement. In v the
// instance is not stopping yet. The caller has lowered Desired by one. Old instances stay where no
// replacement could be started; if the instance is one of these, ScaleDown also lowers GivenUp by
// one.
func (s State) ScaleDown(c Config, v View, id string) State {
	isOld := slices.ContainsFunc(v.Instances, func(i Instance) bool { return i.ID == id && i.Version == Old && i.Health != Stopping })
	// If this condition holds, GivenUp is at least 1, because live[Old] counts the instance itself.
	if isOld && count(c, v).live[Old] <= s.GivenUp {
		s.GivenUp--
	}
	return s
}

// restart returns s without its past failures. The progress deadline counts from now on.
func (s State) restart(c Config, v View) State {
	n := count(c, v)
	t := s.Phase.target()
	s.Tries, s.Retry, s.Progress = 0, 0, v.Now
	s.failuresSeen, s.mostAvailable, s.fewestOthers = v.Failures[t], n.available[t], n.exist[1-t]
	return s
}

// goal returns how many instances of each version there should be. For the version that is not the
// target it is an upper limit.
func (s State) goal(c Config, n census) (goal [2]int) {
	switch s.Phase {
	case RollingBack:
		goal[Old] = c.Desired
	case Canary:
		goal[New] = c.Canary
		if c.OnlyForward { // only a new instance can replace an old one that has failed
			goal[New] = max(c.Canary, c.Desired-n.usable[Old])
		}
		goal[Old] = c.Desired - goal[New]
	default:
		goal[Old] = min(s.GivenUp, c.Desired) // an order may have reduced Desired since instances were given up
		goal[New] = c.Desired - goal[Old]
	}
	return goal
}

// update records what has happened since the last call: progress, failures, canaries that have
// stayed available, or a stall.
func (s State) update(c Config, v View, n census) State {
	t := s.Phase.target()
	if n.available[t] > s.mostAvailable {
		s.Tries, s.Progress = 0, v.Now
	}
	if n.exist[1-t] < s.fewestOthers {
		s.Progress = v.Now
	}
	s.mostAvailable, s.fewestOthers = max(s.mostAvailable, n.available[t]), min(s.fewestOthers, n.exist[1-t])

	failures := v.Failures[t] - s.failuresSeen
	s.failuresSeen = v.Failures[t]
	switch {
	case s.Paused: // while the roll is paused, the restart policy handles failures
	case failures > 0:
		s = s.onFailures(c, v, failures)
	case s.Phase == Canary && v.Rejected:
		s.Why = "the canaries have failed their check"
		s = s.rejectCanaries(c, v)
	// While all canaries are available, the roll waits as intended: that is no stall. How long
	// their check may take is bounded by awaitCanaries.
	case s.Phase == Canary && n.available[t] >= c.Canary:
		s = s.awaitCanaries(c, v)
	case c.ProgressDeadline > 0 && v.Now-s.Progress >= c.ProgressDeadline:
		s.Why = fmt.Sprintf("no progress for %v", c.ProgressDeadline)
		s = s.pauseOrRollBack(c, v)
	}
	return s
}

// awaitCanaries lets the roll replace the other instances when the canaries have stayed available
// and have passed their check. The progress deadline bounds how long that check may take after
// CanaryWait.
func (s State) awaitCanaries(c Config, v View) State {
	until, waiting := s.CanaryUntil(c, v)
	switch {
	case waiting && v.Now < until:
	case !waiting, !c.Checked, v.PassedAt > 0 && v.PassedAt >= until: // no canary is needed if the group was scaled down to no instances: waiting is false then
		s.Phase, s.Progress = Rolling, v.Now
	case c.ProgressDeadline > 0 && v.Now-until >= c.ProgressDeadline:
		s.Why = fmt.Sprintf("the check of the canaries has given no answer for %v", c.ProgressDeadline)
		s = s.pauseOrRollBack(c, v)
	}
	return s
}

// rejectCanaries begins a rollback, whatever OnFailure is: the new version runs, and is
// known to be bad. A roll that cannot be rolled back pauses.
func (s State) rejectCanaries(c Config, v View) State {
	if !c.OnlyForward {
		return s.Rollback(c, v, s.Why)
	}
	s.Paused = true
	return s
}

// onFailures handles new failures of instances of the target: it schedules a retry, gives instances
// up, pauses or rolls back.
func (s State) onFailures(c Config, v View, failures int) State {
	s.Tries += failures
	if s.Tries <= c.Retries {
		s.Retry = v.Now + c.backoff(s.Tries)
		// Count the time without progress from the end of the back-off.
		s.Progress = max(s.Progress, s.Retry)
		return s
	}
	s.Why = fmt.Sprintf("failures of %v instances in a row: %d", s.Phase.target(), s.Tries)
	if c.OnFailure == Continue && s.Phase == Rolling {
		for ; s.Tries > c.Retries; s.Tries -= c.Retries + 1 {
			s.GivenUp = min(s.GivenUp+1, c.Desired)
		}
		s.Progress = v.Now
		// Roll back: all instances were given up, so nothing shows that the new version works.
		if s.GivenUp >= c.Desired && c.Desired > 0 && !c.OnlyForward {
			return s.Rollback(c, v, s.Why)
		}
		return s
	}
	return s.pauseOrRollBack(c, v)
}

// pauseOrRollBack handles a failure that is not retried. A rollback that fails can only pause. With
// OnFailure Continue the roll pauses, too, in two cases. One is the failure of a canary, because
// canaries are there to hold up the others. The other is a stall: an instance that the roll stops
// does not end. Then there is no replacement to give up. A replacement that does not become ready
// in time is no stall, but a failure.
func (s State) pauseOrRollBack(c Config, v View) State {
	if c.OnFailure == Rollback && s.Phase != RollingBack {
		return s.Rollback(c, v, s.Why)
	}
	s.Paused = true
	return s
}
