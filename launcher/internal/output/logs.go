package output

import (
	"io"
	"sync"
	"time"

	"github.com/swansong-go/swansong/launcher/internal/spec"
)

// Logs manages the log files that processes print to. Each file is open once, for as long as any
// process prints to it.
type Logs struct {
	onError  func(error)
	fallback *File // takes the output of processes without a log file; if nil, that output is discarded

	mu       sync.Mutex
	files    map[string]*sharedFile   // open log files by path
	counts   map[string]*Counts       // counts of lines by group
	removing map[string]chan struct{} // channels by path; each is closed when the log files of an earlier process at this path have been removed

	removals sync.WaitGroup
}

// A sharedFile is a File with the number of streams that are written to it: two for each process.
// The last stream that ends closes it.
type sharedFile struct {
	*File
	users int
}

const (
	// closeTimeout bounds how long Close waits for the disk to write the last lines and to remove
	// old files.
	closeTimeout = time.Second

	// fallbackBuffer is how many bytes are queued for a slow reader of the fallback, the writer
	// that gets the output of processes without a log file.
	fallbackBuffer = 1 << 20
)

// NewLogs returns Logs in which no log file is open yet. The output of a process that has no log
// file goes to w, or is discarded if w is nil. For onError see the function [Open].
func NewLogs(w io.Writer, onError func(error)) *Logs {
	l := &Logs{files: map[string]*sharedFile{}, counts: map[string]*Counts{}, onError: onError, removing: map[string]chan struct{}{}}
	if w != nil {
		l.fallback = To(w, fallbackBuffer, onError)
	}
	return l
}

// Open returns the file to which the output of a process is written. The caller must call the
// function done when the process has printed its last line. The file is nil if the output is
// discarded. Open does not wait for the disk.
//
// The limits of the file are those of the process that opens its path first. If a reload changes
// the limits, the new ones hold when the file is opened again.
func (l *Logs) Open(c spec.Log, id string) (_ *File, done func()) {
	path := c.File(id)
	if path == "" {
		return l.fallback, func() {}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.files[path]
	if f == nil {
		f = &sharedFile{File: Open(path, c.MaxSize, max(0, c.MaxFiles), c.Buffer, l.onError, l.removing[path])}
		l.files[path] = f
	}
	f.users++
	return f.File, func() {
		l.mu.Lock()
		f.users--
		last := f.users == 0
		if last {
			delete(l.files, path)
		}
		l.mu.Unlock()
		if last {
			f.Close(closeTimeout)
		}
	}
}

// Counts returns the counts of the lines of a group. They stay when the group is removed: metrics
// must not fall if a group of the same name is added again.
func (l *Logs) Counts(group string) *Counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.counts[group] == nil {
		l.counts[group] = &Counts{}
	}
	return l.counts[group]
}

// Flush waits until all queued lines have been written, for at most a second. It returns an error
// that names a log to which not all of them could be written. An upgrade calls it, because the
// queues are lost with this program.
func (l *Logs) Flush() error {
	l.mu.Lock()
	files := []*File{}
	for _, f := range l.files {
		files = append(files, f.File)
	}
	l.mu.Unlock()
	if l.fallback != nil {
		files = append(files, l.fallback)
	}
	deadline := time.Now().Add(closeTimeout)
	for _, f := range files {
		if !f.flush(deadline) {
			return f.tooSlow(closeTimeout)
		}
	}
	return nil
}

// Close writes the queued lines of processes without a log file, and waits until old files have
// been removed. Each of these takes at most one second.
func (l *Logs) Close() {
	if l.fallback != nil {
		l.fallback.Close(closeTimeout)
	}
	removed := make(chan struct{})
	go func() { l.removals.Wait(); close(removed) }()
	select {
	case <-removed:
	case <-time.After(closeTimeout):
	}
}
