package lifecycle

import "fmt"

// State says what a process is doing, as far as the launcher knows. The numbers are those of the
// protocol.
type State int

const (
	Spawning          State = iota + 1 // the process was started, and has not answered yet
	Starting                           // the process answers calls, and is still initializing itself
	Warming                            // the process connects to services that it depends on, or its readiness probe fails
	Ready                              // the process accepts work
	Unhealthy                          // the process failed to become or to stay ready, and is about to be stopped
	ShutdownRequested                  // the launcher has begun to stop the process, which does not drain yet
	Draining                           // the process completes the work that it has accepted
	Blocked                            // the process drains, and waits for something outside of the process
	Complete                           // the process was reaped, after it ended as intended
	Forced                             // the process was reaped, after it was sent SIGTERM or SIGKILL at a deadline
	Crashed                            // the process was reaped, after it failed without being stopped by the launcher
	Gone                               // the process has ended, and its exit status cannot be known
)

var stateNames = map[State]string{0: "-", Spawning: "SPAWNING", Starting: "STARTING", Warming: "WARMING", Ready: "READY",
	Unhealthy: "UNHEALTHY", ShutdownRequested: "SHUTDOWN_REQUESTED", Draining: "DRAINING", Blocked: "BLOCKED",
	Complete: "COMPLETE", Forced: "FORCED", Crashed: "CRASHED", Gone: "GONE"}

// String returns the name of the state in the protocol, such as "READY".
func (s State) String() string {
	if n, ok := stateNames[s]; ok {
		return n
	}
	return fmt.Sprintf("State(%d)", int(s))
}

// Ended reports whether the process no longer exists.
func (s State) Ended() bool { return s >= Complete }

// Stopping reports whether the process has been asked to stop or is about to be asked.
func (s State) Stopping() bool { return s >= ShutdownRequested && s < Complete }

// CanBecome reports whether a process in state s can enter state next. States only move forward,
// except from Blocked back to Draining, and from Ready back to Warming while a readiness probe
// fails. Intermediate states may be skipped.
func (s State) CanBecome(next State) bool {
	switch {
	case s.Ended() || s == next:
		return false
	case s == Blocked && next == Draining, s == Ready && next == Warming:
		return true
	default:
		return next > s
	}
}

// Outcome says how a process ended. The numbers are those of the protocol.
type Outcome int

const (
	NotEnded    Outcome = iota
	Clean               // the process ended by itself, as intended
	DrainFailed         // the process ended by itself, after it had reported that its drain failed
	Killed              // the process was ended by SIGTERM or SIGKILL at a deadline
	Crash               // the process ended by itself, with a failure
	Unknown             // the exit status of the process cannot be known
	Unconfirmed         // the process was killed, and is not known to have ended; replaced by another outcome when it ends
)

var outcomeNames = [...]string{"", "CLEAN", "DRAIN_FAILED", "FORCED", "CRASHED", "UNKNOWN", "UNCONFIRMED"}

// String returns the name of the outcome in the protocol, such as "CLEAN", and "" for NotEnded.
func (o Outcome) String() string {
	if o >= 0 && int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return fmt.Sprintf("Outcome(%d)", int(o))
}
