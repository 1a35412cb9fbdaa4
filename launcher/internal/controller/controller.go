// Package controller decides for one group which processes it has. A [Controller] connects the
// packages that decide about a part of that to processes: package roll decides what a roll does
// next, package restart whether and when a process that has ended is replaced, and package revision
// has the configurations of the group.
package controller

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/launcher/internal/canary"
	"github.com/swansong-go/swansong/launcher/internal/events"
	"github.com/swansong-go/swansong/launcher/internal/lifecycle"
	"github.com/swansong-go/swansong/launcher/internal/process"
	"github.com/swansong-go/swansong/launcher/internal/restart"
	"github.com/swansong-go/swansong/launcher/internal/revision"
	"github.com/swansong-go/swansong/launcher/internal/roll"
	"github.com/swansong-go/swansong/launcher/internal/spec"
	"github.com/swansong-go/swansong/launcher/internal/statefile"
)

// A Host does what a Controller decides. The Controller is locked while it calls the methods, so
// they must not wait for a process, which may be about to tell the Controller something.
type Host interface {
	// Publish publishes an event of the group.
	Publish(events.Event)
	// Start starts a process. It returns false if the group is stopping.
	Start(id string, revision int, cfg spec.Group) (Process, bool)
	// Adopt watches a process that an earlier launcher has started. It returns false if the group
	// is stopping.
	Adopt(found *statefile.Process, cfg spec.Group) (Process, bool)
	// Stop begins to stop a process.
	Stop(p Process, reason string)
	// Forget removes what is kept of a process that has ended: its status, and log files of its
	// own.
	Forget(id string)
	// Record has the state file written. The Controller calls it when something about the group has
	// changed that is in the state file.
	Record()
	// Check begins a check of the canaries. The function cancel ends the check early. When the
	// check has ended, the Host locks the Controller and calls the function done. It passes the
	// reason why the canaries have failed, or "" if they have passed, or an error if the check gave
	// no answer.
	Check(k canary.Check, done func(failed string, err error)) (cancel func())
}

// A Controller decides which processes a group has: how many, of which revision, and what to start
// or to stop next. It keeps as many as are desired, replaces those that fail, and replaces all of
// them in a roll. It waits for nothing, and uses processes only through its Host.
//
// The mutex guards everything that a Controller has. The caller holds it during each call of a
// method, and can make several calls that belong together. The results of the methods are copies,
// except for [Controller.Config].
type Controller struct {
	sync.Mutex
	name  string
	host  Host
	epoch time.Time // package roll uses no clock: the times that it is given are durations since epoch

	revisions revision.Set
	instances instances
	ended     []process.Status // statuses of processes that have ended, the latest last
	// unadopted has the processes that have outlived an earlier launcher, and are not adopted yet.
	unadopted  []*statefile.Process
	lastNumber int // the number in the id of the process that was started last

	backOff     restart.BackOff
	lastFailure string        // the failure after which the group was given up
	roll        *roll.Roll    // nil if no roll is under way or paused
	rollResult  *Result       // callers that ordered the roll wait for this result; nil if roll is nil
	checks      *canaryChecks // nil unless the roll waits for canaries that are checked
	degraded    degradation
	pending     []pendingOrder

	// awaitsDependencies is set until the groups that this one depends on meet their conditions.
	// Until then, no process is started.
	awaitsDependencies bool
	// waitsFor has the names of the groups in DependsOn that do not meet their conditions yet.
	waitsFor []string
	stopping bool
	healthy  bool // whether the last health event said that the group is healthy
	finished bool // whether the group was finished when publishHealth was last called

	handed  map[string]InstanceHandoff // what another program has handed over in an upgrade, by id of the process; nil without an upgrade
	changed *revision.Revision         // the configuration that was changed by an upgrade and has not been applied yet; nil if there is none
}

// A degradation says how many processes the last roll could not replace.
type degradation struct {
	givenUp int // number of processes that the roll gave up replacing
	// missing is by how many processes the group is smaller than desired, because the roll has
	// given up replacing some.
	missing int
}

// KeptStatuses is the number of ended processes of a group whose status, and whose files in
// LogConfig.Dir, are kept.
const KeptStatuses = 32

// New returns the controller of a group that has never run.
func New(cfg spec.Group, source any, host Host) *Controller {
	return &Controller{
		name: cfg.Name, host: host, epoch: time.Now(), awaitsDependencies: true,
		revisions: revision.Set{Current: 1, ByNumber: map[int]*revision.Revision{1: {Config: cfg, Source: source}}},
		instances: instances{},
	}
}

// Config returns the configuration that the group wants, which the caller must not change. After a
// failed roll, that is the configuration from before the roll.
func (c *Controller) Config() *spec.Group { return &c.revisions.Wanted().Config }

// Source returns the Source of the launcher.Config with which the wanted configuration was loaded.
func (c *Controller) Source() any { return c.revisions.Wanted().Source }

// SetSource sets the Source of the launcher.Config with which the wanted configuration was loaded
// again.
func (c *Controller) SetSource(source any) { c.revisions.Wanted().Source = source }

// Processes returns the processes that exist, oldest first.
func (c *Controller) Processes() (all []Process) {
	for _, i := range c.instances.sorted() {
		all = append(all, i.Process)
	}
	return all
}

// Ended returns the statuses of processes that have ended and are remembered, the latest last.
func (c *Controller) Ended() []process.Status { return slices.Clone(c.ended) }

// Close makes the group start and replace nothing any more.
func (c *Controller) Close() {
	c.stopping = true
	c.endRoll(&RollError{Group: c.name, Cause: ctxshutdown.ErrShutdown})
}

// IsClosed reports whether Close has been called.
func (c *Controller) IsClosed() bool { return c.stopping }

// Reconcile starts and stops processes until nothing is left to do. It returns the time at which it
// must be called again if nothing changes before. The zero time means that no other call is needed.
func (c *Controller) Reconcile(now time.Time) (next time.Time) {
	again := func(t time.Time) {
		if t.After(now) && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	c.observeReady(now, again)
	for acting := true; acting; {
		switch a := c.next(now); a.Do {
		case roll.Start:
			acting = c.start(c.revisionToStart(a.Version))
		case roll.Stop:
			c.stop(c.instances[a.ID], a.Why, a.Surplus)
		case roll.Wait:
			acting = false
			if a.Until > 0 {
				again(c.epoch.Add(a.Until))
			}
		}
	}
	c.checkCanaries(now, again)
	if !c.backOff.GivenUp {
		again(c.backOff.NotBefore)
	}
	h := c.Health(now, false)
	c.publishHealth(h)
	c.settleOrders(h)
	return next
}

// publishHealth publishes whether the group has become healthy, unhealthy or finished.
func (c *Controller) publishHealth(h Health) {
	if h.Healthy != c.healthy {
		c.healthy = h.Healthy
		kind := events.GroupUnhealthy
		if h.Healthy {
			kind = events.GroupHealthy
		}
		c.host.Publish(events.Event{Kind: kind, Message: fmt.Sprintf("%d of %d ready", h.Ready, h.Desired)})
	}
	if finished := c.IsFinished(); finished != c.finished {
		c.finished = finished
		if finished {
			c.host.Publish(events.Event{Kind: events.GroupFinished, Message: h.Message})
		}
	}
}

// desired returns how many processes there should be.
func (c *Controller) desired() int { return c.revisions.Wanted().Desired() }

func (c *Controller) newID() string {
	c.lastNumber++
	return fmt.Sprintf("%s-%d", c.name, c.lastNumber)
}

// isUnstarted reports whether no process has been started or adopted yet, so that there is nothing
// to replace.
func (c *Controller) isUnstarted() bool {
	return c.awaitsDependencies && len(c.instances) == 0 && len(c.unadopted) == 0
}

// isRolling reports whether a roll is under way, and not paused.
func (c *Controller) isRolling() bool { return c.roll != nil && !c.roll.Paused() }

// observeReady forgets earlier failures once a process has been ready for Restart.ResetAfter. For
// each ready process it calls the parameter again with two times, at which Reconcile must be called
// again: when the process becomes available, and when failures may be forgotten.
func (c *Controller) observeReady(now time.Time, again func(time.Time)) {
	cfg := c.Config()
	for _, i := range c.instances {
		st := i.Status()
		if st.State != lifecycle.Ready || i.accounted {
			continue
		}
		again(st.ReadyAt.Add(cfg.MinReady))
		if b := &c.backOff; b.Failures > 0 && !b.GivenUp && b.CanEndRow(st.ReadyAt) {
			stable := st.ReadyAt.Add(cfg.Restart.ResetAfter)
			again(stable)
			if !stable.After(now) {
				b.EndRow()
			}
		}
	}
}

// next returns the next action: a process to start or to stop, or a time to wait for.
func (c *Controller) next(now time.Time) roll.Action {
	noStart := c.backOff.PreventsStart(now)
	for c.isRolling() {
		if a, ok := c.advanceRoll(now); ok {
			return a
		}
	}
	rules := c.Config().RollConfig(c.desired() - c.degraded.missing)
	if c.Config().Job {
		rules.MaxSurge = 0 // a run of a job begins when the processes of the run before have ended
	}
	a := roll.Keep(rules, c.view(now), c.roll != nil)
	if a.Do == roll.Start && noStart {
		return roll.Action{}
	}
	a.Version = c.versionOf(c.revisions.Current)
	return a
}

// view returns the group as package roll sees it.
func (c *Controller) view(now time.Time) roll.View {
	v := roll.View{Now: now.Sub(c.epoch), NoOldStart: c.backOff.PreventsStart(now)}
	for _, p := range c.instances.sorted() {
		st := p.Status()
		i := roll.Instance{ID: p.ID(), Revision: p.Revision(), Version: c.versionOf(p.Revision())}
		switch {
		// An unhealthy process counts as stopping once the group has stopped it or has decided
		// about its replacement (accounted).
		case p.accounted, st.State > lifecycle.Unhealthy && !st.State.Ended():
			i.Health = roll.Stopping
		case st.State >= lifecycle.Unhealthy: // onExit, which is called later, decides whether the process is replaced
		case st.State == lifecycle.Ready && st.Routed:
			i.Health, i.Since = roll.Ready, st.ReadyAt.Sub(c.epoch)
		}
		v.Instances = append(v.Instances, i)
	}
	return v
}

// versionOf returns whether a revision counts as old or new in the roll. Without a roll the wanted
// revision is new and every other one is old.
func (c *Controller) versionOf(revision int) roll.Version {
	if c.roll != nil {
		return c.roll.VersionOf(revision)
	}
	if revision == c.revisions.Current {
		return roll.New
	}
	return roll.Old
}

// revisionToStart returns the revision of a process to start.
func (c *Controller) revisionToStart(v roll.Version) int {
	if c.roll != nil {
		return c.roll.RevisionOf(v)
	}
	return c.revisions.Current
}

// start starts a process of a revision. It returns false if the group is stopping.
func (c *Controller) start(revision int) bool {
	p, ok := c.host.Start(c.newID(), revision, c.revisions.ByNumber[revision].Config)
	if ok {
		c.instances.add(p)
	}
	return ok
}

// stop stops a process, whose exit is then no failure. With noReplacement, no other process is
// started in its place. If a roll replaces the process, the reason for the stop names the revision
// that takes its place.
func (c *Controller) stop(i *instance, reason string, noReplacement bool) {
	if c.roll != nil && i.Revision() != c.revisions.Current {
		reason = fmt.Sprintf("%s by revision %d", reason, c.revisions.Current)
		if c.roll.Reason != "" {
			reason += ": " + c.roll.Reason
		}
	}
	i.accounted = true
	i.noReplacement = i.noReplacement || noReplacement
	c.host.Stop(i.Process, reason)
}

// forgetFailures resets what the controller has counted of earlier failures. It is called when an
// operator gives an order.
func (c *Controller) forgetFailures() {
	c.backOff = restart.BackOff{}
	c.degraded = degradation{}
}
