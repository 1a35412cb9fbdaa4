//go:build unix

package output_test

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
	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher/internal/output"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tooLong is a timeout that only broken code reaches.
const tooLong = 20 * time.Second

func open(path string, size int64, files, queue int) *output.File {
	return output.Open(path, size, files, queue, nil, nil)
}

// maxLine is the length of the longest line that these tests write.
const maxLine = 16 << 10

// write writes the lines of text to f, as if a process had printed them.
func write(f *output.File, counts *output.Counts, text string) error {
	return output.ReadLines(strings.NewReader(text), maxLine, nil, func(line string) { f.WriteLine("web-1 out", line, counts) })
}

// texts returns the lines of a file without their timestamps.
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

func TestFile_WritesLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	f := open(path, 1<<20, 1, 1<<20)
	if err := write(f, &output.Counts{}, "one\r\n\ntwo\n"+strings.Repeat("x", maxLine+1)+"\nlast"); err != nil {
		t.Error(err)
	}
	if err := f.Close(tooLong); err != nil {
		t.Error(err)
	}
	want := []string{"web-1 out | one", "web-1 out | ", "web-1 out | two", "web-1 out | " + strings.Repeat("x", maxLine),
		"web-1 out | x", "web-1 out | last"}
	testkit.Equal(t, "lines", texts(t, path), want)
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

func TestFile_RotatesAtSizeLimit(t *testing.T) {
	dir := t.TempDir()
	f := open(filepath.Join(dir, "log"), 400, 2, 1<<20)
	var text strings.Builder
	for n := range 100 {
		fmt.Fprintf(&text, "line %d\n", n)
	}
	if err := write(f, &output.Counts{}, text.String()); err != nil {
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
	testkit.Equal(t, "files", found, []string{"log", "log.1", "log.2"})
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

// A blocked disk costs lines, which are counted, but never blocks the process that prints. The disk
// is a pipe without a reader here.
func TestFile_DropsLinesWhileDiskIsBlocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	disk, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := open(path, 1<<40, 1, 64<<10)
	copied, counts := make(chan error, 1), &output.Counts{}
	go func() {
		copied <- write(f, counts, strings.Repeat(strings.Repeat("x", 99)+"\n", 20_000))
	}()
	select {
	case err := <-copied:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(tooLong):
		t.Fatal("writing a line waits for the disk")
	}
	if n := counts.DroppedLines.Load(); n < 1000 {
		t.Errorf("%d lines were dropped of 2 MB, with a queue of 64 KiB; want at least 1000", n)
	}
	if err, want := f.Close(time.Millisecond), "output: "+path+": the disk did not take the last lines within 1ms"; err == nil || err.Error() != want {
		t.Errorf("Close: %v, want %s", err, want)
	}
	// Read the pipe from now on, so that the blocked writer can end.
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

// A slow reader of a pipe gets a note with the number of missing lines, which does not mention a
// disk.
func TestFile_WrittenToSlowPipeNotesNumberOfMissingLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader, out := io.Pipe()
		f := output.To(out, 100, nil)
		long := strings.Repeat("x", 99) + "\n"
		for _, text := range []string{long, "lost\n", "lost\n"} {
			io.WriteString(f, text)
		}
		got := make([]byte, 200)
		io.ReadFull(reader, got[:len(long)])
		synctest.Wait()
		io.WriteString(f, "last\n")
		if err := f.Close(time.Second); err == nil || err.Error() != "output: the reader of this output did not take the last lines within 1s" {
			t.Errorf("Close: %v", err)
		}
		n, err := reader.Read(got)
		if want := "… 2 lines dropped: the reader of this output is too slow\nlast\n"; string(got[:n]) != want || err != nil {
			t.Errorf("read %q, %v, want %q", got[:n], err, want)
		}
		if err := f.Close(time.Second); err != nil {
			t.Error(err)
		}
	})
}

func TestOpen_MakesMissingDirectory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "logs", "of kv", "log")
	f := output.Open(path, 1<<20, 1, 1<<20, func(err error) { t.Error(err) }, nil)
	f.WriteLine("a", "one", &output.Counts{})
	if err := f.Close(tooLong); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"a | one"}, texts(t, path)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The writer opens nothing before start is closed. Otherwise it could open a file that is being
// removed, and write to a file without a name.
func TestOpen_CreatesNoFileBeforeStartChannelIsClosed(t *testing.T) {
	// A writer that does not wait for start would create the file too early in one of these rounds.
	for range 100 {
		dir, start := filepath.Join(t.TempDir(), "dir"), make(chan struct{})
		path := filepath.Join(dir, "log")
		f := output.Open(path, 1<<20, 1, 1<<20, func(err error) { t.Error(err) }, start)
		f.WriteLine("a", "one", &output.Counts{})
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		close(start)
		if err := f.Close(tooLong); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"a | one"}, texts(t, path)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// If the disk hangs, opening the file may hang, too. Neither writing a line nor Close waits for the
// opening. In this test, a named pipe that has not been opened for reading stands for such a file.
func TestOpen_DoesNotWaitForDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	written := make(chan *output.File)
	go func() {
		f := open(path, 1<<20, 1, 1<<20)
		write(f, &output.Counts{}, "one\n")
		written <- f
	}()
	var f *output.File
	select {
	case f = <-written:
	case <-time.After(tooLong):
		t.Fatal("writing a line waits for the disk")
	}
	if err := f.Close(time.Millisecond); err == nil {
		t.Error("Close reports that all lines were written")
	}
	disk, err := os.Open(path) // now the writer can continue
	if err != nil {
		t.Fatal(err)
	}
	defer disk.Close()
	if err := f.Close(tooLong); err != nil {
		t.Error(err)
	}
	text, err := io.ReadAll(disk)
	if err != nil || !strings.HasSuffix(string(text), " web-1 out | one\n") {
		t.Errorf("the pipe has %q, %v", text, err)
	}
}

// A file that is full when it is opened is rotated before the first line.
func TestOpen_RotatesFullFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	full := strings.Repeat("x", 399) + "\n"
	if err := os.WriteFile(path, []byte(full), 0o600); err != nil {
		t.Fatal(err)
	}
	f := open(path, 400, 1, 1<<20)
	write(f, &output.Counts{}, "one\n")
	if err := f.Close(tooLong); err != nil {
		t.Error(err)
	}
	testkit.Equal(t, "lines", texts(t, path), []string{"web-1 out | one"})
	if aside, err := os.ReadFile(path + ".1"); string(aside) != full {
		t.Errorf("the rotated file has %d bytes of %d, %v", len(aside), len(full), err)
	}
}

// When another program removes, renames or replaces the file, the next line goes to a new file at
// the path. A truncated file is used until it is full again.
func TestFile_IsRecreatedWhenAnotherProgramRemovesIt(t *testing.T) {
	for what, c := range map[string]struct {
		take func(path string) error
		size int64 // the maximum size of the file; 70 is enough for both lines
		want []string
	}{
		"removed":                    {os.Remove, 70, []string{"a | two"}},
		"removed with its directory": {func(path string) error { return os.RemoveAll(filepath.Dir(path)) }, 70, []string{"a | two"}},
		"renamed":                    {func(path string) error { return os.Rename(path, path+".aside") }, 70, []string{"a | two"}},
		"replaced": {func(path string) error {
			return errors.Join(os.Remove(path), os.WriteFile(path, []byte("x three\n"), 0o600))
		}, 70, []string{"three", "a | two"}},
		"truncated": {func(path string) error { return os.Truncate(path, 0) }, 40, []string{"a | two"}},
		"unchanged": {func(string) error { return nil }, 70, []string{"a | one", "a | two"}},
	} {
		t.Run(what, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "logs", "log")
			if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				f := output.Open(path, c.size, 1, 1<<20, func(err error) { t.Error(err) }, nil)
				f.WriteLine("a", "one", &output.Counts{})
				synctest.Wait()
				if err := c.take(path); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				f.WriteLine("a", "two", &output.Counts{})
				if err := f.Close(tooLong); err != nil {
					t.Error(err)
				}
				testkit.Equal(t, "lines", texts(t, path), c.want)
				if _, err := os.Stat(path + ".1"); err == nil {
					t.Error("it was rotated")
				}
			})
		})
	}
}

// A full disk loses lines. It is reported once, not for each line.
func TestFile_FullDiskIsReportedOnce(t *testing.T) {
	const full = "/dev/full"
	if _, err := os.Stat(full); err != nil {
		t.Skip("this system has no ", full)
	}
	reported := make(chan error, 10)
	f := output.Open(full, 1<<20, 1, 1<<20, func(err error) { reported <- err }, nil)
	var counts output.Counts
	if err := write(f, &counts, "one\ntwo\nthree\n"); err != nil {
		t.Error(err)
	}
	if err := f.Close(tooLong); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("Close: %v", err)
	}
	if len(reported) != 1 || !errors.Is(<-reported, syscall.ENOSPC) || counts.DroppedLines.Load() != 3 {
		t.Errorf("%d more reports, %d lines dropped; want 0 and 3", len(reported), counts.DroppedLines.Load())
	}
}

// A tearing disk writes only half of a line when it is full.
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

// When the disk has space again, a note stands where lines are missing, and each line is on a line
// of its own.
func TestFile_AfterFullDiskNotesWhereLinesAreMissing(t *testing.T) {
	d := &tearing{full: []bool{false, true, true, false, false}}
	f := output.To(d, 1<<20, nil)
	if err := write(f, &output.Counts{}, "one\ntwo\nthree\nfour\nfive\n"); err != nil {
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
	if want := []string{"one", "four", "five"}; !slices.Equal(whole, want) || !slices.Contains(lines, "… 2 lines dropped: no space left on device") {
		t.Errorf("whole lines %q, all %q", whole, lines)
	}
}
