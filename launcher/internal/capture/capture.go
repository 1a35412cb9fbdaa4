// Package capture writes what processes print to a file, line by line, and never makes them wait for a disk.
package capture

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A File is a log that several streams are written to.
//
//	stream ──Read──▶ lines ──▶ queue, of so many bytes ──▶ writer ──▶ file, file.1, file.2 …
//	                             └─ full: the line is dropped, and counted
//
// Between a process and the disk there is a queue that never blocks: with a disk that hangs, the pipe of the process is
// still emptied. What was dropped is said in the log, at the place where it is missing.
type File struct {
	path     string
	maxSize  int64
	maxFiles int
	maxQueue int
	now      func() time.Time

	mu      sync.Mutex
	queue   []line
	queued  int
	dropped int
	wake    *sync.Cond
	closing bool

	done chan struct{}
	file *os.File  // the writer's
	out  io.Writer // instead of file
	size int64
	at   time.Time // when it was looked whether file is still what is at path
	err  error
	lost int  // lines that the disk has not taken since the last one that it did
	torn bool // the last of them in part

	failed func(error)
	told   time.Time // when failed was called
	after  <-chan struct{}
}

// glance is how often it is looked whether somebody has taken the file away.
const glance = time.Second

// silence is how long a disk that fails again and again is not told of.
const silence = time.Minute

// Open begins to write a log. It waits for nobody: the file, which is 0600, and its directory, which is 0700, are made where they are
// missing, by the goroutine that writes, since to open can take a disk as long as to write. Who is told that lines are
// lost can be nil; it is called from that goroutine, and not for each of them. That goroutine begins when after is closed, nil: at once.
func Open(path string, maxSize int64, maxFiles, maxQueue int, failed func(error), after <-chan struct{}) *File {
	f := &File{path: path, maxSize: maxSize, maxFiles: maxFiles, maxQueue: maxQueue, failed: failed, now: time.Now, done: make(chan struct{}), after: after}
	f.wake = sync.NewCond(&f.mu)
	go f.write()
	return f
}

// Check finds out whether a log can be opened, for as long as that takes.
func Check(path string) error {
	f := File{path: path}
	if err := f.open(); err != nil {
		return fmt.Errorf("capture: %w", err)
	}
	return f.file.Close()
}

// To begins to write to w, which is never rotated, nor closed. For failed, see [Open].
func To(w io.Writer, maxQueue int, failed func(error)) *File {
	f := &File{maxSize: math.MaxInt64, maxQueue: maxQueue, failed: failed, now: time.Now, done: make(chan struct{}), out: w}
	f.wake = sync.NewCond(&f.mu)
	go f.write()
	return f
}

func (f *File) open() error {
	file, err := os.OpenFile(f.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err != nil {
		file.Close()
		return err
	}
	f.file, f.size = file, info.Size()
	return nil
}

// Lines calls f with each line of r, without its end, until r ends, and returns what r failed with. What is longer than
// maxLine is broken. The line is f's until f returns.
func Lines(r io.Reader, maxLine int, f func(line []byte)) error {
	buf := make([]byte, 0, min(4<<10, maxLine)) // most processes never print a long line
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

// A Counts counts lines, and bytes as they are in a file, with time and name. What is queued is neither written nor dropped
// yet. Several files may have the same one.
type Counts struct {
	Lines, Bytes               atomic.Uint64 // written
	DroppedLines, DroppedBytes atomic.Uint64
}

func (c *Counts) written(text []byte) {
	c.Lines.Add(1)
	c.Bytes.Add(uint64(len(text)))
}

func (c *Counts) dropped(text []byte) {
	c.DroppedLines.Add(1)
	c.DroppedBytes.Add(uint64(len(text)))
}

// A line is one that is to be written, and where that counts.
type line struct {
	text   []byte
	counts *Counts
}

// Line writes a line, after the time and this name. What becomes of it is counted.
func (f *File) Line(name, text string, counts *Counts) {
	b := f.now().UTC().AppendFormat(nil, "2006-01-02T15:04:05.000Z")
	b = append(b, ' ')
	b = append(b, name...)
	b = append(b, " | "...)
	b = append(append(b, text...), '\n')

	f.add(line{b, counts})
}

// Write has text written as it is, by itself. It never fails, waits for nobody, and keeps nothing of text.
func (f *File) Write(text []byte) (int, error) {
	f.add(line{bytes.Clone(text), &Counts{}})
	return len(text), nil
}

func (f *File) add(l line) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closing || f.queued+len(l.text) > f.maxQueue {
		f.dropped++
		l.counts.dropped(l.text)
		return
	}
	if f.dropped > 0 {
		l.text = append([]byte("… "+strconv.Itoa(f.dropped)+" lines dropped: "+f.taker()+" is too slow\n"), l.text...)
		f.dropped = 0
	}
	f.queue = append(f.queue, l)
	f.queued += len(l.text)
	f.wake.Signal()
}

// Close writes what is queued, and waits for that no longer than this. It returns the last error of the disk.
func (f *File) Close(patience time.Duration) error {
	f.mu.Lock()
	f.closing = true
	f.wake.Signal()
	f.mu.Unlock()
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case <-f.done:
		return f.err
	case <-t.C:
		return fmt.Errorf("capture: %s did not take the last lines within %v", strings.TrimPrefix(f.path+": "+f.taker(), ": "), patience)
	}
}

// taker is who takes the lines.
func (f *File) taker() string {
	if f.out != nil { // a pipe, or a terminal
		return "who reads this"
	}
	return "the disk"
}

func (f *File) write() {
	defer close(f.done)
	if f.after != nil {
		<-f.after
	}
	if f.out == nil {
		if err := f.openAnew(); err != nil {
			f.tell(err) // and it is tried again with each line
		}
	}
	for {
		f.mu.Lock()
		for len(f.queue) == 0 && !f.closing {
			f.wake.Wait()
		}
		lines := f.queue
		f.queue = nil
		f.mu.Unlock()
		if len(lines) == 0 {
			if f.file != nil {
				f.file.Close()
			}
			return
		}
		for _, l := range lines {
			f.put(l)
			f.mu.Lock()
			f.queued -= len(l.text) // only now: what is being written takes memory, too
			f.mu.Unlock()
		}
	}
}

// put writes a line. A disk that is full, or a file that cannot be opened, costs lines and nothing else.
func (f *File) put(l line) {
	out, err := f.ready(len(l.text))
	if err != nil {
		f.lose(l, err)
		return
	}
	text := l.text
	if f.lost > 0 {
		note := "… " + strconv.Itoa(f.lost) + " lines dropped: " + f.err.Error() + "\n"
		if f.torn {
			note = "\n" + note
		}
		text = append([]byte(note), text...)
	}
	n, err := out.Write(text)
	f.size += int64(n)
	if err != nil {
		f.torn = f.torn || n > 0
		f.lose(l, err)
		return
	}
	f.lost, f.torn = 0, false
	l.counts.written(l.text)
}

// ready returns where to write so many bytes.
func (f *File) ready(n int) (io.Writer, error) {
	if f.out != nil {
		return f.out, nil
	}
	f.look()
	if f.file == nil {
		if err := f.openAnew(); err != nil {
			return nil, err
		}
	}
	if f.size > 0 && f.size+int64(n) > f.maxSize {
		f.rotate()
		if err := f.openAnew(); err != nil {
			return nil, err
		}
	}
	return f.file, nil
}

// look closes a file that somebody has removed or put aside: what is written to it would be seen by nobody, or not where it is looked for.
// One that was emptied has room again.
func (f *File) look() {
	now := f.now()
	if f.file == nil || now.Sub(f.at) < glance {
		return
	}
	f.at = now
	its, err := f.file.Stat()
	if err != nil {
		return
	}
	switch there, err := os.Stat(f.path); {
	case errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(its, there):
		f.file.Close()
		f.file = nil
	case its.Mode().IsRegular():
		f.size = its.Size()
	}
}

// openAnew opens a file whose directory may have been removed since it was checked.
func (f *File) openAnew() error {
	err := f.open()
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(filepath.Dir(f.path), 0o700); err == nil {
			err = f.open()
		}
	}
	return err
}

func (f *File) lose(l line, err error) {
	f.lost++
	l.counts.dropped(l.text)
	f.tell(err)
}

// tell tells of a failure, unless one was told of a short while ago.
func (f *File) tell(err error) {
	f.err = fmt.Errorf("capture: %w", err)
	if now := f.now(); f.failed != nil && (f.told.IsZero() || now.Sub(f.told) >= silence) {
		f.told = now
		f.failed(err)
	}
}

func (f *File) rotate() {
	f.file.Close()
	f.file = nil
	name := func(n int) string { return rotated(f.path, n) }
	os.Remove(name(f.maxFiles))
	for n := f.maxFiles - 1; n >= 1; n-- {
		os.Rename(name(n), name(n+1))
	}
	if f.maxFiles > 0 {
		os.Rename(f.path, name(1))
	} else {
		os.Remove(f.path)
	}
	f.size = 0
}

func rotated(path string, n int) string { return path + "." + strconv.Itoa(n) }

// Remove removes a log that is not open any more, with the files beside it. What cannot be removed costs room, as where a
// rotation fails.
func Remove(path string, maxFiles int) {
	for n := maxFiles; n >= 1; n-- {
		os.Remove(rotated(path, n))
	}
	os.Remove(path)
}
