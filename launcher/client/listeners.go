package client

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
)

// firstFD is where inherited listeners begin, see sd_listen_fds(3).
const firstFD = 3

// A Listener is one that was inherited, and its name.
type Listener struct {
	Name string // empty: it has none
	net.Listener
}

// Listeners returns the listeners that the process has inherited, from the launcher or from systemd, in their order, and
// none where it has inherited none. It takes them: the variables of the environment that speak of them are removed, so that
// processes it starts do not believe to have them, and a second call returns none.
//
// A process that stops accepting leaves the connections that wait to whoever else holds the listener; so with one that is
// handed over a service is replaced and no client is refused.
func Listeners() ([]Listener, error) {
	pid, count, names := os.Getenv("LISTEN_PID"), os.Getenv("LISTEN_FDS"), os.Getenv("LISTEN_FDNAMES")
	for _, v := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} {
		os.Unsetenv(v)
	}
	// The launcher cannot know the pid beforehand. It leaves the variable out where it starts a process without a helper.
	if count == "" || pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return nil, nil
	}
	n, err := strconv.Atoi(count)
	if err != nil || n < 0 || n > 1024 {
		return nil, fmt.Errorf("client: LISTEN_FDS=%q is not a number of listeners", count)
	}
	name := strings.Split(names, ":")
	var found []Listener
	for i := range n {
		f := os.NewFile(uintptr(firstFD+i), "inherited listener")
		ln, err := net.FileListener(f)
		f.Close()
		if err != nil {
			for _, l := range found {
				l.Close()
			}
			return nil, fmt.Errorf("client: file descriptor %d of %d that LISTEN_FDS speaks of is no listener: %w", firstFD+i, n, err)
		}
		if unix, ok := ln.(*net.UnixListener); ok {
			unix.SetUnlinkOnClose(false) // the path belongs to whoever made it
		}
		l := Listener{Listener: ln}
		if i < len(name) {
			l.Name = name[i]
		}
		found = append(found, l)
	}
	return found, nil
}
