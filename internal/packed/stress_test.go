package packed_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/swansong-go/swansong/internal/packed"
	"github.com/swansong-go/swansong/internal/testkit"
)

// The stress tests run rounds of concurrent operations and stop at the first violation. They then
// print the seed of the round, the state word of each node and, if recorded, the last transitions.
// docs/internals/debugging.md explains how to read and replay them. Environment variables:
//
//	SWANSONG_STRESS  the number of acquisitions; default one million, about a second
//	SWANSONG_SEED    the seed of all rounds; by default each round has its own
//
// A seed determines the operations of each goroutine, but not how they interleave.

// fromEnv returns the number in the environment variable name, or fallback if it is not set.
func fromEnv(t *testing.T, name string, fallback int) int {
	t.Helper()
	s := os.Getenv(name)
	if s == "" {
		return fallback
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		t.Fatalf("%s=%q: want a number", name, s)
	}
	return n
}

func stressSize(t *testing.T) int {
	t.Helper()
	return fromEnv(t, "SWANSONG_STRESS", rounds(1_000_000))
}

// seedOf returns the seed of a round.
func seedOf(t *testing.T, round int) int { return fromEnv(t, "SWANSONG_SEED", round) }

// report fails the test with the description of a violation.
func report(t *testing.T, seed int, violation string) {
	t.Helper()
	t.Fatalf("seed %d: %s\nto run this seed only: SWANSONG_SEED=%d go test -tags packedtrace -run '^%s$' ./internal/packed",
		seed, violation, seed, t.Name())
}

// roundLimit is how long a round may take before the watchdog ends the test. Rounds take
// milliseconds.
const roundLimit = 30 * time.Second

// A counter is one scope, either a Node or a naiveNode.
type counter interface {
	acquire()
	release()
	stop()
	isComplete() bool
}

// A tree is a chain of scopes, in which each scope except for the leaf has one child.
type tree struct {
	root, leaf counter
	nodes      map[string]*packed.Node // the nodes, by name; nil for the naive counting
}

const stressDepth = 4

// checkRoot lets two goroutines acquire and release guards of the leaf. While they hold one, they
// check that the root is not complete. One of them also stops the root, at a different time in each
// round; guards acquired afterwards are late guards, and count as well. Rounds have different
// lengths: in a long round, a later late guard may repair what the stop has left behind, so that
// only a short round shows the fault.
//
// It returns a description of the first violation: the root was complete while a guard was held, or
// it was not complete at the end.
func checkRoot(t tree, seed int) (acquisitions int, violation string) {
	each := 1 << (seed % 8)
	stopAt := seed / 8 % (each + 1)
	var once sync.Once
	violated := func(what string) {
		once.Do(func() {
			packed.FreezeTransitions()
			violation = what + "\n" + dump(t.nodes)
		})
	}
	work := func(stops bool) func() {
		return func() {
			for i := range each + 1 {
				if stops && i == stopAt {
					t.root.stop()
				}
				if i == each {
					break
				}
				t.leaf.acquire()
				if t.root.isComplete() {
					violated("the root (level 0) is complete while a guard of the leaf is held")
				}
				t.leaf.release()
			}
		}
	}
	both(work(true), work(false))
	if !t.root.isComplete() {
		violated("the root (level 0) is not complete after all guards were released")
	}
	return 2 * each, violation
}

// stress runs rounds of checkRoot on new trees, and fails the test at the first violation.
func stress(t *testing.T, newTree func(depth int) tree, size int) {
	var current tree
	done := 0
	for round := 0; done < size; round++ {
		seed := seedOf(t, round)
		current = newTree(stressDepth)
		watchdog := time.AfterFunc(roundLimit, func() { stuck(t, seed, current.nodes) })
		acquisitions, violation := checkRoot(current, seed)
		watchdog.Stop()
		if violation != "" {
			report(t, seed, violation)
		}
		done += acquisitions
	}
}

func TestStress_ShowsThatNaiveCountingMissesGuards(t *testing.T) {
	for round := range 10_000_000 { // the first violation is usually found within some thousand rounds
		if _, violation := checkRoot(newNaiveTree(stressDepth), round); violation != "" {
			t.Logf("violation in round %d", round)
			return
		}
	}
	t.Error("the stress test finds no violation in an algorithm that loses guards, so it proves nothing")
}

// A realNode is a Node that implements counter.
type realNode struct{ packed.Node }

func newRealTree(depth int) tree {
	root := &realNode{}
	root.Init(nil, noOwner{}, false)
	t := tree{root: root, nodes: map[string]*packed.Node{"level 0": &root.Node}}
	leaf := root
	for i := range depth {
		n := &realNode{}
		n.Init(&leaf.Node, noOwner{}, false)
		leaf = n
		t.nodes[fmt.Sprintf("level %d", i+1)] = &n.Node
	}
	t.leaf = leaf
	return t
}

func (n *realNode) acquire()         { n.AcquireOne() }
func (n *realNode) release()         { n.ReleaseOne() }
func (n *realNode) stop()            { n.Stop() }
func (n *realNode) isComplete() bool { return n.IsComplete() }

// newStripedTree is like newRealTree, but all nodes have stripes.
func newStripedTree(depth int) tree {
	t := newRealTree(depth)
	t.leaf.acquire() // the first guard puts each node into the list of its parent
	for _, n := range t.nodes {
		n.Grow()
	}
	t.leaf.release()
	return t
}

func TestStress_NoGuardIsMissed(t *testing.T) { stress(t, newRealTree, stressSize(t)) }

func TestStress_NoGuardOnStripesIsMissed(t *testing.T) { stress(t, newStripedTree, stressSize(t)/2) }

// A member is a scope in the test with random trees. A pin keeps it linked to its parent even while
// it has no guards, as the context of Work does for a real scope. It is pinned at most once, and
// unpinned when it completes.
type member struct {
	packed.Node
	name      string // the path, such as "0/1/3"
	parent    *member
	completed atomic.Bool // OnComplete was called
	signalled atomic.Bool // the stop of this member was signalled
}

func (m *member) OnComplete() {
	m.completed.Store(true)
	m.Unpin()
}

// end stops m in the order that ctxshutdown uses: warn, signal, stop.
func (m *member) end() {
	m.Warn()
	m.signalled.Store(true)
	m.Stop()
}

// isSignalled reports whether the stop of m or of an ancestor was signalled.
func (m *member) isSignalled() bool {
	for a := m; a != nil; a = a.parent {
		if a.signalled.Load() {
			return true
		}
	}
	return false
}

func (m *member) child(name string) *member {
	c := &member{name: m.name + "/" + name, parent: m}
	c.Init(&m.Node, c, false)
	return c
}

// A population is the tree of one round of the random stress, shared by its goroutines.
type population struct {
	members      []*member // the root is the first, and each parent comes before its children
	acquisitions atomic.Int64

	mu        sync.Mutex
	violation string // the first violation, or "" if there was none
}

func newPopulation() *population {
	root := &member{name: "0"}
	root.Init(nil, root, false)
	p := &population{members: []*member{root}}
	// Below the root there are four levels, with two siblings on each, so that nodes share lists of
	// children.
	for i, parent := range []int{0, 0, 1, 1, 3, 3, 5, 5} {
		p.members = append(p.members, p.members[parent].child(fmt.Sprint(i+1)))
	}
	return p
}

// nodes returns the nodes of the members of p and of the members in others, by the name of the
// member.
func (p *population) nodes(others ...*member) map[string]*packed.Node {
	nodes := map[string]*packed.Node{}
	for _, m := range append(others, p.members...) {
		nodes[m.name] = &m.Node
	}
	return nodes
}

// violated records the first violation. involved are members that take part in it.
func (p *population) violated(involved []*member, format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.violation == "" {
		packed.FreezeTransitions()
		p.violation = fmt.Sprintf(format, args...) + "\n" + dump(p.nodes(involved...))
	}
}

// withGuard acquires a guard of m, checks that no ancestor is complete, calls f, and releases the
// guard. f may be nil.
func (p *population) withGuard(m *member, f func()) {
	m.AcquireOne()
	p.acquisitions.Add(1)
	for a := m; a != nil; a = a.parent {
		if a.IsComplete() {
			p.violated([]*member{a, m}, "node %s is complete while a guard of node %s is held", a.name, m.name)
		}
	}
	if f != nil {
		f()
	}
	m.ReleaseOne()
}

// work performs n random operations.
func (p *population) work(r *rand.Rand, n int) {
	for range n {
		m := p.members[r.IntN(len(p.members))]
		above := p.members[0]
		for a := m; a != nil; a = a.parent {
			if r.IntN(3) == 0 {
				above = a
				break
			}
		}
		switch dice := r.IntN(200); {
		case dice < 100:
			p.withGuard(m, nil)
		case dice < 140:
			p.checkDone(m, above)
		case dice < 160: // acquires a second guard while one is held, as Clone does
			p.withGuard(m, func() { p.withGuard(m, nil) })
		case dice < 180:
			p.checkGrandchild(m)
		case dice < 190:
			p.checkPinned(m)
		case dice < 191:
			p.checkWarning(m)
		case dice < 193:
			m.Grow() // gives m stripes, unless m is sealed
			p.withGuard(m, nil)
		case dice < 199:
			m.child("stopped").Stop()
			// This step acquires no guard. Count it as an acquisition, because the stress ends
			// after a certain number of acquisitions.
			p.acquisitions.Add(1)
		case r.IntN(2) == 0: // so many children that linking them also sweeps the list of children of m
			for range 40 {
				p.withGuard(m.child("brief"), nil)
			}
		default:
			m.end()
		}
	}
}

// checkDone checks the Done channels of above, which is m or an ancestor of m, while a guard of m
// is held. The guard may be a late one.
func (p *population) checkDone(m, above *member) {
	earlier := above.Done()
	p.withGuard(m, func() {
		open := !testkit.IsClosed(earlier)
		if testkit.IsClosed(above.Done()) {
			p.violated([]*member{above, m}, "Done of node %s returned a closed channel while a guard of node %s is held", above.name, m.name)
		}
		if open && testkit.IsClosed(earlier) {
			p.violated([]*member{above, m}, "a channel of node %s was closed while a guard of node %s is held", above.name, m.name)
		}
	})
}

// checkGrandchild stops a child of m while a guard of the child's child is held.
func (p *population) checkGrandchild(m *member) {
	child := m.child("a")
	grandchild := child.child("b")
	p.withGuard(grandchild, func() {
		child.Stop()
		if child.IsComplete() {
			p.violated([]*member{child, grandchild}, "node %s is complete while a guard of node %s is held", child.name, grandchild.name)
		}
	})
	if !child.IsComplete() {
		p.violated([]*member{child, grandchild}, "node %s was stopped and has no guards, but is not complete", child.name)
	}
}

// checkPinned checks that the owner of a pinned child of m learns of its completion.
func (p *population) checkPinned(m *member) {
	child := m.child("pinned")
	child.Pin()
	completeBefore := child.IsComplete()
	p.withGuard(child, nil)
	done := child.Done()
	child.Stop()
	if !testkit.IsClosed(done) {
		p.violated([]*member{child}, "node %s was stopped and has no guards, but its channel is open", child.name)
	}
	if !completeBefore && !child.completed.Load() {
		p.violated([]*member{child}, "node %s is pinned and complete, but OnComplete was not called", child.name)
	}
}

// checkWarning acquires a guard. If the node was signalled before, BeforeWarning must be false for
// the guard.
func (p *population) checkWarning(m *member) {
	signalledBefore := m.isSignalled()
	c, before, v := m.Count()
	m.FinishAcquire(c, before, v)
	if signalledBefore && (packed.BeforeWarning(v) || m.BeforeWarning()) {
		p.violated([]*member{m}, "BeforeWarning is true for a guard of node %s that was acquired after the signal", m.name)
	}
	p.acquisitions.Add(1)
	m.Release(c)
}

func TestStress_RandomOperationsKeepInvariants(t *testing.T) {
	size := stressSize(t)
	acquisitions, round := 0, 0
	for ; acquisitions < size; round++ {
		seed := seedOf(t, round)
		p := newPopulation()
		watchdog := time.AfterFunc(roundLimit, func() { stuck(t, seed, p.nodes()) })
		p.run(uint64(seed))
		watchdog.Stop()
		if p.violation != "" {
			report(t, seed, p.violation)
		}
		acquisitions += int(p.acquisitions.Load())
	}
	t.Logf("%d acquisitions in %d trees", acquisitions, round)
}

// run performs one round: three goroutines work on the tree, then all members are stopped.
func (p *population) run(seed uint64) {
	before := make([]<-chan struct{}, len(p.members))
	for i, m := range p.members {
		before[i] = m.Done()
	}
	var wg sync.WaitGroup
	for worker := range 3 {
		wg.Go(func() { p.work(rand.New(rand.NewPCG(seed, uint64(worker))), 150) })
	}
	wg.Wait()
	// In this package, the stop of a root does not stop its descendants. So stop each node.
	for _, m := range p.members {
		m.end()
	}
	for i, m := range p.members {
		switch {
		case !m.IsComplete() || !testkit.IsClosed(m.Done()):
			p.violated(nil, "node %s was stopped and has no guards, but is not complete", m.name)
		case !testkit.IsClosed(before[i]):
			p.violated(nil, "node %s is complete, but its channel from before the round is open", m.name)
		}
	}
}

// stuck ends the test program because a round of the stress does not end.
func stuck(t *testing.T, seed int, nodes map[string]*packed.Node) {
	crash(fmt.Sprintf("%s, seed %d: the round is still running after %v", t.Name(), seed, roundLimit), nodes)
}
