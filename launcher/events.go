package launcher

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swansong-go/swansong/internal/unwind"
)

// Kind is what an event is about.
type Kind string

const (
	Transition Kind = "transition" // a process has entered a state
	Signalled  Kind = "signal"     // a process, or all that it is, was sent a signal
	Extension  Kind = "extension"  // a process has asked for more time
	Adopted    Kind = "adopted"    // a process that an earlier launcher has kept has been taken over
	Alarm      Kind = "alarm"      // something has to be looked at by somebody
	AllClear   Kind = "all-clear"  // what there was an Alarm for is over

	GroupHealthy   Kind = "healthy"   // as many processes of a group are ready as have to be
	GroupUnhealthy Kind = "unhealthy" // not any more

	RollBegun   Kind = "roll-begun"   // the processes of a group are being replaced
	RollStep    Kind = "roll-step"    // something has come of that: canaries are waited for, one is tried again, it turns back
	RollDone    Kind = "roll-done"    // they have been, or have been put back where that was ordered
	RollFailed  Kind = "roll-failed"  // they have not been, or not all, and are not being any more
	Restart     Kind = "restart"      // a process that has failed will be replaced
	Reloaded    Kind = "reloaded"     // a configuration was taken over; by Reread, one for each change
	HookRun     Kind = "hook"         // a hook has been run
	RouterError Kind = "router-error" // the router was not told
)

// An Event is something that has happened to a process or to a group.
type Event struct {
	Time     time.Time
	Kind     Kind
	Group    string
	Process  string // empty: it is about the group
	From, To State  // of a Transition
	Outcome  Outcome
	Roll     string // of RollStep, RollDone and RollFailed: canary, rolling, rolling back, paused, done, rolled back or degraded
	Message  string

	Took      time.Duration // of a Transition: to READY, since the process was started; else, since it was to be stopped, 0 if it was not
	Survivors int           // of a Transition to an end: processes that it has left, and that could not be ended
	Missed    int           // events that this watcher has missed before this one, being too slow
	Stack     string        // where something of the program's has panicked, or called runtime.Goexit; the Message names it
}

// An eventHub hands events to who watches. It never waits for any of them: not for a log on a disk that hangs, either.
type eventHub struct {
	mu       sync.Mutex
	watchers map[*watcher]bool
	groups   map[string]GroupStats
	missed   uint64
	over     bool
	logged   chan struct{} // closed when the log has been written
	deaf     atomic.Bool   // the logger has panicked, and that was told
}

// watched is how many events a watcher may be behind.
const watched = 1024

type watcher struct {
	events chan Event
	missed int
}

func newEventHub(logger *slog.Logger) *eventHub {
	h := &eventHub{watchers: map[*watcher]bool{}, groups: map[string]GroupStats{}, logged: make(chan struct{})}
	if logger == nil {
		close(h.logged)
		return h
	}
	events, _ := h.watch()
	go h.log(logger, events)
	return h
}

// log hands events to a logger, to the last. One that panics costs one message each time, and the first is an alarm: to
// tell the logger of all would have no end.
func (h *eventHub) log(logger *slog.Logger, events <-chan Event) {
	for e := range events {
		protect("Logger", func() { logEvent(logger, e) }, func(p *panicError) {
			if p == nil {
				return
			}
			if !h.deaf.Swap(true) {
				h.publish(Event{Kind: Alarm, Message: p.Error() + "; what it was told is lost, now and whenever that happens", Stack: string(p.stack)})
			}
			if p.value == unwind.ErrGoexit {
				go h.log(logger, events) // this goroutine ends
			}
		})
	}
	close(h.logged)
}

func (h *eventHub) publish(e Event) {
	e.Time = time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.groups[e.Group] = h.groups[e.Group].with(e)
	for w := range h.watchers {
		e.Missed = w.missed
		select {
		case w.events <- e:
			w.missed = 0
		default:
			w.missed++
			h.missed++
		}
	}
}

func (h *eventHub) snapshot() Stats {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := Stats{Groups: map[string]GroupStats{}, EventsMissed: h.missed}
	for name, g := range h.groups {
		s.Groups[name] = g.clone()
	}
	return s
}

// logEvent tells names, states and what processes say of themselves; never arguments, never environments.
func logEvent(logger *slog.Logger, e Event) {
	level := slog.LevelInfo
	switch {
	case e.Kind == Alarm || e.Kind == RollFailed || e.To == Crashed || e.To == Forced || e.To == Gone:
		level = slog.LevelError
	case e.Kind == RouterError || e.Kind == Restart || e.Kind == Signalled || e.Kind == Extension || e.To == Unhealthy || e.To == Blocked:
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
	if e.Outcome != NotEnded {
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

// watch returns a channel of events, which is closed by stop and by the end of the hub.
func (h *eventHub) watch() (events <-chan Event, stop func()) {
	w := &watcher{events: make(chan Event, watched)}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over {
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

// close ends all watches, and waits a moment for the log.
func (h *eventHub) close() {
	h.mu.Lock()
	h.over = true
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
