package launcher

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/launcher/internal/admin"
	"github.com/swansong-go/swansong/launcher/internal/callback"
	"github.com/swansong-go/swansong/launcher/internal/controller"
	"github.com/swansong-go/swansong/launcher/internal/events"
	"github.com/swansong-go/swansong/launcher/internal/listeners"
	"github.com/swansong-go/swansong/launcher/internal/mtls"
	"github.com/swansong-go/swansong/launcher/internal/output"
	"github.com/swansong-go/swansong/launcher/internal/process"
	"github.com/swansong-go/swansong/launcher/internal/secrets"
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
// A damaged file is no error if all groups have [Kill] and no kept process is found: then Start
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

// A start makes a Manager, out of what an earlier launcher has left or another program has handed
// over. Its methods are called once each, by one goroutine.
type start struct {
	*Manager
	taken   *upgrade.Taken                 // the program that this one is taking over; nil if it is not
	before  statefile.State                // what the earlier launcher has left, without what was ended
	handed  map[string]*controller.Handoff // what the taken-over program has handed over, by group
	damaged string                         // the new path of the damaged state file of the earlier launcher; empty if it was intact
}

// prepare makes a Manager, and does all that can fail in the start of a launcher. The function that
// it returns starts the groups.
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
	s := start{Manager: newManager(cfg, dir), taken: taken}
	guard, err := s.acquire(ctx)
	if err != nil {
		s.release(taken != nil)
		return nil, nil, err
	}
	return s.Manager, func() { s.run(guard) }, nil
}

// acquire acquires everything that the Manager needs. It returns a guard of the Manager's scope,
// which must be released when all else has ended. If acquire fails, its caller must call release.
func (s *start) acquire(ctx context.Context) (*ctxshutdown.Guard, error) {
	groups := s.cfg.resolve().Groups
	for _, g := range groups {
		if err := s.cfg.checkFiles(g); err != nil {
			return nil, err
		}
	}
	inFiles, err := s.cfg.readSecretFiles()
	if err != nil {
		return nil, err
	}
	if err := s.succeed(groups); err != nil {
		return nil, err
	}
	s.host.Secrets.Configure(secrets.Config(s.cfg.Secrets), inFiles, groups)
	listeners.Reserve(s.before, groups)
	groups = append(groups, s.orphans(groups)...)
	if err := s.openListeners(groups, s.taken.WithSelf(s.before), s.cfg.has); err != nil {
		return nil, err
	}
	if err := s.listenAdmin(); err != nil {
		return nil, err
	}
	if err := s.server.ListenUnix(SocketIn(s.host.Dir), s.taken.Admin()); err != nil {
		return nil, fmt.Errorf("launcher: %w", err)
	}
	s.scope, _ = ctxshutdown.WithCancel(ctx, ctxshutdown.WithName("launcher"))
	guard, ok := s.scope.TryGuard()
	if !ok {
		return nil, fmt.Errorf("launcher: not started: %w", context.Cause(s.scope))
	}
	s.groupsScope, _ = ctxshutdown.WithCancel(s.scope)
	s.host.Deadline.Scope = s.groupsScope
	s.addGroups(groups)
	if err := s.recorder.start(s.before, s.taken != nil); err != nil {
		guard.Release()
		s.scope.Shutdown()
		return nil, err
	}
	return guard, nil
}

// run starts the groups, which go on with what is left of the earlier launcher or of the other
// program.
func (s *start) run(guard *ctxshutdown.Guard) {
	s.before.ReadStartedWith()
	if s.taken == nil {
		s.before.OpenOutputs(s.host.Dir)
		s.endPreviousGuardians()
		s.begin(guard)
		return
	}
	s.takeOver()
	s.begin(guard)
	s.announce()
	s.taken.Done(s.scope.Done())
}

// newManager returns a Manager that has not acquired anything yet.
func newManager(cfg Config, dir string) *Manager {
	m := &Manager{
		cfg: cfg, counter: counter{groups: map[string]GroupStats{}}, registry: newRegistry(),
	}
	m.events = events.NewHub(cfg.Logger, func(e Event) { m.counter.count(e, e.To.Ended() && m.scope.Err() != nil) })
	m.host = &process.Host{Dir: dir, Router: cfg.Router, Helper: cfg.Helper, Publish: m.publish, RecentLines: output.NewRecent()}
	m.recorder, m.reloader, m.upgrader = &recorder{manager: m}, newReloader(m, cfg.Source), &upgrader{manager: m}
	m.server = admin.New(adminLauncher{m})
	m.host.ServeUser = m.server.ServeUser
	m.host.Deadline.Configure(cfg.TotalDeadline, cfg.TotalDeadlineDerived)
	m.host.Secrets = secrets.New(func() { m.host.Guardian.Update() })
	m.host.Logs = output.NewLogs(callback.Writer("Output", cfg.Output), func(err error) {
		m.publish(Event{Kind: Alarm, Message: "some output of processes is lost: " + err.Error(), Stack: callback.StackOf(err)})
	})
	return m
}

// listenAdmin listens for the admin service over TCP, if it is configured.
func (s *start) listenAdmin() error {
	c := s.cfg.Admin
	if c.Address == "" {
		return nil
	}
	id, err := mtls.Load(mtls.Files(c.TLS), func(err error) { s.publish(Event{Kind: Alarm, Message: "admin service: " + err.Error()}) })
	if err != nil {
		return &ConfigError{Field: "Admin.TLS", Rule: err.Error()}
	}
	if err := s.server.ListenTCP(c.Address, id); err != nil {
		return &ConfigError{Field: "Admin.Address", Rule: err.Error()}
	}
	return nil
}
