package packed_test

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"weak"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/swansong-go/swansong/internal/packed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// idle is the owner of a node that is not asked about.
type idle struct{}

func (idle) Completed() {}

// toldOwner counts how often it is told of its completion.
type toldOwner struct {
	told int
}

func (o *toldOwner) Completed() { o.told++ }

func newNode(parent *packed.Node) *packed.Node {
	n := &packed.Node{}
	n.Init(parent, idle{}, false)
	return n
}

// linked counts the scopes below n that its list and theirs know.
func linked(n *packed.Node) int {
	count := -1
	n.Walk(func(packed.Owner, int) { count++ })
	return count
}

func guards(n *packed.Node) int {
	total := 0
	n.Walk(func(_ packed.Owner, guards int) { total += guards })
	return total
}

func panicOf(f func()) (text string) {
	defer func() {
		if r := recover(); r != nil {
			text = fmt.Sprint(r)
		}
	}()
	f()
	return ""
}

// check compares what a test got with what it wants.
func check(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestZeroNodePanicsWithASentence(t *testing.T) {
	var n packed.Node
	for range 2 { // the first panic may not leave a word that passes for a good one
		if got := panicOf(n.Acquire); !strings.Contains(got, "zero Swansong") {
			t.Errorf("Acquire of a zero Node panicked with %q", got)
		}
	}
}

func TestReleaseTooOftenPanicsAndLeavesTheWord(t *testing.T) {
	for name, prepare := range map[string]func(root, n *packed.Node){
		"loose":           func(_, _ *packed.Node) {},
		"linked":          func(_, n *packed.Node) { n.Acquire(); n.Release() },
		"sealed":          func(root, _ *packed.Node) { root.Stop() },
		"linked, sealed":  func(root, n *packed.Node) { n.Acquire(); n.Release(); root.Stop() },
		"stopped":         func(_, n *packed.Node) { n.Stop() },
		"after late ones": func(root, n *packed.Node) { root.Stop(); n.Acquire(); n.Release() },
	} {
		t.Run(name, func(t *testing.T) {
			root := newNode(nil)
			n := newNode(root)
			prepare(root, n)
			for range 3 {
				if got := panicOf(n.Release); !strings.Contains(got, "never acquired") {
					t.Errorf("Release panicked with %q", got)
				}
			}
			n.Acquire()
			check(t, "guards", guards(root), 1)
			root.Stop()
			check(t, "complete while a guard is held", root.Complete(), false)
			n.Release()
			check(t, "complete", root.Complete(), true)
			n.Stop()
			check(t, "child complete", n.Complete(), true)
		})
	}
}

func TestReleasesTooManyAtOnceWakeWhoWaits(t *testing.T) {
	root := newNode(nil)
	n := newNode(root)
	n.Acquire()
	done := root.Done()
	root.Stop()
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for range 1000 {
				panicOf(root.Release)
			}
		})
	}
	n.Release()
	wg.Wait()
	<-done
	check(t, "complete", root.Complete(), true)
}

func TestDoneStaysClosedAndIsFreshAfterALateGuard(t *testing.T) {
	root := newNode(nil)
	n := newNode(root)
	first := root.Done()
	check(t, "Done again", root.Done() == first, true)
	n.Acquire()
	root.Stop()
	check(t, "closed while held", isClosed(first), false)
	n.Release()
	check(t, "closed", isClosed(first), true)
	check(t, "Done of a complete scope is closed", isClosed(root.Done()), true)

	n.Acquire()
	second := root.Done()
	check(t, "the first stays closed", isClosed(first), true)
	check(t, "the second waits", isClosed(second), false)
	check(t, "Done again", root.Done() == second, true)
	n.Release()
	check(t, "the second is closed", isClosed(second), true)
}

func TestWhoAsksDuringTheLastReleaseIsWoken(t *testing.T) {
	for range 20_000 {
		root := newNode(nil)
		n := newNode(root)
		n.Acquire()
		root.Stop()
		var meet together
		var wg sync.WaitGroup
		wg.Go(func() {
			meet.wait(2)
			n.Release()
		})
		wg.Go(func() {
			meet.wait(2)
			<-root.Done()
		})
		wg.Wait()
	}
}

func TestGuardReleasedDuringTheStop(t *testing.T) {
	var clock atomic.Int64
	for round := range 20_000 {
		root := newNode(nil)
		n := newNode(root)
		n.Acquire()
		var meet together
		var wg sync.WaitGroup
		wg.Go(func() {
			meet.wait(2)
			for range round % 500 { // the stop takes that long to get to n
				clock.Load()
			}
			n.Release()
		})
		wg.Go(func() {
			meet.wait(2)
			root.Stop()
		})
		wg.Wait()
		check(t, "complete", root.Complete(), true)
	}
}

func TestDoneOfAScopeThatWasCompleteBeforeAnybodyAsked(t *testing.T) {
	root := newNode(nil)
	root.Stop()
	check(t, "closed", isClosed(root.Done()), true)
	root.Acquire()
	late := root.Done()
	check(t, "late", isClosed(late), false)
	root.Release()
	check(t, "late, released", isClosed(late), true)
}

func TestStopIsIdempotentAndSaysSo(t *testing.T) {
	for name, prepare := range map[string]func(n *packed.Node){
		"loose":   func(*packed.Node) {},
		"watched": func(n *packed.Node) { n.Done() },
		"linked":  func(n *packed.Node) { n.Acquire(); n.Release() },
		"pinned":  func(n *packed.Node) { n.Pin() },
	} {
		t.Run(name, func(t *testing.T) {
			root := newNode(nil)
			n := newNode(root)
			prepare(n)
			check(t, "before", []bool{n.Live(), n.Signalled(), n.Complete()}, []bool{true, false, false})
			for range 3 {
				n.Stop()
				check(t, "after", []bool{n.Live(), n.Signalled(), n.Complete()}, []bool{false, true, true})
			}
			check(t, "the parent", []bool{root.Live(), root.Complete()}, []bool{true, false})
		})
	}
}

func TestSecondStopperWaitsForTheFirst(t *testing.T) {
	for range 2000 {
		root := newNode(nil)
		middle := newNode(root)
		leaf := middle
		for range 40 {
			leaf = newNode(leaf)
		}
		leaf.Acquire()
		var wg sync.WaitGroup
		var meet together
		wg.Go(func() {
			meet.wait(2)
			middle.Stop()
		})
		wg.Go(func() {
			meet.wait(2)
			root.Stop()
			if root.Complete() {
				t.Error("the root is complete while a guard is held")
			}
		})
		wg.Wait()
		leaf.Release()
		check(t, "complete", root.Complete(), true)
	}
}

func TestSealedChildIsNotComplete(t *testing.T) {
	root := newNode(nil)
	n := newNode(root)
	n.Acquire()
	done := n.Done()
	root.Stop()
	n.Release()
	check(t, "the parent's completion", root.Complete(), true)
	check(t, "sealed, signalled, complete", []bool{!n.Live(), n.Signalled(), n.Complete(), isClosed(done)},
		[]bool{true, false, false, false})
	n.Stop()
	check(t, "stopped by itself", []bool{n.Signalled(), n.Complete(), isClosed(done)}, []bool{true, true, true})
}

func TestChildOfAStoppedScopeIsBornSealed(t *testing.T) {
	root := newNode(nil)
	root.Stop()
	n := newNode(newNode(root))
	n.Acquire()
	check(t, "root complete", root.Complete(), false)
	check(t, "live", []bool{n.Live(), n.Parent().Live()}, []bool{false, false})
	n.Release()
	check(t, "root complete", root.Complete(), true)
}

func TestPinnedOwnerIsTold(t *testing.T) {
	root := newNode(nil)
	o := &toldOwner{}
	n := &packed.Node{}
	n.Init(root, o, false)
	n.Pin()
	n.Acquire()
	n.Stop()
	check(t, "told while held", o.told, 0)
	n.Release()
	if o.told == 0 {
		t.Error("not told")
	}
	check(t, "linked while pinned", linked(root), 1)
	n.Unpin()
	check(t, "linked", linked(root), 0)
}

func TestDeepChain(t *testing.T) {
	const depth = 100_000
	root := newNode(nil)
	leaf := root
	for range depth {
		leaf = newNode(leaf)
	}
	leaf.Acquire()
	check(t, "linked", linked(root), depth)
	done := root.Done()
	root.Stop()
	check(t, "complete while held", root.Complete(), false)
	leaf.Release()
	check(t, "complete", []bool{root.Complete(), isClosed(done)}, []bool{true, true})
	leaf.Acquire()
	check(t, "complete under a late guard", root.Complete(), false)
	leaf.Release()
	check(t, "complete again", root.Complete(), true)
}

func TestListIsBounded(t *testing.T) {
	root := newNode(nil)
	longest := 0
	for i := range 1_000_000 {
		n := newNode(root)
		n.Acquire()
		n.Release()
		if i%997 == 0 {
			longest = max(longest, linked(root))
		}
	}
	if longest > 33 {
		t.Errorf("%d idle children linked, want no more than 33", longest)
	}

	var holders []*packed.Node
	for range 1000 {
		n := newNode(root)
		n.Acquire()
		holders = append(holders, n)
		for range 10 {
			n := newNode(root)
			n.Acquire()
			n.Release()
		}
	}
	if got := linked(root); got > 2*len(holders)+33 {
		t.Errorf("%d children linked, of which %d hold a guard", got, len(holders))
	}
	check(t, "guards", guards(root), len(holders))
	root.Stop()
	for i, n := range holders {
		if root.Complete() {
			t.Fatalf("complete while %d guards are held", len(holders)-i)
		}
		n.Release()
	}
	check(t, "complete", root.Complete(), true)
}

func TestStoppedChildrenLeaveTheList(t *testing.T) {
	root := newNode(nil)
	for range 20 { // fewer than a sweep takes
		n := newNode(root)
		n.Acquire()
		n.Stop()
		check(t, "linked while held", linked(root), 1)
		n.Release()
		check(t, "linked", linked(root), 0)
	}
}

func TestForgottenChildrenAreCollected(t *testing.T) {
	root := newNode(nil)
	for name, use := range map[string]func(n *packed.Node){
		"never used": func(*packed.Node) {},
		"watched":    func(n *packed.Node) { n.Done() },
		"stopped":    func(n *packed.Node) { n.Stop() },
		"guarded":    func(n *packed.Node) { n.Acquire(); n.Stop(); n.Release() },
		"with a child": func(n *packed.Node) {
			k := newNode(n)
			k.Acquire()
			k.Release()
			k.Stop()
			n.Stop()
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := func() weak.Pointer[packed.Node] {
				n := newNode(root)
				use(n)
				return weak.Make(n)
			}()
			for range 10 {
				if runtime.GC(); p.Value() == nil {
					return
				}
			}
			t.Error("still reachable from the parent")
		})
	}
	runtime.KeepAlive(root)
}

// A child that is done with must not stay because of its own children that are: nobody would look at them again.
func TestIdleSubtreesLeaveTheList(t *testing.T) {
	for _, test := range []struct {
		name string
		use  func(conn, req *packed.Node)
	}{
		{"neither stopped", func(conn, req *packed.Node) { req.Acquire(); req.Release() }},
		{"outer stopped", func(conn, req *packed.Node) { req.Acquire(); req.Release(); conn.Stop() }},
		{"outer stopped before the release", func(conn, req *packed.Node) { req.Acquire(); conn.Stop(); req.Release() }},
		{"outer stopped before inner", func(conn, req *packed.Node) { req.Acquire(); conn.Stop(); req.Release(); req.Stop() }},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := newNode(nil)
			for range 10_000 {
				conn := newNode(root)
				test.use(conn, newNode(conn))
			}
			if n := linked(root); n > 100 {
				t.Errorf("%d scopes linked that hold nothing", n)
			}
		})
	}
}
