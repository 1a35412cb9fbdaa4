package launcher

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/internal/proc"
	"github.com/swansong-go/swansong/launcher/internal/admin"
	"github.com/swansong-go/swansong/launcher/internal/lifecycle"
	"github.com/swansong-go/swansong/launcher/internal/notify"
	"github.com/swansong-go/swansong/launcher/internal/spec"
	"github.com/swansong-go/swansong/launcher/internal/statefile"
	"github.com/swansong-go/swansong/launcher/internal/transport"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A process runs one subprocess as its lifecycle.Machine says. The goroutine of run owns the
// machine. It waits only for the inbox, the clock and the end of the subprocess: calls of the
// process and of the router, and hooks, run on other goroutines, which send their results to the
// inbox.
type process struct {
	id, group string
	revision  int
	cfg       spec.Group                 // the configuration with which the process was started
	current   atomic.Pointer[spec.Group] // the configuration of the group, which a reload may have changed since the start
	digest    string
	manager   *Manager
	owner     *group
	scope     *ctxshutdown.Swansong // this scope ends with the process
	changed   func(*process)        // called after a change of the status, with no lock held

	adopted    *statefile.Process // the entry of a process that an earlier launcher started; nil for others
	notStarted bool               // the launcher could not prepare the start of a process to be kept; only run uses this field

	inbox    chan lifecycle.Event
	quit     chan struct{} // closed when events are no longer read from the inbox
	ended    chan struct{} // closed when run returns
	hooksCut chan struct{} // closed when the process is being killed, so that its hooks are, too
	cutHooks func()        // closes hooksCut

	conn       *transport.Connection
	notify     *notify.Socket                     // nil if the process has none
	stopProbes context.CancelFunc                 // nil before the process runs
	begun      chan struct{}                      // closed when proc is set
	port       int                                // what {port} stands for; 0 if the configuration does not mention it
	child      pb.ProcessLifecycleInterfaceClient // nil for a process without the protocol
	proc       *proc.Process
	calls      sync.WaitGroup // counts goroutines that call the process or the router, or run hooks
	logs       sync.WaitGroup // counts goroutines that copy the output

	mu        sync.Mutex
	status    Status
	routed    bool // whether the process should be in routing; status.Routed says whether it is
	adoptable proc.Adoptable
	uses      spec.Protocol // what the process uses, as far as it is known
	said      lifecycle.Said
	grace     time.Duration // grace period of the stop, if it is not the configured one
	stopTimes stopTimes

	routing        sync.Mutex    // held during a call of the router
	routeTried     chan struct{} // closed after the first call of the router, or if there will be none
	markRouteTried func()        // closes routeTried
}

// stopTimes are the times of a stop that the next launcher has to know.
type stopTimes struct {
	asked        time.Time // when the process was asked to stop; zero: not yet
	grantedUntil time.Time // the deadline of the drain that the process has asked for; zero if it has not asked for more time
	signals      int       // how many stop signals were sent
}

func newProcess(m *Manager, g *group, id string, revision int, cfg spec.Group) *process {
	p := &process{
		id: id, group: cfg.Name, revision: revision, cfg: cfg, digest: statefile.Digest(cfg), manager: m, owner: g, changed: g.processChanged,
		inbox: make(chan lifecycle.Event), quit: make(chan struct{}), ended: make(chan struct{}),
		hooksCut: make(chan struct{}), begun: make(chan struct{}), routeTried: make(chan struct{}),
	}
	p.cutHooks = sync.OnceFunc(func() { close(p.hooksCut) })
	p.markRouteTried = sync.OnceFunc(func() { close(p.routeTried) })
	p.current.Store(&p.cfg)
	p.conn = transport.New(transport.Config{Process: id, Socket: p.lifecycleSocket(), Transport: cfg.Transport, Poll: cfg.Shutdown.Poll, MaxMessage: admin.MaxMessage,
		Alarm: func(err error) { p.publish(Event{Kind: Alarm, Message: err.Error()}) }})
	now := time.Now()
	p.status = Status{ID: id, Group: cfg.Name, Revision: revision, State: Spawning, Since: now, Started: now, Bound: cfg.Bound(m.cfg.Router != nil)}
	return p
}

// config returns the configuration that holds now. It differs from cfg only in what can change
// while the process runs.
func (p *process) config() *spec.Group { return p.current.Load() }

// apply changes the configuration of the process. A stop that is under way keeps the configuration
// with which it began.
func (p *process) apply(cfg spec.Group) {
	p.current.Store(&cfg)
	p.mu.Lock()
	p.status.Bound = cfg.Bound(p.manager.cfg.Router != nil)
	p.mu.Unlock()
	p.send(lifecycle.Event{Kind: lifecycle.OnConfig, Config: &cfg})
}

func (p *process) publish(e Event) {
	e.Group, e.Process = p.group, p.id
	p.manager.publish(e)
}

// send sends an event to run. It returns false if the process has ended. Run leaves the gate when it
// has dealt with the event, so that no event is lost that was acknowledged.
func (p *process) send(e lifecycle.Event) bool {
	p.manager.gate.Enter()
	select {
	case p.inbox <- e:
		return true
	case <-p.quit:
		p.manager.gate.Leave()
		return false
	}
}

// run starts or adopts the subprocess, and returns when it has been reaped and its output has been
// copied.
func (p *process) run() {
	defer close(p.ended)
	defer p.markRouteTried()
	m := lifecycle.New(p.cfg, p.manager.cfg.Router != nil)
	m.SetExpected(p.owner.expectedProtocol())
	var exited, reaped <-chan struct{}
	e := p.firstEvent()
	if err := p.start(); err != nil {
		p.adopted.CloseOutputs()
		p.cleanUp()
		e = lifecycle.Event{Kind: lifecycle.OnSpawnFailed, Err: err.Error()}
	} else {
		exited, reaped = p.proc.Exited(), p.proc.Done()
	}
	gate := &p.manager.gate // entered by launch
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
			entered = true // by send
		case <-timer.C:
			e = lifecycle.Event{Kind: lifecycle.OnTick}
		case <-exited:
			exited, e = nil, lifecycle.Event{Kind: lifecycle.OnExited}
			p.calls.Go(p.deregister)
		case <-reaped:
			entered = true // by proc.Spec.BeforeReap
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
	p.owner.logs.Ended(p.cfg.Log, p.id)
	gate.Leave() // not before, because an upgrade would lose the rest of the output
}

// firstEvent publishes that the process is being started or adopted, and returns the first event
// for its machine.
func (p *process) firstEvent() lifecycle.Event {
	if p.adopted == nil {
		p.publish(Event{Kind: Transition, To: Spawning, Message: p.cfg.Command[0]})
		return lifecycle.Event{Kind: lifecycle.OnSpawned}
	}
	p.publish(Event{Kind: Adopted, Message: fmt.Sprintf("pid %d, of revision %d", p.adopted.Adoptable.PID, p.revision)})
	st := p.snapshot()
	return lifecycle.Event{Kind: lifecycle.OnAdopted, ReadyAt: st.ReadyAt, StopAt: st.Asked, AskedAt: p.stopTimes.asked, Uses: p.adopted.Uses, Said: p.adopted.Said, Warming: p.adopted.Warming,
		GrantedUntil: p.stopTimes.grantedUntil, SignalsSent: p.stopTimes.signals, Reason: st.Reason, Grace: p.grace}
}

// perform does what the machine says.
func (p *process) perform(m *lifecycle.Machine, a lifecycle.Action) {
	cfg := m.Config()
	switch a.Kind {
	case lifecycle.DoAskReadiness:
		timeout := cfg.Shutdown.Poll
		if m.Running() {
			timeout = cfg.LivenessTimeout
		}
		p.call(lifecycle.OnReadiness, timeout, p.askReadiness)
	case lifecycle.DoShutdown:
		in := p.shutdownRequest(m)
		p.call(lifecycle.OnAck, cfg.Shutdown.Poll, func(ctx context.Context, e *lifecycle.Event) (err error) {
			known := p.usedProtocol() == GRPC
			if !known && !p.conn.IsServed() {
				return status.Error(codes.Unavailable, "it does not use the lifecycle protocol")
			}
			e.Ack, err = p.child.Shutdown(ctx, in, grpc.WaitForReady(!known))
			return err
		})
	case lifecycle.DoAskStatus:
		p.call(lifecycle.OnStatus, cfg.Shutdown.Poll, func(ctx context.Context, e *lifecycle.Event) (err error) {
			e.Status, err = p.child.GetShutdownStatus(ctx, &pb.ShutdownStatusRequest{ProcessId: p.id, WithReport: a.Report})
			return err
		})
	case lifecycle.DoRegister:
		p.setRouted(true)
		p.calls.Go(p.register)
	case lifecycle.DoLeaveRouting:
		p.setRouted(false)
		p.calls.Go(func() { p.route() })
	case lifecycle.DoDeregister:
		p.calls.Go(func() {
			p.deregister()
			p.runHooks()
			p.send(lifecycle.Event{Kind: lifecycle.OnDeregistered})
		})
	case lifecycle.DoSignal:
		p.publish(Event{Kind: Signalled, Message: a.Signal + ": " + m.Message})
		p.proc.Signal(lifecycle.StopSignals[a.Signal])
		if m.SignalsSent == 1 && lifecycle.Continue != 0 { // a stopped process would not see the signal
			p.proc.Signal(lifecycle.Continue)
		}
	case lifecycle.DoTerminate:
		p.cutHooks()
		p.publish(Event{Kind: Signalled, Message: "SIGTERM to all: " + m.ForceReason})
		p.proc.Terminate()
	case lifecycle.DoKill:
		p.cutHooks()
		p.publish(Event{Kind: Signalled, Message: "SIGKILL to all: " + m.ForceReason})
		p.proc.Kill()
	case lifecycle.DoReportUnconfirmed:
		names := make([]string, 0, 4)
		for _, member := range p.proc.Members() {
			names = append(names, member.String())
		}
		p.publish(Event{Kind: Alarm, Outcome: Unconfirmed, Message: fmt.Sprintf("not known to have ended %v after SIGKILL; still there: %s",
			spec.ReapTimeout, strings.Join(names, ", "))})
	case lifecycle.DoReportGrace:
		p.publish(Event{Kind: GraceOver, Message: m.GraceReport()})
	case lifecycle.DoReportExtension:
		p.publish(Event{Kind: Extension, Message: fmt.Sprintf("the process requested more time (request %d): it must exit within %v of the stop request; the maximum is %v",
			a.Request, m.Deadline.Sub(m.AskedAt).Round(time.Millisecond), m.MaxAt.Sub(m.AskedAt).Round(time.Millisecond))})
	}
}

// askReadiness asks the process whether it is ready.
func (p *process) askReadiness(ctx context.Context, e *lifecycle.Event) (err error) {
	// Over TCP a call fails until the port is known. Waiting for the port here is faster than waiting
	// for the next poll.
	wait := grpc.WaitForReady(p.cfg.Transport.Network == "tcp")
	e.Readiness, err = p.child.GetReadinessStatus(ctx, &pb.ReadinessRequest{ProcessId: p.id}, wait)
	if p.cfg.Protocol == Auto && p.usedProtocol() == "" {
		err = p.conn.UnavailableIfUnserved(err)
	}
	return err
}

// shutdownRequest returns a request with the time that the process has from now on. That is less
// than the configured time if the process is asked again, or if the total deadline of the launcher
// leaves less. It is never 0, which would mean no limit.
func (p *process) shutdownRequest(m *lifecycle.Machine) *pb.ShutdownRequest {
	limit := max(p.manager.deadline.Remaining(time.Until(m.MaxAt)), time.Millisecond)
	grace := min(m.Grace, limit)
	if m.GraceEnforced {
		grace = min(grace, time.Until(m.Deadline))
	}
	grace = max(grace, time.Millisecond)
	return &pb.ShutdownRequest{ProcessId: p.id, Reason: cmp.Or(m.Reason, "shutdown"),
		GracePeriodSeconds: wireSeconds(grace), GracePeriodMs: wireMillis(grace),
		MaxShutdownSeconds: wireSeconds(limit), MaxShutdownMs: wireMillis(limit),
		GraceEnforced: m.GraceEnforced}
}

// call calls the process and sends the result to the inbox. The timeout is no longer than the
// interval of such calls.
func (p *process) call(kind lifecycle.EventKind, timeout time.Duration, f func(ctx context.Context, e *lifecycle.Event) error) {
	p.calls.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		e := lifecycle.Event{Kind: kind}
		if err := f(ctx, &e); err != nil {
			e.Readiness, e.Ack, e.Status = nil, nil, nil
			e.Code, e.Err = status.Code(err), transport.Explain(err)
			if e.Code == codes.OK {
				e.Code = codes.Unknown
			}
		}
		p.send(e)
	})
}

// usedProtocol returns what the process uses, as far as it is known.
func (p *process) usedProtocol() Protocol {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.uses
}

// HasPID reports whether pid is that of the process or of one that it has started.
func (p *process) HasPID(pid int) bool {
	if p.snapshot().PID == pid {
		return true
	}
	p.mu.Lock()
	contained := p.proc
	p.mu.Unlock()
	return contained != nil && slices.ContainsFunc(contained.Members(), func(m proc.Member) bool { return m.PID == pid })
}

// Ready is called when the process has reported that it is ready. Ready returns false if the
// process has ended.
func (p *process) Ready(message string) bool {
	p.conn.Redial()
	return p.send(lifecycle.Event{Kind: lifecycle.OnPushedReady, Reason: message})
}

// ShutdownComplete is called when the process has reported that its drain has ended. It returns
// false if the process has ended.
func (p *process) ShutdownComplete(message, drainError string) bool {
	return p.send(lifecycle.Event{Kind: lifecycle.OnPushedEnd, Reason: message, DrainError: drainError})
}

// Serving records the port that the process has reported.
func (p *process) Serving(ctx context.Context, port int32) error {
	p.manager.gate.Enter()
	err := p.conn.SetPort(port)
	p.manager.gate.Leave()
	if err != nil {
		return err
	}
	if p.cfg.OnLauncherDeath == Keep {
		// The process reports its port until it has an answer. If the launcher dies before the port
		// is in the state file, the process reports it to the next one. A file that cannot be
		// written is not an error of the process, which would end; the Writer has raised an alarm.
		p.manager.stateFile.Flush(ctx.Done())
	}
	p.conn.Redial()
	return nil
}

func wireSeconds(d time.Duration) int32 { return int32((d + time.Second - 1) / time.Second) }
func wireMillis(d time.Duration) int64  { return int64((d + time.Millisecond - 1) / time.Millisecond) }
