package debugpage

import (
	"bytes"
	"net/http"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
)

const (
	intervalRunning  = 500 * time.Millisecond // from one snapshot to the next while the scope runs
	intervalDraining = 250 * time.Millisecond // after the stop, from one snapshot or event to the next
	maxShare         = 10                     // snapshots take at most 1/maxShare of the time
	heartbeat        = 15 * time.Second
	writeTimeout     = 10 * time.Second // time limit for writing one event
)

// stream answers r with an event for each observed change, until the scope is complete or forced,
// or the client is gone. It uses only the goroutine of the request. It renders an event only when
// the client has read the previous one, and then from the newest snapshot. So a slow client misses
// snapshots, and delays nothing but its own events.
func (h *handler) stream(w http.ResponseWriter, r *http.Request, filter string) {
	if h.options.OnStream != nil {
		h.options.OnStream(w, r)
	}
	w.Header().Set("X-Accel-Buffering", "no") // asks nginx to forward each event at once
	out := &eventWriter{w: w, control: http.NewResponseController(w)}
	defer out.control.SetWriteDeadline(time.Time{})
	out.buf.WriteString("retry: 1000\n")
	render := renderJSON
	if r.URL.Query().Get("part") == "html" { // the page's script requests HTML
		render = renderUpdate
	}

	changed, unwatch := h.recorder.watchProcess()
	defer unwatch()
	wait := &streamWait{
		scope:   h.recorder.scope,
		changed: changed,
		stopped: h.recorder.scope.Done(),
		gone:    r.Context().Done(),
		timer:   time.NewTimer(0),
	}
	defer wait.timer.Stop()
	var sent uint64 // version of the last snapshot sent
	var maxAge time.Duration
	for open := true; open; {
		ending := wait.hasEnded()
		now := h.recorder.snapshot(maxAge)
		taken := time.Now()
		if now.version != sent {
			if !out.send("state", render(now, filter)) {
				return
			}
			sent, out.lastWrite = now.version, taken
		}
		if ending {
			out.send("end", []byte(wait.outcome(now)))
			return
		}
		if taken.Sub(out.lastWrite) >= heartbeat {
			if !out.comment("heartbeat") {
				return
			}
			out.lastWrite = taken
		}
		interval := intervalRunning
		if wait.forced != nil || now.status != nil && now.status.Phase != graceful.Serving {
			interval = intervalDraining
		}
		maxAge, open = wait.next(taken, interval, maxShare*h.recorder.lastCost())
	}
}

// An eventWriter writes server-sent events.
type eventWriter struct {
	w         http.ResponseWriter
	control   *http.ResponseController
	buf       bytes.Buffer
	lastWrite time.Time
}

// send writes an event and reports whether it was written.
func (out *eventWriter) send(event string, data []byte) bool {
	out.buf.WriteString("event: " + event + "\n")
	for line := range bytes.Lines(bytes.TrimRight(data, "\n")) {
		out.buf.WriteString("data: ")
		out.buf.Write(bytes.TrimRight(line, "\r\n"))
		out.buf.WriteByte('\n')
	}
	return out.flush()
}

// comment writes a comment, which clients ignore, and reports whether it was written.
func (out *eventWriter) comment(text string) bool {
	out.buf.WriteString(": " + text + "\n")
	return out.flush()
}

func (out *eventWriter) flush() bool {
	out.buf.WriteByte('\n')
	// SetWriteDeadline fails if the ResponseWriter does not support deadlines. Then only TCP
	// detects that the client is gone.
	out.control.SetWriteDeadline(time.Now().Add(writeTimeout))
	_, err := out.w.Write(out.buf.Bytes())
	out.buf.Reset()
	return err == nil && out.control.Flush() == nil
}

// A streamWait determines when a stream must take its next snapshot.
type streamWait struct {
	scope   *ctxshutdown.Swansong
	changed <-chan struct{} // receives a value when the process has entered another phase, or an extension was granted
	stopped <-chan struct{} // closed when the scope is stopped, and then set to nil
	gone    <-chan struct{} // closed when the client has disconnected or the request's context is cancelled
	timer   *time.Timer

	// forced is the Done channel of the scope's Work, and completed that of its Completion. Both
	// are nil before the stop: a call of Work before the stop would keep the scope in its parent's
	// list of children.
	forced, completed <-chan struct{}
}

// hasEnded reports whether the scope is complete or forced. Then the stream sends the last
// snapshot, if anything has changed, and ends.
func (sw *streamWait) hasEnded() bool {
	if sw.forced == nil && sw.scope.Err() != nil {
		sw.stopped, sw.forced, sw.completed = nil, sw.scope.Work().Done(), sw.scope.Completion().Done()
	}
	return isClosed(sw.forced) || isClosed(sw.completed)
}

// outcome returns the data of the last event: "complete" or "forced".
func (sw *streamWait) outcome(now *snapshot) string {
	if now.state == ctxshutdown.Complete || isClosed(sw.completed) {
		return "complete"
	}
	return "forced"
}

// next blocks until another snapshot is due, and returns how old that snapshot may be. lastTaken is
// the time at which the last snapshot was taken. If nothing changes, the next snapshot is due after
// interval or after minimum, whichever is longer. ok is false if the client is gone.
func (sw *streamWait) next(lastTaken time.Time, interval, minimum time.Duration) (maxAge time.Duration, ok bool) {
	sw.timer.Reset(max(interval, minimum))
	for changed := sw.changed; ; {
		select {
		case <-sw.timer.C:
			return interval / 2, true // a snapshot just taken for another client is new enough
		case <-changed:
			// Wait until intervalDraining has passed since the last snapshot: each extension of the
			// drain is a change, and a program can request extensions at any rate.
			early := intervalDraining - time.Since(lastTaken)
			if early <= 0 {
				return 0, true
			}
			sw.timer.Reset(early)
			changed = nil
		case <-sw.stopped:
			return 0, true
		case <-sw.forced:
			return 0, true
		case <-sw.completed:
			return 0, true
		case <-sw.gone:
			// The context of the request may be derived from Work. Then it is cancelled together
			// with the scope, and the last event must still be sent.
			return 0, sw.scope.Err() != nil && isClosed(sw.scope.Work().Done())
		}
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
