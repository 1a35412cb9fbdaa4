package packed

import (
	"fmt"
	"strings"
)

// A Word is a value of a node's word. It exists for its String method.
type Word uint64

// String returns the flags and the counts of w, such as "live|unlinked guards=2 children=0". A node
// without the live flag is shown as "sealed". The guards of a node that counts on stripes contain
// the constant bias, and are shown as "guards=bias+2" or "guards=bias-1". A folded stripe is shown
// with the operations on it since it was folded, such as "folded stripe+1".
func (w Word) String() string {
	v := uint64(w)
	if v == 0 {
		return "zero: Init was not called"
	}
	if d := int64(v - foldedStripe); -1<<30 < d && d < 1<<30 {
		return fmt.Sprintf("folded stripe%+d", d)
	}
	flags := []string{"sealed"}
	if v&live != 0 {
		flags[0] = "live"
	}
	for _, f := range []struct {
		bit  uint64
		name string
	}{
		{signalled, "signalled"}, {announced, "announced"}, {unlinked, "unlinked"}, {hasChildren, "hasChildren"},
		{pinned, "pinned"}, {warned, "warned"}, {awaited, "awaited"},
	} {
		if v&f.bit != 0 {
			flags = append(flags, f.name)
		}
	}
	if v&canary == 0 {
		flags = append(flags, "NO-CANARY")
	}
	guards := fmt.Sprint(v & guardBits)
	if v&guardBits >= bias/2 {
		guards = fmt.Sprintf("bias%+d", int64(v&guardBits)-int64(bias))
	}
	return fmt.Sprintf("%s guards=%s children=%d", strings.Join(flags, "|"), guards, v&childBits/oneChild)
}

// String returns the word of n in the format of [Word.String].
func (n *Node) String() string { return n.WordOf().String() }

// WordOf returns the present value of the word of the node n, in which n counts its guards.
func (n *Node) WordOf() Word { return Word(peek(&n.word)) }
