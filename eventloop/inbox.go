package eventloop

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// An inbox is the state of a loop together with the callbacks that it has accepted. The state
// decides whether a callback is accepted; both together decide whether the loop has drained.
//
//	Idle ──▶ Starting ──▶ Running ──▶ Stopping ──▶ Stopped
//	  │          └────────────────────▶┘             ▲
//	  └──────────────────────────────────────────────┘
//
// Every transition is one compare-and-swap of state. Invariants:
//
//  1. A callback is pushed while its producer holds mu and has seen Running under mu, or as a
//     completion that was promised in that way.
//  2. The loop considers itself drained while it holds mu, the state is Stopping, the queue is
//     empty and no completion is promised. Every producer that saw Running under mu has pushed by
//     then, and every later one sees Stopping. So no callback is accepted after that, and stopping
//     the loop needs no lock.
//  3. Only the loop's goroutine takes callbacks, in the order in which they were pushed, and it
//     runs every callback that it takes.
//
// models/inbox.pml checks this over every interleaving, together with variants that must fail.
//
// The alternative to a mutex and chunks is an atomic counter that assigns slots. It takes as many
// atomic operations per callback and twice the memory, and took two to three times as long from
// Post to the call, with one producer and with two.
type inbox struct {
	state   atomic.Int32 // the state of the loop, a value of type State
	dropped atomic.Bool  // whether the program has no reference to the Loop left; see drop

	refused         atomic.Uint64 // the number of refused callbacks
	refusedStopping atomic.Uint64 // the number of refused callbacks that were posted while the loop was stopping
	refusedStopped  atomic.Uint64 // the number of refused callbacks that were posted after the loop had stopped
	refusedFull     atomic.Uint64 // the number of refused callbacks for which there was no room
	slow            *stopwatch    // the clock for the times in chunks; nil without WithSlowCallback
	limit           uint64        // the greatest number of callbacks that are accepted and have not finished; 0 for no limit

	mu            sync.Mutex
	awake         sync.Cond
	first, last   *chunk
	accepted      uint64 // the number of callbacks accepted and completions delivered
	waited        uint64 // the number of callbacks that had to wait for room
	promised      int    // the number of completions that will still be delivered; the loop does not end before that
	sleeping      bool   // the loop's goroutine is asleep and has not been woken yet
	wakeRequested bool   // the loop must check its timers and its state
	waiters       waitList[func()]
	idleWaiters   []chan bool // each receives an answer the next time that the loop has nothing to run; see idle
	running       string      // the kind of the running function, "" for a callback; see Counts.In

	offloads, handles counter // the numbers of running offloads and of held handles

	_          [64]byte      // padding: producers write the fields above, and the loop uses the fields below after each callback
	executed   atomic.Uint64 // the number of callbacks that have run
	hasWaiters atomic.Bool   // whether waiters contains an entry; changed while mu is held
}

// A chunk holds callbacks in order. With the eight bytes that the allocator adds, it takes two
// kilobytes. Chunks of eight kilobytes were not faster, and a program with a thousand loops would
// need more memory.
type chunk struct {
	next   *chunk
	n      int
	queued *[250]time.Duration // when each callback was queued; nil without WithSlowCallback
	fs     [250]func()
}

// chunks holds empty chunks for all loops. The second garbage collection frees the chunks that are
// not in use, so an idle loop has none. Without reuse, a third of the time was spent on allocation
// when producers were faster than the loop. Eight spare chunks for each loop were not enough: with
// these, two producers took 50 % longer than with chunks.
var chunks = sync.Pool{New: func() any { return new(chunk) }}

func newInbox() *inbox {
	b := new(inbox)
	b.awake.L = &b.mu
	return b
}

func (b *inbox) is(s State) bool { return State(b.state.Load()) == s }

func (b *inbox) swap(from, to State) bool { return b.state.CompareAndSwap(int32(from), int32(to)) }

// begin changes the state from Idle to Starting, and records the kind of function that the loop
// calls first. It returns false if the state is not Idle.
func (b *inbox) begin(running string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.swap(Idle, Starting) {
		return false
	}
	b.running = running
	return true
}

// setRunning records that the loop runs a function of the given kind, other than a callback. An
// empty string records that this function has returned. Only the loop's goroutine calls setRunning,
// so that goroutine may read running without holding mu.
func (b *inbox) setRunning(running string) {
	b.mu.Lock()
	b.running = running
	b.mu.Unlock()
}

// post queues f if the state is Running, and otherwise counts it as refused.
func (b *inbox) post(f func()) bool {
	// The function lock also begins with TryLock, but is not inlined. The inlined TryLock here
	// saves a seventh of the time.
	if !b.mu.TryLock() {
		lock(&b.mu)
	}
	if s := State(b.state.Load()); s != Running {
		b.mu.Unlock()
		b.countRefused(s)
		return false
	}
	if b.limit > 0 && !b.hasRoom() {
		b.mu.Unlock()
		b.refused.Add(1)
		b.refusedFull.Add(1)
		return false
	}
	wake := b.push(f)
	b.mu.Unlock()
	if wake {
		b.awake.Signal()
	}
	return true
}

// hasRoom reports whether Post may queue a callback: the limit is not reached, and no goroutine
// waits in PostWait. The loop's goroutine gives new room to waiting goroutines once it has locked
// mu. If Post did not leave the room to them, a producer that calls Post all the time could take it
// each time before the loop's goroutine has locked mu. The caller holds mu.
func (b *inbox) hasRoom() bool {
	return len(b.waiters) == 0 && b.accepted-b.executed.Load() < b.limit
}

// postWaiting queues f as soon as there is room, and then closes the channel of w. It returns false
// if the state is not Running. The caller of postWaiting calls leave if it stops waiting.
//
// hasWaiters is set before the number of executed callbacks is read, and the loop reads hasWaiters
// after it has changed that number. So either postWaiting sees the room, or the loop sees the
// waiter, and no waiter is forgotten.
func (b *inbox) postWaiting(f func()) (w *waiter[func()], ok bool) {
	lock(&b.mu)
	if s := State(b.state.Load()); s != Running {
		b.mu.Unlock()
		b.countRefused(s)
		return nil, false
	}
	w = b.waiters.add(f)
	b.hasWaiters.Store(true)
	wake := b.fillRoom()
	if len(b.waiters) > 0 {
		b.waited++
	}
	b.mu.Unlock()
	if wake {
		b.awake.Signal()
	}
	return w, true
}

// leave ends the wait of w, which postWaiting has returned, and counts its callback as refused. It
// returns false if the callback has been queued.
func (b *inbox) leave(w *waiter[func()]) bool {
	b.mu.Lock()
	left := b.waiters.remove(w)
	b.hasWaiters.Store(len(b.waiters) > 0)
	b.mu.Unlock()
	if left {
		b.countRefused(State(b.state.Load()))
	}
	return left
}

// fillRoom queues callbacks that wait for room, and reports whether the loop's goroutine must be
// woken. The caller holds mu.
func (b *inbox) fillRoom() (wake bool) {
	for len(b.waiters) > 0 && b.is(Running) && b.accepted-b.executed.Load() < b.limit {
		wake = b.push(b.waiters[0].what) || wake
		b.waiters.next()
	}
	b.hasWaiters.Store(len(b.waiters) > 0)
	return wake
}

// countRefused counts a callback that was refused in state s.
func (b *inbox) countRefused(s State) {
	b.refused.Add(1)
	switch s {
	case Stopping:
		b.refusedStopping.Add(1)
	case Stopped:
		b.refusedStopped.Add(1)
	}
}

// push appends f to the queue and reports whether the loop's goroutine must be woken. The caller
// holds mu.
func (b *inbox) push(f func()) (wake bool) {
	c := b.last
	if c == nil || c.n == len(c.fs) {
		c = b.grow()
	}
	if b.slow != nil {
		c.queued[c.n] = b.slow.now()
	}
	c.fs[c.n] = f
	c.n++
	b.accepted++
	wake = b.sleeping
	b.sleeping = false
	return wake
}

func (b *inbox) grow() *chunk {
	c := chunks.Get().(*chunk)
	if b.slow != nil && c.queued == nil {
		c.queued = new([250]time.Duration)
	}
	if b.last == nil {
		b.first = c
	} else {
		b.last.next = c
	}
	b.last = c
	return c
}

// promise announces that the completion of an offload will be delivered. The caller must call
// deliver or cancelPromise afterwards. promise returns false if the state is not Running.
//
// promise, deliver and cancelPromise change the number of offloads in the same critical section as
// the promised completions and the queue. So an offload that is running, or whose completion is
// still to be queued, is always counted, and one that has finished is no longer counted when the
// loop ends.
func (b *inbox) promise() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.is(Running) {
		return false
	}
	b.promised++
	b.offloads.add()
	return true
}

// deliver queues f, the callback of an offload, for which the inbox has promised a place. If
// workDone is false, the work of the offload is still running, and the offload calls offloads.done
// when its work returns.
func (b *inbox) deliver(f func(), workDone bool) {
	b.mu.Lock()
	b.promised--
	wake := b.push(f)
	if workDone {
		b.offloads.done()
	}
	b.mu.Unlock()
	if wake {
		b.awake.Signal()
	}
}

func (b *inbox) cancelPromise() {
	b.mu.Lock()
	b.promised--
	b.offloads.done()
	b.mu.Unlock()
	b.wake() // a stopping loop may be waiting for this completion only, and can end now
}

// wake makes the loop check its timers and its state.
func (b *inbox) wake() {
	b.mu.Lock()
	b.wakeRequested, b.sleeping = true, false
	b.mu.Unlock()
	b.awake.Signal()
}

// stop changes the state to Stopping, or to Stopped if it was Idle. It returns the previous state,
// and whether this call changed the state.
func (b *inbox) stop() (from State, changed bool) {
	for {
		switch s := State(b.state.Load()); s {
		case Idle:
			if b.swap(s, Stopped) {
				return s, true
			}
		case Starting, Running:
			if b.swap(s, Stopping) {
				return s, true
			}
		default:
			return s, false
		}
	}
}

// take returns the next chunk of callbacks. The chunk belongs to the caller until the caller passes
// it to the next call of take. take blocks while there is nothing to do. It returns a nil chunk if
// the loop must check its timers and its state; drained is then true if no callback will follow.
//
// take removes all chunks from the queue at once and links them, so it locks mu once for all of
// them. If it locked mu for each chunk, a busy producer would usually hold mu at that moment. The
// loop's goroutine would then wait until the producer gives up its processor, and the queue would
// grow.
func (b *inbox) take(old *chunk) (c *chunk, drained bool) {
	if old != nil {
		c = old.next
		old.n, old.next = 0, nil
		chunks.Put(old)
		if c != nil {
			return c, false
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		switch {
		case b.first != nil:
			c = b.first
			b.first, b.last = nil, nil
			return c, false
		case b.is(Stopping) && b.promised == 0:
			return nil, true
		case b.wakeRequested:
			b.wakeRequested = false
			return nil, false
		}
		b.notifyIdleWaiters()
		b.sleeping = true
		b.awake.Wait()
	}
}

// end changes the state from Stopping to Stopped. It is the last operation of the loop.
func (b *inbox) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.swap(Stopping, Stopped)
	b.running = "" // the field running is still set if the loop was stopped before it called its init function
	b.notifyIdleWaiters()
}

// idle returns a channel that receives a value the next time the loop has nothing to run. The value
// is true if no offload is running and no handle is held at that time. A caller that stops waiting
// calls forget.
func (b *inbox) idle() chan bool {
	answer := make(chan bool, 1)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.idleWaiters = append(b.idleWaiters, answer)
	if b.sleeping || b.is(Idle) || b.is(Stopped) {
		b.notifyIdleWaiters()
	}
	return answer
}

func (b *inbox) forget(answer chan bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.idleWaiters = slices.DeleteFunc(b.idleWaiters, func(a chan bool) bool { return a == answer })
}

// notifyIdleWaiters is called when the loop has nothing to run. It tells every goroutine that waits
// for this moment whether the loop is quiescent now. The caller holds mu.
func (b *inbox) notifyIdleWaiters() {
	if len(b.idleWaiters) == 0 {
		return
	}
	quiet := b.counts().isQuiet()
	for _, a := range b.idleWaiters {
		a <- quiet
	}
	b.idleWaiters = nil
}

// counts returns all counts except for the number of pending timers. The caller holds mu. While mu
// is held, a count of zero stays zero, except for the number of handles, which is read last. So if
// all counts are zero, there is a time at which they were all zero.
func (b *inbox) counts() Counts {
	c := Counts{Queued: int(b.accepted - b.executed.Load()), In: b.running}
	// After a time-out, the work may have returned although the completion has not been queued yet.
	c.Offloads = max(b.offloads.count(), b.promised)
	c.Handles = b.handles.count()
	return c
}
