//go:build amd64 || arm64

package ctxshutdown_test

import (
	"slices"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"github.com/swansong-go/swansong/ctxshutdown"
)

// frames is memory for frames that are far from one another. Nothing of it is there before it is touched.
var frames [64<<20/8 + 100]uintptr

// The walk of frames follows Go's own, and ends where C has called back, of which it takes a step for none of Go's.
func TestFramePointers(t *testing.T) {
	const far = 64 << 20 / 8
	for _, c := range []struct {
		name string
		at   []int // where the frames are; the last one is the outermost
		want int   // how many are found
	}{
		{"one", []int{0}, 1},
		{"two", []int{0, 2}, 2},
		{"as many as there is room for", []int{0, 2, 4, 8, 16, 32, 34, 36, 38}, 9},
		{"more than that", []int{0, 2, 4, 8, 16, 32, 34, 36, 38, 40}, 9},
		{"the longest step", []int{10, 12, far + 12, far + 14}, 4},
		{"a longer one", []int{10, 12, far + 13, far + 15}, 2},
		{"one that is longer from the first", []int{10, far + 11}, 1},
		{"on the spot", []int{10, 12, 12}, 2},
		{"downwards", []int{10, 12, 4, 6}, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			for i, at := range slices.Backward(c.at) {
				var next uintptr
				if i+1 < len(c.at) {
					next = uintptr(unsafe.Pointer(&frames[c.at[i+1]]))
				}
				frames[at], frames[at+1] = next, uintptr(i+1) // the frame pointer of the caller, and the address to return to
			}
			var got, want [9]uintptr
			for i := range c.want {
				want[i] = uintptr(i + 1)
			}
			ctxshutdown.FramePointers(&got, unsafe.Pointer(&frames[c.at[0]]))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("addresses (-want +got):\n%s", diff)
			}
		})
	}
}
