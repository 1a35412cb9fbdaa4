// Package panics is the common base of the PanicError types of this repository. It recovers the
// panics of functions that users supply, and reports a call of [runtime.Goexit] in such a function
// like a panic.
//
// Every PanicError has the fields Value and Stack, as [Recovered] returns them, and an Unwrap
// method that calls [Unwrap]. The types differ in how they name the function that panicked.
package panics

import (
	"errors"
	"runtime/debug"
)

// ErrGoexit takes the place of the panic value when a function has called [runtime.Goexit]
// instead of panicking. The FailNow method of a test does that.
var ErrGoexit = errors.New("runtime.Goexit was called")

// Recovered returns the value and the stack of a panic, given the result of recover.
// If recover returned nil, the function called Goexit, and the value is [ErrGoexit].
// The stack is in the format of [debug.Stack].
//
// Recovered must be called from the deferred function of a function that has not returned: there
// the stack still shows where the panic began.
func Recovered(recovered any) (value any, stack []byte) {
	if recovered == nil {
		recovered = ErrGoexit
	}
	return recovered, debug.Stack()
}

// Unwrap returns the value of a panic if it is an error, and nil otherwise.
func Unwrap(value any) error {
	err, _ := value.(error)
	return err
}

// Catch calls f, and afterwards the function then. Both arguments of then are nil if f returned.
// Otherwise they are the value and the stack of the panic, as [Recovered] returns them.
//
// Catch stops a panic of f. It does not stop a Goexit: then is called, and the goroutine ends. A
// caller that must continue calls Catch on a new goroutine.
func Catch(f func(), then func(value any, stack []byte)) {
	returned := false
	defer func() {
		var value any
		var stack []byte
		if !returned {
			value, stack = Recovered(recover())
		}
		then(value, stack)
	}()
	f()
	returned = true
}

// UnlessPanic calls f, unless the calling goroutine is panicking. It is used as the first deferred
// call of a goroutine that runs a function of the user, to release what other goroutines wait for.
// It calls f when the function has returned or called [runtime.Goexit].
//
// A panic that reaches the end of its goroutine ends the program, but the runtime executes the
// deferred calls before it prints the panic. If one of them released a guard, main could see a
// successful drain and exit with code 0 before the panic is printed. Without UnlessPanic, this
// happened in half of the runs of a test program that calls os.Exit(0) after the drain.
// [sync.WaitGroup.Go] solves the same problem in the same way since Go 1.26.
//
// If a caller up the stack recovers, as net/http does for its handlers, the guard must be released
// during a panic, too: use a plain defer there.
func UnlessPanic(f func()) {
	if v := recover(); v != nil {
		panic(v) // panic again, which keeps the frames of the original panic in the traceback
	}
	f()
}
