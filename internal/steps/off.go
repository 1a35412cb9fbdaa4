//go:build !packedtrace

// Package steps has the atomic types and the mutex of package packed. They are those of the
// standard library, unless the program is built with the tag packedtrace, for tests: then each
// operation is a step before which a test can let another goroutine run, and each change of a
// counter is reported.
package steps

import (
	"sync"
	"sync/atomic"
)

type (
	// A Counter is an atomic number: the word of a node, or the count of a stripe.
	Counter = atomic.Uint64
	// A Mutex is a sync.Mutex.
	Mutex = sync.Mutex
	// A Pointer is an atomic pointer.
	Pointer[T any] = atomic.Pointer[T]
)
