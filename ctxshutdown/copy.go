package ctxshutdown

import (
	"errors"
	"io"
	"io/fs"
	"math"
	"net"
)

// piece is how much is copied between two looks at the context where the system copies without us.
const piece = 1 << 20

// transfer copies src to dst as io.Copy does, by splice or sendfile where it can. It also reports whether it was dst
// that failed: whoever has woken src must not take a time-out of dst for it, and lose what was read unnoticed.
func transfer(dst io.Writer, src io.Reader) (n int64, err error, failed bool) {
	if _, ok := dst.(*net.UnixConn); !ok && !isReaderFrom(dst) {
		w := &watched{dst: dst}
		n, err = io.Copy(w, src)
		return n, err, w.failed
	}
	n, err = io.Copy(dst, src)
	if op := (*net.OpError)(nil); err == nil || errors.As(err, &op) && op.Op == "read" {
		return n, err, false
	}
	_, failure := dst.Write(nil) // a connection whose deadline has passed, or a bufio.Writer that has failed, says so
	return n, err, failure != nil
}

func isReaderFrom(w io.Writer) bool {
	_, ok := w.(io.ReaderFrom)
	return ok
}

// watched notes whether a Write has failed.
type watched struct {
	dst    io.Writer
	failed bool
}

func (w *watched) Write(p []byte) (int, error) {
	n, err := w.dst.Write(p)
	w.failed = err != nil
	return n, err
}

// copyPieces is transfer with a check before each piece, and reads no more than it writes.
func copyPieces(dst io.Writer, src io.Reader, check func() error) (n int64, err error, failed bool) {
	all, ok := src.(*io.LimitedReader)
	if !ok {
		all = &io.LimitedReader{R: src, N: math.MaxInt64}
	}
	for all.N > 0 {
		if err := check(); err != nil {
			return n, err, false
		}
		// The system's short cuts look into one LimitedReader, not into two.
		size := min(all.N, piece)
		m, err, failed := transfer(dst, &io.LimitedReader{R: all.R, N: size})
		n += m
		all.N -= m
		if err != nil || m < size {
			return n, err, failed
		}
	}
	return n, nil, false
}

// isRegular reports whether src is a regular file, or a part of one: something that never waits for anybody.
func isRegular(src io.Reader) bool {
	if l, ok := src.(*io.LimitedReader); ok {
		src = l.R
	}
	// Not just *os.File: to a Writer, io.Copy hands a file in a type of package os that hides its WriteTo.
	f, ok := src.(interface{ Stat() (fs.FileInfo, error) })
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode().IsRegular()
}

// A boundary hides from io.Copy what else a source can do, so that it comes by for every piece that it reads. And it
// does not wait for ever for a source that never has anything.
type boundary struct {
	read  func([]byte) (int, error)
	empty int
}

// maxEmpty is how many Reads in a row may return neither bytes nor an error, as in package bufio.
const maxEmpty = 100

func (b *boundary) Read(p []byte) (int, error) {
	n, err := b.read(p)
	if n != 0 || err != nil {
		b.empty = 0
	} else if b.empty++; b.empty >= maxEmpty {
		err = io.ErrNoProgress
	}
	return n, err
}
