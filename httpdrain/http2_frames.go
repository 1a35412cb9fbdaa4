package httpdrain

import (
	"encoding/binary"
	"io"
	"net"
)

const http2Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// Types and flags of HTTP/2 frames, an error code, and the largest stream.
const (
	frameHeaders      = 1
	framePushPromise  = 5
	framePing         = 6
	frameGoAway       = 7
	frameContinuation = 9

	flagAck        = 1
	flagEndHeaders = 4

	errInadequateSecurity = 12
	lastStream            = 1<<31 - 1
)

// pingData is the data of the PING that follows the first GOAWAY. The server's own PINGs have random
// data.
const pingData = "swansong"

// goAway returns a GOAWAY frame, which refuses all streams above last.
func goAway(last, code uint32) []byte {
	b := []byte{0, 0, 8, frameGoAway, 0, 0, 0, 0, 0}
	b = binary.BigEndian.AppendUint32(b, last)
	return binary.BigEndian.AppendUint32(b, code)
}

// An http2Conn is an HTTP/2 connection without encryption. It follows the frames in both
// directions, and can put a GOAWAY between those that the server writes.
type http2Conn struct {
	net.Conn
	conn   *conn
	prefix string // bytes that have been read already, and that Read returns first
	in     frameScanner
	header int // number of bytes of the preface, which precedes the client's frames, read so far

	// A goroutine that writes holds the only element of lock. It guards the fields below. A mutex
	// would stop the clock of a synctest bubble while the client does not read.
	lock       chan struct{}
	out        frameScanner
	announcing bool // the announcement is to be written as soon as the server has written a frame
}

func newHTTP2Conn(c *conn, plain net.Conn, prefix string) *http2Conn {
	return &http2Conn{Conn: plain, conn: c, prefix: prefix, lock: make(chan struct{}, 1)}
}

func (h *http2Conn) itself() *conn { return h.conn }

func (h *http2Conn) Read(b []byte) (n int, err error) {
	if h.prefix != "" {
		n = copy(b, h.prefix)
		h.prefix = h.prefix[n:]
	} else {
		n, err = h.Conn.Read(b)
	}
	frames := b[:n]
	if h.header < len(http2Preface) {
		skip := min(n, len(http2Preface)-h.header)
		h.header += skip
		frames = frames[skip:]
	}
	if h.in.scan(frames) {
		h.conn.record(connEvent{kind: eventConfirm})
	}
	return n, err
}

func (h *http2Conn) Write(b []byte) (int, error) {
	h.lock <- struct{}{}
	defer func() { <-h.lock }()
	n, err := h.Conn.Write(b)
	h.out.scan(b[:n])
	if err == nil {
		h.writeAnnouncement()
	}
	return n, err
}

// ReadFrom hides the method of Conn, which would write frames that the http2Conn does not see.
func (h *http2Conn) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{h}, r)
}

// announce tells the client to open no more streams: it makes the http2Conn write a GOAWAY that
// refuses none, and a PING. When the client has answered the PING, it has seen the GOAWAY. announce
// blocks while the client does not read.
func (h *http2Conn) announce() {
	h.lock <- struct{}{}
	defer func() { <-h.lock }()
	h.announcing = true
	h.writeAnnouncement()
}

// writeAnnouncement writes the announcement if one is to be written and if the server has last
// written a whole frame that another frame may follow. The caller holds h.lock.
func (h *http2Conn) writeAnnouncement() {
	if !h.announcing || !h.out.isBetweenFrames() {
		return
	}
	h.announcing = false
	var b []byte
	if !h.out.goneAway { // a later GOAWAY must not name a larger stream than an earlier one
		b = goAway(lastStream, 0)
	}
	b = append(b, 0, 0, 8, framePing, 0, 0, 0, 0, 0)
	if _, err := h.Conn.Write(append(b, pingData...)); err != nil {
		h.Conn.Close() // half a frame may have been written
	}
}

// A frameScanner finds the frames in a sequence of bytes.
type frameScanner struct {
	header    [9]byte // of the current frame
	headerLen int     // number of bytes of header seen so far
	left      int     // number of bytes of the current frame's payload not seen yet
	begun     bool    // at least one frame is complete
	goneAway  bool    // a GOAWAY is complete
	inBlock   bool    // the next frame must be a CONTINUATION
	ping      [8]byte // the payload of a PING
	pingLen   int
}

// isBetweenFrames reports whether the bytes so far end with a frame that any frame may follow.
func (s *frameScanner) isBetweenFrames() bool { return s.begun && s.headerLen == 0 && !s.inBlock }

// scan continues with b. It reports whether the answer to a PING with pingData ends in b.
func (s *frameScanner) scan(b []byte) (answered bool) {
	for len(b) > 0 {
		if s.headerLen < len(s.header) {
			n := copy(s.header[s.headerLen:], b)
			s.headerLen += n
			b = b[n:]
			if s.headerLen < len(s.header) {
				return answered
			}
			s.left = int(s.header[0])<<16 | int(s.header[1])<<8 | int(s.header[2])
			s.pingLen = 0
		}
		n := min(s.left, len(b))
		typ, flags := s.header[3], s.header[4]
		if typ == framePing && flags&flagAck != 0 {
			s.pingLen += copy(s.ping[s.pingLen:], b[:n])
		}
		s.left -= n
		b = b[n:]
		if s.left > 0 {
			return answered
		}
		s.headerLen, s.begun = 0, true
		switch typ {
		case frameHeaders, framePushPromise, frameContinuation:
			s.inBlock = flags&flagEndHeaders == 0
		case frameGoAway:
			s.goneAway = true
		case framePing:
			answered = answered || string(s.ping[:s.pingLen]) == pingData
		}
	}
	return answered
}
