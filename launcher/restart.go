package launcher

import (
	"fmt"
	"time"

	"github.com/swansong-go/swansong/launcher/internal/roll"
)

// lost decides, once for each process that the group has not stopped itself, whether and when another one takes its place.
func (g *group) lost(p *process, st Status) {
	if g.excused[p.id] || g.stopping {
		return
	}
	g.excused[p.id] = true
	rolls := g.roll != nil && !g.roll.state.Paused
	if p.withheld && !rolls { // for the roll it is one that has failed, as whatever keeps it from coming forward
		g.putOff(st)
		return
	}
	failed := st.State == Unhealthy || st.Outcome != Clean
	drained := !st.Asked.IsZero() && st.State != Unhealthy // by itself
	policy := p.rules().Restart.Policy
	last := policy == Never || policy == OnFailure && !failed // of its place
	r := g.roll
	if r != nil {
		version := g.versionOf(p.revision)
		// A new one that has done what it was there for, before the roll was over or has even seen that it was ready, is no failure. But
		// where the policy only allows that, and those before it ran, it is: a server that ends at once would take the place of all.
		if rolls && version == r.target() && last && !failed && !drained && (policy == Never || r.mayComplete) {
			g.ends(p, g.revision, false)
			r.completed(time.Since(g.begun))
			return
		}
		// Others are no reason why a roll does not come forward, nor why it is paused. Nor is one whose end nobody can know: an earlier
		// launcher has started it, and may have been stopping it when it died. Should it have failed by itself, the next one will. But a
		// job may have done its work, and is not done again without an order.
		unknown := st.Outcome == Unknown && policy != Never
		if rolls && version == r.target() && !unknown && (st.State == Unhealthy || st.Asked.IsZero()) {
			r.count(version, p.id, st)
		}
		if rolls && !g.rollsPast(p) {
			return
		}
	}
	switch {
	case !failed && !st.Asked.IsZero(), policy == Never && drained && !st.ReadyAt.IsZero():
		// Somebody has stopped it; another one has taken its place at once.
	case policy == Never && failed && st.ReadyAt.IsZero() && !rolls:
		// A group with nobody in it would be healthy, and what has never worked is not.
		g.failures++
		g.failedAt = time.Now()
		g.giveUp(st)
		return
	case last:
		if rolls { // the successors of the old ones are as many as are desired; should it turn back, there is none
			if !failed || !st.ReadyAt.IsZero() { // what has never worked is not through
				g.ends(p, g.otherRevision(), failed)
			}
			return
		}
		g.ends(p, g.revision, failed)
		if r != nil && p.revision == r.to && !r.onlyForward() { // nor when it goes on
			g.ends(p, g.otherRevision(), failed)
		}
		if r != nil && !failed && g.versionOf(p.revision) == r.target() {
			r.completed(time.Since(g.begun))
		}
		return
	default:
		g.backOff(st)
	}
	if rolls {
		g.vacant++
	}
}

// runs reports whether there is a process that is to go on.
func (g *group) runs() bool {
	for id := range g.all {
		if !g.excused[id] {
			return true
		}
	}
	return false
}

// rollsPast reports whether the group is being rolled, and the roll has yet to come to the process, and so does not see to
// it if another one is to take its place. All else it sees to, or wants gone; and where no other one of its kind can be
// started, new ones take the places of the old.
func (g *group) rollsPast(p *process) bool {
	r := g.roll
	return r != nil && !r.state.Paused && !r.onlyForward() && g.versionOf(p.revision) == roll.Old && r.target() == roll.New
}

// backOff counts a failure, and puts off the next start.
func (g *group) backOff(st Status) {
	policy := g.cfg.Restart
	stable := !st.ReadyAt.IsZero() && time.Since(st.ReadyAt) >= policy.ResetAfter
	if stable && g.endsRow(st) {
		g.failures = 0
	}
	if !stable || g.failures == 0 { // one that had been sound for long is not one more start that came to nothing
		g.failures++
	}
	g.failedAt = time.Now()
	if policy.CrashLimit > 0 && g.failures >= policy.CrashLimit {
		g.giveUp(st)
		return
	}
	g.startIn(policy.backoff(g.failures), st.ID, fmt.Sprintf("failure %d in a row", g.failures))
}

// putOff puts off the next start after one that the launcher has not come to make: that says nothing about the processes.
func (g *group) putOff(st Status) {
	g.withheld++
	g.startIn(g.cfg.Restart.backoff(g.withheld), st.ID, "not started, which counts as no failure")
}

func (g *group) startIn(wait time.Duration, after, why string) {
	g.notBefore = time.Now().Add(wait)
	g.tell(Event{Kind: Restart, Process: after, Message: fmt.Sprintf("%s; another one is started in %v", why, wait)})
}

// backoff is the pause after the n-th in a row.
func (c RestartConfig) backoff(n int) time.Duration {
	wait := c.MinBackoff
	for ; n > 1 && wait < c.MaxBackoff; n-- {
		wait *= 2
	}
	return min(wait, c.MaxBackoff)
}

// endsRow reports whether a process can end the row of failures by being ready for long: one that was before the last of them
// says nothing about those that are started now.
func (g *group) endsRow(st Status) bool { return st.ReadyAt.After(g.failedAt) }

func (g *group) giveUp(st Status) {
	g.givenUp, g.lastError = true, st.ID+": "+st.complaint()
	g.tell(Event{Kind: Alarm, Message: g.lostHope().Rule()})
}

// A GivenUpError says that the processes of a group have failed too often to be started again.
type GivenUpError struct {
	Group    string
	Failures int    // in a row
	Last     string // who has failed last, and of what
}

// Rule says what has happened, and what to do.
func (e *GivenUpError) Rule() string {
	return fmt.Sprintf("given up after %s; the last: %s; restart the group when that is mended", inARow(e.Failures), e.Last)
}

func inARow(failures int) string {
	if failures == 1 {
		return "a failure"
	}
	return fmt.Sprintf("%d failures in a row", failures)
}

func (e *GivenUpError) Error() string {
	return fmt.Sprintf("launcher: group %q: %s", e.Group, e.Rule())
}

func (g *group) lostHope() *GivenUpError { return &GivenUpError{g.name, g.failures, g.lastError} }

// hopeless returns a *GivenUpError if the group was given up.
func (g *group) hopeless() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.givenUp {
		return g.lostHope()
	}
	return nil
}
