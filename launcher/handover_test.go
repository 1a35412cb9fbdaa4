//go:build unix

package launcher_test

import (
	"io"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/swansong-go/swansong/launcher"
)

// Who leaves what a process prints to somebody else reads to the end of the line that has been begun, and takes nothing of the
// next one.
func TestHandover(t *testing.T) {
	const never = time.Hour // it would hang
	for _, c := range []struct {
		name, before, after string // printed before somebody is told to leave, and after
		most                int
		patience            time.Duration
		read, left          string
	}{
		{"nothing", "", "next\n", 100, never, "", "next\n"},
		{"between lines", "first\n", "next\n", 100, never, "first\n", "next\n"},
		{"in a line", "first\nsec", "ond\nnext\n", 100, never, "first\nsecond\n", "next\n"},
		{"in a line that is late", "sec", "ond\nnext\n", 100, -1, "second\n", "next\n"},
		{"in a line that does not end", "sec", "ond", 100, time.Millisecond, "second", ""},
		{"in a line that is too long", "sec", "ond line\nnext\n", 5, never, "second l", "ine\nnext\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			defer w.Close()
			h, leave := launcher.NewHandover(r, c.most, c.patience)
			write := func(text string) {
				if _, err := io.WriteString(w, text); err != nil {
					t.Fatal(err)
				}
			}
			write(c.before)
			before := make([]byte, len(c.before))
			if _, err := io.ReadFull(h, before); err != nil {
				t.Fatal(err)
			}
			leave()
			write(c.after)
			rest, err := io.ReadAll(h)
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "what is read", string(before)+string(rest), c.read)
			w.Close()
			r.SetReadDeadline(time.Time{})
			left, _ := io.ReadAll(r)
			equal(t, "what is left", string(left), c.left)
		})
	}
}

// The rest of a line that is printed only after somebody was told to leave is waited for.
func TestHandover_Waits(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	h, leave := launcher.NewHandover(r, 1000, time.Hour)
	write := func(text string) {
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
	}
	write("a line")
	begun := make([]byte, len("a line"))
	if _, err := io.ReadFull(h, begun); err != nil {
		t.Fatal(err)
	}
	leave()
	read := make(chan string)
	go func() {
		text, err := io.ReadAll(h)
		if err != nil {
			t.Error(err)
		}
		read <- string(text)
	}()
	for range 100 { // often before it is printed, and often after
		write("x")
		runtime.Gosched()
	}
	write("\nnext\n")
	equal(t, "what is read", <-read, strings.Repeat("x", 100)+"\n")
}
