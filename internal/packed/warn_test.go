package packed_test

import (
	"testing"

	"github.com/swansong-go/swansong/internal/packed"
)

// unsignalled acquires, and reports whether that came before any signal as far as the word knows.
func unsignalled(n *packed.Node) bool {
	c, v := n.Count()
	n.Acquired(c, v)
	return packed.Unsignalled(v)
}

// After a warning no acquisition below passes for one that came before the signal, whether its scope was linked by then or
// joins later.
func TestWarn(t *testing.T) {
	root := newNode(nil)
	middle := newNode(root)
	leaf, late := newNode(middle), newNode(middle)
	check(t, "on a root", unsignalled(root), true)
	check(t, "the first on a loose scope", []bool{unsignalled(leaf), leaf.Unsignalled()}, []bool{false, true})
	check(t, "the second", unsignalled(leaf), true)
	check(t, "above", unsignalled(middle), true)
	root.Warn()
	check(t, "warned: root, middle and leaf", []bool{unsignalled(root), unsignalled(middle), unsignalled(leaf)}, []bool{false, false, false})
	unsignalled(late)
	check(t, "who has joined since", unsignalled(late), false)
	check(t, "live as before", []bool{root.Live(), middle.Live(), leaf.Live(), late.Live()}, []bool{true, true, true, true})

	n := &packed.Node{}
	n.Init(nil, idle{}, true)
	check(t, "who may be signalled without a warning", unsignalled(n), false)

	_, n = newSpread(t)
	check(t, "on a stripe", []bool{unsignalled(n), n.Unsignalled()}, []bool{false, true})
	n.Warn()
	check(t, "on a stripe, warned", []bool{unsignalled(n), n.Unsignalled()}, []bool{false, false})
}

// A second stopper does not take the first one's bit for all of his warning.
func TestWarn_Again(t *testing.T) {
	root := newNode(nil)
	leaf := newNode(root)
	leaf.Acquire()
	root.WarnAlone()
	check(t, "the first has not come to the leaf yet", leaf.Unsignalled(), true)
	root.Warn()
	check(t, "the second has warned it", leaf.Unsignalled(), false)
}

// A scope that has been warned of is stopped as any other, in one step where nobody knows it.
func TestWarn_ThenStop(t *testing.T) {
	root := newNode(nil)
	child := newNode(root)
	child.Warn()
	child.Stop()
	check(t, "complete, and known above", []bool{child.Complete(), linked(root) > 0}, []bool{true, false})
	child.Acquire()
	check(t, "with a late guard", child.Complete(), false)
	child.Release()
	check(t, "without it", child.Complete(), true)
}
