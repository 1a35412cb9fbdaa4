package eventloop

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"
)

// errDropped is the cause of the stop of a loop that was garbage collected.
var errDropped = errors.New("eventloop: the loop was garbage collected without Stop")

// watch returns the Loop of l. Once the program has no reference to the Loop left, no goroutine can
// post to l or stop it, and the goroutine of l would wait forever. The garbage collector notices
// this, because the goroutine refers to l only, and calls [loop.drop].
//
// Exported methods have the receiver *Loop, so that a method value such as loop.Post is a reference
// to the Loop.
func (l *loop) watch() *Loop {
	handle := &Loop{l}
	if !inBubble() {
		runtime.AddCleanup(handle, (*loop).drop, l)
	}
	return handle
}

// inBubble reports whether the calling goroutine is in a bubble of testing/synctest, where the
// clock begins in the year 2000. The runtime calls cleanups outside of all bubbles, and ends the
// program if a cleanup wakes a goroutine in a bubble.
func inBubble() bool { return time.Now().Year() == 2000 }

// callerOfNew returns the file and the line of the call of New.
func callerOfNew() string {
	_, file, line, _ := runtime.Caller(2)
	return fmt.Sprintf("%s:%d", filepath.Base(file), line)
}

// drop makes the loop stop once it has nothing to do. The runtime calls it when the program has no
// reference to the Loop left.
func (l *loop) drop() {
	l.box.dropped.Store(true)
	if l.state() == Idle { // the loop was never started, so no goroutine of the loop can stop it
		l.stopIfDropped()
	}
	l.box.wake()
}

// stopIfDropped stops the loop if the program has no reference to its Loop left and no timer is
// pending. Queued callbacks do not keep the loop from stopping: they run after the stop, too. The
// loop's goroutine calls stopIfDropped each time before it takes callbacks from the inbox.
func (l *loop) stopIfDropped() {
	if !l.box.dropped.Load() || l.timers.pending() > 0 {
		return
	}
	if s := l.state(); s == Stopping || s == Stopped {
		return
	}
	fmt.Fprintf(os.Stderr, "eventloop: the event loop %q, created at %s, was garbage collected without Stop and has been stopped\n", l.name, l.site)
	l.stop(errDropped)
}
