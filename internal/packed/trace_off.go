//go:build !packedtrace

package packed

import "sync/atomic"

// A Counter holds the word of a node, or the count of a stripe. With the build tag packedtrace, it
// is a type that also records each change; see trace_on.go.
type Counter = atomic.Uint64
