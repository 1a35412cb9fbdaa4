package launcher

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"

	"github.com/swansong-go/swansong/launcher/internal/address"
)

// An inheritance is what the processes of a group inherit: listeners that the launcher holds for as long as it runs, so that
// there is always somebody whom a client can connect to. A connection that nobody has accepted yet when a process is
// stopped is accepted by another one.
type inheritance struct {
	wanted    []Listen
	listeners []net.Listener
	files     []*os.File
	names     []string
}

func listen(g GroupConfig, before remembered) (in inheritance, err error) {
	defer func() {
		if err != nil {
			in.close()
			in = inheritance{}
		}
	}()
	for _, l := range g.Listen {
		lookUp := sync.OnceValues(l.lookUp) // a moment later the name of a host may stand for another address
		ln, taken := before.listener(g.Name, l, lookUp, in)
		if ln == nil {
			at, err := lookUp()
			if err == nil {
				ln, err = net.Listen(at.Network, at.Address)
			}
			if err != nil {
				return in, &ConfigError{g.Name, "Listen", before.explain(g.Name, l, at, in, err, taken)}
			}
		}
		in.listeners = append(in.listeners, ln)
		in.wanted = append(in.wanted, l)
		f, err := fileOf(ln)
		if err != nil {
			return in, &ConfigError{g.Name, "Listen", err.Error()}
		}
		in.files = append(in.files, f)
		in.names = append(in.names, l.Name)
	}
	return in, nil
}

// explain says why an address is in use, where this group has it, or a process that was kept: taken is why that does not let us have it.
// Found is what l has been looked up as.
func (r remembered) explain(group string, l, found Listen, in inheritance, err, taken error) string {
	if taken != nil {
		return fmt.Sprintf("%v; a process that an earlier launcher has kept listens there, and the kernel does not let this one have the socket (%v): "+
			"run the launcher with CAP_SYS_PTRACE, or allow it by the sysctl kernel.yama.ptrace_scope=0, or end the process", err, taken)
	}
	if !errors.Is(err, syscall.EADDRINUSE) {
		return err.Error()
	}
	at, _ := found.resolve()
	if has, ok := in.listensOn(at); ok {
		return fmt.Sprintf("the group has %s already; choose another address", l.over(has))
	}
	for _, name := range slices.Sorted(maps.Keys(r.Groups)) {
		g := r.Groups[name]
		if len(g.Processes) == 0 {
			continue
		}
		i := slices.IndexFunc(g.Sockets, func(s rememberedSocket) bool { return s.at().Overlaps(at) })
		switch {
		case i < 0:
		case g.Sockets[i].wanted != nil:
			return l.hadBy(name, *g.Sockets[i].wanted)
		default:
			return fmt.Sprintf("%v; processes of group %q, which an earlier launcher has kept, listen on %v: start once without %q, until they have ended, "+
				"or choose another address", err, name, g.Sockets[i], group)
		}
	}
	return err.Error()
}

func (l Listen) at() string { return l.Network + " " + l.Address }

func (l Listen) resolve() (address.Address, error) { return address.Resolve(l.Network, l.Address) }

// lookUp returns l with the address that the name of its host stands for, as package net finds it to listen.
func (l Listen) lookUp() (Listen, error) {
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

// over says by which other one an address is taken, where that is not plain to see.
func (l Listen) over(taken Listen) string {
	if l.Network == taken.Network && l.Address == taken.Address {
		return taken.at()
	}
	return fmt.Sprintf("%s, and with it %s,", taken.at(), l.at())
}

// hadBy says that another group has the address, and goes on having it.
func (l Listen) hadBy(group string, taken Listen) string {
	return fmt.Sprintf("group %q has %s already; choose another address", group, l.over(taken))
}

// checkAddresses finds addresses in a configuration that overlap, as far as that can be seen without a resolver.
func (c Config) checkAddresses() (all []error) {
	type taken struct {
		group string
		l     Listen
		at    address.Address
	}
	var before []taken
	for _, g := range c.Groups {
		for _, l := range g.withDefaults().Listen {
			at, err := address.Parse(l.Network, l.Address)
			if err != nil {
				continue
			}
			for _, t := range before {
				if t.at.Overlaps(at) {
					all = append(all, &ConfigError{g.Name, "Listen", l.hadBy(t.group, t.l)})
					break
				}
			}
			before = append(before, taken{g.Name, l, at})
		}
	}
	return all
}

// mayListen refuses what a new group is to listen on as long as another one has it, also one that this is being claimed with. The
// address of a group that is no more in the configuration is not free before its last process has ended.
func (m *Manager) mayListen(added GroupConfig, claimed map[string]inheritance, stays func(group string) bool) *ConfigError {
	m.mu.Lock()
	all := maps.Clone(m.listeners)
	m.mu.Unlock()
	maps.Copy(all, claimed)
	maps.DeleteFunc(all, func(_ string, in inheritance) bool { return len(in.wanted) == 0 })
	if len(all) == 0 {
		return nil // and nothing is looked up
	}
	for _, l := range added.Listen {
		at, err := l.resolve()
		if err != nil {
			continue // nor can it be listened on
		}
		for _, name := range slices.Sorted(maps.Keys(all)) {
			has, ok := all[name].listensOn(at)
			if !ok {
				continue
			}
			if stays(name) {
				return &ConfigError{added.Name, "Listen", l.hadBy(name, has)}
			}
			return &ConfigError{added.Name, "Listen", fmt.Sprintf("group %q has %s until it is gone; take that out first, and add %q by another reload",
				name, l.over(has), added.Name)}
		}
	}
	return nil
}

// listensOn returns as what an address is had, or is about to be: there may be no listener yet.
func (in inheritance) listensOn(at address.Address) (has Listen, ok bool) {
	for i, l := range in.wanted {
		var is address.Address
		if i < len(in.listeners) { // which knows its port
			is = address.Of(l.Network, in.listeners[i])
		} else {
			is, _ = l.resolve()
		}
		if is.Overlaps(at) {
			return l, true
		}
	}
	return Listen{}, false
}

// own has the files of sockets that were taken over go with them. Not before the launcher has started: one that fails to
// leaves the service to those who go on with it, and it could not be reached any more.
func (in inheritance) own() {
	for _, ln := range in.listeners {
		if unix, ok := ln.(*net.UnixListener); ok {
			unix.SetUnlinkOnClose(true)
		}
	}
}

// sockets are for the next launcher to find.
func (in inheritance) sockets() (all []rememberedSocket) {
	for i, l := range in.wanted {
		if i < len(in.files) {
			all = append(all, rememberedSocket{Listen: l, Inode: inodeOf(in.files[i]), Has: in.listeners[i].Addr().String()})
		}
	}
	return all
}

// end closes the listeners for all who have them, be it a guardian: nobody is to connect any more and wait for an answer.
func (in inheritance) end() {
	for _, f := range in.files {
		stopListening(f)
	}
	in.close()
}

func (in inheritance) close() {
	for _, f := range in.files {
		f.Close()
	}
	for _, l := range in.listeners {
		l.Close()
	}
}

func (m *Manager) inherited(group string) (files []*os.File, names []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.listeners[group].files, m.listeners[group].names
}

// Addrs returns where the launcher listens for a group, in the order of its configuration: what a port 0 has become.
func (m *Manager) Addrs(group string) []net.Addr {
	var all []net.Addr
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range m.listeners[group].listeners {
		all = append(all, l.Addr())
	}
	return all
}
