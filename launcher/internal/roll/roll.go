package roll

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// A Roll replaces all instances of a group by instances of another revision. It holds the whole
// state of that: the revisions, the [State] and failures. The rules and the instances can change,
// so the methods take the present ones. The Canary of the rules is the configured one, which may
// exceed Desired.
//
// If From equals To, the configuration of the instances to be replaced is not known, because an
// earlier launcher has started them. Such a roll cannot be rolled back.
type Roll struct {
	From, To int // numbers of the revisions that the roll replaces and leads to
	Reason   string

	state     State
	failures  [2]int        // numbers of failures by version, since the roll began
	last      *Failure      // the last failure; nil if there was none since the beginning, or since the roll was resumed
	ordered   bool          // the roll was rolled back because a user has ordered it, and not because of a failure
	rejected  bool          // the canaries have failed their check
	passedAt  time.Duration // when the last check that the canaries have passed began; 0: they have passed none
	announced bool          // the roll has reported that all canaries are available
}

// A saved is a Roll with its State, as it is handed over to another launcher.
type saved struct {
	From, To      int
	Reason        string
	State         State
	FailuresSeen  int
	MostAvailable int
	FewestOthers  int
	Failures      [2]int
	Instance      string // id of the instance that failed last
	Cause         string // empty if there was no failure
	Ordered       bool
	Rejected      bool
	PassedAt      time.Duration
	Announced     bool
}

// MarshalJSON writes everything that the roll remembers. Its times are durations on the clock of
// the caller. A launcher that reads them must use a clock with the same zero.
func (r *Roll) MarshalJSON() ([]byte, error) {
	s := saved{From: r.From, To: r.To, Reason: r.Reason, State: r.state, FailuresSeen: r.state.failuresSeen, MostAvailable: r.state.mostAvailable,
		FewestOthers: r.state.fewestOthers, Failures: r.failures, Ordered: r.ordered, Rejected: r.rejected, PassedAt: r.passedAt, Announced: r.announced}
	if r.last != nil {
		s.Instance, s.Cause = r.last.Instance, r.last.Cause.Error()
	}
	return json.Marshal(s)
}

// UnmarshalJSON reads what MarshalJSON has written.
func (r *Roll) UnmarshalJSON(text []byte) error {
	var s saved
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	*r = Roll{From: s.From, To: s.To, Reason: s.Reason, state: s.State, failures: s.Failures, ordered: s.Ordered, rejected: s.Rejected,
		passedAt: s.PassedAt, announced: s.Announced}
	r.state.failuresSeen, r.state.mostAvailable, r.state.fewestOthers = s.FailuresSeen, s.MostAvailable, s.FewestOthers
	if s.Cause != "" {
		r.last = &Failure{Instance: s.Instance, Cause: errors.New(s.Cause)}
	}
	return nil
}

// A Failure is the cause for which a roll retries, gives up, pauses or rolls back.
type Failure struct {
	Instance string // id of the instance; empty if the cause is not a single instance
	Cause    error
}

func (f Failure) String() string {
	if f.Instance == "" {
		return f.Cause.Error()
	}
	return f.Instance + ": " + f.Cause.Error()
}

// A Step is the result of [Roll.Next].
type Step struct {
	Change  Change
	Action  Action   // what the caller does next; set only if Change is GoesOn
	Notices []string // messages for the log
}

// A Change says whether a roll continues, is rolled back, pauses or ends.
type Change int

const (
	GoesOn    Change = iota // the roll continues: the caller does the Action of the Step
	TurnsBack               // the caller calls Rollback, with the Config of the revision From
	Pauses                  // the roll is paused until the caller resumes it or rolls it back; the caller keeps From for that
	Ends                    // the roll has ended: Phase says how
)

// Begin sets the first state of the roll.
func (r *Roll) Begin(c Config, v View) { r.state = Begin(r.rules(c), r.view(v)) }

// Phase returns the current phase.
func (r *Roll) Phase() Phase { return r.state.Phase }

// Paused reports whether the roll waits for Resume or Rollback.
func (r *Roll) Paused() bool { return r.state.Paused }

// OnlyForward reports whether the roll cannot be rolled back, because old instances cannot be
// started.
func (r *Roll) OnlyForward() bool { return r.From == r.To }

// Forward reports whether the roll leads to To. Once it rolls back, it leads to From.
func (r *Roll) Forward() bool { return r.target() == New }

func (r *Roll) target() Version { return r.state.Phase.target() }

// Destination returns the revision to which the roll leads now: From while it is rolled back,
// otherwise To.
func (r *Roll) Destination() int {
	if r.Forward() {
		return r.To
	}
	return r.From
}

// Wanted returns the revision that the group wants now: To while the roll leads to it and is not
// paused, and otherwise From, which has worked.
func (r *Roll) Wanted() int {
	if r.Forward() && !r.state.Paused {
		return r.To
	}
	return r.From
}

// Other returns the revision, From or To, that the roll is not leading to now.
func (r *Roll) Other() int {
	if r.Wanted() == r.From {
		return r.To
	}
	return r.From
}

// VersionOf returns whether instances of a revision count as old or new in the roll. Besides From
// and To there can be revisions of earlier rolls that were superseded before their end. They are
// never the target: on the way forward everything but To is old, on the way back everything but
// From is new.
func (r *Roll) VersionOf(revision int) Version {
	if r.Forward() {
		if revision == r.To {
			return New
		}
		return Old
	}
	if revision == r.From {
		return Old
	}
	return New
}

// RevisionOf returns the revision with which an instance of this version is started.
func (r *Roll) RevisionOf(v Version) int {
	if v == New {
		return r.To
	}
	return r.From
}

// IsTarget reports whether the roll increases the number of instances of a revision.
func (r *Roll) IsTarget(revision int) bool { return r.VersionOf(revision) == r.target() }

// HasYetToReplace reports whether the roll is under way and will replace the instances of a
// revision later. If one of them fails before it is replaced, the caller decides when another old
// one may be started in its place. In a roll that is OnlyForward, new instances take the places of
// old ones that fail.
func (r *Roll) HasYetToReplace(revision int) bool {
	return !r.state.Paused && !r.OnlyForward() && r.Forward() && r.VersionOf(revision) == Old
}

// CountFailure counts an instance that has failed.
func (r *Roll) CountFailure(revision int, f Failure) {
	r.failures[r.VersionOf(revision)]++
	r.last = &f
}

// PassCanaries records that the canaries have passed a check that began at this time.
func (r *Roll) PassCanaries(began time.Duration) { r.passedAt = began }

// RejectCanaries records that the canaries have failed a check, so that the roll is rolled back. It
// does nothing if the roll does not wait for canaries any more.
func (r *Roll) RejectCanaries(f Failure) {
	if r.state.Phase == Canary && !r.state.Paused {
		r.rejected, r.last = true, &f
	}
}

// CanaryUntil returns the time at which the canaries will have been available for CanaryWait. The
// result ok is false unless the roll waits for its canaries and all of them are available.
func (r *Roll) CanaryUntil(c Config, v View) (at time.Duration, ok bool) {
	return r.state.CanaryUntil(r.rules(c), r.view(v))
}

// Failure returns the last failure. If there was none, its Cause is the reason why the roll is in
// its phase.
func (r *Roll) Failure() Failure {
	if r.last != nil {
		return *r.last
	}
	return Failure{Cause: errors.New(r.state.Why)}
}

// ScaleDown adapts the roll to an order that stops the instance id without a replacement. In v the
// instance is not stopping yet. The caller has lowered Desired by one.
func (r *Roll) ScaleDown(c Config, v View, id string) {
	r.state = r.state.ScaleDown(r.rules(c), r.view(v), id)
}

// DelayProgress makes the time without progress count from now.
func (r *Roll) DelayProgress(now time.Duration) { r.state.Progress = now }

// GivenUp returns the number of instances that are not replaced.
func (r *Roll) GivenUp() int { return r.state.GivenUp }

// Ordered reports whether the roll was rolled back because a user has ordered it, and not because
// of a failure.
func (r *Roll) Ordered() bool { return r.ordered }

// Resume ends a pause of the roll. c holds the rules of the revision that [Roll.Destination]
// returns.
func (r *Roll) Resume(c Config, v View) {
	r.state.Paused, r.announced, r.rejected = false, false, false
	// r.last keeps the cause of the rollback while the roll is being rolled back.
	if r.Forward() {
		r.last = nil
	}
	r.state = r.state.Resume(r.rules(c), r.view(v))
}

// OrderRollback makes an order the cause of the Rollback that follows. A roll that is rolling back
// already keeps its cause, unless it is paused.
func (r *Roll) OrderRollback(reason string) {
	if r.Forward() || r.state.Paused {
		r.last, r.ordered = &Failure{Cause: errors.New("rollback requested: " + reason)}, true
	}
}

// Rollback begins the rollback of the roll. c holds the rules of the revision From. All instances
// of other revisions than From are to be replaced, also those of earlier rolls, which counted as
// old on the way forward.
func (r *Roll) Rollback(c Config, v View, why string) {
	// Set the phase before calling r.view. Only in phase RollingBack does r.view count all
	// instances of other revisions than From as instances to replace. In an earlier phase it would
	// count fewer, and compared with that number, a rollback that makes progress could look like a
	// stall.
	r.state.Phase, r.state.Paused = RollingBack, false
	r.state = r.state.Rollback(r.rules(c), r.view(v), why)
}

// Why returns why the roll is paused or rolling back, empty for neither.
func (r *Roll) Why() string { return r.state.Why }

// Next returns what to do next.
func (r *Roll) Next(c Config, v View) (step Step) {
	c = r.rules(c)
	before, seen := r.state, r.view(v)
	r.state, step.Action = Next(c, before, seen)
	step.Notices = r.notices(c, seen, before)
	switch {
	case r.target() != before.Phase.target():
		// Next has used the view of a roll that leads to To, in which instances of earlier rolls
		// count as old. In a rollback they are to be replaced, so Next may have found it complete
		// too early. The caller now calls Rollback, which uses the right view.
		step.Change = TurnsBack
	case r.state.Phase.Ended():
		step.Change = Ends
	case r.state.Paused:
		step.Change = Pauses
	}
	return step
}

// rules returns c as it applies to this roll: with at most Desired canaries, and with OnlyForward
// set if the roll cannot be rolled back. Such a roll pauses at a failure instead of being rolled
// back.
func (r *Roll) rules(c Config) Config {
	c.Canary = min(c.Desired, c.Canary)
	c.OnlyForward = r.OnlyForward()
	if c.OnlyForward && c.OnFailure == Rollback {
		c.OnFailure = Pause
	}
	return c
}

// view returns v in the form that the functions Begin and Next of this package take: with the
// version of each instance, and the failures of the roll.
func (r *Roll) view(v View) View {
	seen := View{Now: v.Now, NoOldStart: v.NoOldStart, Failures: r.failures, Rejected: r.rejected, PassedAt: r.passedAt}
	for _, i := range v.Instances {
		i.Version = r.VersionOf(i.Revision)
		seen.Instances = append(seen.Instances, i)
	}
	return seen
}

// notices returns messages for the log about what has changed since the state before.
func (r *Roll) notices(c Config, v View, before State) (all []string) {
	notice := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	now := r.state
	if _, ok := now.CanaryUntil(c, v); ok && !r.announced {
		r.announced = true
		also := ""
		if c.Checked {
			also = " and pass their check"
		}
		notice("the first %d are available; the others follow if these stay available for %v%s", c.Canary, c.CanaryWait, also)
	}
	if now.GivenUp > before.GivenUp {
		notice("the roll goes on; number of processes that could not be replaced: %d; the last failure: %v", now.GivenUp, r.Failure())
	} else if now.Tries > before.Tries && !now.Paused && now.Phase == before.Phase {
		notice("failure %d in a row, and up to %d are retried; the next try is in %v: %v", now.Tries, c.Retries, max(0, now.Retry-v.Now), r.Failure())
	}
	if before.Phase == Canary && now.Phase == Rolling {
		notice("the first replacements have stayed available for %v; the others follow", c.CanaryWait)
	}
	return all
}

// A Status describes the progress of a roll.
type Status struct {
	Why      string        // the last failure; empty if there was none
	Canaries int           // number of canaries that are available, while the roll waits for them
	Until    time.Duration // when the wait for canaries ends, or when a failed start is tried again; 0: the roll waits for neither
}

// Status returns the progress of the roll.
func (r *Roll) Status(c Config, v View) (s Status) {
	if r.last != nil || r.state.Why != "" {
		s.Why = r.Failure().String()
	}
	c = r.rules(c)
	if at, ok := r.state.CanaryUntil(c, r.view(v)); ok {
		s.Canaries, s.Until = c.Canary, at
	} else if !r.state.Paused && r.state.Retry > v.Now {
		s.Until = r.state.Retry
	}
	return s
}
