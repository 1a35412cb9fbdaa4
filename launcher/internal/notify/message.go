// Package notify receives the messages of processes that report their state as to systemd: see
// sd_notify(3).
package notify

import (
	"strconv"
	"strings"
	"time"
)

// A Gate keeps messages from being read while the launcher is handed over to another program. A
// message that is not read yet stays in the socket, which the other program gets.
type Gate interface {
	Enter()
	Leave()
}

// A Message is what a process has reported. Fields that it has not sent are zero.
type Message struct {
	Ready           bool          // READY=1
	Stopping        bool          // STOPPING=1
	Status          string        // STATUS=…; a text of one line, cut off after 1 KiB
	Watchdog        bool          // WATCHDOG=1
	WatchdogTrigger bool          // WATCHDOG=trigger: the process wants to be restarted
	WatchdogPeriod  time.Duration // WATCHDOG_USEC=…
	ExtendTimeout   time.Duration // EXTEND_TIMEOUT_USEC=…
	MainPID         int           // MAINPID=…
}

// maxStatus is how many bytes of a status are kept. It is in events and in each answer to status.
const maxStatus = 1 << 10

// Parse reads a message: lines of the form NAME=value. Lines that it does not know, such as
// RELOADING=1, and values that are not of their form are ignored, as systemd does.
func Parse(text string) (m Message) {
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		switch name {
		case "READY":
			m.Ready = m.Ready || value == "1"
		case "STOPPING":
			m.Stopping = m.Stopping || value == "1"
		case "STATUS":
			m.Status = strings.ToValidUTF8(value[:min(len(value), maxStatus)], "�")
		case "WATCHDOG":
			m.Watchdog, m.WatchdogTrigger = m.Watchdog || value == "1", m.WatchdogTrigger || value == "trigger"
		case "WATCHDOG_USEC":
			m.WatchdogPeriod = microseconds(value)
		case "EXTEND_TIMEOUT_USEC":
			m.ExtendTimeout = microseconds(value)
		case "MAINPID":
			if pid, err := strconv.ParseInt(value, 10, 32); err == nil && pid > 0 {
				m.MainPID = int(pid)
			}
		}
	}
	return m
}

// microseconds returns the duration of a number of microseconds, and 0 if the text is not a number.
// It returns at most a day, so that sums of times cannot overflow.
func microseconds(text string) time.Duration {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0
	}
	const longest = 24 * time.Hour
	return time.Duration(min(n, uint64(longest/time.Microsecond))) * time.Microsecond
}
