package roll

import (
	"errors"
	"fmt"
	"time"
)

// OnFailure is what a roll does when its instances have failed more often than Retries allows.
type OnFailure int

const (
	Pause    OnFailure = iota // leave all instances as they are and wait for an order
	Rollback                  // replace the new instances by old ones
	Continue                  // leave an old instance, or a gap, for each failure, and replace the others; roll back if all have failed
)

func (f OnFailure) String() string { return [...]string{"pause", "rollback", "continue"}[f] }

// A Config holds the rules of a roll.
type Config struct {
	Desired    int // number of instances at the end
	MinHealthy int // number of instances that must stay available, 0 ≤ MinHealthy ≤ Desired
	MaxSurge   int // how many instances may exist above Desired; with 0 an instance is stopped before its replacement starts, and MinHealthy must be less than Desired

	MinReady         time.Duration // how long an instance must be ready before it counts as available
	ProgressDeadline time.Duration // longest time without progress, except for back-off and the wait for canaries; 0: no limit

	Canary     int           // number of instances that are replaced first; 0: no canaries
	CanaryWait time.Duration // how long the canaries must stay available before the others follow
	Checked    bool          // the others follow only after the canaries have passed a check that began after CanaryWait

	OnlyForward bool // old instances cannot be started, so new instances replace old ones that fail, even if there are then more new ones than Canary

	OnFailure  OnFailure
	Retries    int           // number of failures in a row that are retried; 0: an operator has to resume the roll
	Backoff    time.Duration // pause before the first retry, doubled for each further one; 0: retry at once
	MaxBackoff time.Duration // upper limit of the doubled pause
}

// Validate reports all that is wrong with c, joined.
func (c Config) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("roll: "+format, args...))
		}
	}
	check(c.Desired >= 0, "Desired is %d; it must not be negative", c.Desired)
	check(c.MaxSurge >= 0, "MaxSurge is %d; it must not be negative", c.MaxSurge)
	check(c.MinHealthy >= 0 && c.MinHealthy <= c.Desired, "MinHealthy is %d; it must be from 0 to Desired, which is %d", c.MinHealthy, c.Desired)
	check(c.Desired == 0 || c.MaxSurge > 0 || c.MinHealthy < c.Desired,
		"no instance can be replaced with MaxSurge 0 and MinHealthy = Desired; raise MaxSurge or lower MinHealthy")
	check(c.Canary >= 0 && c.Canary <= c.Desired, "Canary is %d; it must be from 0 to Desired, which is %d", c.Canary, c.Desired)
	check(c.OnFailure >= Pause && c.OnFailure <= Continue, "OnFailure is %d; it must be Pause, Rollback or Continue", int(c.OnFailure))
	check(!c.OnlyForward || c.OnFailure != Rollback, "OnFailure is rollback, which OnlyForward rules out; use pause or continue")
	check(c.Retries >= 0, "Retries is %d; it must not be negative", c.Retries)
	check(c.MinReady >= 0, "MinReady is %v; it must not be negative", c.MinReady)
	check(c.ProgressDeadline >= 0, "ProgressDeadline is %v; it must not be negative", c.ProgressDeadline)
	check(c.CanaryWait >= 0, "CanaryWait is %v; it must not be negative", c.CanaryWait)
	check(c.Backoff >= 0 && c.MaxBackoff >= 0, "Backoff is %v and MaxBackoff is %v; neither may be negative", c.Backoff, c.MaxBackoff)
	check(c.ProgressDeadline == 0 || c.ProgressDeadline > c.MinReady,
		"ProgressDeadline %v is not longer than MinReady %v, so every roll would miss it; raise ProgressDeadline", c.ProgressDeadline, c.MinReady)
	return errors.Join(errs...)
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
