// Package events delivers events about processes, groups and the launcher to watchers and to the
// log.
package events

import (
	"time"

	"github.com/swansong-go/swansong/launcher/internal/lifecycle"
)

// Kind is the kind of an [Event].
type Kind string

const (
	Transition Kind = "transition" // a process has changed its state
	Signalled  Kind = "signal"     // a signal was sent to a process, or to it and all its descendants
	GraceOver  Kind = "grace-over" // a process still drains although its grace period is over, and may go on until the maximum
	Extension  Kind = "extension"  // a process has asked for more time to stop
	Adopted    Kind = "adopted"    // a process that an earlier launcher started has been adopted
	// MainProcess reports that a process has named another one, which it has started, as the main
	// process from now on (by MAINPID, see sd_notify(3)).
	MainProcess Kind = "main-process"
	Upgraded    Kind = "upgraded"  // another program has taken over; see launcher.Manager.Upgrade
	Alarm       Kind = "alarm"     // a problem that needs an operator
	AllClear    Kind = "all-clear" // the problem of an earlier Alarm is over

	GroupHealthy   Kind = "healthy"   // a group has enough ready processes
	GroupUnhealthy Kind = "unhealthy" // a group has too few ready processes
	// GroupFinished reports that a group has no processes, and starts none until an operator gives
	// an order.
	GroupFinished Kind = "finished"

	RollBegun Kind = "roll-begun" // a roll has begun to replace the processes of a group
	// RollStep reports progress of a roll: the roll waits for canaries, retries, is resumed or
	// is rolled back.
	RollStep Kind = "roll-step"
	// RollDone reports that a roll has replaced all processes, or that a rollback, which a user has
	// ordered, has replaced the new ones by processes of the earlier revision.
	RollDone    Kind = "roll-done"
	RollFailed  Kind = "roll-failed"  // a roll has paused, or has ended without replacing all processes
	Ordered     Kind = "ordered"      // an operator has stopped, started or scaled a group
	Restart     Kind = "restart"      // a process has failed and will be replaced after a pause
	Reloaded    Kind = "reloaded"     // a configuration was applied; after launcher.Manager.Reread, one event for each change
	HookRun     Kind = "hook"         // a pre-stop hook has ended
	RouterError Kind = "router-error" // a method of the Router failed, panicked or took too long
)

// An Event is something that has happened to a process, to a group or to the launcher.
type Event struct {
	Time     time.Time
	Kind     Kind
	Group    string
	Process  string          // id of the process; if empty, the event is about the group
	From, To lifecycle.State // the states before and after a Transition
	Outcome  lifecycle.Outcome
	// Roll is set for RollStep, RollDone and RollFailed: canary, rolling, rolling back, paused,
	// done, rolled back, degraded or superseded.
	Roll    string
	Message string

	// Took is set for a Transition. If the process became READY, Took counts from its start,
	// otherwise from the order to stop it; 0 if there was no order.
	Took     time.Duration
	WasReady bool // set for a Transition: whether the process was READY at some time before
	// Forced is set in the Transition in which a process ends, if the launcher sent the process
	// SIGTERM or SIGKILL at a deadline. It can also be set in a Transition to GONE, in which the
	// exit status of the process is not known.
	Forced bool
	// Survivors is set when a process has ended: the number of its descendants that could not be
	// killed.
	Survivors int
	Missed    int // number of events before this one that this watcher was too slow to receive
	// Stack is set if a callback of the program has panicked or called runtime.Goexit. Message
	// names the callback. In the Transition to Forced, Stack is the report of the process: what it
	// waited for just before its end, and where its goroutines were. It is empty if the process did
	// not answer, or does not use package client.
	Stack string
}
