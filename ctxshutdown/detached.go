package ctxshutdown

// Interrupts: the option Detached of a Reader.
//
// If a source has no deadlines, a blocked Read of the source cannot be woken. So a detached Reader
// calls Read of the source in another goroutine, and leaves that goroutine behind when the context
// ends. The bytes that the goroutine reads afterwards must not be lost. It stores them in the
// backgroundReader, and Reader.Rest returns them before it reads from the source again.
//
// The goroutine never writes to the slice that the caller of Read has passed: the caller may use
// that slice again as soon as Read has returned. So there is a buffer in between, and each byte is
// copied once more.

import (
	"errors"
	"io"
	"sync"
)

// backgroundReader reads from a source that cannot be woken. Each read runs in a goroutine that
// stays behind if its caller gives up. At most one read is in flight, and its result is kept until
// it is taken.
//
//	idle ──start──▶ in flight ──the source returns──▶ full ──take──▶ idle
type backgroundReader struct {
	src io.Reader

	mu         sync.Mutex
	inFlight   chan struct{} // closed when the read in flight returns; nil if no read is in flight
	full       bool          // whether the fields below have the result of a read that no caller has taken
	buf        []byte
	data       []byte // the bytes in buf that no caller has taken
	err        error  // the error of the read, returned once a caller has taken all of data
	panicValue any    // the value with which the source panicked in the last read; see take
}

// read returns the result of the last background read, if no caller has taken it yet. Otherwise it
// starts a read, unless one is in flight, and waits for the result. It returns errEnded if the
// channel done or the channel closing is closed first.
func (b *backgroundReader) read(p []byte, done, closing <-chan struct{}) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		b.mu.Lock()
		if b.full {
			defer b.mu.Unlock()
			return b.take(p)
		}
		if b.inFlight == nil {
			b.start(len(p))
		}
		inFlight := b.inFlight
		b.mu.Unlock()
		select {
		case <-inFlight:
		case <-done:
			return 0, errEnded
		case <-closing:
			return 0, errEnded
		}
	}
}

// take returns the result of the last background read. If the source panicked in that read, take
// panics with the same value, as iter.Pull does: the caller of take can recover from the panic,
// which is impossible for a panic in the background goroutine.
func (b *backgroundReader) take(p []byte) (n int, err error) {
	if v := b.panicValue; v != nil {
		b.full, b.panicValue = false, nil
		panic(v)
	}
	n = copy(p, b.data)
	if b.data = b.data[n:]; len(b.data) > 0 {
		return n, nil
	}
	err = b.err
	b.full, b.err = false, nil
	return n, err
}

// maxBackgroundRead is the maximum size of the buffer of a backgroundReader in bytes. It is limited
// because the buffer stays in memory as long as the Reader.
const maxBackgroundRead = 64 << 10

// start begins a read of at most size bytes in a new goroutine. It never reads more than the caller
// of Read has asked for, so that the source is at the expected position when other code reads from
// the source after the Reader.
func (b *backgroundReader) start(size int) {
	size = min(size, maxBackgroundRead)
	if cap(b.buf) < size {
		b.buf = make([]byte, size)
	}
	inFlight, buf := make(chan struct{}), b.buf[:size]
	b.inFlight = inFlight
	go func() {
		// If the source calls runtime.Goexit, err keeps the value errGoexitInRead.
		n, err := 0, errGoexitInRead
		defer func() {
			// Store a result even if Read has panicked or called Goexit. Otherwise the caller of
			// read would wait for ever.
			v := recover()
			b.mu.Lock()
			defer b.mu.Unlock()
			b.data, b.err, b.panicValue = buf[:n], err, v
			b.inFlight, b.full = nil, true
			close(inFlight)
		}()
		if n, err = b.src.Read(buf); uint(n) > uint(len(buf)) {
			n, err = 0, countError(b.src, "Read", n, len(buf))
		}
	}()
}

var errGoexitInRead = errors.New("ctxshutdown: Reader: the source ended its goroutine with runtime.Goexit")

// isPending reports whether a background read is in flight, or has a result that no caller has
// taken.
func (b *backgroundReader) isPending() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.full || b.inFlight != nil
}

// restReader is what Reader.Rest returns for a detached Reader. It returns the result of the
// background read and then reads from the source.
type restReader struct{ b *backgroundReader }

// Read first returns the result of the background read, and waits for that read if it is in flight.
// Then it reads from the source. The end of the Reader's context does not wake this Read.
func (r restReader) Read(p []byte) (int, error) {
	if r.b.isPending() {
		return r.b.read(p, nil, nil)
	}
	return r.b.src.Read(p)
}
