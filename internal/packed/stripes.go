package packed

import (
	"math/bits"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"
)

// One word is one cache line, and processors that write to it in turn wait for each other. While a scope is live,
// nobody asks whether it is empty: only the sum of its guards matters. So a scope on which goroutines are seen to clash
// spreads its guards over stripes, a cache line each, until it is sealed; the reference counts of Linux's percpu_ref
// do the same. A scope where nothing clashes has no stripes and pays for one nil pointer.
//
//	alone → spread   grow, when enough clashes have been noticed in a short time
//	spread → alone   gather, by a sweep of the parent's list that finds nothing held: it may be spread again
//	spread → alone   fold, by the seal, before the scope stops being live; for good
//
// The pointer to the stripes is what an acquisition looks at first. A guard remembers what it was counted in, and is given back
// there, however late: operations on the word and on stripes may be mixed in any way, since they all count in the total.
//
// What holds:
//
//  1. A scope that is spread is live and linked, and its walk has not begun to seal it. Guards held are then the count
//     in the word, less bias, and the sum of the stripes. While a fold or gather is under way, only the total means something.
//  2. The bias is in the word from before the first operation on a stripe until fold or gather has put the sum there. To
//     all that looks at the word it is guards that are held: the scope is not empty and does not drop out of its parent's
//     list, and a release whose acquisition is in the sum cannot borrow from the canary. So who would have a scope drop
//     out gathers first; else one that was hot once, and is forgotten, would never be collected, nor its stripes.
//  3. Fold and gather take the count of each stripe and leave the mark sealed, in one step. So an operation on a stripe is
//     either in the sum, or finds the mark and is done again on the word, as if it had come later. Whoever has returned is
//     counted, then, when the fold is done; and the last release that finds the mark wakes who waits, as on any word.
//     Stripes that were given up are never used again: who still goes by them finds the marks.
//
// Nothing else of the protocol knows of stripes: before and after, the scope is its word, and in between it is live.
//
// The count of a single stripe has no bounds that anybody looks at, so while a scope is spread nobody notices that guards are
// released that were never acquired, or that 2^30 are held. The fold does, and Stop panics once its work is done: like a
// sync.WaitGroup, whose Wait may be the one to panic.
type stripes struct {
	factor atomic.Uint64 // of the hash; odd
	shift  uint8         // takes a hash to an index
	cells  []stripe
	_      [128 - 40]byte // every acquisition reads this: no neighbour may write beside it
}

// A stripe is alone on its cache line, and on the pair of lines that some processors fetch at once.
type stripe struct {
	count atomic.Uint64
	_     [128 - 8]byte
}

const (
	// bias stands in the word for what is counted on the stripes.
	bias = canary / 2
	// fresh is a stripe that counts nothing. It looks like the word of a scope that is live and linked, so that the guard path
	// has one test for both, and warned: whether a stop has been signalled is to be asked of the word.
	fresh = live | warned | canary
	// sealed marks a stripe whose count has been taken. It is not live, and stays so: that would take more operations that
	// still come by than there can be guards.
	sealed = live / 2

	golden = 0x9e3779b97f4a7c15 // 2^64 divided by the golden ratio: neighbours are hashed far apart
	redeal = 0xd1342543de82ef95 // any other odd number

	perProc    = 4   // stripes for each processor, so that few goroutines that run at once share one
	maxStripes = 256 // 32 kB

	// A scope has to be hot, not just old: clashes count within a window. A goroutine that does nothing but acquire and
	// release notices thousands in one.
	window = 20 // log2 of nanoseconds, a millisecond
	enough = 64
)

func newStripes(procs int) *stripes {
	log := bits.Len(uint(min(perProc*procs, maxStripes) - 1))
	s := &stripes{shift: uint8(64 - log), cells: make([]stripe, 1<<log)}
	s.factor.Store(golden)
	for i := range s.cells {
		s.cells[i].count.Store(fresh)
	}
	return s
}

// pick returns the stripe for the calling goroutine.
//
// Which stack a goroutine runs on is the one thing of its own that it can learn for nothing. Two kilobytes are the
// smallest stack, so no two goroutines share a key, and one has few. Measured, for an addition and its counterpart, which
// picked anew then, by one goroutine and by two (where that is halved, they do not get into each other's way):
//
//	the stack's address             7 ns    4 ns
//	the same, but only two stripes  7 ns   36 ns, once in two runs: the goroutines share one
//	math/rand/v2                   18 ns   22 ns: every line goes back and forth
//	a token from a sync.Pool       33 ns   18 ns: no two processors share one, but it is taken and put back each time
//
// Two goroutines that do share a stripe notice that they clash, and clashed has all of them hashed anew.
func (s *stripes) pick() *atomic.Uint64 {
	var here byte
	return &s.cells[s.index(uintptr(unsafe.Pointer(&here)))].count
}

// index hashes the address of a stack.
func (s *stripes) index(stack uintptr) uint64 {
	return uint64(stack>>11) * s.factor.Load() >> (s.shift & 63)
}

// epoch is what windows are counted from. In a synctest bubble the clock is another one; all that matters is whether it
// has moved on.
var epoch = time.Now()

// clashed notes that another goroutine has changed a counter of n within the few nanoseconds since the caller did, and
// does something about it when that happens often: the scope is spread, or the goroutines are dealt to its stripes
// anew. Notes may be lost; there will be more.
func (n *Node) clashed() {
	now := uint32(time.Since(epoch)>>window) << 8
	c := n.clashes.Load()
	if c&^0xff != now {
		c = now
	}
	if c&0xff > enough {
		return // this window has had its turn
	}
	c++
	n.clashes.Store(c)
	if c&0xff != enough {
		return
	}
	if s := n.spread.Load(); s != nil {
		s.factor.Store(s.factor.Load() * redeal)
	} else if procs := runtime.GOMAXPROCS(0); procs > 1 {
		n.grow(procs)
	}
}

// grow spreads the guards of n from now on, if it is live, linked and not about to be sealed.
func (n *Node) grow(procs int) {
	s := newStripes(procs)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closing || n.spread.Load() != nil {
		return
	}
	for {
		v := n.word.Load()
		if v&(live|loose|canary) != live|canary || v&locals >= bias/2 {
			return
		}
		if n.word.CompareAndSwap(v, v+bias) {
			n.spread.Store(s)
			return
		}
	}
}

// take ends the stripes, and returns what was counted on them.
func (s *stripes) take() (sum int64) {
	for i := range s.cells {
		sum += int64(s.cells[i].count.Swap(sealed) - fresh)
	}
	return sum
}

// total returns how many guards are held on a spread scope, whose word is v and whose stripes count sum.
func total(v uint64, sum int64) int64 { return int64(v&locals) - int64(bias) + sum }

// fold puts what is counted on the stripes into the word. The walk has begun, so there will be no others.
func (n *Node) fold(e *effects) {
	if n.spread.Load() == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.spread.Load()
	if s == nil {
		return // gathered a moment ago
	}
	sum := s.take()
	for {
		v := n.word.Load()
		total := total(v, sum)
		held := uint64(max(0, min(total, int64(locals))))
		if n.word.CompareAndSwap(v, v&^locals|held) {
			switch {
			case total < 0:
				e.misuse = neverAcquired
			case total > int64(locals):
				e.misuse = overflow
			}
			break
		}
	}
	n.spread.Store(nil)
}

// gather folds a scope that looks as if it held nothing, which may be wrong: then its guards are in the word as well as on
// stripes, and it will be spread again if it is still hot. The caller holds the parent's mu.
func (n *Node) gather() {
	if n.spread.Load() == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.spread.Load()
	if s == nil || n.guards() > 0 {
		return
	}
	sum := s.take()
	for {
		v := n.word.Load()
		total := total(v, sum)
		if uint64(total) > locals {
			// Released and never acquired. It is not for who sweeps to hear of that, but for who stops: see fold.
			s = newStripes(runtime.GOMAXPROCS(0))
			s.cells[0].count.Add(uint64(sum))
			break
		}
		if n.word.CompareAndSwap(v, v&^locals|uint64(total)) {
			s = nil
			break
		}
	}
	n.spread.Store(s)
}

// guards returns how many guards are held on n itself. The caller holds mu, so no fold is under way; but who comes and
// goes meanwhile may be seen coming and not going, or the other way round.
func (n *Node) guards() int {
	held := int64(n.word.Load() & locals)
	if s := n.spread.Load(); s != nil {
		held -= int64(bias)
		for i := range s.cells {
			held += int64(s.cells[i].count.Load() - fresh)
		}
	}
	return int(max(0, held))
}
