// Package packed counts guards in a tree of scopes: one 64-bit word per scope, no lock on the guard path, and exact.
//
// # The problem
//
// A scope is complete once it has been told to stop and nobody in its subtree holds a guard. The obvious algorithm
// (the guard that takes a word from zero walks up and increments every ancestor) loses guards: the second guard of a
// leaf returns at once, although the first is still on its way to the root. This is the scalable-nonzero-indicator
// problem of Ellen, Lev, Luchangco and Moir (SNZI, PODC 2007): an arrival may not return before its effect can be
// seen at the root, and that takes an explicit "announced" state.
//
// # The protocol
//
// A scope is live until a stop reaches it and sealed from then on. Nobody asks a live scope whether it is empty, so a
// guard on it is one addition to its own word, at any depth. A sealed scope that is not empty is announced: it counts
// as one kid in its parent's word. Three invariants carry everything:
//
//  1. A sealed scope whose subtree holds a guard is announced at its parent before any acquisition of it returns.
//  2. Each announced bit stands for exactly one kid in the parent's word.
//  3. A scope is sealed only after every scope linked under it is. A second stopper waits for the first one's walk.
//
// A scope is born loose: its parent does not know it. It joins its parent's list at its first guard, its first linked
// child or its first [Node.Pin], and a joining scope whose parent has been sealed is sealed on the way in. So a loose
// scope is, for the counting, one that does not exist yet; a child that is made and cancelled touches nothing but
// its own word, and one that is forgotten is plain garbage. See loose.go.
//
// Complete means signalled, sealed and empty. Channels that tell so are closed under the scope's mutex, together with
// the look at the word; an acquire that finds its scope sealed passes that mutex before it returns. So a late guard
// delays every channel that is not closed yet, and none is closed on a look that is older. See latch.go.
//
// One word is also one cache line. Where goroutines are seen to get into each other's way on it, a live scope spreads
// its guards over several, until it is sealed. See stripes.go.
//
// Before a stop is signalled, a bit in the words of all that is linked below warns of it, so that the addition that counts a
// guard tells whether it came before. See warn.go.
//
// The models directory holds the protocol in Promela, with the variants that must fail.
package packed

import (
	"sync"
	"sync/atomic"
)

// The word. Every transition of a scope is one atomic operation on it.
const (
	// one is one guard of the scope itself: bits 0 to 29.
	one uint64 = 1
	// canary is set in every word that [Node.Init] made. An addition too many carries into it and a release too many
	// borrows from it, so that neither reaches the bits above before the caller panics; and a zero Node shows itself.
	canary uint64 = 1 << 30
	// kid is one announced child: bits 31 to 55. Nobody looks whether they are enough: an announced child is a Node with a
	// guard in its subtree, and 2^25 of them take ten gigabytes and more.
	kid uint64 = 1 << 31

	warned    uint64 = 1 << 56 // a stop may have been signalled, see Warn
	live      uint64 = 1 << 57 // no stop has reached the scope
	announced uint64 = 1 << 58 // counted as a kid at the parent
	loose     uint64 = 1 << 59 // not in the parent's list
	kin       uint64 = 1 << 60 // has, or had until lately, linked children
	pinned    uint64 = 1 << 61 // stays linked although it holds no guard
	watched   uint64 = 1 << 62 // somebody has asked for a completion channel
	signalled uint64 = 1 << 63 // the stop has been signalled, here and below, and observed

	minusOne = ^(one - 1)
	minusKid = ^(kid - 1)

	locals = canary - one
	fields = locals | (warned-1)&^(kid-1)
)

// empty reports whether a word counts neither guards nor announced children.
func empty(v uint64) bool { return v&fields == 0 }

// complete reports whether a word stands for signalled, sealed and empty.
func complete(v uint64) bool { return v&(live|signalled) == signalled && empty(v) }

// An Owner is what a [Node] is part of.
type Owner interface {
	// Completed is called after a pinned node has become complete, with no lock of the tree held. It may be called
	// more than once, and late: the node may hold a guard again.
	Completed()
}

// A Node is the counting part of one scope. The zero Node is not usable: call [Node.Init].
type Node struct {
	word   atomic.Uint64
	spread atomic.Pointer[stripes] // not nil: guards are counted there; changes under mu
	parent *Node                   // nil for a root
	owner  Owner

	// walk is held while the subtree is sealed, so that a second stopper waits for the first (invariant 3). Walk
	// mutexes nest from parent to child.
	walk sync.Mutex

	// mu guards what follows, and is never held across anything but a few loads and stores. It nests from parent to
	// child, inside walk mutexes.
	mu      sync.Mutex
	sealed  bool          // the subtree has been walked; guarded by walk, and here because there is room
	closing bool          // a walk has begun: who joins now is born sealed
	latched bool          // done has been closed
	clashes atomic.Uint32 // window and number; see clashed
	done    chan struct{}
	kids    list

	next, prev *Node // neighbours in the parent's list; guarded by the parent's mu
}

// Init prepares n under parent, or as a root when parent is nil. It touches nothing of the parent. surprising says that n
// may be signalled without a [Node.Warn] here or above.
func (n *Node) Init(parent *Node, owner Owner, surprising bool) {
	n.parent, n.owner = parent, owner
	v := live | canary
	if parent != nil {
		v |= loose
	}
	if surprising {
		v |= warned
	}
	n.word.Store(v)
}

// Parent returns the node that n was made under, nil for a root.
func (n *Node) Parent() *Node { return n.parent }

// Count begins to acquire a guard: it counts one in c, which then held v. What is to be done about that is left to
// [Node.Acquired]. They are apart because either can be inlined, and both together could not.
func (n *Node) Count() (c *atomic.Uint64, v uint64) {
	c = n.counter()
	return c, c.Add(one)
}

// Acquired takes what [Node.Count] has returned. When it returns, the guard has been acquired, and every sealed ancestor knows.
//
// It panics on a zero Node, and when 2^30 guards are held on one scope.
func (n *Node) Acquired(c *atomic.Uint64, v uint64) {
	// Where no other guard is held, nobody can clash with us, and to know that costs nothing.
	if v&(live|loose|canary|locals&^one) != live|canary {
		n.acquireSlow(c, v)
	}
}

// Discount gives back the guard that [Node.Count] has counted in c, whatever has become of c meanwhile. A call of Discount
// synchronizes before the closing of every channel that [Node.Done] hands out and this release lets close.
//
// It panics when there is nothing to give back, and leaves the word as it was. While guards are spread, [Node.Stop]
// does that later.
func (n *Node) Discount(c *atomic.Uint64) {
	if v := c.Add(minusOne); v&(live|canary) != live|canary {
		n.releaseSlow(c, v)
	}
}

// counter returns what the calling goroutine counts a guard in: the word, or a stripe.
func (n *Node) counter() *atomic.Uint64 {
	if s := n.spread.Load(); s != nil {
		return s.pick()
	}
	return &n.word
}

// acquireSlow finishes an acquisition that left v in c.
func (n *Node) acquireSlow(c *atomic.Uint64, v uint64) {
	if c != &n.word && v&live == 0 { // a stripe that was given up
		c = &n.word
		v = c.Add(one)
	}
	if c == &n.word && v&(live|loose|canary) != live|canary {
		n.arriveSlow(v)
	} else if c.Load() != v {
		n.clashed()
	}
}

func (n *Node) arriveSlow(v uint64) {
	var e effects
	n.arrived(v, one, &e)
	e.run()
}

// releaseSlow finishes a release that left v in c.
func (n *Node) releaseSlow(c *atomic.Uint64, v uint64) {
	if c != &n.word {
		if v&live != 0 {
			return // fewer than none, or absurdly many, which the fold will tell
		}
		v = n.word.Add(minusOne)
	}
	n.departSlow(v)
}

func (n *Node) departSlow(v uint64) {
	tooMany := v&canary == 0
	if tooMany {
		v = n.word.Add(one)
	}
	var e effects
	n.departed(v, &e) // also after a refusal: whoever looked in between saw a guard too many, and relies on us
	e.run()
	if tooMany {
		panic(neverAcquired)
	}
}

const (
	neverAcquired = "ctxshutdown: a guard was released that was never acquired"
	overflow      = "ctxshutdown: more than 2^30 guards on one scope"
)

// arrived finishes an addition of unit to n's word that left v there.
func (n *Node) arrived(v, unit uint64, e *effects) {
	if v&canary == 0 {
		n.word.Add(-unit)
		if v < canary {
			panic("ctxshutdown: use of a zero Swansong; make one with New or WithCancel")
		}
		panic(overflow)
	}
	if v&loose != 0 {
		n.join()
		v = n.word.Load()
	}
	if v&live != 0 {
		return
	}
	// A look that found the scope empty before our addition may not have closed its channel yet. Wait for it: a channel
	// that is open when the caller has its guard stays open until the guard is released.
	n.mu.Lock()
	//lint:ignore SA2001 passing the lock is the point
	n.mu.Unlock()
	n.up(v, e)
}

// up announces a sealed n at its parent: arrive above first, then set the bit, so that whoever finds the bit set may
// return at once.
func (n *Node) up(v uint64, e *effects) {
	p := n.parent
	if p == nil || v&(live|announced) != 0 {
		return
	}
	if w := p.word.Add(kid); w&(live|loose|canary) != live|canary {
		p.arrived(w, kid, e)
	}
	if n.word.Or(announced)&announced != 0 {
		p.departed(p.word.Add(minusKid), e) // somebody else announced n: one bit, one kid
		return
	}
	n.retract(e) // what we announced may be gone already
}

// retract takes back the announcement of an empty n.
func (n *Node) retract(e *effects) {
	for {
		v := n.word.Load()
		if v&announced == 0 || !empty(v) {
			return
		}
		if n.word.CompareAndSwap(v, v&^announced) {
			p := n.parent
			p.departed(p.word.Add(minusKid), e)
			return
		}
	}
}

// departed does what is due when a subtraction has left v in n's word.
func (n *Node) departed(v uint64, e *effects) {
	if v&live != 0 || !empty(v) {
		return
	}
	n.look(e)
	n.retract(e)
	n.leave()
}

// Stop seals n and everything below it, and counts n as signalled. The caller has given the signal before, and the
// signal has reached everything below that listens to it. When Stop returns, every guard acquired before and not
// released is counted at n. It is idempotent; a second caller waits for the first.
//
// Where guards were spread, and more were released than had been acquired, it panics, once all that is done.
func (n *Node) Stop() {
	// A scope that holds nothing, knows nobody and is waited on by nobody is done in one step. This is the usual end
	// of a child: WithCancel, no guard of its own, cancel.
	v := n.word.Load()
	if v|warned == live|loose|canary|warned && n.word.CompareAndSwap(v, v&^live|signalled) {
		return
	}
	if n.word.Load()&signalled != 0 { // not v: somebody may have been quicker
		return
	}
	var e effects
	n.seal(&e)
	n.word.Or(signalled)
	n.look(&e)
	n.leave()
	e.run()
	if e.misuse != "" {
		panic(e.misuse)
	}
}

// seal seals what is linked under n, then n.
func (n *Node) seal(e *effects) {
	n.walk.Lock()
	defer n.walk.Unlock()
	if n.sealed { // behind the lock: an answer before the first walk is over would break invariant 3
		return
	}
	n.mu.Lock()
	n.closing = true
	kids := n.kids.snapshot() // walked outside mu: a child made meanwhile need not wait, it is born sealed
	n.mu.Unlock()
	for _, k := range kids {
		k.seal(e)
	}
	n.fold(e)
	if v := n.word.And(^live) &^ live; empty(v) {
		n.departed(v, e)
	} else {
		n.up(v, e)
	}
	n.sealed = true
}
