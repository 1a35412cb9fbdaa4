//go:build unix

package output_test

import (
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/swansong-go/swansong/internal/mask"
	"github.com/swansong-go/swansong/internal/proc"
	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher/internal/output"
)

// A secret is masked however the reads and the pieces of a long line divide it.
func TestReadLines_MasksSecretsHoweverReadsDivideThem(t *testing.T) {
	m := mask.New([]string{"hunter2", strings.Repeat("0123456789", 20)})
	text := "login hunter2\r\n\n12345678hunter2 an hunter2hunter2\n" + strings.Repeat("0123456789", 20) + ", of 20\nlast hunter2"
	want := []string{"login ***", "", "12345678*** an ", "******", "***", ", of 20", "last ***"}
	for name, r := range map[string]func(io.Reader) io.Reader{
		"at once":      func(r io.Reader) io.Reader { return r },
		"by bytes":     iotest.OneByteReader,
		"by halves":    iotest.HalfReader,
		"with the EOF": iotest.DataErrReader,
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			if err := output.ReadLines(r(strings.NewReader(text)), 20, func() *mask.Masker { return m }, func(line string) { got = append(got, line) }); err != nil {
				t.Error(err)
			}
			testkit.Equal(t, "lines", got, want)
		})
	}
}

// A line that has exactly the length of a piece is one line, also if its line break comes later.
func TestReadLines_AddsNoEmptyLineIfLineHasExactlyMaximumLength(t *testing.T) {
	var got []string
	r := iotest.OneByteReader(strings.NewReader("0123456789\n0123456789x\n"))
	if err := output.ReadLines(r, 10, nil, func(line string) { got = append(got, line) }); err != nil {
		t.Error(err)
	}
	testkit.Equal(t, "lines", got, []string{"0123456789", "0123456789", "x"})
}

func TestReadLines_ReturnsErrorAfterLastLine(t *testing.T) {
	var got []string
	broken := errors.New("broken")
	r := io.MultiReader(strings.NewReader("one\ntwo"), iotest.ErrReader(broken))
	if err := output.ReadLines(r, 10, nil, func(line string) { got = append(got, line) }); err != broken {
		t.Errorf("got %v", err)
	}
	testkit.Equal(t, "lines", got, []string{"one", "two"})
}

// BenchmarkReadLines reads lines of 100 bytes and masks 20 secrets in them.
func BenchmarkReadLines(b *testing.B) {
	var secrets []string
	for i := range 20 {
		secrets = append(secrets, strings.Repeat(string(rune('a'+i)), 8)+"-secret")
	}
	m := mask.New(secrets)
	line := `{"time":"2026-01-02T12:30:00Z","level":"info","msg":"request served","ms":12,"path":"/v1/items/42"}` + "\n"
	b.ReportAllocs()
	r := io.LimitReader(endless(line), int64(b.N)*int64(len(line)))
	output.ReadLines(r, 64<<10, func() *mask.Masker { return m }, func(string) {})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "lines/s")
}

// endless is a text that is repeated without end.
type endless string

func (e endless) Read(p []byte) (n int, err error) {
	for n+len(e) <= len(p) {
		n += copy(p[n:], e)
	}
	return n, nil
}

// The reading of a stream is paused in the middle of a line. Another reader then goes on, and
// begins with the part of the line that the first reader has kept, so that the line is neither lost
// nor split.
func TestReadLines_NextReaderContinuesUnfinishedLineAfterPause(t *testing.T) {
	p, err := proc.Start(proc.Spec{Args: []string{"/bin/sh", "-c", "echo one; printf tw; read x; echo o; echo three"}})
	if err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 10)
	var reading sync.WaitGroup
	reading.Go(func() { output.ReadLines(p.Stdout(), 100, nil, func(line string) { lines <- line }) })
	testkit.Equal(t, "line", <-lines, "one")
	var pipe *os.File
	var kept []byte
	// repeat until the process has printed "tw" and ReadLines has read it
	for string(kept) != "tw" {
		pipe, kept = p.Stdout().Pause()
		if string(kept) != "tw" {
			p.Stdout().Resume()
		}
	}
	next, err := proc.Adopt(p.Identity(), proc.Spec{ReadStdout: pipe}) // adopt the process, as another launcher would
	if err != nil {
		t.Fatal(err)
	}
	p.Stdin().WriteString("\n")
	reading.Go(func() {
		output.ReadLines(output.Resume(kept, next.Stdout()), 100, nil, func(line string) { lines <- line })
	})
	testkit.Equal(t, "line", <-lines, "two")
	testkit.Equal(t, "line", <-lines, "three")
	<-next.Done()
	p.Stdout().Resume()
	reading.Wait()
	<-p.Done()
}
