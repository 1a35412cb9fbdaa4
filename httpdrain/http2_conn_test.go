package httpdrain

import (
	"bytes"
	"net"
	"testing"

	"github.com/swansong-go/swansong/httpdrain/internal/wire"
)

// A written is a connection that keeps the bytes written to it.
type written struct {
	net.Conn
	bytes.Buffer
}

func (w *written) Read(b []byte) (int, error)  { return w.Buffer.Read(b) }
func (w *written) Write(b []byte) (int, error) { return w.Buffer.Write(b) }

// announce writes the GOAWAY and the PING at once if the server has last written a whole frame, and
// otherwise as soon as it has. The test calls announce after each byte that a server writes.
func TestHTTP2Conn_WritesGoAwayBetweenFrames(t *testing.T) {
	frame := func(typ, flags byte, payload string) string {
		return string([]byte{0, 0, byte(len(payload)), typ, flags, 0, 0, 0, 1}) + payload
	}
	frames := []struct {
		bytes string
		after bool // whether the server may write its GOAWAY and its PING directly after this frame
	}{
		{frame(4, 0, "settin"), true},
		{frame(4, wire.FlagAck, ""), true},
		{frame(wire.FrameHeaders, 0, "header"), false},
		{frame(wire.FrameContinuation, 0, "more"), false},
		{frame(wire.FrameContinuation, wire.FlagEndHeaders, "end"), true},
		{frame(0, 0, "data"), true},
		{frame(wire.FramePushPromise, 0, "push"), false},
		{frame(wire.FrameContinuation, wire.FlagEndHeaders, "ed"), true},
		{frame(wire.FramePing, wire.FlagAck, wire.PingData), true},
	}
	all := ""
	var allowed []int // the offsets in all at which httpdrain may insert the GOAWAY and the PING
	for _, f := range frames {
		all += f.bytes
		if f.after {
			allowed = append(allowed, len(all))
		}
	}
	announcement := string(wire.GoAway(wire.LastStream, 0)) + frame(wire.FramePing, 0, wire.PingData)
	// frame has put the PING into stream 1, but a PING belongs to stream 0.
	announcement = announcement[:len(announcement)-9] + "\x00" + announcement[len(announcement)-8:]
	for at := range len(all) + 1 {
		w := &written{}
		h := newHTTP2Conn(nil, w, w)
		h.Write([]byte(all[:at]))
		h.announce()
		for i := range all[at:] {
			h.Write([]byte(all[at+i : at+i+1]))
		}
		i := 0
		for allowed[i] < at {
			i++
		}
		want := all[:allowed[i]] + announcement + all[allowed[i]:]
		if got := w.String(); got != want {
			t.Fatalf("announced after %d bytes: wrote %q\nwant %q", at, got, want)
		}
	}
}

// If the server has written a GOAWAY, announce writes only the PING: a later GOAWAY must not name a
// larger stream than an earlier one.
func TestHTTP2Conn_WritesNoGoAwayAfterGoAwayOfServer(t *testing.T) {
	w := &written{}
	h := newHTTP2Conn(nil, w, w)
	h.Write(wire.GoAway(3, 0))
	w.Reset()
	h.announce()
	ping := string([]byte{0, 0, 8, wire.FramePing, 0, 0, 0, 0, 0}) + wire.PingData
	if got := w.String(); got != ping {
		t.Errorf("wrote %q, want %q", got, ping)
	}
}
