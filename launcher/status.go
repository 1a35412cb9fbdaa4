package launcher

import (
	"github.com/swansong-go/swansong/launcher/internal/controller"
	"github.com/swansong-go/swansong/launcher/internal/lifecycle"
	"github.com/swansong-go/swansong/launcher/internal/process"
)

// State is what a process is doing, as the launcher sees it. States only move forward, except from
// [Blocked] back to [Draining], and from [Ready] back to [Warming] while a readiness probe fails;
// the package documentation has a diagram. Its methods are
//
//	String() string // such as "READY"
//	Ended() bool    // the process no longer exists
//	Stopping() bool // the process has been asked to stop, or is about to be
type State = lifecycle.State

// States of a process.
const (
	Spawning          = lifecycle.Spawning          // the process was started, and has not answered yet
	Starting          = lifecycle.Starting          // the process answers calls, and initializes itself
	Warming           = lifecycle.Warming           // the process is not ready: it is connecting to services that it depends on, or its readiness probe fails
	Ready             = lifecycle.Ready             // the process accepts work
	Unhealthy         = lifecycle.Unhealthy         // the process failed to become or to stay ready, and is about to be stopped
	ShutdownRequested = lifecycle.ShutdownRequested // the process is being stopped; it leaves routing, or has not reported that it drains
	Draining          = lifecycle.Draining          // the process completes the work that it has accepted
	Blocked           = lifecycle.Blocked           // the process drains, and waits for something outside of itself
	Complete          = lifecycle.Complete          // the process was reaped, after it ended as it should
	Forced            = lifecycle.Forced            // the process was reaped, after it was sent SIGTERM or SIGKILL at a deadline
	Crashed           = lifecycle.Crashed           // the process was reaped, after it ended by itself with a failure
	Gone              = lifecycle.Gone              // the process has ended, and its exit status cannot be known
)

// Outcome is how a process ended. Its method String returns the name in the protocol, such as
// "CLEAN".
type Outcome = lifecycle.Outcome

// Outcomes of a process.
const (
	NotEnded    = lifecycle.NotEnded
	Clean       = lifecycle.Clean       // the process ended by itself, as it should
	DrainFailed = lifecycle.DrainFailed // the process ended by itself, after it reported that its drain failed
	Killed      = lifecycle.Killed      // the process was ended by SIGTERM or SIGKILL at a deadline
	Crash       = lifecycle.Crash       // the process ended by itself, with a failure
	Unknown     = lifecycle.Unknown     // the exit status of the process cannot be known
	Unconfirmed = lifecycle.Unconfirmed // the process was killed, and is not known to have ended; replaced by another outcome when it ends
)

// A Status is what the launcher knows of a process. Its fields are
//
//	ID, Group string
//	Revision  int
//	State     State
//	Since     time.Time // when the process entered State
//	Message   string
//	PID       int
//	Started   time.Time
//	ReadyAt   time.Time // zero if the process has never been ready
//	Routed    bool      // the process has been added to the Router, if there is one
//	Asked     time.Time // when the process was ordered to stop; zero if it was not
//	Ended     time.Time
//	Reason    string // why the process was ordered to stop
//	Metrics   *pb.ShutdownMetrics
//	Extension int // number of requests of the process for more time
//	Outcome   Outcome
//	Report    string        // if the process was forced: its last report, which says what it waited for, and where its goroutines were
//	Exit      string        // exit status, such as "exit status 1"
//	Survivors []string      // descendants of the process that could not be killed, as far as they can be found
//	Contained string        // how the launcher finds the descendants: "cgroup", "walk" (through /proc), "group" (its process group) or "leader" (not at all)
//	Bound     time.Duration // the longest time that stopping the process can take
//
// Its method Took returns how long stopping the process has taken so far, 0 if it was not ordered
// to stop.
type Status = process.Status

// A Health is the condition of a group. Its fields are
//
//	Group      string
//	Desired    int
//	MinHealthy int
//	Ready      int // number of processes that are available, which means ready for MinReady
//	Updated    int // number of processes in Ready that have the revision that the group wants or that a roll leads to
//	Total      int // number of processes that exist, including those that are shutting down
//	Healthy    bool
//	GivenUp    bool // set if too many processes have failed; an operator has to restart the group
//	Revision   int
//	Message    string // what is wrong with the group, or what it is doing now
//	// Missing is the number of processes that are missing from Desired, because a roll with
//	// [Continue] could not replace them.
//	Missing  int
//	Roll     *RollStatus // nil if no roll is under way or paused
//	Stopping bool
//	Stopped  bool // an operator has stopped the group, which has no processes until [Manager.StartGroup]
//	// Unrecorded has the ids of processes to be kept that end with the launcher nevertheless, because
//	// the state file cannot be written, or because the pipes for their output could not be made.
//	Unrecorded []string
//	StopsAfter []string         // while the group stops: groups that depend on it and are not empty yet
//	Processes  []Status // processes that exist, oldest first, then processes that have ended, latest last
type Health = controller.Health

// Health returns the health of all groups, in the order of the configuration.
func (m *Manager) Health() []Health {
	var all []Health
	for _, g := range m.allGroups() {
		all = append(all, g.health())
	}
	return all
}

// GroupHealth returns the health of a group. The error matches [ErrNotFound].
func (m *Manager) GroupHealth(name string) (Health, error) {
	g, err := m.group(name)
	if err != nil {
		return Health{}, err
	}
	return g.health(), nil
}

// A RollStatus describes the progress of a roll. Its method String returns it in a line. Its fields
// are
//
//	From, To int    // numbers of revisions
//	Phase    string // "canary", "rolling" or "rolling back"
//	Paused   bool   // the roll waits for [Manager.Resume], [Manager.Rollback] or a new roll
//	Why      string // the last failure; empty if there was none
//	GivenUp  int    // number of processes that will not be replaced
//	Canaries int    // with Until, the number of canaries that are available
//	// Until is when the canaries will have been available for long enough, or when the roll retries
//	// after a failure; zero if the roll waits for neither.
//	Until time.Time
type RollStatus = controller.RollStatus

// A RollError says that a roll has not replaced all processes of a group. Its fields are
//
//	Group      string
//	Process    string // id of the replacement that failed; empty if the roll failed for another reason
//	RolledBack bool   // the processes have the earlier configuration again
//	Degraded   bool   // the roll is over and has replaced some processes, but not all
//	Cause      error
type RollError = controller.RollError

// A GivenUpError says that the processes of a group have failed too often to be started again. Its
// method Rule returns what has happened and what to do, without the name of the group. Its fields
// are
//
//	Group    string
//	Failures int    // number of failures in a row
//	Last     string // the id of the process that failed last, and its failure
type GivenUpError = controller.GivenUpError
