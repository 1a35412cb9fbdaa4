// Package ctxshutdown stops programs without losing work.
//
// A [Swansong] is a [context.Context] whose Done fires when its scope is told to stop taking on work, and a registry
// of guards, which stand for work that must finish:
//
//	s := ctxshutdown.New(ctx)
//	if g, ok := s.TryGuard(); ok { // false once s is stopped
//		defer g.Release()
//		// work that Shutdown waits for
//	}
//	err := s.Shutdown().Wait(waitCtx) // nil once every guard is released
//
// # Two tiers
//
// Guards delay completion, never the signal. So there are two contexts, and the one you pass decides what happens to
// whatever takes it:
//
//	              Shutdown                Force, or all guards released
//	                 │                          │
//	s        ────────┤ Done                     │            soft tier: stop taking on work
//	s.Work() ────────┼──────────────────────────┤ Done       hard tier: see it through
//	         Running │      ShuttingDown        │ Complete
//
// A request handler that derives from Work can still acquire guards, open child scopes and query its database while
// the scope drains: that is the work the drain is for. A loop that fetches new work takes s and ends.
//
// # The tree
//
// [WithCancel] makes a child scope of the nearest scope in a context, through any number of contexts in between.
// Signals go down and completion comes up: a scope is complete when it is stopped and neither it nor anything below
// it holds a guard. A child by itself is not work; it never delays anybody.
//
// # Panics
//
// A panic in a function that Go, [Call] or a [Group] runs ends the program, as in any goroutine, and keeps its guard: no
// drain completes, and lets main return, before the runtime has printed it. Where somebody recovers, as net/http does for
// its handlers, the guard has to be released: defer g.Release().
//
// # Interrupts
//
// Whatever blocks can be ended by a context: [NewReader], [NewWriter] and [NewListener] wrap what they are named
// after, [Seq], [Seq2] and [All] a range loop, [Recv] and [Send] an operation on a channel, [Call] a function that does
// not listen, [Sleep] a pause. They end when the context they were given does, and lose nothing by it: what was taken
// is delivered, and what was not taken is left to the next owner.
//
//	for line := range ctxshutdown.Seq(s, lines) {
//		handle(s.Work(), line) // a line that was begun is dealt with
//	}
//
// # Guarantees
//
// No guard is ever missed: a guard whose acquisition returned before Shutdown was called is counted at every
// ancestor, at any depth. What happened before a Release synchronizes before the return of the Wait that it lets
// return. Guards of a running scope take no lock in the long run, allocate nothing where they do not escape, and cost
// the same at any depth. Importing the package starts nothing, registers no signal handler and logs nothing.
// Everything works inside a [testing/synctest] bubble. Functions that are given a nil context or a nil function panic
// and say so.
//
// The garbage collector never stops anything. In
//
//	go func() { <-s.Done(); … }()
//
// the handle s is dead at once although somebody waits, so write what Go programmers write anyway:
// defer s.Shutdown(), or defer cancel().
package ctxshutdown
