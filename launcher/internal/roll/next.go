package roll

import "time"

// A Verb is the kind of an Action.
type Verb int

const (
	Wait Verb = iota
	Start
	Stop
)

// surplus is the reason of a Stop of an instance beyond the desired number.
const surplus = "one too many"

// An Action is what the caller has to do next.
type Action struct {
	Do      Verb
	Version Version       // set for Start: the version of the instance to start
	ID      string        // set for Stop: the id of the instance to stop
	Why     string        // set for Stop: the reason, for the log
	Surplus bool          // for Stop: the instance is beyond the desired number, so no other one takes its place
	Until   time.Duration // set for Wait: when to call Next again even if nothing has happened; 0: never
}

// Next returns the next action and the state to pass to the next call. The caller must have done
// the action before it calls Next again.
func Next(c Config, s State, v View) (State, Action) {
	if s.Phase.Ended() {
		return s, Action{}
	}
	n := count(c, v)
	s = s.update(c, v, n)
	t := s.Phase.target()
	for _, i := range v.Instances {
		if i.Version == t && i.Health == Unhealthy {
			return s, Action{Do: Stop, ID: i.ID, Why: "unhealthy"}
		}
	}
	if s.Paused {
		return s, Action{}
	}
	goal := s.goal(c, n)
	if n.live[t] < goal[t] && n.all() < c.Desired+c.MaxSurge && v.Now >= s.Retry {
		return s, Action{Do: Start, Version: t}
	}
	if s.lacksOld(c, v, n, goal) && n.all() < c.Desired+c.MaxSurge {
		return s, Action{Do: Start, Version: Old}
	}
	if stop := n.pickExcess(c, v, goal, t); stop.Do == Stop {
		return s, stop
	}
	if n.all() == n.live[Old]+n.live[New] && n.live[1-t] <= goal[1-t] && n.live[t] == goal[t] && n.available[t] == goal[t] && s.Phase != Canary {
		switch {
		case s.Phase == RollingBack:
			s.Phase = RolledBack
		case s.GivenUp > 0:
			s.Phase = Degraded
		default:
			s.Phase = Done
		}
		return s, Action{}
	}
	return s, Action{Until: s.nextChange(c, v)}
}

// lacksOld reports whether an old instance has to be started in place of one that has failed before
// the roll replaced it: while the roll waits for canaries, or if fewer than MinHealthy are left
// during the back-off before the next new instance.
func (s State) lacksOld(c Config, v View, n census, goal [2]int) bool {
	if c.OnlyForward || v.NoOldStart {
		return false
	}
	return s.Phase == Canary && n.live[Old] < goal[Old] ||
		s.Phase == Rolling && v.Now < s.Retry && n.usable[Old]+n.usable[New] < c.MinHealthy
}

// pickExcess returns a Stop of an instance of a version that has more than its goal, if one may be
// stopped. It prefers the least useful instance, and among equals the oldest.
//
// Stopping an instance that is not ready costs nothing now, but it may be about to become ready. So
// unless it is unhealthy, it stays while the remaining instances, not counting new ones that are
// not available yet, would be fewer than MinHealthy. This is the limit of the Kubernetes Deployment
// controller (cleanupUnhealthyReplicas). Without it, a group whose old instances are all about to
// become ready again would lose them. With a stricter limit, a group whose old instances never
// become ready could not be replaced without surge.
func (n census) pickExcess(c Config, v View, goal [2]int, t Version) (stop Action) {
	available := n.available[Old] + n.available[New]
	spare := n.live[Old] + n.live[New] - (n.live[t] - n.available[t]) - c.MinHealthy
	least := 0
	for _, i := range v.Instances {
		if i.Health == Stopping || n.live[i.Version] <= goal[i.Version] {
			continue
		}
		var allowed bool
		var usefulness int
		switch {
		case i.Health == Unhealthy:
			allowed, usefulness = true, 1
		case i.Health == Starting:
			allowed, usefulness = spare > 0 || i.Version == t, 2
		case !i.isAvailable(c, v):
			allowed, usefulness = available >= c.MinHealthy, 3
		default:
			allowed, usefulness = available > c.MinHealthy, 4
		}
		if allowed && (least == 0 || usefulness < least) {
			stop, least = Action{Do: Stop, ID: i.ID, Why: "replaced"}, usefulness
			if i.Version == t {
				stop.Why, stop.Surplus = surplus, true
			}
		}
	}
	return stop
}

// nextChange returns the time of the next decision that changes only because time passes, or 0 if
// there is none.
func (s State) nextChange(c Config, v View) (at time.Duration) {
	sooner := func(when time.Duration) {
		if when > v.Now && (at == 0 || when < at) {
			at = when
		}
	}
	sooner(s.Retry)
	for _, i := range v.Instances {
		if i.Health == Ready {
			sooner(i.Since + c.MinReady)
			if s.Phase == Canary {
				sooner(i.Since + c.MinReady + c.CanaryWait)
				if c.Checked && c.ProgressDeadline > 0 {
					sooner(i.Since + c.MinReady + c.CanaryWait + c.ProgressDeadline)
				}
			}
		}
	}
	if c.ProgressDeadline > 0 {
		sooner(s.Progress + c.ProgressDeadline)
	}
	return at
}
