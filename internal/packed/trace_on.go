//go:build packedtrace

package packed

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"
)

// A Counter holds the word of a node, or the count of a stripe. This variant, for the build tag
// packedtrace, records the last changes of all counters: see [Transitions]. A global mutex makes
// the order of the records the order of the changes. After an operation, the goroutine may yield
// the processor, so that rare interleavings become frequent.
type Counter struct{ value atomic.Uint64 }

func (c *Counter) Load() uint64 {
	if beforeStep != nil {
		beforeStep(nil)
		return c.value.Load()
	}
	defer yield()
	return c.value.Load()
}

// Store is only used to initialize a counter, so it is not recorded.
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

// beforeStep, if not nil, is called before each operation on a counter, on the pointer to stripes, and
// before a mutex is locked; mu is that mutex, or else nil. The explorer of schedules lets another
// goroutine run during the call. It runs one goroutine at a time, so changes need no lock then, and
// are not recorded.
var beforeStep func(mu *sync.Mutex)

// A Mutex is a sync.Mutex that calls beforeStep.
type Mutex struct{ mu sync.Mutex }

func (m *Mutex) Lock() {
	if beforeStep != nil {
		beforeStep(&m.mu)
	}
	m.mu.Lock()
}

func (m *Mutex) Unlock() { m.mu.Unlock() }

// A stripesPointer is an atomic pointer that calls beforeStep.
type stripesPointer struct{ p atomic.Pointer[stripes] }

func (p *stripesPointer) Load() *stripes {
	if beforeStep != nil {
		beforeStep(nil)
	}
	return p.p.Load()
}

func (p *stripesPointer) Store(s *stripes) {
	if beforeStep != nil {
		beforeStep(nil)
	}
	p.p.Store(s)
}

func (p *stripesPointer) Swap(s *stripes) *stripes { return p.p.Swap(s) }

// yield lets other goroutines run, in one of four calls.
func yield() {
	if rand.IntN(4) == 0 {
		runtime.Gosched()
	}
}

// A transition is one change of a counter. It holds the address of the counter instead of a
// pointer, because it must not keep the node from being collected.
type transition struct {
	goroutine   string
	stack       [8]uintptr
	counter     uintptr
	operation   string
	before, now uint64
}

var trace struct {
	sync.Mutex
	frozen bool
	n      int // number of transitions recorded, of which the last are in the ring
	ring   [64]transition
}

// change replaces the value v of c by f(v), and records that unless the value stays the same.
func (c *Counter) change(operation string, f func(v uint64) uint64) (before, now uint64) {
	if beforeStep != nil {
		beforeStep(nil)
		before = c.value.Load()
		now = f(before)
		c.value.Store(now)
		return before, now
	}
	defer yield()
	trace.Lock()
	defer trace.Unlock()
	before = c.value.Load()
	now = f(before)
	c.value.Store(now)
	if before == now || trace.frozen {
		return before, now
	}
	t := &trace.ring[trace.n%len(trace.ring)]
	trace.n++
	*t = transition{counter: uintptr(unsafe.Pointer(c)), operation: operation, before: before, now: now}
	var header [64]byte
	t.goroutine = string(bytes.Fields(header[:runtime.Stack(header[:], false)])[1])
	runtime.Callers(3, t.stack[:])
	return before, now
}

// FreezeTransitions ends the recording until the next call of [Transitions]. A test calls it when
// it has detected a failure, so that other goroutines do not push the relevant records out of the
// ring.
func FreezeTransitions() {
	trace.Lock()
	defer trace.Unlock()
	trace.frozen = true
}

// Transitions returns the last 64 changes of counters, one per line, oldest first, and starts a new
// recording. names maps addresses of counters to names; other counters appear as #1, #2, and so on.
func Transitions(names map[uintptr]string) string {
	trace.Lock()
	defer trace.Unlock()
	var b strings.Builder
	unnamed := 0
	for i := max(0, trace.n-len(trace.ring)); i < trace.n; i++ {
		t := &trace.ring[i%len(trace.ring)]
		name := names[t.counter]
		if name == "" {
			unnamed++
			name = fmt.Sprintf("#%d", unnamed)
			names[t.counter] = name
		}
		fmt.Fprintf(&b, "%6d goroutine %-5s %-8s %v -> %v   %s in %s\n",
			i, t.goroutine, name, Word(t.before), Word(t.now), t.operation, t.callers())
	}
	trace.n, trace.frozen = 0, false
	return b.String()
}

// callers returns the names of the functions of this package that led to the transition.
func (t *transition) callers() string {
	var names []string
	frames := runtime.CallersFrames(t.stack[:])
	for {
		f, more := frames.Next()
		_, name, found := strings.Cut(f.Function, "/packed.")
		if !found {
			break
		}
		names = append(names, strings.NewReplacer("(*Node).", "", "(*list).", "", "(*stripes).", "").Replace(name))
		if !more {
			break
		}
	}
	return strings.Join(names, " < ")
}
