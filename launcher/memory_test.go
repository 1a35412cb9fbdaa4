//go:build unix

package launcher_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/launcher"
)

// obstruct has the state file of a directory be written by nobody, be it root, until it is cleared.
func obstruct(t *testing.T, dir string) (clear func()) {
	t.Helper()
	next := filepath.Join(dir, "state.json.next")
	err := os.Mkdir(next, 0o700)
	for errors.Is(err, fs.ErrExist) { // it is being written just now
		err = os.Mkdir(next, 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.Remove(next); err != nil {
			t.Error(err)
		}
	}
}

// A disk that hangs when a log is opened holds up neither the process that prints to it, nor others, nor the end.
func TestLogHangs(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "odd-1.log")
	if err := syscall.Mkfifo(log, 0o600); err != nil { // which nobody opens
		t.Fatal(err)
	}
	odd := script("odd", 1, "i=0; while [ $i -lt 1000 ]; do echo $i; echo "+strings.Repeat("x", 1000)+"; i=$((i+1)); done")
	odd.Log.Dir = dir
	h := launch(t, odd).ready() // after it has printed more than fits into a pipe
	answered := make(chan bool)
	go func() { h.Stats(); close(answered) }()
	select {
	case <-answered:
	case <-time.After(tooLong):
		t.Error("nobody is told how things are")
	}
	h.close()
	disk, err := os.OpenFile(log, os.O_RDWR, 0) // now it goes on
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { disk.Close() })
	go io.Copy(io.Discard, disk)
}

// What could not be written is written when it can be, without waiting for the next change.
func TestStateFileIsWrittenAgain(t *testing.T) {
	h := launch(t, runners("web", 1)).ready()
	clear := obstruct(t, h.dir)
	kill(t, h.running("web")[0].PID)
	e := h.until("an alarm", func(e launcher.Event) bool { return e.Kind == launcher.Alarm })
	if !strings.Contains(e.Message, "the state file") || !strings.Contains(e.Message, "state.json.next") {
		t.Errorf("the alarm is %q", e.Message)
	}
	h.enters("web-2", launcher.Ready)
	equal(t, "failing, says Stats", h.Stats().StateFailing, true)
	clear()
	h.until("the end of the alarm", func(e launcher.Event) bool { return e.Kind == launcher.AllClear })
	equal(t, "failing, says Stats", h.Stats().StateFailing, false)
	text, err := os.ReadFile(filepath.Join(h.dir, "state.json"))
	if err != nil || !strings.Contains(string(text), `"web-2"`) {
		t.Errorf("the state file: %s, %v", text, err)
	}
	equal(t, "alarms", h.count(launcher.Alarm), 1)
}

// Pauses double to a bound, begin anew after a success, and the end is not waited for.
func TestStateFileBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		tries, told := make(chan time.Time, 1000), make(chan error, 1000)
		m, err := launcher.NewMemory(dir, func() { tries <- time.Now() }, func(err error) { told <- err })
		if err != nil {
			t.Fatal(err)
		}
		fail := func(d time.Duration) (pauses []time.Duration, clear func()) {
			clear = obstruct(t, dir)
			m.Note()
			last := time.Now()
			time.Sleep(d)
			synctest.Wait()
			for <-tries; len(tries) > 0; {
				at := <-tries
				pauses, last = append(pauses, at.Sub(last)), at
			}
			return pauses, clear
		}
		<-tries // by which it has begun
		const ms = time.Millisecond
		pauses, clear := fail(2 * time.Minute)
		equal(t, "pauses", pauses, []time.Duration{100 * ms, 200 * ms, 400 * ms, 800 * ms, 1600 * ms, 3200 * ms, 6400 * ms, 12800 * ms,
			25600 * ms, 30 * time.Second, 30 * time.Second})
		clear()
		time.Sleep(time.Minute)
		synctest.Wait()
		equal(t, "what is told", []bool{<-told != nil, <-told != nil}, []bool{true, false})
		equal(t, "more that is told", len(told), 0)
		<-tries // which has succeeded, and is the last
		time.Sleep(time.Hour)
		synctest.Wait()
		equal(t, "tries when all is well", len(tries), 0)
		pauses, _ = fail(time.Second)
		equal(t, "pauses, the next time", pauses, []time.Duration{100 * ms, 200 * ms, 400 * ms})
		m.Close()
	})
}

// Who waits for the state file waits for a disk that hangs no longer than it may take, nor much longer than there is use for it.
func TestStateFileIsNotWaitedForForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs, writes := make(chan bool), make(chan bool, 1)
		writes <- true // the first time
		m, err := launcher.NewMemory(t.TempDir(), func() {
			select {
			case <-writes:
			case <-hangs:
			}
		}, func(error) {})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct{ stopped, want time.Duration }{{time.Hour, 10 * time.Second}, {time.Second, 2 * time.Second}, {9900 * time.Millisecond, 10 * time.Second}, {0, time.Second}} {
			begun := time.Now()
			stop := make(chan struct{})
			again := time.AfterFunc(c.stopped, func() { close(stop) })
			if err := m.Written(stop); err == nil || !strings.Contains(err.Error(), "the disk has not taken") {
				t.Errorf("it is written: %v", err)
			}
			again.Stop()
			equal(t, "it took", time.Since(begun), c.want)
		}
		close(hangs)
		if err := m.Written(nil); err != nil {
			t.Error(err)
		}
		m.Close()
	})
}

// A launcher whose state file cannot be written for the first time does not wait for the disk for ever either.
func TestStateFileHangsAtFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs, begun := make(chan bool), time.Now()
		m, err := launcher.NewMemory(t.TempDir(), func() { <-hangs }, func(error) {})
		if err == nil || !strings.Contains(err.Error(), "the disk has not taken") {
			t.Errorf("it has begun: %v", err)
		}
		equal(t, "it took", time.Since(begun), 10*time.Second)
		close(hangs)
		m.Close()
	})
}

// A disk that hangs is told of like one that fails, and so is that it goes on.
func TestStateFileThatHangsIsToldOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs, writes, told := make(chan bool), make(chan bool, 1), make(chan error, 2)
		writes <- true // the first time
		m, err := launcher.NewMemory(t.TempDir(), func() {
			select {
			case <-writes:
			case <-hangs:
			}
		}, func(err error) { told <- err })
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		m.Note()
		if err := <-told; err == nil || !strings.Contains(err.Error(), "the disk has not taken") {
			t.Errorf("it is told of %v", err)
		}
		equal(t, "it took", time.Since(begun), 10*time.Second)
		close(hangs)
		if err := <-told; err != nil {
			t.Errorf("it is told of %v, when it goes on", err)
		}
		m.Close()
		equal(t, "more is told", len(told), 0)
	})
}

// hang has the disk hang with the state file: it is a pipe that nobody has opened.
func hang(t *testing.T, dir string) (next string) {
	t.Helper()
	next = filepath.Join(dir, "state.json.next")
	for {
		err := syscall.Mkfifo(next, 0o600)
		if err == nil {
			return next
		}
		if !errors.Is(err, fs.ErrExist) { // it is being written just now
			t.Fatal(err)
		}
	}
}

// A disk that hangs with the state file holds up nobody's end, and nobody else writes the file before it goes on.
func TestStateFileHangs(t *testing.T) {
	h := launch(t, runners("web", 1)).ready()
	next := hang(t, h.dir)
	h.Shutdown()
	h.ends("web-1")
	h.close()
	cfg := launcher.Config{Dir: h.dir, Groups: []launcher.GroupConfig{runners("web", 1)}}
	if _, err := launcher.Start(context.Background(), cfg); !errors.Is(err, launcher.ErrInUse) {
		t.Fatalf("another launcher, while the file is not written: %v", err)
	}
	disk, err := os.OpenFile(next, os.O_RDWR, 0) // now it goes on
	if err != nil {
		t.Fatal(err)
	}
	defer disk.Close()
	for ctx := soon(t); ; {
		m, err := launcher.Start(context.Background(), cfg)
		if err == nil {
			m.Shutdown().Wait(ctx)
			return
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}
