package packed

import (
	"math/bits"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"
)

// One word is one cache line, and processors that write to the same line wait for each other. While
// a node is live, only the sum of its guards matters. So a node on which goroutines collide counts
// its guards on several stripes, one cache line each, until it is sealed. Linux's percpu_ref works
// in the same way. A node without collisions has no stripes, and only pays for a nil pointer.
//
//	word → stripes   grow, after many collisions within a short time
//	stripes → word   fold, by a sweep that finds no guards; the node may grow stripes again
//	stripes → word   fold, during the seal, while the node is still live; final
//
// An acquisition loads the pointer to the stripes first, and the guard remembers the counter it was
// counted in. It is released there, even if n has folded its stripes since. Operations on the word
// and on stripes may mix in any order, because only the total counts.
//
// Three properties hold (docs/internals/counting.md#stripes):
//
//  1. A node with stripes is live and linked, and its seal has not folded them yet. Its number of
//     guards is the count in the word, minus bias, plus the sum of the stripes. During a fold, only
//     this total is meaningful.
//  2. The word contains the bias from before the first operation on a stripe until a fold has added
//     the sum. The bias looks like guards, so the node is not empty and stays linked. It also keeps
//     a release on the word from borrowing from the canary, the bit above the guards, if the
//     acquisition is part of the sum.
//     A sweep must therefore fold idle stripes: otherwise an abandoned node would stay linked.
//  3. A fold takes the count of a stripe and marks the stripe as folded in one atomic step. So an
//     operation on a stripe either is part of the sum, or sees the mark and is repeated on the
//     word. After the fold, the word counts every acquisition that has returned. A release that
//     sees the mark completes the node if it is the last, like any release on a word. Folded
//     stripes are never used again.
//
// The rest of the protocol does not depend on stripes: while a node has no stripes, its word has
// the whole state, and a node that has stripes is live, when its count does not matter to other
// nodes.
//
// A single stripe has no bounds, so releases without an acquisition and more than 2^30 guards are
// not noticed while a node has stripes. The fold notices them, and Stop panics after its work is
// done, in the way that sync.WaitGroup may panic in Wait.
type stripes struct {
	factor atomic.Uint64 // multiplier of the hash in index; always odd
	shift  uint8         // right shift that reduces a hash to an index of cells
	cells  []stripe
	_      [128 - 40]byte // keeps writes to other data off the cache line that every acquisition reads
}

// A stripe fills two cache lines, because some processors fetch lines in pairs.
type stripe struct {
	count Counter
	_     [128 - 8]byte
}

const (
	// bias stands in the word for the guards that are counted on stripes.
	bias = canary / 2

	// emptyStripe is a stripe that counts no guards. It has the flags of a live and linked node, so
	// that the fast path needs one test for stripes and words. It has the warned flag because a
	// stripe cannot tell whether a stop was signalled: BeforeWarning must look at the word.
	emptyStripe = live | warned | canary

	// foldedStripe marks a stripe whose count has been added to the word. Its live flag is clear.
	// Goroutines that still use the stripe change only the bits below the flag. A carry into the
	// flag would need more operations than there can be guards.
	foldedStripe = live / 2

	goldenRatio = 0x9e3779b97f4a7c15 // 2^64 divided by the golden ratio: spreads neighbouring keys
	rehash      = 0xd1342543de82ef95 // odd; noteCollision multiplies factor by it to change the hash

	stripesPerProc = 4   // number of stripes for each processor; with four, goroutines that run at the same time rarely share a stripe
	maxStripes     = 256 // 256 stripes of 128 bytes take 32 kB

	// Collisions are counted in time windows: an old node that has seen many collisions in total
	// needs no stripes unless it is contended now. On a contended node, a goroutine that only
	// acquires and releases sees thousands of collisions in one window.
	windowBits     = 20 // a window has 2^20 ns, about a millisecond
	manyCollisions = 64 // noteCollision acts at this many collisions in one window
)

func newStripes(procs int) *stripes {
	log := bits.Len(uint(min(stripesPerProc*procs, maxStripes) - 1))
	s := &stripes{shift: uint8(64 - log), cells: make([]stripe, 1<<log)}
	s.factor.Store(goldenRatio)
	for i := range s.cells {
		s.cells[i].count.Store(emptyStripe)
	}
	return s
}

// pick returns the stripe of the calling goroutine, chosen by the address of its stack.
//
// The key is the stack address in units of 2 kB, a free value that differs between goroutines: a
// stack has at least 2 kB, so no two goroutines have the same key, and a goroutine has few keys. A
// random number or a token from a sync.Pool costs more than the addition itself
// (docs/internals/counting.md#stripes). Goroutines whose keys fall on the same stripe collide, and
// noteCollision then changes the hash.
func (s *stripes) pick() *Counter {
	var local byte
	return &s.cells[s.index(uintptr(unsafe.Pointer(&local)))].count
}

// index returns the index of the stripe for a stack address.
func (s *stripes) index(stack uintptr) uint64 {
	return uint64(stack>>11) * s.factor.Load() >> (s.shift & 63)
}

// epoch is the start of the first time window. A synctest bubble has a different clock. That does
// no harm, because noteCollision only checks whether the number of the window has changed.
var epoch = time.Now()

// noteCollision records that another goroutine has changed a counter of n between the caller's load
// and its addition, a few nanoseconds later. After manyCollisions in one time window, it gives n
// stripes, or changes the hash if n has stripes already. Records may be lost; more will follow.
func (n *Node) noteCollision() {
	now := uint32(time.Since(epoch)>>windowBits) << 8
	c := n.collisions.Load()
	if c&^0xff != now {
		c = now
	}
	if c&0xff > manyCollisions {
		return // noteCollision has already reacted to the collisions in this time window
	}
	c++
	n.collisions.Store(c)
	if c&0xff != manyCollisions {
		return
	}
	if s := n.stripes.Load(); s != nil {
		s.factor.Store(s.factor.Load() * rehash)
	} else if procs := runtime.GOMAXPROCS(0); procs > 1 {
		n.grow(procs)
	}
}

// grow gives n stripes, if it is live, linked and not being sealed.
func (n *Node) grow(procs int) {
	s := newStripes(procs)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.sealing || n.stripes.Load() != nil {
		return
	}
	for {
		v := n.word.Load()
		if v&(live|unlinked|canary) != live|canary || v&guardBits >= bias/2 {
			return
		}
		if n.word.CompareAndSwap(v, v+bias) {
			n.stripes.Store(s)
			return
		}
	}
}

// markFolded marks all stripes as folded and returns the sum of their counts.
func (s *stripes) markFolded() (sum int64) {
	for i := range s.cells {
		sum += int64(s.cells[i].count.Swap(foldedStripe) - emptyStripe)
	}
	return sum
}

// fold moves the count of the stripes to the word, if n has stripes. If the caller is a sweep, it
// holds the parent's mu, and fold does nothing unless n appears to hold no guards. If n does hold
// guards, no harm is done: the word counts them after the fold, and n may grow stripes again. A
// sweep does not fold a count below zero either: more guards were released than acquired, which
// Stop reports. A panic of fold itself would hit the sweeping goroutine, which may not be the one
// that misused n.
//
// If the caller is seal, it has set n.sealing, so n does not grow stripes again.
func (n *Node) fold(isSweep bool, e *effects) {
	if n.stripes.Load() == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.stripes.Load()
	if s == nil || isSweep && n.guards() != 0 {
		return
	}
	sum := s.markFolded() - int64(bias)
	for {
		v := n.word.Load()
		total := int64(v&guardBits) + sum
		guards := max(0, min(total, int64(guardBits)))
		if n.word.CompareAndSwap(v, v&^guardBits|uint64(guards)) {
			if total < 0 && !isSweep {
				e.misuse = neverAcquired
			} else if total > guards && !isSweep {
				e.misuse = overflow
			}
			break
		}
	}
	n.stripes.Store(nil)
}

// guards returns the number of guards held on n itself. The caller holds mu, so no fold is under
// way. Acquisitions and releases that happen during the call are included or not, each
// independently, so the result may be negative for a moment.
func (n *Node) guards() int64 {
	guards := int64(n.word.Load() & guardBits)
	if s := n.stripes.Load(); s != nil {
		guards -= int64(bias)
		for i := range s.cells {
			guards += int64(s.cells[i].count.Load() - emptyStripe)
		}
	}
	return guards
}
