//go:build packedtrace

package packed

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
)

// A Counter holds the word of a node, or the count of a stripe. This variant, for the tests that are
// built with the tag packedtrace, calls beforeStep and onChange.
type Counter struct{ value atomic.Uint64 }

// beforeStep is called before each operation on a counter or on the pointer to stripes, and before a
// mutex is locked, with a pointer to it. The explorer of schedules lets another goroutine run during
// the call.
var beforeStep = yield

// yield lets other goroutines run, in one of four calls, so that rare interleavings become frequent.
func yield(any) {
	if rand.IntN(4) == 0 {
		runtime.Gosched()
	}
}

// onChange is called after each change of a counter, with changing held. So the order of the calls
// is the order of the changes.
var onChange = func(c *Counter, operation string, before, now uint64) {}

var changing sync.Mutex

// change replaces the value v of c by f(v).
func (c *Counter) change(operation string, f func(v uint64) uint64) (before, now uint64) {
	beforeStep(c)
	changing.Lock()
	defer changing.Unlock()
	before = c.value.Load()
	now = f(before)
	c.value.Store(now)
	onChange(c, operation, before, now)
	return before, now
}

func (c *Counter) Load() uint64 {
	beforeStep(c)
	return c.value.Load()
}

// Store is only used to initialize a counter.
func (c *Counter) Store(v uint64) { c.value.Store(v) }

func (c *Counter) Add(d uint64) (now uint64) {
	_, now = c.change("Add", func(v uint64) uint64 { return v + d })
	return now
}

func (c *Counter) And(mask uint64) (before uint64) {
	before, _ = c.change("And", func(v uint64) uint64 { return v & mask })
	return before
}

func (c *Counter) Or(mask uint64) (before uint64) {
	before, _ = c.change("Or", func(v uint64) uint64 { return v | mask })
	return before
}

func (c *Counter) Swap(now uint64) (before uint64) {
	before, _ = c.change("Swap", func(uint64) uint64 { return now })
	return before
}

func (c *Counter) CompareAndSwap(before, now uint64) (swapped bool) {
	c.change("CompareAndSwap", func(v uint64) uint64 {
		if swapped = v == before; swapped {
			return now
		}
		return v
	})
	return swapped
}

// A Mutex is a sync.Mutex that calls beforeStep.
type Mutex struct{ mu sync.Mutex }

func (m *Mutex) Lock() {
	beforeStep(m)
	m.mu.Lock()
}

func (m *Mutex) Unlock() { m.mu.Unlock() }

// A stripesPointer is an atomic pointer that calls beforeStep.
type stripesPointer struct{ p atomic.Pointer[stripes] }

func (p *stripesPointer) Load() *stripes {
	beforeStep(p)
	return p.p.Load()
}

func (p *stripesPointer) Store(s *stripes) {
	beforeStep(p)
	p.p.Store(s)
}
