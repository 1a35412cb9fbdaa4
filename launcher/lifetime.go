package launcher

import (
	"context"
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
	"github.com/swansong-go/swansong/launcher/internal/peer"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
	"google.golang.org/grpc"
)

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
		cfg: cfg, dir: dir, events: newEventHub(cfg.Logger), printed: newLineHub(),
		groups: map[string]*group{}, listeners: map[string]inheritance{}, processes: map[string]*process{},
	}
	m.redactor.Store(&redactor{f: cfg.Redact})
	m.logs = newLogFiles(cfg.Output, func(err error) {
		m.publish(Event{Kind: Alarm, Message: "some of what processes print is lost: " + err.Error(), Stack: stackOf(err)})
	})
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
	if m.lock, err = ownDirectory(dir); err != nil {
		return nil, nil, err
	}
	before, err := inherit(dir)
	if err != nil {
		return nil, nil, err
	}
	before.keepFor(cfg.Groups)
	cfg.Groups = append(cfg.Groups, before.orphans(cfg.Groups)...)
	for _, g := range cfg.Groups {
		if taken := m.mayListen(g, nil, cfg.has); taken != nil {
			return nil, nil, taken
		}
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
		m.groups[g.Name] = newGroup(m, g, cfg.Source)
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
	return m, func() { before.hold(dir); m.retire(); m.begin(ln, held) }, nil
}

// retire ends the guardians of earlier launchers. Until then they are remembered, for the next launcher to do it.
func (m *Manager) retire() {
	for _, k := range m.retiring {
		retire(k)
	}
	m.hear()
	m.mu.Lock()
	m.retiring = nil
	m.mu.Unlock()
	m.memory.note()
}

// prepareToDie sees to it that whoever comes after this launcher knows what to do, before anything is started. The pen is
// written down before it is made, with what an earlier launcher has left, to which nothing has happened yet.
func (m *Manager) prepareToDie(before remembered) error {
	m.pen = proc.NewPen()
	m.unchanged = before.Groups != nil
	guards, expected := guardianPen(), before
	if len(m.cfg.Guardian) > 0 {
		expected.Guardians = append(slices.Clone(before.Guardians), proc.Kept{Pen: guards})
	}
	expected = expected.expecting(m.pen)
	var prepared, begun atomic.Bool
	recall := func() remembered {
		if prepared.Load() {
			return m.recall()
		}
		return expected
	}
	m.memory = newMemory(stateIn(m.dir), recall, func(err error) {
		switch {
		case !begun.Load(): // it is what Start returns
		case err == nil:
			m.publish(Event{Kind: AllClear, Message: "the state file is written again"})
		default:
			m.publish(Event{Kind: Alarm, Message: "the state file, without which the next launcher does not know what to do, cannot be written, " +
				"which is tried again until it can: " + err.Error()})
		}
	})
	if err := m.memory.begin(m.scope.Done()); err != nil {
		return fmt.Errorf("launcher: not started: the state file: %w", err)
	}
	m.pen.Make()
	if len(m.cfg.Guardian) > 0 {
		alarm := func(message string) { m.publish(Event{Kind: Alarm, Message: message}) }
		var held []*os.File
		for name, g := range m.groups {
			if g.cfg.OnLauncherDeath == Keep {
				held = append(held, m.listeners[name].files...)
			}
		}
		var err error
		if m.guardian, err = hire(m.cfg.Guardian, orders{m.pen, m.dir, guards}, held, alarm, m.memory.written); err != nil {
			return err
		}
	}
	prepared.Store(true)
	if err := m.memory.written(m.scope.Done()); err != nil {
		return fmt.Errorf("launcher: not started: the state file: %w", err)
	}
	begun.Store(true)
	m.unchanged = false
	return nil
}

// claim takes what a group needs that somebody else may have.
func (m *Manager) claim(g GroupConfig, before remembered) (inheritance, error) {
	in, err := listen(g, before)
	if err != nil {
		return in, err
	}
	if err := g.checkLog(); err != nil {
		in.close()
		return inheritance{}, err
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
	began, total := m.stopping()
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
	if !reached(terminateAt(began, total)) {
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

// terminateAt is when whoever is left of a stop of everything gets SIGTERM.
func terminateAt(began time.Time, total time.Duration) time.Time { return began.Add(total / 5 * 4) }

// stopping returns when all groups were told to stop, as the first who asks here has seen it, and how long that may take, 0 for
// any time.
func (m *Manager) stopping() (began time.Time, total time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopBegan.IsZero() {
		m.stopBegan, m.stopTotal = time.Now(), m.totalDeadline()
	}
	return m.stopBegan, m.stopTotal
}

// left cuts what a process may take at what a stop of everything leaves it.
func (m *Manager) left(d time.Duration) time.Duration {
	if m.groupsScope.Err() == nil {
		return d
	}
	began, total := m.stopping()
	if total <= 0 {
		return d
	}
	return min(d, time.Until(terminateAt(began, total)))
}

// totalDeadline returns what a stop of everything that begins now may take, 0 for any time. m.mu is held.
func (m *Manager) totalDeadline() time.Duration {
	total := m.cfg.TotalDeadline
	if !m.cfg.TotalDeadlineDerived {
		return total
	}
	for _, g := range m.groups {
		switch {
		case total == 0, g.had == nil:
		case *g.had == 0:
			total = 0
		default:
			total = max(total, *g.had)
		}
	}
	return total
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
	if m.lock != nil {
		os.Remove(m.socket())
	}
	unlock := func() {
		if m.lock != nil {
			m.lock.Close()
		}
	}
	if m.memory != nil {
		m.memory.close(!m.unchanged && m.recall().dispensable(), unlock)
	} else {
		unlock()
	}
	m.events.close()
	m.printed.close()
}
