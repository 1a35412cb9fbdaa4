package eventloop

import "sync"

// lock locks mu, a mutex that many goroutines lock all the time and hold for some ten nanoseconds.
// A goroutine that finds it locked pauses for some microseconds without touching it, and tries
// again a few times, before it blocks. During the pauses, the other goroutines are as fast as if a
// single one used mu. Without the pauses, the cache line of mu moves from one processor to the
// other with every call; Mutex.Lock alone puts goroutines to sleep and wakes them with nearly every
// call.
//
// On two processors (Intel Xeon), a callback of eight producers took 22 ns with the pauses, 68 ns
// with calls of Gosched instead of the pauses, 194 ns with Lock alone, and 49 ns through a buffered
// channel. A job of a pool took 186 ns instead of 436.
func lock(mu *sync.Mutex) {
	for pause := 4_000; pause < 40_000; pause *= 2 { // pause is a number of iterations of an empty loop, each of which takes a third of a nanosecond
		if mu.TryLock() {
			return
		}
		for range pause {
		}
	}
	mu.Lock()
}
