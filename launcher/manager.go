package launcher

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/internal/proc"
	"github.com/swansong-go/swansong/launcher/internal/mtls"
	"github.com/swansong-go/swansong/launcher/internal/peer"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
	"google.golang.org/grpc"
)

// A Manager runs groups of processes. It is a Swansong tree:
//
//	launcher            holds a guard until all the rest is complete: its socket answers to the end
//	└── (groups)
//	    ├── web
//	    │   ├── web-1   holds a guard until the process has been reaped
//	    │   └── web-2
//	    └── worker
//
// So whoever stops the scope that it was started in stops all groups, side by side, a group after those that depend on it;
// that drain is complete when the last process has been reaped, and a report of it names processes. When the drain is cut
// short ([ctxshutdown.Swansong.Force]), all processes are killed. All methods may be called concurrently.
type Manager struct {
	cfg         Config
	dir         string // absolute
	scope       *ctxshutdown.Swansong
	groupsScope *ctxshutdown.Swansong
	events      *eventHub
	printed     *lineHub
	logs        *logFiles
	lock        *os.File
	pen         proc.Pen // of all that dies with this launcher
	guardian    *guardian
	memory      *memory
	server      *grpc.Server
	remote      *remote        // nil: no admin service over TCP
	running     sync.WaitGroup // the loops of the groups
	reloading   sync.Mutex     // held while a configuration is taken over
	redactor    atomic.Pointer[redactor]

	mu        sync.Mutex
	groups    map[string]*group
	order     []string
	listeners map[string]inheritance
	retiring  []proc.Kept         // guardians of earlier launchers
	processes map[string]*process // also those that have ended not long ago
}

// ErrNotFound is returned where there is no process or group of a name.
var ErrNotFound = errors.New("launcher: not found")

// Start starts the groups of a configuration as part of the scope that ctx carries, or of one of its own, and returns when
// all that can fail early has not: the configuration is sound, the directory is this launcher's alone, the programs and
// working directories are there, and the addresses are listened on. If something does fail, nothing is left behind.
// [Manager.Ready] waits for the processes.
func Start(ctx context.Context, cfg Config) (*Manager, error) {
	if ctx == nil {
		panic("launcher: Start with a nil context")
	}
	m, begin, err := prepare(ctx, cfg)
	if err != nil {
		return nil, err
	}
	begin()
	return m, nil
}

// prepare does all that can fail.
func prepare(ctx context.Context, cfg Config) (_ *Manager, begin func(), err error) {
	if err := cfg.Validate(); err != nil {
		return nil, nil, err
	}
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, nil, fmt.Errorf("launcher: %w", err)
	}
	m := &Manager{
		cfg: cfg, dir: dir, events: newEventHub(cfg.Logger), printed: newLineHub(), logs: newLogFiles(cfg.Output),
		groups: map[string]*group{}, listeners: map[string]inheritance{}, processes: map[string]*process{},
	}
	m.redactor.Store(&redactor{f: cfg.Redact})
	defer func() {
		if err != nil {
			m.release()
		}
	}()
	cfg.Groups = slices.Clone(cfg.Groups)
	for i, g := range cfg.Groups {
		cfg.Groups[i] = g.withDefaults()
		if err := checkFiles(g); err != nil {
			return nil, nil, err
		}
	}
	m.logs.failed = func(err error) {
		m.publish(Event{Kind: Alarm, Message: "some of what processes print is lost: " + err.Error(), Stack: stackOf(err)})
	}
	if m.lock, err = ownDirectory(dir); err != nil {
		return nil, nil, err
	}
	before, err := inherit(dir)
	if err != nil {
		return nil, nil, err
	}
	cfg.Groups = append(cfg.Groups, before.orphans(cfg.Groups)...)
	for _, g := range cfg.Groups {
		if m.listeners[g.Name], err = m.claim(g, before); err != nil {
			return nil, nil, err
		}
	}
	if m.remote, err = m.listenRemote(); err != nil {
		return nil, nil, err
	}
	ln, err := peer.Listen(m.socket())
	if err != nil {
		return nil, nil, fmt.Errorf("launcher: %w", err)
	}
	m.scope, _ = ctxshutdown.WithCancel(ctx, ctxshutdown.WithName("launcher"))
	held, ok := m.scope.TryGuard()
	if !ok {
		ln.Close()
		return nil, nil, fmt.Errorf("launcher: not started: %w", context.Cause(m.scope))
	}
	m.groupsScope, _ = ctxshutdown.WithCancel(m.scope)
	for _, g := range cfg.Groups {
		m.groups[g.Name] = newGroup(m, g)
		m.groups[g.Name].remember(before.Groups[g.Name])
		m.order = append(m.order, g.Name)
	}
	m.server = grpc.NewServer(grpc.Creds(peer.Credentials()), grpc.MaxRecvMsgSize(maxMessage))
	pb.RegisterLauncherNotificationInterfaceServer(m.server, &notifications{manager: m})
	pb.RegisterLauncherAdminInterfaceServer(m.server, &admin{manager: m})

	m.retiring = before.Guardians
	if err := m.prepareToDie(before); err != nil {
		ln.Close()
		held.Release()
		m.scope.Shutdown()
		return nil, nil, err
	}
	return m, func() { m.retire(); m.begin(ln, held) }, nil
}

// retire ends the guardians of earlier launchers. Until then they are remembered, for the next launcher to do it.
func (m *Manager) retire() {
	for _, k := range m.retiring {
		retire(k)
	}
	m.mu.Lock()
	m.retiring = nil
	m.mu.Unlock()
	m.memory.note()
}

// prepareToDie sees to it that whoever comes after this launcher knows what to do, before anything is started. The pen is
// written down before it is made, with what an earlier launcher has left, to which nothing has happened yet.
func (m *Manager) prepareToDie(before remembered) (err error) {
	m.pen = proc.NewPen()
	if err := before.expect(stateIn(m.dir), m.pen); err != nil {
		return err
	}
	defer func() {
		if err != nil && before.Groups == nil {
			os.Remove(stateIn(m.dir)) // as it was
		}
	}()
	m.pen.Make()
	memory := newMemory(stateIn(m.dir), m.recall, func(err error) {
		m.publish(Event{Kind: Alarm, Message: "the state file, without which the next launcher does not know what to do: " + err.Error()})
	})
	if len(m.cfg.Guardian) > 0 {
		alarm := func(message string) { m.publish(Event{Kind: Alarm, Message: message}) }
		var held []*os.File
		for name, g := range m.groups {
			if g.cfg.OnLauncherDeath == Keep {
				held = append(held, m.listeners[name].files...)
			}
		}
		if m.guardian, err = hire(m.cfg.Guardian, orders{m.pen, m.dir}, held, alarm, memory.note); err != nil {
			return err
		}
	}
	if err := memory.begin(); err != nil {
		return err
	}
	m.memory = memory
	return nil
}

// claim takes what a group needs that somebody else may have.
func (m *Manager) claim(g GroupConfig, before remembered) (inheritance, error) {
	in, err := listen(g, before)
	if err != nil {
		return in, err
	}
	if field, err := m.logs.check(g.Log); err != nil {
		in.close()
		return inheritance{}, &ConfigError{g.Name, field, err.Error()}
	}
	return in, nil
}

func (m *Manager) begin(ln net.Listener, held *ctxshutdown.Guard) {
	for _, in := range m.listeners {
		in.own()
	}
	for _, g := range m.allGroups() {
		g.adopt()
		m.loop(g)
	}
	go m.serve(ln, held)
	go m.keepTotal()
}

// loop has a group begin.
func (m *Manager) loop(g *group) {
	m.running.Add(1)
	if g.scope.Go(func(context.Context) { defer m.running.Done(); g.loop() }) {
		return
	}
	go func() { // it was told to stop before it has begun, and may have adopted processes
		defer m.running.Done()
		defer close(g.emptied)
		g.close()
	}()
}

// serve answers until all groups are complete, and clears away.
func (m *Manager) serve(ln net.Listener, held *ctxshutdown.Guard) {
	var serving sync.WaitGroup
	serving.Go(func() { m.server.Serve(ln) })
	serving.Go(m.remote.serve)
	<-m.groupsScope.Completion().Done()
	m.running.Wait()
	m.events.close() // by which those who watch are answered
	m.printed.close()
	serving.Go(func() { stop(m.server) })
	serving.Go(m.remote.stop)
	serving.Wait()
	m.release()
	held.Release()
	m.scope.Shutdown() // it has been told by now, or all groups were; it is no use without them
}

func stop(s *grpc.Server) {
	t := time.AfterFunc(lastAnswers, s.Stop)
	defer t.Stop()
	s.GracefulStop()
}

// keepTotal keeps the deadline for the stop of everything, once that has begun.
func (m *Manager) keepTotal() {
	complete := m.groupsScope.Completion().Done()
	select {
	case <-m.groupsScope.Done():
	case <-complete:
		return
	}
	began := time.Now()
	m.mu.Lock()
	total := m.cfg.TotalDeadline
	m.mu.Unlock()
	if total <= 0 {
		return
	}
	reached := func(at time.Time) bool {
		t := time.NewTimer(time.Until(at))
		defer t.Stop()
		select {
		case <-t.C:
			return true
		case <-complete:
			return false
		}
	}
	if !reached(began.Add(total / 5 * 4)) {
		return
	}
	m.mu.Lock()
	late := slices.Collect(maps.Values(m.processes))
	m.mu.Unlock()
	for _, p := range late {
		go p.send(event{kind: evTerminate, reason: fmt.Sprintf("four fifths of the total deadline of %v are over", total)})
	}
	if reached(began.Add(total / 10 * 9)) {
		m.groupsScope.Force(fmt.Errorf("launcher: nine tenths of the total deadline of %v are over", total))
	}
}

// lastAnswers is how long calls that are under way when everything is over may take: GracefulStop alone would wait for ever.
const lastAnswers = 250 * time.Millisecond

func (m *Manager) release() {
	m.logs.close()
	m.guardian.dismiss()
	m.mu.Lock()
	listeners := slices.Collect(maps.Values(m.listeners))
	m.mu.Unlock()
	for _, l := range listeners {
		l.close()
	}
	m.remote.close()
	m.pen.Empty(time.Now()) // removes it
	if m.memory != nil {
		m.memory.close(m.recall())
	}
	m.events.close()
	m.printed.close()
	if m.lock != nil {
		os.Remove(m.socket())
		m.lock.Close()
	}
}

// socket is where the launcher is told things, and asked.
func (m *Manager) socket() string { return SocketIn(m.dir) }

// SocketIn returns where a launcher with this directory is to be asked.
func SocketIn(dir string) string { return filepath.Join(dir, "launcher.sock") }

func (m *Manager) publish(e Event) {
	e.Message = m.redact(e.Message)
	m.events.publish(e)
}

func (m *Manager) register(p *process) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.processes[p.id] = p
}

func (m *Manager) forget(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.processes, id)
	m.printed.forget(id)
}

func (m *Manager) process(id string) (*process, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p, ok := m.processes[id]; ok {
		return p, nil
	}
	return nil, fmt.Errorf("%w: process %q; status lists those that there are", ErrNotFound, id)
}

func (m *Manager) group(name string) (*group, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if g, ok := m.groups[name]; ok {
		return g, nil
	}
	return nil, fmt.Errorf("%w: group %q; there are %q", ErrNotFound, name, m.order)
}

// allGroups returns the groups, in the order of the configuration.
func (m *Manager) allGroups() []*group {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]*group, len(m.order))
	for i, name := range m.order {
		all[i] = m.groups[name]
	}
	return all
}

func (m *Manager) healthy(group string) bool {
	g, err := m.group(group)
	return err == nil && g.health().Healthy
}

// Shutdown tells all groups to stop, and returns what to wait on: all processes have been reaped, and the launcher's files
// are gone. It is what stopping the scope that the Manager was started in does, for this Manager alone.
func (m *Manager) Shutdown() *ctxshutdown.Completion { return m.scope.Shutdown() }

// Completion returns what to wait on, without telling anybody to stop.
func (m *Manager) Completion() *ctxshutdown.Completion { return m.scope.Completion() }

// Force kills all processes. See [ctxshutdown.Swansong.Force].
func (m *Manager) Force(cause error) *ctxshutdown.Completion { return m.scope.Force(cause) }

// Scope returns the scope of the manager, for reports of who is in the way.
func (m *Manager) Scope() *ctxshutdown.Swansong { return m.scope }

// Watch returns what happens from now on. The channel is closed by stop, and at the end of the manager. Whoever reads too
// slowly misses events, and is told how many.
func (m *Manager) Watch() (events <-chan Event, stop func()) { return m.events.watch() }

// Ready waits until all groups are healthy, and fails with ctx, with the end of the manager, and as soon as a group was given
// up.
func (m *Manager) Ready(ctx context.Context) error {
	if ctx == nil {
		panic("launcher: Ready with a nil context")
	}
	events, stop := m.events.watch()
	defer stop()
	for {
		var waiting []string
		for _, g := range m.allGroups() {
			h := g.health()
			if !h.Healthy {
				waiting = append(waiting, fmt.Sprintf("%s (%d of %d ready)", h.Group, h.Ready, h.MinHealthy))
			}
			if err := g.hopeless(); err != nil {
				return err
			}
		}
		if len(waiting) == 0 {
			return nil
		}
		select {
		case <-events:
		case <-m.scope.Done():
			return fmt.Errorf("launcher: stopped before it was ready: %w", context.Cause(m.scope))
		case <-ctx.Done():
			return fmt.Errorf("launcher: not ready: %q: %w", waiting, context.Cause(ctx))
		}
	}
}

// Health returns how the groups are, in the order of the configuration.
func (m *Manager) Health() []Health {
	var all []Health
	for _, g := range m.allGroups() {
		all = append(all, g.health())
	}
	return all
}

// GroupHealth returns how a group is. The error matches [ErrNotFound].
func (m *Manager) GroupHealth(name string) (Health, error) {
	g, err := m.group(name)
	if err != nil {
		return Health{}, err
	}
	return g.health(), nil
}

// Process returns what is known of a process, also for a while after its end. The error matches [ErrNotFound].
func (m *Manager) Process(id string) (Status, error) {
	p, err := m.process(id)
	if err != nil {
		return Status{}, err
	}
	return p.snapshot(), nil
}

// A Stop says how a process is stopped.
type Stop struct {
	Reason        string
	Grace         time.Duration // 0: the configured one; more than the configured maximum is that
	NoReplacement bool          // the group has one process less from now on
}

// StopProcess tells a process to stop, and returns at once; [Manager.Wait] waits for the end. One that is stopping already
// goes on as it is. The error matches [ErrNotFound].
func (m *Manager) StopProcess(id string, how Stop) error {
	p, err := m.process(id)
	if err != nil {
		return err
	}
	p.owner.stopProcess(p, how.Reason, how.Grace, !how.NoReplacement)
	return nil
}

// Wait waits for the end of a process, and returns how it was.
func (m *Manager) Wait(ctx context.Context, id string) (Status, error) {
	p, err := m.process(id)
	if err != nil {
		return Status{}, err
	}
	select {
	case <-p.over:
		return p.snapshot(), nil
	case <-ctx.Done():
		return p.snapshot(), fmt.Errorf("launcher: waiting for the end of %s: %w", id, context.Cause(ctx))
	}
}

// Roll replaces all processes of the group that the configuration names by processes of that configuration, by its rules,
// and returns when that is done, or has failed, or is paused, with a [*RollError]. When ctx ends, Roll returns, and the roll
// goes on: half a roll is of no use to anybody. Name and Listen cannot be changed.
func (m *Manager) Roll(ctx context.Context, cfg GroupConfig, reason string) error {
	g, err := m.group(cfg.Name)
	if err != nil {
		return err
	}
	if errs := append(cfg.validate(m.dir), m.cfg.checkDeath(cfg)...); len(errs) > 0 {
		return errors.Join(errs...)
	}
	if err := checkFiles(cfg); err != nil {
		return err
	}
	cfg = cfg.withDefaults()
	if err := g.keepsListeners(cfg); err != nil {
		return err
	}
	return g.follow(ctx, func() (*leg, error) { return g.startRoll(cfg, reason) })
}

// Restart is [Manager.Roll] to the configuration that the group has.
func (m *Manager) Restart(ctx context.Context, name, reason string) error {
	return m.command(ctx, name, func(g *group) (*leg, error) { return g.startRoll(g.config(), reason) })
}

// Resume has a roll that is paused go on where it is, and returns as Roll does. The error matches [ErrNotPaused] where none
// is paused.
func (m *Manager) Resume(ctx context.Context, name, reason string) error {
	return m.command(ctx, name, func(g *group) (*leg, error) { return g.resumeRoll(reason) })
}

// Rollback has a roll turn back, be it under way or paused, and returns nil when all that it has replaced has been replaced
// by what was there before. When ctx ends, it returns, and the roll goes on. The error matches [ErrNotRolling] where there
// is none.
func (m *Manager) Rollback(ctx context.Context, name, reason string) error {
	err := m.command(ctx, name, func(g *group) (*leg, error) { return g.turnBack(reason) })
	if rolledBack(err) {
		return nil
	}
	return err
}

// command gives a group an order, and waits for what comes of it.
func (m *Manager) command(ctx context.Context, name string, give func(g *group) (*leg, error)) error {
	g, err := m.group(name)
	if err != nil {
		return err
	}
	return g.follow(ctx, func() (*leg, error) { return give(g) })
}

// checkFiles says early, and by field, what would fail at the start of a process.
func checkFiles(g GroupConfig) error {
	if g.WorkDir != "" {
		if info, err := os.Stat(g.WorkDir); err != nil {
			return &ConfigError{g.Name, "WorkDir", err.Error()}
		} else if !info.IsDir() {
			return &ConfigError{g.Name, "WorkDir", g.WorkDir + " is no directory"}
		}
	}
	if err := lookUp(g.Command[0], g.WorkDir); err != nil {
		return &ConfigError{g.Name, "Command", err.Error()}
	}
	if g.Transport.Network == "tcp" {
		if _, err := mtls.Load(mtls.Files(g.Transport.TLS), nil); err != nil {
			return &ConfigError{g.Name, "Transport.TLS", err.Error()}
		}
	}
	for _, h := range g.PreStop {
		if err := lookUp(h.Command[0], ""); err != nil {
			return &ConfigError{g.Name, "PreStop", err.Error()}
		}
	}
	return nil
}
