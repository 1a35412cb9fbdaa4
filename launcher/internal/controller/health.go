package controller

import (
	"fmt"
	"strings"
	"time"

	"github.com/swansong-go/swansong/launcher/internal/lifecycle"
	"github.com/swansong-go/swansong/launcher/internal/process"
)

// A Health is the condition of a group.
type Health struct {
	Group      string
	Desired    int
	MinHealthy int
	Ready      int // number of processes that are available, which means ready for MinReady
	Updated    int // how many of the processes counted in Ready have the wanted revision: that to which the roll leads or, without a roll, that of the group
	Total      int // number of processes that exist, including those that are shutting down
	Healthy    bool
	GivenUp    bool // set if too many processes have failed; an operator has to restart the group
	Revision   int
	Message    string // what is wrong with the group, or what it is doing now
	// Missing is the number of processes that are missing from Desired, because a roll with
	// launcher.Continue could not replace them.
	Missing  int
	Roll     *RollStatus // nil if no roll is under way or paused
	Stopping bool
	Stopped  bool // an operator has stopped the group, which has no processes until [launcher.Manager.StartGroup]
	// Unrecorded has the ids of processes to be kept that end with the launcher nevertheless,
	// because the state file cannot be written, or because the pipes for their output could not be
	// made.
	Unrecorded []string
	StopsAfter []string         // while the group stops: names of the groups that depend on it and still have processes
	Processes  []process.Status // processes that exist, oldest first, then processes that have ended, latest last
}

// Health returns the condition of the group. If failing is true, the state file cannot be written;
// then Health names the processes that are missing from the file.
func (c *Controller) Health(now time.Time, failing bool) Health {
	cfg, desired := c.Config(), c.desired()
	short := c.revisions.Wanted().Shortfall
	if !cfg.Job && !short.Stopped {
		desired += short.Finished // in a service, a process that has ended and is not replaced counts as missing
	}
	h := Health{Group: c.name, Desired: desired, MinHealthy: cfg.MinHealthyOf(desired), Total: len(c.instances), Revision: c.revisions.Current,
		GivenUp: c.backOff.GivenUp, Missing: c.degraded.missing, Roll: c.rollStatus(now), Stopping: c.stopping, Stopped: short.Stopped}
	newest := c.revisions.Current
	if c.roll != nil {
		newest = c.roll.Destination()
	}
	var withoutPipes []string
	for _, i := range c.instances.sorted() {
		st := i.Status()
		if isAvailable(st, now, cfg.MinReady) && !i.accounted {
			h.Ready++
			if st.Revision == newest {
				h.Updated++
			}
		}
		h.Processes = append(h.Processes, st)
		switch {
		case i.IsWithoutPipes():
			withoutPipes = append(withoutPipes, i.ID())
		case failing && i.IsUnrecorded():
			h.Unrecorded = append(h.Unrecorded, i.ID())
		}
	}
	h.Processes = append(h.Processes, c.ended...)
	h.Healthy = !h.GivenUp && h.Ready >= h.MinHealthy && (h.Ready > 0 || h.Desired == 0)
	h.Message = c.healthMessage(h, now)
	if len(h.Unrecorded) > 0 {
		h.Message = extend(h.Message, "the next launcher cannot adopt %s, because the state file cannot be written", strings.Join(h.Unrecorded, ", "))
	}
	if len(withoutPipes) > 0 {
		h.Message = extend(h.Message, "the next launcher cannot adopt %s, because the pipes for the output could not be made; launcher restart %s replaces the processes without pipes",
			strings.Join(withoutPipes, ", "), c.name)
		h.Unrecorded = append(h.Unrecorded, withoutPipes...)
	}
	return h
}

// healthMessage returns the Message of a Health.
func (c *Controller) healthMessage(h Health, now time.Time) (message string) {
	if c.stopping {
		return "stopping"
	}
	short := c.revisions.Wanted().Shortfall
	// unreplaced is the number of desired processes that do not have the wanted revision. After a
	// degraded roll it falls whenever a process with an old revision ends, because its successor
	// has the wanted one.
	unreplaced := c.desired() - c.instances.liveOf(c.revisions.Current)
	switch {
	case short.Stopped:
		return "stopped by an operator; launcher start " + c.name + " starts it"
	case h.GivenUp:
		message = c.givenUpError().Rule()
	case c.roll != nil:
		message = fmt.Sprintf("%s; %d of %d replaced", h.Roll, h.Updated, h.Desired)
	case c.degraded.givenUp > 0 && unreplaced > 0:
		message = fmt.Sprintf("degraded: %d of %d could not be replaced; restart the group when that is fixed", min(c.degraded.givenUp, unreplaced), h.Desired)
	case short.Finished > 0:
		message = short.Message(c.desired(), *c.Config())
	case len(c.waitsFor) > 0:
		message = "waits for " + strings.Join(c.waitsFor, ", ")
	case now.Before(c.backOff.NotBefore):
		message = fmt.Sprintf("%s; the next start is in %v", inARow(c.backOff.Failures), c.backOff.NotBefore.Sub(now).Round(time.Millisecond))
	}
	switch n := short.ScaledDown; {
	case n > 0:
		message = extend(message, "an operator has scaled the group down by %d from desired_instances (%d)", n, c.Config().Desired)
	case n < 0:
		message = extend(message, "an operator has scaled the group up by %d from desired_instances (%d)", -n, c.Config().Desired)
	}
	return message
}

// extend returns a message with one more statement at its end. The message can be empty.
func extend(message, format string, args ...any) string {
	return strings.TrimPrefix(message+"; "+fmt.Sprintf(format, args...), "; ")
}

// isAvailable reports whether a process counts as available: ready and routed for minReady.
func isAvailable(s process.Status, now time.Time, minReady time.Duration) bool {
	return s.State == lifecycle.Ready && s.Routed && !now.Before(s.ReadyAt.Add(minReady))
}
