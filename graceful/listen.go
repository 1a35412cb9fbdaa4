package graceful

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
)

// firstListenFD is the file descriptor of the first inherited listener; see sd_listen_fds(3).
const firstListenFD = 3

// inherited has the listeners that the process has inherited and that Listen has not returned yet.
var inherited struct {
	sync.Mutex
	read      bool
	listeners []net.Listener
}

// Listen returns the inherited listener for the address, if the process was started with one by
// systemd (a .socket unit) or by package launcher. Otherwise it is like [net.Listen]. With an
// inherited listener a restart refuses no connection: clients that connect between two processes
// wait in the queue of the socket.
//
// An inherited TCP listener matches by its port, because the service manager decides on the host; a
// unix socket matches by its path. Each inherited listener is returned once.
//
// The first call takes over all inherited listeners. It removes the environment variables
// LISTEN_PID, LISTEN_FDS and LISTEN_FDNAMES, so that child processes do not use them by mistake. So
// a program must not call both Listen and the function Listeners of package launcher/client. Listen
// may be called concurrently.
func Listen(network, address string) (net.Listener, error) {
	inherited.Lock()
	defer inherited.Unlock()
	if !inherited.read {
		var err error
		if inherited.listeners, err = readInherited(); err != nil {
			return nil, err
		}
		inherited.read = true
	}
	for i, ln := range inherited.listeners {
		if matches(ln.Addr(), network, address) {
			inherited.listeners = slices.Delete(inherited.listeners, i, i+1)
			return ln, nil
		}
	}
	return net.Listen(network, address)
}

// warnOfUnusedListeners reports the inherited listeners that Listen has not returned, usually
// because the port in the .socket unit differs from the port of the program.
func (p *Process) warnOfUnusedListeners() {
	inherited.Lock()
	var unused []string
	for _, ln := range inherited.listeners {
		unused = append(unused, ln.Addr().String())
	}
	inherited.Unlock()
	for _, addr := range unused {
		if l := p.config.logger; l != nil {
			l.Warn("inherited listener not used, so its clients wait for ever; pass its address to Listen", "addr", addr)
		} else {
			fmt.Fprintf(p.config.output, "graceful: the inherited listener %s is not used, so its clients wait for ever; pass its address to Listen\n", addr)
		}
	}
}

// matches reports whether Listen(network, address) returns the inherited listener whose address is
// the parameter inherited.
func matches(inherited net.Addr, network, address string) bool {
	switch inherited := inherited.(type) {
	case *net.TCPAddr:
		want, err := net.ResolveTCPAddr(network, address)
		return err == nil && want.Port == inherited.Port
	case *net.UnixAddr:
		return inherited.Net == network && inherited.Name == address
	}
	return false
}

// readInherited returns the listeners that the environment describes, and removes the variables.
func readInherited() (found []net.Listener, err error) {
	pid, count := os.Getenv("LISTEN_PID"), os.Getenv("LISTEN_FDS")
	for _, name := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} {
		os.Unsetenv(name)
	}
	// LISTEN_PID may be missing: package launcher does not set it, because it cannot know the pid
	// of a process before the process is started.
	if count == "" || pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return nil, nil
	}
	n, err := strconv.Atoi(count)
	if err != nil || n < 0 || n > 1024 {
		return nil, fmt.Errorf("graceful: LISTEN_FDS=%q must be a number from 0 to 1024", count)
	}
	for fd := firstListenFD; fd < firstListenFD+n; fd++ {
		f := os.NewFile(uintptr(fd), "inherited listener")
		// FileListener duplicates fd, and f.Close closes fd itself. Child processes would inherit
		// fd, but do not inherit the duplicate.
		ln, listenErr := net.FileListener(f)
		f.Close()
		if listenErr != nil {
			err = errors.Join(err, fmt.Errorf("graceful: file descriptor %d, one of %d in LISTEN_FDS, is not a listener: %w", fd, n, listenErr))
			continue
		}
		if unix, ok := ln.(*net.UnixListener); ok {
			// The service manager has created the file of the socket and still uses it, so keep it.
			unix.SetUnlinkOnClose(false)
		}
		found = append(found, ln)
	}
	if err != nil {
		for _, ln := range found {
			ln.Close()
		}
		return nil, err
	}
	return found, nil
}
