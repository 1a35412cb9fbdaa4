package packed_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/swansong-go/swansong/internal/packed"
	"github.com/swansong-go/swansong/internal/testkit"
)

func TestNode_ZeroValuePanics(t *testing.T) {
	var n packed.Node
	// The second acquisition must panic like the first one, which must not have changed the word.
	for range 2 {
		if got := panicOf(n.AcquireOne); !strings.Contains(got, "zero Swansong") {
			t.Errorf("an acquisition on a zero Node panicked with %q", got)
		}
	}
}

// A child too many is refused with a panic, and the word of the parent stays intact: nothing is
// carried from the number of children into the flags.
func TestAcquire_PanicsAndChangesNothingIfParentHasTooManyChildren(t *testing.T) {
	const almostAll = 1<<25 - 1 - 1<<20
	root := newNode(nil)
	holder := newNode(root) // keeps root from being complete
	holder.AcquireOne()
	n := newNode(root)
	root.Stop()
	root.AddChildren(almostAll - 1)
	before := root.WordOf().String()
	for range 3 {
		if got := panicOf(n.AcquireOne); !strings.Contains(got, "2^25 children") {
			t.Errorf("the acquisition panicked with %q", got)
		}
		check(t, "word of the parent", root.WordOf().String(), before)
	}
	root.AddChildren(-1)
	n.AcquireOne()
	n.ReleaseOne()
	root.AddChildren(-(almostAll - 2))
	check(t, "complete while a guard is held", root.IsComplete(), false)
	holder.ReleaseOne()
	check(t, "complete", root.IsComplete(), true)
}

// If a stop finds more children with guards than a word can count, it panics after it has stopped
// all nodes.
func TestStop_PanicsIfTooManyChildrenHoldGuards(t *testing.T) {
	root := newNode(nil)
	n := newNode(root)
	n.AcquireOne()
	root.AddChildren(1<<25 - 1<<20)
	if got := panicOf(root.Stop); !strings.Contains(got, "2^25 children") {
		t.Errorf("Stop panicked with %q", got)
	}
	check(t, "child stopped", strings.HasPrefix(n.WordOf().String(), "sealed"), true)
}

func TestRelease_WithoutAcquisitionPanicsAndChangesNothing(t *testing.T) {
	for name, prepare := range map[string]func(root, n *packed.Node){
		"unlinked":           func(_, _ *packed.Node) {},
		"linked":             func(_, n *packed.Node) { n.AcquireOne(); n.ReleaseOne() },
		"sealed":             func(root, _ *packed.Node) { root.Stop() },
		"linked, sealed":     func(root, n *packed.Node) { n.AcquireOne(); n.ReleaseOne(); root.Stop() },
		"stopped":            func(_, n *packed.Node) { n.Stop() },
		"after a late guard": func(root, n *packed.Node) { root.Stop(); n.AcquireOne(); n.ReleaseOne() },
	} {
		t.Run(name, func(t *testing.T) {
			root := newNode(nil)
			n := newNode(root)
			prepare(root, n)
			for range 3 {
				if got := panicOf(n.ReleaseOne); !strings.Contains(got, "never acquired") {
					t.Errorf("the release panicked with %q", got)
				}
			}
			n.AcquireOne()
			check(t, "guards", guards(root), 1)
			root.Stop()
			check(t, "complete while a guard is held", root.IsComplete(), false)
			n.ReleaseOne()
			check(t, "complete", root.IsComplete(), true)
			n.Stop()
			check(t, "child complete", n.IsComplete(), true)
		})
	}
}

// Two goroutines release more often than n was acquired. The release of the last guard must
// nevertheless close the channel of Done.
func TestRelease_TooManyDoNotPreventCompletion(t *testing.T) {
	root := newNode(nil)
	n := newNode(root)
	watch(t, 30*time.Second, func() map[string]*packed.Node { return map[string]*packed.Node{"root": root, "n": n} })
	n.AcquireOne()
	done := root.Done()
	root.Stop()
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for range 1000 {
				panicOf(root.ReleaseOne)
			}
		})
	}
	n.ReleaseOne()
	wg.Wait()
	<-done
	check(t, "complete", root.IsComplete(), true)
}

func TestDone_ReturnsNewChannelIfGuardIsAcquiredAfterCompletion(t *testing.T) {
	root := newNode(nil)
	n := newNode(root)
	first := root.Done()
	check(t, "second call returns the same channel", root.Done() == first, true)
	n.AcquireOne()
	root.Stop()
	check(t, "closed while a guard is held", testkit.IsClosed(first), false)
	n.ReleaseOne()
	check(t, "closed", testkit.IsClosed(first), true)
	check(t, "Done of a complete node is closed", testkit.IsClosed(root.Done()), true)

	n.AcquireOne()
	second := root.Done()
	check(t, "the first channel stays closed", testkit.IsClosed(first), true)
	check(t, "the second channel is open", testkit.IsClosed(second), false)
	check(t, "next call returns the second channel", root.Done() == second, true)
	n.ReleaseOne()
	check(t, "the second channel is closed", testkit.IsClosed(second), true)
}

// Done may be called just before or just after the last release looks for a channel to close. In
// both cases the channel that Done returns is closed.
func TestDone_IsClosedWhenCalledDuringLastRelease(t *testing.T) {
	for range rounds(20_000) {
		root := newNode(nil)
		n := newNode(root)
		n.AcquireOne()
		root.Stop()
		var done <-chan struct{}
		both(n.ReleaseOne, func() { done = root.Done() })
		checkNodes(t, "complete, closed", []bool{root.IsComplete(), testkit.IsClosed(done)}, []bool{true, true},
			map[string]*packed.Node{"root": root, "n": n})
	}
}

func TestDone_IsClosedWhenFirstCalledAfterCompletion(t *testing.T) {
	root := newNode(nil)
	root.Stop()
	check(t, "closed", testkit.IsClosed(root.Done()), true)
	root.AcquireOne()
	late := root.Done()
	check(t, "closed while a late guard is held", testkit.IsClosed(late), false)
	root.ReleaseOne()
	check(t, "closed after its release", testkit.IsClosed(late), true)
}

func TestStop_MayBeCalledRepeatedly(t *testing.T) {
	for name, prepare := range map[string]func(n *packed.Node){
		"unlinked": func(*packed.Node) {},
		"awaited":  func(n *packed.Node) { n.Done() },
		"linked":   func(n *packed.Node) { n.AcquireOne(); n.ReleaseOne() },
		"pinned":   func(n *packed.Node) { n.Pin() },
	} {
		t.Run(name, func(t *testing.T) {
			root := newNode(nil)
			n := newNode(root)
			prepare(n)
			check(t, "live, signalled, complete before", []bool{n.IsLive(), n.IsSignalled(), n.IsComplete()}, []bool{true, false, false})
			for range 3 {
				n.Stop()
				check(t, "live, signalled, complete after", []bool{n.IsLive(), n.IsSignalled(), n.IsComplete()}, []bool{false, true, true})
			}
			check(t, "the parent: live, complete", []bool{root.IsLive(), root.IsComplete()}, []bool{true, false})
		})
	}
}

func TestStop_NodeCompletesIfLastReleaseIsConcurrent(t *testing.T) {
	for round := range rounds(20_000) {
		root := newNode(nil)
		n := newNode(root)
		n.AcquireOne()
		both(func() {
			spin(round % 500) // delays the release to about the time when the stop reaches n
			n.ReleaseOne()
		}, root.Stop)
		checkNodes(t, "complete", root.IsComplete(), true, map[string]*packed.Node{"root": root, "n": n})
	}
}

func TestStop_SecondCallerWaitsForFirst(t *testing.T) {
	for range rounds(2000) {
		root := newNode(nil)
		middle := newNode(root)
		leaf := middle
		for range 40 {
			leaf = newNode(leaf)
		}
		leaf.AcquireOne()
		both(middle.Stop, func() {
			root.Stop()
			if root.IsComplete() {
				packed.FreezeTransitions()
				t.Error("the root is complete while a guard is held")
			}
		})
		if t.Failed() {
			t.Fatal(dump(map[string]*packed.Node{"root": root, "middle": middle, "leaf": leaf}))
		}
		leaf.ReleaseOne()
		checkNodes(t, "complete", root.IsComplete(), true, map[string]*packed.Node{"root": root, "middle": middle, "leaf": leaf})
	}
}

func TestStop_OfParentSealsChildButDoesNotCompleteIt(t *testing.T) {
	root := newNode(nil)
	n := newNode(root)
	n.AcquireOne()
	done := n.Done()
	root.Stop()
	n.ReleaseOne()
	check(t, "parent complete", root.IsComplete(), true)
	check(t, "sealed, signalled, complete, closed", []bool{!n.IsLive(), n.IsSignalled(), n.IsComplete(), testkit.IsClosed(done)},
		[]bool{true, false, false, false})
	n.Stop()
	check(t, "signalled, complete, closed after its own stop", []bool{n.IsSignalled(), n.IsComplete(), testkit.IsClosed(done)}, []bool{true, true, true})
}

func TestStop_SealsDeepTree(t *testing.T) {
	depth := 100_000
	if packed.Traced {
		depth = 500 // each transition is recorded with its stack
	}
	root := newNode(nil)
	leaf := root
	for range depth {
		leaf = newNode(leaf)
	}
	leaf.AcquireOne()
	check(t, "linked", linked(root), depth)
	done := root.Done()
	root.Stop()
	check(t, "complete while a guard is held", root.IsComplete(), false)
	leaf.ReleaseOne()
	check(t, "complete, closed", []bool{root.IsComplete(), testkit.IsClosed(done)}, []bool{true, true})
	leaf.AcquireOne()
	check(t, "complete while a late guard is held", root.IsComplete(), false)
	leaf.ReleaseOne()
	check(t, "complete again", root.IsComplete(), true)
}

// completions is an owner that counts the calls of OnComplete.
type completions struct{ n int }

func (c *completions) OnComplete() { c.n++ }

func TestPin_KeepsCompleteNodeLinkedUntilUnpin(t *testing.T) {
	root := newNode(nil)
	o := &completions{}
	n := &packed.Node{}
	n.Init(root, o, false)
	n.Pin()
	n.AcquireOne()
	n.Stop()
	check(t, "calls while a guard is held", o.n, 0)
	n.ReleaseOne()
	if o.n == 0 {
		t.Error("OnComplete was not called")
	}
	check(t, "linked while pinned", linked(root), 1)
	n.Unpin()
	check(t, "linked after Unpin", linked(root), 0)
}
