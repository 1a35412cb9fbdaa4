package launcher

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/swansong-go/swansong/launcher/internal/lifecycle"
	"github.com/swansong-go/swansong/launcher/internal/process"
)

// State is what a process is doing, as the launcher sees it. States only move forward, except from
// [Blocked] back to [Draining], and from [Ready] back to [Warming] while a readiness probe fails; the
// package documentation has a diagram. Its methods are
//
//	String() string // such as "READY"
//	Ended() bool    // the process no longer exists
//	Stopping() bool // the process has been asked to stop, or is about to be
type State = lifecycle.State

// States of a process.
const (
	Spawning          = lifecycle.Spawning          // the process was started, and has not answered yet
	Starting          = lifecycle.Starting          // the process answers calls, and initializes itself
	Warming           = lifecycle.Warming           // the process connects to services that it depends on, or its readiness probe fails
	Ready             = lifecycle.Ready             // the process accepts work
	Unhealthy         = lifecycle.Unhealthy         // the process failed to become or to stay ready, and is about to be stopped
	ShutdownRequested = lifecycle.ShutdownRequested // the process is being stopped; it leaves routing, or has not reported that it drains
	Draining          = lifecycle.Draining          // the process completes the work that it has accepted
	Blocked           = lifecycle.Blocked           // the process drains, and waits for something outside of itself
	Complete          = lifecycle.Complete          // the process was reaped, after it ended as it should
	Forced            = lifecycle.Forced            // the process was reaped, after SIGTERM or SIGKILL at a deadline
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
//	Report    string        // if the process was forced: what it waited for, and where its goroutines were, as it has reported just before
//	Exit      string        // exit status, such as "exit status 1"
//	Survivors []string      // descendants of the process that could not be killed, as far as they can be found
//	Contained string        // how the launcher finds the descendants: "cgroup", "walk" (through /proc), "group" or "leader"
//	Bound     time.Duration // the longest time that stopping the process can take
//
// Its method Took returns how long stopping the process has taken so far, 0 if it was not ordered to
// stop.
type Status = process.Status

// A Health is the condition of a group.
type Health struct {
	Group      string
	Desired    int
	MinHealthy int
	Ready      int // number of processes that are available, which means ready for MinReady
	Updated    int // number of processes in Ready that have the revision that the group wants or that a roll leads to
	Total      int // number of processes that exist, including those that are shutting down
	Healthy    bool
	GivenUp    bool // set if too many processes have failed; an operator has to restart the group
	Revision   int
	Message    string // says what is wrong or under way
	// Missing is the number of processes that are missing from Desired, because a roll with
	// [Continue] could not replace them.
	Missing  int
	Roll     *RollStatus // nil if no roll is under way or paused
	Stopping bool
	Stopped  bool // stopped by order: the group has no processes until [Manager.StartGroup]
	// Unrecorded has the ids of processes to be kept that are not in the state file, because it
	// cannot be written. They end with the launcher.
	Unrecorded []string
	StopsAfter []string // while the group stops: groups that depend on it and are not empty yet
	Processes  []Status // processes that exist, oldest first, then processes that have ended, latest last
}

func (g *group) health() Health {
	g.mu.Lock()
	h := g.controller.health(time.Now())
	if g.manager.host.StateFile.Failing() {
		for _, i := range g.controller.instances.sorted() {
			if i.IsUnrecorded() {
				h.Unrecorded = append(h.Unrecorded, i.ID())
			}
		}
	}
	g.mu.Unlock()
	if len(h.Unrecorded) > 0 {
		h.Message = strings.TrimPrefix(fmt.Sprintf("%s; the next launcher cannot adopt %s, because the state file cannot be written",
			h.Message, strings.Join(h.Unrecorded, ", ")), "; ")
	}
	if !h.Stopping {
		return h
	}
	for _, other := range g.manager.allGroups() { // called while no group is locked, because each group is locked here
		if slices.Contains(other.config().DependsOn, g.name) && !other.isEmpty() {
			h.StopsAfter = append(h.StopsAfter, other.name)
		}
	}
	if len(h.StopsAfter) > 0 {
		h.Message = "stopping, after " + strings.Join(h.StopsAfter, ", ")
	}
	return h
}

func (c *controller) health(now time.Time) Health {
	cfg, desired := c.config(), c.desired()
	short := c.revisions.Wanted().Shortfall
	if !cfg.Job && !short.Stopped {
		desired += short.Finished // a service is not meant to end: what has ended is missing
	}
	h := Health{Group: c.name, Desired: desired, MinHealthy: cfg.MinHealthyOf(desired), Total: len(c.instances), Revision: c.revisions.Current,
		GivenUp: c.backOff.GivenUp, Missing: c.degraded.missing, Roll: c.rollStatus(now), Stopping: c.stopping, Stopped: short.Stopped}
	newest := c.revisions.Current
	if c.roll != nil {
		newest = c.roll.Destination()
	}
	for _, i := range c.instances.sorted() {
		st := i.Status()
		if isAvailable(st, now, cfg.MinReady) && !i.accounted {
			h.Ready++
			if st.Revision == newest {
				h.Updated++
			}
		}
		h.Processes = append(h.Processes, st)
	}
	h.Processes = append(h.Processes, c.ended...)
	h.Healthy = !h.GivenUp && h.Ready >= h.MinHealthy && (h.Ready > 0 || h.Desired == 0)
	h.Message = c.healthMessage(h, now)
	return h
}

// healthMessage returns the Message of a Health.
func (c *controller) healthMessage(h Health, now time.Time) (message string) {
	if c.stopping {
		return "stopping"
	}
	short := c.revisions.Wanted().Shortfall
	// unreplaced falls when old processes end after a degraded roll, because their successors have
	// the wanted revision.
	unreplaced := c.desired() - c.instances.liveOf(c.revisions.Current)
	switch {
	case short.Stopped:
		return "stopped by order; launcher start " + c.name + " starts it"
	case h.GivenUp:
		message = c.givenUpError().Rule()
	case c.roll != nil:
		message = fmt.Sprintf("%s; %d of %d replaced", h.Roll, h.Updated, h.Desired)
	case c.degraded.givenUp > 0 && unreplaced > 0:
		message = fmt.Sprintf("degraded: %d of %d could not be replaced; restart the group when that is fixed", min(c.degraded.givenUp, unreplaced), h.Desired)
	case short.Finished > 0:
		message = short.Message(c.desired(), *c.config())
	case len(c.waitsFor) > 0:
		message = "waits for " + strings.Join(c.waitsFor, ", ")
	case now.Before(c.backOff.NotBefore):
		message = fmt.Sprintf("%s; the next start is in %v", inARow(c.backOff.Failures), c.backOff.NotBefore.Sub(now).Round(time.Millisecond))
	}
	switch n := short.ScaledDown; {
	case n > 0:
		message = strings.TrimPrefix(fmt.Sprintf("%s; %d fewer than desired_instances, %d, by order", message, n, c.config().Desired), "; ")
	case n < 0:
		message = strings.TrimPrefix(fmt.Sprintf("%s; %d more than desired_instances, %d, by order", message, -n, c.config().Desired), "; ")
	}
	return message
}
