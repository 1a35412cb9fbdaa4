package packed

// TryGuard must fail once the scope has been stopped. Asking the scope's context after every
// addition would be correct, but takes two fifths of the time of a guard. So a stop gives a warning
// first: before it cancels the context, Warn sets the warned bit in the word of the node and in the
// words of all linked descendants, parents first. A node that is linked below a warned parent
// receives the bit from link. TryGuard reads the bit from the value that its own addition returned:
//
//	bit clear   The guard was counted before the warning, and so before the signal.
//	            TryGuard succeeds without asking.
//	bit set     The signal may have been given, or may be about to be given.
//	            TryGuard asks the context.
//
// Two kinds of node always require asking: an unlinked node, because Warn does not reach it, and a
// node whose context can be cancelled by code outside this module, because no warning precedes
// that. Init creates a node of the second kind with the bit set.
//
// docs/internals/counting.md#warning

// Warn announces that n is about to be stopped. The caller signals the stop after Warn has
// returned. From then on, [BeforeWarning] is false for every acquisition on n and its descendants
// that begins.
//
// Warn walks the whole subtree even if the warned bit of n is set already, because a concurrent
// Warn that has set it may not have reached every descendant yet.
func (n *Node) Warn() {
	if n.word.Load()&live == 0 {
		return // all descendants are sealed, and a node that is linked later is sealed at once
	}
	// Set the warned bit before listing the children. A child that is linked between the two steps
	// is in the list, and a child that is linked later gets the bit from link.
	if n.word.Or(warned)&hasChildren == 0 {
		return
	}
	n.mu.Lock()
	children := n.snapshot()
	n.mu.Unlock()
	for _, c := range children {
		c.Warn()
	}
}

// BeforeWarning reports whether v, a value returned by [Node.Count], proves that the guard was
// counted before any stop of its scope was signalled. If it returns false, the scope may still be
// running: the word of the node may prove it (see [Node.BeforeWarning]), or else the caller must
// ask the context of the scope.
func BeforeWarning(v uint64) bool { return v&(live|unlinked|canary|warned) == live|canary }

// BeforeWarning reports whether the state word of n proves that no stop of n had been signalled
// before the call. Call it for a guard for which the function [BeforeWarning] has returned false:
// that happens to every guard that was counted on a stripe (one of the counters among which a
// contended node splits its count), and to the first guard of a node that was not in its parent's
// list of children.
func (n *Node) BeforeWarning() bool { return BeforeWarning(n.word.Load()) }
