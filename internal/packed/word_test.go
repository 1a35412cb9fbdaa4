package packed_test

import (
	"testing"

	"github.com/swansong-go/swansong/internal/packed"
)

func TestWord_StringNamesFlags(t *testing.T) {
	root := newNode(nil)
	n := newNode(root)
	check(t, "new", []string{root.String(), n.String()}, []string{"live guards=0 children=0", "live|unlinked guards=0 children=0"})
	n.AcquireOne()
	n.AcquireOne()
	n.Warn()
	check(t, "with guards, warned", []string{root.String(), n.String()}, []string{"live|hasChildren guards=0 children=0", "live|warned guards=2 children=0"})
	root.Done()
	root.Stop()
	check(t, "stopped", []string{root.String(), n.String()},
		[]string{"sealed|signalled|hasChildren|awaited guards=0 children=1", "sealed|announced|warned guards=2 children=0"})
	_, n = newStriped(t)
	check(t, "with stripes", n.String(), "live guards=bias+0 children=0")
	check(t, "folded stripe, and a release on it", []string{packed.Word(1 << 56).String(), packed.Word(1<<56 - 1).String()},
		[]string{"folded stripe+0", "folded stripe-1"})
	check(t, "zero", (&packed.Node{}).String(), "zero: Init was not called")
	check(t, "without the canary", packed.Word(1<<57|3).String(), "live|NO-CANARY guards=3 children=0")
}
