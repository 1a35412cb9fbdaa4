package wire

import "encoding/binary"

// Preface is what an HTTP/2 client sends first.
const Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// Types and flags of HTTP/2 frames, an error code, and the highest number that a stream can have.
const (
	FrameHeaders      = 1
	FramePushPromise  = 5
	FramePing         = 6
	FrameGoAway       = 7
	FrameContinuation = 9

	FlagAck        = 1
	FlagEndHeaders = 4

	InadequateSecurity = 12
	LastStream         = 1<<31 - 1
)

// PingData is the data of the PING that follows the first GOAWAY. The server's own PINGs have
// random data.
const PingData = "swansong"

// GoAway returns a GOAWAY frame, which refuses all streams above last.
func GoAway(last, code uint32) []byte {
	b := []byte{0, 0, 8, FrameGoAway, 0, 0, 0, 0, 0}
	b = binary.BigEndian.AppendUint32(b, last)
	return binary.BigEndian.AppendUint32(b, code)
}

// A FrameScanner finds the frames in a sequence of bytes.
type FrameScanner struct {
	header    [9]byte // header of the current frame
	headerLen int     // number of bytes of header seen so far
	left      int     // number of bytes of the current frame's payload not seen yet
	begun     bool    // the scanner has seen at least one complete frame
	GoneAway  bool    // the scanner has seen a complete GOAWAY
	inBlock   bool    // the next frame must be a CONTINUATION
	ping      [8]byte // the payload of the current frame, if it is a PING
	pingLen   int
}

// IsBetweenFrames reports whether the bytes so far end with a frame that any frame may follow.
func (s *FrameScanner) IsBetweenFrames() bool { return s.begun && s.headerLen == 0 && !s.inBlock }

// Scan examines b, the bytes that follow those of the previous call. It reports whether the answer
// to a PING with PingData ends in b.
func (s *FrameScanner) Scan(b []byte) (answered bool) {
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
		if typ == FramePing && flags&FlagAck != 0 {
			s.pingLen += copy(s.ping[s.pingLen:], b[:n])
		}
		s.left -= n
		b = b[n:]
		if s.left > 0 {
			return answered
		}
		s.headerLen, s.begun = 0, true
		switch typ {
		case FrameHeaders, FramePushPromise, FrameContinuation:
			s.inBlock = flags&FlagEndHeaders == 0
		case FrameGoAway:
			s.GoneAway = true
		case FramePing:
			answered = answered || string(s.ping[:s.pingLen]) == PingData
		}
	}
	return answered
}
