package packed

// The word of a node, from the lowest bit:
//
//	bits 0 to 29   guards held on the node itself
//	bit  30        canary, which keeps an overflow of the guards from the bits above
//	bits 31 to 55  announced children
//	bits 56 to 63  flags
//
// docs/internals/counting.md#the-word defines the flags.
const (
	oneGuard uint64 = 1

	// canary is set in every word that [Node.Init] has prepared. An acquisition beyond the largest
	// count carries into it, and a release beyond the smallest borrows from it, so the bits above
	// stay intact until the caller panics. A clear canary also identifies a zero Node.
	canary uint64 = 1 << 30

	// oneChild is one announced child.
	oneChild uint64 = 1 << 31

	warned      uint64 = 1 << 56 // a stop may have been signalled; see Warn
	live        uint64 = 1 << 57 // the node is not sealed: no stop has reached it
	announced   uint64 = 1 << 58 // the node is counted as a child in the word of the parent
	unlinked    uint64 = 1 << 59 // the node is not in the child list of the parent
	hasChildren uint64 = 1 << 60 // the node may have linked children; cleared by removeIdle
	pinned      uint64 = 1 << 61 // the node stays linked without a guard; see Pin
	awaited     uint64 = 1 << 62 // Done has been called
	signalled   uint64 = 1 << 63 // the stop has been signalled, and Stop has sealed the subtree

	minusGuard = ^(oneGuard - 1) // adding minusGuard to a word subtracts one guard
	minusChild = ^(oneChild - 1)

	guardBits = canary - oneGuard
	childBits = (warned - 1) &^ (oneChild - 1)
	countBits = guardBits | childBits

	// manyChildren is the limit of announced children. The bits can count a million children more.
	// So goroutines that have begun an addition when the limit is reached can finish it.
	manyChildren = childBits - 1<<20*oneChild
)

// isEmpty reports whether the word v counts no guards and no announced children.
func isEmpty(v uint64) bool { return v&countBits == 0 }

// isComplete reports whether the word v is that of a complete scope: the scope has been stopped,
// takes no more guards, and neither guards nor announced children are left.
func isComplete(v uint64) bool { return v&(live|signalled) == signalled && isEmpty(v) }
