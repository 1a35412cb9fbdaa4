package launcher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/launcher/internal/roll"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// A rolling is the replacement of all processes of a group. What it does and when is package roll's to decide; its states
// are drawn there. Those who wait for it wait for a leg: up to the end, or to a pause, after which an order begins the next.
type rolling struct {
	from, to int // revisions
	reason   string
	needed   []string // what from depended on before this roll
	state    roll.State
	failures [2]int // by version, since it began
	last     *RollError
	ordered  bool      // to turn back, and not since something had failed
	waited   bool      // for the canaries, as was told
	other    shortfall // see otherRevision
	leg      *leg

	through     int  // processes of where it leads that have done what they were there for
	mayComplete bool // processes of the group have been through before, or there were none: one that ends well is no failure
}

type leg struct {
	done chan struct{}
	err  error
}

// target is the version that there shall be more of.
func (r *rolling) target() roll.Version { return targetOf(r.state.Phase) }

func targetOf(p roll.Phase) roll.Version {
	if p == roll.RollingBack || p == roll.RolledBack {
		return roll.Old
	}
	return roll.New
}

// leadsTo is the revision that all processes are of in the end, if nothing else fails.
func (r *rolling) leadsTo() int {
	if r.target() == roll.Old {
		return r.from
	}
	return r.to
}

// wanted is the revision that a new process is of: while the roll is paused, the one that has worked.
func (r *rolling) wanted() int {
	if r.target() == roll.New && !r.state.Paused {
		return r.to
	}
	return r.from
}

// count takes down that a process has failed.
func (r *rolling) count(v roll.Version, id string, st Status) {
	r.failures[v]++
	r.last = &RollError{Group: st.Group, Process: id, Cause: errors.New(st.complaint())}
}

// completed takes down that a process of where the roll leads has done what it was there for.
func (r *rolling) completed(now time.Duration) {
	r.through++
	r.state = r.state.Completed(now)
}

// failure returns what has gone wrong.
func (r *rolling) failure(group string) *RollError {
	if r.last != nil {
		e := *r.last
		return &e
	}
	return &RollError{Group: group, Cause: errors.New(r.state.Why)}
}

// A RollError says that a roll has not replaced all that there was.
type RollError struct {
	Group      string
	Process    string // the replacement that failed, if it was one
	RolledBack bool   // what was there before has been started again
	Degraded   bool   // the rest has been replaced, of which there is some, and the roll is over
	Cause      error
}

func (e *RollError) Error() string {
	if errors.Is(e.Cause, ctxshutdown.ErrShutdown) {
		return fmt.Sprintf("launcher: group %q: the roll was cut off, since the group is stopping", e.Group)
	}
	s := fmt.Sprintf("launcher: group %q: the roll has failed", e.Group)
	if e.Process != "" {
		s += fmt.Sprintf(": %s: %v", e.Process, e.Cause)
	} else {
		s += fmt.Sprintf(": %v", e.Cause)
	}
	switch {
	case e.RolledBack:
		return s + "; it has been rolled back"
	case e.Degraded:
		return s + "; it went on without those that failed"
	}
	return s + "; what has not been replaced runs on"
}

func (e *RollError) Unwrap() error { return e.Cause }

func rolledBack(err error) bool {
	e, ok := err.(*RollError)
	return ok && e.RolledBack
}

// Errors of orders that do not fit what a group is doing.
var (
	ErrRolling    = errors.New("launcher: the group is being rolled already; wait for the end of that")
	ErrNotPaused  = errors.New("launcher: no roll of the group is paused, so there is none to resume")
	ErrNoWayBack  = errors.New("launcher: what the processes of an earlier launcher were started with is not known; roll to a configuration")
	ErrNotRolling = errors.New("launcher: no roll of the group is under way or paused, so there is none to roll back")
)

// restart is startRoll to the configuration that the group has: that of this moment, so that no reload is undone by it.
func (g *group) restart(reason string) (*leg, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.startRoll(g.cfg, g.sources[g.revision], reason)
}

// startRoll begins to replace all processes by those of a configuration, and returns what to wait for. A roll that is
// paused is given up for it. Where nobody has been started yet, nobody is replaced. Source is that of the Config that has it.
// g.mu is held.
func (g *group) startRoll(cfg GroupConfig, source any, reason string) (*leg, error) {
	if err := g.mayRoll(); err != nil {
		return nil, err
	}
	if g.roll != nil && !g.roll.state.Paused {
		return nil, fmt.Errorf("%w: group %q", ErrRolling, g.name)
	}
	if g.unstarted() {
		g.sources[g.revision] = source
		g.short = shortfall{fewer: g.short.fewer} // those that were adopted may be through
		g.forgive()
		g.take(cfg)() // which tells nobody, as there is no process: with g.mu held, telling one could wait for ever
		g.manager.memory.note()
		l := &leg{done: make(chan struct{})}
		l.end(nil)
		return l, nil
	}
	from, to := g.revision, g.revision+1
	for r := range g.configs {
		to = max(to, r+1)
	}
	was := g.configs[from]
	g.roll = &rolling{from: from, to: to, reason: reason, needed: was.DependsOn, leg: &leg{done: make(chan struct{})},
		mayComplete: g.short.through > 0 || !g.runs()}
	// The order of the groups is that of the configuration that was loaded last, of which a way back is none: what this group
	// depended on may be gone by then, or depend on this group.
	was.DependsOn = cfg.DependsOn
	g.configs, g.sources = map[int]GroupConfig{from: was, to: cfg}, map[int]any{from: g.sources[from], to: source}
	if cfg.Desired == g.cfg.Desired {
		g.roll.other.fewer = g.short.fewer // of which the configuration says nothing new
	}
	g.use(to)
	g.roll.state = roll.Begin(cfg.arithmetic(g.desired()), g.view(time.Now()))
	g.forgive()
	g.tell(Event{Kind: RollBegun, Message: fmt.Sprintf("from revision %d to %d: %s", from, to, reason)})
	g.wake()
	return g.roll.leg, nil
}

// pausedRoll returns a roll that is paused, nil if there is none.
func (g *group) pausedRoll() *rolling {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.roll == nil || !g.roll.state.Paused {
		return nil
	}
	return g.roll
}

// mayRoll refuses orders to a group that is stopping.
func (g *group) mayRoll() error {
	if g.stopping || g.scope.Err() != nil {
		return fmt.Errorf("launcher: group %q is stopping: %w", g.name, context.Cause(g.scope))
	}
	return nil
}

// resumeRoll has a roll that is paused go on.
func (g *group) resumeRoll(reason string) (*leg, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.roll
	if err := g.mayRoll(); err != nil {
		return nil, err
	}
	if r == nil || !r.state.Paused {
		return nil, fmt.Errorf("%w: group %q", ErrNotPaused, g.name)
	}
	r.state.Paused = false
	if r.target() == roll.New { // on the way back it is why that was taken
		r.last = nil
	}
	g.use(r.wanted())
	r.state = r.state.Resume(g.rollRules(), g.view(time.Now()))
	g.nextLeg()
	g.tell(Event{Kind: RollStep, Roll: r.state.Phase.String(), Message: fmt.Sprintf("%v is resumed: %s", r.state.Phase, reason)})
	g.wake()
	return r.leg, nil
}

// turnBack has a roll turn back, whether it is paused or not.
func (g *group) turnBack(reason string) (*leg, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.roll
	if err := g.mayRoll(); err != nil {
		return nil, err
	}
	if r == nil {
		return nil, fmt.Errorf("%w: group %q", ErrNotRolling, g.name)
	}
	if r.onlyForward() {
		return nil, fmt.Errorf("%w: group %q", ErrNoWayBack, g.name)
	}
	if r.target() == roll.New || r.state.Paused { // else it turns back already, for a reason of its own
		r.last, r.ordered = &RollError{Group: g.name, Cause: errors.New("ordered to turn back: " + reason)}, true
	}
	if r.state.Paused {
		g.nextLeg()
	}
	g.back(time.Now(), reason, reason)
	g.wake()
	return r.leg, nil
}

// back has the roll turn back: why is for the state, says for people.
func (g *group) back(now time.Time, why, says string) {
	r := g.roll
	// The phase comes first: view goes by it. On the way back only the revision that the roll came from is old, and all others are to go,
	// those of earlier rolls among them, which on the way there were old, too.
	r.state.Phase, r.state.Paused = roll.RollingBack, false
	g.vacant = 0
	g.use(r.wanted())
	// So Rollback counts more that is to go than was seen on the way there. By those counts nothing would be progress until fewer are
	// left than they say, and a way back that moves could be taken for a stall.
	r.state = r.state.Rollback(g.rollRules(), g.view(now), why)
	g.tell(Event{Kind: RollStep, Roll: r.state.Phase.String(), Message: fmt.Sprintf("rolling back to revision %d: %s", r.from, says)})
}

// nextLeg begins the next leg of a roll that was paused.
func (g *group) nextLeg() {
	g.roll.leg, g.roll.waited = &leg{done: make(chan struct{})}, false
	g.forgive()
}

// forgive forgets what has failed before an order.
func (g *group) forgive() {
	g.failures, g.withheld, g.notBefore, g.givenUp, g.givenUpOn, g.missing, g.vacant = 0, 0, time.Time{}, false, 0, 0, 0
}

// use makes a revision the one that is wanted, with as many processes as it had when it was so last.
func (g *group) use(revision int) {
	if g.revision != revision {
		g.revision, g.cfg = revision, g.configs[revision]
		g.short, g.roll.other = g.roll.other, g.short
		if r := g.roll; revision == r.from && !slices.Equal(r.needed, g.cfg.DependsOn) {
			g.tell(Event{Kind: RollStep, Roll: r.state.Phase.String(), Message: fmt.Sprintf("revision %d is brought back but for DependsOn, "+
				"which was %q, and stays %q, as the configuration says that was loaded last", revision, r.needed, g.cfg.DependsOn)})
		}
	}
}

// otherRevision returns the one of from and to that is not wanted now. Where the roll leads only forward, there is none.
func (g *group) otherRevision() int {
	if g.revision == g.roll.from {
		return g.roll.to
	}
	return g.roll.from
}

// onlyForward reports whether the roll cannot turn back, since what was there before cannot be started again.
func (r *rolling) onlyForward() bool { return r.from == r.to }

// rollRules returns the rules of the roll that is under way.
func (g *group) rollRules() roll.Config {
	c := g.cfg.arithmetic(g.desired())
	if g.roll.target() == roll.New { // those that are through need not be waited for
		c.Canary = min(c.Desired, max(0, g.cfg.Roll.Canary-g.roll.through))
	}
	c.OnlyForward = g.roll.onlyForward()
	if c.OnlyForward && c.OnFailure == roll.Rollback {
		c.OnFailure = roll.Pause
	}
	return c
}

// rollOn asks package roll what the roll does next. Again says that the answer has changed what is wanted, and is to be
// asked for anew.
func (g *group) rollOn(now time.Time) (a roll.Action, again bool) {
	r, was := g.roll, g.roll.state
	c, v := g.rollRules(), g.view(now)
	r.state, a = roll.Next(c, r.state, v)
	is := r.state
	step := func(format string, args ...any) {
		g.tell(Event{Kind: RollStep, Roll: is.Phase.String(), Message: fmt.Sprintf(format, args...)})
	}
	if _, ok := is.CanaryUntil(c, v); ok && !r.waited {
		r.waited = true
		step("%d go first, and are available; the others follow if they stay for %v", c.Canary, c.CanaryWait)
	}
	if is.GivenUp > was.GivenUp {
		step("goes on without %d that could not be replaced: %v", is.GivenUp, r.failure(g.name).reasonOnly())
	} else if is.Tries > was.Tries && !is.Paused && is.Phase == was.Phase {
		step("failure %d in a row, and %d are tried again, in %v: %v", is.Tries, c.Retries, max(0, is.Retry-v.Now), r.failure(g.name).reasonOnly())
	}
	if was.Phase == roll.Canary && is.Phase == roll.Rolling {
		if c.Canary == 0 {
			step("those that went first have done what they were there for; the others follow")
		} else {
			step("those that went first have stayed available for %v; the others follow", c.CanaryWait)
		}
	}
	// Package roll has turned back, and may have found that this is the end already, by a view of the way there: it is to be asked anew.
	// That is once in a roll, and not for ever with g.mu held, since no way leads forward from a way back.
	if targetOf(was.Phase) != r.target() {
		g.back(now, is.Why, r.failure(g.name).reasonOnly())
		return a, true
	}
	switch {
	case is.Phase.Ended():
		g.rolled(is.Phase)
	case is.Paused:
		failure := r.failure(g.name)
		g.vacant = 0
		g.use(r.wanted())
		g.tell(Event{Kind: RollFailed, Roll: "paused", Message: failure.Error()})
		r.leg.end(failure)
	default:
		return a, false
	}
	return a, true
}

// reasonOnly is what has failed, without what becomes of it.
func (e *RollError) reasonOnly() string {
	if e.Process == "" {
		return e.Cause.Error()
	}
	return e.Process + ": " + e.Cause.Error()
}

// rolled ends a roll that has come to its end.
func (g *group) rolled(phase roll.Phase) {
	var failure *RollError
	switch phase {
	case roll.Done:
		g.endRoll(nil)
		return
	case roll.RolledBack:
		failure = g.roll.failure(g.name)
		failure.RolledBack = true
	case roll.Degraded:
		failure = g.roll.failure(g.name)
		failure.Degraded = true
		live := 0
		for id := range g.all {
			if !g.excused[id] {
				live++
			}
		}
		g.givenUpOn, g.missing = g.roll.state.GivenUp, max(0, g.desired()-live)
	}
	g.endRoll(failure)
}

// endRoll ends a roll, if there is one; err is a *RollError, or nil.
func (g *group) endRoll(err *RollError) {
	r := g.roll
	if r == nil {
		return
	}
	g.roll, g.vacant = nil, 0
	if r.state.Paused {
		return // it has been told
	}
	if err == nil {
		g.tell(Event{Kind: RollDone, Roll: r.state.Phase.String(), Message: fmt.Sprintf("all processes are of revision %d", g.revision)})
		r.leg.end(nil)
		return
	}
	if err.RolledBack && r.ordered { // what was ordered has been done, and only who waited for the way there has not got it
		g.tell(Event{Kind: RollDone, Roll: r.state.Phase.String(), Message: fmt.Sprintf("all processes are of revision %d again, as was ordered", g.revision)})
		r.leg.end(err)
		return
	}
	g.tell(Event{Kind: RollFailed, Roll: r.state.Phase.String(), Message: err.Error()})
	r.leg.end(err)
}

func (l *leg) end(err error) {
	l.err = err
	close(l.done)
}

// follow gives an order, and waits for what comes of it.
func (g *group) follow(ctx context.Context, order func() (*leg, error)) error {
	l, err := order()
	if err != nil {
		return err
	}
	return g.wait(ctx, l)
}

func (g *group) wait(ctx context.Context, l *leg) error {
	select {
	case <-l.done:
		return l.err
	case <-ctx.Done():
		return fmt.Errorf("launcher: waiting for the roll of %s, which goes on: %w", g.name, context.Cause(ctx))
	}
}

// config returns the configuration that a restart leads to: after a roll that failed, that is the one that worked.
func (g *group) config() GroupConfig {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.cfg
}

// A RollStatus is how far a roll has come.
type RollStatus struct {
	From, To int       // revisions
	Phase    string    // "canary", "rolling" or "rolling back"
	Paused   bool      // it waits for [Manager.Resume], [Manager.Rollback] or a new roll
	Why      string    // what has failed last; empty: nothing
	GivenUp  int       // processes that will not be replaced
	Canaries int       // with Until, how many have gone first
	Until    time.Time // when those will have stayed for long enough, or what has failed is tried again; zero: neither
}

// String says it in a line.
func (s *RollStatus) String() string {
	if s.Paused {
		return fmt.Sprintf("the roll to revision %d is paused: %s", s.To, s.Why)
	}
	text := fmt.Sprintf("rolling from revision %d to %d", s.From, s.To)
	if s.Phase != roll.Rolling.String() {
		text += ", " + s.Phase
	}
	left := time.Until(s.Until).Round(time.Second)
	switch {
	case s.Until.IsZero():
	case s.Canaries > 0:
		text += fmt.Sprintf("; %d are available, and the others follow in %v", s.Canaries, left)
	default:
		text += fmt.Sprintf("; tried again in %v: %s", left, s.Why)
	}
	return text
}

func (s *RollStatus) wire() *pb.RollStatus {
	if s == nil {
		return nil
	}
	out := &pb.RollStatus{From: int64(s.From), To: int64(s.To), Phase: s.Phase, Paused: s.Paused, Why: s.Why,
		GivenUp: int32(s.GivenUp), Canaries: int32(s.Canaries), Message: s.String()}
	if !s.Until.IsZero() {
		out.Until = timestamppb.New(s.Until)
	}
	return out
}

func (g *group) rollStatus(now time.Time) *RollStatus {
	r := g.roll
	if r == nil {
		return nil
	}
	s := &RollStatus{From: r.from, To: r.to, Phase: r.state.Phase.String(), Paused: r.state.Paused, GivenUp: r.state.GivenUp}
	if r.last != nil || r.state.Why != "" {
		s.Why = r.failure(g.name).reasonOnly()
	}
	c, v := g.rollRules(), g.view(now)
	if at, ok := r.state.CanaryUntil(c, v); ok {
		s.Canaries, s.Until = c.Canary, g.begun.Add(at)
	} else if !s.Paused && r.state.Retry > v.Now {
		s.Until = g.begun.Add(r.state.Retry)
	}
	return s
}
