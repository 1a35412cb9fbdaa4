package eventloop

import "sync/atomic"

// Stats are the counters of a loop. They survive it: whoever holds them may read them when the loop is gone, and keeps
// nothing else of it alive. All methods may be called concurrently.
//
// The loop does not log them. After [Loop.Stop] and its completion, or where that took too long, look at them and tell
// whom you want to tell.
type Stats struct {
	box *inbox

	panics          atomic.Uint64
	timedOut        atomic.Uint64
	late            atomic.Uint64
	cancelledTimers atomic.Uint64

	abortedUnwinds      atomic.Uint64
	leakedTasks         atomic.Uint64
	unbalancedShutdowns atomic.Uint64
}

// A Snapshot is what the counters of a loop were at one moment.
type Snapshot struct {
	Accepted uint64 // callbacks, and completions of offloads
	Executed uint64 // of those; the two are equal once the loop has stopped
	Refused  uint64 // callbacks that were posted in vain

	Panics          uint64 // in callbacks, timers and completions, and in the panic handler
	TimedOut        uint64 // offloads whose time ran out
	LateCompletions uint64 // offloads that came to a result after their completion had run without it
	CancelledTimers uint64 // timers that were pending when the loop was stopped

	// What follows tells of a shutdown in the wrong order. All of it is zero where producers were stopped, pools waited for
	// and the loop was quiescent before it was stopped.

	// AbortedUnwinds is 1 if a panic stopped the loop and it ended while offloads were running or handles held. Where memory
	// is not collected that is the moment to abort the process; here they are on their own, and safe.
	AbortedUnwinds uint64
	// LeakedTasks counts the offloads that were running when a loop ended that a panic had stopped. Nobody takes their
	// results; [Loop.WaitRunners] still waits for them.
	LeakedTasks uint64
	// UnbalancedShutdowns counts the offloads running and the handles held when a loop ended that was stopped in order.
	// Quiesce would have told of them.
	UnbalancedShutdowns uint64
	// CrossQueueUndrained counts the callbacks posted between the stop of the loop and its end. They were refused, so
	// nothing is lost behind anybody's back, but a producer was at it still: a longer Quiesce would help.
	CrossQueueUndrained uint64
}

// Snapshot returns the counters. Read while the loop is running, they may be of slightly different moments, but never are
// more callbacks executed than accepted.
func (s *Stats) Snapshot() Snapshot {
	n := Snapshot{
		Executed:            s.box.executed.Load(),
		Refused:             s.box.refused.Load(),
		CrossQueueUndrained: s.box.tooLate.Load(),
		Panics:              s.panics.Load(),
		TimedOut:            s.timedOut.Load(),
		LateCompletions:     s.late.Load(),
		CancelledTimers:     s.cancelledTimers.Load(),
		AbortedUnwinds:      s.abortedUnwinds.Load(),
		LeakedTasks:         s.leakedTasks.Load(),
		UnbalancedShutdowns: s.unbalancedShutdowns.Load(),
	}
	s.box.mu.Lock()
	n.Accepted = s.box.accepted
	s.box.mu.Unlock()
	return n
}
