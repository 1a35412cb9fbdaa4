//go:build packedtrace

package packed_test

import (
	"testing"

	"github.com/swansong-go/swansong/internal/packed"
)

// Count loads the counter to which it adds, before the addition. So an acquisition notices that
// another one came in between, on the word and on a stripe.
func TestCount_LoadsItsCounterBeforeAddition(t *testing.T) {
	_, striped := newStriped(t)
	for name, n := range map[string]*packed.Node{"word": newNode(nil), "stripe": striped} {
		steps := 0
		packed.SetBeforeStep(func(on any) {
			if c, ok := on.(*packed.Counter); ok {
				if steps++; steps == 2 { // before the addition
					c.Add(1) // the acquisition of another goroutine
				}
			}
		})
		_, before, v := n.Count()
		packed.SetBeforeStep(nil)
		check(t, "guards that were added since the load, on the "+name, v-before, uint64(2))
	}
}
