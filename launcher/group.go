package launcher

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/launcher/internal/canary"
	"github.com/swansong-go/swansong/launcher/internal/controller"
	"github.com/swansong-go/swansong/launcher/internal/listeners"
	"github.com/swansong-go/swansong/launcher/internal/process"
	"github.com/swansong-go/swansong/launcher/internal/spec"
	"github.com/swansong-go/swansong/launcher/internal/statefile"
)

// A group runs the processes of one [GroupConfig]. Its goroutine, run, waits for a change, and has
// the controller start and stop processes. Orders, reloads and processes change the controller, and
// wake the goroutine. All state of a group that changes is in the controller.
type group struct {
	manager    *Manager
	name       string
	scope      *ctxshutdown.Swansong
	shared     *process.Group
	controller *controller.Controller
	wakeups    chan struct{}
	emptied    chan struct{} // closed when the group has been stopped and its last process is gone
	removed    atomic.Bool   // a reload has removed the group
}

func newGroup(m *Manager, cfg spec.Group, source any) *group {
	scope, _ := ctxshutdown.WithCancel(m.groupsScope, ctxshutdown.WithName(cfg.Name))
	g := &group{manager: m, name: cfg.Name, scope: scope, wakeups: make(chan struct{}, 1), emptied: make(chan struct{})}
	g.shared = &process.Group{
		Host: m.host, Name: cfg.Name, Scope: scope, GroupLogs: m.host.Logs.Group(cfg.Name, controller.KeptStatuses, m.printsTo),
		Listeners: func() listeners.Set { return m.listenersOf(cfg.Name) },
		Started:   func() { m.wakeDependents(cfg.Name) },
		Changed:   g.onChange,
	}
	g.controller = controller.New(cfg, source, controlled{g})
	return g
}

// ask returns the result of f. While f runs, ask holds the lock of the controller.
func ask[T any](g *group, f func(*controller.Controller) T) T {
	g.controller.Lock()
	defer g.controller.Unlock()
	return f(g.controller)
}

// wake makes the goroutine of run call reconcile.
func (g *group) wake() {
	select {
	case g.wakeups <- struct{}{}:
	default:
	}
}

// start starts the goroutine of run.
func (g *group) start() {
	g.manager.running.Add(1)
	if g.scope.Go(func(context.Context) { defer g.manager.running.Done(); g.run() }) {
		return
	}
	// The group was stopped before its goroutine began; close stops the processes that it may have
	// adopted.
	go func() {
		defer g.manager.running.Done()
		defer close(g.emptied)
		g.close()
	}()
}

// run returns when the group has been stopped and is empty.
func (g *group) run() {
	defer close(g.emptied)
	// Wait until the processes that were adopted as ready count as available. Otherwise the
	// controller would take them for processes that are not ready, and might stop too many others.
	for _, p := range g.processes() {
		p.AwaitRouted()
	}
	if ask(g, (*controller.Controller).AwaitsDependencies) && !g.awaitDependencies() {
		g.close()
		return
	}
	if ask(g, (*controller.Controller).IsHandedOver) {
		g.applyNext()
	} else {
		g.controller.Lock()
		g.controller.ReplaceAdopted()
		g.controller.Unlock()
	}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	stop := g.scope.Done()
	for {
		timer.Stop()
		if at := g.reconcile(); !at.IsZero() {
			timer.Reset(time.Until(at))
		}
		select {
		case <-g.wakeups:
		case <-timer.C:
		case <-stop:
			g.close()
			return
		}
	}
}

// reconcile has the controller start and stop processes. It returns the time at which it must be
// called again if nothing changes before, or the zero time.
func (g *group) reconcile() time.Time {
	g.manager.host.Gate.Enter()
	defer g.manager.host.Gate.Leave()
	return ask(g, func(c *controller.Controller) time.Time { return c.Reconcile(time.Now()) })
}

// close stops all processes after the groups that depend on this one are empty, and returns when
// the processes are gone.
func (g *group) close() {
	g.controller.Lock()
	g.controller.Close()
	g.controller.Unlock()
	forced := g.scope.Work().Done()
	for other := range g.manager.dependents(g.name) {
		select {
		case <-other.emptied:
		case <-forced:
		}
	}
	reason := "launcher: " + strings.TrimPrefix(context.Cause(g.scope).Error(), "launcher: ")
	if g.removed.Load() {
		reason = "launcher: a reload has removed the group"
	}
	left := g.processes()
	for _, p := range left {
		go p.Stop(reason, 0)
	}
	for _, p := range left {
		// The processes are gone once they have been reaped. Do not wait until their scopes
		// complete: a call of the router may still hold a guard of such a scope.
		<-p.Reaped()
	}
}

// onChange is called after each change of the status of a process.
func (g *group) onChange(p *process.Process) {
	st := p.Status()
	g.controller.Lock()
	g.controller.OnChange(p, st)
	g.controller.Unlock()
	g.wake()
}

// stopProcess stops a process by order. With noReplacement the group has one process fewer from
// then on.
func (g *group) stopProcess(p *process.Process, reason string, grace time.Duration, noReplacement bool) {
	g.manager.host.Gate.Enter()
	defer g.manager.host.Gate.Leave()
	g.controller.Lock()
	g.controller.OnStopOrder(p, noReplacement)
	g.controller.Unlock()
	g.wake()
	p.Stop(reason, grace)
}

// checkRunning returns an error if the group is stopping. The controller is locked.
func (g *group) checkRunning() error {
	if g.controller.IsClosed() || g.scope.Err() != nil {
		return fmt.Errorf("launcher: group %q is stopping: %w", g.name, context.Cause(g.scope))
	}
	return nil
}

// config returns a copy of the configuration that the group wants.
func (g *group) config() spec.Group {
	return ask(g, func(c *controller.Controller) spec.Group { return *c.Config() })
}

// processes returns the processes that exist, oldest first.
func (g *group) processes() (all []*process.Process) {
	for _, p := range ask(g, (*controller.Controller).Processes) {
		all = append(all, p.(*process.Process))
	}
	return all
}

// isEmpty reports whether the group has been stopped and its last process is gone.
func (g *group) isEmpty() bool {
	select {
	case <-g.emptied:
		return true
	default:
		return false
	}
}

// health returns the condition of the group.
func (g *group) health() Health {
	failing := g.manager.host.StateFile.Failing()
	h := ask(g, func(c *controller.Controller) Health { return c.Health(time.Now(), failing) })
	if !h.Stopping {
		return h
	}
	// The controller of g is not locked here, because isEmpty and dependents lock other groups.
	for other := range g.manager.dependents(g.name) {
		if !other.isEmpty() {
			h.StopsAfter = append(h.StopsAfter, other.name)
		}
	}
	if len(h.StopsAfter) > 0 {
		h.Message = "stopping, after " + strings.Join(h.StopsAfter, ", ")
	}
	return h
}

// controlled is a group as its controller sees it, a [controller.Host]. The controller is locked
// while it calls the methods.
type controlled struct{ *group }

func (g controlled) Publish(e Event) {
	e.Group = g.name
	g.manager.publish(e)
}

func (g controlled) Record() { g.manager.host.StateFile.Changed() }

func (g controlled) Start(id string, revision int, cfg spec.Group) (controller.Process, bool) {
	p := process.New(g.shared, id, revision, cfg)
	return p, g.launch(p)
}

func (g controlled) Adopt(found *statefile.Process, cfg spec.Group) (controller.Process, bool) {
	p := process.New(g.shared, found.ID, found.Revision, cfg)
	p.Restore(found, time.Now())
	// The secrets must be known before announce publishes why an upgrade has failed, because that
	// text can contain some of them.
	p.LearnAdoptedSecrets()
	return p, g.launch(p)
}

// launch runs a process. It returns false if the group is stopping.
func (g controlled) launch(p *process.Process) bool {
	guard, ok := g.scope.TryGuard()
	if !ok {
		return false
	}
	defer guard.Release()
	g.manager.register(p, g.group)
	p.Launch()
	return true
}

func (g controlled) Stop(p controller.Process, reason string) {
	// Between Enter and Leave, no upgrade of the launcher begins. So the process records the order
	// to stop before an upgrade can hand the process over.
	g.manager.host.Gate.Enter()
	go func() {
		defer g.manager.host.Gate.Leave()
		p.(*process.Process).Stop(reason, 0)
	}()
}

func (g controlled) Forget(id string) {
	if p := g.manager.forgetProcess(id); p != nil {
		p.RemoveLogs()
	}
}

func (g controlled) Check(k canary.Check, done func(failed string, err error)) (cancel func()) {
	k.In = g.manager.host.Containment
	ended, cancel := context.WithCancel(context.Background())
	started := g.scope.Go(func(ctx context.Context) {
		ctx, stop := context.WithTimeoutCause(ctx, k.Timeout, fmt.Errorf("the check took longer than %v", k.Timeout))
		defer stop()
		defer context.AfterFunc(ended, stop)()
		failed, err := k.Run(ctx)
		cancel()
		g.controller.Lock()
		defer g.controller.Unlock()
		done(failed, err)
		g.wake()
	})
	if !started {
		cancel()
	}
	return cancel
}
