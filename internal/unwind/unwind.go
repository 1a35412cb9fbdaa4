// Package unwind is about goroutines whose function does not return.
package unwind

// UnlessPanic is to be deferred, first of all, in a goroutine that runs a user's function. It calls f when that function
// has returned or called [runtime.Goexit], and not when it has panicked.
//
// Nobody can recover from a panic that gets to the end of its goroutine, so it ends the program. But the runtime runs the
// deferred calls before it says so. If one of them releases what somebody waits for, that somebody may see a drain that
// went well, have main return, and the program ends with exit code 0 and without a word. That is no rare event: without
// this, half of the programs did that whose main calls os.Exit(0) after the drain. So what a panic leaves behind is
// released by the end of the process. sync.WaitGroup.Go does the same, since Go 1.26.
//
// Where somebody above does recover (net/http for its handlers, a pool for its jobs), it has to be released all the same.
// That is what a plain defer is for.
func UnlessPanic(f func()) {
	if v := recover(); v != nil {
		panic(v) // with the stack of the first one: this runs on top of it
	}
	f()
}
