// Package graceful ends a process well. [Run] is what main calls: it makes the root scope, wires the signals, and returns
// when everything has been drained, so that every defer in main runs on every path.
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
// # The ladder
//
// A process that is asked to stop goes down a ladder. Each rung is entered by time or by the next signal, and ends early
// when everything has drained.
//
//	rung       entered                         what happens                                          exit code if it ends here
//	LameDuck   first signal; skipped where     readiness turns false, work is still accepted, so
//	           its delay is 0, the default     that load balancers notice
//	Soft       delay over, or next signal      pre-stop hooks, then Shutdown: listeners close,       0: drained (1: f has failed)
//	                                           interrupts on the soft tier end, TryGuard refuses
//	Hard       soft + 10 s + extensions,       Force: Work contexts are cancelled                    2: drained after force
//	           or next signal
//	Exit       hard + 2 s, or next signal      blockers are printed and returned                     3: abandoned
//
// The end of Run's context is a first signal, too. So is a Shutdown of the root scope by anybody, and the return of f, but
// these lead to Soft at once; Force leads to Hard. The first signal that comes after one of them changes nothing, so that
// the one SIGTERM of a service manager never cuts short a drain that has begun already.
//
// # Around it
//
// [Extend] asks for more time, [InOrder] stops scopes one after another, [WithPreStop] adds a hook. Progress is told to a
// logger ([WithLogger]), to a terminal ([WithOutput]), and to anything else ([Process.Watch]). [ReadStats] has counters.
//
// With NOTIFY_SOCKET in the environment, systemd is told READY=1 by [Ready], STOPPING=1 when Serving ends,
// EXTEND_TIMEOUT_USEC with the time until Exit when Extend grants something, and WATCHDOG=1 at half of WATCHDOG_USEC.
//
// With TERMINATION_GRACE_PERIOD_SECONDS in the environment, a ladder that is not shorter is refused at start-up, and without
// NOTIFY_SOCKET no extension makes it end less than a second before: whoever kills would win a tie. Neither Kubernetes nor
// systemd sets it: write it beside terminationGracePeriodSeconds or TimeoutStopSec.
//
// All variables are read by Run; importing the package does nothing. When Run returns, os/signal is as it was, and the next
// signal does what it would have done before.
//
// # Systems
//
// On Windows nobody can send a signal to another process. Ctrl-C and Ctrl-Break come as [os.Interrupt]; closing the console
// window, logging off and shutting down come as SIGTERM, after which Windows grants about five seconds, whatever the ladder
// says. The line of progress is for Linux, macOS and FreeBSD.
package graceful
