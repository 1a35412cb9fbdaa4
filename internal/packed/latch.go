package packed

// closed is what a scope hands out that is complete already. It belongs to no synctest bubble, and nobody closes it.
var closed = make(chan struct{})

func init() { close(closed) }

// Done returns a channel that is closed once n is complete. It stays closed when a late guard makes n incomplete
// again; the next call then returns a new channel. Done does not stop anything.
func (n *Node) Done() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	over := complete(n.word.Or(watched))
	switch {
	case n.done != nil && n.latched == over:
		// Open and still to come, or closed and still true.
	case over:
		return closed
	default:
		n.done, n.latched = make(chan struct{}), false
	}
	return n.done
}

// look closes the channel that is waited on if n is complete. The look and the closing are one step under mu: closing
// on an older look would wake somebody who waits for a guard taken since.
func (n *Node) look(e *effects) {
	n.mu.Lock()
	v := n.word.Load()
	if complete(v) && n.done != nil && !n.latched {
		close(n.done)
		n.latched = true
	}
	n.mu.Unlock()
	if complete(v) && v&pinned != 0 {
		e.told = append(e.told, n)
	}
}

// effects are what is left to do once no lock of the tree is held.
type effects struct {
	told   []*Node // their owners are to be told
	misuse string  // what the caller of Stop is to hear about, see fold
}

func (e *effects) run() {
	for _, n := range e.told {
		n.owner.Completed()
	}
}
