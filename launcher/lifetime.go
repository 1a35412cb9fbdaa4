package launcher

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/internal/proc"
	"github.com/swansong-go/swansong/launcher/internal/admin"
	"github.com/swansong-go/swansong/launcher/internal/callback"
	"github.com/swansong-go/swansong/launcher/internal/events"
	"github.com/swansong-go/swansong/launcher/internal/guardian"
	"github.com/swansong-go/swansong/launcher/internal/lifecycle"
	"github.com/swansong-go/swansong/launcher/internal/listeners"
	"github.com/swansong-go/swansong/launcher/internal/output"
	"github.com/swansong-go/swansong/launcher/internal/process"
	"github.com/swansong-go/swansong/launcher/internal/secrets"
	"github.com/swansong-go/swansong/launcher/internal/spawn"
	"github.com/swansong-go/swansong/launcher/internal/spec"
	"github.com/swansong-go/swansong/launcher/internal/statefile"
	"github.com/swansong-go/swansong/launcher/internal/upgrade"
)

// ErrInUse is returned by [Start] if another launcher runs with the directory.
var ErrInUse = statefile.ErrInUse

// StateError is returned by [Start] if the state file of an earlier launcher cannot be used. The
// file is left unchanged. Its fields are
//
//	Path    string
//	Cause   error
//	Damaged bool   // the file was damaged, so Recover can replace it
//	Found   string // the processes that Recover has found
//
// A damaged file is no error where all groups have [Kill] and no kept process is found: Start
// renames the file and raises an [Alarm].
type StateError = statefile.Error

// SocketIn returns the path of the socket of a launcher with this directory.
func SocketIn(dir string) string { return statefile.SocketIn(dir) }

// Start starts the groups of a configuration in the scope that ctx carries, or in a scope of its
// own. Before it starts processes, it checks the configuration, locks the directory, looks up
// programs and working directories, and listens on all addresses. If that fails, it leaves nothing
// behind. Start does not wait for the processes to become ready; [Manager.Ready] does.
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

// prepare does everything that can fail. The function that it returns starts the groups.
func prepare(ctx context.Context, cfg Config) (_ *Manager, begin func(), err error) {
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, nil, fmt.Errorf("launcher: %w", err)
	}
	taken, err := upgrade.Take(dir)
	defer func() {
		if err != nil {
			err = taken.GoBack(err)
		}
	}()
	if err != nil {
		return nil, nil, err
	}
	if err := cfg.Validate(); err != nil {
		return nil, nil, err
	}
	m := newManager(cfg, dir, taken)
	defer func() {
		if err != nil {
			m.release()
		}
	}()
	groups := cfg.resolve().Groups
	for _, g := range groups {
		if err := cfg.checkFiles(g); err != nil {
			return nil, nil, err
		}
	}
	inFiles, err := cfg.readSecretFiles()
	if err != nil {
		return nil, nil, err
	}
	before, handed, err := m.succeed(groups)
	if err != nil {
		return nil, nil, err
	}
	m.host.Secrets.Configure(secrets.Config(cfg.Secrets), inFiles, groups)
	listeners.Reserve(before, groups)
	groups = append(groups, orphansOf(before, groups, handed)...)
	if err := m.openListeners(groups, taken.Holding(before), cfg.has); err != nil {
		return nil, nil, err
	}
	if err := m.listenAdmin(); err != nil {
		return nil, nil, err
	}
	if err := m.server.ListenUnix(SocketIn(m.host.Dir), taken.Admin()); err != nil {
		return nil, nil, fmt.Errorf("launcher: %w", err)
	}
	m.scope, _ = ctxshutdown.WithCancel(ctx, ctxshutdown.WithName("launcher"))
	guard, ok := m.scope.TryGuard()
	if !ok {
		return nil, nil, fmt.Errorf("launcher: not started: %w", context.Cause(m.scope))
	}
	m.groupsScope, _ = ctxshutdown.WithCancel(m.scope)
	m.host.Deadline.Scope = m.groupsScope
	m.addGroups(groups, before, handed)
	m.previousGuardians = before.Guardians
	if err := m.startStateFile(before); err != nil {
		guard.Release()
		m.scope.Shutdown()
		return nil, nil, err
	}
	return m, func() {
		if taken == nil {
			before.OpenOutputs(dir)
			m.endPreviousGuardians()
			m.begin(guard)
			return
		}
		m.takeOver(taken)
		m.taken = nil
		m.begin(guard)
		m.announce(taken)
		taken.Done(m.scope.Done())
	}, nil
}

// newManager returns a Manager that has not acquired anything yet.
func newManager(cfg Config, dir string, taken *upgrade.Taken) *Manager {
	m := &Manager{
		cfg: cfg, counter: counter{groups: map[string]GroupStats{}},
		registry: newRegistry(), taken: taken,
	}
	m.events = events.NewHub(cfg.Logger, m.counter.count)
	m.host = &process.Host{Dir: dir, Router: cfg.Router, Helper: cfg.Helper, Publish: m.publish, RecentLines: output.NewRecent()}
	m.reloader = &reloader{manager: m}
	m.server = admin.New(adminLauncher{m})
	m.host.Deadline.Configure(cfg.TotalDeadline, cfg.TotalDeadlineDerived)
	m.host.Secrets = secrets.New(func() { m.host.Guardian.Tell() })
	m.host.Logs = output.NewLogs(callback.Writer("Output", cfg.Output), func(err error) {
		m.publish(Event{Kind: Alarm, Message: "some output of processes is lost: " + err.Error(), Stack: callback.StackOf(err)})
	})
	return m
}

// succeed locks the directory, and returns what an earlier launcher has left there that is to be
// kept. Or it takes over from another program, which has handed over all that.
func (m *Manager) succeed(groups []spec.Group) (before statefile.State, handed map[string]*groupHandoff, err error) {
	if m.taken != nil {
		m.lock = m.taken.Lock()
		handed, err = handedGroups(m.taken.Handoff)
		m.restoreLines(m.taken.Lines)
		return m.taken.State, handed, err
	}
	if m.lock, err = lockDirectory(m.host.Dir); err != nil {
		return before, nil, err
	}
	before, err = m.endPrevious(groups)
	return before, nil, err
}

// endPrevious ends what an earlier launcher has left and is not to be kept, and returns the rest.
func (m *Manager) endPrevious(groups []spec.Group) (statefile.State, error) {
	keeps := slices.ContainsFunc(groups, func(g spec.Group) bool { return g.OnLauncherDeath == Keep })
	before, aside, err := guardian.EndPrevious(m.host.Dir, keeps)
	if m.damagedState = aside; aside != "" {
		listeners.RemoveAllStale(groups) // only the damaged file had their names
	}
	return before, err
}

// endPreviousGuardians ends the guardians of earlier launchers. It publishes what they have
// reported, and that the state file was damaged. Until then they are in the state file, so that the
// next launcher ends them if this one is killed.
func (m *Manager) endPreviousGuardians() {
	for _, k := range m.previousGuardians {
		guardian.End(k)
	}
	if m.damagedState != "" {
		m.publish(Event{Kind: Alarm, Message: "the state file of an earlier launcher was damaged, and is now " + m.damagedState + "; no process that was to be kept is found"})
	}
	for _, complaint := range guardian.Complaints(m.host.Dir) {
		m.publish(Event{Kind: Alarm, Message: "while no launcher was running: " + complaint})
	}
	m.mu.Lock()
	m.previousGuardians = nil
	m.mu.Unlock()
	m.host.StateFile.Changed()
}

// startStateFile writes the state file and starts the guardian, before any process is started, so
// that a launcher after this one finds everything that this one has started. The containment is
// recorded before it is made, with the state that the earlier launcher has left, of which nothing
// has changed yet.
func (m *Manager) startStateFile(before statefile.State) error {
	m.host.Containment = proc.NewContainment()
	written := before
	if m.taken != nil {
		m.host.Containment = before.Containment
		written, _ = statefile.Read(statefile.Path(m.host.Dir)) // the other program may not have been able to write it
	}
	m.stateUntouched = before.Groups != nil
	guardianContainment, expected := guardian.NewContainment(), before
	if len(m.cfg.Guardian) > 0 {
		expected.Guardians = append(slices.Clone(before.Guardians), proc.Adoptable{Containment: guardianContainment})
	}
	expected = expected.WithContainment(m.host.Containment)
	var recordable atomic.Bool
	state := func() statefile.State {
		if recordable.Load() {
			return m.record()
		}
		return expected
	}
	m.host.StateFile = statefile.NewWriter(statefile.Path(m.host.Dir), written, state, func(err error) {
		if err == nil {
			m.publish(Event{Kind: AllClear, Message: "the state file can be written again; the next launcher can adopt all kept processes"})
			return
		}
		m.publish(Event{Kind: Alarm, Message: "the state file cannot be written, so the next launcher will miss changes; it is retried: " + err.Error()})
	})
	// A disk that is full is an alarm and no error: it must not keep the groups down.
	stopped := func(err error) error {
		if err == nil || m.scope.Err() == nil {
			return nil
		}
		return fmt.Errorf("launcher: not started: the state file: %w", err)
	}
	unwritten := m.host.StateFile.Start(m.scope.Done())
	if err := stopped(unwritten); err != nil {
		return err
	}
	m.host.Containment.Make()
	if len(m.cfg.Guardian) > 0 {
		report := func(message string) { m.publish(Event{Kind: Alarm, Message: message}) }
		var kept []*os.File
		for _, g := range m.allGroups() {
			if g.config().OnLauncherDeath == Keep {
				kept = append(kept, m.listenersOf(g.name).Files()...)
			}
		}
		var err error
		m.host.Guardian, err = guardian.Start(guardian.Config{Args: m.cfg.Guardian, Env: append(spawn.InheritedEnv(os.Environ()), spawn.EnvDir+"="+m.host.Dir),
			Orders: guardian.Orders{Processes: m.host.Containment, Dir: m.host.Dir, Self: guardianContainment}, Files: kept, Report: report, Flush: m.host.StateFile.Flush, Secrets: m.host.Secrets.Values, Unrecorded: m.unrecorded})
		if err != nil {
			return &ConfigError{Field: "Guardian", Rule: err.Error()}
		}
	}
	recordable.Store(true)
	if unwritten == nil { // otherwise a disk that hangs would be waited for again
		if err := stopped(m.host.StateFile.Flush(m.scope.Done())); err != nil {
			return err
		}
	}
	m.stateUntouched = false
	return nil
}

// unrecorded returns the containments of the processes that are not in the state file.
func (m *Manager) unrecorded() (all []proc.Containment) {
	for _, p := range m.allProcesses() {
		if p.IsUnrecorded() {
			all = append(all, p.Containment())
		}
	}
	return all
}

// lockDirectory makes the directory if it is missing, and locks it.
func lockDirectory(dir string) (*os.File, error) {
	lock, err := statefile.Lock(dir)
	if err != nil && !errors.Is(err, ErrInUse) {
		return nil, &ConfigError{Field: "Dir", Rule: err.Error()}
	}
	return lock, err
}

// begin starts the groups and the services. The guard is released when all of them have ended.
func (m *Manager) begin(guard *ctxshutdown.Guard) {
	for _, set := range m.allListeners() {
		set.UnlinkOnClose()
	}
	for _, g := range m.allGroups() {
		g.adopt()
		m.runGroup(g)
	}
	go m.serve(guard)
	toAll := func(e lifecycle.Event) {
		for _, p := range m.allProcesses() {
			go p.Send(e)
		}
	}
	go m.host.Deadline.Enforce(func(terminateAt time.Time) {
		toAll(lifecycle.Event{Kind: lifecycle.OnLessTime, Limit: terminateAt})
	}, func(reason string) {
		toAll(lifecycle.Event{Kind: lifecycle.OnTerminate, Reason: reason})
	})
}

// runGroup starts the goroutine of a group.
func (m *Manager) runGroup(g *group) {
	m.running.Add(1)
	if g.scope.Go(func(context.Context) { defer m.running.Done(); g.run() }) {
		return
	}
	go func() { // the group was stopped before it began, but may have adopted processes
		defer m.running.Done()
		defer close(g.emptied)
		g.close()
	}()
}

// serve serves until all groups have ended, and then releases everything.
func (m *Manager) serve(guard *ctxshutdown.Guard) {
	var serving sync.WaitGroup
	serving.Go(m.server.Serve)
	<-m.groupsScope.Completion().Done()
	m.running.Wait()
	m.events.Close() // ends the calls of WatchEvents
	m.host.RecentLines.Close()
	serving.Go(m.server.Stop)
	serving.Wait()
	m.release()
	guard.Release()
	m.scope.Shutdown() // the scope may still be running, if only its groups were stopped
}

// release releases what Start has acquired.
func (m *Manager) release() {
	m.host.Logs.Close()
	m.host.Guardian.Dismiss()
	for _, set := range m.allListeners() {
		set.Close()
	}
	m.server.Close()
	unlock := func() {
		if m.lock != nil {
			m.lock.Close()
		}
	}
	if m.taken != nil { // the program that has handed over goes on with the rest
		if m.host.StateFile != nil {
			m.host.StateFile.Close(false, func() {})
		}
		return
	}
	m.host.Containment.Empty(time.Now()) // removes the cgroup of the processes
	if m.lock != nil {
		os.Remove(SocketIn(m.host.Dir))
	}
	if m.host.StateFile != nil {
		m.host.StateFile.Close(!m.stateUntouched && !m.record().HasProcesses(), unlock)
	} else {
		unlock()
	}
	m.events.Close()
	m.host.RecentLines.Close()
}
