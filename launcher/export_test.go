package launcher

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/swansong-go/swansong/internal/proc"
	"github.com/swansong-go/swansong/launcher/internal/roll"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
	"google.golang.org/grpc/codes"
)

// A Machine is a machine that time passes for when a test says so.
type Machine struct {
	m     *machine
	begun time.Time
	now   time.Time
}

// NewMachine returns the machine of a process that has just been started, with the defaults for what is left open.
func NewMachine(cfg GroupConfig) *Machine {
	cfg.Name, cfg.Command, cfg.Desired = "m", []string{"m"}, 1
	begun := time.Unix(1_000_000, 0)
	x := &Machine{m: newMachine(cfg.withDefaults()), begun: begun, now: begun}
	x.step(event{kind: evSpawned})
	return x
}

// step returns what is to be done, in words.
func (x *Machine) step(e event) (todo []string) {
	e.at = x.now
	for _, a := range x.m.step(e) {
		todo = append(todo, actionNames[a.kind]+a.signal)
	}
	return todo
}

var actionNames = map[actionKind]string{doAskReadiness: "ask readiness", doJoin: "join", doLeave: "leave", doShutdown: "shutdown",
	doAskStatus: "ask status", doSignal: "signal ", doTerminate: "terminate", doKill: "kill", doUnconfirmed: "unconfirmed",
	doExtended: "extended"}

func (x *Machine) State() State         { return x.m.state }
func (x *Machine) Outcome() Outcome     { return x.m.outcome }
func (x *Machine) Message() string      { return x.m.message }
func (x *Machine) Why() string          { return x.m.forcedBecause }
func (x *Machine) Extensions() int      { return x.m.extensions }
func (x *Machine) Over() bool           { return x.m.phase == over }
func (x *Machine) Since() time.Duration { return x.now.Sub(x.begun) }

// Next returns how long it is until the machine wants to do something by itself, negative if it does not.
func (x *Machine) Next() time.Duration {
	next := x.m.next()
	if next.IsZero() {
		return -1
	}
	return next.Sub(x.now)
}

// Pass lets time pass, and tells of it, as if the timer had fired then.
func (x *Machine) Pass(d time.Duration) []string {
	x.now = x.now.Add(d)
	return x.step(event{kind: evTick})
}

func (x *Machine) Readiness(s pb.ReadinessResponse_ReadinessState) []string {
	return x.step(event{kind: evReadiness, readiness: &pb.ReadinessResponse{State: s, Message: "it says"}})
}

func (x *Machine) ReadinessFails(c codes.Code) []string {
	return x.step(event{kind: evReadiness, code: c, err: "failed"})
}

func (x *Machine) PushReady() []string { return x.step(event{kind: evPushedReady}) }
func (x *Machine) Stop() []string      { return x.step(event{kind: evStop, reason: "test"}) }
func (x *Machine) Left() []string      { return x.step(event{kind: evLeft}) }
func (x *Machine) Force() []string     { return x.step(event{kind: evForce, reason: "test"}) }
func (x *Machine) Exited() []string    { return x.step(event{kind: evExited}) }

func (x *Machine) Ack(yes bool) []string {
	return x.step(event{kind: evAck, ack: &pb.ShutdownAck{Acknowledged: yes}})
}

func (x *Machine) AckFails(c codes.Code) []string {
	return x.step(event{kind: evAck, code: c, err: "failed"})
}

func (x *Machine) Status(s *pb.ShutdownStatus) []string {
	return x.step(event{kind: evStatus, status: s})
}

func (x *Machine) StatusFails(c codes.Code) []string {
	return x.step(event{kind: evStatus, code: c, err: "failed"})
}

func (x *Machine) PushEnd(drainError string) []string {
	return x.step(event{kind: evPushedEnd, reason: "over", drainError: drainError})
}

// Reaped tells how the process has ended. The exit is that of a process: a code, or a signal.
func (x *Machine) Reaped(code int, sig syscall.Signal, terminated, killed bool) []string {
	return x.step(event{kind: evReaped, exit: proc.Exit{Code: code, Signal: sig, State: someState(), Terminated: terminated, Killed: killed}})
}

// ReapedUnknown is the end of a process that was somebody else's to wait for.
func (x *Machine) ReapedUnknown() []string { return x.step(event{kind: evReaped}) }

func someState() *os.ProcessState { return new(os.ProcessState) }

// StateIn is for tests that look into the state file, which is nobody else's business.
var StateIn = stateIn

// EndNow ends a process that an earlier launcher has left.
var EndNow = endNow

// HoldFor has guardians hold listeners for another time.
func HoldFor(d time.Duration) { heldFor = d }

// WaitForLock has those who want the lock of a directory wait for another time.
func WaitForLock(d time.Duration) { lockPatience = d }

// Follows is the table of states.
var Follows = follows

// StartWatched is Start and Watch, without a moment in between.
func StartWatched(ctx context.Context, cfg Config) (*Manager, <-chan Event, error) {
	m, begin, err := prepare(ctx, cfg)
	if err != nil {
		return nil, nil, err
	}
	events, _ := m.Watch()
	begin()
	return m, events, nil
}

// StartStopped is Start for who is told to stop when all that can fail has not.
func StartStopped(ctx context.Context, cfg Config) (*Manager, error) {
	m, begin, err := prepare(ctx, cfg)
	if err != nil {
		return nil, err
	}
	m.Shutdown()
	begin()
	return m, nil
}

// AdoptedMachine returns the machine of a process that has been ready, and stopping, for some time, 0 if not at all, and what
// is to be done first.
func AdoptedMachine(cfg GroupConfig, ready, stopping time.Duration) (*Machine, []string) {
	x := NewMachine(cfg)
	x.m = newMachine(x.m.cfg)
	e := event{kind: evAdopted, reason: "test"}
	if ready > 0 {
		e.readyAt = x.now.Add(-ready)
	}
	if stopping > 0 {
		e.asked = x.now.Add(-stopping)
	}
	return x, x.step(e)
}

// AskedMachine returns the machine of an adopted process that was asked to stop some time ago, the moment it was told to, and has so much
// more time, 0 if it has not asked for it; and what is to be done first.
func AskedMachine(cfg GroupConfig, asked, granted time.Duration) (*Machine, []string) {
	x := NewMachine(cfg)
	x.m = newMachine(x.m.cfg)
	e := event{kind: evAdopted, reason: "test", asked: x.now.Add(-asked), began: x.now.Add(-asked)}
	if granted > 0 {
		e.granted = x.now.Add(granted)
	}
	return x, x.step(e)
}

// AwaitMemory returns when the state file has all that there was to remember, and nobody is about to write it.
func AwaitMemory(m *Manager) {
	for again := true; again; again = len(m.memory.poke) > 0 {
		m.memory.written(nil)
	}
}

// A Memory writes the state file of a launcher without groups.
type Memory struct{ m *memory }

// NewMemory begins to write in a directory. Each try is told, and what the launcher would tell.
func NewMemory(dir string, tried func(), told func(error)) (Memory, error) {
	m := newMemory(stateIn(dir), func() remembered { tried(); return remembered{} }, told)
	return Memory{m}, m.begin(nil)
}

func (m Memory) Note()                              { m.m.note() }
func (m Memory) Written(stop <-chan struct{}) error { return m.m.written(stop) }
func (m Memory) Close()                             { m.m.close(true, func() {}) }

// RollBack has a roll from revision 1 to 3 of processes of these revisions fail, and returns what that comes to. There are no real
// processes, and no time passes: a new one takes so long to be ready.
func RollBack(m *Manager, cfg GroupConfig, took time.Duration, revisions ...int) error {
	cfg = cfg.withDefaults()
	g := newGroup(m, cfg, nil)
	defer g.scope.Shutdown()
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.begun
	start := func(revision int) {
		g.number++
		p := newProcess(m, g, fmt.Sprintf("%s-%d", g.name, g.number), revision, cfg)
		p.status.Started = now.Add(time.Duration(g.number))
		g.all[p.id] = p
	}
	wait := func() {
		now = now.Add(took)
		for _, p := range g.all {
			if st := &p.status; st.State == Spawning {
				st.State, st.Routed, st.ReadyAt = Ready, true, now
			}
		}
	}
	for _, revision := range revisions {
		start(revision)
	}
	wait()
	l := &leg{done: make(chan struct{})}
	g.revision, g.configs = 3, map[int]GroupConfig{1: cfg, 3: cfg}
	g.roll = &rolling{from: 1, to: 3, leg: l}
	g.roll.state = roll.Begin(g.rollRules(), g.view(now))
	g.roll.count(roll.New, "", Status{Group: g.name})
	for {
		switch a := g.next(now); a.Do {
		case roll.Start:
			start(g.revisionOf(a.Version))
		case roll.Stop:
			delete(g.all, a.ID)
		default:
			select {
			case <-l.done:
				return l.err
			default:
				wait()
			}
		}
	}
}

// StartsForTheUntold reports whether a group of two starts another one when one of them has ended, and it was not told of that.
func StartsForTheUntold(m *Manager, cfg GroupConfig) bool {
	g := newGroup(m, cfg.withDefaults(), nil)
	defer g.scope.Shutdown()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, state := range []State{Complete, Ready} {
		g.number++
		p := newProcess(m, g, fmt.Sprintf("%s-%d", g.name, g.number), 1, g.cfg)
		p.status.State, p.status.Routed = state, true
		g.all[p.id] = p
	}
	return g.next(time.Now()).Do == roll.Start
}

// ConfigOf returns what a group has been told last, which is nobody else's business.
func ConfigOf(m *Manager, group string) GroupConfig {
	g, err := m.group(group)
	if err != nil {
		panic(err)
	}
	return g.config()
}

// WithoutOurs is what of the launcher's environment processes and hooks get.
var WithoutOurs = withoutOurs

// NewHandover begins to read what a process prints, for who is told to leave.
func NewHandover(f *os.File, most int, patience time.Duration) (r io.Reader, leave func()) {
	h := &handover{file: f, most: most, patience: patience}
	return h, h.leave
}

// TrimLogs removes the log files of a group that has so many of earlier processes, but for those that are kept, and returns how many those
// are. They are in files, and in no directory.
func TrimLogs(files fs.FS) (found, kept int) {
	const dir = "/dev/null/logs"
	g := &group{manager: &Manager{}, name: "web"}
	left := &leftLogs{earlier: logsIn(files, dir, g.name)}
	found = len(left.earlier)
	newLogFiles(nil, nil).trim(g, left)
	return found, len(left.earlier)
}
