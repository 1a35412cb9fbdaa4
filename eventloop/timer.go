package eventloop

import (
	"container/heap"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// A Timer has the loop call a function later. Its method may be called concurrently, and on a nil Timer.
type Timer struct {
	timers *timers
	f      func()
	period time.Duration // 0: once

	at    time.Time
	turn  uint64 // among those of the same time, the order in which they were set
	index int    // in the heap; -1: not pending
}

// After has the loop call f once d has passed. A d of zero or less has passed already: f runs as soon as the loop gets to
// it, and never before After returns to a callback. Timers run in the order of their times, and where these are equal in
// the order in which they were set. A panic in f is one in a callback.
//
// It returns a nil Timer and [ErrNotRunning] or [ErrStopped] if the loop is not Running. A timer that is pending when the
// loop is told to stop is cancelled. After panics if f is nil.
func (l *Loop) After(d time.Duration, f func()) (*Timer, error) {
	mustFunc(f != nil, "After")
	return l.timer(max(d, 0), 0, f)
}

// Every is [Loop.After], again and again, until the timer or the loop is stopped. When the loop is late, calls are left
// out rather than made up for. A period of zero or less is an error: it would leave the loop no time for anything else.
func (l *Loop) Every(period time.Duration, f func()) (*Timer, error) {
	mustFunc(f != nil, "Every")
	if period <= 0 {
		return nil, fmt.Errorf("eventloop: Every with a period of %v: it must be positive; to run f once, use After or Post", period)
	}
	return l.timer(period, period, f)
}

func (l *Loop) timer(d, period time.Duration, f func()) (*Timer, error) {
	t := &Timer{timers: l.timers, f: f, period: period, at: time.Now().Add(d), index: -1}
	if !l.timers.set(t) {
		return nil, l.notRunning()
	}
	return t, nil
}

// notRunning says why the loop has refused something.
func (l *Loop) notRunning() error {
	if s := l.State(); s == Stopping || s == Stopped {
		return ErrStopped
	}
	return ErrNotRunning
}

// Stop has the timer not fire any more. It reports whether it would have: false if it has fired already, or begun to, was
// stopped before, or was cancelled with its loop. It does not wait for a call that has begun.
func (t *Timer) Stop() bool {
	if t == nil {
		return false
	}
	ts := t.timers
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if t.index < 0 {
		return false
	}
	heap.Remove(&ts.heap, t.index)
	ts.arm()
	return true
}

// timers are the pending timers of a loop. One timer of the runtime stands for the first of them; it does no more than
// raise due and kick the loop, so a loop without a timer that is due is not woken.
//
// A timer is set under mu while the state is Running, and fires in the loop's goroutine in the same way; cancelAll comes
// after the state was changed. So none is set, and none fires, behind its back.
type timers struct {
	box       *inbox
	cancelled *atomic.Uint64 // the counter
	due       atomic.Bool    // the first may be due

	mu    sync.Mutex
	heap  timerHeap
	turns uint64
	alarm *time.Timer // nil until there is something to wait for
}

func newTimers(box *inbox, cancelled *atomic.Uint64) *timers {
	return &timers{box: box, cancelled: cancelled}
}

func (ts *timers) set(t *Timer) bool {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if !ts.box.is(Running) {
		return false
	}
	ts.push(t)
	if t.index == 0 {
		ts.arm()
	}
	return true
}

func (ts *timers) push(t *Timer) {
	t.turn = ts.turns
	ts.turns++
	heap.Push(&ts.heap, t)
}

// arm sets the alarm for the first timer. mu is held.
func (ts *timers) arm() {
	switch {
	case len(ts.heap) == 0:
		if ts.alarm != nil {
			ts.alarm.Stop()
		}
	case ts.alarm == nil:
		ts.alarm = time.AfterFunc(time.Until(ts.heap[0].at), ts.ring)
	default:
		ts.alarm.Reset(time.Until(ts.heap[0].at))
	}
}

func (ts *timers) ring() {
	ts.due.Store(true)
	ts.box.kick()
}

// now returns what tells the timers that are due from those set later, for the same time perhaps.
func (ts *timers) now() (now time.Time, turns uint64) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return time.Now(), ts.turns
}

// pop returns the function of the first timer if it is due; else it lowers due, sets the alarm anew and returns nil.
func (ts *timers) pop(now time.Time, turns uint64) func() {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if !ts.box.is(Running) || len(ts.heap) == 0 || ts.heap[0].at.After(now) || ts.heap[0].turn >= turns {
		ts.due.Store(false)
		ts.arm()
		return nil
	}
	t := ts.heap[0]
	heap.Pop(&ts.heap)
	if t.period > 0 { // set anew before the call, which may stop it
		t.at = t.at.Add(t.period)
		if late := now.Sub(t.at); late >= 0 {
			t.at = t.at.Add((late/t.period + 1) * t.period)
		}
		ts.push(t)
	}
	return t.f
}

// cancelAll cancels the timers that are pending, and counts them. It counts under mu: when it returns they are counted,
// also where another call has cancelled them.
func (ts *timers) cancelAll() {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.cancelled.Add(uint64(len(ts.heap)))
	for _, t := range ts.heap {
		t.index = -1
	}
	ts.heap = nil
	ts.arm()
}

func (ts *timers) pending() int {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return len(ts.heap)
}

type timerHeap []*Timer

func (h timerHeap) Len() int { return len(h) }

func (h timerHeap) Less(i, j int) bool {
	if c := h[i].at.Compare(h[j].at); c != 0 {
		return c < 0
	}
	return h[i].turn < h[j].turn
}

func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *timerHeap) Push(t any) {
	t.(*Timer).index = len(*h)
	*h = append(*h, t.(*Timer))
}

func (h *timerHeap) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	t.index = -1
	return t
}
