package packed_test

import "sync/atomic"

// A naiveNode implements the published algorithm, which is wrong: the guard that takes a word from
// zero to one walks up, and a second guard of the leaf does not wait for that walk
// (docs/internals/counting.md#the-published-algorithm). It shows that the stress tests can find the
// fault.
type naiveNode struct {
	word    atomic.Int64 // number of guards of the node plus number of its children that are not empty
	parent  *naiveNode
	stopped atomic.Bool
}

func newNaiveTree(depth int) tree {
	root := &naiveNode{}
	leaf := root
	for range depth {
		leaf = &naiveNode{parent: leaf}
	}
	return tree{root: root, leaf: leaf}
}

func (n *naiveNode) acquire() {
	for ; n != nil && n.word.Add(1) == 1; n = n.parent {
	}
}

func (n *naiveNode) release() {
	for ; n != nil && n.word.Add(-1) == 0; n = n.parent {
	}
}

func (n *naiveNode) stop()            { n.stopped.Store(true) }
func (n *naiveNode) isComplete() bool { return n.stopped.Load() && n.word.Load() == 0 }
