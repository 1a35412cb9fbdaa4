package packed

// Signalled reports whether [Node.Stop] has done its work on n.
func (n *Node) Signalled() bool { return n.word.Load()&signalled != 0 }

// Complete reports whether n is signalled, sealed and empty at this moment.
func (n *Node) Complete() bool { return complete(n.word.Load()) }

// Live reports whether no stop has reached n yet. It is a hint for a fast path: a stop may be on its way.
func (n *Node) Live() bool { return n.word.Load()&live != 0 }

// Owner returns what n is part of.
func (n *Node) Owner() Owner { return n.owner }

// Walk calls f for n and for everything linked below it, parents first, with the number of guards held on each. What
// holds no guard and has none below may be left out. No lock is held while f runs.
func (n *Node) Walk(f func(o Owner, guards int)) {
	n.mu.Lock()
	guards, kids := n.guards(), n.kids.snapshot()
	n.mu.Unlock()
	f(n.owner, guards)
	for _, k := range kids {
		k.Walk(f)
	}
}
