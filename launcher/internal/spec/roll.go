package spec

import (
	"github.com/swansong-go/swansong/launcher/internal/roll"
)

// MinHealthyOf returns how many processes must stay ready if a user has scaled the group to the
// given number of processes. If a user has added processes, MinHealthyOf is larger than MinHealthy
// by their number. If a user has removed processes, it is MinHealthy, or desired if that is less.
func (g Group) MinHealthyOf(desired int) int {
	return min(g.MinHealthy+max(0, desired-g.Desired), desired)
}

// RollConfig returns the configuration of a roll of the group to the given number of processes.
func (g Group) RollConfig(desired int) roll.Config {
	c := roll.Config{
		Desired: desired, MinHealthy: g.MinHealthyOf(desired), MaxSurge: g.MaxSurge,
		MinReady: g.MinReady, ProgressDeadline: g.Roll.ProgressDeadline,
		Canary: min(g.Roll.Canary, desired), CanaryWait: g.Roll.CanaryWait, Checked: g.Roll.Check.IsSet(),
		OnFailure: map[RollFailure]roll.OnFailure{Pause: roll.Pause, Rollback: roll.Rollback, Continue: roll.Continue}[g.Roll.OnFailure],
	}
	if c.MaxSurge == 0 {
		// Without surge, a roll stops a process before it starts the next. So it cannot go on
		// unless MinHealthy is less than the number of processes. MinHealthy was checked against
		// the configured number, g.Desired. The present number, desired, can be smaller.
		c.MinHealthy = max(0, min(c.MinHealthy, desired-1))
	}
	if g.Roll.Retry != Manual {
		c.Retries = g.Roll.Retries
	}
	if g.Roll.Retry == Exponential {
		c.Backoff, c.MaxBackoff = g.Roll.MinBackoff, g.Roll.MaxBackoff
	}
	return c
}
