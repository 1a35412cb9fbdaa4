package roll

import (
	"errors"
	"fmt"
	"time"
)

// OnFailure is what becomes of a roll whose instances fail for good.
type OnFailure int

const (
	Pause    OnFailure = iota // leave everything as it is, and wait for an order
	Rollback                  // replace what is new by what was there before
	Continue                  // go on with the others: each failure leaves an old instance in its place, or one fewer. Where all have failed, and none has done what it was there for, turn back
)

func (f OnFailure) String() string { return [...]string{"pause", "rollback", "continue"}[f] }

// A Config says how a group is rolled.
type Config struct {
	Desired    int // instances when all is done
	MinHealthy int // instances that are always ready, 0 ≤ MinHealthy ≤ Desired
	MaxSurge   int // instances that there may be beyond Desired; 0 stops before it starts, and needs MinHealthy < Desired

	MinReady         time.Duration // how long an instance has to have been ready to be counted on
	ProgressDeadline time.Duration // how long nothing may get better, back-off and the wait for canaries apart; 0 is for ever

	Canary     int           // instances that go first; 0 is no canary
	CanaryWait time.Duration // how long these have to have been available before the others follow

	OnlyForward bool // no old instance can be started, so that new ones take the places of those that are lost, canaries or not

	OnFailure  OnFailure
	Retries    int           // failures in a row that are just tried again; 0 leaves trying again to the operator
	Backoff    time.Duration // pause before the first retry, doubled for each further one; 0 retries at once
	MaxBackoff time.Duration // what it is doubled up to
}

// Validate says what is wrong with c: all of it, joined.
func (c Config) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("roll: "+format, args...))
		}
	}
	check(c.Desired >= 0, "Desired is %d; it cannot be negative", c.Desired)
	check(c.MaxSurge >= 0, "MaxSurge is %d; it cannot be negative", c.MaxSurge)
	check(c.MinHealthy >= 0 && c.MinHealthy <= c.Desired, "MinHealthy is %d; it has to be within 0 and Desired, which is %d", c.MinHealthy, c.Desired)
	check(c.Desired == 0 || c.MaxSurge > 0 || c.MinHealthy < c.Desired,
		"MaxSurge 0 with MinHealthy = Desired leaves no way to replace an instance; allow one more, or one fewer")
	check(c.Canary >= 0 && c.Canary <= c.Desired, "Canary is %d; it has to be within 0 and Desired, which is %d", c.Canary, c.Desired)
	check(c.OnFailure >= Pause && c.OnFailure <= Continue, "OnFailure is %d; it is Pause, Rollback or Continue", int(c.OnFailure))
	check(!c.OnlyForward || c.OnFailure != Rollback, "OnFailure is rollback, and OnlyForward leaves no way back; pause or continue")
	check(c.Retries >= 0, "Retries is %d; it cannot be negative", c.Retries)
	check(min(c.MinReady, c.ProgressDeadline, c.CanaryWait, c.Backoff, c.MaxBackoff) >= 0, "a duration is negative")
	check(c.ProgressDeadline == 0 || c.ProgressDeadline > c.MinReady, "ProgressDeadline %v is not longer than MinReady %v: no instance could be in time", c.ProgressDeadline, c.MinReady)
	return errors.Join(errs...)
}

// backoff returns how long to wait before the tries-th retry. There is no jitter in it: a group rolls by itself, and in no
// step with others.
func (c Config) backoff(tries int) time.Duration {
	d, limit := c.Backoff, max(c.Backoff, c.MaxBackoff)
	for range tries - 1 {
		if d > limit/2 {
			return limit
		}
		d *= 2
	}
	return d
}
