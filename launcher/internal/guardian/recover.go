package guardian

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/swansong-go/swansong/internal/proc"
	"github.com/swansong-go/swansong/launcher/client"
	"github.com/swansong-go/swansong/launcher/internal/address"
	"github.com/swansong-go/swansong/launcher/internal/listeners"
	"github.com/swansong-go/swansong/launcher/internal/spawn"
	"github.com/swansong-go/swansong/launcher/internal/spec"
	"github.com/swansong-go/swansong/launcher/internal/statefile"
)

// leftovers lists the processes that the launchers of a directory have left running and that are
// found by the variables in their environment. The state file contains more: how far a stop has
// come, ports, finished jobs, and the configuration of the processes.
type leftovers struct {
	kept      []proc.Marked // processes to adopt, oldest first
	toEnd     []proc.Marked // processes that should have been ended when their launcher died
	guardians []proc.Adoptable
}

// find lists the processes with the variables of the directory in their environment. A process
// without an id is a guardian: it has the directory, but is no process of a group.
func find(dir string) (l leftovers) {
	for _, m := range proc.FindMarked(spawn.EnvDir + "=" + dir) {
		id := m.Getenv(client.EnvID)
		known := func(p proc.Marked) bool { return p.Getenv(client.EnvID) == id }
		switch {
		case id == "":
			l.guardians = append(l.guardians, m.Adoptable)
		case m.Getenv(spawn.EnvKeep) == "":
			l.toEnd = append(l.toEnd, m)
		// The descendants of a process inherit its id (client.EnvID). Only the process itself is
		// listed: the oldest one with this id that leads a process group.
		case m.LeadsGroup && !slices.ContainsFunc(l.kept, known):
			l.kept = append(l.kept, m)
		}
	}
	return l
}

// names returns the processes that have outlived their launcher for an error message, empty if
// there are none. By these names an operator decides whether to run launcher recover.
func (l leftovers) names() string {
	var all []string
	for _, m := range l.kept {
		all = append(all, fmt.Sprintf("%s (pid %d)", m.Getenv(client.EnvID), m.PID))
	}
	return strings.Join(all, ", ")
}

// endUnkept ends the processes that were to die with their launcher, and all that they have
// started.
func (l leftovers) endUnkept() error {
	e := ender{deadline: time.Now().Add(Timeout)}
	for _, m := range l.toEnd {
		e.empty(m.Containment)
	}
	return e.err()
}

// A Recovery says what [Recover] has found.
type Recovery struct {
	StateFile string // path of the state file
	Damage    error  // what is wrong with the state file; nil if it is intact, or if there is none
	SetAside  string // the new path of the damaged file; empty if nothing was changed

	Processes []Recovered       // processes that the next launcher adopts
	Listeners map[string]string // addresses that the next launcher takes over, by group, separated by commas
	Ended     []Recovered       // processes that were to die with their launcher, and that were ended
}

// Recovered is a process that Recover has found.
type Recovered struct {
	ID      string
	PID     int
	Command string // name of the program
}

// recovered returns the id, the pid and the command of a process that a search of /proc has found.
func recovered(m proc.Marked) Recovered { return Recovered{m.Getenv(client.EnvID), m.PID, m.Command} }

// Recover writes a state file for the next launcher, with what an earlier one has left running. An
// intact state file is completed by what it lacks, and a damaged one is set aside. With dry set,
// Recover changes nothing. The caller has the lock of the directory.
//
// The order keeps a second call possible if one fails: the processes that were to die with the
// launcher end first, then the damaged file is renamed, and the new one is written last. A call
// that fails in between finds the same again.
func Recover(dir string, groups []spec.Group, dry bool) (*Recovery, error) {
	path := statefile.Path(dir)
	r := &Recovery{StateFile: path, Listeners: map[string]string{}}
	s, err := statefile.Read(path)
	var bad *statefile.Error
	switch {
	case errors.As(err, &bad) && bad.Damaged:
		r.Damage = bad.Cause
	case err != nil:
		return nil, err
	}
	if s.Boot != proc.Boot() { // after a reboot, no process or socket in the file exists any more
		s = statefile.State{Boot: proc.Boot()}
	}
	if s.Groups == nil {
		s.Groups = map[string]statefile.Group{}
	}
	found := find(dir)
	found.kept = slices.DeleteFunc(found.kept, func(m proc.Marked) bool { return isRecorded(s, m) })
	found.addTo(s, groups)
	for _, k := range found.guardians {
		if !slices.ContainsFunc(s.Guardians, func(known proc.Adoptable) bool { return known.Mark == k.Mark }) {
			s.Guardians = append(s.Guardians, k)
		}
	}
	for _, m := range found.kept {
		r.Processes = append(r.Processes, recovered(m))
	}
	for _, m := range found.toEnd {
		r.Ended = append(r.Ended, recovered(m))
	}
	for name, addresses := range addListeners(s, groups) {
		r.Listeners[name] = strings.Join(addresses, ", ")
	}
	if dry || r.Damage == nil && len(r.Processes) == 0 && len(r.Ended) == 0 {
		return r, nil
	}
	if err := found.endUnkept(); err != nil {
		return r, err
	}
	if r.Damage != nil {
		if r.SetAside, err = statefile.SetAside(path); err != nil {
			return r, fmt.Errorf("launcher: cannot set the damaged state file aside: %w", err)
		}
	}
	if err := statefile.Write(path, s); err != nil {
		return r, fmt.Errorf("launcher: cannot write the state file: %w", err)
	}
	return r, nil
}

// isRecorded reports whether the state already has the process. It compares the marks, the unique
// values of a variable in the environment of the processes. It does not compare pids, which the
// kernel uses again.
func isRecorded(s statefile.State, m proc.Marked) bool {
	for _, g := range s.Groups {
		if slices.ContainsFunc(g.Processes, func(p *statefile.Process) bool { return p.Adoptable.Mark == m.Mark }) {
			return true
		}
	}
	return false
}

// addTo adds the processes that have outlived their launcher to a state. The configuration that
// they were started with is not known. So addTo records a digest that no configuration has, and the
// next launcher replaces the processes in a roll. They are recorded as ready. So the roll waits
// until the next launcher has asked each whether it is ready; otherwise the roll could stop too
// many.
func (l leftovers) addTo(s statefile.State, groups []spec.Group) {
	for _, m := range l.kept {
		id := m.Getenv(client.EnvID)
		dash := max(0, strings.LastIndexByte(id, '-'))
		name := id[:dash]
		number, _ := strconv.Atoi(id[min(dash+1, len(id)):])
		cfg := spec.Default() // if the group is not configured any more, its processes are stopped with the default time limits
		if i := slices.IndexFunc(groups, func(g spec.Group) bool { return g.Name == name }); i >= 0 {
			cfg = groups[i]
		}
		cfg = statefile.WithoutSecrets(cfg)
		cfg.Name, cfg.OnLauncherDeath = name, spec.Keep
		g, ok := s.Groups[name]
		if !ok {
			g = statefile.Group{Config: cfg, Revision: 1}
		}
		g.LastNumber = max(g.LastNumber, number)
		// If the state file has a process with the id of the one that was found, that process has
		// ended. The one that was found replaces it.
		g.Processes = slices.DeleteFunc(g.Processes, func(p *statefile.Process) bool { return p.ID == id })
		g.Processes = append(g.Processes, &statefile.Process{ID: id, Revision: g.Revision, Config: cfg, Adoptable: m.Adoptable, ReadyAt: statefile.ToMillis(time.Now())})
		s.Groups[name] = g
	}
}

// addListeners adds to the state the listeners that are missing from its groups, if kept processes
// or guardians have these listeners open. It returns the addresses that were added, by group. A
// listener that is configured with port 0 is not found, because nothing says which of the open
// listeners it is.
func addListeners(s statefile.State, groups []spec.Group) map[string][]string {
	added := map[string][]string{}
	for _, cfg := range groups {
		g, ok := s.Groups[cfg.Name]
		if !ok || len(g.Sockets) > 0 || len(cfg.Listen) == 0 {
			continue
		}
		processes := slices.Clone(s.Guardians)
		for _, p := range g.Processes {
			processes = append(processes, p.Adoptable)
		}
		open := listeners.SocketsOf(processes)
		for _, l := range cfg.Listen {
			want, err := address.Resolve(l.Network, l.Address)
			i := slices.IndexFunc(open, func(h statefile.Socket) bool { h.Listen.Network = l.Network; return want.Same(h.Resolve()) })
			if err != nil || i < 0 {
				continue
			}
			g.Sockets = append(g.Sockets, statefile.Socket{Listen: l, Inode: open[i].Inode, Address: open[i].Address})
			added[cfg.Name] = append(added[cfg.Name], l.Network+" "+open[i].Address)
		}
		s.Groups[cfg.Name] = g
	}
	return added
}
