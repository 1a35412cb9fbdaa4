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
	"time"

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher"
)

// obstruct makes writing the state file of a directory fail, also for root, until clear is called.
func obstruct(t *testing.T, dir string) (clear func()) {
	t.Helper()
	next := filepath.Join(dir, "state.json.next")
	err := os.Mkdir(next, 0o700)
	for errors.Is(err, fs.ErrExist) { // the launcher is writing the file at the moment, so try again
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

// A disk that hangs when a log file is opened blocks neither the process that prints to it, nor
// other processes, nor the stop of the launcher.
func TestProcessLog_HangingDiskDoesNotBlockProcessOrStop(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "odd-1.log")
	if err := syscall.Mkfifo(log, 0o600); err != nil { // the FIFO is not opened for reading, so opening it for writing hangs
		t.Fatal(err)
	}
	odd := script("odd", 1, "i=0; while [ $i -lt 1000 ]; do echo $i; echo "+strings.Repeat("x", 1000)+"; i=$((i+1)); done")
	odd.Log.Dir = dir
	h := launch(t, odd).ready() // ready is reported after the process has printed more than fits into a pipe
	answered := make(chan bool)
	go func() { h.Stats(); close(answered) }()
	select {
	case <-answered:
	case <-time.After(tooLong):
		t.Error("Stats waits for the disk")
	}
	h.close()
	disk, err := os.OpenFile(log, os.O_RDWR, 0) // now the blocked write continues
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { disk.Close() })
	go io.Copy(io.Discard, disk)
}

// A failed write of the state file is repeated until it succeeds, even if the state does not change
// again. The first failure and the success are reported.
func TestStateFile_RetriesFailedWrite(t *testing.T) {
	h := launch(t, runners("web", 1)).ready()
	clear := obstruct(t, h.dir)
	kill(t, h.running("web")[0].PID)
	e := h.readUntil("an alarm", func(e launcher.Event) bool { return e.Kind == launcher.Alarm })
	if !strings.Contains(e.Message, "the state file") || !strings.Contains(e.Message, "state.json.next") {
		t.Errorf("the alarm is %q", e.Message)
	}
	h.waitForState("web-2", launcher.Ready)
	testkit.Equal(t, "Stats.StateFailing", h.Stats().StateFailing, true)
	clear()
	h.readUntil("the end of the alarm", func(e launcher.Event) bool { return e.Kind == launcher.AllClear })
	testkit.Equal(t, "Stats.StateFailing", h.Stats().StateFailing, false)
	text, err := os.ReadFile(filepath.Join(h.dir, "state.json"))
	if err != nil || !strings.Contains(string(text), `"web-2"`) {
		t.Errorf("the state file: %s, %v", text, err)
	}
	testkit.Equal(t, "alarms", h.count(launcher.Alarm), 1)
}

// hang makes the next write of the state file hang: its temporary file is a pipe that is not opened
// for reading.
func hang(t *testing.T, dir string) (next string) {
	t.Helper()
	next = filepath.Join(dir, "state.json.next")
	for {
		err := syscall.Mkfifo(next, 0o600)
		if err == nil {
			return next
		}
		if !errors.Is(err, fs.ErrExist) { // the launcher is writing the file at the moment, so try again
			t.Fatal(err)
		}
	}
}

// The disk hangs while the launcher writes the state file. That does not block the stop of the
// launcher. Until the disk works again, no other launcher can be started with the directory.
func TestStateFile_HangingDiskDoesNotBlockStop(t *testing.T) {
	h := launch(t, runners("web", 1)).ready()
	next := hang(t, h.dir)
	h.Shutdown()
	h.waitForEnd("web-1")
	h.close()
	cfg := launcher.Config{Dir: h.dir, Groups: []launcher.GroupConfig{runners("web", 1)}}
	if _, err := launcher.Start(context.Background(), cfg); !errors.Is(err, launcher.ErrInUse) {
		t.Fatalf("start of another launcher while the disk hangs: %v", err)
	}
	disk, err := os.OpenFile(next, os.O_RDWR, 0) // now the blocked write continues
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
