//go:build packedtrace

package packed

import (
	"slices"

	"github.com/swansong-go/swansong/internal/steps"
)

// A Tree has what the explorer of schedules must know about the nodes that it explores. It hashes
// their states, so that the explorer recognizes a state that it has seen before. Addresses differ
// from schedule to schedule, so nodes, stripes and channels are known by number.
type Tree struct {
	nodes    []*Node
	stripes  [][]*stripes      // for each node, all sets of stripes that it has had, by number
	channels [][]chan struct{} // for each node, all channels that its Done has returned, by number
}

// NewTree returns a Tree of nodes.
func NewTree(nodes ...*Node) *Tree {
	return &Tree{nodes, make([][]*stripes, len(nodes)), make([][]chan struct{}, len(nodes))}
}

// IsLocked reports whether the operand on is a mutex that is locked.
func IsLocked(on any) bool {
	m, ok := on.(*steps.Mutex)
	return ok && m.IsLocked()
}

// A Hash is the hash of the numbers and conditions that were added to it.
type Hash uint64

// Add returns a hash of the numbers that were hashed into h, followed by the given ones.
func (h Hash) Add(numbers ...uint64) Hash {
	for _, n := range numbers {
		h = (h ^ Hash(n)) * goldenRatio
		h ^= h >> 32
	}
	return h
}

// AddBools is like Add, with 0 for false, and 0 and 1 for true.
func (h Hash) AddBools(conditions ...bool) Hash {
	for _, c := range conditions {
		if h = h.Add(0); c {
			h = h.Add(1)
		}
	}
	return h
}

// Observe returns a hash of what the next step of a goroutine can read, if it is a step on the
// given counter, pointer or mutex: the value, or the fields that the mutex guards.
func (t *Tree) Observe(on any) Hash {
	t.number()
	switch on := on.(type) {
	case *Counter:
		return Hash(1).Add(on.Peek())
	case *steps.Pointer[stripes]:
		for i, n := range t.nodes {
			if on == &n.stripes {
				return t.current(i)
			}
		}
	case *steps.Mutex:
		for i, n := range t.nodes {
			if on == &n.mu || on == &n.sealMu {
				return t.fields(i)
			}
		}
	}
	return 0
}

// State returns a hash of everything that operations on the nodes of the tree can read.
func (t *Tree) State() Hash {
	t.number()
	h := Hash(2)
	for i, n := range t.nodes {
		h = h.Add(n.word.Peek(), uint64(t.fields(i)), uint64(t.current(i))).AddBools(IsLocked(&n.mu), IsLocked(&n.sealMu))
		for _, s := range t.stripes[i] {
			for c := range s.cells {
				h = h.Add(s.cells[c].count.Peek())
			}
		}
	}
	return h
}

// number gives a number to each set of stripes and each channel that has none yet.
func (t *Tree) number() {
	for i, n := range t.nodes {
		if s := n.stripes.Peek(); s != nil && !slices.Contains(t.stripes[i], s) {
			t.stripes[i] = append(t.stripes[i], s)
		}
		if n.done != nil && !slices.Contains(t.channels[i], n.done) {
			t.channels[i] = append(t.channels[i], n.done)
		}
	}
}

// current returns a hash that tells which stripes node i uses now: it can have grown others before.
func (t *Tree) current(i int) Hash {
	return Hash(3).Add(uint64(slices.Index(t.stripes[i], t.nodes[i].stripes.Peek())))
}

// fields returns a hash of the fields of node i that its mutexes guard.
func (t *Tree) fields(i int) Hash {
	n := t.nodes[i]
	h := Hash(4).AddBools(n.sealing, n.reopened).Add(uint64(slices.Index(t.channels[i], n.done)))
	for _, c := range n.snapshot() {
		h = h.Add(uint64(slices.Index(t.nodes, c)))
	}
	return h
}

// Channel returns the number of a channel that Done of node i has returned, or -1 if it is the
// channel of a node that was complete.
func (t *Tree) Channel(i int, ch <-chan struct{}) int {
	t.number()
	return slices.IndexFunc(t.channels[i], func(c chan struct{}) bool { return (<-chan struct{})(c) == ch })
}

// Number returns a hash that identifies the stripe on which c counts, or 0 if c is the word of a
// node.
func (t *Tree) Number(c *Counter) (h Hash) {
	t.number()
	for i := range t.nodes {
		for j, s := range t.stripes[i] {
			for k := range s.cells {
				if c == &s.cells[k].count {
					return h.Add(uint64(i), uint64(j), uint64(k))
				}
			}
		}
	}
	return h // c is no stripe, but the word of a node
}
