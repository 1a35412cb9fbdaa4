package httpdrain

import (
	"bytes"
	"net"
	"testing"
)

// A written is a connection that keeps what is written to it.
type written struct {
	net.Conn
	bytes.Buffer
}

func (w *written) Read(b []byte) (int, error)  { return w.Buffer.Read(b) }
func (w *written) Write(b []byte) (int, error) { return w.Buffer.Write(b) }

// The announcement is written at once if the server has last written a whole frame, and otherwise
// when it has. The test announces at each byte of what a server writes.
func TestHTTP2Conn_AnnouncesBetweenFrames(t *testing.T) {
	frame := func(typ, flags byte, payload string) string {
		return string([]byte{0, 0, byte(len(payload)), typ, flags, 0, 0, 0, 1}) + payload
	}
	frames := []struct {
		bytes string
		after bool // whether the announcement may follow
	}{
		{frame(4, 0, "settin"), true},
		{frame(4, flagAck, ""), true},
		{frame(frameHeaders, 0, "header"), false},
		{frame(frameContinuation, 0, "more"), false},
		{frame(frameContinuation, flagEndHeaders, "end"), true},
		{frame(0, 0, "data"), true},
		{frame(framePushPromise, 0, "push"), false},
		{frame(frameContinuation, flagEndHeaders, "ed"), true},
		{frame(framePing, flagAck, pingData), true},
	}
	all := ""
	var allowed []int // where the announcement may be
	for _, f := range frames {
		all += f.bytes
		if f.after {
			allowed = append(allowed, len(all))
		}
	}
	announcement := string(goAway(lastStream, 0)) + frame(framePing, 0, pingData)
	announcement = announcement[:len(announcement)-9] + "\x00" + announcement[len(announcement)-8:] // of stream 0
	for at := range len(all) + 1 {
		w := &written{}
		h := newHTTP2Conn(nil, w, "")
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

// After a GOAWAY of the server, the announcement is only a PING: a later GOAWAY must not name a larger
// stream than an earlier one.
func TestHTTP2Conn_AnnouncesNoGoAwayAfterThatOfServer(t *testing.T) {
	w := &written{}
	h := newHTTP2Conn(nil, w, "")
	h.Write(goAway(3, 0))
	w.Reset()
	h.announce()
	ping := string([]byte{0, 0, 8, framePing, 0, 0, 0, 0, 0}) + pingData
	if got := w.String(); got != ping {
		t.Errorf("wrote %q, want %q", got, ping)
	}
}

// The answer to the announcement is recognized in whichever pieces it is read, and the answers to
// other PINGs are not taken for it.
func TestFrameScanner_FindsAnswer(t *testing.T) {
	ping := func(flags byte, data string) string {
		return string([]byte{0, 0, 8, framePing, flags, 0, 0, 0, 0}) + data
	}
	for name, test := range map[string]struct {
		frames string
		want   bool
	}{
		"the answer":       {ping(flagAck, "serversp") + ping(flagAck, pingData) + ping(0, "clientsp"), true},
		"another answer":   {ping(flagAck, "serversp"), false},
		"a client's PING":  {ping(0, pingData), false},
		"data that repeat": {"\x00\x00\x11\x00\x00\x00\x00\x00\x01" + ping(flagAck, pingData), false},
	} {
		for size := 1; size <= len(test.frames); size++ {
			var s frameScanner
			got := false
			for b := []byte(test.frames); len(b) > 0; {
				n := min(size, len(b))
				got = s.scan(b[:n]) || got
				b = b[n:]
			}
			if got != test.want {
				t.Errorf("%s, in pieces of %d bytes: %v, want %v", name, size, got, test.want)
			}
		}
	}
}
