package client

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
)

// firstFD is the file descriptor of the first inherited listener; see sd_listen_fds(3).
const firstFD = 3

// A Listener is an inherited listener.
type Listener struct {
	Name string // empty if the listener has no name
	net.Listener
}

// Listeners returns the listeners that the process has inherited from the launcher or from systemd,
// in order. It removes the environment variables that describe them, so that child processes do not
// use them by mistake. A second call returns none.
//
// When a process closes an inherited listener, connections that it has not accepted wait for
// another process that has the listener. So a service can be replaced without refusing a client.
func Listeners() ([]Listener, error) {
	pid, count, names := os.Getenv("LISTEN_PID"), os.Getenv("LISTEN_FDS"), os.Getenv("LISTEN_FDNAMES")
	for _, v := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} {
		os.Unsetenv(v)
	}
	// An empty LISTEN_PID is accepted: a launcher without Config.Helper cannot know the pid in
	// advance, and does not set the variable.
	if count == "" || pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return nil, nil
	}
	n, err := strconv.Atoi(count)
	if err != nil || n < 0 || n > 1024 {
		return nil, fmt.Errorf("client: LISTEN_FDS=%q must be a number from 0 to 1024", count)
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
			return nil, fmt.Errorf("client: file descriptor %d, one of %d in LISTEN_FDS, is not a listener: %w", firstFD+i, n, err)
		}
		if unix, ok := ln.(*net.UnixListener); ok {
			// Closing ln does not remove the socket file: the process that created the file does
			// that.
			unix.SetUnlinkOnClose(false)
		}
		l := Listener{Listener: ln}
		if i < len(name) {
			l.Name = name[i]
		}
		found = append(found, l)
	}
	return found, nil
}
