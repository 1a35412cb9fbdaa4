package launcher

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/launcher/internal/roll"
)

// A group keeps as many processes of one kind as are desired, replaces those that fail, and all of them in a roll.
//
// One goroutine, loop, starts processes and tells them to stop; it looks at what there is whenever something has changed,
// and does what package roll says. All else only changes fields, under mu, and wakes it. Invariants:
//
//   - Every process is in all until its machine has come to an end, so that roll counts those that are shutting down.
//   - revision is what a new process is of: in a roll what that leads to, unless it is paused or on its way back.
//   - vacant is 0 but in a roll on its way forward.
type group struct {
	manager *Manager
	name    string
	scope   *ctxshutdown.Swansong
	poke    chan struct{}
	emptied chan struct{} // closed when the group has been stopped and its last process is gone
	begun   time.Time     // package roll counts from here

	had *time.Duration // the manager's: of a group that a reload has dropped, the total deadline until then

	mu        sync.Mutex
	cfg       GroupConfig // of the revision that is wanted
	revision  int
	configs   map[int]GroupConfig // by revision: the wanted one, and the one that a roll comes from
	sources   map[int]any         // of those, the Source of the Config that they were loaded with
	all       map[string]*process
	found     []*rememberedProcess // kept by an earlier launcher, and not adopted yet
	recent    []Status             // of those that have ended, the latest last
	number    int                  // of the last process started
	roll      *rolling             // nil: none under way, or paused
	givenUpOn int                  // how many a roll could not replace
	missing   int                  // of those, fewer than desired
	short     shortfall
	vacant    int // processes that a roll has not come to yet, have failed, and are to be started again

	waits     bool      // until those that it depends on are healthy: its loop has yet to look
	waitsFor  []string  // those that are not
	failures  int       // in a row
	withheld  int       // starts in a row that the launcher has not come to make
	failedAt  time.Time // the last of them
	notBefore time.Time
	givenUp   bool // too many failures
	lastError string
	stopping  bool
	excused   map[string]bool // those whose end changes nothing any more: the group has told them to stop, or has lost them already
	healthy   bool            // as was told last
}

// A shortfall is why there are fewer processes than a configuration says, and nothing is wrong with that.
type shortfall struct {
	fewer   int // by order
	through int // since they have ended, and the restart policy has nobody follow them
	failed  int // of those, who have not ended well
}

// of is how many are left of those that are configured.
func (s shortfall) of(cfg GroupConfig) int { return max(0, cfg.Desired-s.fewer-s.through) }

// ends counts one that nobody follows.
func (s *shortfall) ends(cfg GroupConfig, failed bool) {
	if s.of(cfg) == 0 {
		return
	}
	s.through++
	if failed {
		s.failed++
	}
}

// desired is how many processes there shall be.
func (g *group) desired() int { return g.short.of(g.cfg) }

// recentKept is how many ended processes are remembered, and have their files in LogConfig.Dir kept.
const recentKept = 32

func newGroup(m *Manager, cfg GroupConfig, source any) *group {
	scope, _ := ctxshutdown.WithCancel(m.groupsScope, ctxshutdown.WithName(cfg.Name))
	return &group{
		manager: m, name: cfg.Name, scope: scope, poke: make(chan struct{}, 1), emptied: make(chan struct{}), begun: time.Now(),
		cfg: cfg, waits: true, revision: 1, configs: map[int]GroupConfig{1: cfg}, sources: map[int]any{1: source},
		all: map[string]*process{}, excused: map[string]bool{},
	}
}

func (g *group) wake() {
	select {
	case g.poke <- struct{}{}:
	default:
	}
}

// loop runs until the group has been told to stop and is empty.
func (g *group) loop() {
	defer close(g.emptied)
	g.settle()
	if !g.awaitDependencies() {
		g.close()
		return
	}
	g.replaceFound()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	stop := g.scope.Done()
	for {
		timer.Stop()
		if at := g.look(time.Now()); !at.IsZero() {
			timer.Reset(time.Until(at))
		}
		select {
		case <-g.poke:
		case <-timer.C:
		case <-stop:
			g.close()
			return
		}
	}
}

// awaitDependencies returns true when the groups that this one needs are healthy, and false if it is told to stop before.
func (g *group) awaitDependencies() bool {
	if g.begins(nil) {
		return g.scope.Err() == nil
	}
	events, stop := g.manager.events.watch()
	defer stop()
	for {
		var waitsFor []string
		needs := g.config().DependsOn // which a reload can change meanwhile
		for _, name := range needs {
			if !g.manager.healthy(name) {
				waitsFor = append(waitsFor, name)
			}
		}
		g.mu.Lock()
		g.waitsFor = waitsFor
		g.mu.Unlock()
		if len(waitsFor) == 0 && g.begins(needs) {
			return g.scope.Err() == nil
		}
		select {
		case <-events:
		case <-g.poke:
		case <-g.scope.Done():
			return false
		}
	}
}

// begins has the group begin, if these are the groups that it depends on.
func (g *group) begins(needs []string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !slices.Equal(g.cfg.DependsOn, needs) {
		return false
	}
	g.waits = false
	if g.roll != nil { // of processes that were adopted; nothing could come of it before
		g.roll.state.Progress = time.Since(g.begun)
	}
	return true
}

// unstarted reports whether nobody has been started yet, so that there is nobody to replace.
func (g *group) unstarted() bool { return g.waits && len(g.all) == 0 && len(g.found) == 0 }

// close stops all processes, once those who need them are gone, and returns when they are gone, too.
func (g *group) close() {
	g.mu.Lock()
	g.stopping = true
	g.endRoll(&RollError{Group: g.name, Cause: ctxshutdown.ErrShutdown})
	g.mu.Unlock()
	cut := g.scope.Work().Done()
	for _, other := range g.manager.allGroups() {
		if slices.Contains(other.config().DependsOn, g.name) {
			select {
			case <-other.emptied:
			case <-cut:
			}
		}
	}
	g.mu.Lock()
	left := slices.Collect(maps.Values(g.all))
	g.mu.Unlock()
	reason := g.whyItStops()
	for _, p := range left {
		go p.send(event{kind: evStop, reason: reason})
	}
	for _, p := range left {
		<-p.quit // and not p.over: a router may still be told of it, which is a guard of the scope
	}
}

func (g *group) whyItStops() string {
	g.manager.mu.Lock()
	defer g.manager.mu.Unlock()
	if g.had != nil {
		return "launcher: a reload has removed the group"
	}
	return "launcher: " + strings.TrimPrefix(context.Cause(g.scope).Error(), "launcher: ")
}

// look does what is to be done now, and returns when to look again, zero if nothing is known to be due.
func (g *group) look(now time.Time) (again time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	later := func(t time.Time) {
		if t.After(now) && (again.IsZero() || t.Before(again)) {
			again = t
		}
	}
	for _, p := range g.all {
		st := p.snapshot()
		if st.State != Ready || g.excused[p.id] {
			continue
		}
		stable := st.ReadyAt.Add(g.cfg.Restart.ResetAfter)
		later(st.ReadyAt.Add(g.cfg.MinReady))
		if g.failures > 0 && !g.givenUp && g.endsRow(st) {
			later(stable)
			if !stable.After(now) {
				g.failures = 0
			}
		}
	}
	for acting := true; acting; {
		switch a := g.next(now); a.Do {
		case roll.Start:
			acting = g.start(g.revisionOf(a.Version))
		case roll.Stop:
			g.stop(a)
		case roll.Wait:
			acting = false
			if a.Until > 0 {
				later(g.begun.Add(a.Until))
			}
		}
	}
	if !g.givenUp {
		later(g.notBefore)
	}
	if h := g.healthLocked(now); h.Healthy != g.healthy {
		g.healthy = h.Healthy
		kind := GroupUnhealthy
		if h.Healthy {
			kind = GroupHealthy
		}
		g.tell(Event{Kind: kind, Message: fmt.Sprintf("%d of %d ready", h.Ready, h.Desired)})
	}
	return again
}

// next asks package roll.
func (g *group) next(now time.Time) roll.Action {
	hold := g.givenUp || now.Before(g.notBefore)
	for g.roll != nil && !g.roll.state.Paused {
		a, again := g.rollOn(now)
		switch {
		case again:
			continue
		case a.Do == roll.Stop && a.ID == "":
			g.vacant--
			continue
		case a.Do == roll.Wait && g.vacant > 0 && !hold && len(g.all) < g.desired()+*g.cfg.MaxSurge:
			g.vacant--
			return roll.Action{Do: roll.Start, Version: roll.Old}
		}
		return a
	}
	paused := g.roll != nil
	a := roll.Keep(g.cfg.arithmetic(g.desired()-g.missing), g.view(now), paused)
	if a.Do == roll.Start && hold {
		return roll.Action{}
	}
	a.Version = g.versionOf(g.revision)
	return a
}

// view is the group as package roll sees it.
func (g *group) view(now time.Time) roll.View {
	v := roll.View{Now: now.Sub(g.begun)}
	if g.roll != nil {
		v.Failures = g.roll.failures
	}
	for _, p := range g.sorted() {
		st := p.snapshot()
		i := roll.Instance{ID: p.id, Version: g.versionOf(p.revision)}
		switch {
		case g.excused[p.id], st.State > Unhealthy && !st.State.Ended(): // who is unhealthy stops by itself
			i.Health = roll.Stopping
		case st.State >= Unhealthy: // and lost has yet to say whether anybody is to take its place
		case st.State == Ready && st.Routed:
			i.Health, i.Since = roll.Ready, st.ReadyAt.Sub(g.begun)
		}
		v.Instances = append(v.Instances, i)
	}
	for range g.vacant {
		v.Instances = append(v.Instances, roll.Instance{Version: roll.Old, Health: roll.Starting})
	}
	return v
}

// versionOf says what a revision is to the roll, or, where there is none, whether it is the one that is wanted. There may be others
// than the two of the roll, of a paused one that was given up for it: they are not where it leads, be it on its way back.
func (g *group) versionOf(revision int) roll.Version {
	if r := g.roll; r != nil && r.target() == roll.Old {
		if revision == r.from {
			return roll.Old
		}
		return roll.New
	}
	to := g.revision
	if g.roll != nil {
		to = g.roll.to
	}
	if revision == to {
		return roll.New
	}
	return roll.Old
}

// revisionOf is the opposite of versionOf, for what is to be started.
func (g *group) revisionOf(v roll.Version) int {
	switch {
	case g.roll == nil:
		return g.revision
	case v == roll.New:
		return g.roll.to
	}
	return g.roll.from
}

// sorted returns the processes, oldest first.
func (g *group) sorted() []*process {
	all := slices.Collect(maps.Values(g.all))
	slices.SortFunc(all, func(a, b *process) int { return a.status.Started.Compare(b.status.Started) })
	return all
}

// start starts a process, and returns false if it is too late for that.
func (g *group) start(revision int) bool {
	g.number++
	return g.launch(newProcess(g.manager, g, fmt.Sprintf("%s-%d", g.name, g.number), revision, g.configs[revision]))
}

// launch runs a process, and returns false if it is too late for that.
func (g *group) launch(p *process) bool {
	guard, ok := g.scope.TryGuard()
	if !ok {
		return false
	}
	p.scope, _ = ctxshutdown.WithCancel(g.scope.Work(), ctxshutdown.WithName(p.id))
	g.all[p.id] = p
	g.manager.register(p)
	held := p.scope.Guard()
	guard.Release()
	go func() {
		p.run()
		held.Release()
		p.scope.Shutdown()
	}()
	return true
}

// stop tells a process to stop, for good.
func (g *group) stop(a roll.Action) {
	p, why := g.all[a.ID], a.Why
	if r := g.roll; r != nil && p.revision != g.revision {
		why = fmt.Sprintf("%s by revision %d", why, g.revision)
		if r.reason != "" {
			why += ": " + r.reason
		}
	}
	g.excused[a.ID] = true
	p.spared = p.spared || a.Why == roll.Surplus
	go p.send(event{kind: evStop, reason: why})
}

// processChanged is told of each change of state.
func (g *group) processChanged(p *process) {
	st := p.snapshot()
	g.mu.Lock()
	if g.all[p.id] == p {
		if st.PID != 0 {
			g.withheld = 0
		}
		// One that is not wanted to go on is made up for when that is known, and not when it has ended: a process that fails
		// may take its time to drain.
		if st.State == Unhealthy || st.State.Ended() {
			g.lost(p, st)
		}
		if st.State.Ended() {
			g.remove(p, st)
		}
	}
	g.mu.Unlock()
	g.wake()
}

func (g *group) remove(p *process, st Status) {
	delete(g.all, p.id)
	delete(g.excused, p.id)
	g.manager.memory.note()
	g.recent = append(g.recent, st)
	if len(g.recent) > recentKept {
		if old := g.manager.forget(g.recent[0].ID); old != nil {
			g.manager.logs.remove(old)
		}
		g.recent = slices.Delete(g.recent, 0, 1)
	}
}

func (g *group) tell(e Event) {
	e.Group = g.name
	g.manager.publish(e)
}

// ends counts a process that nobody follows where the group is to have a revision.
func (g *group) ends(p *process, revision int, failed bool) {
	s := &g.short
	if revision != g.revision {
		s = &g.roll.other
	}
	s.ends(g.configs[revision], failed)
	p.through = append(p.through, revision)
}

// oneFewer has the group have one process less from now on, wherever a roll that is under way leads, but where that is counted as
// through: that would take another one away.
func (g *group) oneFewer(p *process) {
	if g.desired() > 0 && !slices.Contains(p.through, g.revision) {
		g.short.fewer++
	}
	r := g.roll
	if r == nil {
		return
	}
	r.state = r.state.OneFewer(g.rollRules(), g.view(time.Now()), p.id)
	if r.onlyForward() {
		return
	}
	if other := g.otherRevision(); r.other.of(g.configs[other]) > 0 && !slices.Contains(p.through, other) {
		r.other.fewer++
	}
}

// stopProcess stops one. With replace false the group has one less from now on.
func (g *group) stopProcess(p *process, reason string, grace time.Duration, replace bool) {
	g.mu.Lock()
	if g.all[p.id] == p {
		if !replace && !p.spared { // also of one that the group is replacing: it has one less then
			p.spared = true
			g.oneFewer(p)
			g.manager.memory.note() // also of one that was to stop before
		} else if replace && !g.excused[p.id] && g.rollsPast(p) {
			g.vacant++
		}
		g.excused[p.id] = true // ordered, so that however it ends, it is no failure
	}
	g.mu.Unlock()
	g.wake()
	p.send(event{kind: evStop, reason: reason, grace: grace})
}
