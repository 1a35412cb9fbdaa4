package eventloop

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

// An inbox is the state of a loop and the callbacks it has accepted. The two belong together: whether a callback is
// accepted is decided by the state, and whether the loop is over by both.
//
//	Idle ──▶ Starting ──▶ Running ──▶ Stopping ──▶ Stopped
//	  │          └────────────────────▶┘             ▲
//	  └──────────────────────────────────────────────┘
//
// Every transition is one compare-and-swap on state. Invariants:
//
//  1. A callback is pushed under mu after the state was seen to be Running under mu, or against a debt that was
//     incurred so.
//  2. The loop takes itself for drained under mu, when the state is Stopping, nothing is queued and nothing is owed.
//     Whoever saw Running under mu has pushed by then, and whoever comes later sees Stopping. So nothing is accepted
//     behind the loop's back, and no lock is needed to stop it.
//  3. Only the loop's goroutine takes, in the order of the pushes, and what it takes it runs.
//
// models/inbox.pml checks that over every interleaving, together with variants that must fail.
//
// A mutex and chunks, and not an atomic counter that hands out slots: that takes two atomic operations a callback as
// well, twice the memory, and was slower at every number of producers. Measured as Post until run, on two processors of an
// AMD EPYC, medians of 11 interleaved rounds, with 1, 2, 8 producers: this 14, 21, 44 ns, slots 32, 62, 58 ns, a chan func()
// with a buffer of 1024 82, 88, 105 ns.
type inbox struct {
	state atomic.Int32 // a State

	refused atomic.Uint64 // callbacks
	tooLate atomic.Uint64 // those refused while Stopping

	mu          sync.Mutex
	awake       sync.Cond
	first, last *chunk
	accepted    uint64      // callbacks, with those that paid a debt
	owed        int         // completions that were promised: the loop is not over without them
	asleep      bool        // the loop waits, and nobody has woken it yet
	kicked      bool        // it has something to do that is not a callback
	asking      []chan bool // who waits for it to be idle
	in          string      // what the loop runs that is not a callback: Counts.In

	offloads, handles tally // who outside is at work for the loop

	_        [64]byte      // producers write above, the loop below
	executed atomic.Uint64 // callbacks
}

// A chunk holds callbacks in order. It takes two kilobytes, with the eight bytes that the allocator adds: with eight
// kilobytes it was no faster, and a program may have a loop for each of its thousand actors.
type chunk struct {
	next *chunk
	n    int
	fs   [253]func()
}

// chunks are emptied ones, for all loops. Those that nobody needs go with the second collection of garbage, so a queue that
// was long is given back, and an idle loop has none. Where producers are ahead of the loop, allocating was a third of the
// time. With eight spare chunks for each loop, two producers took 0.6 of a channel's time where this takes 0.4.
var chunks = sync.Pool{New: func() any { return new(chunk) }}

func newInbox() *inbox {
	b := new(inbox)
	b.awake.L = &b.mu
	return b
}

func (b *inbox) is(s State) bool { return State(b.state.Load()) == s }

func (b *inbox) swap(from, to State) bool { return b.state.CompareAndSwap(int32(from), int32(to)) }

// begin takes the inbox from Idle to Starting. in is what the loop runs first: nobody sees it Starting without that.
func (b *inbox) begin(in string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.swap(Idle, Starting) {
		return false
	}
	b.in = in
	return true
}

// enter says that the loop begins to run something that is not a callback; with "", that this is over. Only the loop's
// goroutine calls it, which may therefore read in without mu.
func (b *inbox) enter(in string) {
	b.mu.Lock()
	b.in = in
	b.mu.Unlock()
}

// post accepts f, or refuses it.
func (b *inbox) post(f func()) bool {
	b.lock()
	if s := State(b.state.Load()); s != Running {
		b.mu.Unlock()
		b.refuse(s)
		return false
	}
	wake := b.push(f)
	b.mu.Unlock()
	if wake {
		b.awake.Signal()
	}
	return true
}

// lock looks a few times whether mu, which is held for some ten nanoseconds, is free before it queues for it, and in between
// gives way to whoever may hold it and wait for a processor. Mutex.Lock itself does not look where goroutines wait for one, and
// pays for a sleep and a wake-up. 8 producers on two processors take 0.6 of a channel's time with Lock alone, 0.5 where they
// look, and 0.35 where they give way too.
func (b *inbox) lock() {
	for range 10 {
		for range 20 {
			if b.mu.TryLock() {
				return
			}
		}
		runtime.Gosched()
	}
	b.mu.Lock()
}

// refuse counts a callback that was refused because of s.
func (b *inbox) refuse(s State) {
	b.refused.Add(1)
	if s == Stopping {
		b.tooLate.Add(1)
	}
}

// push reports whether the loop has to be woken. mu is held.
func (b *inbox) push(f func()) (wake bool) {
	c := b.last
	if c == nil || c.n == len(c.fs) {
		c = b.grow()
	}
	c.fs[c.n] = f
	c.n++
	b.accepted++
	wake = b.asleep
	b.asleep = false
	return wake
}

func (b *inbox) grow() *chunk {
	c := chunks.Get().(*chunk)
	if b.last == nil {
		b.first = c
	} else {
		b.last.next = c
	}
	b.last = c
	return c
}

// owe promises the loop the completion of an offload, which pay delivers or forgive takes back. It is refused as post is.
//
// All three count the offload in the same step: neither is it missed while its completion is not owed yet, or not queued,
// nor counted when the loop ends with that.
func (b *inbox) owe() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.is(Running) {
		return false
	}
	b.owed++
	b.offloads.add()
	return true
}

// pay delivers. over says that the offload is not running any more; else it is until offloads.done is called.
func (b *inbox) pay(f func(), over bool) {
	b.mu.Lock()
	b.owed--
	wake := b.push(f)
	if over {
		b.offloads.done()
	}
	b.mu.Unlock()
	if wake {
		b.awake.Signal()
	}
}

func (b *inbox) forgive() {
	b.mu.Lock()
	b.owed--
	b.offloads.done()
	b.mu.Unlock()
	b.kick() // it may have been the last thing that a stopping loop waits for
}

// kick has the loop look around.
func (b *inbox) kick() {
	b.mu.Lock()
	b.kicked, b.asleep = true, false
	b.mu.Unlock()
	b.awake.Signal()
}

// stop begins the end, and reports whether it was this call that did, and from which state.
func (b *inbox) stop() (from State, flipped bool) {
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

// take returns the next chunk, which is the caller's until it is given back as old. It waits for one, and returns nil
// after a kick, or with over when there will be none.
func (b *inbox) take(old *chunk) (c *chunk, over bool) {
	if old != nil {
		old.n = 0
		chunks.Put(old)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		switch {
		case b.first != nil:
			c = b.first
			b.first, c.next = c.next, nil
			if b.first == nil {
				b.last = nil
			}
			return c, false
		case b.is(Stopping) && b.owed == 0:
			return nil, true
		case b.kicked:
			b.kicked = false
			return nil, false
		}
		b.answer()
		b.asleep = true
		b.awake.Wait()
	}
}

// end is the last thing the loop does.
func (b *inbox) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.swap(Stopping, Stopped)
	b.in = "" // an init function that was not called
	b.answer()
}

// idle returns a channel on which the loop says, when it has nothing to run, whether nothing else is going on either.
// Whoever does not wait for that any more says so with forget.
func (b *inbox) idle() chan bool {
	answer := make(chan bool, 1)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asking = append(b.asking, answer)
	if b.asleep || b.is(Idle) || b.is(Stopped) {
		b.answer()
	}
	return answer
}

func (b *inbox) forget(answer chan bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asking = slices.DeleteFunc(b.asking, func(a chan bool) bool { return a == answer })
}

// answer tells those who asked. mu is held, and no callback is running.
func (b *inbox) answer() {
	if len(b.asking) == 0 {
		return
	}
	quiet := b.counts().quiet()
	for _, a := range b.asking {
		a <- quiet
	}
	b.asking = nil
}

// counts returns what is going on, but for the timers that are pending. mu is held: until it is let go of, what is found to be
// nothing stays nothing, but for the handles, which are looked at last. So if all is nothing, it is at that moment.
func (b *inbox) counts() Counts {
	c := Counts{Queued: int(b.accepted - b.executed.Load()), In: b.in}
	c.Offloads = max(b.offloads.count(), b.owed) // work may have returned when the time-out is still to be queued
	c.Handles = b.handles.count()
	return c
}
