package eventloop

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// A PanicError is a panic that was contained.
type PanicError struct {
	In    string // what panicked: "callback", "timer", "init", "main", "offload", "job", "panic handler"
	Value any    // what it panicked with; [ErrGoexit] where it ended its goroutine instead
	Stack []byte // where, as of runtime/debug.Stack
}

// ErrGoexit stands for a call of [runtime.Goexit] in a callback, such as the FailNow of a test.
var ErrGoexit = errors.New("runtime.Goexit was called")

func (e *PanicError) Error() string {
	return fmt.Sprintf("eventloop: panic in a function of the kind %q: %v", e.In, e.Value)
}

// Unwrap returns the value, if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// unwinding turns what recover returned in a function that did not come to its end into an error. It is called in the
// deferred function, where the stack still shows the place.
func unwinding(in string, value any) *PanicError {
	if value == nil {
		value = ErrGoexit
	}
	return &PanicError{In: in, Value: value, Stack: debug.Stack()}
}
