// Package restart decides what follows when a process of a group ends or becomes unhealthy, and
// when the next process may be started. It starts nothing, and uses no clock.
package restart

import "github.com/swansong-go/swansong/launcher/internal/spec"

// An Exit describes a process that has ended, without being stopped by its group, or that has
// become unhealthy. It has everything that decides whether and when the process is replaced.
type Exit struct {
	Policy         spec.RestartPolicy
	Unhealthy      bool // the process did not become ready in time, or failed its liveness checks; it has not ended yet
	Failed         bool // the process is unhealthy, or its end was not clean
	Stopped        bool // the process was stopped, for example by an operator, or drained by itself
	WasReady       bool
	OutcomeUnknown bool // an earlier launcher started the process, and possibly stopped it

	Rolling bool // a roll is under way and not paused
	Target  bool // the roll increases the number of processes of this revision
	Pending bool // the roll has not replaced all processes of this revision yet
}

// A FollowUp says what the group does after an exit.
type FollowUp int

const (
	Later       FollowUp = iota // the process has failed: another one is started after a back-off
	Now                         // the process was stopped from outside the group: another one is started at once
	Finish                      // the process has finished and is not replaced
	LeaveToRoll                 // the roll replaces the process, or does not need it any more
	GiveUp                      // the process has never worked and is not restarted: the group is given up
)

// FollowUp decides what the group does after the exit of a process. During a roll, the restart
// policy does not count: the roll replaces the processes that end.
func (e Exit) FollowUp() FollowUp {
	switch {
	case e.Rolling && !e.Pending:
		return LeaveToRoll
	case e.stoppedFromOutside():
		return Now
	case e.Rolling:
		return Later
	case e.Policy == spec.Never && e.Failed && !e.WasReady:
		// A process that failed before it was ever ready, and is not restarted, does not count as
		// finished: a group without any process would then count as healthy.
		return GiveUp
	case e.isLast():
		return Finish
	}
	return Later
}

// isLast reports whether the restart policy starts no other process after this exit.
func (e Exit) isLast() bool {
	return e.Policy == spec.Never || e.Policy == spec.OnFailure && !e.Failed
}

// isDraining reports whether the process ended in a drain: it was stopped, but not because it was
// unhealthy, or it drained by itself.
func (e Exit) isDraining() bool { return e.Stopped && !e.Unhealthy }

// stoppedFromOutside reports whether something other than the group stopped the process, such as a
// user who has killed it. Such a process is replaced, whatever the policy says.
func (e Exit) stoppedFromOutside() bool {
	return e.Stopped && !e.Failed || e.Policy == spec.Never && e.isDraining() && e.WasReady
}

// FailsRoll reports whether the exit counts as a failure of the roll. The exit of a process that
// the roll replaces does not. Nor does one with an unknown outcome, which an earlier launcher may
// have caused. If the new configuration makes processes fail, the next one fails as well, and its
// outcome is known.
func (e Exit) FailsRoll() bool {
	return e.Rolling && e.Target && !e.OutcomeUnknown && (e.Unhealthy || !e.Stopped)
}
