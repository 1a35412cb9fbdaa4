//go:build packedtrace

package packed

import "sync"

// SetBeforeStep sets the function that is called before each step; see beforeStep.
func SetBeforeStep(f func(mu *sync.Mutex)) { beforeStep = f }

// GrowSmall gives n four stripes, the fewest, of which all goroutines use the first: which one a
// goroutine uses otherwise depends on the address of its stack, and differs from run to run.
func (n *Node) GrowSmall() {
	n.grow(1)
	if s := n.stripes.p.Load(); s != nil {
		s.factor.Store(0)
	}
}

// TraceOf returns the last transitions, with the given names for the words and stripes of nodes.
func TraceOf(nodes map[string]*Node) string {
	return "last transitions, oldest first:\n" + Transitions(addresses(nodes))
}

// Traced reports whether this build records transitions, which makes deep recursion slow.
const Traced = true
