package launcher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/launcher/internal/revision"
	"github.com/swansong-go/swansong/launcher/internal/roll"
	"github.com/swansong-go/swansong/launcher/internal/spec"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// A RollError says that a roll has not replaced all processes of a group.
type RollError struct {
	Group      string
	Process    string // id of the replacement that failed; empty if the roll failed for another reason
	RolledBack bool   // the processes have the earlier configuration again
	Degraded   bool   // the roll is over and has replaced some processes, but not all
	Cause      error
}

func (e *RollError) Error() string {
	switch {
	case errors.Is(e.Cause, ctxshutdown.ErrShutdown):
		return fmt.Sprintf("launcher: group %q: the roll was interrupted because the group is stopping", e.Group)
	case errors.Is(e.Cause, ErrSuperseded):
		return fmt.Sprintf("launcher: group %q: %s", e.Group, strings.TrimPrefix(e.Cause.Error(), "launcher: "))
	}
	s := fmt.Sprintf("launcher: group %q: the roll has failed: %v", e.Group, roll.Failure{Instance: e.Process, Cause: e.Cause})
	switch {
	case e.RolledBack:
		return s + "; it has been rolled back"
	case e.Degraded:
		return s + "; it went on without those that failed"
	}
	return s + "; the processes that have not been replaced keep running"
}

func (e *RollError) Unwrap() error { return e.Cause }

func isRolledBack(err error) bool {
	e, ok := err.(*RollError)
	return ok && e.RolledBack
}

// These errors refuse orders that are impossible while the group does something else.
var (
	ErrNotPaused  = errors.New("launcher: no roll of the group is paused, so none can be resumed")
	ErrNoWayBack  = errors.New("launcher: the roll cannot be rolled back, because the configuration of processes that an earlier launcher started is not known; roll to a configuration instead")
	ErrNotRolling = errors.New("launcher: no roll of the group is under way or paused, so none can be rolled back")
)

// ErrSuperseded is the cause of the [*RollError] of a roll that a newer order has superseded before
// its end. The roll of that order replaces all processes that have another revision.
var ErrSuperseded = errors.New("launcher: the roll was superseded by a newer order")

// A rollResult is the result of an order that a caller can wait for: the end of the roll, or its
// next pause.
type rollResult struct {
	done chan struct{}
	err  error // valid when done is closed
}

func newRollResult() *rollResult { return &rollResult{done: make(chan struct{})} }

func (r *rollResult) set(err error) {
	r.err = err
	close(r.done)
}

// restart rolls the group to the configuration that it has when the lock has been taken, so that it
// undoes no reload.
func (g *group) restart(reason string) (*rollResult, error) {
	g.manager.host.Gate.Enter()
	defer g.manager.host.Gate.Leave()
	g.mu.Lock()
	defer g.mu.Unlock()
	wanted := g.controller.revisions.Wanted()
	if wanted.Shortfall.Stopped {
		return nil, fmt.Errorf("%w: group %q; start it instead", ErrStopped, g.name)
	}
	return g.startRoll(wanted.Config, wanted.Source, reason)
}

// rollTo rolls the group to a configuration that a program has given.
func (g *group) rollTo(cfg spec.Group, reason string) (*rollResult, error) {
	g.manager.host.Gate.Enter()
	defer g.manager.host.Gate.Leave()
	g.mu.Lock()
	defer g.mu.Unlock()
	wanted := g.controller.revisions.Wanted()
	if now := wanted.Config.DependsOn; !slices.Equal(now, cfg.DependsOn) {
		return nil, &ConfigError{g.name, "DependsOn", fmt.Sprintf("cannot change from %q by a roll of one group; reload the whole configuration", now)}
	}
	return g.startRoll(cfg, wanted.Source, reason)
}

// startRoll begins to replace all processes by processes of a configuration, and returns what to
// wait for. It supersedes a roll that is under way or paused. g.mu is held.
func (g *group) startRoll(cfg spec.Group, source any, reason string) (*rollResult, error) {
	if err := g.checkRunning(); err != nil {
		return nil, err
	}
	c := g.controller
	defer g.wake()
	if c.isUnstarted() {
		wanted := c.revisions.Wanted()
		// Adopted processes that have finished are started again.
		wanted.Source, wanted.Shortfall = source, wanted.Shortfall.Orders(true)
		c.forgetFailures()
		c.apply(cfg)
		g.manager.host.StateFile.Changed()
		r := newRollResult()
		r.set(nil)
		return r, nil
	}
	if !cfg.Job {
		return c.startRoll(cfg, source, reason), nil
	}
	return g.startRun(cfg, source, reason), nil
}

// resumeRoll continues a paused roll.
func (g *group) resumeRoll(reason string) (*rollResult, error) {
	g.manager.host.Gate.Enter()
	defer g.manager.host.Gate.Leave()
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.checkRunning(); err != nil {
		return nil, err
	}
	c := g.controller
	if c.roll == nil || !c.roll.Paused() {
		return nil, fmt.Errorf("%w: group %q", ErrNotPaused, g.name)
	}
	defer g.wake()
	return c.resumeRoll(reason), nil
}

// rollBack makes a roll turn back, whether it is paused or not.
func (g *group) rollBack(reason string) (*rollResult, error) {
	g.manager.host.Gate.Enter()
	defer g.manager.host.Gate.Leave()
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.checkRunning(); err != nil {
		return nil, err
	}
	c := g.controller
	if c.roll == nil {
		return nil, fmt.Errorf("%w: group %q", ErrNotRolling, g.name)
	}
	if c.roll.OnlyForward() {
		return nil, fmt.Errorf("%w: group %q", ErrNoWayBack, g.name)
	}
	defer g.wake()
	return c.rollBack(reason), nil
}

// checkRunning refuses orders to a group that is stopping. g.mu is held.
func (g *group) checkRunning() error {
	if g.controller.stopping || g.scope.Err() != nil {
		return fmt.Errorf("launcher: group %q is stopping: %w", g.name, context.Cause(g.scope))
	}
	return nil
}

// await waits for the result of an order, no longer than ctx lasts.
func (g *group) await(ctx context.Context, r *rollResult) error {
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return fmt.Errorf("launcher: waiting for the roll of %s, which goes on: %w", g.name, context.Cause(ctx))
	}
}

// startRoll begins a roll to a new revision. It comes from the wanted revision, or if it supersedes
// another roll, from where that one came, because only that revision has worked.
func (c *controller) startRoll(cfg spec.Group, source any, reason string) *rollResult {
	from, to := c.revisions.Current, c.revisions.Unused()
	wanted := c.revisions.Wanted()
	is := &revision.Revision{Config: cfg, Source: source, Shortfall: wanted.Shortfall.Orders(cfg.Desired == wanted.Config.Desired)}
	if c.roll != nil {
		from = c.roll.From
		c.endRoll(&RollError{Group: c.name, Cause: fmt.Errorf("%w: %s", ErrSuperseded, reason)})
	}
	was := c.revisions.ByNumber[from]
	// A rollback does not bring back DependsOn. The order of the groups is that of the
	// configuration that was loaded last: a group that this one depended on may be gone by then, or
	// depend on this one.
	was.LoadedWith, was.Config.DependsOn = was.Config.DependsOn, cfg.DependsOn
	c.revisions.ByNumber = map[int]*revision.Revision{from: was, to: is}
	c.beginRoll(&roll.Roll{From: from, To: to, Reason: reason})
	c.forgetFailures()
	c.publish(Event{Kind: RollBegun, Message: fmt.Sprintf("from revision %d to %d: %s", from, to, reason)})
	return c.rollResult
}

func (c *controller) beginRoll(r *roll.Roll) {
	c.endChecks()
	c.roll, c.rollResult = r, newRollResult()
	c.revisions.Current = r.To
	r.Begin(c.revisions.ByNumber[r.To].Rules(), c.view(time.Now()))
}

func (c *controller) resumeRoll(reason string) *rollResult {
	r := c.roll
	r.Resume(c.revisions.ByNumber[r.Destination()].Rules(), c.view(time.Now()))
	c.want(r.Wanted())
	c.rollResult = newRollResult()
	c.forgetFailures()
	c.publishStep("%v resumed: %s", r.Phase(), reason)
	return c.rollResult
}

func (c *controller) rollBack(reason string) *rollResult {
	paused := c.roll.Paused()
	c.roll.OrderRollback(reason)
	if paused {
		c.rollResult = newRollResult()
		c.forgetFailures()
	}
	c.turnBack(time.Now(), reason, reason)
	return c.rollResult
}

// turnBack makes the roll turn back. why is the reason for the state of the roll, message the text
// for users.
func (c *controller) turnBack(now time.Time, why, message string) {
	r := c.roll
	r.Rollback(c.revisions.ByNumber[r.From].Rules(), c.view(now), why)
	c.want(r.From)
	c.publishStep("rolling back to revision %d: %s", r.From, message)
}

// want makes a revision of the roll the one that the group wants.
func (c *controller) want(number int) {
	if c.revisions.Current == number {
		return
	}
	c.revisions.Current = number
	wanted := c.revisions.Wanted()
	if number == c.roll.From && !slices.Equal(wanted.LoadedWith, wanted.Config.DependsOn) {
		c.publishStep("revision %d is brought back except for DependsOn, which was %q and stays %q, as loaded last",
			number, wanted.LoadedWith, wanted.Config.DependsOn)
	}
}

func (c *controller) publishStep(format string, args ...any) {
	c.publish(Event{Kind: RollStep, Roll: c.roll.Phase().String(), Message: fmt.Sprintf(format, args...)})
}

// advanceRoll returns what the roll does next. It returns false if the roll has paused, ended or
// turned back, so that the caller has to ask again. A roll turns back at most once.
func (c *controller) advanceRoll(now time.Time) (a roll.Action, ok bool) {
	r := c.roll
	step := r.Next(c.revisions.Wanted().Rules(), c.view(now))
	for _, notice := range step.Notices {
		c.publishStep("%s", notice)
	}
	switch step.Change {
	case roll.TurnsBack:
		c.turnBack(now, r.Why(), r.Failure().String())
	case roll.Pauses:
		c.want(r.From)
		err := c.rollError()
		c.publish(Event{Kind: RollFailed, Roll: "paused", Message: err.Error()})
		c.rollResult.set(err)
	case roll.Ends:
		c.finishRoll()
	default:
		return step.Action, true
	}
	return roll.Action{}, false
}

// rollError returns the last failure of the roll.
func (c *controller) rollError() *RollError {
	f := c.roll.Failure()
	return &RollError{Group: c.name, Process: f.Instance, Cause: f.Cause}
}

// finishRoll ends a roll that has come to its end.
func (c *controller) finishRoll() {
	switch err := c.rollError(); c.roll.Phase() {
	case roll.RolledBack:
		err.RolledBack = true
		c.endRoll(err)
	case roll.Degraded:
		err.Degraded = true
		c.degraded = degradation{givenUp: c.roll.GivenUp(), missing: max(0, c.desired()-c.instances.live())}
		c.endRoll(err)
	default:
		c.endRoll(nil)
	}
}

// endRoll ends the roll, if there is one. A nil err means that all processes have been replaced.
func (c *controller) endRoll(err *RollError) {
	r, result := c.roll, c.rollResult
	if r == nil {
		return
	}
	c.endChecks()
	c.roll, c.rollResult = nil, nil
	if r.Paused() {
		return // callers got the result when the roll was paused
	}
	e := Event{Kind: RollDone, Roll: r.Phase().String()}
	switch {
	case err == nil:
		e.Message = fmt.Sprintf("all processes have revision %d", c.revisions.Current)
		c.publish(e)
		result.set(nil)
		return
	case err.RolledBack && r.Ordered(): // the order has been carried out; only callers that waited for the way forward have failed
		e.Message = fmt.Sprintf("rolled back as requested: all processes have revision %d again", c.revisions.Current)
	case errors.Is(err, ErrSuperseded):
		e.Kind, e.Roll, e.Message = RollFailed, "superseded", err.Error()
	default:
		e.Kind, e.Message = RollFailed, err.Error()
	}
	c.publish(e)
	result.set(err)
}

// A RollStatus describes the progress of a roll.
type RollStatus struct {
	From, To int    // numbers of revisions
	Phase    string // "canary", "rolling" or "rolling back"
	Paused   bool   // the roll waits for [Manager.Resume], [Manager.Rollback] or a new roll
	Why      string // the last failure; empty if there was none
	GivenUp  int    // number of processes that will not be replaced
	Canaries int    // with Until, the number of canaries that are available
	// Until is when the canaries will have been available for long enough, or when the roll retries
	// after a failure; zero if the roll waits for neither.
	Until time.Time
}

// String returns the status in a line.
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
	case s.Canaries > 0 && left <= 0:
		text += fmt.Sprintf("; %d are available, and the others follow when these pass their check", s.Canaries)
		if s.Why != "" {
			text += ": " + s.Why
		}
	case s.Canaries > 0:
		text += fmt.Sprintf("; %d are available, and the others follow in %v", s.Canaries, left)
	default:
		text += fmt.Sprintf("; next try in %v: %s", left, s.Why)
	}
	return text
}

func (s *RollStatus) wire() *pb.RollStatus {
	if s == nil {
		return nil
	}
	out := &pb.RollStatus{From: int32(s.From), To: int32(s.To), Phase: s.Phase, Paused: s.Paused, Why: s.Why,
		GivenUp: int32(s.GivenUp), Canaries: int32(s.Canaries), Message: s.String()}
	if !s.Until.IsZero() {
		out.Until = timestamppb.New(s.Until)
	}
	return out
}

// rollStatus returns the progress of the roll, or nil if there is no roll.
func (c *controller) rollStatus(now time.Time) *RollStatus {
	r := c.roll
	if r == nil {
		return nil
	}
	st := r.Status(c.revisions.Wanted().Rules(), c.view(now))
	s := &RollStatus{From: r.From, To: r.To, Phase: r.Phase().String(), Paused: r.Paused(), GivenUp: r.GivenUp(), Why: st.Why, Canaries: st.Canaries}
	if st.Until > 0 {
		s.Until = c.epoch.Add(st.Until)
	}
	if c.checks != nil && c.checks.noAnswer != "" {
		s.Why = "no answer: " + c.checks.noAnswer
	}
	return s
}
