//go:build packedtrace

package packed_test

import (
	"testing"

	"github.com/swansong-go/swansong/internal/packed"
)

// A push to a list of busy children never takes more steps than one to a short list, although the
// sweep removes no child.
func TestLink_CostDoesNotGrowWithSiblings(t *testing.T) {
	steps := 0
	packed.SetBeforeStep(func(any) { steps++ })
	defer packed.SetBeforeStep(nil)
	root := newNode(nil)
	most := func(children int) (most int) {
		for range children {
			steps = 0
			n := newNode(root)
			n.FinishAcquire(n.Count())
			most = max(most, steps)
		}
		return most
	}
	few := most(10)
	if many := most(10_000); many > few {
		t.Errorf("the first guard of a child takes %d steps among 10 siblings, and %d among 10,000", few, many)
	}
}
