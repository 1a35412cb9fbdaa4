// Package eventloop runs callbacks on one goroutine, fed from any number of others, and stops without losing one.
//
//	loop := eventloop.New(ctx)
//	if err := loop.Start(); err != nil {
//		return err
//	}
//	if !loop.Post(func() { state++ }) {
//		// refused: the loop is not running, and the callback never runs
//	}
//	err := loop.Stop().Wait(waitCtx) // what was accepted has run
//
// What only callbacks touch needs no lock. A [Loop] runs what is posted to it, in order, along with its timers and the
// completions of what it has a [Pool] do for it ([Offload], [OffloadTimeout]).
//
// # The contract
//
// A callback that was accepted is executed exactly once; one that was refused never is. Which of the two it is, is
// decided in one step together with the state of the loop:
//
//	Idle ──Start, Run──▶ Starting ──ready──▶ Running ──Stop──▶ Stopping ──drained──▶ Stopped
//	  │                      └────────────Stop────────────────▶┘                       ▲
//	  └────────────────────────────────────Stop────────────────────────────────────────┘
//
// Only a Running loop accepts anything. A Stopping one runs what it has accepted, the completions of its offloads
// included, and cancels its timers. [Loop.Stop] never waits, so it may be called from anywhere: a callback, a timer, a
// completion. Whoever wants to wait does so on what it returns, and not in a callback of the loop.
//
// A loop is a child scope of the context it is made with (see [ctxshutdown.WithCancel]): stopping that scope stops the
// loop, the scope is complete only after the loop has drained, and reports name the loop, its offloads and its handles.
// Force ends the context of the work that was offloaded and has its completions run with the cause at once.
//
// # Shutting down
//
// In this order, nothing is lost and every counter of [Stats] but those of ordinary life stays zero:
//
//  1. Trigger the [ShutdownHandle], and have whatever takes on requests stop at its Signal.
//  2. Let requests in flight end, or time out.
//  3. [Pool.WaitIdle]: all that was offloaded has been handed back to the loop.
//  4. [Loop.Quiesce], with a time limit of your choice, and [Loop.Stop].
//  5. Wait for the completion that Stop returns: the loop's goroutine has ended.
//  6. Release what the callbacks used, and read the [Stats].
//
// Stopping the scope that the loop and the pool are in does 3 to 5 by itself. The steps are for who wants to know at
// which of them it got stuck.
//
// The contract is that of two event loops in other languages. From a C++ one come the states, Post and Stop, the drain of
// pools and the late completion; from a Rust one the trigger, the quiescence with a mandatory limit and the counters.
package eventloop
