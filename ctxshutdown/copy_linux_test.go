package ctxshutdown_test

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/internal/testkit"
)

// kernelCopies are the pairs of source and destination between which the kernel moves the bytes of
// an io.Copy on Linux, by splice, sendfile or copy_file_range. (Between a pipe and a socket, Go
// 1.26 reads and writes the bytes.) The kernel must also move the bytes if the source is wrapped in
// a Reader. The same holds for a Writer, if the source is a file or both ends are wrapped.
var kernelCopies = []struct {
	name   string
	writer bool // also test with only the destination wrapped in a Writer
	both   bool // also test with the source in a Reader and the destination in a Writer
	source func(*testing.T) io.ReadCloser
	dest   func(*testing.T) io.WriteCloser
}{
	{"splice, TCP to TCP", false, true, readableConn("tcp"), discardingConn("tcp")},
	{"splice, unix to TCP", false, true, readableConn("unix"), discardingConn("tcp")},
	{"splice, TCP to unix", false, false, readableConn("tcp"), discardingConn("unix")},
	{"splice, TCP to file", false, true, readableConn("tcp"), newFile},
	{"sendfile, file to TCP", true, true, fullFile, discardingConn("tcp")},
	{"copy_file_range, file to file", true, true, fullFile, newFile},
}

// copied is the number of bytes of each copy.
const copied = 16 << 20

func TestCopy_UsesSpliceAndSendfile(t *testing.T) {
	s := ctxshutdown.New(t.Context())
	defer s.Shutdown()
	asItIs := func(w io.Writer, r io.Reader) (io.Writer, io.Reader) { return w, r }
	reader := func(w io.Writer, r io.Reader) (io.Writer, io.Reader) { return w, ctxshutdown.NewReader(s, r) }
	writer := func(w io.Writer, r io.Reader) (io.Writer, io.Reader) { return ctxshutdown.NewWriter(s, w), r }
	both := func(w io.Writer, r io.Reader) (io.Writer, io.Reader) { return reader(ctxshutdown.NewWriter(s, w), r) }
	// If the program copies the bytes, it makes a read and a write for each 32 KiB. If the kernel
	// copies them, the program makes a few calls for each piece.
	const byHand = copied / (32 << 10)
	for _, way := range kernelCopies {
		t.Run(way.name, func(t *testing.T) {
			calls := func(wrap func(io.Writer, io.Reader) (io.Writer, io.Reader)) int {
				src, dst := way.source(t), way.dest(t)
				defer src.Close()
				defer dst.Close()
				return testkit.ReadWriteCalls(t, func() {
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
				t.Errorf("%d calls for a copy through the program, so the count of this test is broken", n)
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

// readableConn returns a function that creates a connection from which a test can read as many
// bytes as the constant copied says.
func readableConn(network string) func(*testing.T) io.ReadCloser {
	return func(t *testing.T) io.ReadCloser {
		a, b := connections(t, network)
		go func() {
			defer a.Close()
			io.CopyN(a, zeros{}, copied)
		}()
		return b
	}
}

// discardingConn returns a function that creates a connection whose other end discards everything.
func discardingConn(network string) func(*testing.T) io.WriteCloser {
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

// If a scope is stopped during the copy of a regular file, the copy ends after the current piece.
func TestCopy_OfFileEndsSoonAfterStopAndLosesNoByte(t *testing.T) {
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
		s.Shutdown() // the copy is in its fourth piece, or further if the socket buffers are large
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
		t.Errorf("the offset of the file is %d after %d bytes were copied", at, n)
	}
}
