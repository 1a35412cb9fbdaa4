package statefile

import (
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A Writer keeps a state file up to date. One goroutine writes the whole file whenever the state
// has changed.
//
// A process that is to be kept is in the file before it is started, together with its containment
// (a cgroup, or a mark in its environment). So the next launcher finds a process that was started
// just before this one died. If the file cannot be written, the process is started nevertheless.
// Until the process is in the file, it ends when the launcher ends.
//
// A failed write is repeated at each change, and after pauses that double up to maxRetryPause. The
// first failure is reported, and so is the next success. A write that takes longer than
// writeTimeout counts as a failure.
type Writer struct {
	path    string
	state   func() State
	report  func(error) // called with an error when writing begins to fail, and with nil when it works again
	failing atomic.Bool
	written atomic.Pointer[map[string]bool] // ids of the processes in the state file
	changed chan struct{}
	quit    chan struct{}
	ended   chan struct{} // closed when the goroutine that writes the file has ended

	mu      sync.Mutex
	waiting []chan error // one for each pending call of Flush; receives the result of the next write
}

const (
	// writeTimeout is how long a write may take. After that, the write is reported as hanging, and
	// Flush fails.
	writeTimeout = 10 * time.Second

	// closeTimeout is how long a write may take while the launcher is stopping.
	closeTimeout = time.Second

	minRetryPause = 100 * time.Millisecond
	maxRetryPause = 30 * time.Second
)

// NewWriter returns a Writer for the file at path. current is the state that the file contains now.
// The Writer calls the function state to get what to write. It calls the function report with an
// error when writing begins to fail, and with nil when writing works again.
func NewWriter(path string, current State, state func() State, report func(error)) *Writer {
	w := &Writer{path: path, state: state, report: report, changed: make(chan struct{}, 1), quit: make(chan struct{}), ended: make(chan struct{})}
	w.setWritten(current)
	return w
}

func (w *Writer) setWritten(s State) {
	ids := map[string]bool{}
	for _, p := range s.Processes() {
		ids[p.ID] = true
	}
	w.written.Store(&ids)
}

// Has reports whether the file contains the process with this id. It does not wait for a write that
// is under way.
func (w *Writer) Has(id string) bool { return (*w.written.Load())[id] }

// Start writes the file and starts the goroutine that keeps it up to date, until Close. It waits
// for the disk as Flush does. After an error, the write is repeated like every failed write.
func (w *Writer) Start(stop <-chan struct{}) error {
	go w.loop()
	return w.Flush(stop)
}

// Changed schedules a write, because the state has changed. It returns at once, and may be called
// with any lock held. Several changes before the next write become one write. The goroutine of the
// Writer asks for the state just before it writes, so what it writes contains the change.
func (w *Writer) Changed() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// Idle reports whether no change is waiting to be written. A write of earlier changes may be going
// on.
func (w *Writer) Idle() bool { return len(w.changed) == 0 }

// Failing reports whether the last write has failed, or has taken too long so far.
func (w *Writer) Failing() bool { return w.failing.Load() }

// Flush returns when the current state is in the file. It fails if that takes longer than
// writeTimeout, or longer than closeTimeout once the channel stop is closed.
func (w *Writer) Flush(stop <-chan struct{}) error {
	done := make(chan error, 1)
	w.mu.Lock()
	w.waiting = append(w.waiting, done)
	w.mu.Unlock()
	w.Changed()
	deadline := time.Now().Add(writeTimeout)
	timer := time.NewTimer(writeTimeout)
	defer timer.Stop()
	timeout := w.timeoutError()
	for {
		select {
		case err := <-done:
			return err
		case <-w.ended:
			return fs.ErrClosed
		case <-stop:
			stop = nil
			timer.Reset(min(closeTimeout, time.Until(deadline)))
			timeout = fmt.Errorf("the disk did not write %s within %v of the stop", w.path, closeTimeout)
		case <-timer.C:
			w.mu.Lock()
			defer w.mu.Unlock()
			w.waiting = slices.DeleteFunc(w.waiting, func(other chan error) bool { return other == done })
			return timeout
		}
	}
}

// loop is the goroutine that writes the file, from Start to Close. The calls of Flush that wait
// before a write begins get its result. Those that come later wait for the next one, because the
// state of this one may have been taken before their change.
func (w *Writer) loop() {
	defer close(w.ended)
	pause := minRetryPause
	retry := time.NewTimer(pause)
	defer retry.Stop()
	retry.Stop()
	for {
		select {
		case <-w.changed:
		case <-retry.C:
			// Each retry doubles the pause before the next one. A write because of a change does
			// not: otherwise many changes in a short time would lengthen the pause.
			pause = min(2*pause, maxRetryPause)
		case <-w.quit:
			return
		}
		w.mu.Lock()
		waiting := w.waiting
		w.waiting = nil
		w.mu.Unlock()
		err := w.write()
		retry.Stop()
		if err == nil {
			pause = minRetryPause
		} else {
			retry.Reset(pause)
		}
		for _, done := range waiting {
			done <- err
		}
	}
}

// write writes the file, however long that takes. It reports a failure, and a write that takes
// longer than writeTimeout.
func (w *Writer) write() error {
	reported := make(chan struct{})
	timer := time.AfterFunc(writeTimeout, func() {
		defer close(reported)
		w.setFailing(w.timeoutError())
	})
	s := w.state()
	err := Write(w.path, s)
	if !timer.Stop() {
		<-reported
	}
	if err == nil {
		w.setWritten(s)
	}
	w.setFailing(err)
	return err
}

// setFailing records whether a write has failed, with the error err or nil. If the write before it
// had the other result, setFailing calls report.
func (w *Writer) setFailing(err error) {
	if was := w.failing.Swap(err != nil); was != (err != nil) {
		w.report(err)
	}
}

func (w *Writer) timeoutError() error {
	return fmt.Errorf("the disk did not write %s within %v; find out why it hangs", w.path, writeTimeout)
}

// Close stops writing, removes the file if remove is true, and then calls the function closed.
// Until that call, no other program may write the file. If the disk hangs, Close returns after
// closeTimeout, and does the rest in the background when the disk works again.
func (w *Writer) Close(remove bool, closed func()) {
	close(w.quit)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer closed()
		<-w.ended
		if remove {
			os.Remove(w.path)
		}
	}()
	timer := time.NewTimer(closeTimeout)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}
