package launcher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/swansong-go/swansong/launcher/internal/controller"
	"github.com/swansong-go/swansong/launcher/internal/listeners"
	"github.com/swansong-go/swansong/launcher/internal/secrets"
)

var (
	// ErrReloading is returned while another configuration is being read or applied.
	ErrReloading = errors.New("launcher: another reload is reading or applying a configuration; wait until it has ended")

	// ErrNotReloaded matches every error of Reload and Reread after which nothing has changed. The
	// texts of these errors do not contain that of ErrNotReloaded.
	ErrNotReloaded = errors.New("launcher: the new configuration was not applied; the previous one stays in use")
)

// Reload applies another configuration. It returns when that is done, with all errors of it,
// joined:
//
//   - Groups that are new are started, and groups that are missing are drained.
//   - A group is rolled if something differs that a process is started with (Command, Env, WorkDir,
//     Protocol, Log). It is rolled, too, if its roll is paused. The new roll supersedes one that is
//     paused or under way. But if that one began from a configuration with the same processes as
//     the next one, it is rolled back instead, and the processes that it has not replaced keep
//     running.
//   - Everything else of a group changes at once: the number of processes, and for the running ones
//     their limits. A group that was given up starts processes again.
//   - Besides the groups, TotalDeadline (but see TotalDeadlineDerived), Secrets and Source change
//     at once. A change that needs an upgrade is refused with a [*ConfigError]: another Admin, and
//     another Listen of an existing group. So is another Dir, which needs a new launcher. Router,
//     Logger, Output, Helper, Guardian and Reread stay as they are.
//
// A rollback brings back everything of a group except DependsOn, which stays as it was
// loaded last.
//
// If the error matches [ErrNotReloaded], nothing has changed: the configuration was refused, or the
// error matches [ErrReloading]. When ctx ends, Reload returns, and what has begun goes on.
func (m *Manager) Reload(ctx context.Context, next Config, reason string) error {
	wait, err := m.reloader.reload(next, reason)
	if err != nil {
		return err
	}
	return wait(ctx)
}

// Reread reads the configuration again with Config.Reread and returns how it differs. Unless dry is
// true, it then applies the configuration as [Manager.Reload] does, and publishes an event of the
// kind [Reloaded] for each change. No other reload runs between the reading and the applying. An
// error that does not match [ErrNotReloaded] comes from applying.
func (m *Manager) Reread(ctx context.Context, dry bool, reason string) (changes []string, err error) {
	changes, _, wait, err := m.reloader.reread(ctx, dry, reason)
	if err != nil {
		return changes, err
	}
	return changes, wait(ctx)
}

// A refusal is an error after which nothing has changed. It matches [ErrNotReloaded].
type refusal struct{ error }

func (r refusal) Unwrap() error        { return r.error }
func (r refusal) Is(target error) bool { return target == ErrNotReloaded }

func refused(err error) error {
	if err == nil {
		return nil
	}
	return refusal{err}
}

// A reloader reads and applies configurations, one at a time.
type reloader struct {
	manager *Manager
	mu      sync.Mutex          // held while a configuration is being read and applied
	loaded  atomic.Pointer[any] // the Source of the Config that was loaded last
}

func newReloader(m *Manager, source any) *reloader {
	r := &reloader{manager: m}
	r.loaded.Store(&source)
	return r
}

func (r *reloader) reload(next Config, reason string) (wait func(ctx context.Context) error, err error) {
	if !r.mu.TryLock() {
		return nil, refused(ErrReloading)
	}
	defer r.mu.Unlock()
	wait, err = r.apply(next, reason, nil)
	return wait, refused(next.located(err))
}

func (r *reloader) reread(ctx context.Context, dry bool, reason string) (changes []string, file string, wait func(context.Context) error, err error) {
	m := r.manager
	if m.cfg.Reread == nil {
		return nil, "", nil, refused(errors.New("launcher: this launcher has no configuration file to read again; it was started with flags, or by a program"))
	}
	if !dry {
		if !r.mu.TryLock() {
			return nil, "", nil, refused(ErrReloading)
		}
		defer r.mu.Unlock()
	}
	wait = func(context.Context) error { return nil }
	next, changes, err := m.cfg.Reread(ctx, r.source())
	if err == nil {
		changes = append(changes, r.sideEffects(next)...)
	}
	if dry && len(changes) > 0 {
		return changes, next.File, wait, nil
	}
	if err != nil || dry || len(changes) == 0 {
		return changes, next.File, wait, refused(err)
	}
	wait, err = r.apply(next, reason, changes)
	return changes, next.File, wait, refused(next.located(err))
}

// located returns err with its place in the file, if Config.Locate is set.
func (c Config) located(err error) error {
	if err == nil || c.Locate == nil {
		return err
	}
	return c.Locate(err)
}

// source returns what Reread compares with: the source that was loaded last, but with each group as
// the group runs it.
func (r *reloader) source() any {
	source := *r.loaded.Load()
	for _, g := range r.manager.allGroups() {
		if s, ok := source.(GroupSource); ok {
			source = s.WithGroup(g.name, ask(g, (*controller.Controller).Source))
		}
	}
	return source
}

// sideEffects lists what applying newConfig does besides changing the settings that differ. If
// newConfig would be refused, the list contains the reasons.
func (r *reloader) sideEffects(newConfig Config) (lines []string) {
	m := r.manager
	claimed := map[string]listeners.Set{} // by group, the listeners that a reload to newConfig would open
	for _, group := range newConfig.Groups {
		cfg := group.resolve()
		g, err := m.group(cfg.Name)
		if err != nil {
			if taken := m.checkNewListeners(cfg, claimed, newConfig.has); taken != nil {
				lines = append(lines, fmt.Sprintf("! %s: %s (refused)", cfg.Name, taken.Rule))
			}
			claimed[cfg.Name] = listeners.Planned(cfg.Listen)
			continue
		}
		if removed := g.checkNotRemoved(); removed != nil {
			lines = append(lines, fmt.Sprintf("! %s: %s (refused)", cfg.Name, removed.Rule))
		}
		lines = append(lines, ask(g, func(c *controller.Controller) []string { return c.EffectOnRoll(cfg) })...)
	}
	return lines
}

func (c Config) has(group string) bool {
	return slices.ContainsFunc(c.Groups, func(g GroupConfig) bool { return g.Name == group })
}

// apply begins to apply newConfig and returns a function that waits until all groups have followed.
// The caller holds r.mu. All groups that stay are locked from the last check of what they are doing
// until they have been changed, so that an order for one of them comes either before the check or
// after the change.
func (r *reloader) apply(newConfig Config, reason string, changes []string) (wait func(ctx context.Context) error, err error) {
	m := r.manager
	m.host.Gate.Enter()
	defer m.host.Gate.Leave()
	plan, err := r.plan(newConfig)
	if err != nil {
		return nil, err
	}
	// While this guard is held, a stop of all groups includes the groups that the reload adds.
	guard, ok := m.groupsScope.TryGuard()
	if !ok {
		plan.abandon()
		return nil, r.stoppedError()
	}
	defer guard.Release()
	unlock := plan.lock()
	if err := plan.classify(); err != nil {
		unlock()
		plan.abandon()
		return nil, err
	}
	m.host.Secrets.Configure(secrets.Config(newConfig.Secrets), plan.secrets, newConfig.resolve().Groups)
	plan.register()
	if len(changes) == 0 {
		m.publish(Event{Kind: Reloaded, Message: reason})
	}
	for _, c := range changes {
		m.publish(Event{Kind: Reloaded, Message: reason + ": " + c})
	}
	notify, waits := plan.change(reason)
	waits = append(waits, plan.roll(reason)...)
	unlock()
	notify()
	for _, g := range plan.added {
		g.start()
	}
	m.host.StateFile.Changed()
	waits = append(waits, plan.remove()...)
	return func(ctx context.Context) error {
		var errs []error
		for _, f := range waits {
			errs = append(errs, f(ctx))
		}
		return errors.Join(errs...)
	}, nil
}

// stoppedError is the error of a reload while the launcher is stopping.
func (r *reloader) stoppedError() error {
	return fmt.Errorf("launcher: not reloaded: %w", context.Cause(r.manager.groupsScope))
}
