package launcher

import (
	"os"
	"sync"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/launcher/internal/admin"
	"github.com/swansong-go/swansong/launcher/internal/events"
	"github.com/swansong-go/swansong/launcher/internal/lifecycle"
	"github.com/swansong-go/swansong/launcher/internal/process"
	"github.com/swansong-go/swansong/launcher/internal/statefile"
)

// A Manager runs groups of processes. It is a Swansong tree:
//
//	launcher            holds a guard until all else is complete, so that its socket answers
//	└── (groups)
//	    ├── web
//	    │   ├── web-1   holds a guard until the process has been reaped
//	    │   └── web-2
//	    └── worker
//
// Stopping the scope that the Manager was started in stops all groups concurrently, each group
// after those that depend on it. The stop is complete when the last process has been reaped, and a
// report of the scope names the processes that are left. [ctxshutdown.Swansong.Force] kills all
// processes. All methods may be called concurrently.
type Manager struct {
	// Start sets the fields before the groups run, and they do not change after that. cfg.Source is
	// the Source at the start; the reloader has the Source that was loaded last.
	cfg         Config
	scope       *ctxshutdown.Swansong
	groupsScope *ctxshutdown.Swansong // a child of scope, and the parent of the scopes of the groups
	events      *events.Hub
	counter     counter
	host        *process.Host // what the processes of all groups use together
	lock        *os.File      // the locked file of the directory
	server      *admin.Server
	running     sync.WaitGroup // counts the goroutines of the groups
	recorder    *recorder
	reloader    *reloader
	upgrader    *upgrader
	upgraded    *upgraded // the upgrade by which this program has taken over; nil if there was none
	*registry
}

// publish publishes an event, after it has masked secrets in the event's texts.
func (m *Manager) publish(e Event) {
	e.Message, e.Stack = m.host.Secrets.Mask(e.Message), m.host.Secrets.Mask(e.Stack)
	m.events.Publish(e)
}

// Shutdown stops all groups. The completion that it returns is done when all processes have been
// reaped and the launcher's files have been removed. Stopping the scope that the Manager was
// started in does the same, for everything in that scope.
func (m *Manager) Shutdown() *ctxshutdown.Completion { return m.scope.Shutdown() }

// Completion returns the completion that Shutdown returns, and stops nothing.
func (m *Manager) Completion() *ctxshutdown.Completion { return m.scope.Completion() }

// Force kills all processes. See [ctxshutdown.Swansong.Force].
func (m *Manager) Force(cause error) *ctxshutdown.Completion { return m.scope.Force(cause) }

// Scope returns the scope of the manager. Its reports name the processes that delay the shutdown.
func (m *Manager) Scope() *ctxshutdown.Swansong { return m.scope }

// begin starts the groups and the services. When all of them have ended, guard is released.
func (m *Manager) begin(guard *ctxshutdown.Guard) {
	for _, set := range m.allListeners() {
		set.UnlinkOnClose()
	}
	for _, g := range m.allGroups() {
		g.controller.Lock()
		g.controller.Adopt()
		g.controller.Unlock()
		g.start()
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
	m.release(false)
	guard.Release()
	// If only the groups were stopped, the scope of the Manager still runs, so stop it, too.
	m.scope.Shutdown()
}

// release releases what Start has acquired. goesBack is set if the upgrade to this program has
// failed and the earlier program will run again. Then release leaves the cgroup, the sockets and
// the lock to that program.
func (m *Manager) release(goesBack bool) {
	m.host.Logs.Close()
	m.host.Guardian.Dismiss()
	for _, set := range m.allListeners() {
		set.Close()
	}
	m.server.Close()
	if goesBack {
		if m.host.StateFile != nil {
			m.host.StateFile.Close(false, func() {})
		}
		return
	}
	m.host.Containment.Empty(time.Now()) // removes the cgroup of the processes
	unlock := func() {}
	if m.lock != nil {
		statefile.RemoveSockets(m.host.Dir)
		unlock = func() { m.lock.Close() }
	}
	m.recorder.close(unlock)
	m.events.Close()
	m.host.RecentLines.Close()
}
