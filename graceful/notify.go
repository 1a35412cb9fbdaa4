package graceful

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"time"
)

// socketVar is the environment variable by which systemd says where it wants to hear from the process. It is left as it
// is: children that see it are not listened to, with NotifyAccess=main.
const socketVar = "NOTIFY_SOCKET"

// margin is what an extension leaves beyond the end of the ladder, to print who was abandoned, and to exit: the service manager
// is asked for it, too, and where nobody can be asked, it stays free in the grace period.
const margin = time.Second

// A manager is systemd, or whatever else listens at NOTIFY_SOCKET, see sd_notify(3). What it cannot be told is logged, and
// otherwise ignored: no program should fail because nobody listens.
type manager struct {
	p      *Process
	socket string // a path, or an abstract name behind an @, which package net knows about; empty: there is none
	last   Status
}

func newManager(p *Process) *manager {
	m := &manager{p: p, socket: os.Getenv(socketVar)}
	if m.socket != "" {
		p.Watch(m.watch)
	}
	return m
}

func (m *manager) watch(st Status) {
	if st.Ready && !m.last.Ready {
		m.send("READY=1")
	}
	if st.Rung > Serving && m.last.Rung == Serving {
		m.send("STOPPING=1")
	}
	if st.Extended > m.last.Extended {
		// Not what was granted, but the time until the end: systemd counts it from now, and kills when it is over.
		m.send(fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", (time.Until(m.p.config.end(st)) + margin).Microseconds()))
	}
	m.last = st
}

// end returns when Exit is entered if nothing happens before.
func (c *config) end(st Status) time.Time {
	switch st.Rung {
	case LameDuck:
		return st.Until.Add(c.soft + st.Extended + c.hard)
	case Soft:
		return st.Until.Add(c.hard)
	}
	return st.Until
}

// send sends one message. It does not wait for long: a manager that does not read is not worth a drain.
func (m *manager) send(message string) {
	if err := m.write(message); err != nil && m.p.config.logger != nil {
		m.p.config.logger.Warn("service manager not told", "message", message, "err", err)
	}
}

func (m *manager) write(message string) error {
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: m.socket, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetWriteDeadline(time.Now().Add(patience / 10))
	_, err = conn.Write([]byte(message))
	return err
}

// watchdog returns a channel that says when the manager wants to hear that the process is alive: twice as often as it
// would have to.
func (m *manager) watchdog() (tick <-chan time.Time, stop func()) {
	usec, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64)
	pid := os.Getenv("WATCHDOG_PID")
	if m.socket == "" || err != nil || usec < 2 || usec > longest.Microseconds() || pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return nil, func() {}
	}
	t := time.NewTicker(time.Duration(usec) * time.Microsecond / 2)
	return t.C, t.Stop
}
