//go:build packedtrace

// Package steps has the atomic types and the mutex of package packed, in the variant for tests that
// are built with the tag packedtrace: each operation is a step before which a test can let another
// goroutine run, and each change of a counter is reported.
package steps

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
)

// A Counter is an atomic number. Its methods call Before, and OnChange if they change the number.
type Counter struct{ value atomic.Uint64 }

// Before is called before each operation on a counter or a pointer, and before a mutex is locked,
// with a pointer to it. The explorer of schedules lets another goroutine run during the call.
var Before = Yield

// Yield lets other goroutines run, in one of four calls, so that rare interleavings become
// frequent.
func Yield(any) {
	if rand.IntN(4) == 0 {
		runtime.Gosched()
	}
}

// OnChange is called after each change of a counter, with Changing held. So the order of the calls
// is the order of the changes.
var OnChange = func(c *Counter, operation string, before, now uint64) {}

// Changing is locked while a counter changes.
var Changing sync.Mutex

// change replaces the value v of c by f(v).
func (c *Counter) change(operation string, f func(v uint64) uint64) (before, now uint64) {
	Before(c)
	Changing.Lock()
	defer Changing.Unlock()
	before = c.value.Load()
	now = f(before)
	c.value.Store(now)
	OnChange(c, operation, before, now)
	return before, now
}

// Peek returns the value, as Load does, but it does not count as a step: no other goroutine can run
// before it.
func (c *Counter) Peek() uint64 { return c.value.Load() }

func (c *Counter) Load() uint64 {
	Before(c)
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

// A Mutex is a sync.Mutex whose method Lock calls the function Before first.
type Mutex struct{ mu sync.Mutex }

func (m *Mutex) Lock() {
	Before(m)
	m.mu.Lock()
}

func (m *Mutex) Unlock() { m.mu.Unlock() }

// IsLocked reports whether m is locked. Unlike Lock, it does not call Before, so the test runs no
// other goroutine first.
func (m *Mutex) IsLocked() bool {
	if !m.mu.TryLock() {
		return true
	}
	m.mu.Unlock()
	return false
}

// A Pointer is an atomic pointer whose operations call the function Before first.
type Pointer[T any] struct{ p atomic.Pointer[T] }

// Peek returns the pointer. Unlike Load, it does not call Before, so the test runs no other
// goroutine first.
func (p *Pointer[T]) Peek() *T { return p.p.Load() }

func (p *Pointer[T]) Load() *T {
	Before(p)
	return p.p.Load()
}

func (p *Pointer[T]) Store(v *T) {
	Before(p)
	p.p.Store(v)
}
