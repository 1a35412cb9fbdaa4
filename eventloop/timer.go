package eventloop

import (
	"container/heap"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// A Timer makes the loop call a function later. Stop may be called concurrently, and on a nil
// Timer.
type Timer struct {
	timers *timers
	f      func()
	period time.Duration // the time between two calls; 0 for a timer that fires once

	at    time.Time
	seq   uint64 // the sequence number, which orders timers that are due at the same time
	index int    // the index in the heap, or -1 if the timer is not pending
}

// After makes the loop call f once d has passed. If d is zero or negative, f runs as soon as the
// loop gets to it, but not before the callback that has called After returns. Timers run in the
// order of their times, and timers of the same time in the order in which they were set. A panic in
// f is treated like a panic in a callback.
//
// After returns a nil Timer and [ErrNotRunning] or [ErrStopped] if the loop is not Running.
// Stopping the loop cancels pending timers. After panics if f is nil.
func (l *Loop) After(d time.Duration, f func()) (*Timer, error) {
	mustFunc(f != nil, "After")
	return l.timer(max(d, 0), 0, f)
}

// Every is [Loop.After], repeated until the timer or the loop is stopped. If the loop is late, it
// skips calls instead of making up for them. A period that is not positive is an error, since it
// would leave the loop no time for callbacks.
func (l *Loop) Every(period time.Duration, f func()) (*Timer, error) {
	mustFunc(f != nil, "Every")
	if period <= 0 {
		return nil, fmt.Errorf("eventloop: Every with a period of %v: it must be positive; to run f once, use After or Post", period)
	}
	return l.timer(period, period, f)
}

func (l *Loop) timer(d, period time.Duration, f func()) (*Timer, error) {
	if l.trace.on() {
		f = l.trace.callback(f)
	}
	t := &Timer{timers: l.timers, f: f, period: period, at: time.Now().Add(d), index: -1}
	if !l.timers.set(t) {
		return nil, l.notRunning()
	}
	return t, nil
}

// notRunning returns the error with which the loop refuses timers and offloads.
func (l *Loop) notRunning() error {
	if s := l.State(); s == Stopping || s == Stopped {
		return ErrStopped
	}
	return ErrNotRunning
}

// Stop cancels the timer and reports whether it would have fired. It returns false if the timer has
// fired or is firing, was stopped before, or was cancelled with its loop. It does not wait for a
// call in progress.
func (t *Timer) Stop() bool {
	if t == nil {
		return false
	}
	stopped := t.timers.remove(t)
	if box := t.timers.box; stopped && box.dropped.Load() {
		box.wake() // the loop is unreachable, so it ends if this was its last timer
	}
	return stopped
}

// remove takes the timer t out of the pending timers and returns true. It returns false if t is not
// pending.
func (ts *timers) remove(t *Timer) bool {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if t.index < 0 {
		return false
	}
	heap.Remove(&ts.heap, t.index)
	ts.arm()
	return true
}

// runTimers calls the functions of the timers that are due now. Timers that become due during these
// calls must wait until another callback has run, so timers alone never keep callbacks from
// running.
func (l *loop) runTimers() {
	if !l.timers.due.Load() {
		return
	}
	now, last := l.timers.now()
	for {
		f := l.timers.pop(now, last)
		if f == nil {
			return
		}
		l.box.setRunning("timer")
		if l.slow == nil {
			f()
		} else {
			l.slow.call("timer", f, 0)
		}
		l.box.setRunning("")
	}
}

// timers are the pending timers of a loop. One runtime timer, the alarm, is set for the first of
// them. It only sets due and wakes the loop, so a loop is not woken before a timer is due.
//
// A timer is set, and fires, while mu is held and the state is Running. cancelAll is called after
// the state has changed. So no timer is set and none fires after cancelAll.
type timers struct {
	box       *inbox
	cancelled *atomic.Uint64 // points to Stats.cancelledTimers
	due       atomic.Bool    // whether the first timer may be due

	mu      sync.Mutex
	heap    timerHeap
	nextSeq uint64
	alarm   *time.Timer // the runtime timer; nil until a timer is first set
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
	t.seq = ts.nextSeq
	ts.nextSeq++
	heap.Push(&ts.heap, t)
}

// arm sets the alarm to the time of the first timer, or stops the alarm if there is no timer. The
// caller holds mu.
func (ts *timers) arm() {
	switch {
	case len(ts.heap) == 0:
		if ts.alarm != nil {
			ts.alarm.Stop()
		}
	case ts.alarm == nil:
		ts.alarm = time.AfterFunc(time.Until(ts.heap[0].at), ts.onAlarm)
	default:
		ts.alarm.Reset(time.Until(ts.heap[0].at))
	}
}

func (ts *timers) onAlarm() {
	ts.due.Store(true)
	ts.box.wake()
}

// now returns the current time and the next sequence number. With both, pop distinguishes the
// timers that were due when now was called from those that were set later, possibly for the same
// time.
func (ts *timers) now() (now time.Time, nextSeq uint64) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return time.Now(), ts.nextSeq
}

// pop removes the first timer if its time has come, and returns its function. Otherwise pop clears
// the flag due, because no timer is due any more, arms the alarm for the first timer and returns
// nil.
func (ts *timers) pop(now time.Time, nextSeq uint64) func() {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if !ts.box.is(Running) || len(ts.heap) == 0 || ts.heap[0].at.After(now) || ts.heap[0].seq >= nextSeq {
		ts.due.Store(false)
		ts.arm()
		return nil
	}
	t := ts.heap[0]
	heap.Pop(&ts.heap)
	if t.period > 0 { // set the timer again before the call, because the function may stop it
		t.at = t.at.Add(t.period)
		if late := now.Sub(t.at); late >= 0 {
			t.at = t.at.Add((late/t.period + 1) * t.period)
		}
		ts.push(t)
	}
	return t.f
}

// cancelAll cancels all pending timers and counts them. It does both while it holds mu. So when it
// returns, all timers have been counted, even if a concurrent call has cancelled some.
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
	return h[i].seq < h[j].seq
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
