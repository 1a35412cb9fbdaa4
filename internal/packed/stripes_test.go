package packed_test

import (
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
)

// newSpread returns a scope that counts on stripes, and the root above it.
func newSpread(t *testing.T) (root, n *packed.Node) {
	t.Helper()
	root = newNode(nil)
	n = newNode(root)
	n.Acquire()
	n.Release() // is linked now
	if !n.Spread() {
		t.Fatal("a running scope does not spread its guards")
	}
	return root, n
}

// elsewhere runs f to its end in a goroutine, which has another stack and so, most likely, another stripe.
func elsewhere(f func()) {
	var wg sync.WaitGroup
	wg.Go(f)
	wg.Wait()
}

// Where goroutines get into each other's way for long, by the account of a counter that is used in the same way, the
// guards are spread. Proof are only clashes that are dense: a host that never runs two of them at once shows nothing,
// and nor do the few in any millisecond of one that is busy with others.
func TestClashingGoroutinesSpreadTheGuards(t *testing.T) {
	const many = 100 // batches, of which each has three times the clashes that are enough
	root := newNode(nil)
	var counter, clashing atomic.Int64
	begin := time.Now()
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for !root.IsSpread() && clashing.Load() < many && time.Since(begin) < 2*time.Second {
				clashes, since := 0, time.Now()
				for range 1000 {
					root.Acquire()
					root.Release()
					if v := counter.Add(1); counter.Load() != v {
						clashes++
					}
				}
				if clashes >= 200 && time.Since(since) < time.Millisecond/2 {
					clashing.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if n := clashing.Load(); n >= many {
		check(t, "spread", root.IsSpread(), true)
	} else {
		t.Logf("spread: %v, after %d batches of %d", root.IsSpread(), n, many)
	}
	check(t, "guards", guards(root), 0)
	root.Stop()
	check(t, "complete", root.Complete(), true)
}

func TestOneGoroutineDoesNotSpreadTheGuards(t *testing.T) {
	root := newNode(nil)
	root.Acquire()
	for range 1_000_000 {
		root.Acquire()
		root.Release()
	}
	check(t, "spread", root.IsSpread(), false)
}

// Clashes count where they come thick and fast: a scope that is old has seen many, and is not hot.
func TestFewClashesDoNotSpreadTheGuards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := newNode(nil)
		for range 100 {
			for range 20 {
				root.Clash()
			}
			time.Sleep(10 * time.Millisecond)
		}
		check(t, "spread by few at a time", root.IsSpread(), false)
		for range 64 {
			root.Clash()
		}
		check(t, "spread by as many at once", root.IsSpread(), true)
	})
}

// An operation that was under way to a stripe when it was sealed is done on the word.
func TestOperationsThatComeAfterTheFold(t *testing.T) {
	root, n := newSpread(t)
	n.Acquire()
	late := n.StripesNow()
	done := root.Done()
	root.Stop()

	late(n.Acquire)
	check(t, "guards", guards(n), 2)
	late(n.Release)
	late(n.Release)
	check(t, "guards", guards(n), 0)
	check(t, "complete", []bool{root.Complete(), isClosed(done)}, []bool{true, true})
}

func TestOnlyRunningLinkedScopesSpreadTheirGuards(t *testing.T) {
	root := newNode(nil)
	for name, prepare := range map[string]func(n *packed.Node){
		"loose":   func(*packed.Node) {},
		"stopped": func(n *packed.Node) { n.Acquire(); n.Stop() },
		"sealed": func(n *packed.Node) {
			n.Acquire()
			n.Parent().Stop()
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(newNode(root))
			prepare(n)
			check(t, "spread", n.Spread(), false)
			n.Acquire()
			check(t, "linked", linked(root) > 0, true)
		})
	}
}

func TestSpreadGuardsCount(t *testing.T) {
	root, n := newSpread(t)
	const each = 10
	for range each {
		elsewhere(func() {
			n.Acquire()
			n.Acquire()
		})
	}
	check(t, "guards", guards(root), 2*each)
	elsewhere(func() {
		for range each {
			n.Release()
		}
	})
	check(t, "guards", guards(root), each)

	done := root.Done()
	root.Stop()
	check(t, "spread after the stop", n.IsSpread(), false)
	for range each {
		check(t, "complete while held", []bool{root.Complete(), isClosed(done)}, []bool{false, false})
		elsewhere(n.Release)
	}
	check(t, "complete", []bool{root.Complete(), isClosed(done)}, []bool{true, true})

	n.Acquire() // late
	check(t, "complete under a late guard", root.Complete(), false)
	n.Release()
	check(t, "complete again", root.Complete(), true)
}

// What was counted before the guards were spread, and what is released after the stripes are gone, is all one count.
func TestGuardsOutliveTheStripes(t *testing.T) {
	root := newNode(nil)
	root.Acquire()
	root.Spread()
	root.Acquire()
	check(t, "guards", guards(root), 2)
	root.Release()
	root.Release()
	check(t, "guards", guards(root), 0)
	root.Acquire()
	root.Stop()
	check(t, "complete while held", root.Complete(), false)
	root.Release()
	check(t, "complete", root.Complete(), true)
}

// A guard is given back where it was counted, whatever has become of that meanwhile.
func TestGuardsRememberWhatTheyWereCountedIn(t *testing.T) {
	root, n := newSpread(t)
	acquire := func() (release func()) {
		c, v := n.Count()
		n.Acquired(c, v)
		return func() { n.Discount(c) }
	}
	late := n.StripesNow()
	sweep(root)
	onTheWord := acquire()
	check(t, "spread again", n.Spread(), true)
	onStripes := acquire()
	var onLostStripes func()
	late(func() { onLostStripes = acquire() })
	check(t, "guards", guards(root), 3)
	for i, release := range []func(){onTheWord, onLostStripes} {
		release()
		check(t, "guards", guards(root), 2-i)
	}
	root.Stop()
	check(t, "complete while held", root.Complete(), false)
	onStripes()
	check(t, "complete", root.Complete(), true)
}

// That is so also where somebody else gives it back, who would count one elsewhere: it takes a look at nothing shared.
func TestGuardsAreGivenBackWhereTheyWereCounted(t *testing.T) {
	_, n := newSpread(t)
	c, v := n.Count()
	n.Acquired(c, v)
	for range 100 { // of which one at least is on another stripe
		elsewhere(func() {
			d, v := n.Count()
			n.Acquired(d, v)
			n.Discount(c)
			check(t, "guards where the first was", packed.CountedOn(c) == 0 || c == d, true)
			n.Discount(d)
			c, v = n.Count()
			n.Acquired(c, v)
		})
	}
	n.Discount(c)
	check(t, "guards", guards(n), 0)
}

func TestSpreadScopeThatHoldsNothingCompletes(t *testing.T) {
	root, n := newSpread(t)
	done := n.Done()
	n.Stop()
	check(t, "complete", []bool{n.Complete(), isClosed(done)}, []bool{true, true})
	check(t, "linked", linked(root), 0)
	root.Stop()
	check(t, "root complete", root.Complete(), true)
}

func TestSpreadScopeStaysLinked(t *testing.T) {
	root, n := newSpread(t)
	n.Acquire()
	for range 1000 { // sweeps
		k := newNode(root)
		k.Acquire()
		k.Release()
	}
	root.Stop()
	check(t, "complete while held", root.Complete(), false)
	n.Release()
	check(t, "complete", root.Complete(), true)
}

// sweep has the list of n swept, several times.
func sweep(n *packed.Node) {
	for range 1000 {
		k := newNode(n)
		k.Acquire()
		k.Release()
	}
}

// A scope that was hot once and is forgotten is collected as any other is, and its stripes with it.
func TestForgottenSpreadScopeIsCollected(t *testing.T) {
	for name, forget := range map[string]func(root *packed.Node) weak.Pointer[packed.Node]{
		"a child": func(root *packed.Node) weak.Pointer[packed.Node] {
			n := newNode(root)
			n.Acquire()
			check(t, "spread", n.Spread(), true)
			elsewhere(n.Acquire)
			n.Release()
			elsewhere(n.Release)
			return weak.Make(n)
		},
		"a grandchild": func(root *packed.Node) weak.Pointer[packed.Node] {
			n := newNode(newNode(root))
			n.Acquire()
			check(t, "spread", []bool{n.Spread(), n.Parent().Spread()}, []bool{true, true})
			n.Release()
			return weak.Make(n)
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := newNode(nil)
			n := forget(root)
			sweep(root)
			runtime.GC()
			runtime.GC()
			check(t, "collected", n.Value() == nil, true)
			root.Stop()
			check(t, "complete", root.Complete(), true)
		})
	}
}

// A sweep leaves a scope spread that is in use. One that it has found idle counts as before, and can be spread again; who
// comes late, and goes by the stripes that it has lost, counts too.
func TestSpreadScopeIsSwept(t *testing.T) {
	root, n := newSpread(t)
	n.Acquire()
	sweep(root)
	check(t, "spread while in use", n.IsSpread(), true)
	n.Release()
	late := n.StripesNow()
	sweep(root)
	check(t, "spread, and linked", []any{n.IsSpread(), linked(root) > 40}, []any{false, false})

	n.Acquire()
	check(t, "spread again", n.Spread(), true)
	late(n.Acquire)
	elsewhere(func() { late(n.Acquire) })
	check(t, "guards", guards(root), 3)
	late(n.Release)
	check(t, "guards", guards(root), 2)
	n.Release()
	root.Stop()
	check(t, "complete while held", root.Complete(), false)
	n.Release()
	check(t, "complete", root.Complete(), true)
}

// Who sweeps is not to blame for what others have released too often. The stop is told.
func TestMisuseOfSpreadGuardsOutlivesASweep(t *testing.T) {
	root, n := newSpread(t)
	n.Pretend(-1)
	sweep(root)
	check(t, "spread", n.IsSpread(), true)
	if got := panicOf(root.Stop); !strings.Contains(got, "never acquired") {
		t.Errorf("Stop panicked with %q", got)
	}
	check(t, "complete", root.Complete(), true)
}

// While one goroutine takes and releases guards of a scope that is spread again and again, another one has it swept. No
// guard is missed, and none is left.
func TestGuardsDuringSweeps(t *testing.T) {
	root, n := newSpread(t)
	var over atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		defer over.Store(true)
		for range 50_000 {
			n.Acquire()
			n.Spread()
			if held := guards(n); held != 1 {
				t.Errorf("%d guards, want 1", held)
				return
			}
			n.Release()
		}
	})
	wg.Go(func() {
		for !over.Load() {
			sweep(root)
		}
	})
	wg.Wait()
	root.Stop()
	check(t, "complete", root.Complete(), true)
}

func TestSpreadGuardsDoNotAllocate(t *testing.T) {
	_, n := newSpread(t)
	check(t, "allocations", testing.AllocsPerRun(1000, func() {
		n.Acquire()
		n.Release()
	}), 0.0)
}

// Nobody notices while the guards are spread. The stop does, and does its work first.
func TestMisuseOfSpreadGuardsPanicsInStop(t *testing.T) {
	for name, test := range map[string]struct {
		pretend int64
		want    string
		left    int
	}{
		"a release too many":    {-1, "never acquired", 0},
		"very many":             {-1 << 40, "never acquired", 0},
		"2^30 guards":           {1 << 30, "2^30 guards", 1<<30 - 1},
		"many more":             {1 << 40, "2^30 guards", 1<<30 - 1},
		"one fewer than 2^30":   {1<<30 - 1, "", 1<<30 - 1},
		"none, by a long drift": {0, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			root, n := newSpread(t)
			elsewhere(func() { n.Pretend(-1 << 50) })
			n.Pretend(1 << 50)
			n.Pretend(test.pretend)
			got := panicOf(root.Stop)
			if (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
				t.Errorf("Stop panicked with %q, want %q", got, test.want)
			}
			check(t, "signalled and sealed", []bool{root.Signalled(), n.Live()}, []bool{true, false})
			check(t, "guards", guards(root), test.left)
			check(t, "complete", root.Complete(), test.left == 0)
			check(t, "panic of another Stop", panicOf(root.Stop), "")
			if test.left > 0 {
				if got := panicOf(n.Acquire); !strings.Contains(got, "2^30 guards") {
					t.Errorf("Acquire of a full scope panicked with %q", got)
				}
				return
			}
			n.Acquire()
			check(t, "complete while a guard is held", root.Complete(), false)
			n.Release()
			check(t, "complete", root.Complete(), true)
		})
	}
}

// The last guard is given back on its stripe at some moment of the fold: before that has been counted, or after, and then on the word.
func TestReleaseDuringTheFold(t *testing.T) {
	var clock atomic.Int64
	for round := range 20_000 {
		root := newNode(nil)
		root.Spread()
		c, v := root.Count()
		root.Acquired(c, v)
		done := root.Done()
		var meet together
		var wg sync.WaitGroup
		wg.Go(func() {
			meet.wait(2)
			for range round % 200 {
				clock.Load()
			}
			root.Discount(c)
		})
		wg.Go(func() {
			meet.wait(2)
			root.Stop()
		})
		wg.Wait()
		check(t, "complete", []bool{root.Complete(), isClosed(done)}, []bool{true, true})
		if t.Failed() {
			return
		}
	}
}

// Who asks for the number of guards during the fold is told of every one that is held all the while.
func TestGuardsAreSeenDuringTheFold(t *testing.T) {
	for range 5_000 {
		root, n := newSpread(t)
		for range 3 {
			elsewhere(n.Acquire)
		}
		var meet together
		var wg sync.WaitGroup
		wg.Go(func() {
			meet.wait(2)
			for n.Live() {
				if got := guards(n); got != 3 {
					t.Errorf("%d guards, want 3", got)
				}
			}
		})
		wg.Go(func() {
			meet.wait(2)
			root.Stop()
		})
		wg.Wait()
		if t.Failed() {
			return
		}
	}
}

// The simulation of docs/scaling.md: one running goroutine for each processor, on stacks that lie next to each other, or
// anywhere in a large heap. Most of them have a stripe to themselves.
func TestStripesForManyProcessors(t *testing.T) {
	const deals, alone, shared = 200, 1.0, 1.0 / 20 // operations in the same time: a line of one's own, and one that others write to
	t.Log("processors  stripes  alone  of linear")
	for _, procs := range []int{2, 4, 8, 16, 32, 64, 128} {
		random := rand.New(rand.NewPCG(1, uint64(procs)))
		var stripes, lonely int
		for deal := range deals {
			stacks := make([]uintptr, procs)
			first := uintptr(random.Int64N(1<<30)) << 11
			for i := range stacks {
				stacks[i] = first + uintptr(i)<<(11+deal%4) // of 2, 4, 8 or 16 kB, as a loop that starts them gets them
				if deal%2 == 1 {
					stacks[i] = uintptr(random.Int64N(1<<30)) << 11
				}
			}
			var on []uint64
			stripes, on = packed.Deal(procs, stacks)
			load := map[uint64]int{}
			for _, s := range on {
				load[s]++
			}
			for _, n := range load {
				if n == 1 {
					lonely++
				}
			}
		}
		fraction := float64(lonely) / float64(deals*procs)
		linear := fraction*alone + (1-fraction)*shared
		t.Logf("%10d  %7d  %4.0f%%  %8.0f%%", procs, stripes, 100*fraction, 100*linear)
		if want := 0.7; procs <= 64 && linear < want {
			t.Errorf("%d processors: %.2f of linear, want %.2f", procs, linear, want)
		}
	}
}
