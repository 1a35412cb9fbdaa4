package packed_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/swansong-go/swansong/internal/packed"
)

// stressSize is the number of acquisitions: SWANSONG_STRESS, or what takes about a second.
func stressSize(t *testing.T) int {
	t.Helper()
	s := os.Getenv("SWANSONG_STRESS")
	if s == "" {
		return 1_000_000
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		t.Fatalf("SWANSONG_STRESS=%q: want a number of acquisitions", s)
	}
	return n
}

// A counter is one scope of either implementation.
type counter interface {
	acquire()
	release()
	stop()
	complete() bool
}

// A tree is a line of scopes.
type tree struct{ root, leaf counter }

const stressDepth = 4

// together lets goroutines begin at the same moment, each on a processor of its own. A channel would make all of them
// runnable on one processor, and the first be through before the second has moved.
type together struct{ n atomic.Int32 }

func (m *together) wait(all int32) {
	for m.n.Add(1); m.n.Load() < all; {
		runtime.Gosched()
	}
}

// holdAndLook has two goroutines take and release guards of one leaf, and look at the root while they hold one. One of
// them stops the root on the way, at another moment in every round; the guards after that are late ones and count all
// the same. Short rounds matter as much as long ones: a late guard may repair what the stop left behind. It returns how
// often the root was complete while a guard was held, or not complete in the end, and gives up when enough says so.
func holdAndLook(newTree func(depth int) tree, acquisitions int, enough func(violations int) bool) (done, violations int) {
	for round := 0; done < acquisitions && !enough(violations); round++ {
		t := newTree(stressDepth)
		each := 1 << (round % 8)
		var missed atomic.Int64
		var wg sync.WaitGroup
		var meet together
		for worker := range 2 {
			wg.Go(func() {
				meet.wait(2)
				for i := range each + 1 {
					if worker == 0 && i == round/8%(each+1) {
						t.root.stop()
					}
					if i == each {
						break // who stops last leaves the root to the other one's guards
					}
					t.leaf.acquire()
					if t.root.complete() {
						missed.Add(1)
					}
					t.leaf.release()
				}
			})
		}
		wg.Wait()
		done += 2 * each
		violations += int(missed.Load())
		if !t.root.complete() {
			violations++ // a guard too many stayed behind
		}
	}
	return done, violations
}

func TestStressCatchesTheNaiveWalk(t *testing.T) {
	begin := time.Now()
	done, violations := holdAndLook(newNaive, math.MaxInt, func(violations int) bool {
		return violations > 0 || time.Since(begin) > 30*time.Second
	})
	t.Logf("%d acquisitions, %d violations", done, violations)
	if violations == 0 {
		t.Error("the stress finds nothing wrong with an algorithm that loses guards, so it proves nothing")
	}
}

type real struct{ packed.Node }

func newReal(depth int) tree {
	root := &real{}
	root.Init(nil, idle{}, false)
	leaf := root
	for range depth {
		n := &real{}
		n.Init(&leaf.Node, idle{}, false)
		leaf = n
	}
	return tree{root: root, leaf: leaf}
}

func (n *real) acquire()       { n.Acquire() }
func (n *real) release()       { n.Release() }
func (n *real) stop()          { n.Stop() }
func (n *real) complete() bool { return n.Complete() }

func TestStressNoGuardIsMissed(t *testing.T) {
	done, violations := holdAndLook(newReal, stressSize(t), func(int) bool { return false })
	t.Logf("%d acquisitions, %d violations", done, violations)
	if violations > 0 {
		t.Errorf("%d times the root was complete while a guard was held, or not complete in the end", violations)
	}
}

// newSpreadTree is newReal with guards that count on stripes, on every level.
func newSpreadTree(depth int) tree {
	t := newReal(depth)
	t.leaf.acquire() // links them all
	for n := &t.leaf.(*real).Node; n != nil; n = n.Parent() {
		n.Spread()
	}
	t.leaf.release()
	return t
}

func TestStressNoSpreadGuardIsMissed(t *testing.T) {
	done, violations := holdAndLook(newSpreadTree, stressSize(t)/2, func(violations int) bool { return violations > 100 })
	t.Logf("%d acquisitions, %d violations", done, violations)
	if violations > 0 {
		t.Errorf("%d times the root was complete while a guard was held, or not complete in the end", violations)
	}
}

// A member is a scope of the random stress. It is pinned at most once and then, as a scope with Work is, unpinned by
// its own completion.
type member struct {
	packed.Node
	parent *member
	told   atomic.Bool
	signal atomic.Bool // given here
}

func (m *member) Completed() {
	m.told.Store(true)
	m.Unpin()
}

// end gives the signal, in order.
func (m *member) end() {
	m.Warn()
	m.signal.Store(true)
	m.Stop()
}

func (m *member) signalled() bool {
	for a := m; a != nil; a = a.parent {
		if a.signal.Load() {
			return true
		}
	}
	return false
}

func (m *member) child() *member {
	c := &member{parent: m}
	c.Init(&m.Node, c, false)
	return c
}

// A crew is what the workers of one round share.
type crew struct {
	scopes       []*member // the root first, parents before children
	acquisitions atomic.Int64
	violations   atomic.Int64
}

func newCrew() *crew {
	root := &member{}
	root.Init(nil, root, false)
	c := &crew{scopes: []*member{root}}
	// Two siblings on every level, so that lists are shared, and a line of them four deep.
	for _, parent := range []int{0, 0, 1, 1, 3, 3, 5, 5} {
		c.scopes = append(c.scopes, c.scopes[parent].child())
	}
	return c
}

func (c *crew) violated(t *testing.T, what string) {
	if c.violations.Add(1) <= 10 {
		t.Error(what)
	}
}

// holding takes a guard of m, checks that everything above knows, and calls f under it.
func (c *crew) holding(t *testing.T, m *member, f func()) {
	m.Acquire()
	c.acquisitions.Add(1)
	for a := m; a != nil; a = a.parent {
		if a.Complete() {
			c.violated(t, "a scope is complete while a guard is held in its subtree")
		}
	}
	if f != nil {
		f()
	}
	m.Release()
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

func (c *crew) work(t *testing.T, r *rand.Rand, n int) {
	for range n {
		m := c.scopes[r.IntN(len(c.scopes))]
		above := c.scopes[0]
		for a := m; a != nil; a = a.parent {
			if r.IntN(3) == 0 {
				above = a
				break
			}
		}
		switch dice := r.IntN(200); {
		case dice < 100:
			c.holding(t, m, nil)
		case dice < 140: // maybe late: whoever holds a guard is given a channel that waits for it
			earlier := above.Done()
			c.holding(t, m, func() {
				open := !isClosed(earlier)
				if isClosed(above.Done()) {
					c.violated(t, "Done returned a closed channel while a guard was held")
				}
				if open && isClosed(earlier) {
					c.violated(t, "a channel was closed while a guard was held")
				}
			})
		case dice < 160: // clones: a second guard while one is held
			c.holding(t, m, func() { c.holding(t, m, nil) })
		case dice < 180: // a child that lives briefly, with a grandchild, and is stopped from below or above
			kid := m.child()
			grandkid := kid.child()
			c.holding(t, grandkid, func() {
				kid.Stop()
				if kid.Complete() {
					c.violated(t, "a scope is complete while its child holds a guard")
				}
			})
			if !kid.Complete() {
				c.violated(t, "a scope that was stopped and holds nothing is not complete")
			}
		case dice < 190: // pinned: told, or complete already when it looks
			kid := m.child()
			kid.Pin()
			seen := kid.Complete()
			c.holding(t, kid, nil)
			done := kid.Done()
			kid.Stop()
			if !isClosed(done) {
				c.violated(t, "a scope was stopped and holds nothing, and its channel is open")
			}
			if !seen && !kid.told.Load() {
				c.violated(t, "a pinned scope completed and its owner was not told")
			}
		case dice < 191: // a try, which is told by what it has counted in whether a stop was signalled before
			late := m.signalled()
			counted, v := m.Count()
			m.Acquired(counted, v)
			if late && (packed.Unsignalled(v) || m.Unsignalled()) {
				c.violated(t, "a scope was signalled, and who counted after that does not know")
			}
			c.acquisitions.Add(1)
			m.Discount(counted)
		case dice < 193: // from now on, or not at all if it has been stopped
			m.Spread()
			c.holding(t, m, nil)
		case dice < 199:
			m.child().Stop()
			c.acquisitions.Add(1) // bounds the rounds where it is drawn often
		case r.IntN(2) == 0: // enough children on one list for a sweep, and they are forgotten
			for range 40 {
				c.holding(t, m.child(), nil)
			}
		default:
			m.end()
		}
	}
}

func TestStressEverything(t *testing.T) {
	size := stressSize(t)
	var acquisitions, violations, rounds int
	for ; acquisitions < size && violations == 0; rounds++ {
		c := newCrew()
		before := make([]<-chan struct{}, len(c.scopes))
		for i, m := range c.scopes {
			before[i] = m.Done()
		}
		var wg sync.WaitGroup
		for worker := range 3 {
			wg.Go(func() { c.work(t, rand.New(rand.NewPCG(uint64(rounds), uint64(worker))), 150) })
		}
		wg.Wait()
		// Somebody has to signal every scope: the counting does not.
		for _, m := range c.scopes {
			m.end()
		}
		for i, m := range c.scopes {
			switch {
			case !m.Complete() || !isClosed(m.Done()):
				c.violated(t, fmt.Sprintf("scope %d was stopped and holds nothing, and is not complete", i))
			case !isClosed(before[i]): // a lost wake-up: whoever waits would wait for ever
				c.violated(t, fmt.Sprintf("scope %d is complete, and the channel that was asked for first is open", i))
			}
		}
		acquisitions += int(c.acquisitions.Load())
		violations += int(c.violations.Load())
	}
	t.Logf("%d acquisitions in %d trees, %d violations", acquisitions, rounds, violations)
}
