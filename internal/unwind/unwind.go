// Package unwind is about goroutines whose function does not return.
package unwind

import (
	"errors"
	"runtime/debug"
)

// ErrGoexit stands for a call of [runtime.Goexit], such as the FailNow of a test, where the value of a panic would be.
var ErrGoexit = errors.New("it ended its goroutine by runtime.Goexit")

// Catch calls f, and then, also where f has called Goexit, what is to come of it: with the value that f has panicked with and
// the stack, as of [debug.Stack], or with nil and nil. A Goexit goes on after that, so that whoever has to outlive it gives
// Catch a goroutine of its own.
func Catch(f func(), then func(value any, stack []byte)) {
	returned := false
	defer func() {
		var value any
		var stack []byte
		if !returned {
			if value = recover(); value == nil {
				value = ErrGoexit
			}
			stack = debug.Stack()
		}
		then(value, stack)
	}()
	f()
	returned = true
}

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
