package packed_test

import (
	"testing"

	"github.com/swansong-go/swansong/internal/packed"
)

// acquiredBeforeWarning acquires a guard of n. It reports whether the value that Count has returned
// proves that n had not been warned before.
func acquiredBeforeWarning(n *packed.Node) bool {
	c, before, v := n.Count()
	n.FinishAcquire(c, before, v)
	return packed.BeforeWarning(v)
}

// BeforeWarning must be false for acquisitions after a warning, on nodes that were linked at the
// time of the warning and on nodes that are linked later.
func TestWarn_ReachesLinkedNodes(t *testing.T) {
	root := newNode(nil)
	middle := newNode(root)
	leaf, late := newNode(middle), newNode(middle)
	check(t, "root", acquiredBeforeWarning(root), true)
	check(t, "first guard of an unlinked node: by the value, by the word", []bool{acquiredBeforeWarning(leaf), leaf.BeforeWarning()}, []bool{false, true})
	check(t, "second guard", acquiredBeforeWarning(leaf), true)
	check(t, "parent of the leaf", acquiredBeforeWarning(middle), true)
	root.Warn()
	check(t, "root, middle, leaf after the warning", []bool{acquiredBeforeWarning(root), acquiredBeforeWarning(middle), acquiredBeforeWarning(leaf)}, []bool{false, false, false})
	acquiredBeforeWarning(late)
	check(t, "a node linked after the warning", acquiredBeforeWarning(late), false)
	check(t, "live", []bool{root.IsLive(), middle.IsLive(), leaf.IsLive(), late.IsLive()}, []bool{true, true, true, true})

	n := &packed.Node{}
	n.Init(nil, noOwner{}, true)
	check(t, "a node that can be cancelled without a warning", acquiredBeforeWarning(n), false)

	_, n = newStriped(t)
	check(t, "on a stripe: by the value, by the word", []bool{acquiredBeforeWarning(n), n.BeforeWarning()}, []bool{false, true})
	n.Warn()
	check(t, "on a stripe, after the warning", []bool{acquiredBeforeWarning(n), n.BeforeWarning()}, []bool{false, false})
}

// If a guard is counted while another goroutine links its node below a warned parent, BeforeWarning
// must not report true for that guard. A fault shows only if both happen within a few nanoseconds;
// the test finds it with -tags packedtrace only.
func TestLink_CopiesWarnedBitOfParentBeforeNodeCountsAsLinked(t *testing.T) {
	for range rounds(2000) {
		root := newNode(nil)
		child := newNode(root)
		root.Warn()
		var before [3]bool
		both(child.AcquireOne, func() {
			for i := range before {
				before[i] = acquiredBeforeWarning(child)
			}
		})
		checkNodes(t, "counted before the warning", before, [3]bool{}, map[string]*packed.Node{"root": root, "child": child})
	}
}

func TestWarn_SecondCallWarnsDescendantsAgain(t *testing.T) {
	root := newNode(nil)
	leaf := newNode(root)
	leaf.AcquireOne()
	root.SetWarned()
	check(t, "the first warning has not reached the leaf", leaf.BeforeWarning(), true)
	root.Warn()
	check(t, "the second warning has", leaf.BeforeWarning(), false)
}

func TestWarn_WarnedNodeCompletesWhenStopped(t *testing.T) {
	root := newNode(nil)
	child := newNode(root)
	child.Warn()
	child.Stop()
	check(t, "complete, linked", []bool{child.IsComplete(), linked(root) > 0}, []bool{true, false})
	child.AcquireOne()
	check(t, "complete while a late guard is held", child.IsComplete(), false)
	child.ReleaseOne()
	check(t, "complete", child.IsComplete(), true)
}
