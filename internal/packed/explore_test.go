//go:build packedtrace

package packed_test

import (
	"fmt"
	"iter"
	"runtime/debug"
	"slices"

	"github.com/swansong-go/swansong/internal/packed"
)

// The explorer runs operations on the real code in every order of their steps. A step is one atomic
// operation, or the locking of a mutex, together with the code that follows until the next step.

// A thread is a goroutine of an explored schedule. It runs as a coroutine: it stops before each
// step, and goes on when the explorer chooses it.
type thread struct {
	next  func() (any, bool)
	yield func(any)
	on    any         // the operand of the next step: a counter, a mutex or the pointer to stripes
	seen  packed.Hash // hash of all values that the thread has read; they determine its local variables
	ended bool

	panicked string // what the operation has panicked with, and the stack; "" if it has not panicked
}

func newThread(f func()) *thread {
	th := &thread{}
	th.next, _ = iter.Pull(func(yield func(any) bool) {
		th.yield = func(on any) { yield(on) }
		yield(nil)
		defer func() {
			if v := recover(); v != nil {
				th.panicked = fmt.Sprintf("%v\n%s", v, debug.Stack())
			}
		}()
		f()
	})
	th.step()
	return th
}

// step runs the thread until it stops before its next step.
func (th *thread) step() {
	packed.SetBeforeStep(th.yield)
	on, more := th.next()
	packed.SetBeforeStep(noStop)
	th.on, th.ended = on, !more
}

// noStop is called before the steps that the explorer takes itself, outside of any thread. Unlike
// yield, it does not stop the caller.
func noStop(any) {}

// canRun reports whether the thread can take its next step without blocking.
func (th *thread) canRun() bool { return !th.ended && !packed.IsLocked(th.on) }

// A decision is a point of a schedule at which the explorer chose among threads. The first option
// is the thread that ran last, if it can go on; then every other option is a preemption.
type decision struct {
	options     []int
	chosen      int
	canGoOn     bool
	preemptions int // the number of preemptions before this decision
}

// unbounded, as the number of preemptions of an explorer, is no limit: no schedule has so many.
const unbounded = 1 << 20

// An explorer runs every schedule of the threads with at most the given number of preemptions, each
// in a new world. It gives up after the given number of schedules. A state consists of the tree of
// nodes, the promises of the world, and what each thread has read. If a schedule reaches a state
// that an earlier one has reached, the explorer ends that schedule.
type explorer struct {
	preemptions int
	most        int // the number of schedules after which run gives up
	newWorld    func() *world
	ops         []operation
	path        []decision // the decisions of the schedule that is running
	visited     map[packed.Hash]bool
	schedules   int
}

// run returns a description of the first schedule that breaks a rule, or "" if there is none. It
// runs that schedule again to record its transitions.
func (x *explorer) run() (fault string) {
	packed.SetBeforeStep(noStop)
	packed.StopRecording()
	defer packed.StartRecording()
	defer packed.SetBeforeStep(nil)
	x.visited, x.path, x.schedules = map[packed.Hash]bool{}, nil, 0
	for x.schedules < x.most {
		x.schedules++
		if x.runSchedule(x.newWorld()) != "" {
			packed.StartRecording()
			w := x.newWorld()
			return x.runSchedule(w) + packed.TraceOf(w.nodes())
		}
		for len(x.path) > 0 { // find the last decision that has an option not tried yet
			d := &x.path[len(x.path)-1]
			if d.chosen+1 < len(d.options) && !(d.canGoOn && d.preemptions >= x.preemptions) {
				d.chosen++
				break
			}
			x.path = x.path[:len(x.path)-1]
		}
		if len(x.path) == 0 {
			return ""
		}
	}
	return ""
}

// runSchedule runs the operations in one schedule. It repeats the decisions in x.path; at each
// decision after those it chooses the first option. It appends the decision to x.path, until it
// comes to a state that was visited before.
func (x *explorer) runSchedule(w *world) (fault string) {
	var threads []*thread
	for _, op := range x.ops {
		threads = append(threads, newThread(op.prepare(w)))
	}
	last, preemptions, isNew := -1, 0, true
	var taken []int
	for at := 0; ; at++ {
		var options []int
		canGoOn := last >= 0 && threads[last].canRun()
		if canGoOn {
			options = []int{last}
		}
		for i, th := range threads {
			if i != last && th.canRun() {
				options = append(options, i)
			}
		}
		if len(options) == 0 {
			break
		}
		chosen := 0
		if at < len(x.path) {
			if !slices.Equal(x.path[at].options, options) {
				return fmt.Sprintf("step %d can be taken by %v, and by %v when the schedule was run before", at, options, x.path[at].options)
			}
			chosen = x.path[at].chosen
		} else if isNew {
			if isNew = x.visit(w, threads, last, preemptions); isNew {
				x.path = append(x.path, decision{options: options, canGoOn: canGoOn, preemptions: preemptions})
			}
		}
		if canGoOn && chosen > 0 {
			preemptions++
		}
		last = options[chosen]
		taken = append(taken, last)
		th := threads[last]
		th.seen = th.seen.Add(1, uint64(w.tree.Observe(th.on)))
		w.seen = &th.seen
		th.step()
		if th.panicked != "" {
			w.fail("operation %d panicked: %s", last, th.panicked)
		}
		if w.check(); w.fault != "" {
			break
		}
	}
	if i := slices.IndexFunc(threads, func(th *thread) bool { return !th.ended }); i < 0 {
		w.finish()
	} else if w.fault == "" {
		w.fail("operation %d waits forever for a mutex", i)
	}
	if w.fault != "" {
		return fmt.Sprintf("%sorder of the steps, by the number of the operation: %v\n", w.fault, taken)
	}
	return ""
}

// visit reports whether the state is new, and remembers it.
func (x *explorer) visit(w *world, threads []*thread, last, preemptions int) bool {
	h := w.tree.State().Add(uint64(w.promises()))
	for _, th := range threads {
		h = h.Add(uint64(th.seen))
	}
	// If preemptions are limited, last and preemptions also decide which schedules can follow.
	if x.preemptions < unbounded {
		h = h.Add(uint64(last), uint64(preemptions))
	}
	if x.visited[h] {
		return false
	}
	x.visited[h] = true
	return true
}
