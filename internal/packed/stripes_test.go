package packed_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/swansong-go/swansong/internal/packed"
	"github.com/swansong-go/swansong/internal/testkit"
)

// newStriped returns a node that counts on stripes, and its parent.
func newStriped(t *testing.T) (root, n *packed.Node) {
	t.Helper()
	root = newNode(nil)
	n = newNode(root)
	n.AcquireOne() // the first guard puts n into the list of root
	n.ReleaseOne()
	if !n.Grow() {
		t.Fatal("a live linked node does not grow stripes")
	}
	return root, n
}

// elsewhere runs f in a new goroutine and waits for it. The address of a goroutine's stack decides
// which stripe it uses, so the new goroutine most likely uses another stripe than the caller.
func elsewhere(f func()) {
	var wg sync.WaitGroup
	wg.Go(f)
	wg.Wait()
}

// sweep makes n sweep its list of children several times.
func sweep(n *packed.Node) {
	for range 1000 {
		child := newNode(n)
		child.AcquireOne()
		child.ReleaseOne()
	}
}

// Two goroutines acquire and release guards of one node, and the test counts how often they
// collide. The test expects the node to have stripes only if collisions were frequent: they are
// rare on a machine that is busy, or that does not run two goroutines at the same time.
func TestStripes_AreCreatedWhenGoroutinesCollideOnCounter(t *testing.T) {
	// want is the number of dense batches of operations after which the node must have stripes. A
	// batch is dense if it has three times the collisions that make a node create stripes.
	const want = 100
	root := newNode(nil)
	var dense atomic.Int64
	begin := time.Now()
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for !root.HasStripes() && dense.Load() < want && time.Since(begin) < 2*time.Second {
				collisions, since := 0, time.Now()
				for range 1000 {
					c, before, v := root.Count()
					if v != before+1 {
						collisions++
					}
					root.FinishAcquire(c, before, v)
					root.Release(c)
				}
				if collisions >= 200 && time.Since(since) < time.Millisecond/2 {
					dense.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if n := dense.Load(); n >= want {
		check(t, "stripes", root.HasStripes(), true)
	} else {
		t.Logf("stripes: %v, after %d dense batches of %d", root.HasStripes(), n, want)
	}
	check(t, "guards", guards(root), 0)
	root.Stop()
	check(t, "complete", root.IsComplete(), true)
}

func TestStripes_AreNotCreatedIfOneGoroutineUsesNode(t *testing.T) {
	root := newNode(nil)
	root.AcquireOne()
	for range rounds(1_000_000) {
		root.AcquireOne()
		root.ReleaseOne()
	}
	check(t, "stripes", root.HasStripes(), false)
}

// An acquisition collides if another goroutine changes the counter between its load and its
// addition.
func TestStripes_AreCreatedIfCounterChangesBetweenLoadAndAddition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the clock stands still, so all collisions are in one time window
		root := newNode(nil)
		c, before, v := root.Count()
		root.FinishAcquire(c, before, v)
		for i := range 64 {
			check(t, fmt.Sprintf("stripes after %d collisions", i), root.HasStripes(), false)
			before := c.Load()
			c.Add(1) // the acquisition of another goroutine
			root.FinishAcquire(c, before, c.Add(1))
			root.Release(c)
			root.Release(c)
		}
		check(t, "stripes after 64 collisions", root.HasStripes(), true)
		root.Release(c)
		root.Stop()
		check(t, "complete", root.IsComplete(), true)
	})
}

// A node creates stripes only if many collisions happen within a short time window. An old node may
// have seen many collisions in all, but may not be contended now.
func TestStripes_AreNotCreatedForRareCollisions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := newNode(nil)
		for range 100 {
			for range 20 {
				root.NoteCollision()
			}
			time.Sleep(10 * time.Millisecond)
		}
		check(t, "stripes after few collisions at a time", root.HasStripes(), false)
		for range 64 {
			root.NoteCollision()
		}
		check(t, "stripes after many at once", root.HasStripes(), true)
	})
}

func TestStripes_AreCreatedOnlyOnLinkedNodeThatIsNotStopped(t *testing.T) {
	root := newNode(nil)
	for name, prepare := range map[string]func(n *packed.Node){
		"unlinked": func(*packed.Node) {},
		"stopped":  func(n *packed.Node) { n.AcquireOne(); n.Stop() },
		"sealed": func(n *packed.Node) {
			n.AcquireOne()
			n.Parent().Stop()
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(newNode(root))
			prepare(n)
			check(t, "stripes", n.Grow(), false)
			n.AcquireOne()
			check(t, "linked", linked(root) > 0, true)
		})
	}
}

// A goroutine may have read the pointer to the stripes before the fold moved their counts into the
// word of the node. Its operation on one of these stripes finds that the stripe has been folded,
// and is repeated on the word. What the operation has changed in the folded stripe is ignored.
func TestStripes_OperationOnRemovedStripeIsRepeatedOnNode(t *testing.T) {
	root, n := newStriped(t)
	n.AcquireOne()
	withOldStripes := n.KeepStripes()
	done := root.Done()
	root.Stop()

	withOldStripes(n.AcquireOne)
	check(t, "guards", guards(n), 2)
	withOldStripes(n.ReleaseOne)
	withOldStripes(n.ReleaseOne)
	check(t, "guards", guards(n), 0)
	check(t, "complete, closed", []bool{root.IsComplete(), testkit.IsClosed(done)}, []bool{true, true})
}

func TestStripes_SumCountsAllGuards(t *testing.T) {
	root, n := newStriped(t)
	const each = 10
	for range each {
		elsewhere(func() {
			n.AcquireOne()
			n.AcquireOne()
		})
	}
	check(t, "guards", guards(root), 2*each)
	elsewhere(func() {
		for range each {
			n.ReleaseOne()
		}
	})
	check(t, "guards", guards(root), each)

	done := root.Done()
	root.Stop()
	check(t, "stripes after the stop", n.HasStripes(), false)
	for range each {
		check(t, "complete, closed while guards are held", []bool{root.IsComplete(), testkit.IsClosed(done)}, []bool{false, false})
		elsewhere(n.ReleaseOne)
	}
	check(t, "complete, closed", []bool{root.IsComplete(), testkit.IsClosed(done)}, []bool{true, true})

	n.AcquireOne()
	check(t, "complete while a late guard is held", root.IsComplete(), false)
	n.ReleaseOne()
	check(t, "complete again", root.IsComplete(), true)
}

// A guard that was acquired on the word can be released on a stripe, if the node has got stripes in
// between. A guard that was acquired on a stripe can be released on the word after Stop has folded
// the stripes.
func TestStripes_GuardAcquiredBeforeGrowCanBeReleasedAfterGrow(t *testing.T) {
	root := newNode(nil)
	root.AcquireOne()
	root.Grow()
	root.AcquireOne()
	check(t, "guards", guards(root), 2)
	root.ReleaseOne()
	root.ReleaseOne()
	check(t, "guards", guards(root), 0)
	root.AcquireOne()
	root.Stop()
	check(t, "complete while a guard is held", root.IsComplete(), false)
	root.ReleaseOne()
	check(t, "complete", root.IsComplete(), true)
}

// A guard is released on the counter it was counted in, a stripe or the word, even if the node has
// folded its stripes and grown others since.
func TestRelease_UsesCounterOfItsAcquisitionAfterStripesWereReplaced(t *testing.T) {
	root, n := newStriped(t)
	acquire := func() (release func()) {
		c, before, v := n.Count()
		n.FinishAcquire(c, before, v)
		return func() { n.Release(c) }
	}
	withOldStripes := n.KeepStripes()
	sweep(root)
	releaseWord := acquire()
	check(t, "stripes again", n.Grow(), true)
	releaseStripe := acquire()
	var releaseOldStripe func()
	withOldStripes(func() { releaseOldStripe = acquire() })
	check(t, "guards", guards(root), 3)
	for i, release := range []func(){releaseWord, releaseOldStripe} {
		release()
		check(t, "guards", guards(root), 2-i)
	}
	root.Stop()
	check(t, "complete while a guard is held", root.IsComplete(), false)
	releaseStripe()
	check(t, "complete", root.IsComplete(), true)
}

// A stripe may count less than zero guards, if guards that were counted elsewhere are released on
// it. An acquisition on it then counts one guard.
func TestAcquire_OnStripeBelowZeroCountsOnce(t *testing.T) {
	root := newNode(nil)
	for range 3 {
		root.AcquireOne()
	}
	check(t, "stripes", root.Grow(), true)
	for range 3 {
		root.ReleaseOne()
	}
	check(t, "guards", guards(root), 0)
	root.AcquireOne()
	check(t, "guards after one more", guards(root), 1)
	root.Stop()
	check(t, "complete while a guard is held", root.IsComplete(), false)
	root.ReleaseOne()
	check(t, "complete", root.IsComplete(), true)
}

// If a goroutine releases a guard that another goroutine has acquired, the release uses the stripe
// on which the guard was counted. So a release need not load the pointer to the stripes, which all
// acquisitions share.
func TestRelease_OnOtherGoroutineUsesStripeOfAcquisition(t *testing.T) {
	_, n := newStriped(t)
	c, before, v := n.Count()
	n.FinishAcquire(c, before, v)
	wrong := 0
	for range 100 { // at least one of these goroutines uses another stripe than the test does
		elsewhere(func() {
			d, before, v := n.Count()
			n.FinishAcquire(d, before, v)
			n.Release(c)
			if packed.GuardsOn(c) != 0 && c != d {
				wrong++
			}
			n.Release(d)
			c, before, v = n.Count()
			n.FinishAcquire(c, before, v)
		})
	}
	check(t, "releases on another stripe", wrong, 0)
	n.Release(c)
	check(t, "guards", guards(n), 0)
}

func TestStripes_NodeWithoutGuardsCompletesAtStop(t *testing.T) {
	root, n := newStriped(t)
	done := n.Done()
	n.Stop()
	check(t, "complete, closed", []bool{n.IsComplete(), testkit.IsClosed(done)}, []bool{true, true})
	check(t, "linked", linked(root), 0)
	root.Stop()
	check(t, "root complete", root.IsComplete(), true)
}

func TestStripes_GuardOnThemDelaysCompletionOfParent(t *testing.T) {
	root, n := newStriped(t)
	n.AcquireOne()
	sweep(root)
	root.Stop()
	check(t, "complete while a guard is held", root.IsComplete(), false)
	n.ReleaseOne()
	check(t, "complete", root.IsComplete(), true)
}

func TestStripes_UnreferencedNodeIsGarbageCollected(t *testing.T) {
	for name, newUnreferenced := range map[string]func(root *packed.Node) weak.Pointer[packed.Node]{
		"a child": func(root *packed.Node) weak.Pointer[packed.Node] {
			n := newNode(root)
			n.AcquireOne()
			check(t, "stripes", n.Grow(), true)
			elsewhere(n.AcquireOne)
			n.ReleaseOne()
			elsewhere(n.ReleaseOne)
			return weak.Make(n)
		},
		"a grandchild": func(root *packed.Node) weak.Pointer[packed.Node] {
			n := newNode(newNode(root))
			n.AcquireOne()
			check(t, "stripes", []bool{n.Grow(), n.Parent().Grow()}, []bool{true, true})
			n.ReleaseOne()
			return weak.Make(n)
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := newNode(nil)
			n := newUnreferenced(root)
			sweep(root)
			runtime.GC()
			runtime.GC()
			check(t, "collected", n.Value() == nil, true)
			root.Stop()
			check(t, "complete", root.IsComplete(), true)
		})
	}
}

// A sweep folds the stripes of an idle node, but not of a node in use. Afterwards the node can grow
// stripes again, and operations that use the old stripes still count.
func TestStripes_OfIdleNodeAreRemovedBySweepOfChildList(t *testing.T) {
	root, n := newStriped(t)
	n.AcquireOne()
	sweep(root)
	check(t, "stripes while a guard is held", n.HasStripes(), true)
	n.ReleaseOne()
	withOldStripes := n.KeepStripes()
	sweep(root)
	check(t, "stripes, still linked", []any{n.HasStripes(), linked(root) > 40}, []any{false, false})

	n.AcquireOne()
	check(t, "stripes again", n.Grow(), true)
	withOldStripes(n.AcquireOne)
	elsewhere(func() { withOldStripes(n.AcquireOne) })
	check(t, "guards", guards(root), 3)
	withOldStripes(n.ReleaseOne)
	check(t, "guards", guards(root), 2)
	n.ReleaseOne()
	root.Stop()
	check(t, "complete while a guard is held", root.IsComplete(), false)
	n.ReleaseOne()
	check(t, "complete", root.IsComplete(), true)
}

// If guards were released more often than acquired, Stop must report that. A sweep must not,
// because the sweeping goroutine is usually not the one that has released too often.
func TestStripes_ReleaseTooManyIsReportedByStopNotBySweep(t *testing.T) {
	root, n := newStriped(t)
	n.AddGuards(-1)
	sweep(root)
	check(t, "stripes", n.HasStripes(), true)
	if got := panicOf(root.Stop); !strings.Contains(got, "never acquired") {
		t.Errorf("Stop panicked with %q", got)
	}
	check(t, "complete", root.IsComplete(), true)
}

// One goroutine acquires and releases guards of a node that grows stripes again and again, while
// another goroutine sweeps. No guard may be missed, and none may be left.
func TestStripes_MissNoGuardDuringConcurrentSweeps(t *testing.T) {
	root, n := newStriped(t)
	var finished atomic.Bool
	both(func() {
		defer finished.Store(true)
		for range rounds(50_000) {
			n.AcquireOne()
			n.Grow()
			if got := guards(n); got != 1 {
				t.Errorf("%d guards, want 1\n%s", got, dump(map[string]*packed.Node{"root": root, "n": n}))
				return
			}
			n.ReleaseOne()
		}
	}, func() {
		for !finished.Load() {
			sweep(root)
		}
	})
	if t.Failed() {
		return
	}
	root.Stop()
	check(t, "complete", root.IsComplete(), true)
}

func TestStripes_AcquireAndReleaseDoNotAllocate(t *testing.T) {
	if packed.Traced {
		t.Skip("recording transitions allocates")
	}
	_, n := newStriped(t)
	check(t, "allocations", testing.AllocsPerRun(1000, func() {
		n.AcquireOne()
		n.ReleaseOne()
	}), 0.0)
}

// While guards are counted on several counters (stripes), releasing a guard twice does not panic.
// Only Stop detects the mistake: it stops the node, and then panics.
func TestStop_PanicsIfStripesShowMoreReleasesThanAcquisitions(t *testing.T) {
	for name, test := range map[string]struct {
		added int64
		want  string
		left  int
	}{
		"one release too many":   {-1, "never acquired", 0},
		"many releases too many": {-1 << 40, "never acquired", 0},
		"2^30 guards":            {1 << 30, "2^30 guards", 1<<30 - 1},
		"many more guards":       {1 << 40, "2^30 guards", 1<<30 - 1},
		"one fewer than 2^30":    {1<<30 - 1, "", 1<<30 - 1},
		"balanced, by far apart": {0, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			root, n := newStriped(t)
			elsewhere(func() { n.AddGuards(-1 << 50) })
			n.AddGuards(1 << 50)
			n.AddGuards(test.added)
			got := panicOf(root.Stop)
			if (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
				t.Errorf("Stop panicked with %q, want %q", got, test.want)
			}
			check(t, "root signalled, n live", []bool{root.IsSignalled(), n.IsLive()}, []bool{true, false})
			check(t, "guards", guards(root), test.left)
			check(t, "complete", root.IsComplete(), test.left == 0)
			check(t, "panic of a second Stop", panicOf(root.Stop), "")
			if test.left > 0 {
				if got := panicOf(n.AcquireOne); !strings.Contains(got, "2^30 guards") {
					t.Errorf("an acquisition on a full node panicked with %q", got)
				}
				return
			}
			n.AcquireOne()
			check(t, "complete while a guard is held", root.IsComplete(), false)
			n.ReleaseOne()
			check(t, "complete", root.IsComplete(), true)
		})
	}
}

// The fold takes the count of a stripe and marks it in one step. One goroutine releases many guards
// of one stripe in a row, so that a release falls into the fold of that stripe in most rounds. Each
// release must be counted, on the stripe or on the word.
func TestRelease_CountsWhileStripesAreBeingRemoved(t *testing.T) {
	const held = 5_000
	for round := range rounds(1000) {
		root := newNode(nil)
		root.Grow()
		done := root.Done()
		c, before, v := root.Count()
		root.FinishAcquire(c, before, v)
		for range held - 1 {
			root.FinishAcquire(c, c.Load(), c.Add(1))
		}
		both(func() {
			spin(round % 500)
			for range held {
				root.Release(c)
			}
		}, root.Stop)
		checkNodes(t, "complete, closed", []bool{root.IsComplete(), testkit.IsClosed(done)}, []bool{true, true},
			map[string]*packed.Node{"root": root})
	}
}

// Walk must report every guard that is held during a fold.
func TestWalk_ReportsEveryGuardWhileStripesAreBeingRemoved(t *testing.T) {
	for range rounds(5000) {
		root, n := newStriped(t)
		for range 3 {
			elsewhere(n.AcquireOne)
		}
		both(func() {
			for n.IsLive() {
				if got := guards(n); got != 3 {
					t.Errorf("%d guards, want 3", got)
				}
			}
		}, root.Stop)
		if t.Failed() {
			t.Fatal(dump(map[string]*packed.Node{"root": root, "n": n}))
		}
	}
}

// The simulation of docs/measured/scaling.md: one running goroutine for each processor, with stacks
// that are adjacent or anywhere in a large heap. Most goroutines must have a stripe of their own.
func TestStripes_MostRunningGoroutinesHaveOneOfTheirOwn(t *testing.T) {
	const (
		samples = 200
		alone   = 1.0      // relative speed of a goroutine that is alone on its cache line
		shared  = 1.0 / 20 // relative speed of a goroutine that shares its cache line
	)
	t.Log("processors  stripes  alone  of linear")
	for _, procs := range []int{2, 4, 8, 16, 32, 64, 128} {
		random := rand.New(rand.NewPCG(1, uint64(procs)))
		var stripes, single int
		for sample := range samples {
			stacks := make([]uintptr, procs)
			first := uintptr(random.Int64N(1<<30)) << 11
			for i := range stacks {
				// adjacent stacks, each of 2, 4, 8 or 16 kB
				stacks[i] = first + uintptr(i)<<(11+sample%4)
				if sample%2 == 1 {
					stacks[i] = uintptr(random.Int64N(1<<30)) << 11
				}
			}
			var indices []uint64
			stripes, indices = packed.StripesOf(procs, stacks)
			goroutines := map[uint64]int{}
			for _, i := range indices {
				goroutines[i]++
			}
			for _, n := range goroutines {
				if n == 1 {
					single++
				}
			}
		}
		fraction := float64(single) / float64(samples*procs)
		linear := fraction*alone + (1-fraction)*shared
		t.Logf("%10d  %7d  %4.0f%%  %8.0f%%", procs, stripes, 100*fraction, 100*linear)
		if want := 0.7; procs <= 64 && linear < want {
			t.Errorf("%d processors: %.2f of linear, want at least %.2f", procs, linear, want)
		}
	}
}
