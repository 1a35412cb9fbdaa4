package output

import (
	"errors"
	"io"
	"os"
	"time"

	"github.com/swansong-go/swansong/internal/proc"
)

// A StoppableReader reads the pipe of a process until Stop is called, and then to the end of the
// current line, but not a byte further. So no line is split when the guardian, a process that reads
// the pipes after the launcher was killed, hands a pipe over to the next launcher. Only one
// goroutine may call Read.
//
// A line can be split when a launcher is killed, because the part that the launcher has read and
// not yet written is lost. An upgrade splits none, because the launcher hands over what it has
// read.
type StoppableReader struct {
	file    *os.File
	maxRest int           // how many bytes are read after Stop; a longer line is split, as [ReadLines] would split it
	timeout time.Duration // how long to wait after Stop for the rest of a line

	inLine bool      // the last byte that was read did not end a line
	until  time.Time // when to give up waiting for the rest of the line; zero before Stop
}

// LineTimeout is how long a process usually has to complete a line after Stop.
const LineTimeout = 100 * time.Millisecond

// NewStoppableReader returns a reader of f. After Stop, the reader reads at most maxLine bytes, and
// waits for them at most for the given time.
func NewStoppableReader(f *os.File, maxLine int, timeout time.Duration) *StoppableReader {
	return &StoppableReader{file: f, maxRest: maxLine, timeout: timeout}
}

// Stop makes Read return io.EOF at the end of the current line. Stop does not wait until Read has
// returned.
func (r *StoppableReader) Stop() {
	// SetReadDeadline fails without harm if Read has already returned io.EOF and the file is
	// closed.
	r.file.SetReadDeadline(time.Unix(1, 0))
}

// Read reads from the pipe. See [StoppableReader].
func (r *StoppableReader) Read(p []byte) (n int, err error) {
	if r.until.IsZero() {
		n, err = r.file.Read(p)
		if n > 0 {
			r.inLine = p[n-1] != '\n'
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		r.until = time.Now().Add(r.timeout)
	}
	if !r.inLine || r.maxRest <= 0 || len(p) == 0 {
		return 0, io.EOF
	}
	return r.readByte(p)
}

// readByte reads a single byte of the rest of the line, because bytes behind the end of the line
// could not be put back. After the deadline it tries once more without waiting. So a line that is
// already complete in the pipe is not split, however slow the machine is.
func (r *StoppableReader) readByte(p []byte) (n int, err error) {
	for late := false; ; late = true {
		r.file.SetReadDeadline(time.Time{})
		if n, _ = proc.ReadNow(r.file, p[:1]); n == 0 && !late {
			r.file.SetReadDeadline(r.until)
			n, err = r.file.Read(p[:1])
		}
		switch {
		case n > 0:
			r.inLine = p[n-1] != '\n'
			r.maxRest -= n
			return n, nil
		case late:
			return 0, io.EOF
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return 0, err
		}
	}
}
