package ctxshutdown

// Interrupts: readers.
//
// A Read returns, depending on the source:
//
//	deadlines that work      at the end of the context
//	others, with Detached    at the end of the context, and leaves the source to a goroutine
//	others                   when the source returns
//
// A Reader has ended after any of the following. Its guard is then released, and it is no longer
// registered with the context.
//
//	the context is done    Read returns io.EOF; Stopped returns true
//	Close                  Read returns an error that matches os.ErrClosed
//	an error of the source, or its io.EOF    Read returns it; a later Read asks the source again

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/swansong-go/swansong/internal/copyio"
)

// A Reader reads from a source until its context is done, and then returns [io.EOF]. The stop loses
// no byte: what was read is returned, and the rest stays in the source; see [Reader.Rest].
//
// How soon a blocked Read returns when the context ends depends on the source:
//
//   - At once, if the source accepts read deadlines and obeys them. Such sources are network
//     connections, TLS, net.Pipe, and files that Go has opened for polling, such as those of
//     os.Pipe, FIFOs and terminals. The Reader wakes the Read by a deadline in the past. Afterwards
//     the source has the deadline set by [Reader.SetReadDeadline], or none. Set deadlines with that
//     method only. If other code sets one on the source itself while the Read is being woken, the
//     Reader replaces it within 100 ms.
//   - At once for [os.Stdin], as with the option [Detached]: it is usually a terminal or a pipe
//     that accepts no deadlines, and a program that waits for a line must end when the user presses
//     ^C.
//   - When the source returns, for all other sources, such as readers that wrap others, and an
//     *os.File whose method Fd has been called: such a file accepts deadlines, but ignores them. No
//     further Read of the source begins.
//   - With the option [Detached], at once for these other sources as well: the Reader leaves the
//     source to a goroutine. This does not help for a file after Fd, which seems to support
//     deadlines.
//
// A regular file never blocks for long. Wrap a connection itself, and put bufio, gzip or a decoder
// around the Reader, not the other way round. Such a wrapper takes the io.EOF of a stop for the end
// of the data: a bufio.Scanner then returns half a line as a line, and gzip returns
// io.ErrUnexpectedEOF. [Reader.Stopped] distinguishes a stop from the end of the data. The wrapper
// has the only copy of the bytes in its buffer, so handle these bytes. Complete the handshake of a
// TLS connection before the first Read: after a time-out of the handshake, the connection stays
// unusable.
//
// Close, SetReadDeadline, Stopped and CanWake may be called concurrently with any method. The other
// methods may be called concurrently if the source can be read concurrently.
type Reader struct {
	src        io.Reader
	ctx        context.Context
	waker      *waker            // nil if the source has no deadlines
	background *backgroundReader // nil without the option Detached
	guard      guardSlot

	closed      atomic.Bool
	stopped     atomic.Bool
	sourceEnded atomic.Bool   // the source has returned io.EOF
	closing     chan struct{} // closed by Close; nil without the option Detached
}

// NewReader returns a Reader of r that ends with ctx. It does not use r before the first call of a
// method. Close the Reader, or read until the source or ctx has ended. Otherwise the Reader stays
// in memory until ctx ends.
//
// NewReader panics if ctx or r is nil.
func NewReader(ctx context.Context, r io.Reader, opts ...InterruptOption) *Reader {
	panicIf(r == nil, "ctxshutdown: NewReader of a nil io.Reader")
	o := newInterruptOptions(opts)
	rd := &Reader{ctx: pollable(ctx), src: r}
	if d, ok := r.(interface{ SetReadDeadline(time.Time) error }); ok {
		rd.waker = &waker{ctx: rd.ctx, set: d.SetReadDeadline}
	}
	if o.detached || isStdin(r) {
		rd.background, rd.closing = &backgroundReader{src: r}, make(chan struct{})
	}
	rd.guard.acquire(ctx, o)
	return rd
}

// isStdin reports whether r is os.Stdin and a Read of it may block for long.
func isStdin(r io.Reader) bool {
	f, ok := r.(*os.File)
	return ok && f == os.Stdin && !copyio.IsRegular(f)
}

// Read reads from the source. Once the context is done it returns 0 and [io.EOF], even if the
// source has more bytes. After Close it returns an error that matches [os.ErrClosed]. Otherwise it
// returns what the source returns, including bytes together with an error. A time-out of a deadline
// that the caller has set is returned, and does not end the Reader.
func (r *Reader) Read(p []byte) (int, error) {
	mustBeMade(r.ctx, "Reader")
	var n int
	var err error
	switch {
	case r.waker != nil && r.background == nil:
		n, err = r.readSource(p)
	case r.hasEnded():
		err = errEnded
	case r.background == nil: // no deadline could wake a Read: call it directly, which is faster
		n, err = r.src.Read(p)
	case r.waker.canWake():
		n, err = r.readSource(p)
	default:
		n, err = r.background.read(p, r.ctx.Done(), r.closing)
	}
	if err != nil || uint(n) > uint(len(p)) {
		return r.handleResult(len(p), n, err)
	}
	return n, nil
}

// readSource reads from the source. If the source accepts deadlines, the end of the context and
// Close wake a blocked Read.
func (r *Reader) readSource(p []byte) (int, error) {
	r.waker.enter()
	defer r.waker.leave() // leave must run even if the source panics
	if r.hasEnded() {
		return 0, errEnded
	}
	return r.src.Read(p)
}

// handleResult turns the result n and err of the source into the result of Read for a buffer of the
// given size. Read calls it if err is not nil or n is invalid. The calling goroutine must have left
// the waker: see finish.
func (r *Reader) handleResult(size, n int, err error) (int, error) {
	if err == errEnded || r.waker != nil && isTimeout(err) && r.hasEnded() {
		if n == 0 {
			if err = r.checkOpen(); err == errStop {
				err = io.EOF
			}
			return 0, err
		}
		err = nil // return the bytes; the next Read reports the end
	}
	if uint(n) > uint(size) {
		n, err = 0, countError(r.src, "Read", n, size)
	}
	if err != nil {
		r.recordError(err)
	}
	return n, err
}

// hasEnded reports whether the Reader is closed or its context is done.
func (r *Reader) hasEnded() bool { return r.closed.Load() || r.ctx.Err() != nil }

// checkOpen returns an error that matches os.ErrClosed if the Reader is closed, errStop if its
// context is done, and nil otherwise.
func (r *Reader) checkOpen() error {
	if r.closed.Load() {
		return closedError("Reader")
	}
	if r.ctx.Err() != nil {
		// If the source has ended before the context, the Reader does not count as stopped.
		if !r.sourceEnded.Load() {
			r.stopped.Store(true)
		}
		r.finish()
		return errStop
	}
	return nil
}

// errEnded is returned by the read methods if the Reader ended before anything was read. checkOpen
// returns the reason.
var errEnded = errors.New("ctxshutdown: Reader ended")

// errStop means that the context has ended. The caller of Read gets io.EOF instead. errStop is a
// value of its own, because io.EOF could also come from the source or from the destination of a
// copy.
var errStop = errors.New("ctxshutdown: the context of the Reader has ended")

// recordError records an error of the source. Every error except a time-out ends the Reader.
func (r *Reader) recordError(err error) {
	if err == io.EOF && !r.stopped.Load() {
		r.sourceEnded.Store(true)
	}
	if !isTimeout(err) {
		r.finish()
	}
}

// finish releases the guard and unregisters the Reader from the context; see [waker.finish]. The
// caller can still call Read, because some sources return more bytes after an error.
func (r *Reader) finish() {
	r.guard.release()
	r.waker.finish(false)
}

// WriteTo copies to w until the end of the source or of the context, and returns nil in both cases;
// [Reader.Stopped] distinguishes them. [io.Copy] calls it. Everything that was read is written,
// unless a Write fails.
//
// If the source can be woken, WriteTo copies it as a whole by [io.Copy], so between sockets, pipes
// and files the kernel can move the bytes (splice and sendfile on Linux). A regular file is copied
// in the same way in pieces of 1 MiB, and WriteTo checks the context before each piece. Any other
// source is read by single Reads, with a check before each.
func (r *Reader) WriteTo(w io.Writer) (n int64, err error) {
	mustBeMade(r.ctx, "Reader")
	switch {
	case r.waker.canWake():
		n, err = r.copyWakeable(w)
	case r.background == nil && copyio.IsReaderFrom(w) && copyio.IsRegular(r.src):
		n, err, _ = copyio.Pieces(w, r.src, r.checkOpen)
	default:
		n, err = io.Copy(w, readerFunc(r.Read))
	}
	if isRefusedUnread(w, err) && r.ctx.Err() != nil {
		// The contexts of the Reader and of the Writer w have both ended, and w has refused before
		// it has taken anything. So no byte was lost, and the copy counts as stopped, not as
		// failed.
		err = r.checkOpen()
	}
	switch err {
	case nil:
		r.recordError(io.EOF)
	case errStop:
		err = nil
	default:
		r.recordError(err)
	}
	return n, err
}

func (r *Reader) copyWakeable(w io.Writer) (n int64, err error) {
	r.waker.enter()
	defer r.waker.leave()
	if err := r.checkOpen(); err != nil {
		return 0, err
	}
	// A Writer copies to its destination itself. So io.Copy gets the destination and not the
	// Writer, and the kernel can move the bytes.
	dstFailed := false
	if d, ok := w.(*Writer); ok {
		n, err, dstFailed = d.copyFrom(r.src)
	} else {
		n, err, dstFailed = copyio.Transfer(w, r.src)
	}
	// When the context ends, a deadline in the past interrupts the read of the source. The time-out
	// that follows from it is not an error of the source.
	if err != nil && !dstFailed && isTimeout(err) {
		if ended := r.checkOpen(); ended != nil {
			err = ended
		}
	}
	return n, err
}

// Close releases the guard and ends the Reader: a blocked Read returns as it would at the end of
// the context, and from then on Read returns an error that matches [os.ErrClosed]. Close does not
// close the source. It always returns nil.
func (r *Reader) Close() error {
	mustBeMade(r.ctx, "Reader")
	if r.closed.CompareAndSwap(false, true) {
		if r.waker != nil {
			r.waker.wake()
		}
		if r.closing != nil {
			close(r.closing)
		}
		r.guard.release()
		r.waker.finish(true)
	}
	return nil
}

// SetReadDeadline sets the deadline of the source. After the Reader has woken a Read, it restores
// this deadline. SetReadDeadline returns an error that matches [os.ErrNoDeadline] if the source has
// no deadlines.
func (r *Reader) SetReadDeadline(t time.Time) error {
	mustBeMade(r.ctx, "Reader")
	if r.waker == nil {
		return fmt.Errorf("ctxshutdown: %T: %w", r.src, os.ErrNoDeadline)
	}
	return r.waker.setDeadline(t)
}

// Stopped reports whether the Reader has returned [io.EOF] because its context is done, and not
// because the source has ended.
func (r *Reader) Stopped() bool { return r.stopped.Load() }

// CanWake reports whether a blocked Read returns at once when the context ends. The first call
// tries to set the deadline of the source, to the one set by SetReadDeadline or to none. The first
// WriteTo, and with the option [Detached] the first Read, do the same.
func (r *Reader) CanWake() bool {
	mustBeMade(r.ctx, "Reader")
	return r.waker.canWake() || r.background != nil
}

// Rest returns a reader of everything that the Reader has not returned. It is the source, or with
// the option [Detached] first the result of a background read in flight and then the source. Call
// Rest when the last Read has returned; then no byte is lost. If the source panicked in a
// background read, the Read of the returned reader panics with the same value.
func (r *Reader) Rest() io.Reader {
	mustBeMade(r.ctx, "Reader")
	if r.background != nil && r.background.isPending() {
		return restReader{r.background}
	}
	return r.src
}
