package proc

import (
	"errors"
	"io"
	"os"
	"sync/atomic"
	"time"
)

// An Output is what a process writes to stdout or stderr. Read by one goroutine at a time.
//
// It ends with the pipe, or once the process has been reaped and what was in the pipe by then has been read. So nothing
// that the process wrote is lost, and a grandchild that escaped and holds the pipe open holds up nobody: for it alone,
// os/exec would wait for ever (go.dev/issue/23019), or, where StdoutPipe is used with Wait, lose the rest.
type Output struct {
	file  *os.File
	over  atomic.Bool // the process has been reaped
	drain int         // what may still be read since; set when the reader has seen that
}

// rest is the most that a pipe holds at once, for a process without privileges on Linux.
const rest = 1 << 20

// Read reads as from the pipe.
func (o *Output) Read(p []byte) (int, error) {
	if o.drain == 0 {
		n, err := o.file.Read(p)
		if !errors.Is(err, os.ErrDeadlineExceeded) || !o.over.Load() {
			return n, err
		}
		o.drain = rest
		o.file.SetReadDeadline(time.Time{})
	}
	if o.drain < 0 {
		return 0, io.EOF
	}
	// All that the process and those with it wrote is in the pipe: it is read without waiting for more.
	n, err := ReadNow(o.file, p[:min(len(p), o.drain)])
	if o.drain -= n; n == 0 || err != nil || o.drain == 0 {
		o.drain = -1
	}
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

// reaped has the reader take what there is and end.
func (o *Output) reaped() {
	if o != nil {
		o.over.Store(true)
		o.file.SetReadDeadline(time.Unix(1, 0)) // where files have no deadlines, the end of the pipe has to do
	}
}

// Close closes the pipe. A Read that is under way returns [os.ErrClosed].
func (o *Output) Close() error { return o.file.Close() }
