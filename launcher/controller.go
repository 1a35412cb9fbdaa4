package launcher

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/swansong-go/swansong/launcher/internal/process"
	"github.com/swansong-go/swansong/launcher/internal/restart"
	"github.com/swansong-go/swansong/launcher/internal/revision"
	"github.com/swansong-go/swansong/launcher/internal/roll"
	"github.com/swansong-go/swansong/launcher/internal/spec"
	"github.com/swansong-go/swansong/launcher/internal/statefile"
)

// A controller decides which processes a group has: how many, of which revision, and what to start
// or to stop next. It keeps as many as are desired, replaces those that fail, and replaces all of
// them in a roll; the arithmetic is that of package roll. It starts nothing and waits for nothing.
// The group calls it with group.mu held.
type controller struct {
	name    string
	publish func(Event) // publishes an event of the group
	epoch   time.Time   // package roll counts its instants from here

	revisions  revision.Set
	instances  instances
	ended      []Status             // statuses of processes that have ended, the latest last
	unadopted  []*statefile.Process // processes kept by an earlier launcher and not adopted yet
	lastNumber int                  // the number in the id of the process that was started last

	backOff     restart.BackOff
	lastFailure string        // the failure after which the group was given up
	roll        *roll.Roll    // nil if no roll is under way or paused
	rollResult  *rollResult   // callers that ordered the roll wait for this result; nil if roll is nil
	checks      *canaryChecks // nil unless the roll waits for canaries that are checked
	degraded    degradation
	orders      []order // orders that callers wait for

	awaitsDependencies bool     // if set, no process is started until the groups that this one depends on are healthy
	waitsFor           []string // names of the groups in DependsOn that are not healthy
	stopping           bool
	healthy            bool // whether the last health event said that the group is healthy
	finished           bool // an event has said that the group is finished, which has not changed since

	handed  map[string]instanceHandoff // what another program has handed over in an upgrade, by id of the process; nil without an upgrade
	changed *revision.Revision         // the configuration that was changed by an upgrade and has not been applied yet; nil if there is none
}

// A degradation is what the last roll could not replace.
type degradation struct {
	givenUp int // number of processes that were given up
	missing int // number of processes that the group has fewer than are desired, because of givenUp
}

// keptStatuses is the number of ended processes of a group whose status, and whose files in
// LogConfig.Dir, are kept.
const keptStatuses = 32

func newController(cfg spec.Group, source any, publish func(Event)) *controller {
	return &controller{
		name: cfg.Name, publish: publish, epoch: time.Now(), awaitsDependencies: true,
		revisions: revision.Set{Current: 1, ByNumber: map[int]*revision.Revision{1: {Config: cfg, Source: source}}},
		instances: instances{},
	}
}

// config returns the wanted configuration.
func (c *controller) config() *spec.Group { return &c.revisions.Wanted().Config }

// desired returns how many processes there should be.
func (c *controller) desired() int { return c.revisions.Wanted().Desired() }

func (c *controller) newID() string {
	c.lastNumber++
	return fmt.Sprintf("%s-%d", c.name, c.lastNumber)
}

// isUnstarted reports whether no process has been started or adopted yet, so that there is nothing
// to replace.
func (c *controller) isUnstarted() bool {
	return c.awaitsDependencies && len(c.instances) == 0 && len(c.unadopted) == 0
}

// isRolling reports whether a roll is under way, and not paused.
func (c *controller) isRolling() bool { return c.roll != nil && !c.roll.Paused() }

// observeReady ends the row of failures once a process has been ready for long. It calls again with
// the times when a ready process becomes available, or may end the row.
func (c *controller) observeReady(now time.Time, again func(time.Time)) {
	cfg := c.config()
	for _, i := range c.instances {
		st := i.Status()
		if st.State != Ready || i.accounted {
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

// next returns what to do next.
func (c *controller) next(now time.Time) roll.Action {
	noStart := c.backOff.PreventsStart(now)
	for c.isRolling() {
		if a, ok := c.advanceRoll(now); ok {
			return a
		}
	}
	rules := c.config().RollConfig(c.desired() - c.degraded.missing)
	if c.config().Job {
		rules.MaxSurge = 0 // a run begins when the processes of the earlier one have ended
	}
	a := roll.Keep(rules, c.view(now), c.roll != nil)
	if a.Do == roll.Start && noStart {
		return roll.Action{}
	}
	a.Version = c.versionOf(c.revisions.Current)
	return a
}

// view returns the group as package roll sees it.
func (c *controller) view(now time.Time) roll.View {
	v := roll.View{Now: now.Sub(c.epoch), NoOldStart: c.backOff.PreventsStart(now)}
	for _, p := range c.instances.sorted() {
		st := p.Status()
		i := roll.Instance{ID: p.ID(), Revision: p.Revision(), Version: c.versionOf(p.Revision())}
		switch {
		case p.accounted, st.State > Unhealthy && !st.State.Ended(): // an unhealthy process is being stopped
			i.Health = roll.Stopping
		case st.State >= Unhealthy: // onExit decides later whether this process is replaced
		case st.State == Ready && st.Routed:
			i.Health, i.Since = roll.Ready, st.ReadyAt.Sub(c.epoch)
		}
		v.Instances = append(v.Instances, i)
	}
	return v
}

// versionOf returns what a revision is to the roll. Without a roll the wanted revision is new and
// every other one is old.
func (c *controller) versionOf(revision int) roll.Version {
	if c.roll != nil {
		return c.roll.VersionOf(revision)
	}
	if revision == c.revisions.Current {
		return roll.New
	}
	return roll.Old
}

// revisionToStart returns the revision of a process to start.
func (c *controller) revisionToStart(v roll.Version) int {
	if c.roll != nil {
		return c.roll.RevisionOf(v)
	}
	return c.revisions.Current
}

// onStop records that a process is being stopped as package roll has decided, and returns it with
// the reason to give.
func (c *controller) onStop(a roll.Action) (p instanceProcess, reason string) {
	i, reason := c.instances[a.ID], a.Why
	if c.roll != nil && i.Revision() != c.revisions.Current {
		reason = fmt.Sprintf("%s by revision %d", reason, c.revisions.Current)
		if c.roll.Reason != "" {
			reason += ": " + c.roll.Reason
		}
	}
	i.accounted = true
	i.noReplacement = i.noReplacement || a.Why == roll.Surplus
	return i.instanceProcess, reason
}

// onStopOrder records that a process is being stopped by order. It returns true if the group has
// one process fewer because of that.
func (c *controller) onStopOrder(i *instance, replace bool) (scaledDown bool) {
	// An order also counts if the group is replacing the process: it has one fewer afterwards.
	if !replace && !i.noReplacement {
		i.noReplacement, scaledDown = true, true
		c.scaleDown(i)
	}
	i.accounted = true // a process that was stopped by order has not failed, however it ends
	return scaledDown
}

// scaleDown lowers the number of desired processes by one, for both revisions of a roll. A revision
// in which the process counts as finished is left alone, because it has one process fewer already.
func (c *controller) scaleDown(i *instance) {
	lower := func(number int) {
		if r := c.revisions.ByNumber[number]; r.Desired() > 0 && i.finishedIn != number {
			r.Shortfall.ScaledDown++
		}
	}
	lower(c.revisions.Current)
	if c.roll == nil {
		return
	}
	c.roll.ScaleDown(c.revisions.Wanted().Rules(), c.view(time.Now()), i.ID())
	if !c.roll.OnlyForward() {
		lower(c.roll.Other())
	}
}

// finish counts a process as finished in the wanted revision.
func (c *controller) finish(i *instance, failed bool) {
	i.finishedIn = c.revisions.Current
	c.revisions.Wanted().Finish(failed)
}

// forgetFailures prepares for an order: what failed before counts no more.
func (c *controller) forgetFailures() {
	c.backOff = restart.BackOff{}
	c.degraded = degradation{}
}

// turnsBackTo reports whether a roll is under way that comes from a configuration with the same
// processes and leads to one with others, so that the roll only has to turn back.
func (c *controller) turnsBackTo(cfg spec.Group) bool {
	r := c.roll
	return c.isRolling() && r.Forward() && !r.OnlyForward() && !c.config().SameProcess(cfg) && c.revisions.ByNumber[r.From].Config.SameProcess(cfg)
}

// apply changes the configuration that the group wants to cfg, with which the running processes can
// continue, and a roll, too. It returns the processes that must get the new configuration.
func (c *controller) apply(cfg spec.Group) (tell []instanceProcess) {
	wanted := c.revisions.Wanted()
	if cfg.Desired != wanted.Config.Desired {
		wanted.Shortfall = wanted.Shortfall.Orders(false)
	}
	wanted.Config, c.degraded = cfg, degradation{}
	if c.roll != nil { // a rollback does not bring back DependsOn, see startRoll
		c.revisions.ByNumber[c.roll.From].Config.DependsOn = cfg.DependsOn
	}
	if c.backOff.GivenUp {
		c.forgetFailures()
	}
	for _, i := range c.instances.sorted() {
		if i.Revision() == c.revisions.Current {
			tell = append(tell, i.instanceProcess)
		}
	}
	return tell
}

// An instanceProcess is a [process.Process], or what stands for one in a test.
type instanceProcess interface {
	ID() string
	Revision() int
	Started() time.Time
	Status() process.Status
	Config() *spec.Group
	IsUnprepared() bool
	IsUnrecorded() bool
	Record() *statefile.Process
	AddIdentity(*statefile.Process)
	Apply(spec.Group)
	Stop(reason string, grace time.Duration)
	Reaped() <-chan struct{}
}

// instances are the processes of a group by id. A process is listed until it has been reaped, so
// that a roll counts those that are stopping.
type instances map[string]*instance

// An instance is a process with what its group remembers of it. The group's lock guards the fields.
type instance struct {
	instanceProcess
	accounted     bool // the exit of the process changes nothing any more: the group has stopped it, or has handled its exit
	noReplacement bool // do not start another process in its place: a user has ordered its stop, or the group had too many
	finishedIn    int  // the revision in whose Shortfall the process counts as finished; 0: in none
}

func (all instances) add(p instanceProcess) { all[p.ID()] = &instance{instanceProcess: p} }

// of returns the instance of a process, nil if the process has been reaped.
func (all instances) of(p instanceProcess) *instance {
	if i := all[p.ID()]; i != nil && i.instanceProcess == p {
		return i
	}
	return nil
}

// sorted returns the instances, oldest first.
func (all instances) sorted() []*instance {
	list := slices.Collect(maps.Values(all))
	slices.SortFunc(list, func(a, b *instance) int { return a.Started().Compare(b.Started()) })
	return list
}

// live returns the number of instances that are to keep running.
func (all instances) live() (n int) {
	for _, i := range all {
		if !i.accounted {
			n++
		}
	}
	return n
}

// liveOf returns the number of instances of a revision that are to keep running.
func (all instances) liveOf(revision int) (n int) {
	for _, i := range all {
		if i.Revision() == revision && !i.accounted {
			n++
		}
	}
	return n
}

// isAvailable reports whether a process counts as available: ready and routed for minReady.
func isAvailable(s Status, now time.Time, minReady time.Duration) bool {
	return s.State == Ready && s.Routed && !now.Before(s.ReadyAt.Add(minReady))
}

// failureOf says what is wrong with the process.
func failureOf(s Status) string {
	if s.State == Unhealthy {
		return s.Reason
	}
	return strings.TrimSuffix(fmt.Sprintf("%v: %s", s.Outcome, s.Message), ": ")
}
