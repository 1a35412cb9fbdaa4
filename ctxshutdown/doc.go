// Package ctxshutdown stops programs without losing work.
//
// A [Swansong] is a scope of work. It is a [context.Context] whose Done channel is closed when the
// scope is told to stop taking on work, and it counts guards, which stand for work that must
// finish:
//
//	s := ctxshutdown.New(ctx)
//	if g, ok := s.TryGuard(); ok { // false once s is stopped
//		defer g.Release()
//		// work that Shutdown waits for
//	}
//	err := s.Shutdown().Wait(waitCtx) // nil once every guard is released
//
// # Two contexts
//
// Guards delay the completion of a scope, never the signal to stop. A scope therefore has two
// contexts, and the context that a function is given decides when it ends:
//
//	              Shutdown                Force, or all guards released
//	                 │                          │
//	s        ────────┤ Done                     │            soft: stop taking on work
//	s.Work() ────────┼──────────────────────────┤ Done       hard: finish what was begun
//	         Running │      ShuttingDown        │ Complete
//
// A request handler whose context derives from Work can acquire guards, open child scopes and query
// its database while the scope drains: that is the work that the drain waits for. A loop that
// fetches new work is given s, and ends at the stop.
//
// # The tree
//
// [WithCancel] creates a child of the nearest scope in a context, through any number of contexts in
// between. Signals travel from parent to child, and completion from child to parent: a scope is
// complete when it is stopped and no scope in its subtree holds a guard. A child without guards
// never delays the completion of its parent.
//
// # Panics
//
// A panic in a function that Go, [Call] or a [Group] runs ends the program, as in any goroutine,
// and the guard of the function stays held. So no drain can complete, and let main return with exit
// code 0, before the runtime has printed the panic. Code that recovers from panics, as net/http
// does for handlers, must release its guards itself: defer g.Release().
//
// # Interrupts
//
// An interrupt ends a blocking operation when a context is done. [NewReader], [NewWriter] and
// [NewListener] wrap an io.Reader, an io.Writer and a net.Listener; [Seq], [Seq2] and [All] end a
// range loop, [Recv] and [Send] a channel operation, [Call] the wait for a function that ignores
// its context, and [Sleep] a pause. Interrupts lose no data: what was taken from a source is
// delivered, and everything else is left in the source.
//
//	for line := range ctxshutdown.Seq(s, lines) {
//		handle(s.Work(), line) // a line that was taken is handled to the end
//	}
//
// # Guarantees
//
// Every guard whose acquisition returned before the call of Shutdown is counted at every ancestor,
// at any depth. A Release synchronizes before the return of the Wait that it lets return. Acquiring
// a guard of a running scope takes no lock in the long run, does not allocate if the guard does not
// escape, and costs the same at any depth. Importing the package starts no goroutine, registers no
// signal handler and logs nothing. Everything works inside a [testing/synctest] bubble. Functions
// panic with an explanation if they are given a nil context or a nil function.
//
// The garbage collector never stops a scope. In
//
//	go func() { <-s.Done(); … }()
//
// s is unreachable as soon as Done has returned, although the goroutine waits for the stop. So stop
// every scope explicitly: defer s.Shutdown(), or defer cancel().
package ctxshutdown

// The package has two halves, and this is where each file belongs:
//
//	scopes      context lazycontext guard completion work group go options report trace
//	interrupts  interrupt reader writer listener iter channel call wake detached
//
// The scopes do not use the interrupts. The interrupts use only these parts of the scopes: Acquire,
// Go, Guard, ErrShutdown, and the standard context of a Swansong.
