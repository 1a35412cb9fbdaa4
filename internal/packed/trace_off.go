//go:build !packedtrace

package packed

import (
	"sync"
	"sync/atomic"
)

// A Counter holds the word of a node, or the count of a stripe. With the build tag packedtrace, it
// is a type that also records each change; see trace_on.go.
type Counter = atomic.Uint64

// A Mutex guards fields of a node, and stripesPointer points to the stripes of a node. With the build
// tag packedtrace, they are types whose operations are steps of a schedule.
type (
	Mutex          = sync.Mutex
	stripesPointer = atomic.Pointer[stripes]
)
