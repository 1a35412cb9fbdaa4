package httpdrain

// A handshake tells the bytes of a TLS handshake from those of the first request, which it does from the outside: the
// connection is below TLS. Records have a type, and what the client sends under type 23, application data, is a request,
// with one exception: in TLS 1.3, its last word in the handshake comes under that type, too. That has a length of its own.
//
// It may be wrong about a client that has a certificate, and takes two records more for a request. Then a connection that
// is not used gets the headerLimit instead of the linger.
type handshake struct {
	header   [5]byte
	have     int // bytes of the header
	left     int // bytes of the record's body
	begun    bool
	changed  bool // cipher spec
	finished bool
}

// underWay reports whether the client has begun and not finished: it is about to come to its request.
func (h *handshake) underWay() bool { return h != nil && h.begun && !h.finished }

const (
	changeCipherSpec = 20
	handshaking      = 22
	applicationData  = 23
	// A message of 4 bytes and a hash, a byte for its type and 16 for the authentication.
	finishedSHA256 = 4 + 32 + 1 + 16
	finishedSHA384 = 4 + 48 + 1 + 16
)

// saw takes the next bytes that were read, and reports whether there are some of a request among them.
func (h *handshake) saw(b []byte) bool {
	h.begun = true
	for len(b) > 0 {
		if h.left > 0 {
			n := min(h.left, len(b))
			h.left -= n
			b = b[n:]
			continue
		}
		n := copy(h.header[h.have:], b)
		h.have += n
		b = b[n:]
		if h.have < len(h.header) {
			break
		}
		h.have = 0
		h.left = int(h.header[3])<<8 | int(h.header[4])
		switch h.header[0] {
		case changeCipherSpec:
			h.changed = true
		case handshaking:
			h.finished = h.changed // TLS 1.2; or a second hello of TLS 1.3, which then has the linger for the rest
		case applicationData:
			if h.finished || h.left != finishedSHA256 && h.left != finishedSHA384 {
				return true
			}
			h.finished = true
		}
	}
	return false
}
