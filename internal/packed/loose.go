package packed

// A scope is loose until something about it matters to its parent, and again once nothing does. The state is a bit in
// its word, so that the guard path learns it from the addition it makes anyway:
//
//	loose → linked   join, by whoever counts a guard, links a child or pins
//	linked → loose   drop, when the word says that nothing is counted, linked below or pinned
//
// Both happen under the parent's mutex. Compared with a list of all children that is swept through weak pointers, a
// child that takes no guard costs its parent nothing and needs no finalizer, weak pointer or sweep to be collected.

// join links n into its parent's list, and the parent into its own first: a scope that is walked to from above has
// all its ancestors linked. Where the parent has been sealed, or is being sealed, n is born sealed here. After join
// the word says what n is.
func (n *Node) join() {
	p := n.parent
	for {
		p.mu.Lock()
		if n.word.Load()&loose == 0 {
			p.mu.Unlock()
			return
		}
		if p.word.Or(kin)&loose == 0 {
			break
		}
		p.mu.Unlock() // p joins first; should it drop out again meanwhile, once more
		p.join()
	}
	born, v := loose, p.word.Load()
	if p.closing || v&live == 0 {
		born |= live
	}
	if v&warned != 0 {
		n.word.Or(warned) // before n can be taken for one that would have been
	}
	p.kids.push(n)
	n.word.And(^born)
	p.mu.Unlock()
}

// leave drops a complete n from its parent's list.
func (n *Node) leave() {
	if p := n.parent; p != nil {
		if v := n.word.Load(); v&loose == 0 && complete(v) {
			p.mu.Lock()
			p.kids.drop(n)
			p.mu.Unlock()
		}
	}
}

// Pin keeps n in its parent's list, guard or no guard, and has the owner told when n is complete. See [Owner].
func (n *Node) Pin() {
	if n.word.Or(pinned)&loose != 0 {
		n.join()
	}
}

// Unpin undoes [Node.Pin].
func (n *Node) Unpin() {
	n.word.And(^pinned)
	n.leave()
}

// A list holds the linked children of a node. It is guarded by the node's mu.
type list struct {
	first *Node
	n     int32
	limit int32 // the length at which the next push sweeps
}

const minSweep = 32

// push links n. Children that hold nothing any more and were neither cancelled nor kept stay until the list has
// doubled since the last sweep: then they are dropped. So the sweeps cost each push a constant, and the list is at
// most about twice as long as it has to be.
func (l *list) push(n *Node) {
	if l.n >= max(l.limit, minSweep) {
		for k := l.first; k != nil; {
			next := k.next
			l.drop(k)
			k = next
		}
		l.limit = 2 * l.n
	}
	n.prev, n.next = nil, l.first
	if l.first != nil {
		l.first.prev = n
	}
	l.first = n
	l.n++
}

// drop unlinks n if nothing about it matters to the parent, and reports whether it did. Children of n that do not
// matter either go first: nobody else would ever look at them, should n get no more children. It stops at the first
// that does matter, so what it does has been paid for by the pushes of those it unlinks.
func (l *list) drop(n *Node) bool {
	n.gather()
	for {
		v := n.word.Load()
		if v&(loose|announced|pinned) != 0 || !empty(v) {
			return false
		}
		if v&kin == 0 {
			if n.word.CompareAndSwap(v, v|loose) {
				break
			}
			continue
		}
		n.mu.Lock()
		for n.kids.first != nil && n.kids.drop(n.kids.first) {
		}
		childless := n.kids.first == nil
		if childless {
			n.word.And(^kin)
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
	n.prev, n.next = nil, nil
	l.n--
	return true
}

func (l *list) snapshot() []*Node {
	if l.n == 0 {
		return nil
	}
	s := make([]*Node, 0, l.n)
	for k := l.first; k != nil; k = k.next {
		s = append(s, k)
	}
	return s
}
