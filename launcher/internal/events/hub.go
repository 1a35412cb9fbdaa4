package events

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swansong-go/swansong/launcher/internal/callback"
	"github.com/swansong-go/swansong/launcher/internal/lifecycle"
)

// A Hub sends events to watchers and to the logger. It waits for none of them, so a log on a disk
// that hangs blocks nothing. Its methods may be called concurrently.
type Hub struct {
	mu       sync.Mutex
	watchers map[*watcher]bool
	count    func(Event) // called for every event, with mu locked, to update the statistics
	missed   uint64
	closed   bool
	logged   chan struct{} // closed when the log has been written
	logger   <-chan Event  // the events for the logger; nil if there is none
	toLog    atomic.Int64  // number of events in the channel logger that have not been logged yet
}

// watcherBuffer is the number of events that a watcher may be behind before it misses some.
const watcherBuffer = 1024

type watcher struct {
	events chan Event
	missed int
}

// NewHub returns a hub that calls the function count with each event, one at a time. The logger can
// be nil.
func NewHub(logger *slog.Logger, count func(Event)) *Hub {
	h := &Hub{watchers: map[*watcher]bool{}, count: count, logged: make(chan struct{})}
	if logger == nil {
		close(h.logged)
		return h
	}
	events, _ := h.Watch()
	h.logger = events
	go h.log(logger, events)
	return h
}

// log passes all events to a logger. If the logger panics, the message is lost. Only the first
// panic is an alarm, because the logger gets the alarm, too, and may panic again.
func (h *Hub) log(logger *slog.Logger, events <-chan Event) {
	loggerFailed := false // whether the logger has panicked, which an alarm has reported
	for e := range events {
		p := callback.Call("Logger", func() { logEvent(logger, e) })
		h.toLog.Add(-1)
		if p != nil && !loggerFailed {
			loggerFailed = true
			h.Publish(Event{Kind: Alarm, Message: p.Error() + "; the message is lost, and so are later ones at which the logger panics", Stack: string(p.Stack)})
		}
	}
	close(h.logged)
}

// Publish sets the time of e to now, and sends e to the watchers and to the logger.
func (h *Hub) Publish(e Event) {
	e.Time = time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.count(e)
	for w := range h.watchers {
		e.Missed = w.missed
		select {
		case w.events <- e:
			w.missed = 0
			if w.events == h.logger {
				h.toLog.Add(1)
			}
		default:
			w.missed++
			h.missed++
		}
	}
}

// Missed returns how many events watchers were too slow to receive, for all watchers so far.
func (h *Hub) Missed() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.missed
}

// logEvent logs an event. The log contains names, states and messages of processes, but never the
// arguments or the environment of a process.
func logEvent(logger *slog.Logger, e Event) {
	level := slog.LevelInfo
	switch {
	case e.Kind == Alarm || e.Kind == RollFailed && e.Roll != "superseded" || e.To == lifecycle.Crashed || e.To == lifecycle.Forced || e.To == lifecycle.Gone && e.Took == 0:
		// In the state GONE, a process has ended with an unknown exit status. That is an error only
		// if the process was not asked to stop: Took is then 0.
		level = slog.LevelError
	case slices.Contains([]Kind{RouterError, Restart, Signalled, GraceOver, Extension}, e.Kind) || e.To == lifecycle.Unhealthy || e.To == lifecycle.Blocked:
		level = slog.LevelWarn
	}
	var attrs []slog.Attr
	if e.Group != "" {
		attrs = append(attrs, slog.String("group", e.Group))
	}
	if e.Process != "" {
		attrs = append(attrs, slog.String("process", e.Process))
	}
	if e.Kind == Transition {
		attrs = append(attrs, slog.String("from", e.From.String()), slog.String("to", e.To.String()))
	}
	if e.Outcome != lifecycle.NotEnded {
		attrs = append(attrs, slog.String("outcome", e.Outcome.String()))
	}
	if e.Message != "" {
		attrs = append(attrs, slog.String("message", e.Message))
	}
	if e.Took > 0 {
		attrs = append(attrs, slog.Duration("took", e.Took))
	}
	if e.Missed > 0 {
		attrs = append(attrs, slog.Int("missed", e.Missed))
	}
	if e.Stack != "" {
		attrs = append(attrs, slog.String("stack", e.Stack))
	}
	logger.LogAttrs(context.Background(), level, string(e.Kind), attrs...)
}

// Watch returns a channel of the events from now on. The function stop closes it, and so does
// Close.
func (h *Hub) Watch() (events <-chan Event, stop func()) {
	w := &watcher{events: make(chan Event, watcherBuffer)}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		close(w.events)
		return w.events, func() {}
	}
	h.watchers[w] = true
	return w.events, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.watchers[w] {
			delete(h.watchers, w)
			close(w.events)
		}
	}
}

// Flush waits until the logger has logged all events, for at most a second.
func (h *Hub) Flush() {
	for deadline := time.Now().Add(time.Second); h.toLog.Load() > 0 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
}

// Close ends all watches and waits up to a second for the logger.
func (h *Hub) Close() {
	h.mu.Lock()
	h.closed = true
	for w := range h.watchers {
		delete(h.watchers, w)
		close(w.events)
	}
	h.mu.Unlock()
	select {
	case <-h.logged:
	case <-time.After(time.Second):
	}
}
