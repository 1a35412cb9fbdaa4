package packed

import "sync/atomic"

// Acquire acquires a guard, and forgets what it was counted in.
func (n *Node) Acquire() { n.Acquired(n.Count()) }

// Release gives a guard back in what the calling goroutine would count one in now. The code gives it back where it was counted; this is
// harsher, for a stripe may fall below nothing by it, and has to hold, too.
func (n *Node) Release() { n.Discount(n.counter()) }

// Deal returns how many stripes a scope gets for so many processors, and on which of them each stack falls.
func Deal(procs int, stacks []uintptr) (stripes int, on []uint64) {
	s := newStripes(procs)
	for _, stack := range stacks {
		on = append(on, s.index(stack))
	}
	return len(s.cells), on
}

// Spread has n count on stripes, as enough clashes would, and reports whether it does.
func (n *Node) Spread() bool {
	n.grow(2)
	return n.IsSpread()
}

// IsSpread reports whether n counts on stripes.
func (n *Node) IsSpread() bool { return n.spread.Load() != nil }

// CountedOn returns how many guards are counted on the stripe c.
func CountedOn(c *atomic.Uint64) int64 { return int64(c.Load() - fresh) }

// Clash has n believe that two goroutines got into each other's way.
func (n *Node) Clash() { n.clashed() }

// Pretend counts d guards on some stripe of a spread n.
func (n *Node) Pretend(d int64) { n.spread.Load().pick().Add(uint64(d)) }

// StripesNow returns what has operations go by the stripes that n has now, as if they had read the pointer to them in time.
func (n *Node) StripesNow() (late func(operation func())) {
	s := n.spread.Load()
	return func(operation func()) {
		now := n.spread.Swap(s)
		operation()
		n.spread.Store(now)
	}
}

// WarnAlone is what a stopper begins with who is then held up.
func (n *Node) WarnAlone() { n.word.Or(warned) }
