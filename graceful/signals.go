package graceful

import (
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"
)

// signalsAfterRun is how long signals have no effect after Run has returned. A user who presses ^C
// once more than necessary must not kill the deferred calls of main, and neither must a log line
// that main writes to a closed pipe.
const signalsAfterRun = 5 * time.Second

// repeatTime is the time after a signal in which a SIGTERM or SIGHUP does not count. Service
// managers send SIGTERM and SIGHUP together, wrapper programs pass on a signal that the process has
// already received, and a terminal that closes sends SIGHUP twice.
const repeatTime = time.Second

// defaultSignals returns the signals that stop a process without WithSignals.
func defaultSignals() []os.Signal {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}
	if canDetectLostOutput {
		signals = append(signals, brokenPipe)
	}
	return signals
}

// signalInputs contains the channels on which Run receives signals.
type signalInputs struct {
	stops      chan os.Signal // signals that stop the process, except SIGPIPE
	configured []os.Signal
	fake       bool // a test sends the signals, so signal.Notify is not used

	// SIGPIPE has a channel of its own: each write to a broken connection causes one, and so many
	// of them must not displace a SIGTERM.
	pipe      chan os.Signal
	pipeStops bool // whether the process stops if no process reads its standard output any more
	draining  bool // beginDrain was called
}

// newSignalInputs registers for the configured signals, except for those that the process ignores:
// nohup ignores SIGHUP, and shells ignore SIGINT in background jobs of scripts.
func (r *run) newSignalInputs(fake chan os.Signal) *signalInputs {
	in := &signalInputs{stops: fake, configured: r.config.signals, fake: fake != nil, pipe: make(chan os.Signal, 1)}
	if in.fake {
		return in
	}
	in.stops = make(chan os.Signal, 16)
	var stops []os.Signal
	for _, sig := range r.config.signals {
		switch {
		case signal.Ignored(sig):
		case sig == brokenPipe:
			in.pipeStops = true
		default:
			stops = append(stops, sig)
		}
	}
	if len(stops) > 0 {
		signal.Notify(in.stops, stops...)
	}
	if in.pipeStops {
		in.catchPipe()
	}
	return in
}

// catchPipe makes writes to closed pipes fail with EPIPE. Without it, such a write to standard
// output or standard error ends the process.
func (in *signalInputs) catchPipe() {
	if brokenPipe != nil && !signal.Ignored(brokenPipe) {
		signal.Notify(in.pipe, brokenPipe)
	}
}

// beginDrain makes sure that SIGPIPE does not end the process while it drains. Without configured
// signals, Run leaves all signals alone.
func (in *signalInputs) beginDrain() {
	if !in.draining && !in.fake && !in.pipeStops && len(in.configured) > 0 {
		in.catchPipe()
	}
	in.draining = true
}

// stopEvent returns the event for a signal that has been received from stops. It returns false if a
// test has sent a signal that is not configured.
func (in *signalInputs) stopEvent(sig os.Signal) (e event, ok bool) {
	if in.fake && !slices.Contains(in.configured, sig) {
		return e, false
	}
	return event{kind: signalled, cause: &SignalError{sig}, mayRepeat: sig == syscall.SIGTERM || sig == syscall.SIGHUP}, true
}

// pipeEvent returns the event for a SIGPIPE. It returns false if standard output and standard error
// still have readers: then the SIGPIPE comes from a write to another pipe or connection, whose
// error the program handles. The event does not count as a signal, because in a pipeline the user's
// ^C may follow it.
func (in *signalInputs) pipeEvent() (e event, ok bool) {
	if !in.pipeStops || !isOutputLost() {
		return e, false
	}
	return event{kind: asked, cause: &SignalError{brokenPipe}}, true
}

// stop restores the effect that the signals had before Run. It returns at once, and restores the
// effect when the time signalsAfterRun has passed.
func (in *signalInputs) stop() {
	if in.fake || len(in.configured) == 0 {
		return
	}
	time.AfterFunc(signalsAfterRun, func() {
		signal.Stop(in.stops)
		signal.Stop(in.pipe)
	})
}
