package launcher

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Health is how a group is.
type Health struct {
	Group      string
	Desired    int
	MinHealthy int
	Ready      int // available, that is ready for long enough
	Updated    int // of those, so many are of the revision that the group has, or that a roll leads to
	Total      int // with those that are shutting down
	Healthy    bool
	GivenUp    bool // too many processes have failed; it takes a restart of the group
	Revision   int
	Message    string      // what is wrong, or under way
	Missing    int         // fewer than Desired, since a roll with [Continue] could not replace them
	Roll       *RollStatus // nil: none is under way, or paused
	Stopping   bool
	StopsAfter []string // where it is Stopping, groups that need it, and are not gone yet
	Processes  []Status // those that run, oldest first, then those that have ended, latest last
}

func (g *group) health() Health {
	g.mu.Lock()
	h := g.healthLocked(time.Now())
	g.mu.Unlock()
	if !h.Stopping {
		return h
	}
	for _, other := range g.manager.allGroups() { // with no more than one group locked
		if slices.Contains(other.config().DependsOn, g.name) && !other.empty() {
			h.StopsAfter = append(h.StopsAfter, other.name)
		}
	}
	if len(h.StopsAfter) > 0 {
		h.Message = "stopping, after " + strings.Join(h.StopsAfter, ", ")
	}
	return h
}

// empty reports whether the group has been stopped, and its last process is gone.
func (g *group) empty() bool {
	select {
	case <-g.emptied:
		return true
	default:
		return false
	}
}

func (g *group) healthLocked(now time.Time) Health {
	h := Health{Group: g.name, Desired: g.desired(), MinHealthy: min(*g.cfg.MinHealthy, g.desired()), Total: len(g.all), Revision: g.revision,
		Missing: g.missing, Roll: g.rollStatus(now), Stopping: g.stopping}
	newest := g.revision
	if g.roll != nil {
		newest = g.roll.leadsTo()
	}
	unreplaced := h.Desired
	for _, p := range g.sorted() {
		if p.revision == g.revision && !g.excused[p.id] {
			unreplaced--
		}
		st := p.snapshot()
		if st.available(now, g.cfg.MinReady) && !g.excused[p.id] {
			h.Ready++
			if st.Revision == newest {
				h.Updated++
			}
		}
		h.Processes = append(h.Processes, st)
	}
	h.Processes = append(h.Processes, g.recent...)
	h.GivenUp = g.givenUp
	h.Healthy = !g.givenUp && h.Ready >= h.MinHealthy && (h.Ready > 0 || h.Desired == 0)
	switch {
	case g.stopping:
		h.Message = "stopping"
	case g.givenUp:
		h.Message = g.lostHope().Rule()
	case g.roll != nil:
		h.Message = fmt.Sprintf("%s; %d of %d replaced", h.Roll, h.Updated, h.Desired)
	case g.givenUpOn > 0 && unreplaced > 0: // those that have ended since have successors
		h.Message = fmt.Sprintf("degraded: %d of %d could not be replaced; restart the group when that is mended", min(g.givenUpOn, unreplaced), h.Desired)
	case g.short.through > 0:
		h.Message = g.completion()
	case len(g.waitsFor) > 0:
		h.Message = "waits for " + strings.Join(g.waitsFor, ", ")
	case now.Before(g.notBefore):
		h.Message = fmt.Sprintf("%s; the next start is in %v", inARow(g.failures), g.notBefore.Sub(now).Round(time.Millisecond))
	}
	if n := g.short.fewer; n > 0 && !g.stopping {
		h.Message = strings.TrimPrefix(fmt.Sprintf("%s; %d fewer than desired_instances, %d, by order", h.Message, n, g.cfg.Desired), "; ")
	}
	return h
}

// completion says why there are fewer than were configured, although nothing is wrong.
func (g *group) completion() string {
	through := g.short.through
	s := fmt.Sprintf("%d of %d have ended for good", through, through+g.desired())
	if g.desired() == 0 {
		s = fmt.Sprintf("completed: all %d have ended", through)
	}
	if g.short.failed > 0 {
		s += fmt.Sprintf(", %d of them with a failure", g.short.failed)
	}
	return fmt.Sprintf("%s; by the restart policy, %s, nobody follows before an order", s, g.cfg.Restart.Policy)
}
