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
	unchanged   bool // there is what an earlier launcher has left, and this one has not come to do anything about it
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
	stopBegan time.Time           // zero: nobody has told all groups to stop
	stopTotal time.Duration       // what that may take, 0 for any time
	processes map[string]*process // also those that have ended not long ago
}

// ErrNotFound is returned where there is no process or group of a name.
var ErrNotFound = errors.New("launcher: not found")

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

// forget forgets a process that has ended, and returns what it was, nil if it is not known.
func (m *Manager) forget(id string) *process {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.processes[id]
	delete(m.processes, id)
	m.printed.forget(id)
	return p
}

// printsTo reports whether a process that is known prints to a file of its own, or has done so.
func (m *Manager) printsTo(process, path string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.processes[process]
	return p != nil && p.cfg.Log.file(process) == path
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
	NoReplacement bool          // the group has one process less from now on, until a reload changes Desired
}

// StopProcess tells a process to stop, and returns at once; [Manager.Wait] waits for the end. One that is stopping already
// goes on as it is, but that with NoReplacement its group has one less, unless it was one too many, or has nobody follow it anyway. The error
// matches [ErrNotFound] where there is none of that id.
func (m *Manager) StopProcess(id string, how Stop) error {
	if how.Grace < 0 {
		return fmt.Errorf("launcher: Stop.Grace is %v, and has to be 0, for the configured one, or more", how.Grace)
	}
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
// goes on: half a roll is of no use to anybody. Name, Listen and DependsOn cannot be changed:
// for another order of the groups there is [Manager.Reload], which sees all of them.
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
	if err := g.checkLog(cfg); err != nil {
		return err
	}
	return g.follow(ctx, func() (*leg, error) {
		g.mu.Lock()
		defer g.mu.Unlock()
		if now := g.cfg.DependsOn; !slices.Equal(now, cfg.DependsOn) {
			return nil, &ConfigError{g.name, "DependsOn", fmt.Sprintf("cannot change from %q by a roll, which does not know of the other groups; reload a whole configuration", now)}
		}
		return g.startRoll(cfg, g.sources[g.revision], reason)
	})
}

// Restart is [Manager.Roll] to the configuration that the group has: where a roll is paused, the one before that.
func (m *Manager) Restart(ctx context.Context, name, reason string) error {
	return m.command(ctx, name, func(g *group) (*leg, error) { return g.restart(reason) })
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
