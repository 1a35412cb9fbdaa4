package packed_test

import (
	"runtime"
	"sync/atomic"
	"testing"
	"weak"

	"github.com/swansong-go/swansong/internal/packed"
)

func TestLink_SealsChildOfStoppedParent(t *testing.T) {
	root := newNode(nil)
	root.Stop()
	n := newNode(newNode(root))
	n.AcquireOne()
	check(t, "root complete while a guard is held", root.IsComplete(), false)
	check(t, "live: n, its parent", []bool{n.IsLive(), n.Parent().IsLive()}, []bool{false, false})
	n.ReleaseOne()
	check(t, "root complete", root.IsComplete(), true)
}

func TestChildList_HasFewIdleChildrenHoweverManyWereCreated(t *testing.T) {
	root := newNode(nil)
	longest := 0
	for i := range rounds(1_000_000) {
		n := newNode(root)
		n.AcquireOne()
		n.ReleaseOne()
		if i%997 == 0 {
			longest = max(longest, linked(root))
		}
	}
	if longest > 33 {
		t.Errorf("%d idle children linked, want at most 33", longest)
	}

	var busy []*packed.Node
	for range 1000 {
		n := newNode(root)
		n.AcquireOne()
		busy = append(busy, n)
		for range 10 {
			n := newNode(root)
			n.AcquireOne()
			n.ReleaseOne()
		}
	}
	if got := linked(root); got > 2*len(busy)+33 {
		t.Errorf("%d children linked, of which %d hold a guard", got, len(busy))
	}
	check(t, "guards", guards(root), len(busy))
	root.Stop()
	for i, n := range busy {
		if root.IsComplete() {
			t.Fatalf("complete while %d guards are held", len(busy)-i)
		}
		n.ReleaseOne()
	}
	check(t, "complete", root.IsComplete(), true)
}

func TestUnlink_RemovesStoppedChildren(t *testing.T) {
	root := newNode(nil)
	// Each round checks the list before another child is linked. Linking a child also removes idle
	// children from the list, so it would hide a release that does not unlink its node.
	for range 20 {
		n := newNode(root)
		n.AcquireOne()
		n.Stop()
		check(t, "linked while a guard is held", linked(root), 1)
		n.ReleaseOne()
		check(t, "linked", linked(root), 0)
	}
}

func TestUnlink_UnreferencedChildrenAreGarbageCollected(t *testing.T) {
	root := newNode(nil)
	for name, use := range map[string]func(n *packed.Node){
		"never used": func(*packed.Node) {},
		"awaited":    func(n *packed.Node) { n.Done() },
		"stopped":    func(n *packed.Node) { n.Stop() },
		"guarded":    func(n *packed.Node) { n.AcquireOne(); n.Stop(); n.ReleaseOne() },
		"with a child": func(n *packed.Node) {
			child := newNode(n)
			child.AcquireOne()
			child.ReleaseOne()
			child.Stop()
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

// The pointer to the child with which the next sweep begins must not keep that child in memory once
// it has left the list.
func TestUnlink_SweepDoesNotKeepRemovedChildInMemory(t *testing.T) {
	root := newNode(nil)
	busy := func() *packed.Node {
		n := newNode(root)
		n.AcquireOne()
		return n
	}
	p := func() weak.Pointer[packed.Node] {
		n := busy()
		for range 2 { // after the second push, the next sweep would begin with n
			busy()
		}
		n.Stop()
		n.ReleaseOne()
		return weak.Make(n)
	}()
	for range 10 {
		if runtime.GC(); p.Value() == nil {
			runtime.KeepAlive(root)
			return
		}
	}
	t.Error("a child that was stopped and released its guard is still reachable from its parent")
}

// An idle child must not stay linked because of its own idle children: no later operation would
// unlink it.
func TestUnlink_RemovesIdleSubtrees(t *testing.T) {
	for _, test := range []struct {
		name string
		use  func(conn, req *packed.Node)
	}{
		{"neither stopped", func(conn, req *packed.Node) { req.AcquireOne(); req.ReleaseOne() }},
		{"outer stopped", func(conn, req *packed.Node) { req.AcquireOne(); req.ReleaseOne(); conn.Stop() }},
		{"outer stopped before the release", func(conn, req *packed.Node) { req.AcquireOne(); conn.Stop(); req.ReleaseOne() }},
		{"outer stopped before inner", func(conn, req *packed.Node) { req.AcquireOne(); conn.Stop(); req.ReleaseOne(); req.Stop() }},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := newNode(nil)
			for range rounds(10_000) {
				conn := newNode(root)
				test.use(conn, newNode(conn))
			}
			if n := linked(root); n > 100 {
				t.Errorf("%d idle nodes are linked, want at most 100", n)
			}
		})
	}
}

// A sweep must not unlink a node whose guard was counted after the sweep has found the node idle.
func TestUnlink_KeepsNodeWhoseGuardIsAcquiredDuringSweep(t *testing.T) {
	root := newNode(nil)
	n := newNode(root)
	var finished atomic.Bool
	unlinked := ""
	both(func() {
		defer finished.Store(true)
		for range rounds(1_000_000) {
			n.AcquireOne()
			if !n.IsLinked() {
				unlinked = dump(map[string]*packed.Node{"root": root, "n": n})
				return
			}
			n.ReleaseOne()
		}
	}, func() {
		for !finished.Load() {
			n.UnlinkIfIdle()
		}
	})
	if unlinked != "" {
		t.Fatalf("a node was unlinked while a guard is held\n%s", unlinked)
	}
	root.Stop()
	check(t, "complete", root.IsComplete(), true)
}
