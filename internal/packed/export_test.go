package packed

import (
	"fmt"
	"unsafe"
)

// AcquireOne acquires a guard that [Node.ReleaseOne] releases.
func (n *Node) AcquireOne() { n.FinishAcquire(n.Count()) }

// ReleaseOne releases a guard on the counter that the calling goroutine would use now. That may be
// another counter than the one the guard was counted on, so a stripe may count less than zero. The
// callers of this package do not do that, but the protocol must be correct for it.
func (n *Node) ReleaseOne() { n.Release(n.counter()) }

// StripesOf returns the number of stripes for procs processors, and for each of the given stack
// addresses the index of its stripe.
func StripesOf(procs int, stacks []uintptr) (stripes int, indices []uint64) {
	s := newStripes(procs)
	for _, stack := range stacks {
		indices = append(indices, s.index(stack))
	}
	return len(s.cells), indices
}

// IsLinked reports whether n is in the child list of its parent.
func (n *Node) IsLinked() bool { return n.word.Load()&unlinked == 0 }

// UnlinkIfIdle unlinks n if it is idle, as a sweep of the parent's list does.
func (n *Node) UnlinkIfIdle() {
	n.parent.mu.Lock()
	defer n.parent.mu.Unlock()
	n.parent.removeIdle(n)
}

// Grow gives n stripes, as happens when goroutines often collide on its word. It reports whether n
// has stripes afterwards.
func (n *Node) Grow() bool {
	n.grow(2)
	return n.HasStripes()
}

// HasStripes reports whether n has stripes: several counters for its guards, so that goroutines on
// different processors do not contend for one.
func (n *Node) HasStripes() bool { return n.stripes.Load() != nil }

// GuardsOn returns the number of guards that are counted on the stripe c.
func GuardsOn(c *Counter) int64 { return int64(c.Load() - emptyStripe) }

// NoteCollision calls noteCollision.
func (n *Node) NoteCollision() { n.noteCollision() }

// AddGuards adds d to the count of a stripe of n.
func (n *Node) AddGuards(d int64) { n.stripes.Load().pick().Add(uint64(d)) }

// KeepStripes returns a function that runs operations on n with the stripes that n has now, like a
// goroutine that has loaded the pointer to the stripes already.
func (n *Node) KeepStripes() (withOldStripes func(operation func())) {
	s := n.stripes.Load()
	return func(operation func()) {
		now := n.stripes.Load()
		n.stripes.Store(s)
		operation()
		n.stripes.Store(now)
	}
}

// AddChildren adds d to the number of announced children in n's word, without creating children.
func (n *Node) AddChildren(d int) { n.word.Add(uint64(d) * oneChild) }

// SetWarned sets the warned bit of n only, like a Warn that has not reached the descendants yet.
func (n *Node) SetWarned() { n.word.Or(warned) }

// Lock locks the mutex of n, which guards the list of its children.
func (n *Node) Lock() (unlock func()) {
	n.mu.Lock()
	return n.mu.Unlock
}

// addresses maps the address of each counter of the nodes to a name.
func addresses(nodes map[string]*Node) map[uintptr]string {
	names := map[uintptr]string{}
	for name, n := range nodes {
		names[uintptr(unsafe.Pointer(&n.word))] = name
		if s := n.stripes.Load(); s != nil {
			for i := range s.cells {
				names[uintptr(unsafe.Pointer(&s.cells[i].count))] = fmt.Sprintf("%s[%d]", name, i)
			}
		}
	}
	return names
}
