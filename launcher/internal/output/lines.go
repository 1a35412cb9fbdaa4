package output

import (
	"bytes"
	"io"
	"sync/atomic"

	"github.com/swansong-go/swansong/internal/mask"
	"github.com/swansong-go/swansong/internal/proc"
)

// ReadLines calls f with each line of r, masked and without its line ending, until r ends. It
// returns the error of r, and nil for io.EOF. A line that is longer than maxLine bytes is passed in
// pieces, none of which ends in the middle of a secret.
//
// The function masker returns the current Masker. A nil function masks nothing.
//
// If r has a method Keep, as [proc.Output] has, it is called before each Read with what has been
// read of the next line.
//
// It calls masker after each Read, because a reload can make more values secret. A line whose end
// has not been read yet is split only when mask.Lookahead bytes beyond maxLine have been read,
// because only then does the Masker see whether a secret lies across the split. The rest of the
// last line is passed on at the end, also without a line ending.
func ReadLines(r io.Reader, maxLine int, masker func() *mask.Masker, f func(line string)) error {
	s := splitter{maxLine: maxLine, f: f}
	keeper, _ := r.(interface{ Keep([]byte) })
	buf := make([]byte, 0, min(4<<10, maxLine)) // small at first, because most processes print short lines; it grows when necessary
	for {
		if keeper != nil {
			// Pass to Keep the part of an incomplete line that has been read. If this part begins
			// with the end of a secret whose beginning has been masked already, leave that end out.
			keeper.Keep(buf[min(s.covered, len(buf)):])
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if masker != nil {
			s.masker = masker()
		}
		rest := buf
		for i := bytes.IndexByte(rest, '\n'); i >= 0; i = bytes.IndexByte(rest, '\n') {
			s.pass(string(bytes.TrimSuffix(rest[:i], []byte("\r"))), 0)
			rest = rest[i+1:]
		}
		splittable := maxLine + s.masker.Lookahead()
		switch {
		case err != nil && len(rest) > 0:
			s.pass(string(rest), 0)
			rest = nil
		case len(rest) >= splittable:
			rest = []byte(s.pass(string(rest), splittable))
		}
		if buf = buf[:copy(buf, rest)]; len(buf) == cap(buf) {
			buf = append(make([]byte, 0, min(2*cap(buf), splittable)), buf...)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// Resume returns a reader that reads first kept, the beginning of a line that an earlier launcher
// has read from the pipe, and then the rest from r.
func Resume(kept []byte, r *proc.Output) io.Reader { return &resumed{r, kept} }

type resumed struct {
	*proc.Output
	kept []byte
}

func (r *resumed) Read(p []byte) (int, error) {
	if len(r.kept) == 0 {
		return r.Output.Read(p)
	}
	n := copy(p, r.kept)
	r.kept = r.kept[n:]
	return n, nil
}

// A splitter splits and masks lines.
type splitter struct {
	maxLine int
	f       func(line string)
	masker  *mask.Masker
	covered int // number of bytes at the beginning of the next line that are the rest of a secret; see [mask.Masker.Split]
}

// pass splits pieces off the line, at least one, and calls the function f with each piece. When
// fewer than minBytes bytes of the line are left, pass returns these. If minBytes is 0, pass splits
// the line to its end and returns "".
//
// A piece that is only the rest of a secret is left out: its beginning has been masked already. An
// empty line is passed on, because the process has printed it.
func (s *splitter) pass(line string, minBytes int) (left string) {
	for again := true; again; again = line != "" && len(line) >= minBytes {
		inSecret := s.covered > 0
		var piece string
		piece, line, s.covered = s.masker.Split(line, s.maxLine, s.covered)
		if piece != "" || !inSecret {
			s.f(piece)
		}
	}
	return line
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
