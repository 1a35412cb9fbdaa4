package packed

// A node is in its parent's child list only while it matters to the parent: while it holds a guard,
// has linked children, or is pinned. Otherwise it is unlinked. A child that takes no guard costs
// its parent nothing, and is collected as garbage without a finalizer, a weak pointer or a sweep.
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
// Before the call, the caller has added a guard or a child to the word of n, or has set its pinned or
// hasChildren bit. A value of the word that the caller read before the call is out of date after it:
// n is linked now, and may be sealed.
func (n *Node) link() {
	p := n.parent
	for {
		p.mu.Lock()
		if n.word.Load()&unlinked == 0 {
			p.mu.Unlock()
			return
		}
		// The hasChildren bit keeps the parent linked from now on.
		if p.word.Or(hasChildren)&unlinked == 0 {
			break
		}
		p.mu.Unlock()
		p.link() // then try again: p may have been unlinked meanwhile
	}
	clearBits, v := unlinked, p.word.Load()
	if p.sealing || v&live == 0 {
		clearBits |= live // n is born sealed
	}
	if v&warned != 0 {
		n.word.Or(warned) // before unlinked is cleared, because BeforeWarning trusts a linked node
	}
	p.children.push(n)
	n.word.And(^clearBits) // in one step: n is never linked and live below a sealed parent
	p.mu.Unlock()
}

// unlink removes n from its parent's list if n is complete. A node that is complete holds nothing
// and usually never will again, so it need not wait for a sweep. removeIdle decides under the
// parent's mu.
func (n *Node) unlink() {
	if p := n.parent; p != nil {
		if v := n.word.Load(); v&unlinked == 0 && isComplete(v) {
			p.mu.Lock()
			p.children.removeIdle(n)
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

// A list holds the linked children of a node. It is guarded by the node's mu.
type list struct {
	first  *Node
	cursor *Node // the node that the next sweep begins with; nil for the first
	n      int
}

// sweepSteps is the number of nodes that each push examines. It must be more than one, or the list
// could grow for ever: each push adds a node.
const sweepSteps = 2

// push adds n. It also sweeps a small part of the list: it examines the next nodes after those that
// the last push has examined, and removes the idle ones. These are children that have released
// their guards but have been neither stopped nor pinned. So the list is at most about twice as long
// as necessary, and the time that a push takes does not depend on its length. Removing a node first
// removes the idle children of this node: one push may remove many, and each is removed once. So a
// push takes a bounded time on average over all pushes, not each time.
func (l *list) push(n *Node) {
	for range min(sweepSteps, l.n) {
		c := l.cursor
		if c == nil {
			c = l.first
		}
		l.cursor = c.next
		l.removeIdle(c)
	}
	n.prev, n.next = nil, l.first
	if l.first != nil {
		l.first.prev = n
	}
	l.first = n
	l.n++
}

// removeIdle removes n from the list and marks it unlinked if it is idle, and reports whether it
// did. A node is idle if it holds no guard, is not pinned and has no linked children. The caller
// holds the mu of the node that l belongs to.
//
// removeIdle removes idle children of n from n's list first. No later operation would do that if n
// gets no more children. It stops at the first child that is not idle, so its cost is amortized
// over the pushes of the nodes that it removes.
func (l *list) removeIdle(n *Node) bool {
	n.fold(true, nil)
	for {
		v := n.word.Load()
		if v&(unlinked|announced|pinned) != 0 || !isEmpty(v) {
			return false
		}
		if v&hasChildren == 0 {
			// The swap fails if a guard was counted or a child was linked since the load.
			if n.word.CompareAndSwap(v, v|unlinked) {
				break
			}
			continue
		}
		n.mu.Lock()
		for n.children.first != nil && n.children.removeIdle(n.children.first) {
		}
		// The bit is cleared under n.mu, under which link sets it: a child that is linked after
		// this sets it again, and the compare-and-swap above fails.
		childless := n.children.first == nil
		if childless {
			n.word.And(^hasChildren)
		}
		n.mu.Unlock()
		if !childless {
			return false
		}
	}
	if n.prev != nil {
		n.prev.next = n.next
	} else {
		l.first = n.next
	}
	if n.next != nil {
		n.next.prev = n.prev
	}
	if l.cursor == n {
		l.cursor = n.next
	}
	n.prev, n.next = nil, nil
	l.n--
	return true
}

// snapshot returns the nodes of the list.
func (l *list) snapshot() []*Node {
	if l.n == 0 {
		return nil
	}
	s := make([]*Node, 0, l.n)
	for c := l.first; c != nil; c = c.next {
		s = append(s, c)
	}
	return s
}
