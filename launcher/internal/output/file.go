// Package output reads what processes print. It keeps the last lines for readers, and writes log
// files with rotation. Neither a slow disk nor a slow reader ever makes a process wait.
package output

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/swansong-go/swansong/internal/worktext"
)

// A File is a log file that several streams write to, line by line.
//
//	stream ── ReadLines ──▶ queue, bounded in bytes ──▶ writer goroutine ──▶ file, file.1, file.2 …
//	                          └─ full: the line is dropped and counted
//
// Writing to the queue never blocks, so the pipe of a process is emptied even while the disk hangs.
// Where lines were dropped, the log has a note with their number.
type File struct {
	path     string
	maxSize  int64
	maxFiles int
	maxQueue int
	now      func() time.Time

	mu      sync.Mutex
	queue   []entry
	queued  int // bytes in the queue and in the entries that are being written
	dropped int // lines dropped since a line was last queued
	wake    *sync.Cond
	closing bool

	// Only the writer goroutine uses the following fields.

	done      chan struct{} // closed when the writer has ended
	file      *os.File
	out       io.Writer // if not nil, lines are written to out instead of file
	size      int64
	checkedAt time.Time // when the open file was last compared with the file that is at path now
	err       error     // the last error of a write
	failed    int       // number of lines that were lost since the last successful write
	torn      bool      // the file ends with a part of a line whose write has failed

	onError    func(error)
	reportedAt time.Time // when onError was last called
	start      <-chan struct{}
}

// An entry is a queued line, together with the counters that count it.
type entry struct {
	text   []byte
	counts *Counts
}

// reportInterval is the least time between two calls of onError. Each call raises an alarm, and on
// a full disk the write of every line fails.
const reportInterval = time.Minute

// Open returns a log file and starts the goroutine that writes it. It does not wait for the disk:
// that goroutine opens the file, with mode 0600, and makes its directory, with mode 0700, if
// missing. The goroutine begins when the channel start is closed, or at once if start is nil.
//
// When lines are lost, the goroutine calls the function onError, at most once a minute. A nil
// onError is not called.
func Open(path string, maxSize int64, maxFiles, maxQueue int, onError func(error), start <-chan struct{}) *File {
	f := &File{path: path, maxSize: maxSize, maxFiles: maxFiles, maxQueue: maxQueue, onError: onError, now: time.Now, done: make(chan struct{}), start: start}
	f.wake = sync.NewCond(&f.mu)
	go f.write()
	return f
}

// To returns a File that writes to w. It never rotates, and never closes w. For onError, see
// [Open].
func To(w io.Writer, maxQueue int, onError func(error)) *File {
	f := &File{maxSize: math.MaxInt64, maxQueue: maxQueue, onError: onError, now: time.Now, done: make(chan struct{}), out: w}
	f.wake = sync.NewCond(&f.mu)
	go f.write()
	return f
}

// Check reports whether a log file can be opened, and creates it. It waits for the disk. The check
// of a configuration calls it, so that a wrong path is an error at the start and not an alarm
// later.
func Check(path string) error {
	f := File{path: path}
	if err := f.open(); err != nil {
		return fmt.Errorf("output: %w", err)
	}
	return f.file.Close()
}

// WriteLine queues a line, prefixed with the time and name, and counts it in counts.
func (f *File) WriteLine(name, text string, counts *Counts) {
	b := f.now().UTC().AppendFormat(nil, "2006-01-02T15:04:05.000Z")
	b = append(b, ' ')
	b = append(b, name...)
	b = append(b, " | "...)
	b = append(append(b, text...), '\n')

	f.add(entry{b, counts})
}

// Write queues a copy of text, to be written unchanged. It never blocks, and always succeeds.
func (f *File) Write(text []byte) (int, error) {
	f.add(entry{bytes.Clone(text), &Counts{}})
	return len(text), nil
}

// add queues an entry, or counts it as dropped if the queue is full or the File is being closed.
// The next entry begins with a note about the dropped lines, so the note is where they are missing.
func (f *File) add(e entry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closing || f.queued+len(e.text) > f.maxQueue {
		f.dropped++
		e.counts.addDropped(e.text)
		return
	}
	if f.dropped > 0 {
		e.text = append([]byte("… "+strconv.Itoa(f.dropped)+" lines dropped: "+f.sink()+" is too slow\n"), e.text...)
		f.dropped = 0
	}
	f.queue = append(f.queue, e)
	f.queued += len(e.text)
	f.wake.Signal()
}

// Close writes what is queued, for at most the given time. It returns the last error of a write.
// Lines that are written later are dropped. After the time-out the writer goroutine stays behind,
// for as long as the disk hangs, and then closes the file.
func (f *File) Close(timeout time.Duration) error {
	f.mu.Lock()
	f.closing = true
	f.wake.Signal()
	f.mu.Unlock()
	t := time.NewTimer(timeout)
	defer t.Stop()
	select {
	case <-f.done:
		if f.err != nil {
			return fmt.Errorf("output: %w", f.err)
		}
		return nil
	case <-t.C:
		return f.tooSlow(timeout)
	}
}

// tooSlow returns the error of lines that could not be written in time.
func (f *File) tooSlow(timeout time.Duration) error {
	path := ""
	if f.path != "" {
		path = f.path + ": "
	}
	return fmt.Errorf("output: %s%s did not take the last lines within %v", path, f.sink(), timeout)
}

// flush waits until everything that is queued has been written, or lost. It returns false if the
// deadline comes first.
func (f *File) flush(deadline time.Time) bool {
	for {
		f.mu.Lock()
		queued := f.queued
		f.mu.Unlock()
		if queued == 0 {
			return true
		}
		if !time.Now().Before(deadline) {
			return false
		}
		// flush polls: it is called too rarely to have the writer wake it.
		time.Sleep(time.Millisecond)
	}
}

// sink returns the name of the destination of the lines, for messages.
func (f *File) sink() string {
	if f.out != nil { // the lines go to a pipe or a terminal, and not to a file
		return "the reader of this output"
	}
	return "the disk"
}

// write runs in the writer goroutine: it writes queued lines until the File is closed.
func (f *File) write() {
	defer close(f.done)
	if f.start != nil {
		<-f.start
	}
	if f.out == nil {
		if err := f.openOrCreate(); err != nil {
			f.report(err) // the write of each line tries to open the file again
		}
	}
	for {
		f.mu.Lock()
		for len(f.queue) == 0 && !f.closing {
			f.wake.Wait()
		}
		entries := f.queue
		f.queue = nil
		f.mu.Unlock()
		if len(entries) == 0 {
			if f.file != nil {
				f.file.Close()
			}
			return
		}
		for _, e := range entries {
			f.writeEntry(e)
			f.mu.Lock()
			// An entry counts as queued until it has been written, because its text takes memory
			// until then.
			f.queued -= len(e.text)
			f.mu.Unlock()
		}
	}
}

// writeEntry writes one line. If the disk is full or the file cannot be opened, the line is lost.
// It is not tried again, because the lines behind it would wait in a queue that is bounded anyway.
//
// The next line that can be written begins with a note of how many were lost. If one was written in
// part, the note begins on a line of its own.
func (f *File) writeEntry(e entry) {
	out, err := f.prepare(len(e.text))
	if err != nil {
		f.fail(e, err)
		return
	}
	text := e.text
	if f.failed > 0 {
		note := "… " + worktext.Pluralize(f.failed, "line") + " dropped: " + f.err.Error() + "\n"
		if f.torn {
			note = "\n" + note
		}
		text = append([]byte(note), text...)
	}
	n, err := out.Write(text)
	f.size += int64(n)
	if err != nil {
		f.torn = f.torn || n > 0
		f.fail(e, err)
		return
	}
	f.failed, f.torn = 0, false
	e.counts.addWritten(e.text)
}

// fail counts a line that could not be written, and reports the error.
func (f *File) fail(e entry, err error) {
	f.failed++
	e.counts.addDropped(e.text)
	f.report(err)
}

// report records err, and calls onError unless it did so within reportInterval.
func (f *File) report(err error) {
	f.err = err
	if now := f.now(); f.onError != nil && (f.reportedAt.IsZero() || now.Sub(f.reportedAt) >= reportInterval) {
		f.reportedAt = now
		f.onError(err)
	}
}
