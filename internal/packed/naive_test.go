package packed_test

import "sync/atomic"

// A naive is the counting of the specification's section 8, kept to show that the stress can tell it from the real
// one: the guard that takes a word from zero walks up, and the second guard of a leaf does not wait for that walk.
type naive struct {
	word    atomic.Int64 // guards of its own and children that are not empty: only the sum matters
	parent  *naive
	stopped atomic.Bool
}

func newNaive(depth int) tree {
	root := &naive{}
	leaf := root
	for range depth {
		leaf = &naive{parent: leaf}
	}
	return tree{root: root, leaf: leaf}
}

func (n *naive) acquire() {
	for ; n != nil && n.word.Add(1) == 1; n = n.parent {
	}
}

func (n *naive) release() {
	for ; n != nil && n.word.Add(-1) == 0; n = n.parent {
	}
}

func (n *naive) stop()          { n.stopped.Store(true) }
func (n *naive) complete() bool { return n.stopped.Load() && n.word.Load() == 0 }
