//go:build packedtrace

package packed

// TraceOf returns the last transitions, with the given names for the words and stripes of nodes.
func TraceOf(nodes map[string]*Node) string {
	return "last transitions, oldest first:\n" + Transitions(addresses(nodes))
}

// Traced reports whether this build records transitions, which makes deep recursion slow.
const Traced = true
