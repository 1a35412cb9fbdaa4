package eventloop

import (
	"fmt"
	"reflect"
	"runtime"
	"sync/atomic"
	"time"
)

// A SlowCallback reports a function that kept a loop busy for long, or that waited for long in its
// queue.
type SlowCallback struct {
	Kind   string        // the kind of function: "callback", "timer" or "completion"
	Func   string        // the name of the function and where it is defined
	Took   time.Duration // how long the function ran
	Waited time.Duration // how long the callback was queued; zero for timers
}

// WithSlowCallback makes a loop measure how long functions run and how long callbacks are queued.
// It calls hook, on the loop's goroutine and after the function has returned, if either exceeds
// limit. A nil hook only fills the fields Slow, LongestCall and LongestWait of [Snapshot].
//
// The loop runs the callbacks of the queue in batches of at most 250. Of the callbacks of a batch
// that were queued longer than limit, only the first is reported, so that a long queue does not
// cause as many calls of hook. A function that has not returned is not reported: the error of
// [Loop.Quiesce] and reports show that the loop is busy. Measuring takes some 100 ns for each
// function. WithSlowCallback panics if limit is not positive. The option has no effect on a pool.
func WithSlowCallback(limit time.Duration, hook func(SlowCallback)) Option {
	if limit <= 0 {
		panic(fmt.Sprintf("eventloop: WithSlowCallback(%v): the limit must be positive", limit))
	}
	return option(func(o *options) { o.slow = &stopwatch{limit: limit, hook: hook, start: time.Now()} })
}

// A stopwatch measures the functions of one loop. Only the loop's goroutine uses it, except for
// now, which producers call, and for the counters, which Snapshot reads.
type stopwatch struct {
	limit time.Duration
	hook  func(SlowCallback)
	start time.Time // when the loop was created

	// reported is set if a callback of the batch that the loop is running has been reported because
	// it waited in the queue longer than limit. Then no other callback of the batch is reported for
	// that reason.
	reported bool

	traced func() // the running function; if the loop is traced, the user's function that it calls
	done   any    // the user's function, if the running function is the completion of an offload

	slow                     atomic.Uint64
	longestCall, longestWait atomic.Int64
}

// now returns the time since the loop was created. It takes a third of the memory of a [time.Time].
func (w *stopwatch) now() time.Duration { return time.Since(w.start) }

// call calls f and reports it if it was slow. If f is a callback, queuedAt is the time at which it
// was queued, as returned by now.
func (w *stopwatch) call(kind string, f func(), queuedAt time.Duration) {
	began, waited := w.now(), time.Duration(0)
	if kind == "callback" {
		waited = began - queuedAt
		w.longestWait.Store(max(w.longestWait.Load(), int64(waited)))
	}
	w.traced, w.done = f, nil
	f()
	f, w.traced = w.traced, nil
	took := w.now() - began
	w.longestCall.Store(max(w.longestCall.Load(), int64(took)))
	late := waited > w.limit && !w.reported
	if took <= w.limit && !late {
		return
	}
	w.reported = w.reported || late
	w.slow.Add(1)
	if w.hook == nil {
		return
	}
	s := SlowCallback{Kind: kind, Func: funcName(f), Took: took, Waited: waited}
	if w.done != nil {
		s.Kind, s.Func = "completion", funcName(w.done)
		w.done = nil // lets the garbage collector free what the function has captured
	}
	w.hook(s)
}

// funcName returns the name of a function and where it is defined.
func funcName(f any) string {
	fn := runtime.FuncForPC(reflect.ValueOf(f).Pointer())
	file, line := fn.FileLine(fn.Entry())
	return fmt.Sprintf("%s (%s:%d)", fn.Name(), file, line)
}
