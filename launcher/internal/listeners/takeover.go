package listeners

import (
	"io/fs"
	"maps"
	"net"
	"os"
	"slices"
	"time"

	"github.com/swansong-go/swansong/internal/proc"
	"github.com/swansong-go/swansong/launcher/internal/address"
	"github.com/swansong-go/swansong/launcher/internal/spec"
	"github.com/swansong-go/swansong/launcher/internal/statefile"
)

// Reserve assigns the sockets of an earlier launcher to the listeners of the same groups. Call it
// before Open. Otherwise a group could take over the socket of another group, and its processes
// would serve the clients of that group. For example, the other group is configured with port 0,
// and the kernel has given it the port with which the first group is configured now.
//
// Within a group, a listener that is configured with the port of a socket gets that socket. A
// listener with port 0 gets one of the others, because it can have any port.
func Reserve(earlier statefile.State, groups []spec.Group) {
	samePort := func(l spec.Listen, s statefile.Socket) bool {
		// address.Parse does not resolve host names, unlike address.Resolve.
		a, err := address.Parse(l.Network, l.Address)
		return err == nil && a.Same(s.Resolve())
	}
	sameConfig := func(l spec.Listen, s statefile.Socket) bool { return l == s.Listen }
	for _, g := range groups {
		sockets, unassigned := earlier.Groups[g.Name].Sockets, slices.Clone(g.Listen)
		for _, matches := range []func(spec.Listen, statefile.Socket) bool{samePort, sameConfig} {
			unassigned = slices.DeleteFunc(unassigned, func(l spec.Listen) bool {
				i := slices.IndexFunc(sockets, func(s statefile.Socket) bool { return s.ReservedFor == nil && matches(l, s) })
				if i >= 0 {
					sockets[i].ReservedFor = &l
				}
				return i >= 0
			})
		}
	}
}

// takeOver returns the socket of an earlier launcher for the address l of a group. Connections that
// are waiting on the socket go on waiting. It returns nil if there is no such socket, or no process
// and no guardian has it open any more. It does not return one of the sockets in set, which the
// group has already taken over: two listeners with port 0 need two sockets. takeOver resolves the
// host of l only if another group's socket could match.
func takeOver(earlier statefile.State, group string, l spec.Listen, resolve func() (spec.Listen, error), set Set) (net.Listener, error) {
	unused := func(s statefile.Socket) bool {
		return !slices.ContainsFunc(set.files, func(f *os.File) bool { return inodeOf(f) == s.Inode })
	}
	reserved := func(s statefile.Socket) bool { return s.ReservedFor != nil && *s.ReservedFor == l && unused(s) }
	if ln, err := takeFirst(earlier.Groups[group], earlier.Guardians, reserved); ln != nil || err != nil {
		return ln, err
	}
	sameAddress := func(s statefile.Socket) bool {
		if s.ReservedFor != nil || !unused(s) {
			return false
		}
		resolved, err := resolve()
		if err != nil {
			return false // Open, which called takeOver, returns this error
		}
		a, _ := address.Resolve(resolved.Network, resolved.Address)
		return a.Same(s.Resolve())
	}
	for _, name := range slices.Sorted(maps.Keys(earlier.Groups)) {
		if ln, err := takeFirst(earlier.Groups[name], earlier.Guardians, sameAddress); ln != nil || err != nil {
			return ln, err
		}
	}
	return nil, nil
}

// takeFirst takes the first matching socket of a group from a guardian or a process that has it
// open.
//
// It tries the guardians first, and then the processes of the group. It returns nil without an
// error if no socket matches, and also if no guardian and no process has the first matching socket
// open any more. In that case it removes the file of a unix socket, so that a new listener can use
// the address.
func takeFirst(g statefile.Group, guardians []proc.Adoptable, matches func(statefile.Socket) bool) (net.Listener, error) {
	holders := slices.Clone(guardians)
	for _, p := range g.Processes {
		holders = append(holders, p.Adoptable)
	}
	for _, s := range g.Sockets {
		if !matches(s) {
			continue
		}
		var takeErr error
		for _, k := range holders {
			f, err := takeSocket(k, s.Inode)
			if err != nil {
				takeErr = err
			}
			if f == nil {
				continue
			}
			ln, err := net.FileListener(f)
			f.Close()
			return ln, err
		}
		if takeErr == nil && s.Listen.Network == "unix" {
			RemoveStale(s.Listen.Address)
		}
		return nil, takeErr
	}
	return nil, nil
}

// RemoveAllStale removes the files of the unix sockets of groups on which no process listens.
func RemoveAllStale(groups []spec.Group) {
	for _, g := range groups {
		for _, l := range g.Listen {
			if l.Network == "unix" {
				RemoveStale(l.Address)
			}
		}
	}
}

// RemoveStale removes the file of a unix socket that no process listens on. It finds out by
// connecting, because the kernel leaves the file behind when the last process that listened has
// ended. It waits for a second at most, and leaves a file that is no socket alone.
func RemoveStale(path string) {
	info, err := os.Lstat(path)
	if err != nil || info.Mode()&fs.ModeSocket == 0 {
		return
	}
	if conn, err := net.DialTimeout("unix", path, time.Second); err == nil {
		conn.Close()
		return
	}
	os.Remove(path)
}
