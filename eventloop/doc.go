// Package eventloop runs callbacks on one goroutine. Any number of goroutines may post callbacks,
// and the loop stops without losing one.
//
//	loop := eventloop.New(ctx)
//	if err := loop.Start(); err != nil {
//		return err
//	}
//	if !loop.Post(func() { state++ }) {
//		// refused: the loop is not running, and the callback never runs
//	}
//	err := loop.Stop().Wait(waitCtx) // every accepted callback has run
//
// Data that only callbacks access needs no lock. A [Loop] runs callbacks in the order in which they
// were posted, together with its timers and with the completions of work that a [Pool] does for it
// ([Offload], [OffloadTimeout]) and of operations that call back ([Async]).
//
// # The contract
//
// A callback that was accepted runs exactly once; one that was refused never runs. The decision is
// made in one step together with the state of the loop:
//
//	Idle ──Start, Run──▶ Starting ──ready──▶ Running ──Stop──▶ Stopping ──drained──▶ Stopped
//	  │                      └────────────Stop────────────────▶┘                       ▲
//	  └────────────────────────────────────Stop────────────────────────────────────────┘
//
// Only a Running loop accepts callbacks. A Stopping loop runs the callbacks that it has accepted,
// including the completions of its offloads, and cancels its timers. [Loop.Stop] never blocks, so
// it may be called from a callback, a timer or a completion. To wait for the end of the loop, wait
// for the completion that Stop returns, outside of the loop's callbacks.
//
// A loop is a child scope of its context (see [ctxshutdown.WithCancel]): stopping the parent scope
// stops the loop, the parent is complete only after the loop has drained, and reports name the
// loop, its offloads and its handles. Force ends the context of offloaded work and queues its
// completions at once, with the cause.
//
// # Panics
//
// A panic in a callback, a timer or a job ends the program, as in any goroutine. [WithPanicHandler]
// keeps the loop or the pool running, or stops it. A panic in offloaded work is passed to the
// completion of the work as an error, unless the completion has been queued already.
//
// # Shutting down
//
// In the following order nothing is lost, and the counters of [Stats] that indicate a wrong order
// stay zero:
//
//  1. Trigger the [ShutdownHandle]. The code that accepts requests stops at its Signal.
//  2. Wait until requests in progress have ended or timed out.
//  3. [Pool.WaitIdle]: the results of all offloads have been queued at the loop.
//  4. [Loop.Quiesce], with a time limit of your choice, and [Loop.Stop].
//  5. Wait for the completion that Stop returns: the loop's goroutine has ended.
//  6. Release the resources of the callbacks, and read the [Stats].
//
// Stopping the scope that contains the loop and the pool performs steps 3 to 5. The single steps
// show where a shutdown is blocked.
//
// Each way to wait returns at another time:
//
//	Pool.WaitIdle       the pool has no job left, of any loop or none
//	Loop.WaitRunners    all work that the loop has offloaded has returned, on any pool
//	Loop.Quiesce        in addition, the loop has no callback to run, and no handle is held
//	Wait after Stop     in addition, the loop has ended
//
// The contract comes from event loops in two other languages: states, Post, Stop, the drain of
// pools and late completions from one in C++; the trigger, quiescence with a mandatory limit, and
// the counters from one in Rust.
package eventloop
