package roll

import "time"

// OnFailure is what a roll does when its instances have failed more often than Retries allows.
type OnFailure int

const (
	Pause    OnFailure = iota // leave all instances as they are and wait for an order
	Rollback                  // replace the new instances by old ones
	// Continue gives the failing replacement up: the old instance stays or, if it has ended, is
	// missing. The others are replaced. If all replacements were given up, the roll is rolled back.
	Continue
)

func (f OnFailure) String() string { return [...]string{"pause", "rollback", "continue"}[f] }

// A Config holds the rules of a roll. Package spec checks it, as part of the configuration of a
// group.
type Config struct {
	Desired    int // number of instances at the end of the roll
	MinHealthy int // number of instances that must stay available, 0 ≤ MinHealthy ≤ Desired
	MaxSurge   int // how many instances may exist above Desired; with 0 an instance is stopped before its replacement starts, and MinHealthy must be less than Desired

	MinReady         time.Duration // how long an instance must be ready before it counts as available
	ProgressDeadline time.Duration // longest time without progress, except for back-off and the wait for canaries; 0: no limit

	Canary     int           // number of instances that are replaced first; 0: no canaries
	CanaryWait time.Duration // how long the canaries must stay available before the others follow
	Checked    bool          // the others follow only after the canaries have passed a check that began after CanaryWait

	// OnlyForward is set if old instances cannot be started. Then a new instance replaces an old
	// one that fails, even if there are then more new ones than Canary.
	OnlyForward bool

	OnFailure  OnFailure
	Retries    int           // number of failures in a row that are retried; 0: an operator has to resume the roll
	Backoff    time.Duration // pause before the first retry, doubled for each further one; 0: retry at once
	MaxBackoff time.Duration // the longest pause, however often Backoff is doubled
}

// backoff returns the pause before the given retry, counted from 1. It has no jitter, because
// groups do not roll in step with each other.
func (c Config) backoff(retry int) time.Duration {
	d, limit := c.Backoff, max(c.Backoff, c.MaxBackoff)
	for range retry - 1 {
		if d > limit/2 {
			return limit
		}
		d *= 2
	}
	return d
}
