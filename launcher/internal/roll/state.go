package roll

import (
	"fmt"
	"slices"
	"time"
)

// A Phase is how far a roll has come.
type Phase int

const (
	Canary Phase = iota
	Rolling
	RollingBack
	Done       // every instance is new
	RolledBack // every instance is old
	Degraded   // some are new, unless OnlyForward, and what could not be replaced is old or missing
)

func (p Phase) String() string {
	return [...]string{"canary", "rolling", "rolling back", "done", "rolled back", "degraded"}[p]
}

// Ended reports whether the roll is over.
func (p Phase) Ended() bool { return p >= Done }

// target is the version that there shall be more of.
func (p Phase) target() Version {
	if p == RollingBack || p == RolledBack {
		return Old
	}
	return New
}

// A State is what a roll remembers from one action to the next. It can be compared. It is about one clock, so it
// is not for storing: a launcher that comes back begins a roll of what it finds.
type State struct {
	Phase  Phase
	Paused bool
	Why    string // the last failure, stall or order

	Tries    int           // failures in a row
	GivenUp  int           // instances that will not be replaced
	Retry    time.Duration // when to try again
	Progress time.Duration // when something last got better
	Worked   bool          // an instance of where the roll leads has done what it was there for

	seen      int // failures of the target that have been dealt with
	available int // most that there have been of the target
	others    int // fewest that there have been of the others
}

// Begin returns the state of a roll of what v shows.
func Begin(c Config, v View) State {
	s := State{Phase: Rolling}
	if c.Canary > 0 && c.Canary < c.Desired {
		s.Phase = Canary
	}
	return s.anew(c, v)
}

// Resume returns s with its pause over: what failed is tried anew.
func (s State) Resume(c Config, v View) State {
	if s.Phase.Ended() {
		return s
	}
	s.Paused, s.Why, s.GivenUp = false, "", 0
	return s.anew(c, v)
}

// Rollback returns s on its way back, whether paused or not. A roll that is over stays so.
func (s State) Rollback(c Config, v View, why string) State {
	if s.Phase.Ended() {
		return s
	}
	s.Phase, s.Paused, s.Why, s.GivenUp, s.Worked = RollingBack, false, why, 0, false
	return s.anew(c, v)
}

// Completed returns s after an instance of the target has done what it was there for, and nobody is to follow: from now on there
// is one fewer in Desired, and in Canary where there is one. That is progress, and shows that the target works.
func (s State) Completed(now time.Duration) State {
	s.Tries, s.Progress, s.available, s.Worked = 0, max(s.Progress, now), max(0, s.available-1), true
	return s
}

// OneFewer returns s after an order to stop an instance that v still shows, and nobody is to follow: from now on there is one fewer in
// Desired. Where it is one of the old ones that are left for those that were given up, its place counts as one of these no more.
func (s State) OneFewer(c Config, v View, id string) State {
	left := slices.ContainsFunc(v.Instances, func(i Instance) bool { return i.ID == id && i.Version == Old && i.Health != Stopping })
	if left && tally(c, v).live[Old] <= s.GivenUp { // which is not 0 then, as it is among those that are counted
		s.GivenUp--
	}
	return s
}

// anew forgets failures and progress, which begin now.
func (s State) anew(c Config, v View) State {
	n := tally(c, v)
	t := s.Phase.target()
	s.Tries, s.Retry, s.Progress = 0, 0, v.Now
	s.seen, s.available, s.others = v.Failures[t], n.available[t], n.exist[1-t]
	return s
}

// goal is how many of each version there shall be; of those that are not the target, at most.
func (s State) goal(c Config, n census) (goal [2]int) {
	switch s.Phase {
	case RollingBack:
		goal[Old] = c.Desired
	case Canary:
		goal[New] = c.Canary
		if c.OnlyForward { // nobody else can take the place of an old one that is lost
			goal[New] = max(c.Canary, c.Desired-n.hale[Old])
		}
		goal[Old] = c.Desired - goal[New]
	default:
		goal[Old] = min(s.GivenUp, c.Desired) // which may have fallen since
		goal[New] = c.Desired - goal[Old]
	}
	return goal
}

// look takes in what has happened: progress, failures, canaries that have stayed, and that nothing has happened at all.
func (s State) look(c Config, v View, n census) State {
	t := s.Phase.target()
	if n.available[t] > s.available {
		s.Tries, s.Progress = 0, v.Now
	}
	if n.exist[1-t] < s.others {
		s.Progress = v.Now
	}
	s.available, s.others = max(s.available, n.available[t]), min(s.others, n.exist[1-t])

	failed := v.Failures[t] - s.seen
	s.seen = v.Failures[t]
	switch {
	case s.Paused: // the restart policy is in charge
	case failed > 0:
		s = s.failed(c, v, failed)
	case s.Phase == Canary && n.available[t] >= c.Canary: // this wait is no stall
		stayed := 0
		for _, i := range v.Instances {
			if i.Version == t && i.readyFor(c.MinReady+c.CanaryWait, v) {
				stayed++
			}
		}
		if stayed >= c.Canary {
			s.Phase, s.Progress = Rolling, v.Now
		}
	case c.ProgressDeadline > 0 && v.Now-s.Progress >= c.ProgressDeadline:
		s.Why = fmt.Sprintf("nothing has got better for %v", c.ProgressDeadline)
		s = s.giveUp(c, v)
	}
	return s
}

// failed deals with instances of the target that have failed.
func (s State) failed(c Config, v View, failures int) State {
	s.Tries += failures
	if s.Tries <= c.Retries {
		s.Retry = v.Now + c.backoff(s.Tries)
		s.Progress = max(s.Progress, s.Retry) // waiting on purpose is no stall
		return s
	}
	s.Why = fmt.Sprintf("failures of %v instances in a row: %d", s.Phase.target(), s.Tries)
	if c.OnFailure == Continue && s.Phase == Rolling {
		for ; s.Tries > c.Retries; s.Tries -= c.Retries + 1 {
			s.GivenUp = min(s.GivenUp+1, c.Desired)
		}
		s.Progress = v.Now
		if s.GivenUp >= c.Desired && c.Desired > 0 && !s.Worked && !c.OnlyForward { // nobody is left who could show that it works
			return s.Rollback(c, v, s.Why)
		}
		return s
	}
	return s.giveUp(c, v)
}

// giveUp turns back, or goes no further. There is no way forward from a way back that fails. Continue comes here for a
// canary, which is there to hold up the others, and for a stall: there is nobody to give up, since what does not start in
// time is a failure, so something does not end.
func (s State) giveUp(c Config, v View) State {
	if c.OnFailure == Rollback && s.Phase != RollingBack {
		return s.Rollback(c, v, s.Why)
	}
	s.Paused = true
	return s
}
