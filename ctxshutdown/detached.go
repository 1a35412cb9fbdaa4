package ctxshutdown

import (
	"errors"
	"io"
	"sync"
)

// A helper reads from a source that cannot be woken, in goroutines that may be left behind. One read is under way at
// most; what it brings is kept until somebody takes it.
//
//	idle ──start──▶ in flight ──the source returns──▶ full ──taken──▶ idle
type helper struct {
	src io.Reader

	mu     sync.Mutex
	flight chan struct{} // closed when the read in flight is over; nil: none
	full   bool          // what follows has not been taken
	buf    []byte
	data   []byte // in buf
	err    error  // comes after data
	panics any    // comes instead
}

// read returns what is there, or has it read. It returns false when it was given up first.
func (h *helper) read(p []byte, given, up <-chan struct{}) (n int, err error, ok bool) {
	for {
		h.mu.Lock()
		if h.full {
			defer h.mu.Unlock()
			n, err = h.take(p)
			return n, err, true
		}
		if h.flight == nil {
			h.start(len(p))
		}
		flight := h.flight
		h.mu.Unlock()
		select {
		case <-flight:
		case <-given:
			return 0, nil, false
		case <-up:
			return 0, nil, false
		}
	}
}

// take hands over what the last read brought. A panic of the source is raised here, in whoever asks, as iter.Pull
// does: in the helper's goroutine nobody could recover from it.
func (h *helper) take(p []byte) (n int, err error) {
	if v := h.panics; v != nil {
		h.full, h.panics = false, nil
		panic(v)
	}
	n = copy(p, h.data)
	if h.data = h.data[n:]; len(h.data) > 0 {
		return n, nil
	}
	err = h.err
	h.full, h.err = false, nil
	return n, err
}

// maxFlight bounds the buffer, which lives as long as the Reader.
const maxFlight = 64 << 10

// start has the source read, never more than somebody has asked for: whoever leaves the Reader between two Reads finds
// the source where it should be.
func (h *helper) start(size int) {
	size = min(size, maxFlight)
	if cap(h.buf) < size {
		h.buf = make([]byte, size)
	}
	flight, buf := make(chan struct{}), h.buf[:size]
	h.flight = flight
	go func() {
		n, err := 0, errGoexitInRead
		defer func() {
			v := recover()
			h.mu.Lock()
			defer h.mu.Unlock()
			h.data, h.err, h.panics = buf[:n], err, v
			h.flight, h.full = nil, true
			close(flight)
		}()
		if n, err = h.src.Read(buf); uint(n) > uint(len(buf)) {
			n, err = 0, countError(h.src, "Read", n, len(buf))
		}
	}()
}

var errGoexitInRead = errors.New("ctxshutdown: the source of a Reader ended its goroutine with runtime.Goexit")

// pending reports whether there is something that the source has given up, or is about to.
func (h *helper) pending() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.full || h.flight != nil
}

// A rest is what is left of a source after a detached Reader.
type rest struct{ h *helper }

func (r rest) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		r.h.mu.Lock()
		if r.h.full {
			defer r.h.mu.Unlock()
			return r.h.take(p)
		}
		flight := r.h.flight
		r.h.mu.Unlock()
		if flight == nil {
			return r.h.src.Read(p)
		}
		<-flight
	}
}
