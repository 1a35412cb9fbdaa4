//go:build unix

package capture_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/swansong-go/swansong/launcher/internal/capture"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tooLong is for broken code.
const tooLong = 20 * time.Second

func open(path string, size int64, files, queue int) *capture.File {
	return capture.Open(path, size, files, queue, nil, nil)
}

// maxLine is where these tests break lines.
const maxLine = 16 << 10

// write writes what a process would print.
func write(f *capture.File, counts *capture.Counts, text string) error {
	return capture.Lines(strings.NewReader(text), maxLine, func(line []byte) { f.Line("web-1 out", string(line), counts) })
}

// texts returns the lines of a file without their times.
func texts(t *testing.T, path string) (all []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		_, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		all = append(all, rest)
	}
	return all
}

func TestLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	f := open(path, 1<<20, 1, 1<<20)
	if err := write(f, &capture.Counts{}, "one\r\n\ntwo\n"+strings.Repeat("x", maxLine+1)+"\nlast"); err != nil {
		t.Error(err)
	}
	if err := f.Close(tooLong); err != nil {
		t.Error(err)
	}
	want := []string{"web-1 out | one", "web-1 out | ", "web-1 out | two", "web-1 out | " + strings.Repeat("x", maxLine),
		"web-1 out | x", "web-1 out | last"}
	if diff := cmp.Diff(want, texts(t, path)); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

func TestRotation(t *testing.T) {
	dir := t.TempDir()
	f := open(filepath.Join(dir, "log"), 400, 2, 1<<20)
	var text strings.Builder
	for n := range 100 {
		fmt.Fprintf(&text, "line %d\n", n)
	}
	if err := write(f, &capture.Counts{}, text.String()); err != nil {
		t.Error(err)
	}
	if err := f.Close(tooLong); err != nil {
		t.Error(err)
	}
	names, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, n := range names {
		found = append(found, n.Name())
		if info, err := n.Info(); err != nil || info.Size() > 400 {
			t.Errorf("%s has %d bytes, %v", n.Name(), info.Size(), err)
		}
	}
	if diff := cmp.Diff([]string{"log", "log.1", "log.2"}, found); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	var all []string
	for _, name := range []string{"log.2", "log.1", "log"} {
		all = append(all, texts(t, filepath.Join(dir, name))...)
	}
	for n, line := range all {
		if want := fmt.Sprintf("web-1 out | line %d", 100-len(all)+n); line != want {
			t.Fatalf("line %d is %q, want %q", n, line, want)
		}
	}
}

// A disk that takes nothing costs lines, which are counted, and nobody's time: here it is a pipe that nobody reads.
func TestSlowDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	disk, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := open(path, 1<<40, 1, 64<<10)
	copied, counts := make(chan error, 1), &capture.Counts{}
	go func() {
		copied <- write(f, counts, strings.Repeat(strings.Repeat("x", 99)+"\n", 20_000))
	}()
	select {
	case err := <-copied:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(tooLong):
		t.Fatal("who prints waits for the disk")
	}
	if n := counts.DroppedLines.Load(); n < 1000 {
		t.Errorf("%d lines were dropped, of 2 MB, with 64 KiB to hold them", n)
	}
	if err, want := f.Close(time.Millisecond), "capture: "+path+": the disk did not take the last lines within 1ms"; err == nil || err.Error() != want {
		t.Errorf("Close: %v, and not %s", err, want)
	}
	// Now it takes something, and the writer ends.
	go func() {
		buf := make([]byte, 1<<16)
		for {
			if _, err := disk.Read(buf); err != nil {
				return
			}
		}
	}()
	if err := f.Close(tooLong); err != nil {
		t.Error(err)
	}
	disk.Close()
}

// Who reads slowly, and has no disk, is told what is missing, and no disk is blamed.
func TestSlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader, out := io.Pipe()
		f := capture.To(out, 100, nil)
		long := strings.Repeat("x", 99) + "\n"
		for _, text := range []string{long, "lost\n", "lost\n"} {
			io.WriteString(f, text)
		}
		got := make([]byte, 200)
		io.ReadFull(reader, got[:len(long)])
		synctest.Wait()
		io.WriteString(f, "last\n")
		if err := f.Close(time.Second); err == nil || err.Error() != "capture: who reads this did not take the last lines within 1s" {
			t.Errorf("Close: %v", err)
		}
		n, err := reader.Read(got)
		if want := "… 2 lines dropped: who reads this is too slow\nlast\n"; string(got[:n]) != want || err != nil {
			t.Errorf("%q, %v, and not %q", got[:n], err, want)
		}
		if err := f.Close(time.Second); err != nil {
			t.Error(err)
		}
	})
}

// A directory that is missing is made, as one is that was removed later.
func TestMissingDirectory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "logs", "of kv", "log")
	f := capture.Open(path, 1<<20, 1, 1<<20, func(err error) { t.Error(err) }, nil)
	f.Line("a", "one", &capture.Counts{})
	if err := f.Close(tooLong); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"a | one"}, texts(t, path)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Nothing is opened before what it is to come after: a file that is being removed would be opened, and go on without a name.
func TestOpenAfter(t *testing.T) {
	for range 100 { // whoever does not wait is quick enough in one of them
		dir, after := filepath.Join(t.TempDir(), "dir"), make(chan struct{})
		path := filepath.Join(dir, "log")
		f := capture.Open(path, 1<<20, 1, 1<<20, func(err error) { t.Error(err) }, after)
		f.Line("a", "one", &capture.Counts{})
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		close(after)
		if err := f.Close(tooLong); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"a | one"}, texts(t, path)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// A disk that hangs when the file is opened is like one that hangs when it is written: here it is a pipe that nobody has opened.
func TestHungOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	written := make(chan *capture.File)
	go func() {
		f := open(path, 1<<20, 1, 1<<20)
		write(f, &capture.Counts{}, "one\n")
		written <- f
	}()
	var f *capture.File
	select {
	case f = <-written:
	case <-time.After(tooLong):
		t.Fatal("who prints waits for the disk")
	}
	if err := f.Close(time.Millisecond); err == nil {
		t.Error("Close says that all has been written")
	}
	disk, err := os.Open(path) // now it goes on
	if err != nil {
		t.Fatal(err)
	}
	defer disk.Close()
	if err := f.Close(tooLong); err != nil {
		t.Error(err)
	}
	text, err := io.ReadAll(disk)
	if err != nil || !strings.HasSuffix(string(text), " web-1 out | one\n") {
		t.Errorf("it was given %q, %v", text, err)
	}
}

// A file that was full before is not added to: it is put aside first.
func TestFullFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	full := strings.Repeat("x", 399) + "\n"
	if err := os.WriteFile(path, []byte(full), 0o600); err != nil {
		t.Fatal(err)
	}
	f := open(path, 400, 1, 1<<20)
	write(f, &capture.Counts{}, "one\n")
	if err := f.Close(tooLong); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"web-1 out | one"}, texts(t, path)); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	if aside, err := os.ReadFile(path + ".1"); string(aside) != full {
		t.Errorf("put aside are %d bytes of %d, %v", len(aside), len(full), err)
	}
}

// A file that somebody takes away is begun anew, with its directory, where what comes later would be lost, or be in what is put aside. One that
// is emptied is full when it is, and not before.
func TestFileIsTakenAway(t *testing.T) {
	for what, c := range map[string]struct {
		take func(path string) error
		size int64 // 70 is enough for both lines
		want []string
	}{
		"removed":                    {os.Remove, 70, []string{"a | two"}},
		"removed with its directory": {func(path string) error { return os.RemoveAll(filepath.Dir(path)) }, 70, []string{"a | two"}},
		"put aside":                  {func(path string) error { return os.Rename(path, path+".aside") }, 70, []string{"a | two"}},
		"replaced": {func(path string) error {
			return errors.Join(os.Remove(path), os.WriteFile(path, []byte("x three\n"), 0o600))
		}, 70, []string{"three", "a | two"}},
		"emptied": {func(path string) error { return os.Truncate(path, 0) }, 40, []string{"a | two"}},
		"left":    {func(string) error { return nil }, 70, []string{"a | one", "a | two"}},
	} {
		t.Run(what, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "logs", "log")
			if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				f := capture.Open(path, c.size, 1, 1<<20, func(err error) { t.Error(err) }, nil)
				f.Line("a", "one", &capture.Counts{})
				synctest.Wait()
				if err := c.take(path); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				f.Line("a", "two", &capture.Counts{})
				if err := f.Close(tooLong); err != nil {
					t.Error(err)
				}
				if diff := cmp.Diff(c.want, texts(t, path)); diff != "" {
					t.Errorf("lines (-want +got):\n%s", diff)
				}
				if _, err := os.Stat(path + ".1"); err == nil {
					t.Error("it was taken for a full one")
				}
			})
		})
	}
}

// A full disk is told of, once and not for each line, and costs no more than the lines.
func TestFullDisk(t *testing.T) {
	const full = "/dev/full"
	if _, err := os.Stat(full); err != nil {
		t.Skip("there is no ", full)
	}
	told := make(chan error, 10)
	f := capture.Open(full, 1<<20, 1, 1<<20, func(err error) { told <- err }, nil)
	var counts capture.Counts
	if err := write(f, &counts, "one\ntwo\nthree\n"); err != nil {
		t.Error(err)
	}
	if err := f.Close(tooLong); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("Close: %v", err)
	}
	if len(told) != 1 || !errors.Is(<-told, syscall.ENOSPC) || counts.DroppedLines.Load() != 3 {
		t.Errorf("told %d times too often, %d lines dropped", len(told), counts.DroppedLines.Load())
	}
}

// A tearing disk takes half of a line each time that it is full.
type tearing struct {
	text strings.Builder
	full []bool
}

func (d *tearing) Write(b []byte) (n int, err error) {
	full := d.full[0]
	d.full = d.full[1:]
	if full {
		b, err = b[:len(b)/2], syscall.ENOSPC
	}
	n, _ = d.text.Write(b)
	return n, err
}

// What a disk that was full has not taken is said at the place where it is missing, and no line is glued to another one.
func TestRoomAgain(t *testing.T) {
	d := &tearing{full: []bool{false, true, true, false, false}}
	f := capture.To(d, 1<<20, nil)
	if err := write(f, &capture.Counts{}, "one\ntwo\nthree\nfour\nfive\n"); err != nil {
		t.Error(err)
	}
	f.Close(tooLong)
	lines := strings.Split(d.text.String(), "\n")
	var whole []string
	for _, l := range lines {
		if _, text, ok := strings.Cut(l, " | "); ok {
			whole = append(whole, text)
		}
	}
	if want := []string{"one", "four", "five"}; !slices.Equal(whole, want) || !slices.Contains(lines, "… 2 lines dropped: capture: no space left on device") {
		t.Errorf("whole lines %q, all %q", whole, lines)
	}
}
