// Package listeners opens the listening sockets of groups, hands them to processes, and takes them
// over from an earlier launcher.
package listeners

import (
	"net"
	"os"
	"sync"

	"github.com/swansong-go/swansong/launcher/internal/address"
	"github.com/swansong-go/swansong/launcher/internal/spec"
	"github.com/swansong-go/swansong/launcher/internal/statefile"
)

// A Set is the listeners of a group, which its processes inherit. The launcher holds them open for
// as long as the group exists, so clients can always connect. A connection that was not accepted
// before a process stopped is accepted by another process.
type Set struct {
	configured []spec.Listen
	listeners  []net.Listener // one for each configured address; none after an error of Open
	files      []*os.File     // duplicates of the listeners' sockets, for processes to inherit
	names      []string
}

// Open listens on the addresses of a group. It takes over sockets of an earlier launcher, for which
// [Reserve] must have been called. After an error no listener is left open.
func Open(g spec.Group, earlier statefile.State) (set Set, err error) {
	defer func() {
		if err != nil {
			set.Close()
			set = Set{}
		}
	}()
	for _, l := range g.Listen {
		resolve := sync.OnceValues(func() (spec.Listen, error) { return resolveHost(l) }) // resolve only once, because DNS can answer differently each time
		ln, takeErr := takeOver(earlier, g.Name, l, resolve, set)
		if ln == nil {
			resolved, err := resolve()
			if err == nil {
				ln, err = net.Listen(resolved.Network, resolved.Address)
			}
			if err != nil {
				return set, explain(earlier, g.Name, l, resolved, set, err, takeErr)
			}
		}
		// From here on, Close closes ln, also if one of the next steps fails.
		set.listeners = append(set.listeners, ln)
		set.configured = append(set.configured, l)
		f, err := fileOf(ln)
		if err != nil {
			return set, err
		}
		set.files = append(set.files, f)
		set.names = append(set.names, l.Name)
	}
	return set, nil
}

// resolveHost returns l with the IP address of its host, as net.Listen resolves it.
func resolveHost(l spec.Listen) (spec.Listen, error) {
	if l.Network == "unix" {
		return l, nil
	}
	tcp, err := net.ResolveTCPAddr(l.Network, l.Address)
	if err != nil {
		return l, &net.OpError{Op: "listen", Net: l.Network, Err: err}
	}
	l.Address = tcp.String()
	return l, nil
}

// Planned returns a Set of listeners that are not open yet, for [CheckNew]: a reload can add two
// groups at once, which must not conflict with each other either.
func Planned(l []spec.Listen) Set { return Set{configured: l} }

// Files returns the sockets for a process to inherit, in the order of the configuration. They
// belong to the Set, and are valid until Close.
func (s Set) Files() []*os.File { return s.files }

// Names returns the configured names of the listeners, for LISTEN_FDNAMES, in the order of Files.
func (s Set) Names() []string { return s.names }

// Addrs returns the addresses of the listeners, with the actual port in place of a port 0.
func (s Set) Addrs() (all []net.Addr) {
	for _, ln := range s.listeners {
		all = append(all, ln.Addr())
	}
	return all
}

// find returns the configured address of the listener that occupies the address a. The listeners of
// a Set that Planned has made are not open, so find compares their configured addresses with a.
func (s Set) find(a address.Address) (l spec.Listen, ok bool) {
	for i, l := range s.configured {
		var occupied address.Address
		if i < len(s.listeners) { // the listener is open, so its actual port is known
			occupied = address.Of(l.Network, s.listeners[i])
		} else {
			occupied, _ = address.Resolve(l.Network, l.Address)
		}
		if occupied.Overlaps(a) {
			return l, true
		}
	}
	return spec.Listen{}, false
}

// UnlinkOnClose makes Close remove the files of unix sockets that were taken over. Call it once the
// launcher has started: if the start fails, the processes of the earlier launcher still need the
// files.
func (s Set) UnlinkOnClose() {
	for _, ln := range s.listeners {
		if unix, ok := ln.(*net.UnixListener); ok {
			unix.SetUnlinkOnClose(true)
		}
	}
}

// Sockets returns the part of the state file that lets the next launcher take over the listeners.
func (s Set) Sockets() (all []statefile.Socket) {
	for i, l := range s.configured {
		if i < len(s.files) {
			all = append(all, statefile.Socket{Listen: l, Inode: inodeOf(s.files[i]), Address: s.listeners[i].Addr().String()})
		}
	}
	return all
}

// Shutdown closes the listeners for all processes that have them open, including the guardian. From
// then on clients are refused. Otherwise their connections would wait in a queue although no
// process accepts them.
func (s Set) Shutdown() {
	for _, f := range s.files {
		stopListening(f)
	}
	s.Close()
}

// Close closes the listeners. They stay open in processes that have inherited them. The file of a
// unix socket is removed with its listener, unless the socket was taken over; see UnlinkOnClose.
func (s Set) Close() {
	for _, f := range s.files {
		f.Close()
	}
	for _, l := range s.listeners {
		l.Close()
	}
}
