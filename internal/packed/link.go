package packed

// A node is in its parent's child list only while it matters to the parent: while it holds a guard,
// has linked children, or is pinned (see Pin). Otherwise it is unlinked. A child that takes no
// guard costs its parent nothing, and is collected as garbage without a finalizer, a weak pointer
// or a sweep.
//
//	unlinked → linked   link, called for the first guard, the first linked child, or Pin
//	linked → unlinked   removeIdle, called when the node is complete, and by sweeps of the list
//
// The unlinked bit is part of the word, so that an acquisition reads it from its own addition. It
// changes under the parent's mu. See docs/internals/counting.md#linking.

// link adds n to the child list of its parent, unless it is there already. It links the parent
// first if necessary: all ancestors of a linked node are linked, so that a stop of an ancestor
// finds it. If the parent is sealed or its children have been listed for sealing, n becomes sealed.
//
// Before the call, the caller has added a guard or a child to the word of n, or has set its pinned
// or hasChildren bit. A value of the word that the caller read before the call is out of date after
// it: n is linked now, and may be sealed.
func (n *Node) link() {
	p := n.parent
	for {
		p.mu.Lock()
		if n.word.Load()&unlinked == 0 {
			p.mu.Unlock()
			return
		}
		// While p has the bit hasChildren, p stays linked to its own parent.
		if p.word.Or(hasChildren)&unlinked == 0 {
			break
		}
		p.mu.Unlock()
		p.link() // link the parent p first; then try again, because p may have been unlinked again
	}
	clearBits, v := unlinked, p.word.Load()
	if p.sealing || v&live == 0 {
		clearBits |= live // the parent is sealed or is being sealed, so n becomes sealed as well
	}
	if v&warned != 0 {
		n.word.Or(warned) // set the bit before n is linked: BeforeWarning trusts the warned bit of a linked node
	}
	p.push(n)
	n.word.And(^clearBits) // clear all bits in one step: n must never be live and linked below a sealed parent
	p.mu.Unlock()
}

// unlink removes n from its parent's list if n is complete. A node that is complete holds nothing
// and usually never will again, so it is removed now, and not by a later sweep of the list (see
// push). removeIdle decides under the parent's mu.
func (n *Node) unlink() {
	if p := n.parent; p != nil {
		if v := n.word.Load(); v&unlinked == 0 && isComplete(v) {
			p.mu.Lock()
			p.removeIdle(n)
			p.mu.Unlock()
		}
	}
}

// Pin keeps n linked even without a guard, and has the owner's OnComplete called when n is
// complete.
func (n *Node) Pin() {
	if n.word.Or(pinned)&unlinked != 0 {
		n.link()
	}
}

// Unpin undoes [Node.Pin].
func (n *Node) Unpin() {
	n.word.And(^pinned)
	n.unlink()
}

// The linked children of a node form a ring, in which each points to the next and the previous one.
// The field children points to the child with which the next sweep begins. It is nil if there are
// none. The ring is guarded by the node's mu.

// sweepSteps is the number of children that each push examines. It must be more than one, or the
// ring could grow for ever: each push adds a child.
const sweepSteps = 2

// push adds c to the ring of n's linked children, behind all others. It also sweeps a small part of
// the ring: it examines the next children after those that the last push has examined, and removes
// the idle ones. A child is idle if it has released its guards and has been neither stopped nor
// pinned. So the ring is at most about twice as long as necessary, and the number of children that
// a push examines does not depend on the length. Removing a child first removes the idle children
// of this child, so one push may remove many nodes. But each node is removed only once, so the
// amortized time of a push is constant.
func (n *Node) push(c *Node) {
	for range sweepSteps {
		if examined := n.children; examined != nil {
			n.children = examined.next
			n.removeIdle(examined)
		}
	}
	n.linked++
	first := n.children
	if first == nil {
		n.children, c.next, c.prev = c, c, c
		return
	}
	c.next, c.prev = first, first.prev
	first.prev.next, first.prev = c, c
}

// removeIdle removes the child c from the ring and marks it unlinked if it is idle, and reports
// whether it did. A node is idle if it holds no guard, is not pinned and has no linked children.
// The caller holds mu of n.
//
// removeIdle removes idle children of c from c's ring first. No later operation would do that if c
// gets no more children. It stops at the first child that is not idle, so its cost is amortized
// over the pushes of the nodes that it removes.
func (n *Node) removeIdle(c *Node) bool {
	c.fold(true, nil)
	for {
		v := c.word.Load()
		if v&(unlinked|announced|pinned) != 0 || !isEmpty(v) {
			return false
		}
		if v&hasChildren == 0 {
			// The compare-and-swap fails if another goroutine has counted a guard in c, or linked a
			// child to it, since the load.
			if c.word.CompareAndSwap(v, v|unlinked) {
				break
			}
			continue
		}
		c.mu.Lock()
		for c.children != nil && c.removeIdle(c.children) {
		}
		// link also holds c.mu while it sets hasChildren. If it links a child to c after the bit
		// was cleared here, it sets the bit again, and c is not unlinked.
		childless := c.children == nil
		if childless {
			c.word.And(^hasChildren)
		}
		c.mu.Unlock()
		if !childless {
			return false
		}
	}
	c.prev.next, c.next.prev = c.next, c.prev
	if n.children == c {
		n.children = c.next
	}
	if n.children == c { // c was the only child of n
		n.children = nil
	}
	c.prev, c.next = nil, nil
	n.linked--
	return true
}

// snapshot returns the linked children of n. The caller holds mu.
func (n *Node) snapshot() []*Node {
	if n.linked == 0 {
		return nil
	}
	children := make([]*Node, n.linked)
	c := n.children
	for i := range children {
		children[i], c = c, c.next
	}
	return children
}
