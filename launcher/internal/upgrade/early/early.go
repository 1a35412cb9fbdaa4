// Package early catches the signals that stop a launcher, in a program that takes over from another
// one, before that program can act on them. Without it, such a signal would end the program at
// once.
//
// The package imports next to nothing, so Go initializes it before nearly all others. Until then, a
// signal does end the program: the Go runtime blocks none of these signals, not even those that are
// blocked when the program is executed.
package early

import (
	"os"
	"os/signal"
	"syscall"
)

// Handoff names the environment variable that is set in a program that takes over from another one.
const Handoff = "SWANSONG_UPGRADE"

// Signals is the channel that receives the signals from the initialization of this package on. It
// is nil in a program that does not take over from another one.
var Signals chan os.Signal

func init() {
	if os.Getenv(Handoff) != "" {
		Signals = Catch()
	}
}

// Catch returns a channel that gets, from now on, the signals that stop a launcher and SIGHUP,
// besides other channels that are notified of them.
func Catch() chan os.Signal {
	c := make(chan os.Signal, 16)
	for _, sig := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM} {
		if !signal.Ignored(sig) {
			signal.Notify(c, sig)
		}
	}
	return c
}
