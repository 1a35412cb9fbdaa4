package listeners

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"syscall"

	"github.com/swansong-go/swansong/launcher/internal/address"
	"github.com/swansong-go/swansong/launcher/internal/spec"
	"github.com/swansong-go/swansong/launcher/internal/statefile"
)

// A Conflict says that a group cannot listen on one of its addresses. It does not implement error:
// the caller makes an error of it, which also names the field of the configuration.
type Conflict struct {
	Group string
	Rule  string // says what is wrong, and what to do about it
}

// Check returns the conflicts between the addresses of a configuration that can be found without
// resolving host names.
func Check(groups []spec.Group) (conflicts []Conflict) {
	type listener struct {
		group   string
		l       spec.Listen
		address address.Address
	}
	var earlier []listener
	for _, g := range groups {
		for _, l := range g.Listen {
			a, err := address.Parse(l.Network, l.Address)
			if err != nil {
				continue
			}
			for _, other := range earlier {
				if other.address.Overlaps(a) {
					conflicts = append(conflicts, Conflict{g.Name, occupiedBy(other.group, other.l, l)})
					break
				}
			}
			earlier = append(earlier, listener{g.Name, l, a})
		}
	}
	return conflicts
}

// CheckNew returns the conflict, if any, between the addresses of a new group and the listeners of
// other groups. The function stays reports whether a group is in the new configuration. A group
// that a reload removes keeps its addresses until its last process has ended.
func CheckNew(added spec.Group, others map[string]Set, stays func(group string) bool) *Conflict {
	others = maps.Clone(others)
	maps.DeleteFunc(others, func(_ string, set Set) bool { return len(set.configured) == 0 })
	if len(others) == 0 {
		return nil // no other group has listeners, so there is no conflict
	}
	for _, l := range added.Listen {
		a, err := address.Resolve(l.Network, l.Address)
		if err != nil {
			continue // not reported here: Open is called later, and returns this error
		}
		for _, name := range slices.Sorted(maps.Keys(others)) {
			other, ok := others[name].find(a)
			if !ok {
				continue
			}
			if stays(name) {
				return &Conflict{added.Name, occupiedBy(name, other, l)}
			}
			return &Conflict{added.Name, fmt.Sprintf("group %q listens on %s until its last process has ended; remove %q by one reload, and add %q by a later one",
				name, occupied(other, l), name, added.Name)}
		}
	}
	return nil
}

// occupiedBy returns the rule against listening on l while another group listens on existing. It
// names both addresses if they differ, since :80 and 127.0.0.1:80, for example, do not look like a
// conflict.
func occupiedBy(group string, existing, l spec.Listen) string {
	return fmt.Sprintf("group %q already listens on %s; choose another address", group, occupied(existing, l))
}

// occupied returns the part of an error that names the address existing. If existing is not the
// same address as l, it also says that the two conflict.
func occupied(existing, l spec.Listen) string {
	if existing.Network == l.Network && existing.Address == l.Address {
		return text(existing)
	}
	return fmt.Sprintf("%s, which conflicts with %s", text(existing), text(l))
}

func text(l spec.Listen) string { return l.Network + " " + l.Address }

// explain returns why a group cannot listen on l. The argument err is the error of net.Listen for l
// with its host resolved. takeErr says why a socket of an earlier launcher could not be taken over;
// it is nil if there was no such error.
func explain(earlier statefile.State, group string, l, resolved spec.Listen, set Set, err, takeErr error) error {
	if takeErr != nil {
		return fmt.Errorf("%v; a process that an earlier launcher left running listens there, and the kernel does not let this launcher take over its socket (%v): "+
			"run the launcher with CAP_SYS_PTRACE, or allow it by the sysctl kernel.yama.ptrace_scope=0, or end the process", err, takeErr)
	}
	if !errors.Is(err, syscall.EADDRINUSE) {
		return err
	}
	a, _ := address.Resolve(resolved.Network, resolved.Address)
	if other, ok := set.find(a); ok {
		return fmt.Errorf("the group already listens on %s; choose another address", occupied(other, l))
	}
	for _, name := range slices.Sorted(maps.Keys(earlier.Groups)) {
		g := earlier.Groups[name]
		if len(g.Processes) == 0 {
			continue
		}
		i := slices.IndexFunc(g.Sockets, func(s statefile.Socket) bool { return s.Resolve().Overlaps(a) })
		switch {
		case i < 0:
		case g.Sockets[i].ReservedFor != nil:
			return errors.New(occupiedBy(name, *g.Sockets[i].ReservedFor, l))
		default:
			return fmt.Errorf("%v; processes of group %q, which an earlier launcher left running, listen on %v: start the launcher without group %q until they have ended, "+
				"or choose another address", err, name, g.Sockets[i], group)
		}
	}
	return err
}

// Try checks whether groups can listen on their addresses, except for those that are open in an
// earlier launcher. It listens on each address and closes the listener again. If that fails, it
// returns the name of the group and the reason. In an upgrade, the new program calls Try while the
// earlier launcher still runs, to find out whether it could take over.
func Try(groups []spec.Group, earlier statefile.State) (group string, err error) {
	Reserve(earlier, groups)
	for _, g := range groups {
		for _, l := range g.Listen {
			resolved, err := resolveHost(l)
			if err != nil {
				return g.Name, err
			}
			if isOpen(g.Name, l, resolved, earlier) {
				continue
			}
			ln, err := net.Listen(resolved.Network, resolved.Address)
			if err != nil {
				return g.Name, err
			}
			ln.Close()
		}
	}
	return "", nil
}

// isOpen reports whether an earlier launcher has left an open socket that the group would take over
// for the address.
func isOpen(group string, l, resolved spec.Listen, earlier statefile.State) bool {
	a, _ := address.Resolve(resolved.Network, resolved.Address)
	for name, g := range earlier.Groups {
		for _, s := range g.Sockets {
			if s.ReservedFor != nil && *s.ReservedFor == l && name == group || s.ReservedFor == nil && a.Same(s.Resolve()) {
				return true
			}
		}
	}
	return false
}
