package packed_test

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/swansong-go/swansong/internal/packed"
)

// The tests in this file check the order of two steps of the protocol. The models in the folder
// models check the same with the controls LIST_FIRST, GROW_LATE and NO_RECHECK.

// Warn sets the warned bit before it lists the children, because a child that is linked between the
// two steps would otherwise not be warned.
func TestWarn_SetsWarnedBitBeforeListingChildren(t *testing.T) {
	root := newNode(nil)
	child := newNode(root)
	child.AcquireOne()
	check(t, "BeforeWarning of the root before Warn", root.BeforeWarning(), true)
	watch(t, 20*time.Second, func() map[string]*packed.Node { return map[string]*packed.Node{"root": root, "child": child} })
	unlock := root.Lock() // Warn needs the lock to list the children
	var before bool
	both(root.Warn, func() {
		waitUntilBlocked("(*Node).Warn")
		before = root.BeforeWarning()
		unlock()
	})
	check(t, "BeforeWarning of the root while Warn waits for the lock", before, false)
	check(t, "BeforeWarning of the child after Warn", child.BeforeWarning(), false)
}

// A node gets no new stripes once a stop has begun to seal it. The seal folds the stripes once, so
// guards that are counted on stripes after that fold would be missed.
func TestStripes_AreNotCreatedOnceStopHasBegun(t *testing.T) {
	root := newNode(nil)
	child := newNode(root)
	child.AcquireOne() // the first guard puts child into the list of root
	nodes := map[string]*packed.Node{"root": root, "child": child}
	watch(t, 20*time.Second, func() map[string]*packed.Node { return nodes })
	unlock := child.Lock()
	var live, hasStripes bool
	both(root.Stop, func() {
		// Stop has begun to seal root, and now seals child: that call of seal waits for the lock of
		// child.
		waitUntilBlocked("(*Node).seal")
		live, hasStripes = root.IsLive(), root.Grow()
		unlock()
	})
	checkNodes(t, "root is live and has stripes", []bool{live, hasStripes}, []bool{true, false}, nodes)
	child.ReleaseOne()
	checkNodes(t, "root is complete", root.IsComplete(), true, nodes)
}

// A node that is linked while its parent is being sealed is not in the list of children that the
// seal walks. So it must be sealed when it is linked, although the parent is still live.
func TestLink_ChildLinkedDuringStopOfParentIsSealed(t *testing.T) {
	root := newNode(nil)
	child, late := newNode(root), newNode(root)
	child.AcquireOne() // the first guard puts child into the list of root
	nodes := map[string]*packed.Node{"root": root, "child": child, "late": late}
	watch(t, 20*time.Second, func() map[string]*packed.Node { return nodes })
	unlock := child.Lock()
	var rootLive, lateLive bool
	both(root.Stop, func() {
		// root.Stop has copied the list of children, and now waits for the lock of child, which the
		// test holds.
		waitUntilBlocked("(*Node).seal")
		late.AcquireOne()
		rootLive, lateLive = root.IsLive(), late.IsLive()
		unlock()
	})
	child.ReleaseOne()
	checkNodes(t, "root live, late live, root complete", []bool{rootLive, lateLive, root.IsComplete()}, []bool{true, false, false}, nodes)
	late.ReleaseOne()
	checkNodes(t, "root complete after the release", root.IsComplete(), true, nodes)
}

// A guard may be released after a stop has sealed its node, and before the stop has counted the
// node in the parent's word. The release cannot undo a count that is not there yet. So the stop,
// which counts the node afterwards, must undo that itself.
func TestStop_LeavesNoCountInParentIfLastGuardIsReleasedMeanwhile(t *testing.T) {
	for range rounds(2000) {
		root := newNode(nil)
		children := make([]*packed.Node, 64)
		for i := range children {
			children[i] = newNode(root)
			children[i].AcquireOne()
		}
		both(root.Stop, func() {
			for i := range children {
				child := children[len(children)-1-i] // the stop seals the children in this order
				for child.IsLive() {
				}
				child.ReleaseOne()
			}
		})
		checkNodes(t, "root is complete", root.IsComplete(), true, map[string]*packed.Node{"root": root})
	}
}

// waitUntilBlocked returns when a goroutine that runs the method waits for a mutex.
func waitUntilBlocked(method string) {
	stacks := make([]byte, 1<<20)
	for {
		for stack := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
			if strings.Contains(stack, method) && strings.Contains(stack, "[sync.Mutex.Lock") {
				return
			}
		}
		runtime.Gosched()
	}
}
