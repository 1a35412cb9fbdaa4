package wire_test

import (
	"testing"

	"github.com/swansong-go/swansong/httpdrain/internal/wire"
)

// A FrameScanner recognizes the answer to the PING that follows the first GOAWAY, even if it is
// read in several pieces. It does not mistake the answer to another PING for it.
func TestFrameScanner_FindsAnswerToPing(t *testing.T) {
	ping := func(flags byte, data string) string {
		return string([]byte{0, 0, 8, wire.FramePing, flags, 0, 0, 0, 0}) + data
	}
	for name, test := range map[string]struct {
		frames string
		want   bool
	}{
		"the answer":       {ping(wire.FlagAck, "serversp") + ping(wire.FlagAck, wire.PingData) + ping(0, "clientsp"), true},
		"another answer":   {ping(wire.FlagAck, "serversp"), false},
		"a client's PING":  {ping(0, wire.PingData), false},
		"data that repeat": {"\x00\x00\x11\x00\x00\x00\x00\x00\x01" + ping(wire.FlagAck, wire.PingData), false},
	} {
		for size := 1; size <= len(test.frames); size++ {
			var s wire.FrameScanner
			got := false
			for b := []byte(test.frames); len(b) > 0; {
				n := min(size, len(b))
				got = s.Scan(b[:n]) || got
				b = b[n:]
			}
			if got != test.want {
				t.Errorf("%s, in pieces of %d bytes: %v, want %v", name, size, got, test.want)
			}
		}
	}
}
