// Package shutdowntest tests how code that uses [ctxshutdown] behaves when it is stopped, by
// stopping it at every possible moment.
//
// A service is stopped at an arbitrary moment, and if a job is lost, a customer notices. [Run] runs
// a scenario in a [testing/synctest] bubble: first to its end, and then once for every moment at
// which one of its guards is acquired or released, with a stop at that moment:
//
//	func TestPool(t *testing.T) {
//		shutdowntest.Run(t, func(t *testing.T, s *ctxshutdown.Swansong) func() {
//			p := newPool(s, 2)
//			accepted := 0
//			for range 10 {
//				if p.submit() {
//					accepted++
//				}
//			}
//			return func() { // everything has drained: the process would exit now
//				if p.done != accepted {
//					t.Errorf("%d of %d accepted jobs are done", p.done, accepted)
//				}
//			}
//		})
//	}
//
// Each stop is a subtest. The first one that fails reports where the stop was made and how to run
// it alone:
//
//	--- FAIL: TestPool/stop=13
//	    pool_test.go:31: 4 of 5 accepted jobs are done
//	    pool_test.go:20: shutdowntest: the stop was made before a guard was acquired, at pool.go:33 in pool.work; to run it alone:
//	        go test -run '^TestPool$/^stop=13$'
//
// # What it finds
//
//   - A drain that does not end: the error names the guards with scope, line and age, and shows all
//     goroutines.
//   - Lost work: the check sees the state at the time at which the last guard has been released.
//     The goroutine that released it does not continue before the check has returned, so work that
//     this goroutine does after the release is missing in the check. If the check waits for that
//     goroutine, the goroutine continues.
//   - Goroutines that are left running.
//   - With go test -race: data that is read after the drain and was not written under a guard.
//
// A moment is the time before or after an operation on a guard. Run sees the guards of s, of its
// children, and of every scope whose context derives from s, such as the root scope of a
// graceful.Run that is called with s. For graceful.Run, stopping s acts as a SIGTERM:
//
//	return graceful.Run(s, serve, graceful.WithSignals())
//
// [Signals] tests what a second and a third signal do.
//
// # Writing scenarios
//
// If guards are held for a long time, the scenario can add moments: each s.Guard().Release() adds
// four, before and after both operations. When the scenario returns, s is stopped. So a scenario
// that has started goroutines waits until they have reached the point at which s should be stopped:
//
//	ctxshutdown.Sleep(s, time.Second)
//
// The scheduler decides in which order goroutines run, so two runs may differ unless no two
// operations are simultaneous. Work that takes no time may finish before the stop by chance: give
// it a duration with time.Sleep, which costs nothing in a bubble. The scenario itself, and loops
// that outlive the stop, must use [ctxshutdown.Sleep]. With time.Sleep they would continue after
// the stop, and work whose guard was released too early would have the time to finish, which hides
// the bug.
//
// As package synctest explains, a goroutine that waits for the network or for a mutex is not
// durably blocked; use [net.Pipe] instead of a network. While a goroutine waits for a mutex that is
// never unlocked, the clock of the bubble stands still: no limit of [Run] is reached, and the test
// hangs until the -timeout of go test. After one minute of real time, Run prints to stderr where
// the stop was made, and the stacks of all goroutines.
package shutdowntest
