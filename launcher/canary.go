package launcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/swansong-go/swansong/internal/proc"
	"github.com/swansong-go/swansong/launcher/internal/promquery"
	"github.com/swansong-go/swansong/launcher/internal/roll"
	"github.com/swansong-go/swansong/launcher/internal/spawn"
	"github.com/swansong-go/swansong/launcher/internal/spec"
)

// canaryChecks are the checks of the canaries of a roll, one after the other, from when all
// canaries are available until the roll goes on or turns back. The lock of the group guards the
// fields.
type canaryChecks struct {
	cancel   context.CancelFunc // ends the check that runs
	running  bool
	began    time.Time // when the last check began
	next     time.Time // when the next check is due, unless the wait for the canaries ends before
	noAnswer string    // why the last check gave no answer; empty if it gave one
}

// checkCanaries starts a check of the canaries when one is due. It calls again with the time of the
// next one. g.mu is held.
func (g *group) checkCanaries(now time.Time, again func(time.Time)) {
	c := g.controller
	cfg := c.config().Roll.Check
	var until time.Duration
	waits := false
	if c.isRolling() && cfg.IsSet() {
		until, waits = c.roll.CanaryUntil(c.revisions.Wanted().Rules(), c.view(now))
	}
	if !waits { // the roll has ended, or a canary has failed
		c.endChecks()
		return
	}
	if c.checks == nil {
		c.checks = &canaryChecks{cancel: func() {}, next: now.Add(cfg.Interval)}
	}
	if c.checks.running {
		return
	}
	due := c.checks.next
	if end := c.epoch.Add(until); end.Before(due) && c.checks.began.Before(end) {
		due = end // only a check that begins after the wait lets the others follow
	}
	if now.Before(due) {
		again(due)
		return
	}
	g.startCheck(cfg, now)
}

// endChecks ends the check that runs, if there is one.
func (c *controller) endChecks() {
	if c.checks != nil {
		c.checks.cancel()
		c.checks = nil
	}
}

// startCheck runs a check on a goroutine of its own. Its result counts unless the checks have ended
// meanwhile. g.mu is held.
func (g *group) startCheck(cfg spec.CanaryCheck, now time.Time) {
	c, checks := g.controller, g.controller.checks
	k := canaryCheck{CanaryCheck: cfg, manager: g.manager, group: g.name, revision: c.roll.To}
	for _, i := range c.instances.sorted() {
		if i.revision == c.roll.To && !i.accounted {
			k.ids = append(k.ids, i.id)
		}
	}
	ended, cancel := context.WithCancel(context.Background())
	checks.cancel, checks.running, checks.began = cancel, true, now
	started := g.scope.Go(func(ctx context.Context) {
		ctx, stop := context.WithTimeoutCause(ctx, cfg.Timeout, fmt.Errorf("it took longer than %v", cfg.Timeout))
		defer stop()
		defer context.AfterFunc(ended, stop)()
		failed, err := k.run(ctx)
		cancel()
		g.mu.Lock()
		defer g.mu.Unlock()
		if c.checks == checks {
			checks.running, checks.next = false, time.Now().Add(cfg.Interval)
			c.onCheck(failed, err)
			g.wake()
		}
	})
	if !started {
		cancel()
	}
}

// onCheck handles the result of a check. An error means that the check gave no answer.
func (c *controller) onCheck(failed string, err error) {
	k := c.checks
	was := k.noAnswer
	k.noAnswer = ""
	switch {
	case err != nil:
		if k.noAnswer = err.Error(); k.noAnswer != was {
			c.publishStep("the check of the canaries gave no answer, and is repeated: %s", k.noAnswer)
		}
	case failed != "":
		c.roll.RejectCanaries(roll.Failure{Cause: errors.New("the canaries have failed their check: " + failed)})
	default:
		c.roll.PassCanaries(k.began.Sub(c.epoch))
	}
}

// A canaryCheck is one check of the canaries.
type canaryCheck struct {
	spec.CanaryCheck
	manager  *Manager
	group    string
	revision int
	ids      []string // of the canaries
}

// run returns why the canaries have failed the check, and "" if they have passed it. An error means
// that there is no answer.
func (k canaryCheck) run(ctx context.Context) (failed string, err error) {
	if k.Prometheus != "" {
		query := strings.NewReplacer("{group}", k.group, "{ids}", strings.Join(k.ids, "|")).Replace(k.Query)
		holds, value, err := promquery.Holds(ctx, k.Prometheus, query)
		switch {
		case err != nil && ctx.Err() != nil:
			return "", fmt.Errorf("prometheus at %s: %w", k.Prometheus, context.Cause(ctx))
		case err != nil || holds:
			return "", err
		}
		return fmt.Sprintf("the query has the value %s", value), nil
	}
	return k.execute(ctx)
}

// execute runs the command.
func (k canaryCheck) execute(ctx context.Context) (failed string, err error) {
	env := append(spawn.InheritedEnv(os.Environ()), "SWANSONG_PROCESS_GROUP="+k.group, fmt.Sprintf("SWANSONG_REVISION=%d", k.revision),
		"SWANSONG_CANARIES="+strings.Join(k.ids, " "))
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer null.Close()
	r, w, err := os.Pipe() // one pipe for both, so that their lines keep their order
	if err != nil {
		return "", err
	}
	p, err := proc.Start(proc.Spec{Args: k.Command, Env: env, Stdin: null, Stdout: w, Stderr: w, ReadStdout: r, In: k.manager.containment, ParentDeath: parentDeath})
	w.Close()
	if err != nil {
		return "", err
	}
	defer p.Close()
	said := proc.NewTail(4 << 10)
	var reading sync.WaitGroup
	reading.Go(func() { io.Copy(said, p.Stdout()) })
	select {
	case <-p.Done():
	case <-ctx.Done():
	}
	now := time.Now()
	exit, err := p.End(proc.Deadlines{Terminate: now, Kill: now, GiveUp: now.Add(spec.ReapTimeout)})
	reading.Wait()
	switch {
	case err != nil:
		return "", err
	case ctx.Err() != nil:
		return "", fmt.Errorf("%s: %w", k.Command[0], context.Cause(ctx))
	case exit.Code == 0 && exit.Signal == 0:
		return "", nil
	}
	text := strings.TrimSpace(said.String())
	last := text[strings.LastIndexByte(text, '\n')+1:]
	return strings.TrimSuffix(exit.String()+": "+last, ": "), nil
}
