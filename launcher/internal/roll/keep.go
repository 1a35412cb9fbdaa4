package roll

import (
	"slices"
	"time"
)

// Keep returns what to do next, one action at a time as Next does, in a group that is not being rolled, or whose roll is
// paused: Desired instances, of whatever version. Which version a Start is of is the caller's to know, and so is when: an
// instance that has failed may have to be waited for. A paused roll stays as it is, and stops nobody.
//
//   - No start makes the instances, those that are stopping included, more than Desired + MaxSurge.
//   - No stop of a ready instance leaves fewer than MinHealthy that are available.
func Keep(c Config, v View, paused bool) Action {
	n := tally(c, v)
	live := n.live[Old] + n.live[New]
	if live > c.Desired && !paused {
		if stop := n.surplus(c, v); stop.Do == Stop {
			return stop
		}
	}
	if live < c.Desired && n.all() < c.Desired+c.MaxSurge {
		return Action{Do: Start}
	}
	return Action{}
}

// surplus finds the instance that would be missed least: the least useful, of those the old before the new, and of those
// the one that has existed for the shortest time.
func (n census) surplus(c Config, v View) (stop Action) {
	available := n.available[Old] + n.available[New]
	least := 0
	for _, i := range v.Instances {
		var may bool
		var worth int
		switch {
		case i.Health == Stopping:
			continue
		case i.Health != Ready:
			may, worth = true, 1
		case !i.available(c, v):
			may, worth = available >= c.MinHealthy, 2
		default:
			may, worth = available > c.MinHealthy, 3
		}
		if worth = 2*worth + int(i.Version); may && (least == 0 || worth <= least) {
			stop, least = Action{Do: Stop, ID: i.ID, Why: Surplus}, worth
		}
	}
	return stop
}

// CanaryUntil returns when the canaries will have been waited for if they all stay, and false unless all of them are
// available, and waited for.
func (s State) CanaryUntil(c Config, v View) (at time.Duration, ok bool) {
	if s.Phase != Canary || s.Paused || c.Canary == 0 || tally(c, v).available[New] < c.Canary {
		return 0, false
	}
	var stay []time.Duration // until when
	for _, i := range v.Instances {
		if i.Version == New && i.available(c, v) {
			stay = append(stay, i.Since+c.MinReady+c.CanaryWait)
		}
	}
	slices.Sort(stay)
	return stay[c.Canary-1], true
}
