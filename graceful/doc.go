// Package graceful ends a process cleanly. [Run] is called by main: it creates the root scope,
// handles signals, and returns when all work has finished, so that every deferred call in main
// runs.
//
//	func main() {
//		err := serve()
//		if err != nil {
//			log.Print(err)
//		}
//		os.Exit(graceful.ExitCode(err))
//	}
//
//	func serve() error {
//		defer db.Close()
//		return graceful.Run(context.Background(), func(s *ctxshutdown.Swansong) error {
//			ln, err := net.Listen("tcp", ":8080")
//			if err != nil {
//				return err
//			}
//			graceful.Ready(s)
//			return httpdrain.Serve(s, srv, ln)
//		})
//	}
//
// # The phases of a stop
//
// A process that is asked to stop passes through phases; type [Phase] names them. A phase ends when
// its time is over or the next signal comes. The stop ends early when everything has drained.
//
//	phase      begins                          what happens                                     exit code if it ends here
//	LameDuck   at the first signal; skipped    readiness turns false, work is still accepted,
//	           if its delay is 0, the default  so that load balancers notice
//	Soft       after the delay, or at the      pre-stop hooks, then Shutdown: listeners close,  0: drained (1: f has failed)
//	           next signal                     interrupts end, TryGuard fails
//	Hard       10 s and extensions after       Force: Work contexts are cancelled               2: drained after force
//	           Soft, or at the next signal
//	Exit       2 s after Hard, or at the       blockers are printed and returned                3: abandoned
//	           next signal
//
// The end of Run's context has the effect of the first signal. A Shutdown of the root scope by
// other code, and the return of f, begin Soft at once; Force begins Hard at once. The first signal
// after any of these changes nothing, so that the single SIGTERM of a service manager never cuts
// short a drain that has already begun. A SIGTERM or SIGHUP within a second of another signal does
// not count: service managers and terminals repeat them. SIGINT always counts. See [WithSignals]
// for closed terminals and pipes.
//
// # Further functions
//
// [Extend] requests more time, [InOrder] stops scopes one after another, [WithPreStop] adds a hook.
// Progress goes to a logger ([WithLogger]), a terminal ([WithOutput]) and callbacks
// ([Process.Watch]). [ReadStats] returns counters.
//
// # Environment
//
// With NOTIFY_SOCKET, Run notifies systemd: READY=1 on [Ready], STOPPING=1 when Serving ends,
// EXTEND_TIMEOUT_USEC with the time until Exit when Extend grants time, WATCHDOG=1 at half the
// interval of WATCHDOG_USEC, STATUS with what a long drain waits for, and RELOADING=1 for
// [WithReload].
//
// With TERMINATION_GRACE_PERIOD_SECONDS, Run returns an error unless all phases together are
// shorter than this grace period, because otherwise the process could be killed before it exits.
// Without NOTIFY_SOCKET, extensions end at least one second before the grace period. Neither
// Kubernetes nor systemd sets the variable; write it next to terminationGracePeriodSeconds or
// TimeoutStopSec.
//
// Run reads all variables; importing the package has no effect.
//
// # Deferred calls
//
// Run returns on every path, so the deferred calls of main run. For five seconds after Run has
// returned, signals have no effect, so that a further ^C or a write to a closed pipe does not end
// the process in a deferred call. After that, signals have the effect that they had before Run.
//
// Some things end the process at once, without the rest of the drain and without deferred calls of
// main: [log.Fatal] (exit code 1), [os.Exit], SIGKILL, and a panic in a goroutine that does not
// belong to Run (exit code 2). This includes a goroutine that the method Go of a scope has started,
// and a goroutine of package eventloop without a panic handler. If a function that Run calls
// panics, such as f, a hook, a reload, the logger or a function given to [Process.Watch], Run
// drains first, and then the panic ends the process.
//
// # Systems
//
// On Windows no process can send a signal to another. Ctrl-C and Ctrl-Break arrive as
// [os.Interrupt]; closing the console window, logging off and shutting down arrive as SIGTERM,
// after which Windows kills the process in about five seconds, even if the phases take longer. The
// progress line is available on Linux, macOS and FreeBSD.
package graceful
