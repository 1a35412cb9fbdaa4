package ctxshutdown_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// The ways between two ends on which io.Copy spares the program the bytes, on Linux: by splice, sendfile and
// copy_file_range. (A pipe to a socket is none: Go 1.26 reads and writes there.) Each way has to stay one through a
// Reader, and where the source is a file or both ends are wrapped, through a Writer.
var shortWays = []struct {
	name   string
	writer bool // also with a Writer around the destination and the source as it is
	both   bool // also with both ends wrapped
	source func(*testing.T) io.ReadCloser
	dest   func(*testing.T) io.WriteCloser
}{
	{"splice, TCP to TCP", false, true, fed("tcp"), eaten("tcp")},
	{"splice, unix to TCP", false, true, fed("unix"), eaten("tcp")},
	{"splice, TCP to unix", false, false, fed("tcp"), eaten("unix")},
	{"splice, TCP to file", false, true, fed("tcp"), newFile},
	{"sendfile, file to TCP", true, true, fullFile, eaten("tcp")},
	{"copy_file_range, file to file", true, true, fullFile, newFile},
}

// copied is how much goes each way.
const copied = 16 << 20

func TestCopy_KeepsTheShortWays(t *testing.T) {
	s := ctxshutdown.New(t.Context())
	defer s.Shutdown()
	asItIs := func(w io.Writer, r io.Reader) (io.Writer, io.Reader) { return w, r }
	reader := func(w io.Writer, r io.Reader) (io.Writer, io.Reader) { return w, ctxshutdown.NewReader(s, r) }
	writer := func(w io.Writer, r io.Reader) (io.Writer, io.Reader) { return ctxshutdown.NewWriter(s, w), r }
	both := func(w io.Writer, r io.Reader) (io.Writer, io.Reader) { return reader(ctxshutdown.NewWriter(s, w), r) }
	// A copy by hand takes a read and a write for each 32 KiB, or more. A short way takes one call a piece, or a few.
	const byHand = copied / (32 << 10)
	for _, way := range shortWays {
		t.Run(way.name, func(t *testing.T) {
			calls := func(wrap func(io.Writer, io.Reader) (io.Writer, io.Reader)) int {
				src, dst := way.source(t), way.dest(t)
				defer src.Close()
				defer dst.Close()
				return callsOf(t, func() {
					w, r := wrap(dst, src)
					if n, err := io.Copy(w, r); n != copied || err != nil {
						t.Errorf("copied %d bytes, %v", n, err)
					}
				})
			}
			hidden := func(w io.Writer, r io.Reader) (io.Writer, io.Reader) {
				return struct{ io.Writer }{w}, struct{ io.Reader }{r}
			}
			if n := calls(hidden); n < 2*byHand {
				t.Errorf("by hand: %d calls, so this test does not count what it should", n)
			}
			check := func(name string, wrap func(io.Writer, io.Reader) (io.Writer, io.Reader)) {
				if n := calls(wrap); n > byHand/2 {
					t.Errorf("%s: %d reads and writes, so the bytes went through the program", name, n)
				}
			}
			check("io.Copy", asItIs)
			check("Reader", reader)
			if way.writer {
				check("Writer", writer)
			}
			if way.both {
				check("Reader and Writer", both)
			}
		})
	}
}

// callsOf returns how many reads and writes f takes, by the kernel's count for the thread that runs it. A splice is
// not counted, a sendfile or copy_file_range as one of each.
func callsOf(t *testing.T, f func()) int {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	calls := func() (n int) {
		text, err := os.ReadFile("/proc/thread-self/io")
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			var name string
			var value int
			if _, err := fmt.Sscanf(line, "%s %d", &name, &value); err == nil && (name == "syscr:" || name == "syscw:") {
				n += value
			}
		}
		return n
	}
	before := calls()
	f()
	return calls() - before
}

// fed returns what makes a connection that brings the bytes and ends.
func fed(network string) func(*testing.T) io.ReadCloser {
	return func(t *testing.T) io.ReadCloser {
		a, b := connections(t, network)
		go func() {
			defer a.Close()
			io.CopyN(a, zeros{}, copied)
		}()
		return b
	}
}

// eaten returns what makes a connection that swallows all it gets.
func eaten(network string) func(*testing.T) io.WriteCloser {
	return func(t *testing.T) io.WriteCloser {
		a, b := connections(t, network)
		go func() {
			defer b.Close()
			io.Copy(io.Discard, b)
		}()
		return a
	}
}

func newFile(t *testing.T) io.WriteCloser {
	f, err := os.Create(filepath.Join(t.TempDir(), "dst"))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func fullFile(t *testing.T) io.ReadCloser {
	path := filepath.Join(t.TempDir(), "src")
	if err := os.WriteFile(path, make([]byte, copied), 0o666); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// A regular file cannot be woken, and does not have to be: a copy of it ends at the next piece.
func TestCopy_OfAFileStopsWithinAPiece(t *testing.T) {
	const piece = 1 << 20
	s, cancel := ctxshutdown.WithCancel(context.Background())
	defer cancel()
	src := fullFile(t)
	defer src.Close()
	a, b := connections(t, "tcp")
	defer a.Close()
	got := make(chan int64)
	go func() {
		defer b.Close()
		first, _ := io.CopyN(io.Discard, b, 3*piece)
		s.Shutdown() // the copy is at its fourth piece, or further on by what the sockets hold
		rest, _ := io.Copy(io.Discard, b)
		got <- first + rest
	}()
	r := ctxshutdown.NewReader(s, src)
	n, err := io.Copy(a, r)
	a.Close()
	if all := <-got; n != all || err != nil || !r.Stopped() || n%piece != 0 || n == copied {
		t.Errorf("copied %d bytes, %v, stopped %v; %d arrived", n, err, r.Stopped(), all)
	}
	if at, err := src.(io.Seeker).Seek(0, io.SeekCurrent); at != n || err != nil {
		t.Errorf("the file is at %d after %d bytes were copied: the next owner begins there", at, n)
	}
}
