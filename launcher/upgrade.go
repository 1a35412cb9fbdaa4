package launcher

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/swansong-go/swansong/internal/proc"
	"github.com/swansong-go/swansong/launcher/internal/spawn"
	"github.com/swansong-go/swansong/launcher/internal/upgrade"
)

// closeTimeout bounds how long an upgrade waits for a moment in which nothing changes: no process
// is being started, stopped or reaped, and no order is being accepted.
const closeTimeout = 10 * time.Second

// ServeUpgrades makes the calling thread start all processes of this program. [Manager.Upgrade]
// cannot keep processes that another thread has started. ServeUpgrades calls run on another
// goroutine. The calling thread has to be the main thread: lock it in a function init by
// [runtime.LockOSThread], and call ServeUpgrades in main. ServeUpgrades returns only an error, and
// has not called run then. Linux only.
func ServeUpgrades(run func()) error {
	if err := proc.ServeForks(run); err != nil {
		return fmt.Errorf("launcher: upgrades: %w", err)
	}
	return nil
}

// Upgrade executes another program in the place of this one, with the same arguments and process
// id. The program calls [Start] with the same Dir, and goes on where this one has stopped: with its
// processes, whose exit codes stay known, their output and listeners, and with rolls and back-offs.
// Differences in its configuration are applied as by [Manager.Reload]. Unlike in a reload, Admin
// and Listen can differ, and OnLauncherDeath of a group with listeners.
//
// Upgrade returns only an error, after which this program goes on. Before anything else, the
// program has to say that it can take over; see [Config].UpgradeCheck. If it fails nevertheless
// before it has taken over, this program is executed again.
//
// An empty program means the one that this one was started as. Calls of operators that are waiting
// fail. Running hooks and checks of canaries are ended, and are run again. Metrics begin anew.
//
// Upgrade needs [ServeUpgrades], and a program with one Manager. Linux only.
func (m *Manager) Upgrade(ctx context.Context, program, reason string) error {
	_, _, err := m.upgrader.upgrade(ctx, program, reason, rand.Text(), false)
	return err
}

// An upgrader executes another program in the place of this one, and hands over to it.
type upgrader struct{ manager *Manager }

// upgrade does what Upgrade says. If dry is true, it does only what comes before anything changes.
// The id identifies the upgrade: a client of the admin service asks for it, to find out whether the
// new program has taken over. A dry run that succeeds returns the path of the program and the
// number of processes that it would take over.
func (u *upgrader) upgrade(ctx context.Context, program, reason, id string, dry bool) (path string, processes int, err error) {
	m := u.manager
	if path, err = upgrade.Program(program); err != nil {
		return "", 0, fmt.Errorf("launcher: not upgraded: %w", err)
	}
	fail := func(err error) (string, int, error) {
		return "", 0, fmt.Errorf("launcher: not upgraded to %s: %w; this launcher goes on", path, err)
	}
	if len(m.cfg.UpgradeCheck) == 0 {
		return fail(errors.New("Config.UpgradeCheck is not set, so the new program cannot be checked before it takes over"))
	}
	if !m.reloader.mu.TryLock() {
		return fail(errors.New("a reload or another upgrade is under way; wait until it has ended"))
	}
	defer m.reloader.mu.Unlock()
	h, err := u.handoff(reason, id)
	if err != nil {
		return fail(err)
	}
	if err := h.Check(ctx, path, m.cfg.UpgradeCheck, spawn.InheritedEnv(os.Environ()), m.host.Containment); err != nil || dry {
		if err == nil {
			return path, len(h.State.Processes()), nil
		}
		return fail(fmt.Errorf("the new program cannot take over: %w", err))
	}
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	if err := m.host.Gate.Close(ctx); err != nil {
		return fail(err)
	}
	defer m.host.Gate.Open()
	// Catch signals from now on. The code below checks for the last time whether the launcher is
	// being stopped. A signal that comes after this check must not be lost.
	signals := upgrade.CatchSignals()
	defer signals.Stop()
	open, resume, err := u.suspend()
	defer resume()
	if err == nil {
		h, err = u.handoff(reason, id)
	}
	if err != nil {
		return fail(err)
	}
	h.Kept = open.kept
	m.events.Flush()
	if err := m.host.Logs.Flush(); err != nil {
		return fail(err)
	}
	// The next launcher needs the state file if the new program is killed at once. If the file
	// cannot be written, an alarm has reported that.
	m.host.StateFile.Flush(ctx.Done())
	if m.groupsScope.Err() != nil {
		return fail(context.Cause(m.groupsScope))
	}
	return fail(h.Exec(path, open.Open, signals))
}

// upgraded is what a launcher that has taken over reports of its upgrade. It does not keep the
// Handoff, which contains secrets.
type upgraded struct {
	// id identifies the upgrade; failed says why it has failed, and is empty if it has not.
	id, failed string
	processes  int
}

// suspended are the open files of a launcher that is handed over, and the beginnings of lines that
// were read from them.
type suspended struct {
	upgrade.Open
	kept map[string][2][]byte
}

// suspend stops reading the output of processes, and starting a guardian, until resumeAll is
// called.
func (u *upgrader) suspend() (s suspended, resumeAll func(), err error) {
	m := u.manager
	var undo []func()
	resumeAll = func() {
		for _, f := range undo {
			f()
		}
	}
	s = suspended{upgrade.Open{Lock: m.lock, Outputs: map[string][3]*os.File{}}, map[string][2][]byte{}}
	pipe, release := m.host.Guardian.HandOver()
	s.Guardian = pipe
	undo = append(undo, release)
	for _, set := range m.allListeners() {
		s.Sockets = append(s.Sockets, set.Files()...)
	}
	for _, g := range m.allGroups() {
		for _, p := range g.processes() {
			files, kept, resume, err := p.Suspend()
			undo = append(undo, resume)
			if err != nil {
				return s, resumeAll, err
			}
			s.Outputs[p.ID()], s.kept[p.ID()] = files, kept
		}
	}
	if s.Admin, err = m.server.UnixFile(); err == nil {
		undo = append(undo, func() { s.Admin.Close() })
	}
	return s, resumeAll, err
}

// handoff returns what another program has to know.
func (u *upgrader) handoff(reason, id string) (*upgrade.Handoff, error) {
	m := u.manager
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	h := &upgrade.Handoff{ID: id, Reason: reason, Program: self, Dir: m.host.Dir, Admin: m.cfg.Admin.Address, State: m.recorder.state(), Groups: map[string]json.RawMessage{}}
	for _, g := range m.allGroups() {
		if g.scope.Err() != nil {
			return nil, fmt.Errorf("group %q is stopping; wait until it has ended", g.name)
		}
		g.controller.Lock()
		h.Groups[g.name], err = g.controller.Handoff(h.State.Groups[g.name].Processes)
		g.controller.Unlock()
		if err != nil {
			return nil, err
		}
	}
	h.Lines, err = json.Marshal(m.host.RecentLines.All())
	return h, err
}
