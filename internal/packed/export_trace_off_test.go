//go:build !packedtrace

package packed

// TraceOf returns the advice to build with the tag packedtrace, because this build does not record
// transitions.
func TraceOf(nodes map[string]*Node) string {
	_ = addresses(nodes)
	return "for the last transitions, run the test with -tags packedtrace (docs/internals/debugging.md#transitions)\n"
}

// FreezeTransitions has no effect in this build.
func FreezeTransitions() {}

// Traced reports whether this build records transitions, which makes deep recursion slow.
const Traced = false

func peek(c *Counter) uint64 { return c.Load() }
