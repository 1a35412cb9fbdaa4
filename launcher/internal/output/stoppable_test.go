//go:build unix

package output_test

import (
	"io"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/swansong-go/swansong/launcher/internal/output"
)

// After Stop, the reader reads to the end of the current line, and nothing of the next one.
func TestStoppableReader_AfterStopReadsToEndOfLineOnly(t *testing.T) {
	const never = time.Hour // longer than any test may take, so a test that waits this long times out
	for _, c := range []struct {
		name, before, after string // the process prints the text before, then Stop is called, then it prints the text after
		maxLine             int
		timeout             time.Duration
		read, left          string
	}{
		{"nothing", "", "next\n", 100, never, "", "next\n"},
		{"between lines", "first\n", "next\n", 100, never, "first\n", "next\n"},
		{"in a line", "first\nsec", "ond\nnext\n", 100, never, "first\nsecond\n", "next\n"},
		{"in a line completed after the timeout", "sec", "ond\nnext\n", 100, -1, "second\n", "next\n"},
		{"in a line that is never completed", "sec", "ond", 100, time.Millisecond, "second", ""},
		{"in a line longer than maxLine", "sec", "ond line\nnext\n", 5, never, "second l", "ine\nnext\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			defer w.Close()
			s := output.NewStoppableReader(r, c.maxLine, c.timeout)
			write := func(text string) {
				if _, err := io.WriteString(w, text); err != nil {
					t.Fatal(err)
				}
			}
			write(c.before)
			before := make([]byte, len(c.before))
			if _, err := io.ReadFull(s, before); err != nil {
				t.Fatal(err)
			}
			s.Stop()
			write(c.after)
			rest, err := io.ReadAll(s)
			if err != nil {
				t.Fatal(err)
			}
			if got := string(before) + string(rest); got != c.read {
				t.Errorf("read %q, want %q", got, c.read)
			}
			w.Close()
			r.SetReadDeadline(time.Time{})
			left, _ := io.ReadAll(r)
			if string(left) != c.left {
				t.Errorf("the pipe still has %q, want %q", left, c.left)
			}
		})
	}
}

// The reader waits for the rest of the current line, even if it is printed after Stop.
func TestStoppableReader_WaitsForRestOfLinePrintedAfterStop(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	s := output.NewStoppableReader(r, 1000, time.Hour)
	write := func(text string) {
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
	}
	write("a line")
	begun := make([]byte, len("a line"))
	if _, err := io.ReadFull(s, begun); err != nil {
		t.Fatal(err)
	}
	s.Stop()
	read := make(chan string)
	go func() {
		text, err := io.ReadAll(s)
		if err != nil {
			t.Error(err)
		}
		read <- string(text)
	}()
	for range 100 { // in some rounds Read is called before the writes, in others after them
		write("x")
		runtime.Gosched()
	}
	write("\nnext\n")
	if got, want := <-read, strings.Repeat("x", 100)+"\n"; got != want {
		t.Errorf("read %q, want %q", got, want)
	}
}
