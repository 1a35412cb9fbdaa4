package launcher

import (
	"fmt"
	"net"
	"os"
	"slices"
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
		ln, taken := before.listener(g.Name, l)
		if ln == nil {
			var err error
			if ln, err = net.Listen(l.Network, l.Address); err != nil {
				return in, &ConfigError{g.Name, "Listen", explain(err, taken)}
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

// explain says why an address is in use, where a process that was kept has it and does not let us have it.
func explain(err, taken error) string {
	if taken == nil {
		return err.Error()
	}
	return fmt.Sprintf("%v; a process that an earlier launcher has kept listens there, and the kernel does not let this one have the socket (%v): "+
		"run the launcher with CAP_SYS_PTRACE, or allow it by the sysctl kernel.yama.ptrace_scope=0, or end the process", err, taken)
}

// mayListen refuses what a new group is to listen on, as long as a group has it that is no more in the configuration: the address
// is not free before its last process has ended.
func (m *Manager) mayListen(added GroupConfig) *ConfigError {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range added.Listen {
		for name, in := range m.listeners {
			if slices.ContainsFunc(in.wanted, l.sameAddress) {
				return &ConfigError{added.Name, "Listen", fmt.Sprintf("group %q has %s %s until it is gone; take that out first, and add %q by another reload",
					name, l.Network, l.Address, added.Name)}
			}
		}
	}
	return nil
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
			all = append(all, rememberedSocket{l, inodeOf(in.files[i])})
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
