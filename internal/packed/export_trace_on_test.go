//go:build packedtrace

package packed

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"unsafe"

	"github.com/swansong-go/swansong/internal/steps"
)

// SetBeforeStep sets the function that is called before each step; see steps.Before. If f is nil,
// goroutines yield again before some steps.
func SetBeforeStep(f func(on any)) {
	if steps.Before = f; f == nil {
		steps.Before = steps.Yield
	}
}

// StartRecording discards the transitions that were recorded before, and records new ones from now
// on.
func StartRecording() {
	Transitions(map[uintptr]string{})
	steps.OnChange = record
}

// StopRecording ends the recording until the next call of [StartRecording]. Recording takes far
// more time than the changes themselves.
func StopRecording() { steps.OnChange = func(*Counter, string, uint64, uint64) {} }

// GrowSmall gives n four stripes, the smallest number, and makes all goroutines use the first
// stripe. Otherwise the stripe of a goroutine depends on the address of its stack, which differs
// from run to run.
func (n *Node) GrowSmall() {
	n.grow(1)
	if s := n.stripes.Peek(); s != nil {
		s.factor.Store(0)
	}
}

// TraceOf returns the last transitions, with the given names for the words and stripes of nodes.
func TraceOf(nodes map[string]*Node) string {
	return "last transitions, oldest first:\n" + Transitions(addresses(nodes))
}

// Traced reports whether this build records transitions, which makes deep recursion slow.
const Traced = true

// A transition is one change of a counter. It holds the address of the counter instead of a
// pointer, because it must not keep the node from being collected.
type transition struct {
	goroutine   string
	stack       [8]uintptr
	counter     uintptr
	operation   string
	before, now uint64
}

// trace contains the latest transitions. The mutex steps.Changing guards it.
var trace struct {
	frozen bool
	n      int // number of transitions recorded; the ring has the last 64 of them
	ring   [64]transition
}

func init() { steps.OnChange = record }

// record adds a change of a counter to the trace. It is the function steps.OnChange in tests.
func record(c *Counter, operation string, before, now uint64) {
	if before == now || trace.frozen {
		return
	}
	t := &trace.ring[trace.n%len(trace.ring)]
	trace.n++
	*t = transition{counter: uintptr(unsafe.Pointer(c)), operation: operation, before: before, now: now}
	var header [64]byte
	t.goroutine = string(bytes.Fields(header[:runtime.Stack(header[:], false)])[1])
	runtime.Callers(4, t.stack[:])
}

// FreezeTransitions ends the recording until the next call of [Transitions]. A test calls it when
// it has detected a failure, so that other goroutines do not push the relevant records out of the
// ring.
func FreezeTransitions() {
	steps.Changing.Lock()
	defer steps.Changing.Unlock()
	trace.frozen = true
}

// Transitions returns the last 64 changes of counters, one per line, oldest first, and starts a new
// recording. names maps addresses of counters to names; other counters appear as #1, #2, and so on.
func Transitions(names map[uintptr]string) string {
	steps.Changing.Lock()
	defer steps.Changing.Unlock()
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
		names = append(names, strings.NewReplacer("(*Node).", "", "(*stripes).", "").Replace(name))
		if !more {
			break
		}
	}
	return strings.Join(names, " < ")
}

// peek returns the value of c. Unlike a call of Load, the call is no step of an explored schedule.
func peek(c *Counter) uint64 { return c.Peek() }
