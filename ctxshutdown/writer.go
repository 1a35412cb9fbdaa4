package ctxshutdown

// Interrupts: writers.
//
//	context ends      soft context             hard context
//	before a Write    the Write is refused     the Write is refused
//	during a Write    the Write continues      the Write is cut short, if deadlines work
//
// ReadFrom has one more case. If the Write of bytes that ReadFrom has read is refused, these bytes
// are lost, because no buffer of the caller contains them. So with a soft context, ReadFrom checks
// the context only before it reads, and always writes what it has read. With a hard context, the
// error of ReadFrom has the number of bytes lost.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/swansong-go/swansong/internal/copyio"
	"github.com/swansong-go/swansong/internal/ctxkey"
	"github.com/swansong-go/swansong/internal/worktext"
)

// A Writer writes to a destination until its context is done, and then refuses to write.
//
// With a soft context, the end of the context never cuts a Write short, because half a record makes
// a TLS connection unusable, and half a line spoils a log. Only the next Write is refused. A
// context that carries no scope counts as soft, and so does a scope that derives from a Work.
//
// With a hard context, which is [Swansong.Work] or derives from one, the end of the context also
// cuts short a blocked Write, if the write deadlines of the destination work. Afterwards the
// destination has the deadline set by [Writer.SetWriteDeadline], or none.
//
// In a loop that reads and writes, end the reading at the stop ([NewReader], [Seq]) and give the
// Writer the hard context; then everything that was read is written. The bytes of a refused Write
// remain with the caller.
//
// Close and SetWriteDeadline may be called concurrently with any method. The other methods may be
// called concurrently if the destination can be written to concurrently.
type Writer struct {
	ctx    context.Context
	dst    io.Writer
	set    func(time.Time) error // sets the write deadline; nil if dst has no deadlines
	waker  *waker                // nil if a Write is never cut short
	guard  guardSlot
	closed atomic.Bool
}

// NewWriter returns a Writer to w that ends with ctx. It panics if ctx or w is nil.
func NewWriter(ctx context.Context, w io.Writer, opts ...InterruptOption) *Writer {
	panicIf(w == nil, "ctxshutdown: NewWriter of a nil io.Writer")
	checkContext(ctx)
	wr := &Writer{ctx: ctx, dst: w}
	if d, ok := w.(interface{ SetWriteDeadline(time.Time) error }); ok {
		wr.set = d.SetWriteDeadline
		if isHard(ctx) {
			wr.waker = &waker{ctx: wr.ctx, set: wr.set}
		}
	}
	wr.guard.acquire(ctx, newInterruptOptions(opts))
	return wr
}

// isHard reports whether ctx is a Work or derives from one, without a scope in between.
func isHard(ctx context.Context) bool {
	soft, found := ctx.Value(ctxkey.SoftScope{}).(*Swansong)
	return found && soft == nil
}

// Write writes p. Once the context is done it writes nothing and returns an error that matches
// [ErrShutdown] and the cause of the context. After Close it returns an error that matches
// [os.ErrClosed]. A Write that is cut short returns the number of bytes written and an error that
// matches ErrShutdown. If the destination writes less than p without an error, Write returns
// [io.ErrShortWrite].
func (w *Writer) Write(p []byte) (n int, err error) {
	if err := w.checkOpen(); err != nil {
		return 0, err
	}
	return w.write(p)
}

// write writes p. Unlike Write, it does not call checkOpen. If the Writer has a waker and its
// context has ended, write still refuses.
func (w *Writer) write(p []byte) (n int, err error) {
	n, err = w.writeDestination(p)
	switch {
	case uint(n) > uint(len(p)):
		n, err = 0, countError(w.dst, "Write", n, len(p))
	case n < len(p) && err == nil:
		err = io.ErrShortWrite
	}
	switch {
	case err == errRefused:
		w.finish()
		err = &stoppedError{cause: context.Cause(w.ctx)}
	case err != nil:
		err = w.handleError(err)
	}
	return n, err
}

// writeDestination writes to the destination. If the Writer has a waker and the context has already
// ended, writeDestination writes nothing and returns errRefused. If the context ends later, the
// waker wakes a blocked Write.
func (w *Writer) writeDestination(p []byte) (int, error) {
	w.waker.enter()
	defer w.waker.leave()
	if w.waker != nil && w.ctx.Err() != nil {
		return 0, errRefused
	}
	return w.dst.Write(p)
}

// errRefused is returned by writeDestination if the context has ended before the call. The method
// write replaces errRefused by a stoppedError when it has called leave of the waker: see finish.
var errRefused = errors.New("ctxshutdown: write refused")

// checkOpen returns the error of a Write if the Writer is closed or its context is done, nil
// otherwise. It panics if w is the zero value.
func (w *Writer) checkOpen() error {
	mustBeMade(w.ctx, "Writer")
	if w.closed.Load() {
		return closedError("Writer")
	}
	if w.ctx.Err() != nil {
		w.finish()
		return &stoppedError{cause: context.Cause(w.ctx)}
	}
	return nil
}

// handleError handles an error of the destination and returns the error for the caller: a
// stoppedError if the end of the context has cut a Write short, and otherwise err.
func (w *Writer) handleError(err error) error {
	if !isTimeout(err) {
		w.finish()
	} else if w.waker != nil && w.ctx.Err() != nil {
		w.finish()
		return &stoppedError{cause: context.Cause(w.ctx), cut: true}
	}
	return err
}

// finish releases the guard and unregisters the Writer from the context; see [waker.finish].
func (w *Writer) finish() {
	w.guard.release()
	w.waker.finish(false)
}

// ReadFrom copies from r until its end. [io.Copy] calls it. ReadFrom checks the context before each
// Read, and not between a Read and its Write.
//
// With a soft context, everything that was read is written, and then ReadFrom returns the error
// that Write returns. With a hard context, the Write of bytes that were read can be cut short or
// refused, and the error tells how many bytes were lost.
//
// A regular file is copied by [io.Copy] in pieces of 1 MiB, so that the kernel can move the bytes.
// ReadFrom does not wake r; if r can block, pass a [Reader] of it.
func (w *Writer) ReadFrom(r io.Reader) (n int64, err error) {
	if copyio.IsReaderFrom(w.dst) && copyio.IsRegular(r) {
		n, err, _ = w.copyFrom(r)
		return n, err
	}
	return io.Copy(writerFunc(w.writeRead), readerFunc(func(p []byte) (int, error) {
		if err := w.checkOpen(); err != nil {
			return 0, err
		}
		return r.Read(p)
	}))
}

// copyFrom copies in pieces from a source that does not block, or that the caller wakes. Like
// copyio.Transfer, it also reports whether the destination failed.
func (w *Writer) copyFrom(src io.Reader) (n int64, err error, dstFailed bool) {
	w.waker.enter()
	n, err, dstFailed = func() (int64, error, bool) {
		defer w.waker.leave() // leave must run even if the source panics
		return copyio.Pieces(w.dst, src, w.checkOpen)
	}()
	if dstFailed {
		err = w.handleError(err) // not before waker.leave, because handleError can call finish
	}
	return n, err, dstFailed
}

// writeRead writes p, which ReadFrom has read from a source. If the Write is refused, the bytes in
// p are lost, and the error has their number.
func (w *Writer) writeRead(p []byte) (n int, err error) {
	n, err = w.write(p)
	if e, ok := err.(*stoppedError); ok && !e.cut {
		err = &stoppedError{cause: e.cause, lost: len(p) - n}
	}
	return n, err
}

// Close releases the guard. From then on Write returns an error that matches [os.ErrClosed], while
// a blocked Write continues. Close does not close the destination. It always returns nil.
func (w *Writer) Close() error {
	mustBeMade(w.ctx, "Writer")
	if w.closed.CompareAndSwap(false, true) {
		w.guard.release()
		w.waker.finish(true)
	}
	return nil
}

// SetWriteDeadline sets the deadline of the destination. After the end of the context has cut a
// Write short, the Writer restores this deadline. SetWriteDeadline returns an error that matches
// [os.ErrNoDeadline] if the destination has no deadlines.
func (w *Writer) SetWriteDeadline(t time.Time) error {
	mustBeMade(w.ctx, "Writer")
	switch {
	case w.waker != nil:
		return w.waker.setDeadline(t)
	case w.set != nil:
		return w.set(t)
	}
	return fmt.Errorf("ctxshutdown: %T: %w", w.dst, os.ErrNoDeadline)
}

// stoppedError is the error of a Write after the end of the context.
type stoppedError struct {
	cause error
	cut   bool // whether the Write was cut short
	lost  int  // number of bytes that ReadFrom had read and could not write
}

func (e *stoppedError) Error() string {
	what := "write refused"
	switch {
	case e.cut:
		what = "write cut short"
	case e.lost > 0:
		what = "write refused, which lost " + worktext.Pluralize(int(e.lost), "byte") + " already read from the source"
	}
	if e.cause == ErrShutdown {
		return "ctxshutdown: " + what + ": shut down"
	}
	return fmt.Sprintf("ctxshutdown: %s: shut down (%v)", what, e.cause)
}

func (e *stoppedError) Is(target error) bool { return target == ErrShutdown }
func (e *stoppedError) Unwrap() error        { return e.cause }

// isRefusedUnread reports whether err means that the Writer w, the destination of a copy, refused
// to write before it had read anything from the source, so that no byte is lost.
func isRefusedUnread(w io.Writer, err error) bool {
	_, ok := w.(*Writer)
	var stopped *stoppedError
	return ok && errors.As(err, &stopped) && !stopped.cut && stopped.lost == 0
}
