// Package process runs one subprocess of a launcher, from its start to its reap. What to do and
// when is decided by the state machine in package lifecycle. This package does it: it starts or
// adopts the subprocess, calls it and the router, runs hooks and probes, copies the output, and
// writes down what the next launcher has to know.
package process

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/internal/proc"
	"github.com/swansong-go/swansong/launcher/internal/admin"
	"github.com/swansong-go/swansong/launcher/internal/deadline"
	"github.com/swansong-go/swansong/launcher/internal/events"
	"github.com/swansong-go/swansong/launcher/internal/guardian"
	"github.com/swansong-go/swansong/launcher/internal/lifecycle"
	"github.com/swansong-go/swansong/launcher/internal/listeners"
	"github.com/swansong-go/swansong/launcher/internal/notify"
	"github.com/swansong-go/swansong/launcher/internal/output"
	"github.com/swansong-go/swansong/launcher/internal/secrets"
	"github.com/swansong-go/swansong/launcher/internal/spawn"
	"github.com/swansong-go/swansong/launcher/internal/spec"
	"github.com/swansong-go/swansong/launcher/internal/statefile"
	"github.com/swansong-go/swansong/launcher/internal/transport"
	"github.com/swansong-go/swansong/launcher/internal/upgrade"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
)

// A Host is what a launcher has for all of its processes. Its fields are set before the first
// process is launched, and do not change afterwards.
type Host struct {
	Dir         string // absolute path of the launcher's directory
	Router      Router // nil if there is no router
	Helper      []string
	Publish     func(events.Event)
	ServeUser   func(path string, as *proc.User) error // serves a socket for notifications of processes that run as another user
	Gate        upgrade.Gate                           // closed while an upgrade hands the launcher over; what changes processes or groups is done between Enter and Leave
	Secrets     *secrets.Secrets
	Ports       spawn.Ports
	Logs        *output.Logs
	RecentLines *output.Recent
	Deadline    deadline.Total
	StateFile   *statefile.Writer
	Containment proc.Containment // holds together all processes that die with this launcher: a cgroup, or a mark in their environment
	Guardian    *guardian.Guardian
}

// A Group is what the processes of a group have in common.
type Group struct {
	*Host
	Name      string
	Scope     *ctxshutdown.Swansong
	GroupLogs *output.GroupLogs
	Listeners func() listeners.Set // the listeners that each process inherits
	Started   func()               // called when a process has been started
	Changed   func(*Process)       // called after each change of the status of a process; it can ask the process for its Status

	uses atomic.Pointer[spec.Protocol] // with protocol auto, the protocol of the process that became ready last; nil if none has
}

// expectedProtocol returns the protocol by which a new process has to become ready: that of the
// process of the group that became ready last. It is empty if no process has become ready, or if
// that process used signals only.
func (g *Group) expectedProtocol() spec.Protocol {
	if uses := g.uses.Load(); uses != nil && *uses != spec.Signals {
		return *uses
	}
	return ""
}

// A Process runs one subprocess as its lifecycle.Machine says. The goroutine of run owns the
// machine. It waits only for the inbox, the clock and the end of the subprocess: calls of the
// process and of the router, and hooks, run on other goroutines, which send their results to the
// inbox.
type Process struct {
	group    *Group
	id       string
	revision int
	cfg      spec.Group                 // the configuration with which the process was started
	current  atomic.Pointer[spec.Group] // the configuration of the group, which a reload may have changed since the start
	digest   string
	scope    *ctxshutdown.Swansong // the scope of the process, which completes when the process has ended

	adopted *statefile.Process // the entry in the state file, if an earlier launcher started the process; otherwise nil
	// unkept says that the process ends with the launcher, although its group has Keep.
	unkept atomic.Bool

	inbox    chan lifecycle.Event
	quit     chan struct{} // closed when the subprocess has been reaped: events are no longer read from the inbox
	ended    chan struct{} // closed when run returns
	hooksCut chan struct{} // closed when the process is being killed, so that its hooks are killed, too
	cutHooks func()        // closes hooksCut; further calls have no effect

	// user is the user that the process runs as, if it is not the launcher's; otherwise nil.
	user       *proc.User
	sockets    sockets // the paths of the sockets of the process
	conn       *transport.Connection
	notify     *notify.Socket                     // the socket for sd_notify(3) messages; nil if the process has none
	stopProbes context.CancelFunc                 // ends the probes; nil before the process runs
	begun      chan struct{}                      // closed when the subprocess runs and proc is set
	port       int                                // what {port} stands for; 0 if the configuration does not mention it
	child      pb.ProcessLifecycleInterfaceClient // calls the lifecycle protocol of the process; nil if the process does not use it
	proc       *proc.Process
	calls      sync.WaitGroup // counts goroutines that call the process or the router, or run hooks
	logs       sync.WaitGroup // counts goroutines that copy the output

	mu        sync.Mutex
	status    Status
	routed    bool // whether the process should be in routing; status.Routed says whether it is
	adoptable proc.Adoptable
	uses      spec.Protocol // the protocol that the process uses, as far as it is known
	reported  lifecycle.Reported
	grace     time.Duration // grace period of the stop, if it is not the configured one
	stopTimes stopTimes
	earlier   earlier // the state under an earlier launcher; zero for a process that this launcher started

	routing        sync.Mutex    // held during a call of the router
	routeTried     chan struct{} // closed after the first call of the router, or if there will be none
	markRouteTried func()        // closes the channel routeTried; further calls do nothing
}

// stopTimes are the times of a stop that the next launcher has to know.
type stopTimes struct {
	asked        time.Time // when the process was asked to stop; zero if it was not
	grantedUntil time.Time // the deadline of the drain that the process has asked for; zero if it has not asked for more time
	signals      int       // how many stop signals were sent
}

// An earlier is the state that an adopted process had under the previous launcher.
type earlier struct {
	state lifecycle.State // 0 if it is not known, and as soon as this launcher knows a later state of the process
	since time.Time       // when the process entered state
}

// New returns a Process whose subprocess has been neither started nor adopted yet.
func New(g *Group, id string, revision int, cfg spec.Group) *Process {
	p := &Process{
		group: g, id: id, revision: revision, cfg: cfg, digest: statefile.Digest(cfg),
		inbox: make(chan lifecycle.Event), quit: make(chan struct{}), ended: make(chan struct{}),
		hooksCut: make(chan struct{}), begun: make(chan struct{}), routeTried: make(chan struct{}),
	}
	p.cutHooks = sync.OnceFunc(func() { close(p.hooksCut) })
	p.markRouteTried = sync.OnceFunc(func() { close(p.routeTried) })
	p.current.Store(&p.cfg)
	p.conn = transport.New(transport.Config{Process: id, Transport: cfg.Transport, Poll: cfg.Shutdown.Poll, MaxMessage: admin.MaxMessage,
		Alarm: func(err error) { p.publish(events.Event{Kind: events.Alarm, Message: err.Error()}) }})
	now := time.Now()
	p.status = Status{ID: id, Group: cfg.Name, Revision: revision, State: lifecycle.Spawning, Since: now, Started: now, Bound: cfg.Bound(g.Router != nil)}
	return p
}

// Launch runs the process in a scope of its own, a child of the group's scope, and returns at once.
// The caller holds a guard of the group's scope.
func (p *Process) Launch() {
	p.scope, _ = ctxshutdown.WithCancel(p.group.Scope.Work(), ctxshutdown.WithName(p.id))
	guard := p.scope.Guard()
	// An upgrade begins only while no goroutine is in Host.Gate. run leaves the gate when the
	// process has been started.
	p.group.Gate.Enter()
	go func() {
		p.run()
		guard.Release()
		p.scope.Shutdown()
	}()
}

// ID returns the name of the process, which is unique in the launcher.
func (p *Process) ID() string { return p.id }

// Revision returns the number of the configuration with which the process was started.
func (p *Process) Revision() int { return p.revision }

// Started returns the time at which the process was started.
func (p *Process) Started() time.Time { return p.status.Started } // the field does not change after Launch, so it is read without mu

// Reaped returns a channel that is closed when the subprocess has been reaped, or could not be
// started. Calls of the router may still be under way then.
func (p *Process) Reaped() <-chan struct{} { return p.quit }

// Ended returns a channel that is closed when nothing runs any more for the process, and its output
// has been copied.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Config returns the configuration that holds now. It differs from the field cfg only in what can
// change while the process runs.
func (p *Process) Config() *spec.Group { return p.current.Load() }

// Apply changes the configuration of the process. A stop that is under way keeps the configuration
// with which it began.
func (p *Process) Apply(cfg spec.Group) {
	p.current.Store(&cfg)
	p.mu.Lock()
	p.status.Bound = cfg.Bound(p.group.Router != nil)
	p.mu.Unlock()
	p.Send(lifecycle.Event{Kind: lifecycle.OnConfig, Config: &cfg})
}

func (p *Process) publish(e events.Event) {
	e.Group, e.Process = p.group.Name, p.id
	p.group.Publish(e)
}

// Send sends an event to run. It returns false if the process has ended. Send enters [Host].Gate,
// and run leaves it when it has handled the event. So an upgrade, which closes the gate, loses no
// event that was acknowledged.
func (p *Process) Send(e lifecycle.Event) bool {
	p.group.Gate.Enter()
	select {
	case p.inbox <- e:
		return true
	case <-p.quit:
		p.group.Gate.Leave()
		return false
	}
}

// run starts or adopts the subprocess, and returns when it has been reaped and its output has been
// copied.
func (p *Process) run() {
	defer close(p.ended)
	defer p.markRouteTried()
	m := lifecycle.New(p.cfg, p.group.Router != nil)
	m.SetExpected(p.group.expectedProtocol())
	var exited, reaped <-chan struct{}
	e := p.firstEvent()
	if err := p.start(); err != nil {
		p.adopted.CloseOutputs()
		p.cleanUp()
		e = lifecycle.Event{Kind: lifecycle.OnSpawnFailed, Err: err.Error()}
	} else {
		exited, reaped = p.proc.Exited(), p.proc.Done()
	}
	// Launch has entered Host.Gate, and an upgrade can begin only while no goroutine is in the
	// gate. So the loop leaves the gate while it waits for an event.
	gate := &p.group.Gate
	forced := p.scope.Work().Done()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		e.At = time.Now()
		before := m.State
		actions := m.Step(e)
		p.update(m, before, e)
		for _, a := range actions {
			p.perform(m, a)
		}
		if p.stopProbes != nil && !m.Probing() {
			p.stopProbes()
		}
		if m.Ended() {
			break
		}
		timer.Stop()
		if next := m.Next(); !next.IsZero() {
			timer.Reset(time.Until(next))
		}
		gate.Leave()
		entered := false
		select {
		case e = <-p.inbox:
			// Send has called Enter of Host.Gate for this event, so this loop must not call it.
			entered = true
		case <-timer.C:
			e = lifecycle.Event{Kind: lifecycle.OnTick}
		case <-exited:
			exited, e = nil, lifecycle.Event{Kind: lifecycle.OnExited}
			p.calls.Go(p.deregister)
		case <-reaped:
			// proc.Spec.BeforeReap has called Enter of Host.Gate, so this loop must not call it.
			entered = true
			p.cleanUp()
			e = lifecycle.Event{Kind: lifecycle.OnReaped, Exit: p.proc.Exit()}
		case <-forced:
			forced = nil
			e = lifecycle.Event{Kind: lifecycle.OnForce, Reason: "forced: " + context.Cause(p.scope.Work()).Error()}
		}
		if !entered {
			gate.Enter()
		}
	}
	close(p.quit)
	p.deregister()
	p.conn.Close()
	if p.notify != nil {
		p.notify.Close()
	}
	p.calls.Wait()
	if p.proc != nil {
		p.logs.Wait()
		p.proc.Close()
	}
	p.group.GroupLogs.Ended(p.cfg.Log, p.id)
	// Call Leave only now: it permits an upgrade, and an upgrade before this line would lose the
	// rest of the output.
	gate.Leave()
}

// firstEvent publishes that the process is being started or adopted, and returns the first event
// for its state machine.
func (p *Process) firstEvent() lifecycle.Event {
	if p.adopted == nil {
		p.publish(events.Event{Kind: events.Transition, To: lifecycle.Spawning, Message: p.cfg.Command[0]})
		return lifecycle.Event{Kind: lifecycle.OnSpawned}
	}
	p.publish(events.Event{Kind: events.Adopted, Message: fmt.Sprintf("pid %d, of revision %d", p.adopted.Adoptable.PID, p.revision)})
	st := p.Status()
	return lifecycle.Event{Kind: lifecycle.OnAdopted, ReadyAt: st.ReadyAt, StopAt: st.Asked, AskedAt: p.stopTimes.asked, Uses: p.adopted.Uses, Reported: p.adopted.Reported, Warming: p.adopted.Warming,
		GrantedUntil: p.stopTimes.grantedUntil, SignalsSent: p.stopTimes.signals, Reason: st.Reason, Grace: p.grace}
}

// usedProtocol returns the protocol that the process uses, or an empty string if it is not known.
func (p *Process) usedProtocol() spec.Protocol {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.uses
}
