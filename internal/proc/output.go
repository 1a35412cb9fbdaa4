package proc

import (
	"bytes"
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// An Output is the stdout or stderr of a process. One goroutine at a time may read it.
//
// It ends with the pipe, or once the process has been reaped and everything that was in the pipe by
// then has been read. So no output of the process is lost, and a process that escaped and keeps the
// pipe open does not block the reader. With os/exec such a process blocks Wait without limit
// (go.dev/issue/23019), or, if StdoutPipe is used together with Wait, the rest is lost.
type Output struct {
	file   *os.File
	reaped atomic.Bool // whether the process has been reaped
	drain  int         // how many more bytes Read may read; 0 until Read notices that the process was reaped, -1 at the end

	mu      sync.Mutex
	changed sync.Cond // signalled when one of the fields below has changed
	paused  bool
	waiting bool   // Read is waiting for Resume
	ended   bool   // Read has returned an error
	kept    []byte // bytes that were read and not processed yet, see Keep
}

func newOutput(file *os.File) *Output {
	o := &Output{file: file}
	o.changed.L = &o.mu
	return o
}

// maxPipe is the largest capacity of a pipe that an unprivileged process can set on Linux.
const maxPipe = 1 << 20

// Read reads from the pipe. The comment of Output says when it returns io.EOF.
func (o *Output) Read(p []byte) (n int, err error) {
	for again := true; again; {
		o.waitWhilePaused()
		n, err = o.read(p)
		again = errors.Is(err, os.ErrDeadlineExceeded) // the deadline was set by Pause, to interrupt the Read
	}
	if err != nil {
		o.mu.Lock()
		o.ended = true
		o.changed.Broadcast()
		o.mu.Unlock()
	}
	return n, err
}

func (o *Output) waitWhilePaused() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.paused {
		o.waiting = true
		o.changed.Broadcast()
		o.changed.Wait()
	}
	o.waiting = false
}

func (o *Output) read(p []byte) (int, error) {
	if o.drain == 0 {
		n, err := o.file.Read(p)
		if !errors.Is(err, os.ErrDeadlineExceeded) || !o.reaped.Load() {
			return n, err
		}
		o.drain = maxPipe
		o.file.SetReadDeadline(time.Time{})
	}
	if o.drain < 0 {
		return 0, io.EOF
	}
	// The process has been reaped, so everything that it wrote is in the pipe. Read that without
	// waiting for more.
	n, err := ReadNow(o.file, p[:min(len(p), o.drain)])
	// Pause or Resume has set a deadline, which has ended the read; the pipe may contain more.
	if errors.Is(err, os.ErrDeadlineExceeded) {
		o.file.SetReadDeadline(time.Time{})
		return 0, err
	}
	if o.drain -= n; n == 0 || err != nil || o.drain == 0 {
		o.drain = -1
	}
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

// Keep stores b for Pause: the bytes that the reader has read and not processed yet, such as the
// beginning of a line. The reader calls Keep before each Read, and may change b after that Read.
func (o *Output) Keep(b []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.kept = b
}

// Pause makes Read wait. It returns when the reader has processed everything that it has read,
// except for the bytes passed to Keep. It returns the pipe and a copy of these bytes. The Output
// still closes the pipe.
func (o *Output) Pause() (pipe *os.File, kept []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.paused = true
	o.file.SetReadDeadline(time.Unix(1, 0))
	for !o.waiting && !o.ended {
		o.changed.Wait()
	}
	if o.ended {
		return o.file, nil
	}
	return o.file, bytes.Clone(o.kept)
}

// Resume ends a pause.
func (o *Output) Resume() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.paused = false
	o.file.SetReadDeadline(time.Time{})
	if o.reaped.Load() { // finish was called during the pause, so Read must not block from now on
		o.file.SetReadDeadline(time.Unix(1, 0))
	}
	o.changed.Broadcast()
}

// finish makes Read return the bytes that are in the pipe, and then io.EOF.
func (o *Output) finish() {
	if o != nil {
		o.reaped.Store(true)
		// A deadline in the past ends a blocked Read. On systems without deadlines for pipes, a
		// Read ends when the pipe is closed.
		o.file.SetReadDeadline(time.Unix(1, 0))
	}
}

// Close closes the pipe. A concurrent Read returns [os.ErrClosed].
func (o *Output) Close() error { return o.file.Close() }
