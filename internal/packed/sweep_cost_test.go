//go:build packedtrace

package packed_test

import (
	"sync"
	"testing"

	"github.com/swansong-go/swansong/internal/packed"
)

// The sweeps of a list cost each child that is linked a constant number of steps, although no child
// is idle, so that no sweep makes the list shorter.
func TestLink_SweepsCostConstantPerChild(t *testing.T) {
	steps := 0
	packed.SetBeforeStep(func(*sync.Mutex) { steps++ })
	defer packed.SetBeforeStep(nil)
	root := newNode(nil)
	costOf := func(children int) float64 {
		steps = 0
		for range children {
			n := newNode(root)
			n.FinishAcquire(n.Count())
		}
		return float64(steps) / float64(children)
	}
	few, many := costOf(200), costOf(6400)
	if many > 2*few {
		t.Errorf("a child costs %.1f steps among %d children, and %.1f among %d", few, 200, many, 6600)
	}
}
