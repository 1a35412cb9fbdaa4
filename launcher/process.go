package launcher

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/internal/proc"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// maxMessage bounds what a process can make the launcher read at once.
const maxMessage = 256 << 10

// A process does with one subprocess what its machine says. One goroutine, run, owns the machine; calls to the process, to
// the router and of hooks are made on others, which send what has come of them to the inbox. Nothing in run waits for
// anything but the inbox, the clock and the end of the subprocess.
type process struct {
	id, group string
	revision  int
	cfg       GroupConfig                 // what it was started with
	ruled     atomic.Pointer[GroupConfig] // what holds for it now
	digest    string
	spared    bool               // nobody follows it, by order, or since it was one too many; the group's
	through   []int              // revisions in which nobody follows it, by the restart policy; the group's
	withheld  bool               // it was not started, since it could not have been kept; run's
	found     *rememberedProcess // nil: this launcher has started it
	manager   *Manager
	owner     *group
	scope     *ctxshutdown.Swansong // ends with the process
	changed   func(*process)        // tells the group; not under a lock
	inbox     chan event
	port      atomic.Int32  // where it serves the protocol over TCP; 0: it has not said yet
	quit      chan struct{} // closed when nobody reads the inbox any more
	over      chan struct{} // closed when all has been cleared away
	hurry     chan struct{} // closed when the process is being ended, so that no hook is waited for any more
	noHooks   func()        // closes it

	conn  *grpc.ClientConn // nil without the protocol
	child pb.ProcessLifecycleInterfaceClient
	proc  *proc.Process
	calls sync.WaitGroup // all but those of other goroutines to send
	logs  sync.WaitGroup

	mu     sync.Mutex
	status Status
	routed bool // wanted in routing
	kept   proc.Kept
	grace  time.Duration // as it was told to stop
	asked  asked

	settled chan struct{} // closed when the router has been told for the first time, or will not be
	settle  func()

	routing sync.Mutex // held while the router is told, for as long as it takes
}

// asked is what has come of it that a process was asked to stop, as the next launcher has to know it.
type asked struct {
	began   time.Time // zero: it was not
	granted time.Time // zero: it has not asked for more time
}

// A Status is what is known of a process.
type Status struct {
	ID, Group string
	Revision  int
	State     State
	Since     time.Time // when it entered State
	Message   string
	PID       int
	Started   time.Time
	ReadyAt   time.Time // zero: never
	Routed    bool      // the router, if there is one, has it
	Asked     time.Time // when it was to be stopped; zero: never
	Ended     time.Time
	Reason    string // why it was to be stopped
	Metrics   *pb.ShutdownMetrics
	Extension int // requests for more time
	Outcome   Outcome
	Exit      string        // such as "exit status 1"
	Survivors []string      // who could not be ended, as far as that can be known
	Contained string        // how: see internal/proc
	Bound     time.Duration // the longest that stopping it takes
}

// available reports whether the process can be counted on to do what it is there for.
func (s Status) available(now time.Time, minReady time.Duration) bool {
	return s.State == Ready && s.Routed && !now.Before(s.ReadyAt.Add(minReady))
}

// complaint says what is wrong with the process.
func (s Status) complaint() string {
	if s.State == Unhealthy {
		return s.Reason
	}
	return strings.TrimSuffix(fmt.Sprintf("%v: %s", s.Outcome, s.Message), ": ")
}

// Took returns how long stopping it has taken so far, 0 before.
func (s Status) Took() time.Duration {
	switch {
	case s.Asked.IsZero():
		return 0
	case s.Ended.IsZero():
		return time.Since(s.Asked)
	}
	return s.Ended.Sub(s.Asked)
}

func newProcess(m *Manager, g *group, id string, revision int, cfg GroupConfig) *process {
	p := &process{
		id: id, group: cfg.Name, revision: revision, cfg: cfg, manager: m, owner: g, changed: g.processChanged,
		inbox: make(chan event), quit: make(chan struct{}), over: make(chan struct{}),
	}
	p.digest = digest(cfg)
	p.hurry = make(chan struct{})
	p.noHooks = sync.OnceFunc(func() { close(p.hurry) })
	p.settled = make(chan struct{})
	p.settle = sync.OnceFunc(func() { close(p.settled) })
	now := time.Now()
	p.ruled.Store(&p.cfg)
	p.status = Status{ID: id, Group: cfg.Name, Revision: revision, State: Spawning, Since: now, Started: now, Bound: m.bound(cfg)}
	return p
}

// rules is what holds for the process now, of all that can change while it runs.
func (p *process) rules() *GroupConfig { return p.ruled.Load() }

// take has other rules hold for the process, but not for a stop that is under way.
func (p *process) take(cfg GroupConfig) {
	p.ruled.Store(&cfg)
	p.mu.Lock()
	p.status.Bound = p.manager.bound(cfg)
	p.mu.Unlock()
	p.send(event{kind: evRules, rules: &cfg})
}

func (p *process) snapshot() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status
}

// send hands an event to run. It returns false if the process is no more.
func (p *process) send(e event) bool {
	select {
	case p.inbox <- e:
		return true
	case <-p.quit:
		return false
	}
}

// run starts the subprocess and returns when it has been reaped.
func (p *process) run() {
	defer close(p.over)
	defer p.settle()
	m := newMachine(p.cfg)
	m.router = p.manager.cfg.Router != nil
	var exited, done <-chan struct{}
	e := event{kind: evSpawned}
	if p.found == nil {
		p.tell(Event{Kind: Transition, To: Spawning, Message: p.cfg.Command[0]})
	} else {
		p.tell(Event{Kind: Adopted, Message: fmt.Sprintf("pid %d, of revision %d", p.found.Kept.PID, p.revision)})
		st := p.snapshot()
		e = event{kind: evAdopted, readyAt: st.ReadyAt, asked: st.Asked, began: p.asked.began, granted: p.asked.granted,
			reason: st.Reason, grace: p.grace}
	}
	if err := p.start(); err != nil {
		p.found.letGo()
		p.clear()
		e = event{kind: evSpawnFailed, err: err.Error()}
	} else {
		exited, done = p.proc.Exited(), p.proc.Done()
	}
	cut := p.scope.Work().Done()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		e.at = time.Now()
		before := m.state
		todo := m.step(e)
		p.show(m, before, e)
		for _, a := range todo {
			p.do(m, a)
		}
		if m.phase == over {
			break
		}
		timer.Stop()
		if next := m.next(); !next.IsZero() {
			timer.Reset(time.Until(next))
		}
		select {
		case e = <-p.inbox:
		case <-timer.C:
			e = event{kind: evTick}
		case <-exited:
			exited, e = nil, event{kind: evExited}
			p.calls.Go(p.leave)
		case <-done:
			p.clear()
			e = event{kind: evReaped, exit: p.proc.Exit()}
		case <-cut:
			cut = nil
			e = event{kind: evForce, reason: "forced: " + context.Cause(p.scope.Work()).Error()}
		}
	}
	close(p.quit)
	p.leave()
	if p.conn != nil {
		p.conn.Close()
	}
	p.calls.Wait()
	if p.proc != nil {
		p.logs.Wait()
		p.proc.Close()
	}
	p.manager.logs.ended(p)
}

// show publishes what has become of the machine.
func (p *process) show(m *machine, before State, e event) {
	p.mu.Lock()
	s := &p.status
	redact := p.manager.redact
	s.State, s.Message, s.Reason, s.Metrics = m.state, redact(m.message), redact(m.reason), p.manager.redactMetrics(m.metrics)
	s.ReadyAt, s.Asked, s.Extension, s.Outcome = m.readyAt, m.asked, m.extensions, m.outcome
	if m.grace != p.cfg.Shutdown.Grace {
		p.grace = m.grace
	}
	if m.state != before {
		s.Since = e.at
	}
	if m.phase == over {
		s.Ended = e.at
		if e.kind == evReaped {
			s.Exit = e.exit.String()
			for _, survivor := range e.exit.Survivors {
				s.Survivors = append(s.Survivors, survivor.String())
			}
		}
	}
	now := *s
	since := asked{m.began, m.granted}
	news := p.asked != since
	p.asked = since
	p.mu.Unlock()
	if m.state != before {
		message := now.Message
		switch {
		case now.State == ShutdownRequested || now.State == Unhealthy:
			message = now.Reason
		case now.State.Ended() && now.Exit != "" && now.Message != now.Exit:
			message = strings.TrimPrefix(now.Message+"; "+now.Exit, "; ")
		}
		took := now.Took()
		switch {
		case now.State == Ready && p.found != nil:
			took = 0 // it became so under another launcher
		case now.State == Ready:
			took = now.ReadyAt.Sub(now.Started)
		}
		p.tell(Event{Kind: Transition, From: before, To: now.State, Outcome: now.Outcome, Message: message,
			Took: took, Survivors: len(now.Survivors)})
	}
	if len(now.Survivors) > 0 && m.phase == over {
		p.tell(Event{Kind: Alarm, Message: "could not be ended: " + strings.Join(now.Survivors, ", ")})
	}
	if news && p.cfg.OnLauncherDeath == Keep {
		p.manager.memory.note()
	}
	if m.state != before || e.kind == evReaped {
		p.manager.memory.note()
		p.changed(p)
	}
}

func (p *process) tell(e Event) {
	e.Group, e.Process = p.group, p.id
	p.manager.publish(e)
}

// do does what the machine says.
func (p *process) do(m *machine, a action) {
	grace, reason := m.grace, m.reason
	switch a.kind {
	case doAskReadiness:
		patience := m.cfg.Shutdown.Poll
		if m.phase == running {
			patience = m.cfg.LivenessTimeout
		}
		p.call(evReadiness, patience, func(ctx context.Context, e *event) (err error) {
			// Over TCP nobody can be reached before the port is known: who is asked too early need not wait for the next time.
			wait := grpc.WaitForReady(p.cfg.Transport.Network == "tcp")
			e.readiness, err = p.child.GetReadinessStatus(ctx, &pb.ReadinessRequest{ProcessId: p.id}, wait)
			return err
		})
	case doShutdown:
		// What it is told is what it gets from now on, where it is asked again or deadlines above it leave less than its own;
		// never 0, which would be no limit.
		limit := max(p.manager.left(time.Until(m.maxAt)), time.Millisecond)
		grace = min(grace, limit)
		if !m.cfg.Shutdown.GraceAdvisory {
			grace = min(grace, max(time.Until(m.deadline), time.Millisecond))
		}
		in := &pb.ShutdownRequest{ProcessId: p.id, Reason: cmp.Or(reason, "shutdown"),
			GracePeriodSeconds: wireSeconds(grace), GracePeriodMs: wireMillis(grace),
			MaxShutdownSeconds: wireSeconds(limit), MaxShutdownMs: wireMillis(limit)}
		p.call(evAck, m.cfg.Shutdown.Poll, func(ctx context.Context, e *event) (err error) {
			e.ack, err = p.child.Shutdown(ctx, in)
			return err
		})
	case doAskStatus:
		p.call(evStatus, m.cfg.Shutdown.Poll, func(ctx context.Context, e *event) (err error) {
			e.status, err = p.child.GetShutdownStatus(ctx, &pb.ShutdownStatusRequest{ProcessId: p.id})
			return err
		})
	case doJoin:
		p.want(true)
		p.calls.Go(p.join)
	case doLeave:
		p.calls.Go(func() {
			p.leave()
			p.runHooks()
			p.send(event{kind: evLeft})
		})
	case doSignal:
		p.tell(Event{Kind: Signalled, Message: a.signal + ": " + m.message})
		p.proc.Signal(signalNumber(a.signal))
		if m.signals == 1 { // one that is stopped would not see it
			wake(p.proc)
		}
	case doTerminate:
		p.noHooks()
		p.tell(Event{Kind: Signalled, Message: "SIGTERM to all: " + m.forcedBecause})
		p.proc.Terminate()
	case doKill:
		p.noHooks()
		p.tell(Event{Kind: Signalled, Message: "SIGKILL to all: " + m.forcedBecause})
		p.proc.Kill()
	case doUnconfirmed:
		names := make([]string, 0, 4)
		for _, member := range p.proc.Members() {
			names = append(names, member.String())
		}
		p.tell(Event{Kind: Alarm, Outcome: Unconfirmed, Message: fmt.Sprintf("not known to have ended %v after SIGKILL; still there: %s",
			reapPatience, strings.Join(names, ", "))})
	case doExtended:
		p.tell(Event{Kind: Extension, Message: fmt.Sprintf("request %d for more time: it has until %v after it was asked, of %v at most",
			a.number, m.deadline.Sub(m.began).Round(time.Millisecond), m.maxAt.Sub(m.began).Round(time.Millisecond))})
	}
}

// call calls the process, which has to answer before it is asked again.
func (p *process) call(kind eventKind, patience time.Duration, f func(ctx context.Context, e *event) error) {
	p.calls.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		e := event{kind: kind}
		if err := f(ctx, &e); err != nil {
			e.readiness, e.ack, e.status = nil, nil, nil
			e.code, e.err = status.Code(err), status.Convert(err).Message()
			if e.code == codes.OK {
				e.code = codes.Unknown
			}
		}
		p.send(e)
	})
}

func wake(p *proc.Process) {
	if sigcont != 0 {
		p.Signal(sigcont)
	}
}

func wireSeconds(d time.Duration) int32 { return int32((d + time.Second - 1) / time.Second) }
func wireMillis(d time.Duration) int64  { return int64((d + time.Millisecond - 1) / time.Millisecond) }
