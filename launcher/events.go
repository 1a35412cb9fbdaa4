package launcher

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swansong-go/swansong/launcher/internal/callback"
)

// Kind is the kind of an [Event].
type Kind string

const (
	Transition Kind = "transition" // a process has changed its state
	Signalled  Kind = "signal"     // a signal was sent to a process, or to it and all its descendants
	GraceOver  Kind = "grace-over" // a process still drains after its grace period, which is not enforced
	Extension  Kind = "extension"  // a process has asked for more time to stop
	Adopted    Kind = "adopted"    // a process that an earlier launcher started has been adopted
	// MainProcess reports that a process has named another one, which it has started, to take its place.
	MainProcess Kind = "main-process"
	Upgraded    Kind = "upgraded"  // another program has taken over; see Manager.Upgrade
	Alarm       Kind = "alarm"     // a problem that needs an operator
	AllClear    Kind = "all-clear" // the problem of an earlier Alarm is over

	GroupHealthy   Kind = "healthy"   // a group has enough ready processes
	GroupUnhealthy Kind = "unhealthy" // a group has too few ready processes
	GroupFinished  Kind = "finished"  // a group has no processes, and starts none without an order

	RollBegun Kind = "roll-begun" // a roll has begun to replace the processes of a group
	// RollStep reports progress of a roll: the roll waits for canaries, retries, is resumed or
	// turns back.
	RollStep Kind = "roll-step"
	// RollDone reports that a roll has replaced all processes, or that a rollback by order has
	// brought back all.
	RollDone    Kind = "roll-done"
	RollFailed  Kind = "roll-failed"  // a roll has ended without replacing all processes, or has paused
	Ordered     Kind = "ordered"      // an operator has stopped, started or scaled a group
	Restart     Kind = "restart"      // a process has failed and will be replaced after a pause
	Reloaded    Kind = "reloaded"     // a configuration was applied; with Reread, one event for each change
	HookRun     Kind = "hook"         // a pre-stop hook has ended
	RouterError Kind = "router-error" // a call of the Router failed
)

// An Event is something that has happened to a process, to a group or to the launcher.
type Event struct {
	Time     time.Time
	Kind     Kind
	Group    string
	Process  string // id of the process; if empty, the event is about the group
	From, To State  // the states before and after a Transition
	Outcome  Outcome
	// Roll is set for RollStep, RollDone and RollFailed: canary, rolling, rolling back, paused,
	// done, rolled back, degraded or superseded.
	Roll    string
	Message string

	// Took is set for a Transition. If the process became READY, Took counts from its start,
	// otherwise from the order to stop it; 0 if there was no order.
	Took     time.Duration
	WasReady bool // set for a Transition of a process that was READY before
	// Survivors is set when a process has ended: the number of its descendants that could not be
	// killed.
	Survivors int
	Missed    int // number of events before this one that this watcher was too slow to receive
	// Stack is set if a callback of the program has panicked or called runtime.Goexit. Message
	// names the callback. In the Transition to Forced, Stack is the report of the process: what it
	// waited for just before its end, and where its goroutines were. It is empty if the process did
	// not answer, or does not use package client.
	Stack string
}

// An eventHub sends events to watchers and to the logger. It waits for none of them, so a log on a
// disk that hangs blocks nothing.
type eventHub struct {
	mu       sync.Mutex
	watchers map[*watcher]bool
	groups   map[string]GroupStats
	missed   uint64
	closed   bool
	logged   chan struct{} // closed when the log has been written
	logger   <-chan Event  // the events for the logger; nil if there is none
	toLog    atomic.Int64  // how many of them have not been logged yet
}

// watcherBuffer is the number of events that a watcher may be behind before it misses some.
const watcherBuffer = 1024

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
	h.logger = events
	go h.log(logger, events)
	return h
}

// log passes all events to a logger. If the logger panics, the message is lost. Only the first
// panic is an alarm, because the logger gets the alarm, too, and may panic again.
func (h *eventHub) log(logger *slog.Logger, events <-chan Event) {
	loggerFailed := false // an alarm says that the logger has panicked
	for e := range events {
		p := callback.Call("Logger", func() { logEvent(logger, e) })
		h.toLog.Add(-1)
		if p != nil && !loggerFailed {
			loggerFailed = true
			h.publish(Event{Kind: Alarm, Message: p.Error() + "; the message is lost, and so are later ones at which the logger panics", Stack: string(p.Stack)})
		}
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
			if w.events == h.logger {
				h.toLog.Add(1)
			}
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

// logEvent tells names, states and what processes say of themselves; never arguments, never
// environments.
func logEvent(logger *slog.Logger, e Event) {
	level := slog.LevelInfo
	switch {
	case e.Kind == Alarm || e.Kind == RollFailed && e.Roll != "superseded" || e.To == Crashed || e.To == Forced || e.To == Gone && e.Took == 0: // a planned stop is no error
		level = slog.LevelError
	case slices.Contains([]Kind{RouterError, Restart, Signalled, GraceOver, Extension}, e.Kind) || e.To == Unhealthy || e.To == Blocked:
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

// watch returns a channel of events, which stop and close close.
func (h *eventHub) watch() (events <-chan Event, stop func()) {
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

// flush waits until the logger has logged all events, for at most a second.
func (h *eventHub) flush() {
	for deadline := time.Now().Add(time.Second); h.toLog.Load() > 0 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
}

// close ends all watches and waits up to a second for the logger.
func (h *eventHub) close() {
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
