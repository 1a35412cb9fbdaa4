package upgrade

import (
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/swansong-go/swansong/launcher/internal/upgrade/early"
)

// Signals records the signals that arrive while a program is replaced by an upgrade. Otherwise a
// signal would be lost if the program has received it and is replaced before it has acted on it.
// The zero value has no signals and records none.
type Signals struct{ c chan os.Signal }

// CatchSignals returns Signals that receive, from now on, SIGHUP and the signals that stop a
// launcher.
func CatchSignals() Signals { return Signals{early.Catch()} }

// Stop makes s receive no further signals. Signals that it has received before stay in its channel.
func (s Signals) Stop() { signal.Stop(s.c) }

// add adds the signals in a text that take has made. It leaves out what is not a number, and
// signals for which the channel has no room: it holds 16, and more do no good, because the second
// stop signal already kills the processes.
func (s Signals) add(text string) {
	for number := range strings.SplitSeq(text, ",") {
		if n, err := strconv.Atoi(number); err == nil && len(s.c) < cap(s.c) {
			s.c <- syscall.Signal(n)
		}
	}
}

// take returns the numbers of the signals, separated by commas, and forgets the signals. It returns
// "" if there are none.
func (s Signals) take() string {
	var numbers []string
	for {
		select {
		case sig := <-s.c:
			numbers = append(numbers, strconv.Itoa(int(sig.(syscall.Signal))))
		default:
			return strings.Join(numbers, ",")
		}
	}
}

// replayWait is how long replay waits for a stop that the program may have begun already. The
// channel of the program and that of Signals get a signal at the same time, and the goroutine with
// which the program handles the signal may run later than replay.
const replayWait = 100 * time.Millisecond

// replay ends the catching of signals, and sends the caught ones to this program, which by now
// handles them. If this program is already stopping, replay leaves out the signals that stop it,
// because a second one would kill the processes.
func (s Signals) replay(stopped <-chan struct{}) {
	if s.c == nil {
		return
	}
	s.Stop()
	self, err := os.FindProcess(os.Getpid())
	for err == nil {
		select {
		case sig := <-s.c:
			if sig == syscall.SIGHUP || !endsWithin(stopped, replayWait) {
				self.Signal(sig)
			}
		default:
			return
		}
	}
}

// endsWithin reports whether done is closed now or within d.
func endsWithin(done <-chan struct{}, d time.Duration) bool {
	select {
	case <-done:
		return true
	case <-time.After(d):
		return false
	}
}
