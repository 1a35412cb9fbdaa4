package roll

import (
	"slices"
	"time"
)

// Keep returns the next action, one at a time as Next does, for a group that is not being rolled or
// whose roll is paused. It keeps Desired instances of any version. The caller decides which version
// a Start is of, and when to start after a failure. With paused true Keep stops no instance.
//
//   - No start makes the instances, including those that are stopping, more than Desired +
//     MaxSurge.
//   - No stop of a ready instance leaves fewer than MinHealthy instances available.
func Keep(c Config, v View, paused bool) Action {
	n := count(c, v)
	live := n.live[Old] + n.live[New]
	if live > c.Desired && !paused {
		if stop := n.pickSurplus(c, v); stop.Do == Stop {
			return stop
		}
	}
	if live < c.Desired && n.all() < c.Desired+c.MaxSurge {
		return Action{Do: Start}
	}
	return Action{}
}

// pickSurplus returns a Stop of the least useful instance that may be stopped. Among equals it
// prefers an old one to a new one, and then the youngest.
func (n census) pickSurplus(c Config, v View) (stop Action) {
	available := n.available[Old] + n.available[New]
	least := 0
	for _, i := range v.Instances {
		var allowed bool
		var usefulness int
		switch {
		case i.Health == Stopping:
			continue
		case i.Health != Ready:
			allowed, usefulness = true, 1
		case !i.isAvailable(c, v):
			allowed, usefulness = available >= c.MinHealthy, 2
		default:
			allowed, usefulness = available > c.MinHealthy, 3
		}
		if usefulness = 2*usefulness + int(i.Version); allowed && (least == 0 || usefulness <= least) {
			stop, least = Action{Do: Stop, ID: i.ID, Why: surplus, Surplus: true}, usefulness
		}
	}
	return stop
}

// CanaryUntil returns the time at which the canaries will have been available for CanaryWait. The
// result ok is false unless the roll waits for its canaries and all of them are available.
func (s State) CanaryUntil(c Config, v View) (at time.Duration, ok bool) {
	if s.Phase != Canary || s.Paused || c.Canary == 0 || count(c, v).available[New] < c.Canary {
		return 0, false
	}
	var until []time.Duration
	for _, i := range v.Instances {
		if i.Version == New && i.isAvailable(c, v) {
			until = append(until, i.Since+c.MinReady+c.CanaryWait)
		}
	}
	slices.Sort(until)
	return until[c.Canary-1], true
}
