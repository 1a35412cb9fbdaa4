package launcher

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"

	"github.com/swansong-go/swansong/launcher/internal/listeners"
	"github.com/swansong-go/swansong/launcher/internal/process"
	"github.com/swansong-go/swansong/launcher/internal/spec"
	"github.com/swansong-go/swansong/launcher/internal/statefile"
)

// ErrNotFound matches errors about a process or group that does not exist.
var ErrNotFound = errors.New("launcher: not found")

// A registry finds groups, their listeners and processes by name.
type registry struct {
	mu        sync.Mutex
	listeners map[string]listeners.Set
	groups    map[string]*group
	order     []string          // names of the groups, in the order of the configuration
	processes map[string]member // processes by id, also those that have ended lately
}

// A member is a process and its group.
type member struct {
	*process.Process
	owner *group
}

func newRegistry() *registry {
	return &registry{listeners: map[string]listeners.Set{}, groups: map[string]*group{}, processes: map[string]member{}}
}

func (r *registry) group(name string) (*group, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if g, ok := r.groups[name]; ok {
		return g, nil
	}
	return nil, fmt.Errorf("%w: group %q; the groups are %q", ErrNotFound, name, r.order)
}

// allGroups returns the groups in the order of the configuration.
func (r *registry) allGroups() []*group {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]*group, len(r.order))
	for i, name := range r.order {
		all[i] = r.groups[name]
	}
	return all
}

func (r *registry) addGroup(g *group) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.groups[g.name] = g
	r.order = append(r.order, g.name)
}

// listenersOf returns the listeners of a group.
func (r *registry) listenersOf(group string) listeners.Set {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.listeners[group]
}

func (r *registry) setListeners(group string, set listeners.Set) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.listeners[group] = set
}

// openListeners opens the listeners of groups, or takes over those of an earlier launcher. The
// function stays reports whether a group is in the configuration.
func (r *registry) openListeners(groups []spec.Group, earlier statefile.State, stays func(group string) bool) error {
	for _, g := range groups {
		if taken := r.checkNewListeners(g, nil, stays); taken != nil {
			return taken
		}
		set, err := open(g, earlier)
		if err != nil {
			return err
		}
		r.setListeners(g.Name, set)
	}
	return nil
}

// allListeners returns the listeners of all groups, by name.
func (r *registry) allListeners() map[string]listeners.Set {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.listeners)
}

// open opens the listeners of a group, and creates its log directory or log file.
func open(g spec.Group, earlier statefile.State) (listeners.Set, error) {
	set, err := listeners.Open(g, earlier)
	if err != nil {
		return set, &ConfigError{g.Name, "Listen", err.Error()}
	}
	if err := checkLog(g); err != nil {
		set.Close()
		return listeners.Set{}, err
	}
	return set, nil
}

// Addrs returns the addresses that the launcher listens on for a group, in the order of its
// configuration, with the actual port in place of a port 0.
func (m *Manager) Addrs(group string) []net.Addr {
	return m.listenersOf(group).Addrs()
}

// checkNewListeners returns an error if a group that is added conflicts with the listeners of
// another group, or with those of the other added groups, which are in claimed. The function stays
// reports whether a group is in the new configuration.
func (r *registry) checkNewListeners(added spec.Group, claimed map[string]listeners.Set, stays func(group string) bool) *ConfigError {
	all := r.allListeners()
	maps.Copy(all, claimed)
	if conflict := listeners.CheckNew(added, all, stays); conflict != nil {
		return listenError(conflict)
	}
	return nil
}

// reload adds groups and changes their order. A group that is missing from order was removed; it
// stays at the end of the list until it is empty.
func (r *registry) reload(order []string, added []*group, claimed map[string]listeners.Set) {
	r.mu.Lock()
	defer r.mu.Unlock()
	order = slices.Clone(order)
	for _, name := range r.order {
		if !slices.Contains(order, name) {
			order = append(order, name)
		}
	}
	r.order = order
	for _, g := range added {
		r.groups[g.name], r.listeners[g.name] = g, claimed[g.name]
	}
}

// dropGroup forgets a group and its listeners.
func (r *registry) dropGroup(g *group) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.groups, g.name)
	delete(r.listeners, g.name)
	r.order = slices.DeleteFunc(slices.Clone(r.order), func(name string) bool { return name == g.name })
}

func (r *registry) process(id string) (member, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p, ok := r.processes[id]; ok {
		return p, nil
	}
	return member{}, fmt.Errorf("%w: process %q; run launcher status to list the processes", ErrNotFound, id)
}

// allProcesses returns the processes, in no order.
func (r *registry) allProcesses() []member {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.processes))
}

func (r *registry) register(p *process.Process, owner *group) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.processes[p.ID()] = member{p, owner}
}

// forgetProcess removes a process that has ended, with the lines that it has printed. It returns
// the process, nil if it is not known.
func (r *registry) forgetProcess(id string) *process.Process {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, ok := r.processes[id]
	if !ok {
		return nil
	}
	delete(r.processes, id)
	p.ForgetLines()
	return p.Process
}

// printsTo reports whether the process with this id has a log file of its own at this path. The
// process may have ended lately.
func (r *registry) printsTo(id, path string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, ok := r.processes[id]
	return ok && p.PrintsTo(path)
}
