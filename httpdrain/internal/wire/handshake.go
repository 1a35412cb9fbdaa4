package wire

// A Handshake finds the end of a TLS handshake in the encrypted bytes that a client sends. Package
// httpdrain sees a connection below TLS, but the record type and the length of each TLS record are
// readable. A record of type 23, application data, is part of a request, with one exception: in TLS
// 1.3 the client's last handshake message has that record type too. It is recognized by its length.
//
// A client that sends a certificate sends longer messages at the end of the handshake, which a
// Handshake takes for part of a request. If such a client sends no request after that, the drain
// waits headerTimeout for the rest of the request, where it would wait only for the linger.
type Handshake struct {
	header     [5]byte
	headerLen  int // number of bytes of the current record's header read so far
	bodyLeft   int // number of bytes of the current record's body not read yet
	begun      bool
	newCipher  bool // the client has sent ChangeCipherSpec; in TLS 1.2, one more message follows
	isFinished bool
}

// IsUnderWay reports whether the client has begun the handshake and not finished it. Such a client
// will probably send a request soon.
func (h *Handshake) IsUnderWay() bool { return h.begun && !h.isFinished }

// Types of TLS records.
const (
	RecordChangeCipherSpec = 20
	RecordHandshake        = 22
	RecordApplicationData  = 23
)

// Lengths in bytes of the record with Finished, the client's last handshake message in TLS 1.3. The
// record contains the header of the message (4 bytes), a hash, the type of the record (1 byte) and
// the authentication tag (16 bytes).
const (
	finishedSHA256 = 4 + 32 + 1 + 16
	finishedSHA384 = 4 + 48 + 1 + 16
)

// HasRequest examines b, the next bytes from the client, and reports whether they contain part of a
// request.
func (h *Handshake) HasRequest(b []byte) bool {
	h.begun = true
	for len(b) > 0 {
		if h.bodyLeft > 0 {
			n := min(h.bodyLeft, len(b))
			h.bodyLeft -= n
			b = b[n:]
			continue
		}
		n := copy(h.header[h.headerLen:], b)
		h.headerLen += n
		b = b[n:]
		if h.headerLen < len(h.header) {
			break
		}
		h.headerLen = 0
		h.bodyLeft = int(h.header[3])<<8 | int(h.header[4])
		switch h.header[0] {
		case RecordChangeCipherSpec:
			h.newCipher = true
		case RecordHandshake:
			// In TLS 1.3 this may be the client's second ClientHello. The handshake then still goes
			// on, but counts as finished here. So the drain gives the client no more time to
			// complete it than it gives to a quiet connection.
			h.isFinished = h.newCipher
		case RecordApplicationData:
			if h.isFinished || h.bodyLeft != finishedSHA256 && h.bodyLeft != finishedSHA384 {
				return true
			}
			h.isFinished = true
		}
	}
	return false
}
