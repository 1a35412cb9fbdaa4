//go:build packedtrace

package packed_test

import (
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/swansong-go/swansong/internal/packed"
)

// A world is the tree of nodes on which the threads of a schedule operate. It also records what
// operations have done that have returned, for the checks of the rules.
type world struct {
	root, child, grandchild, sibling *packed.Node

	tree      *packed.Tree
	seen      *packed.Hash // hash of all values that the running thread has read
	all       []*packed.Node
	held      []*heldGuard
	cancelled map[*packed.Node]bool // whether the stop of the node has been signalled
	stopped   map[*packed.Node]bool // whether Stop of the node has returned
	channels  map[*packed.Node][]<-chan struct{}
	fault     string // the first rule that was broken, with the words of the nodes at that time
}

// fail records that a rule was broken, unless one was broken before.
func (w *world) fail(format string, args ...any) {
	if w.fault == "" {
		packed.FreezeTransitions()
		w.fault = fmt.Sprintf(format, args...) + "\n" + words(w.nodes())
	}
}

// name returns the name of a node of the world.
func (w *world) name(n *packed.Node) string {
	for name, m := range w.nodes() {
		if m == n {
			return name
		}
	}
	return "another node"
}

// A heldGuard is a guard that has been acquired, and whose release has not begun.
type heldGuard struct {
	node *packed.Node
	c    *packed.Counter
	open []<-chan struct{} // channels returned by Done that were open when the acquisition returned
}

func newWorld() *world {
	w := &world{
		root: newNode(nil), seen: new(packed.Hash), cancelled: map[*packed.Node]bool{}, stopped: map[*packed.Node]bool{},
		channels: map[*packed.Node][]<-chan struct{}{},
	}
	w.child = newNode(w.root)
	w.grandchild = newNode(w.child)
	w.sibling = newNode(w.root)
	w.all = []*packed.Node{w.root, w.child, w.grandchild, w.sibling}
	w.tree = packed.NewTree(w.all...)
	return w
}

// A start is a state of the nodes in which the threads of a test may begin.
type start struct {
	is   string
	make func() *world
}

func worlds() []start {
	return []start{
		{"new nodes", newWorld},
		{"nodes whose Done was called", func() *world {
			w := newWorld()
			for _, n := range w.all {
				w.done(n)
			}
			return w
		}},
		{"a child with stripes", func() *world {
			w := newWorld()
			grown(w.child)
			return w
		}},
	}
}

// grown gives n stripes. It calls Pin, which links n, because only a linked node can have stripes.
func grown(n *packed.Node) {
	n.Pin()
	n.GrowSmall()
	n.Unpin()
}

func (w *world) nodes() map[string]*packed.Node {
	return map[string]*packed.Node{"root": w.root, "child": w.child, "grandchild": w.grandchild, "sibling": w.sibling}
}

// isCancelled reports whether the signal of a stop of n or of an ancestor has been given.
func (w *world) isCancelled(n *packed.Node) bool {
	return n != nil && (w.cancelled[n] || w.isCancelled(n.Parent()))
}

func (w *world) acquire(n *packed.Node) *heldGuard {
	c, before, v := n.Count()
	n.FinishAcquire(c, before, v)
	return w.addHeld(n, c)
}

func (w *world) addHeld(n *packed.Node, c *packed.Counter) *heldGuard {
	h := &heldGuard{node: n, c: c}
	for m := n; m != nil; m = m.Parent() {
		for _, ch := range w.channels[m] {
			if !isClosed(ch) {
				h.open = append(h.open, ch)
			}
		}
	}
	w.held = append(w.held, h)
	w.forget(1)
	return h
}

func (w *world) release(h *heldGuard) {
	w.held = slices.DeleteFunc(w.held, func(o *heldGuard) bool { return o == h })
	h.node.Release(h.c)
}

// try does what TryGuard does: it asks the context of n, unless the values of the words prove that
// no stop of n was signalled before.
func (w *world) try(n *packed.Node) {
	late := w.isCancelled(n)
	w.read(late)
	c, before, v := n.Count()
	n.FinishAcquire(c, before, v)
	w.read(w.isCancelled(n))
	succeeds := packed.BeforeWarning(v) || n.BeforeWarning() || !w.isCancelled(n)
	w.read(w.isCancelled(n))
	if succeeds && late {
		w.fail("TryGuard of %s succeeds after the stop was signalled", w.name(n))
	}
	w.release(w.addHeld(n, c))
}

func (w *world) stop(n *packed.Node) {
	n.Warn()
	w.forget(2)
	w.cancelled[n] = true
	n.Stop()
	w.stopped[n] = true
}

// walk does what GuardCount does. The result must include every guard that is held during the whole
// walk, and no guard that is never held during the walk.
func (w *world) walk() {
	before := slices.Clone(w.held)
	counted := map[packed.Owner]int{}
	w.root.Walk(func(o packed.Owner, guards int) { counted[o] += guards })
	for _, n := range w.all {
		least := 0
		for _, h := range before {
			if h.node == n && slices.Contains(w.held, h) {
				least++
			}
		}
		if counted[n.Owner()] < least {
			w.fail("a walk counts %d guards on %s, where %d are held", counted[n.Owner()], w.name(n), least)
		}
	}
}

// ask calls HasCompleted of n, as the first call of Work does. HasCompleted reports whether n is
// complete or was complete before.
func (w *world) ask(n *packed.Node) {
	wasComplete := n.IsComplete()
	if hasCompleted := n.HasCompleted(); wasComplete && !hasCompleted {
		w.fail("HasCompleted of %s is false although the node was complete before", w.name(n))
	}
}

func (w *world) done(n *packed.Node) { w.channels[n] = append(w.channels[n], n.Done()) }

// read records that the running thread has read the value of a condition on which its next
// operations depend. So two states of the world that differ in that value do not count as the same.
func (w *world) read(condition bool) { *w.seen = w.seen.AddBools(condition) }

// forget records that the running thread no longer depends on what it has read, except for the
// guards that are held.
func (w *world) forget(at uint64) {
	h := packed.Hash(5).Add(at)
	for _, held := range w.held {
		h += packed.Hash(6).Add(uint64(slices.Index(w.all, held.node)), uint64(w.tree.Number(held.c)), uint64(len(held.open)))
	}
	*w.seen = h
}

// promises returns a hash of what finished operations have promised: which nodes are signalled or
// stopped, and which channels are closed. Each thread may depend on these promises, so they are a
// part of the state of the world.
func (w *world) promises() (h packed.Hash) {
	for i, n := range w.all {
		h = h.AddBools(w.cancelled[n], w.stopped[n])
		for _, ch := range w.channels[n] {
			h = h.Add(uint64(w.tree.Channel(i, ch))).AddBools(isClosed(ch))
		}
	}
	return h
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// check is called between two steps, and fails if a rule is broken.
func (w *world) check() {
	for n, stopped := range w.stopped {
		if stopped && n.IsLive() {
			w.fail("%s is live although a call of Stop has returned", w.name(n))
		}
	}
	for _, h := range w.held {
		for n := h.node; n != nil; n = n.Parent() {
			if n.IsComplete() {
				w.fail("%s is complete while a guard of %s is held", w.name(n), w.name(h.node))
			}
		}
		if slices.ContainsFunc(h.open, isClosed) {
			w.fail("a channel of Done was open when a guard of %s was acquired, and is closed while the guard is held", w.name(h.node))
		}
	}
}

// finish is called when all threads have ended. If no thread has stopped the root, finish stops it.
// Then it acquires a late guard on each node. It ends at the first rule that is broken.
func (w *world) finish() {
	if w.fault != "" {
		return
	}
	defer func() {
		if v := recover(); v != nil {
			w.fail("panic after all operations have ended: %v\n%s", v, debug.Stack())
		}
	}()
	if !w.stopped[w.root] {
		w.stop(w.root)
	}
	w.expectComplete("after all guards were released and the root was stopped")
	for _, n := range w.all {
		if w.fault != "" {
			return
		}
		h := w.acquire(n) // a late guard
		w.check()
		w.release(h)
	}
	w.expectComplete("after late guards were released")
}

func (w *world) expectComplete(when string) {
	for n, stopped := range w.stopped {
		if stopped && !n.IsComplete() {
			w.fail("%s is stopped and not complete %s", w.name(n), when)
		}
		for _, ch := range w.channels[n] {
			if stopped && !isClosed(ch) {
				w.fail("a channel of Done of %s is open %s", w.name(n), when)
			}
		}
	}
}

// An operation is what one thread does. Its function prepare is called before the threads begin,
// and returns the function that the thread runs.
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
		{"guard sibling", run(func(w *world) { w.release(w.acquire(w.sibling)) })},
		{"release root", releaseOf(root, nothing)},
		{"release child", releaseOf(child, nothing)},
		{"release child's stripe", releaseOf(child, grown)},
		{"try root", run(func(w *world) { w.try(w.root) })},
		{"try child", run(func(w *world) { w.try(w.child) })},
		{"try grandchild", run(func(w *world) { w.try(w.grandchild) })},
		{"guard child, try child", run(func(w *world) {
			h := w.acquire(w.child)
			w.try(w.child)
			w.release(h)
		})},
		{"stop root", run(func(w *world) { w.stop(w.root) })},
		{"stop child", run(func(w *world) { w.stop(w.child) })},
		{"stop grandchild", run(func(w *world) { w.stop(w.grandchild) })},
		{"done root", run(func(w *world) { w.done(w.root) })},
		{"done child", run(func(w *world) { w.done(w.child) })},
		{"grow root", run(func(w *world) { w.root.GrowSmall() })},
		{"grow child", run(func(w *world) { w.child.GrowSmall() })},
		{"pin child", run(func(w *world) {
			w.child.Pin()
			w.child.Unpin()
		})},
		{"sweep root", run(func(w *world) { w.child.UnlinkIfIdle() })},
		{"walk root", run(func(w *world) { w.walk() })},
		{"ask child", run(func(w *world) { w.ask(w.child) })},
	}
}

// TestExplore_EveryOrderOfTwoOperationsKeepsInvariants runs every two operations concurrently, also
// an operation with itself, in each order of their steps.
func TestExplore_EveryOrderOfTwoOperationsKeepsInvariants(t *testing.T) {
	exploreAll(t, worlds(), operations(), number(t, "SWANSONG_SCHEDULES", 500), number(t, "SWANSONG_PREEMPTIONS", 3))
}

// TestExplore_EveryOrderOfTwoAcquisitionsAfterStopKeepsInvariants runs every two acquisitions
// concurrently in a tree that was stopped before.
func TestExplore_EveryOrderOfTwoAcquisitionsAfterStopKeepsInvariants(t *testing.T) {
	stopped := start{"a stopped tree", func() *world {
		w := newWorld()
		w.stop(w.root)
		return w
	}}
	guards := slices.DeleteFunc(operations(), func(op operation) bool { return !strings.HasPrefix(op.name, "guard ") })
	exploreAll(t, []start{stopped}, guards, number(t, "SWANSONG_SCHEDULES", 500), number(t, "SWANSONG_PREEMPTIONS", 2))
}

// TestExplore_EveryOrderOfTwoOperationsAndStopKeepsInvariants runs every two operations
// concurrently with a stop of the root.
func TestExplore_EveryOrderOfTwoOperationsAndStopKeepsInvariants(t *testing.T) {
	ops := operations()
	stop := ops[slices.IndexFunc(ops, func(op operation) bool { return op.name == "stop root" })]
	exploreAll(t, worlds(), ops, number(t, "SWANSONG_SCHEDULES", 0), number(t, "SWANSONG_PREEMPTIONS", 1), stop)
}

// number returns the value of an environment variable, or n if it is not set.
func number(t *testing.T, name string, n int) int {
	if s := os.Getenv(name); s != "" {
		if _, err := fmt.Sscan(s, &n); err != nil {
			t.Fatalf("%s is %q, not a number: %v", name, s, err)
		}
	}
	return n
}

// exploreAll explores, in each of the worlds, every pair of operations in ops, until a pair fails.
// A subtest explores all pairs with the same first operation. The operations in others run
// concurrently with each pair. If maxSchedules schedules do not suffice to visit all states,
// exploreAll runs every schedule with at most the given number of preemptions instead.
func exploreAll(t *testing.T, worlds []start, ops []operation, maxSchedules, preemptions int, others ...operation) {
	schedules, whole, pairs := 0, 0, 0
	explore := func(t *testing.T, world start, threads []operation) {
		x := explorer{preemptions: unbounded, most: maxSchedules, newWorld: world.make, ops: threads}
		fault := x.run()
		schedules += x.schedules
		// run has stopped at maxSchedules before it has visited all states
		if fault == "" && (len(x.path) > 0 || x.schedules == 0) {
			x.preemptions, x.most = preemptions, unbounded
			fault = x.run()
			schedules += x.schedules
		} else {
			whole++
		}
		if fault != "" {
			var names []string
			for _, op := range threads {
				names = append(names, op.name)
			}
			t.Fatalf("%s, in the world of %s, schedule %d: %s", strings.Join(names, " | "), world.is, x.schedules, fault)
		}
	}
	for i, a := range ops {
		passed := t.Run(a.name, func(t *testing.T) {
			for _, b := range ops[i:] {
				pairs++
				for _, world := range worlds {
					explore(t, world, append([]operation{a, b}, others...))
				}
			}
		})
		if !passed {
			return
		}
	}
	t.Logf("%d schedules of %d pairs of operations in %d worlds; %d of %d without a bound", schedules, pairs, len(worlds), whole, pairs*len(worlds))
}
