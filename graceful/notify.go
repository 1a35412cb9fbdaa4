package graceful

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"time"
)

// socketVar is the environment variable in which systemd passes the address of its notification
// socket. Run does not unset it: with NotifyAccess=main, systemd ignores messages of child
// processes.
const socketVar = "NOTIFY_SOCKET"

// margin is the time that remains after the last phase for printing the abandoned guards and
// exiting. Run adds it to the time that it requests from the service manager. Without a service
// manager, extensions end at least this long before the grace period.
const margin = time.Second

// A manager is systemd, or another service manager that listens at NOTIFY_SOCKET; see sd_notify(3).
// Messages that cannot be sent are logged and otherwise ignored.
type manager struct {
	p      *Process
	socket string // address of the socket: a path, or an abstract name that begins with @; empty if there is no service manager
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
	if st.Phase > Serving && m.last.Phase == Serving {
		m.send("STOPPING=1")
	}
	if st.Extended > m.last.Extended {
		// systemd counts EXTEND_TIMEOUT_USEC from now and kills the process when that time is over.
		// So the value is the time until the end of the last phase, not the time that Extend has
		// granted.
		m.send(fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", (time.Until(m.p.config.end(st)) + margin).Microseconds()))
	}
	m.last = st
}

// end returns the time at which the phase Exit begins at the latest.
func (c *config) end(st Status) time.Time {
	switch st.Phase {
	case LameDuck:
		return st.Until.Add(c.soft + st.Extended + c.hard)
	case Soft:
		// Do not add to st.Until: it is zero if WithSoft has set 24 h.
		return st.Since.Add(c.soft + st.Extended + c.hard)
	}
	return st.Until
}

// notify sends one message, if there is a service manager.
func (m *manager) notify(message string) {
	if m.socket != "" {
		m.send(message)
	}
}

// send sends one message. It waits only for a short time, so that a service manager that does not
// read its socket does not delay the drain.
func (m *manager) send(message string) {
	if err := m.write(message); err != nil && m.p.config.logger != nil {
		m.p.config.logger.Warn("service manager could not be notified", "message", message, "err", err)
	}
}

func (m *manager) write(message string) error {
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: m.socket, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetWriteDeadline(time.Now().Add(notifyTimeout / 10))
	_, err = conn.Write([]byte(message))
	return err
}

// watchdog returns a channel that ticks at half the watchdog interval of the service manager, which
// expects a message in every interval. The function stop stops the ticks.
func (m *manager) watchdog() (tick <-chan time.Time, stop func()) {
	usec, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64)
	pid := os.Getenv("WATCHDOG_PID")
	if m.socket == "" || err != nil || usec < 2 || usec > longest.Microseconds() || pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return nil, func() {}
	}
	t := time.NewTicker(time.Duration(usec) * time.Microsecond / 2)
	return t.C, t.Stop
}
