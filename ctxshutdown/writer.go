package ctxshutdown

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/swansong-go/swansong/internal/scopekey"
)

// A Writer writes to a destination until its context is done, and then refuses. It never cuts a Write short at the
// soft tier: a half-written record ruins a TLS connection, and half a line a log. It refuses the next one.
//
// At the hard tier, with a [Swansong.Work] or a context derived from one, its end also cuts short the Write that is
// blocking, where the destination has write deadlines that work. Afterwards the deadline is the one set through
// [Writer.SetWriteDeadline], or none. A scope made below a Work is the soft tier of its own: pass its Work. A context that
// carries no scope counts as soft.
//
// Where one loop reads and writes, stop the reading ([NewReader], [Seq]) and give the writing the hard tier: what was
// read is then written. A Writer that refuses while the caller holds bytes leaves them with the caller.
//
// Methods may be called concurrently where the destination can be written to concurrently. [Writer.Close] and
// [Writer.SetWriteDeadline] may always be.
type Writer struct {
	look
	dst    io.Writer
	set    func(time.Time) error // nil: no deadlines
	waker  *waker                // nil: never cut short
	holder holder
	closed atomic.Bool
}

// NewWriter returns a Writer to w that ends with ctx. It panics if ctx or w is nil.
func NewWriter(ctx context.Context, w io.Writer, opts ...InterruptOption) *Writer {
	if w == nil {
		panic("ctxshutdown: NewWriter of a nil io.Writer")
	}
	wr := &Writer{look: lookAt(ctx), dst: w}
	if d, ok := w.(interface{ SetWriteDeadline(time.Time) error }); ok {
		wr.set = d.SetWriteDeadline
		if isHard(ctx) {
			wr.waker = &waker{set: wr.set}
		}
	}
	wr.holder.hold(ctx, interruptOptionsOf(opts))
	return wr
}

// isHard reports whether ctx ends with the Work of a scope.
func isHard(ctx context.Context) bool {
	soft, found := ctx.Value(scopekey.Soft{}).(*Swansong)
	return found && soft == nil
}

// Write writes p. Once the context is done it writes nothing and returns an error that matches [ErrShutdown] and the
// cause of the context; once the Writer is closed, one that matches [os.ErrClosed]. A Write that was cut short returns
// how much was written and such an error. A destination that writes less without an error is reported as
// [io.ErrShortWrite].
func (w *Writer) Write(p []byte) (n int, err error) {
	if err := w.refusal(); err != nil {
		return 0, err
	}
	return w.write(p)
}

// write writes p, refused or not.
func (w *Writer) write(p []byte) (n int, err error) {
	if w.waker == nil {
		n, err = w.dst.Write(p)
	} else {
		n, err = w.writeAwake(p)
	}
	switch {
	case uint(n) > uint(len(p)):
		n, err = 0, countError(w.dst, "Write", n, len(p))
	case n < len(p) && err == nil:
		err = io.ErrShortWrite
	}
	switch {
	case err == errTooLate:
		w.finish()
		err = &stoppedError{cause: context.Cause(w.ctx)}
	case err != nil:
		err = w.failed(err)
	}
	return n, err
}

// writeAwake writes to a destination that the end of the context wakes, if it can.
func (w *Writer) writeAwake(p []byte) (int, error) {
	w.waker.enter(w.ctx)
	defer w.leave()
	if w.look.ended() {
		return 0, errTooLate // it ended before anybody could be woken
	}
	return w.dst.Write(p)
}

// errTooLate stands for a refusal by writeAwake, whose consequences are drawn when it has left.
var errTooLate = errors.New("ctxshutdown: write refused")

// leave ends what waker.enter began.
func (w *Writer) leave() {
	w.waker.leave()
	if w.closed.Load() {
		w.waker.forget()
	}
}

// refusal returns why nothing more is written, nil if it is.
func (w *Writer) refusal() error {
	if w.closed.Load() {
		return closedError("Writer")
	}
	if w.look.ended() {
		w.finish()
		return &stoppedError{cause: context.Cause(w.ctx)}
	}
	return nil
}

// failed draws the consequences of an error of the destination.
func (w *Writer) failed(err error) error {
	if !isTimeout(err) {
		w.finish()
	} else if w.waker != nil && w.look.ended() {
		w.finish()
		return &stoppedError{cause: context.Cause(w.ctx), cut: true}
	}
	return err
}

func (w *Writer) finish() {
	w.holder.letGo()
	if w.waker != nil {
		w.waker.release(w.ctx)
	}
}

// ReadFrom copies from r until its end; [io.Copy] calls it. It looks at the context before each Read, not between
// a Read and its Write: when the soft tier ends, it returns an error as Write does, and all that was read is written. The
// end of the hard tier cuts short here as it does in Write, or refuses what was read meanwhile, and the error says so. A
// regular file is copied in pieces of 1 MiB by the means of [io.Copy], so that the bytes need not pass through
// the program. r is not woken; if it can block, make it a [Reader].
func (w *Writer) ReadFrom(r io.Reader) (n int64, err error) {
	if isReaderFrom(w.dst) && isRegular(r) {
		n, err, _ = w.copyFrom(r)
		return n, err
	}
	return io.Copy(writerFunc(w.writeRead), &boundary{read: func(p []byte) (int, error) {
		if err := w.refusal(); err != nil {
			return 0, err
		}
		return r.Read(p)
	}})
}

// copyFrom copies by the shortest way from a source that somebody wakes, or that need not be woken. Like transfer it
// reports whether it was the destination that failed.
func (w *Writer) copyFrom(src io.Reader) (n int64, err error, failed bool) {
	if w.waker == nil {
		n, err, failed = copyPieces(w.dst, src, w.refusal)
	} else {
		n, err, failed = w.copyAwake(src)
	}
	if failed {
		err = w.failed(err)
	}
	return n, err, failed
}

func (w *Writer) copyAwake(src io.Reader) (n int64, err error, failed bool) {
	w.waker.enter(w.ctx)
	defer w.leave()
	return copyPieces(w.dst, src, w.refusal)
}

// writeRead writes p, which has been read and is nobody's any more if it is refused.
func (w *Writer) writeRead(p []byte) (n int, err error) {
	n, err = w.write(p)
	if e, ok := err.(*stoppedError); ok && !e.cut {
		err = &stoppedError{cause: e.cause, lost: len(p) - n}
	}
	return n, err
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// Close lets go of the guard and of the context. From then on Write returns an error that matches [os.ErrClosed]. A
// Write that blocks goes on. Close does not close the destination, and always returns nil.
func (w *Writer) Close() error {
	if w.closed.CompareAndSwap(false, true) {
		w.holder.letGo()
		if w.waker != nil {
			w.waker.forget()
		}
	}
	return nil
}

// SetWriteDeadline sets the deadline of the destination, which is also what it has after a Write was cut short. It
// returns an error that matches [os.ErrNoDeadline] if the destination has none.
func (w *Writer) SetWriteDeadline(t time.Time) error {
	switch {
	case w.waker != nil:
		return w.waker.setDeadline(t)
	case w.set != nil:
		return w.set(t)
	}
	return fmt.Errorf("ctxshutdown: %T: %w", w.dst, os.ErrNoDeadline)
}

// A stoppedError is what a Writer returns once its context is done.
type stoppedError struct {
	cause error
	cut   bool // in the middle of a Write
	lost  int  // bytes that ReadFrom had read for the Write that was refused
}

func (e *stoppedError) Error() string {
	what := "write refused"
	switch {
	case e.cut:
		what = "write cut short"
	case e.lost > 0:
		what = fmt.Sprintf("write refused, and %d bytes lost that had been read for it", e.lost)
	}
	if e.cause == ErrShutdown {
		return "ctxshutdown: " + what + ": shut down"
	}
	return fmt.Sprintf("ctxshutdown: %s: shut down (%v)", what, e.cause)
}

// refusedInTime reports whether err is that of a Writer that has not taken what it did not write.
func refusedInTime(w io.Writer, err error) bool {
	_, ok := w.(*Writer)
	var stopped *stoppedError
	return ok && errors.As(err, &stopped) && !stopped.cut && stopped.lost == 0
}

func (e *stoppedError) Is(target error) bool { return target == ErrShutdown }
func (e *stoppedError) Unwrap() error        { return e.cause }
