package launcher

import (
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/swansong-go/swansong/internal/proc"
	"github.com/swansong-go/swansong/launcher/internal/controller"
	"github.com/swansong-go/swansong/launcher/internal/guardian"
	"github.com/swansong-go/swansong/launcher/internal/spawn"
	"github.com/swansong-go/swansong/launcher/internal/statefile"
)

// A recorder collects what the next launcher needs, and has it written to the state file. It starts
// the writer of the file, and the guardian, which needs the file.
type recorder struct {
	manager   *Manager
	untouched bool // this launcher has not written the state file yet: the file is still that of an earlier launcher

	mu sync.Mutex
	// expected is what is written to the state file before the guardian runs: the state of the
	// earlier launcher, and the guardian and the containment (a cgroup, or a mark in the
	// environment) that this launcher is about to create. Once the guardian runs, expected is nil.
	expected  *statefile.State
	guardians []proc.Adoptable // guardians (see Config.Guardian) of earlier launchers that have not been ended
}

// start writes the state file and starts the guardian, before any process is started. So the next
// launcher finds everything that this one starts. The file contains the state that the earlier
// launcher has left, and the containment of the processes (a cgroup, or a mark in their
// environment), which is not created before it is recorded. In an upgrade, the new program goes on
// using the containment of the program that it replaces.
func (r *recorder) start(before statefile.State, upgraded bool) error {
	m := r.manager
	m.host.Containment = proc.NewContainment()
	written := before
	if upgraded {
		m.host.Containment = before.Containment
		// In an upgrade, the state file itself is read, because the program that hands over may not
		// have been able to write its last state into it.
		written, _ = statefile.Read(statefile.Path(m.host.Dir))
	}
	r.untouched = before.Groups != nil
	own, expected := guardian.NewContainment(), before
	if len(m.cfg.Guardian) > 0 {
		expected.Guardians = append(slices.Clone(before.Guardians), proc.Adoptable{Containment: own})
	}
	expected = expected.WithContainment(m.host.Containment)
	r.expected, r.guardians = &expected, before.Guardians
	m.host.StateFile = statefile.NewWriter(statefile.Path(m.host.Dir), written, r.content, func(err error) {
		if err == nil {
			m.publish(Event{Kind: AllClear, Message: "the state file can be written again; the next launcher can adopt all kept processes"})
			return
		}
		m.publish(Event{Kind: Alarm, Message: "the state file cannot be written, so the next launcher will miss changes; the write is retried: " + err.Error()})
	})
	// A full disk only causes an alarm, and no error: the groups must start nevertheless.
	stopped := func(err error) error {
		if err == nil || m.scope.Err() == nil {
			return nil
		}
		return fmt.Errorf("launcher: not started, because it was stopped before the state file was written: %w", err)
	}
	unwritten := m.host.StateFile.Start(m.scope.Done())
	if err := stopped(unwritten); err != nil {
		return err
	}
	m.host.Containment.Make()
	if err := r.startGuardian(own); err != nil {
		return err
	}
	r.mu.Lock()
	r.expected = nil
	r.mu.Unlock()
	// After a write that has failed there is no second one, because a disk that hangs would block
	// it, too.
	if unwritten == nil {
		if err := stopped(m.host.StateFile.Flush(m.scope.Done())); err != nil {
			return err
		}
	}
	r.untouched = false
	return nil
}

// startGuardian starts the guardian (see Config.Guardian), if one is configured. The containment
// own, a mark in its environment, identifies the guardian.
func (r *recorder) startGuardian(own proc.Containment) (err error) {
	m := r.manager
	if len(m.cfg.Guardian) == 0 {
		return nil
	}
	var kept []*os.File
	for _, g := range m.allGroups() {
		if g.config().OnLauncherDeath == Keep {
			kept = append(kept, m.listenersOf(g.name).Files()...)
		}
	}
	m.host.Guardian, err = guardian.Start(guardian.Config{
		Args: m.cfg.Guardian, Env: append(spawn.InheritedEnv(os.Environ()), spawn.EnvDir+"="+m.host.Dir), Files: kept,
		Orders: guardian.Orders{Processes: m.host.Containment, Dir: m.host.Dir, Self: own},
		Report: func(message string) { m.publish(Event{Kind: Alarm, Message: message}) },
		Flush:  m.host.StateFile.Flush, Secrets: m.host.Secrets.Values, Unrecorded: r.unrecorded,
	})
	if err != nil {
		return &ConfigError{Field: "Guardian", Rule: err.Error()}
	}
	return nil
}

// content returns what to write into the state file.
func (r *recorder) content() statefile.State {
	r.mu.Lock()
	expected := r.expected
	r.mu.Unlock()
	if expected != nil {
		return *expected
	}
	return r.state()
}

// state returns the content that the state file must have for the present state of the launcher.
func (r *recorder) state() statefile.State {
	m := r.manager
	r.mu.Lock()
	guardians := slices.Concat(r.guardians, m.host.Guardian.Adoptable())
	r.mu.Unlock()
	s := statefile.State{Boot: proc.Boot(), Containment: m.host.Containment, Guardians: guardians, Groups: map[string]statefile.Group{}}
	for _, g := range m.allGroups() {
		sockets := m.listenersOf(g.name).Sockets()
		s.Groups[g.name] = ask(g, func(c *controller.Controller) statefile.Group { return c.State(sockets) })
	}
	return s
}

// unrecorded returns what identifies the processes that are to outlive the launcher (Keep), but are
// missing from the state file: their cgroups, or marks in their environments.
func (r *recorder) unrecorded() (all []proc.Containment) {
	for _, p := range r.manager.allProcesses() {
		if p.IsUnrecorded() {
			all = append(all, p.Containment())
		}
	}
	return all
}

// forgetGuardians records that the guardians (see Config.Guardian) of earlier launchers have been
// ended.
func (r *recorder) forgetGuardians() {
	r.mu.Lock()
	r.guardians = nil
	r.mu.Unlock()
	r.manager.host.StateFile.Changed()
}

// close ends the writing of the state file, and removes the file if it has nothing that the next
// launcher needs. It calls the function unlock when no write is under way any more.
func (r *recorder) close(unlock func()) {
	w := r.manager.host.StateFile
	if w == nil {
		unlock()
		return
	}
	w.Close(!r.untouched && len(r.state().Processes()) == 0, unlock)
}
