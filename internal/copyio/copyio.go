// Package copyio copies streams for wrappers of sources and destinations, by [io.Copy].
//
// Between sockets, pipes and files, io.Copy lets the kernel move the bytes (splice, sendfile,
// copy_file_range on Linux). It recognizes such a pair by the types of its arguments, so a wrapper
// around one of them would prevent that. So a wrapper passes the source or destination that it
// wraps to this package.
package copyio

import (
	"errors"
	"io"
	"io/fs"
	"math"
	"net"
)

// pieceSize is the number of bytes that the kernel copies before the caller can end the copy.
const pieceSize = 1 << 20

// Transfer copies src to dst by io.Copy, with splice or sendfile if possible. It also reports
// whether the error is one of dst. A caller that has woken src by a deadline in the past ignores
// the time-out of src. It must not ignore a time-out of dst, because then bytes that were read and
// not written would be lost without an error.
func Transfer(dst io.Writer, src io.Reader) (n int64, err error, dstFailed bool) {
	if _, ok := dst.(*net.UnixConn); !ok && !IsReaderFrom(dst) {
		w := &errorTracker{dst: dst}
		n, err = io.Copy(w, src)
		return n, err, w.failed
	}
	n, err = io.Copy(dst, src)
	if op := (*net.OpError)(nil); err == nil || errors.As(err, &op) && op.Op == "read" {
		return n, err, false
	}
	// Find out whether dst has failed: an empty Write returns an error if the deadline of a
	// connection has passed, or if a bufio.Writer has failed before.
	_, failure := dst.Write(nil)
	return n, err, failure != nil
}

// IsReaderFrom reports whether w has a method ReadFrom, as sockets, files and bufio.Writer have.
// io.Copy then leaves the copy to that method.
func IsReaderFrom(w io.Writer) bool {
	_, ok := w.(io.ReaderFrom)
	return ok
}

// errorTracker records whether the last Write has failed.
type errorTracker struct {
	dst    io.Writer
	failed bool
}

func (w *errorTracker) Write(p []byte) (int, error) {
	n, err := w.dst.Write(p)
	w.failed = err != nil
	return n, err
}

// Pieces copies like Transfer, but in pieces of pieceSize bytes. It calls the function check before
// each piece, and ends if check returns an error. It reads no more than it writes.
func Pieces(dst io.Writer, src io.Reader, check func() error) (n int64, err error, dstFailed bool) {
	all, ok := src.(*io.LimitedReader)
	if !ok {
		all = &io.LimitedReader{R: src, N: math.MaxInt64}
	}
	for all.N > 0 {
		if err := check(); err != nil {
			return n, err, false
		}
		// Package net uses sendfile for a file in a LimitedReader, but not for a file in a
		// LimitedReader inside another one. The variable all is a LimitedReader, so each piece
		// reads from all.R instead.
		size := min(all.N, pieceSize)
		m, err, dstFailed := Transfer(dst, &io.LimitedReader{R: all.R, N: size})
		n += m
		all.N -= m
		if err != nil || m < size {
			return n, err, dstFailed
		}
	}
	return n, nil, false
}

// IsRegular reports whether src is a regular file or a part of one. Reads of such a source do not
// block for long.
func IsRegular(src io.Reader) bool {
	if l, ok := src.(*io.LimitedReader); ok {
		src = l.R
	}
	// Do not check for the type *os.File: io.Copy from a file to a Writer passes another type of
	// package os, which hides the method WriteTo of the file.
	f, ok := src.(interface{ Stat() (fs.FileInfo, error) })
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode().IsRegular()
}
