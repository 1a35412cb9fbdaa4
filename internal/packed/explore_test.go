//go:build packedtrace

package packed_test

import (
	"fmt"
	"iter"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/swansong-go/swansong/internal/packed"
)

// A thread is a goroutine of an explored schedule. It runs as a coroutine: it stops before each step,
// and goes on when the explorer chooses it.
type thread struct {
	next  func() (*sync.Mutex, bool)
	yield func(*sync.Mutex)
	waits *sync.Mutex // the mutex that the next step locks, or nil
	ended bool
}

func newThread(f func()) *thread {
	th := &thread{}
	th.next, _ = iter.Pull(func(yield func(*sync.Mutex) bool) {
		th.yield = func(mu *sync.Mutex) { yield(mu) }
		yield(nil)
		f()
	})
	th.step()
	return th
}

// step runs the thread until it stops before its next step.
func (th *thread) step() {
	packed.SetBeforeStep(th.yield)
	mu, more := th.next()
	packed.SetBeforeStep(noStop)
	th.waits, th.ended = mu, !more
}

// noStop is called before each step that belongs to no thread: it lets the step go on.
func noStop(*sync.Mutex) {}

// canRun reports whether the next step of the thread would not block.
func (th *thread) canRun() bool {
	if th.ended {
		return false
	}
	if th.waits == nil {
		return true
	}
	free := th.waits.TryLock()
	if free {
		th.waits.Unlock()
	}
	return free
}

// A decision is a point of a schedule at which the explorer chose among threads. The first option
// is the thread that ran last, if it can go on; then every other option is a preemption.
type decision struct {
	options     []int
	chosen      int
	canGoOn     bool
	preemptions int // before this decision
}

// explore runs every schedule of the threads with at most the given number of preemptions, and
// returns how many schedules these are. It begins each in a new world. Once a schedule has broken a
// rule, explore returns at once, with what happened.
func explore(preemptions int, newWorld func() *world, ops []operation) (schedules int, fault string) {
	packed.SetBeforeStep(noStop)
	defer packed.SetBeforeStep(nil)
	var path []decision
	for {
		schedules++
		if fault = runSchedule(&path, newWorld(), ops); fault != "" {
			return schedules, fault
		}
		for len(path) > 0 { // find the last decision that has another option
			d := &path[len(path)-1]
			if d.chosen+1 < len(d.options) && !(d.canGoOn && d.preemptions >= preemptions) {
				d.chosen++
				break
			}
			path = path[:len(path)-1]
		}
		if len(path) == 0 {
			return schedules, ""
		}
	}
}

// runSchedule runs the operations in one schedule. It repeats the decisions in path; at each
// decision after those it chooses the first option, and appends the decision to path.
func runSchedule(path *[]decision, w *world, ops []operation) (fault string) {
	var threads []*thread
	for _, op := range ops {
		threads = append(threads, newThread(op.prepare(w)))
	}
	last, preemptions := -1, 0
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
		if at == len(*path) {
			*path = append(*path, decision{options: options, canGoOn: canGoOn, preemptions: preemptions})
		}
		d := (*path)[at]
		if !slices.Equal(d.options, options) {
			return fmt.Sprintf("step %d can be taken by %v, and by %v when the schedule was run before", at, options, d.options)
		}
		if canGoOn && d.chosen > 0 {
			preemptions++
		}
		last = options[d.chosen]
		taken = append(taken, last)
		threads[last].step()
		if w.check(); w.fault != "" {
			break
		}
	}
	if w.fault == "" {
		if i := slices.IndexFunc(threads, func(th *thread) bool { return !th.ended }); i >= 0 {
			w.fault = fmt.Sprintf("thread %d waits forever for a mutex", i)
		} else {
			w.finish()
		}
	}
	if w.fault != "" {
		return fmt.Sprintf("%s\nthreads in the order of their steps: %v\nnodes: %v", w.fault, taken, w.nodes())
	}
	return ""
}

// A world is the tree on which the threads of a schedule operate, and what they may rely on.
type world struct {
	root, child, grandchild *packed.Node
	held                    []*hold
	cancelled               map[*packed.Node]bool // the signal of a stop has been given
	stopped                 map[*packed.Node]bool // Stop has returned
	channels                map[*packed.Node][]<-chan struct{}
	fault                   string
}

// A hold is a guard that has been acquired, and whose release has not begun.
type hold struct {
	node *packed.Node
	c    *packed.Counter
	open []<-chan struct{} // channels of Done that were open when the acquisition returned
}

func newWorld() *world {
	w := &world{
		root: newNode(nil), cancelled: map[*packed.Node]bool{}, stopped: map[*packed.Node]bool{},
		channels: map[*packed.Node][]<-chan struct{}{},
	}
	w.child = newNode(w.root)
	w.grandchild = newNode(w.child)
	return w
}

// worlds returns the states in which the threads begin: nothing has happened yet; goroutines wait for
// the completion of all nodes; the child is linked and has stripes.
func worlds() []func() *world {
	return []func() *world{
		newWorld,
		func() *world {
			w := newWorld()
			for _, n := range []*packed.Node{w.root, w.child, w.grandchild} {
				w.done(n)
			}
			return w
		},
		func() *world {
			w := newWorld()
			grown(w.child)
			return w
		},
	}
}

// grown gives n stripes. Only a linked node gets them, and Pin links it.
func grown(n *packed.Node) {
	n.Pin()
	n.GrowSmall()
	n.Unpin()
}

func (w *world) nodes() map[string]*packed.Node {
	return map[string]*packed.Node{"root": w.root, "child": w.child, "grandchild": w.grandchild}
}

// isCancelled reports whether the signal of a stop of n or of an ancestor has been given.
func (w *world) isCancelled(n *packed.Node) bool {
	return n != nil && (w.cancelled[n] || w.isCancelled(n.Parent()))
}

func (w *world) acquire(n *packed.Node) *hold {
	c, v := n.Count()
	n.FinishAcquire(c, v)
	return w.hold(n, c)
}

func (w *world) hold(n *packed.Node, c *packed.Counter) *hold {
	h := &hold{node: n, c: c}
	for m := n; m != nil; m = m.Parent() {
		for _, ch := range w.channels[m] {
			if !isClosed(ch) {
				h.open = append(h.open, ch)
			}
		}
	}
	w.held = append(w.held, h)
	return h
}

func (w *world) release(h *hold) {
	w.held = slices.DeleteFunc(w.held, func(o *hold) bool { return o == h })
	h.node.Release(h.c)
}

// try does what TryGuard does: it asks the context only if the words do not prove the answer.
func (w *world) try(n *packed.Node) {
	late := w.isCancelled(n)
	c, v := n.Count()
	n.FinishAcquire(c, v)
	succeeds := packed.BeforeWarning(v) || n.BeforeWarning() || !w.isCancelled(n)
	if succeeds && late {
		w.fault = "TryGuard succeeds after the stop was signalled"
	}
	w.release(w.hold(n, c))
}

func (w *world) stop(n *packed.Node) {
	n.Warn()
	w.cancelled[n] = true
	n.Stop()
	w.stopped[n] = true
}

func (w *world) done(n *packed.Node) { w.channels[n] = append(w.channels[n], n.Done()) }

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// check looks for a broken rule between two steps.
func (w *world) check() {
	for n, stopped := range w.stopped {
		if stopped && n.IsLive() {
			w.fault = "a node is live although a call of Stop has returned"
		}
	}
	for _, h := range w.held {
		for n := h.node; n != nil; n = n.Parent() {
			if n.IsComplete() {
				w.fault = "a node is complete while a guard in its subtree is held"
			}
		}
		if slices.ContainsFunc(h.open, isClosed) {
			w.fault = "a channel of Done is closed while a guard is held that was acquired before"
		}
	}
}

// finish looks for a broken rule when all threads have ended. It stops the root if no thread has,
// and then acquires a late guard on each node.
func (w *world) finish() {
	if !w.stopped[w.root] {
		w.stop(w.root)
	}
	all := []*packed.Node{w.root, w.child, w.grandchild}
	w.expectComplete("after all guards were released and the root was stopped")
	for _, n := range all {
		h := w.acquire(n)
		w.check()
		w.release(h)
	}
	w.expectComplete("after late guards were released")
}

func (w *world) expectComplete(when string) {
	for n, stopped := range w.stopped {
		if stopped && !n.IsComplete() {
			w.fault = "a stopped node is not complete " + when
		}
		for _, ch := range w.channels[n] {
			if stopped && !isClosed(ch) {
				w.fault = "a channel of Done is open " + when
			}
		}
	}
}

// An operation is what one thread does. prepare runs before the threads begin.
type operation struct {
	name    string
	prepare func(w *world) (run func())
}

func operations() []operation {
	run := func(f func(w *world)) func(*world) func() {
		return func(w *world) func() { return func() { f(w) } }
	}
	releaseOf := func(node func(*world) *packed.Node, prepare func(*packed.Node)) func(*world) func() {
		return func(w *world) func() {
			prepare(node(w))
			h := w.acquire(node(w))
			return func() { w.release(h) }
		}
	}
	root := func(w *world) *packed.Node { return w.root }
	child := func(w *world) *packed.Node { return w.child }
	nothing := func(*packed.Node) {}
	return []operation{
		{"guard root", run(func(w *world) { w.release(w.acquire(w.root)) })},
		{"guard child", run(func(w *world) { w.release(w.acquire(w.child)) })},
		{"guard grandchild", run(func(w *world) { w.release(w.acquire(w.grandchild)) })},
		{"release root", releaseOf(root, nothing)},
		{"release child", releaseOf(child, nothing)},
		{"release child's stripe", releaseOf(child, grown)},
		{"try root", run(func(w *world) { w.try(w.root) })},
		{"try child", run(func(w *world) { w.try(w.child) })},
		{"guard child, try child", run(func(w *world) {
			h := w.acquire(w.child)
			w.try(w.child)
			w.release(h)
		})},
		{"stop root", run(func(w *world) { w.stop(w.root) })},
		{"stop child", run(func(w *world) { w.stop(w.child) })},
		{"done root", run(func(w *world) { w.done(w.root) })},
		{"done child", run(func(w *world) { w.done(w.child) })},
		{"grow root", run(func(w *world) { w.root.GrowSmall() })},
		{"grow child", run(func(w *world) { w.child.GrowSmall() })},
		{"pin child", run(func(w *world) {
			w.child.Pin()
			w.child.Unpin()
		})},
		{"sweep root", run(func(w *world) { w.child.UnlinkIfIdle() })},
	}
}

// TestExplore_EveryPairOfOperationsKeepsTheRules runs two operations, and an operation with itself, in
// every schedule with at most three preemptions, or SWANSONG_PREEMPTIONS.
func TestExplore_EveryPairOfOperationsKeepsTheRules(t *testing.T) {
	exploreAll(t, preemptions(t, 3))
}

// TestExplore_EveryPairBesideStopKeepsTheRules runs every two operations beside a stop of the root, in
// every schedule with at most one preemption, or one less than SWANSONG_PREEMPTIONS.
func TestExplore_EveryPairBesideStopKeepsTheRules(t *testing.T) {
	ops := operations()
	stop := ops[slices.IndexFunc(ops, func(op operation) bool { return op.name == "stop root" })]
	exploreAll(t, preemptions(t, 2)-1, stop)
}

// preemptions returns SWANSONG_PREEMPTIONS, or else n.
func preemptions(t *testing.T, n int) int {
	if s := os.Getenv("SWANSONG_PREEMPTIONS"); s != "" {
		if _, err := fmt.Sscan(s, &n); err != nil {
			t.Fatalf("SWANSONG_PREEMPTIONS is not a number: %v", err)
		}
	}
	return n
}

// exploreAll explores every pair of operations beside the others, in all worlds.
func exploreAll(t *testing.T, preemptions int, others ...operation) {
	total, ops := 0, operations()
	for i, a := range ops {
		for _, b := range ops[i:] {
			threads := append([]operation{a, b}, others...)
			for world, newWorld := range worlds() {
				n, fault := explore(preemptions, newWorld, threads)
				total += n
				if fault != "" {
					var names []string
					for _, op := range threads {
						names = append(names, op.name)
					}
					t.Fatalf("%s, world %d, schedule %d: %s", strings.Join(names, " | "), world, n, fault)
				}
			}
		}
	}
	pairs := len(ops) * (len(ops) + 1) / 2
	t.Logf("%d schedules of %d pairs of operations in %d worlds, at most %d preemptions each", total, pairs, len(worlds()), preemptions)
}
