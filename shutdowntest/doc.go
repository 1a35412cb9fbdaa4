// Package shutdowntest finds out what a stop does to code that uses [ctxshutdown], by stopping it everywhere.
//
// A service is stopped once in its life, at a moment that nobody chose, and a job that is lost then is found by a
// customer. [Run] runs a scenario in a [testing/synctest] bubble, first to its end, and then again for every moment at
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
//			return func() { // everything has drained: this is when the process would exit
//				if p.done != accepted {
//					t.Errorf("%d of %d accepted jobs are done", p.done, accepted)
//				}
//			}
//		})
//	}
//
// Each stop is a subtest. The first that fails says where the stop came and how to have it come there again, alone:
//
//	--- FAIL: TestPool/stop=13
//	    pool_test.go:31: 4 of 5 accepted jobs are done
//	    pool_test.go:20: shutdowntest: the stop came before a guard was acquired, at pool.go:33 in pool.work; that alone:
//	        go test -run '^TestPool$/^stop=13$'
//
// # What it finds
//
//   - A drain that does not end: the error names the guards, by scope, line and age, and shows every goroutine.
//   - Work that is lost: the check sees what is there when the last guard has been released, and not a moment later. Who
//     releases that guard does not go on before the check is over, unless the check waits for it.
//   - Goroutines that are left behind.
//   - With go test -race, what is read after the drain and was not written under a guard.
//
// A moment of a scenario is where it does something with a guard, so the scopes of the code under test have to derive
// from s, be it as children or, as in graceful.Run, as roots of their own. The signal that is taken for a SIGTERM is the
// end of s:
//
//	return graceful.Run(s, serve, graceful.WithSignals())
//
// What a second signal does, and a third, is tested with [Signals].
//
// Where guards are held all along, the scenario can make moments in between: each s.Guard().Release() is four. A scenario that
// has started goroutines waits until they have done what the stop is to come into the middle of, for its return is a stop:
//
//	ctxshutdown.Sleep(s, time.Second)
//
// Goroutines run as they do, so two runs need not be alike. They are, as a rule, where no two things happen at once, and
// work that takes no time may be done by luck: have it take some, by time.Sleep, which costs nothing in a bubble. The
// scenario itself, and loops that outlive the stop, sleep by [ctxshutdown.Sleep]: one that goes on through the stop with
// time.Sleep gives what was released too early the time to be done all the same, and so hides a release before the write.
//
// What waits for a network or a lock is not asleep, as package synctest explains; use [net.Pipe]. So the clock of the bubble
// stands still while somebody waits for a mutex that nobody unlocks: no limit of [Run] is ever reached, and the test hangs
// until the -timeout of go test. After a minute by the clock on the wall, stderr has where the stop came, and the goroutines.
package shutdowntest
