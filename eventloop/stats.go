package eventloop

import (
	"sync/atomic"
	"time"
)

// Stats are the counters of a loop. They remain readable after the loop has ended, and do not keep
// its other memory alive. The methods may be called concurrently.
//
// The loop does not log its counters. Read them after the completion of [Loop.Stop], or if the
// completion does not resolve in time.
type Stats struct {
	box  *inbox
	slow *stopwatch // nil if the loop was created without WithSlowCallback

	panics          atomic.Uint64
	timedOut        atomic.Uint64
	late            atomic.Uint64
	cancelledTimers atomic.Uint64

	abortedUnwinds      atomic.Uint64
	leakedTasks         atomic.Uint64
	unbalancedShutdowns atomic.Uint64
}

// A Snapshot contains the values of a loop's counters at one time.
type Snapshot struct {
	Accepted uint64 // the number of callbacks and completions of offloads that the loop has accepted
	Executed uint64 // how many of the Accepted callbacks and completions have run; equal to Accepted once the loop has stopped
	Refused  uint64 // the number of callbacks that Post or PostWait did not accept

	RefusedFull uint64 // how many of the Refused callbacks Post refused because the queue was full
	Waited      uint64 // the number of callbacks for which PostWait had to wait

	// The following fields are measured with WithSlowCallback.
	Slow        uint64        // how often the hook was called; if the hook is nil, how often it would have been called
	LongestCall time.Duration // the longest time for which a function ran
	LongestWait time.Duration // the longest time for which a callback was queued; see SlowCallback.Waited

	Panics          uint64 // the number of panics in callbacks, timers, completions and the panic handler
	TimedOut        uint64 // the number of offloads that timed out
	LateCompletions uint64 // the number of offloads that were completed without a result, and whose work returned after that
	CancelledTimers uint64 // the number of timers that were pending when the loop was stopped

	// The following counters indicate that a program was shut down in the wrong order. They are
	// zero if the program stopped the producers, waited for the pools, and waited until the loop
	// was quiescent, before it stopped the loop.

	// AbortedUnwinds is 1 if a panic stopped the loop, and offloads were running or handles were
	// held when the loop ended. In a language without garbage collection, the process would have to
	// be aborted then, because these offloads and the owners of these handles could use freed
	// memory. In Go they can safely continue.
	AbortedUnwinds uint64
	// LeakedTasks counts, for a loop that a panic has stopped, the offloads that were still running
	// when the loop ended. Their results are discarded; [Loop.WaitRunners] still waits for them.
	LeakedTasks uint64
	// UnbalancedShutdowns counts, for a loop that was stopped without a panic, the offloads that
	// were still running and the handles that were still held when the loop ended. Quiesce would
	// have reported them.
	UnbalancedShutdowns uint64
	// CrossQueueUndrained counts the callbacks that the loop refused because they were posted
	// between its stop and its end. They show that a producer was still active, and that the
	// program should have waited longer in Quiesce.
	CrossQueueUndrained uint64
}

// Snapshot returns the values of the counters. While the loop is running, they may have been read
// at slightly different times, but Executed is never greater than Accepted.
func (s *Stats) Snapshot() Snapshot {
	n := Snapshot{
		Executed:            s.box.executed.Load(),
		Refused:             s.box.refused.Load(),
		RefusedFull:         s.box.refusedFull.Load(),
		CrossQueueUndrained: s.box.refusedStopping.Load(),
		Panics:              s.panics.Load(),
		TimedOut:            s.timedOut.Load(),
		LateCompletions:     s.late.Load(),
		CancelledTimers:     s.cancelledTimers.Load(),
		AbortedUnwinds:      s.abortedUnwinds.Load(),
		LeakedTasks:         s.leakedTasks.Load(),
		UnbalancedShutdowns: s.unbalancedShutdowns.Load(),
	}
	if w := s.slow; w != nil {
		n.Slow, n.LongestCall, n.LongestWait = w.slow.Load(), time.Duration(w.longestCall.Load()), time.Duration(w.longestWait.Load())
	}
	s.box.mu.Lock()
	n.Accepted, n.Waited = s.box.accepted, s.box.waited
	s.box.mu.Unlock()
	return n
}
