package roll_test

import (
	"fmt"
	"testing"

	"github.com/swansong-go/swansong/launcher/internal/roll"
)

// BenchmarkNext measures the longest path through Next: it checks every rule and finds nothing to
// start or stop.
func BenchmarkNext(b *testing.B) {
	for _, n := range []int{3, 200} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			c := roll.Config{Desired: n, MinHealthy: n, MaxSurge: 1}
			w := newWorld(c, n)
			w.act()
			b.ReportAllocs()
			for b.Loop() {
				roll.Next(c, w.state, w.view)
			}
		})
	}
}
