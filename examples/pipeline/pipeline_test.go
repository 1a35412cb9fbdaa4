package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/swansong-go/swansong/ctxshutdown"
	"go.uber.org/goleak"
)

// asProgram has the test binary be the program.
const asProgram = "PIPELINE_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	goleak.VerifyTestMain(m)
}

// pipe is the program in this process, with nobody to stop it.
func pipe(t *testing.T, args ...string) (code int, stderr string) {
	t.Helper()
	return pipeUntil(t.Context(), t.Context(), args...)
}

func pipeUntil(first, second context.Context, args ...string) (code int, stderr string) {
	var b bytes.Buffer
	code = run(first, second, append([]string{"-patience", "1m"}, args...), &b)
	return code, b.String()
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func orders(n int) string {
	var b strings.Builder
	for i := range n {
		if i%100 == 99 {
			fmt.Fprintf(&b, "bad line %d\r\n", i+1)
		} else {
			fmt.Fprintf(&b, "order-%d,%d\n", i+1, i*7)
		}
	}
	return b.String()
}

// processed is what the output should be.
func processed(input string, rounds int) string {
	p := &pipeline{rounds: rounds}
	var b strings.Builder
	for l := range lines(strings.NewReader(input), place{}, func() {}) {
		r, _ := p.process(context.Background(), l)
		b.WriteString(r.text)
	}
	return b.String()
}

func TestLines(t *testing.T) {
	long := strings.Repeat("x", 200_000)
	for _, test := range []struct {
		name, input string
		want        []line
	}{
		{"nothing", "", nil},
		{"one line", "a\n", []line{{"a", place{2, 1}, false}}},
		{"no newline at the end", "a\nb", []line{{"a", place{2, 1}, false}, {"b", place{3, 2}, false}}},
		{"CRLF", "a\r\nb\r\n", []line{{"a", place{3, 1}, false}, {"b", place{6, 2}, false}}},
		{"a CR that ends nothing", "a\rb\r\r\n", []line{{"a\rb\r", place{6, 1}, false}}},
		{"empty lines", "\n\r\na", []line{{"", place{1, 1}, false}, {"", place{3, 2}, false}, {"a", place{4, 3}, false}}},
		{"a very long line", long + "\na", []line{{long, place{200_001, 1}, false}, {"a", place{200_002, 2}, false}}},
		{"not UTF-8", "\xff\x00\n", []line{{"\xff\x00", place{3, 1}, false}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, whole := range []bool{true, false} {
				r := io.Reader(strings.NewReader(test.input))
				if !whole {
					r = iotest.OneByteReader(r)
				}
				var got []line
				ended := false
				for l, err := range lines(r, place{}, func() { ended = true }) {
					if err != nil {
						t.Fatal(err)
					}
					got = append(got, l)
				}
				if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(line{})); diff != "" {
					t.Errorf("lines (-want +got):\n%s", diff)
				}
				if !ended {
					t.Error("the end of the input went unnoticed")
				}
			}
		})
	}
}

func TestLines_GoOnFromAPlace(t *testing.T) {
	for l := range lines(strings.NewReader("b\n"), place{Offset: 10, Lines: 3}, func() {}) {
		if diff := cmp.Diff(place{12, 4}, l.end); diff != "" {
			t.Errorf("place (-want +got):\n%s", diff)
		}
	}
}

// A half line is not delivered from a file whose disk fails: when it works again, the line is read as a whole.
func TestLines_FailedRead(t *testing.T) {
	broken := errors.New("broken")
	var got []string
	for l, err := range lines(io.MultiReader(strings.NewReader("a\nhal"), iotest.ErrReader(broken)), place{}, func() { t.Error("ended") }) {
		got = append(got, fmt.Sprintf("%q %v", l.text, err))
	}
	if diff := cmp.Diff([]string{`"a" <nil>`, `"" broken`}, got); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

// stopAfter is a source that is stopped between two Reads.
type stopAfter struct {
	io.Reader
	stop func()
}

func (r stopAfter) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.stop()
	return n, err
}

// The lines in the buffer are delivered, and the half line after them is not taken for a line, nor lost.
func TestLines_HalfLineAtTheStop(t *testing.T) {
	s := ctxshutdown.New(t.Context())
	defer s.Shutdown()
	r := ctxshutdown.NewReader(s, stopAfter{strings.NewReader("a\nb\nhal"), func() { s.Shutdown() }})
	var got []line
	for l, err := range lines(r, place{}, func() { t.Error("taken for the end") }) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, l)
	}
	want := []line{{"a", place{2, 1}, false}, {"b", place{4, 2}, false}, {"hal", place{7, 3}, true}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(line{})); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

func TestProcess(t *testing.T) {
	for _, test := range []struct {
		line line
		want string
	}{
		{line{text: "a,7"}, "0,ok,a,7,ab8d44aade755a9f\n"},
		{line{text: "a,-7"}, "0,ok,a,-7,2e630a12f04ae46b\n"},
		{line{text: ""}, "0,error,\"not of the form id,cents\",\"\"\n"},
		{line{text: ",7"}, "0,error,\"not of the form id,cents\",\",7\"\n"},
		{line{text: "a\xff\"\x00"}, "0,error,\"not of the form id,cents\",\"a\\xff\\\"\\x00\"\n"},
		{line{text: "a,1.50"}, "0,error,\"cents: strconv.ParseInt: parsing \\\"1.50\\\": invalid syntax\",\"a,1.50\"\n"},
		{line{text: "a,1", cut: true}, "0,error,\"cut in two by the stop\",\"a,1\"\n"},
	} {
		p := &pipeline{rounds: 10}
		if r, ok := p.process(t.Context(), test.line); !ok || r.text != test.want {
			t.Errorf("%q: got %q, %v; want %q", test.line.text, r.text, ok, test.want)
		}
	}
}

// Force ends the work on a line that would take for ever.
func TestProcess_CutShort(t *testing.T) {
	p := &pipeline{rounds: math.MaxInt}
	s := ctxshutdown.New(t.Context())
	defer s.Guard().Release()
	time.AfterFunc(time.Millisecond, func() { s.Force(nil) })
	if r, ok := p.process(s.Work(), line{text: "a,1"}); ok {
		t.Errorf("got %q", r.text)
	}
}

func TestFromBeginningToEnd(t *testing.T) {
	for _, test := range []struct{ name, input, says string }{
		{"many lines", orders(5000), "done: 5000 lines, 50 of them rejected"},
		{"no newline at the end", "a,1\nb,2", "done: 2 lines, 0 of them rejected"},
		{"only bad lines", "\n\n", "done: 2 lines, 2 of them rejected"},
		{"nothing", "", "done: 0 lines"},
	} {
		t.Run(test.name, func(t *testing.T) {
			in := filepath.Join(t.TempDir(), "in")
			write(t, in, test.input)
			code, stderr := pipe(t, "-in", in, "-rounds", "10")
			if code != done || !strings.Contains(stderr, test.says) {
				t.Errorf("code %d, want 0 and %q:\n%s", code, test.says, stderr)
			}
			if diff := cmp.Diff(processed(test.input, 10), read(t, in+".out")); diff != "" {
				t.Errorf("output (-want +got):\n%s", diff)
			}
			if test.input == "" {
				return
			}
			if code, stderr := pipe(t, "-in", in); code != done || !strings.Contains(stderr, "nothing to do") {
				t.Errorf("again: code %d, want 0 and that there is nothing to do:\n%s", code, stderr)
			}
		})
	}
}

// What is appended to an input that is done is dealt with by the next run.
func TestMoreInput(t *testing.T) {
	in := filepath.Join(t.TempDir(), "in")
	all := orders(1000)
	for _, n := range []int{300, 301, 1000} {
		write(t, in, orders(n))
		if code, stderr := pipe(t, "-in", in, "-rounds", "1"); code != done {
			t.Fatalf("code %d:\n%s", code, stderr)
		}
	}
	if diff := cmp.Diff(processed(all, 1), read(t, in+".out")); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
}

// Told to stop before it begins, it begins nothing. It says so, and leaves files to go on from.
func TestStoppedBeforeTheStart(t *testing.T) {
	dir := t.TempDir()
	in := filepath.Join(dir, "in")
	write(t, in, orders(100))
	first, stop := context.WithCancelCause(t.Context())
	stop(errors.New("interrupt"))
	code, stderr := pipeUntil(first, t.Context(), "-in", in)
	if code != interrupted {
		t.Errorf("code %d, want 130:\n%s", code, stderr)
	}
	if code, stderr := pipe(t, "-in", in, "-rounds", "1"); code != done {
		t.Errorf("code %d, want 0:\n%s", code, stderr)
	}
	if diff := cmp.Diff(processed(orders(100), 1), read(t, in+".out")); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
}

// A stop while the stages are being started leaves none of them waiting for another.
func TestStoppedDuringTheStart(t *testing.T) {
	dir := t.TempDir()
	in := filepath.Join(dir, "in")
	write(t, in, orders(100))
	o, err := parseFlags([]string{"-in", in, "-rounds", "1"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 300 {
		o.out = filepath.Join(dir, fmt.Sprint("out", i%10))
		os.Remove(o.out)
		os.Remove(o.out + ".checkpoint")
		p, err := open(t.Context(), o, func(string, ...any) {})
		if err != nil {
			t.Fatal(err)
		}
		s := ctxshutdown.New(t.Context())
		go func() {
			for range i % 50 {
				runtime.Gosched()
			}
			s.Shutdown()
		}()
		p.start(s)
		if err := s.Completion().Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if read, written := p.read.Load(), p.written.Load(); read != written {
			t.Fatalf("%d lines read, %d written", read, written)
		}
		p.close()
	}
}

// Nobody else has what was read from a stream, so the stop waits for all of it, the half line included.
func TestStreamIsSeenThrough(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close() // not before: this stream does not end
	text := orders(300) + "order-301,10"
	if _, err := io.WriteString(w, text); err != nil { // as little as a pipe holds anywhere
		t.Fatal(err)
	}
	in, name := &input{r, "a pipe", true}, filepath.Join(t.TempDir(), "out")
	out, err := openOutput(name, in)
	if err != nil {
		t.Fatal(err)
	}
	p := newPipeline(in, out, options{workers: 2, rounds: 1000})
	defer p.close()
	s := ctxshutdown.New(t.Context())
	p.start(s)
	for p.read.Load() == 0 {
		runtime.Gosched()
	}
	s.Shutdown() // far more is in the buffer than can be under way
	if err := s.Completion().Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p.atEnd.Load() {
		t.Error("the stop passes for the end of the stream")
	}
	want := processed(orders(300), 1000) + "301,error,\"cut in two by the stop\",\"order-301,10\"\n"
	if diff := cmp.Diff(want, read(t, name)); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
}

// A failure to write ends everything, and the next run goes on from the last checkpoint.
func TestFailedWrite(t *testing.T) {
	in := filepath.Join(t.TempDir(), "in")
	write(t, in, orders(2000))
	var stderr bytes.Buffer
	o, err := parseFlags([]string{"-in", in, "-rounds", "1"}, &stderr)
	if err != nil {
		t.Fatal(err)
	}
	p, err := open(t.Context(), o, t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	p.out.file.Close()
	s := ctxshutdown.New(t.Context())
	p.start(s)
	if err := s.Completion().Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := p.failure.Load(); err == nil || !errors.Is(*err, os.ErrClosed) {
		t.Errorf("failure %v, want one that is os.ErrClosed", err)
	}
	p.in.Close()
	if code, stderr := pipe(t, "-in", in, "-rounds", "1"); code != done {
		t.Errorf("code %d, want 0:\n%s", code, stderr)
	}
	if diff := cmp.Diff(processed(orders(2000), 1), read(t, in+".out")); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
}

// What was written after the checkpoint is cut off, a torn line included, and done again.
func TestOutputBeyondItsCheckpoint(t *testing.T) {
	in := filepath.Join(t.TempDir(), "in")
	out := in + ".out"
	write(t, in, orders(100))
	if code, stderr := pipe(t, "-in", in, "-rounds", "1"); code != done {
		t.Fatalf("code %d:\n%s", code, stderr)
	}
	write(t, in, orders(200))
	write(t, out, read(t, out)+"101,ok,order-101,700,0011\n102,o")
	code, stderr := pipe(t, "-in", in, "-rounds", "1")
	if want := "31 bytes were written after the last checkpoint"; code != done || !strings.Contains(stderr, want) {
		t.Errorf("code %d, want 0 and that %s:\n%s", code, want, stderr)
	}
	if diff := cmp.Diff(processed(orders(200), 1), read(t, out)); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
}

// Without flags, it makes itself something to do, and does it once.
func TestDemo(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"XDG_CACHE_HOME", "HOME", "LocalAppData"} { // what UserCacheDir looks at
		t.Setenv(name, dir)
	}
	for _, want := range []string{"done: 200000 lines, 200 of them rejected", "nothing to do"} {
		if code, stderr := pipe(t, "-rounds", "0"); code != done || !strings.Contains(stderr, want) {
			t.Errorf("code %d, want 0 and %q:\n%s", code, want, stderr)
		}
	}
}

// Whatever is wrong with the files, the error names the one at fault and what to do, and nothing is overwritten.
func TestFilesThatDoNotFit(t *testing.T) {
	for _, test := range []struct {
		name  string
		spoil func(t *testing.T, in, out, checkpoint string)
		want  []string // IN, OUT and CHECKPOINT stand for the names
	}{
		{"a torn checkpoint", func(t *testing.T, in, out, checkpoint string) {
			write(t, checkpoint, read(t, checkpoint)[:20])
		}, []string{"CHECKPOINT is not a checkpoint (unexpected EOF)", "to begin anew, remove OUT and CHECKPOINT"}},
		{"an empty checkpoint", func(t *testing.T, in, out, checkpoint string) {
			write(t, checkpoint, "")
		}, []string{"CHECKPOINT is not a checkpoint (EOF)", "remove"}},
		{"garbage for a checkpoint", func(t *testing.T, in, out, checkpoint string) {
			write(t, checkpoint, "\x00\x00\x00\x00")
		}, []string{"CHECKPOINT is not a checkpoint (", "remove"}},
		{"a checkpoint of something else", func(t *testing.T, in, out, checkpoint string) {
			write(t, checkpoint, `{"offset": 1, "lines": 1, "length": 20, "head": "x", "tail": "y"}`)
		}, []string{"CHECKPOINT is not a checkpoint (", "tail", "remove"}},
		{"two checkpoints in one", func(t *testing.T, in, out, checkpoint string) {
			write(t, checkpoint, read(t, checkpoint)+read(t, checkpoint))
		}, []string{"CHECKPOINT is not a checkpoint (something follows it)", "remove"}},
		{"null", func(t *testing.T, in, out, checkpoint string) {
			write(t, checkpoint, "null")
		}, []string{"CHECKPOINT is not a checkpoint (its numbers cannot be)", "remove"}},
		{"numbers that cannot be", func(t *testing.T, in, out, checkpoint string) {
			write(t, checkpoint, `{"offset": 10, "lines": 20, "rejected": 0, "length": 200, "head": "x"}`)
		}, []string{"CHECKPOINT is not a checkpoint (its numbers cannot be)", "remove"}},
		{"no checkpoint", func(t *testing.T, in, out, checkpoint string) {
			os.Remove(checkpoint)
		}, []string{"OUT is not empty and has no CHECKPOINT", "remove it, or choose another -out"}},
		{"no output", func(t *testing.T, in, out, checkpoint string) {
			os.Remove(out)
		}, []string{"OUT has only 0 of the", "CHECKPOINT knows of", "remove OUT and CHECKPOINT"}},
		{"an output that is too short", func(t *testing.T, in, out, checkpoint string) {
			write(t, out, "1,ok\n")
		}, []string{"OUT has only 5 of the", "remove"}},
		{"an input that has shrunk", func(t *testing.T, in, out, checkpoint string) {
			write(t, in, "order-1,0\n")
		}, []string{"IN is not the input that CHECKPOINT was saved for: it has 10 bytes, and ", " were dealt with", "bring that one back, or"}},
		{"another input", func(t *testing.T, in, out, checkpoint string) {
			write(t, in, "x"+read(t, in))
		}, []string{"IN is not the input that CHECKPOINT was saved for: it begins differently", "bring that one back, or"}},
		{"a last line that has grown", func(t *testing.T, in, out, checkpoint string) {
			write(t, in, read(t, in)+"0\n")
		}, []string{"line 11, the last one, has grown since it was dealt with", "bring that one back, or"}},
		{"no input", func(t *testing.T, in, out, checkpoint string) {
			os.Remove(in)
		}, []string{"IN"}},
		{"a directory for an input", func(t *testing.T, in, out, checkpoint string) {
			os.Remove(in)
			os.Mkdir(in, 0o777)
		}, []string{"IN is a directory"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			in := filepath.Join(t.TempDir(), "in")
			out, checkpoint := in+".out", in+".out.checkpoint"
			write(t, in, orders(10)+"last,1")
			if code, stderr := pipe(t, "-in", in, "-rounds", "1"); code != done {
				t.Fatalf("code %d:\n%s", code, stderr)
			}
			test.spoil(t, in, out, checkpoint)
			before, _ := os.ReadFile(out)
			code, stderr := pipe(t, "-in", in)
			if code != failed {
				t.Errorf("code %d, want 1", code)
			}
			for _, want := range test.want {
				want = strings.NewReplacer("CHECKPOINT", checkpoint, "OUT", out, "IN", in).Replace(want)
				if !strings.Contains(stderr, want) {
					t.Errorf("it does not say %q, but:\n%s", want, stderr)
				}
			}
			if after, _ := os.ReadFile(out); !bytes.Equal(before, after) {
				t.Errorf("the output was changed from %q to %q", before, after)
			}
		})
	}
}

func TestBadFlags(t *testing.T) {
	for _, test := range []struct {
		args string
		code int
		want string
	}{
		{"-workers 0", misused, "pipeline: -workers 0: at least 1 is needed (-h for help)\n"},
		{"-rounds -1", misused, "pipeline: -rounds -1: must not be negative (-h for help)\n"},
		{"-in -", misused, "pipeline: -in - needs an -out (-h for help)\n"},
		{"orders.csv", misused, `pipeline: unexpected argument "orders.csv": the input is given with -in (-h for help)` + "\n"},
		{"-workers many", misused, "invalid value \"many\" for flag -workers: parse error\nUsage of pipeline:\n"},
		{"-nonsense", misused, "flag provided but not defined: -nonsense\nUsage of pipeline:\n"},
		{"-h", done, "Usage of pipeline:\n"},
	} {
		code, stderr := pipe(t, strings.Fields(test.args)...)
		if code != test.code || !strings.HasPrefix(stderr, test.want) {
			t.Errorf("%s: code %d, want %d and %q:\n%s", test.args, code, test.code, test.want, stderr)
		}
	}
}
