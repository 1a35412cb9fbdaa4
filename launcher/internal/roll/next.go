package roll

import "time"

// A Verb is what to do.
type Verb int

const (
	Wait Verb = iota
	Start
	Stop
)

// Surplus is why one is stopped that there is one too many of.
const Surplus = "one too many"

// An Action is what to do next.
type Action struct {
	Do      Verb
	Version Version       // to Start
	ID      string        // to Stop
	Why     string        // to Stop, for the log
	Until   time.Duration // to Wait: when to ask again if nothing has happened; 0 is never
}

// Next returns what to do, and the state to pass next time. The caller has done it before it asks again.
func Next(c Config, s State, v View) (State, Action) {
	if s.Phase.Ended() {
		return s, Action{}
	}
	n := tally(c, v)
	s = s.look(c, v, n)
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
	if stop := n.victim(c, v, goal, t); stop.Do == Stop {
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
	return s, Action{Until: s.until(c, v)}
}

// victim finds an instance that there is one too many of and that may go: the least useful first, and of those the one
// that has existed for longest.
//
// One that is not ready costs nothing now, but is perhaps about to be. So unless it is hopeless, it stays while those that
// could be counted on, apart from new ones that have yet to prove themselves, would be fewer than MinHealthy. That is the
// bound of the Deployment controller of Kubernetes (cleanupUnhealthyReplicas). Without it a group whose old instances are
// all just about to become ready again would lose them; with a stricter one, a group whose old instances never become
// ready could not be replaced without surge.
func (n census) victim(c Config, v View, goal [2]int, t Version) (stop Action) {
	available := n.available[Old] + n.available[New]
	spare := n.live[Old] + n.live[New] - (n.live[t] - n.available[t]) - c.MinHealthy
	least := 0
	for _, i := range v.Instances {
		if i.Health == Stopping || n.live[i.Version] <= goal[i.Version] {
			continue
		}
		var may bool
		var worth int
		switch {
		case i.Health == Unhealthy:
			may, worth = true, 1
		case i.Health == Starting:
			may, worth = spare > 0 || i.Version == t, 2
		case !i.available(c, v):
			may, worth = available >= c.MinHealthy, 3
		default:
			may, worth = available > c.MinHealthy, 4
		}
		if may && (least == 0 || worth < least) {
			stop, least = Action{Do: Stop, ID: i.ID, Why: "replaced"}, worth
			if i.Version == t {
				stop.Why = Surplus
			}
		}
	}
	return stop
}

// until is when time alone changes something.
func (s State) until(c Config, v View) (at time.Duration) {
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
			}
		}
	}
	if c.ProgressDeadline > 0 {
		sooner(s.Progress + c.ProgressDeadline)
	}
	return at
}
