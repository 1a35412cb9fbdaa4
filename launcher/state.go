package launcher

import (
	"fmt"

	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
)

// State is what a process is doing, as the launcher sees it. machine.go has who follows whom.
type State int

const (
	Spawning          State = iota + 1 // being started, or started and not heard of yet
	Starting                           // answers, and initializes
	Warming                            // connects to what it needs
	Ready                              // takes on work
	Unhealthy                          // failed to become ready, or has stopped answering that it is; about to be stopped
	ShutdownRequested                  // to be stopped: leaves routing, or has been asked and has not said that it drains
	Draining                           // deals with what it has taken on
	Blocked                            // drains, and waits for something outside
	Complete                           // has ended as it should, and has been reaped
	Forced                             // was ended at a deadline, and has been reaped
	Crashed                            // has ended by itself as it should not, and has been reaped
	Gone                               // has ended, and nobody can know how
)

var stateNames = map[State]string{0: "-", Spawning: "SPAWNING", Starting: "STARTING", Warming: "WARMING", Ready: "READY",
	Unhealthy: "UNHEALTHY", ShutdownRequested: "SHUTDOWN_REQUESTED", Draining: "DRAINING", Blocked: "BLOCKED",
	Complete: "COMPLETE", Forced: "FORCED", Crashed: "CRASHED", Gone: "GONE"}

func (s State) String() string {
	if n, ok := stateNames[s]; ok {
		return n
	}
	return fmt.Sprintf("State(%d)", int(s))
}

// Ended reports whether the process is no more.
func (s State) Ended() bool { return s >= Complete }

// Stopping reports whether the process has been told to stop, or is about to be.
func (s State) Stopping() bool { return s >= ShutdownRequested && s < Complete }

// The numbers of the wire are those above.
func (s State) wire() pb.ProcessState { return pb.ProcessState(s) }

// Outcome is how a process has ended.
type Outcome int

const (
	NotEnded    Outcome = iota
	Clean               // by itself, as it should
	DrainFailed         // by itself, after saying that its drain has failed
	Killed              // by SIGTERM or SIGKILL at a deadline
	Crash               // by itself, as it should not
	Unknown             // nobody can know
	Unconfirmed         // it was killed, and is not known to have ended; not final, should it end after all
)

var outcomeNames = [...]string{"", "CLEAN", "DRAIN_FAILED", "FORCED", "CRASHED", "UNKNOWN", "UNCONFIRMED"}

func (o Outcome) String() string {
	if o >= 0 && int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return fmt.Sprintf("Outcome(%d)", int(o))
}

func (o Outcome) wire() pb.Outcome { return pb.Outcome(o) }
