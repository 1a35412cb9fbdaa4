package packed

import (
	"sync/atomic"

	"github.com/swansong-go/swansong/internal/steps"
)

// A Counter is an atomic number: the word of a node (see word.go), or the count of a stripe (see
// stripes.go).
type Counter = steps.Counter

// An Owner is the value that a [Node] is part of.
type Owner interface {
	// OnComplete is called when a pinned node (see [Node.Pin]) has become complete, with no lock of
	// the tree held. It may be called more than once, and late: the node may hold a guard again.
	OnComplete()
}

// A Node is the part of a scope that counts guards. The zero Node is not usable: call [Node.Init].
type Node struct {
	word    Counter                // the state; its bits are in word.go
	stripes steps.Pointer[stripes] // if not nil, guards are counted here, not in word; changed under mu
	parent  *Node                  // nil for a root
	owner   Owner

	// sealMu is held while the subtree is sealed, so that a second stopper waits for the first
	// (docs/internals/counting.md#invariant-3). It is locked from parent to child.
	sealMu steps.Mutex

	// mu guards the fields below. It is held for a few loads and stores only, never across calls of
	// user code. It is locked from parent to child, and after sealMu.
	mu         steps.Mutex
	sealing    bool          // seal has listed the children that it will seal; children that are linked later are sealed at once
	reopened   bool          // a guard was acquired after n had been stopped and its last guard released
	collisions atomic.Uint32 // a time window, and the number of collisions in it; see noteCollision
	done       chan struct{} // the open channel of Done; nil if there is none
	children   *Node         // the ring of linked children; see push
	linked     int           // the number of linked children

	next, prev *Node // neighbours in the ring of the parent's children; guarded by the parent's mu
}

// Init prepares n as a child of parent, or as a root if parent is nil. It does not change parent: n
// is not in parent's list of children yet. Set cancelledElsewhere if the context of the scope can
// be cancelled by code outside this module, without a call of [Node.Warn] for n or an ancestor.
func (n *Node) Init(parent *Node, owner Owner, cancelledElsewhere bool) {
	n.parent, n.owner = parent, owner
	v := live | canary
	if parent != nil {
		v |= unlinked
	}
	if cancelledElsewhere {
		v |= warned
	}
	n.word.Store(v)
}

// Parent returns the parent given to [Node.Init], nil for a root.
func (n *Node) Parent() *Node { return n.parent }

// Owner returns the owner given to [Node.Init].
func (n *Node) Owner() Owner { return n.owner }

// IsLive reports whether no stop has reached n yet. A stop may be on its way, so the result is only
// good for choosing a fast path.
func (n *Node) IsLive() bool { return n.word.Load()&live != 0 }

// IsSignalled reports whether [Node.Stop] has finished its work on n.
func (n *Node) IsSignalled() bool { return n.word.Load()&signalled != 0 }

// IsComplete reports whether n is complete at the moment: it has been stopped, and no guard is held
// in its subtree.
func (n *Node) IsComplete() bool { return isComplete(n.word.Load()) }

// HasCompleted reports whether n is complete or was so before a late guard was acquired. A call
// that is concurrent with the acquisition of that guard may return false.
func (n *Node) HasCompleted() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.reopened || n.IsComplete()
}

// Count begins an acquisition: it adds one guard to the counter that the calling goroutine should
// use (the word of n or, if n has stripes, one of these). It returns the counter, and its values
// before and after the addition. The caller must pass all three to [Node.FinishAcquire]. Count and
// FinishAcquire are separate because the compiler cannot inline one function with the work of both.
func (n *Node) Count() (c *Counter, before, v uint64) {
	c = n.counter()
	return c, c.Load(), c.Add(oneGuard) // calls are evaluated from left to right
}

// counter returns the counter for a guard of the calling goroutine: the word of n or, if n has
// stripes, one of these.
func (n *Node) counter() *Counter {
	if s := n.stripes.Load(); s != nil {
		return s.pick()
	}
	return &n.word
}

// FinishAcquire completes the acquisition for which [Node.Count] returned c, before and v. When it
// returns, the guard is acquired, and every sealed ancestor counts it. If n is live and linked,
// FinishAcquire takes no lock, except to add stripes.
//
// It panics if n is a zero Node, for the 2^30th guard that n would hold, and if a sealed ancestor
// has about 2^25 children with guards.
func (n *Node) FinishAcquire(c *Counter, before, v uint64) {
	// Fast path: n is live and linked, and c did not change between its load and the addition.
	if v&(live|unlinked|canary) != live|canary || v != before+oneGuard {
		n.acquireSlow(c, v)
	}
}

// Release releases the guard that [Node.Count] counted in c. It is correct even if c is a stripe
// that n no longer uses. A call of Release synchronizes before the closing of every channel of
// [Node.Done] that is closed because of it.
//
// It panics if c counts no guard, and leaves the word unchanged. While n counts on stripes, it
// cannot notice that; [Node.Stop] panics later.
func (n *Node) Release(c *Counter) {
	if v := c.Add(minusGuard); v&(live|canary) != live|canary {
		n.releaseSlow(c, v)
	}
}

// acquireSlow finishes an acquisition that left the value v in the counter c.
func (n *Node) acquireSlow(c *Counter, v uint64) {
	if v&(live|unlinked|canary) == live|canary { // FinishAcquire has seen a collision
		n.noteCollision()
		return
	}
	if c != &n.word {
		if v&live != 0 {
			return // the stripe counts less than zero or far too many guards; if all stripes together do, fold reports it
		}
		v = n.word.Add(oneGuard) // the stripe was folded into the word, which now counts the guard
	}
	n.arriveSlow(v)
}

// arriveSlow finishes an acquisition that left v in the word of n.
func (n *Node) arriveSlow(v uint64) {
	var e effects
	n.arrive(v, oneGuard, &e)
	if e.misuse != "" {
		n.depart(n.word.Add(minusGuard), &e) // undo the acquisition
	}
	e.run()
	if e.misuse != "" {
		panic(e.misuse)
	}
}

// releaseSlow finishes a release that left the value v in the counter c.
func (n *Node) releaseSlow(c *Counter, v uint64) {
	if c != &n.word {
		if v&live != 0 {
			return // the stripe counts less than zero or far too many guards; if all stripes together do, fold reports it
		}
		v = n.word.Add(minusGuard) // the stripe was folded into the word, which now counts the guard
	}
	tooMany := v&canary == 0
	if tooMany {
		v = n.word.Add(oneGuard)
	}
	var e effects
	// Call depart even if this release was one too many. Until the addition above undid it, the
	// word did not look empty. So a concurrent release of the last guard may not have completed n.
	n.depart(v, &e)
	e.run()
	if tooMany {
		panic(neverAcquired)
	}
}

const (
	neverAcquired = "ctxshutdown: a guard was released that was never acquired; do not copy a Guard"
	overflow      = "ctxshutdown: more than 2^30 guards on one scope; release each guard when its work is done"

	tooManyChildren = "ctxshutdown: more than 2^25 children with guards in one scope that has been stopped"
)

// arrive finishes an addition of unit, which is one guard or one child, to the word of n. The
// addition returned v. When arrive returns, n is linked, and announced if it is sealed.
func (n *Node) arrive(v, unit uint64, e *effects) {
	if v&canary == 0 {
		n.word.Add(-unit)
		if v < canary {
			panic("ctxshutdown: use of a zero Swansong; make one with New or WithCancel")
		}
		panic(overflow)
	}
	wasComplete := isComplete(v - unit)
	if v&unlinked != 0 {
		n.link()
		v = n.word.Load() // link has changed the word, and may have sealed n
	}
	if v&live != 0 {
		return // as long as n is live, no other node depends on whether n holds guards
	}
	// A concurrent resolve may have found the node complete before the addition, and may not have
	// closed the channel yet. Locking mu waits until it has closed the channel. So a channel that
	// is open when the acquisition returns stays open until the guard is released.
	n.mu.Lock()
	n.reopened = n.reopened || wasComplete
	n.mu.Unlock()
	n.announce(v, e)
}

// announce counts n as a child in the word of its parent, if n is sealed and is not counted there
// (announced) already. v is a value of the word of n.
//
// The parent's word is changed first, and the announced bit is set afterwards. So an acquisition
// that finds the bit set may return at once: every ancestor counts it
// (docs/internals/counting.md#arrival).
func (n *Node) announce(v uint64, e *effects) {
	p := n.parent
	if p == nil || v&(live|announced) != 0 {
		return
	}
	if p.word.Load()&childBits >= manyChildren {
		e.misuse = tooManyChildren
		return
	}
	if w := p.word.Add(oneChild); w&(live|unlinked|canary) != live|canary {
		p.arrive(w, oneChild, e)
	}
	if n.word.Or(announced)&announced != 0 {
		p.depart(p.word.Add(minusChild), e) // another goroutine has announced n, so undo the addition
		return
	}
	n.retract(e) // undoes the announcement if all guards have been released in the meantime
}

// retract undoes announce if n has no guards and no announced children: it clears the bit
// "announced" in the word of n, and subtracts one from the number of announced children in the
// parent's word.
//
// Concurrent calls are harmless: only the call whose compare-and-swap clears the bit changes the
// parent's word. If another goroutine acquires a guard between the load and the compare-and-swap,
// the compare-and-swap fails, so n stays announced.
func (n *Node) retract(e *effects) {
	for {
		v := n.word.Load()
		if v&announced == 0 || !isEmpty(v) {
			return
		}
		if n.word.CompareAndSwap(v, v&^announced) {
			p := n.parent
			p.depart(p.word.Add(minusChild), e)
			return
		}
	}
}

// depart finishes a subtraction that left v in the word of n. If n is sealed and empty now, it
// completes n: it closes the completion channel, retracts the announcement, and unlinks n.
func (n *Node) depart(v uint64, e *effects) {
	if v&live != 0 || !isEmpty(v) {
		return
	}
	n.resolve(e)
	n.retract(e)
	n.unlink()
}

// Stop seals n and its linked descendants: from then on, the parent of a node counts the node as a
// child while the node is not empty. Stop also marks n as signalled. The caller must have given the
// signal of the stop, and the signal must have reached all descendants that derive from it. When
// Stop returns, n counts every guard that was acquired before in its subtree and has not been
// released.
//
// Stop is idempotent. A second caller waits for the first.
//
// Stop panics, after all other work is done, if a node that counted on stripes has more releases
// than acquisitions, or 2^30 guards or more, or if a node has about 2^25 children with guards.
func (n *Node) Stop() {
	// A node that is unlinked, holds nothing and has no waiter is stopped by one compare-and-swap.
	// Most children end this way: created by WithCancel, without a guard of their own, and
	// cancelled.
	v := n.word.Load()
	if v|warned == live|unlinked|canary|warned && n.word.CompareAndSwap(v, v&^live|signalled) {
		return
	}
	if n.word.Load()&signalled != 0 { // load again: a concurrent Stop may have changed the word
		return
	}
	var e effects
	n.seal(&e)
	// Set signalled first, and then resolve the completion: if the last guard is released after the
	// call of Or, its release resolves the completion. If the last guard was released before, the
	// call of resolve does so.
	n.word.Or(signalled)
	n.resolve(&e)
	n.unlink()
	e.run()
	if e.misuse != "" {
		panic(e.misuse)
	}
}

// seal seals all nodes linked below n, and then n.
func (n *Node) seal(e *effects) {
	n.sealMu.Lock()
	defer n.sealMu.Unlock()
	// Test the word only with sealMu held: returning before a concurrent seal has finished would
	// break docs/internals/counting.md#invariant-3. A node that was sealed when it was linked has
	// only sealed nodes below.
	if n.word.Load()&live == 0 {
		return
	}
	n.mu.Lock()
	n.sealing = true
	children := n.snapshot()
	n.mu.Unlock()
	// Do not hold mu here: linking a child of n need not wait until the whole subtree is sealed.
	for _, c := range children {
		c.seal(e)
	}
	n.fold(false, e)
	// The method And clears the live bit. Every guard that was counted while n was live is in the
	// value that And returns. Every later acquisition finds n sealed, and announces it.
	if v := n.word.And(^live) &^ live; isEmpty(v) {
		n.depart(v, e)
	} else {
		n.announce(v, e)
	}
}

// closedChan is the result of Done for a node that is complete already. It is closed from the
// start, and belongs to no synctest bubble.
var closedChan = make(chan struct{})

func init() { close(closedChan) }

// Done returns a channel that is closed once n is complete. The channel stays closed if a late
// guard makes n incomplete again; then the next call of Done returns a new channel. Done does not
// stop n.
//
// A guard is late if it is acquired after the stop.
func (n *Node) Done() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if isComplete(n.word.Or(awaited)) {
		return closedChan
	}
	if n.done == nil {
		n.done = make(chan struct{})
	}
	return n.done
}

// resolve closes the channel of Done if n is complete, and notes the call of OnComplete if n is
// pinned.
//
// The word is read and the channel is closed in one critical section of mu. Otherwise a guard
// acquired in between could get a channel from Done that is closed although the guard is held.
func (n *Node) resolve(e *effects) {
	n.mu.Lock()
	v := n.word.Load()
	if isComplete(v) && n.done != nil {
		close(n.done)
		n.done = nil // a late guard may make n incomplete again
	}
	n.mu.Unlock()
	if isComplete(v) && v&pinned != 0 {
		e.completed = append(e.completed, n)
	}
}

// effects collects what is done only after all locks of the tree have been released: calls of
// OnComplete, and a panic.
type effects struct {
	completed []*Node // nodes for which the method run calls Owner.OnComplete
	misuse    string  // the text of a panic, which the caller raises; empty if there is none
}

// run calls OnComplete of the owners of completed nodes. The caller holds no lock.
func (e *effects) run() {
	for _, n := range e.completed {
		n.owner.OnComplete()
	}
}

// Walk calls f for n and its linked descendants, parents first, with the number of guards held on
// each node itself. It may omit descendants without a guard in their subtree. No lock is held
// during f.
func (n *Node) Walk(f func(o Owner, guards int)) {
	n.mu.Lock()
	guards, children := n.guards(), n.snapshot()
	n.mu.Unlock()
	f(n.owner, int(max(0, guards)))
	for _, c := range children {
		c.Walk(f)
	}
}
