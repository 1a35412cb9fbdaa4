package output

import (
	"bytes"
	"io"
	"sync/atomic"
)

// ReadLines calls f with each line of r, without its line ending, until r ends.
// It returns the error of r, and nil for io.EOF.
// A line that is longer than maxLine bytes is passed in pieces. The slice is valid until f returns.
func ReadLines(r io.Reader, maxLine int, f func(line []byte)) error {
	buf := make([]byte, 0, min(4<<10, maxLine)) // small at first, because most processes print short lines; it grows when necessary
	for {
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		for {
			i := bytes.IndexByte(buf, '\n')
			if i < 0 {
				break
			}
			f(bytes.TrimSuffix(buf[:i], []byte("\r")))
			buf = buf[:copy(buf, buf[i+1:])]
		}
		if len(buf) == cap(buf) && len(buf) < maxLine && err == nil {
			buf = append(make([]byte, 0, min(2*cap(buf), maxLine)), buf...)
		} else if len(buf) == cap(buf) || err != nil && len(buf) > 0 {
			f(buf)
			buf = buf[:0]
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// Counts counts lines, and their bytes as written to the log, with time and name.
// A line is counted once it is written or dropped, not while it is queued.
// Several files may share one Counts.
type Counts struct {
	Lines, Bytes               atomic.Uint64 // lines and bytes that have been written
	DroppedLines, DroppedBytes atomic.Uint64
}

func (c *Counts) addWritten(text []byte) {
	c.Lines.Add(1)
	c.Bytes.Add(uint64(len(text)))
}

func (c *Counts) addDropped(text []byte) {
	c.DroppedLines.Add(1)
	c.DroppedBytes.Add(uint64(len(text)))
}
