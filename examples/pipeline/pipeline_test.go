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

// programVar names an environment variable that makes the test binary run the program.
const programVar = "PIPELINE_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(programVar) != "" {
		main()
	}
	goleak.VerifyTestMain(m)
}

// runProgram runs the program in this process until it ends by itself. It returns the exit code and
// what was written to stderr.
func runProgram(t *testing.T, args ...string) (code int, stderr string) {
	t.Helper()
	return runProgramUntil(t.Context(), t.Context(), args...)
}

// runProgramUntil does what runProgram does. The end of the context first stops the program, and
// the end of second cuts its drain short.
func runProgramUntil(first, second context.Context, args ...string) (code int, stderr string) {
	var b bytes.Buffer
	code = run(first, second, append([]string{"-drain-timeout", "1m"}, args...), &b)
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

// orders returns n lines of input. Every hundredth line is not a valid order.
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

// wantOutput returns the output that is correct for the input.
func wantOutput(input string, rounds int) string {
	p := &pipeline{rounds: rounds}
	var b strings.Builder
	for l := range lines(strings.NewReader(input), position{}, func() {}) {
		r, _ := p.process(context.Background(), l)
		b.WriteString(r.text)
	}
	return b.String()
}

func TestLines_ReturnsLinesWithPositions(t *testing.T) {
	long := strings.Repeat("x", 200_000)
	for _, test := range []struct {
		name, input string
		want        []line
	}{
		{"empty", "", nil},
		{"one line", "a\n", []line{{"a", position{2, 1}, false}}},
		{"no newline at the end", "a\nb", []line{{"a", position{2, 1}, false}, {"b", position{3, 2}, false}}},
		{"CRLF", "a\r\nb\r\n", []line{{"a", position{3, 1}, false}, {"b", position{6, 2}, false}}},
		{"CR within a line", "a\rb\r\r\n", []line{{"a\rb\r", position{6, 1}, false}}},
		{"empty lines", "\n\r\na", []line{{"", position{1, 1}, false}, {"", position{3, 2}, false}, {"a", position{4, 3}, false}}},
		{"a very long line", long + "\na", []line{{long, position{200_001, 1}, false}, {"a", position{200_002, 2}, false}}},
		{"not UTF-8", "\xff\x00\n", []line{{"\xff\x00", position{3, 1}, false}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, oneByte := range []bool{false, true} {
				r := io.Reader(strings.NewReader(test.input))
				if oneByte {
					r = iotest.OneByteReader(r)
				}
				var got []line
				ended := false
				for l, err := range lines(r, position{}, func() { ended = true }) {
					if err != nil {
						t.Fatal(err)
					}
					got = append(got, l)
				}
				if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(line{})); diff != "" {
					t.Errorf("lines (-want +got):\n%s", diff)
				}
				if !ended {
					t.Error("ended was not called at the end of the input")
				}
			}
		})
	}
}

func TestLines_BeginsAtGivenPosition(t *testing.T) {
	for l := range lines(strings.NewReader("b\n"), position{Offset: 10, Lines: 3}, func() {}) {
		if diff := cmp.Diff(position{12, 4}, l.end); diff != "" {
			t.Errorf("position (-want +got):\n%s", diff)
		}
	}
}

// If reading a file fails in the middle of a line, that part is not returned. The next run reads
// the whole line.
func TestLines_ReturnsReadError(t *testing.T) {
	broken := errors.New("broken")
	var got []string
	for l, err := range lines(io.MultiReader(strings.NewReader("a\nhal"), iotest.ErrReader(broken)), position{}, func() { t.Error("ended was called") }) {
		got = append(got, fmt.Sprintf("%q %v", l.text, err))
	}
	if diff := cmp.Diff([]string{`"a" <nil>`, `"" broken`}, got); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

// A stopAfter is a reader that calls stop after each Read.
type stopAfter struct {
	io.Reader
	stop func()
}

func (r stopAfter) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.stop()
	return n, err
}

// When its input is stopped, lines returns the complete lines in its buffer. It returns the rest of
// the buffer as a partial line.
func TestLines_AtStopReturnsBufferedLinesAndPartialLine(t *testing.T) {
	s := ctxshutdown.New(t.Context())
	defer s.Shutdown()
	r := ctxshutdown.NewReader(s, stopAfter{strings.NewReader("a\nb\nhal"), func() { s.Shutdown() }})
	var got []line
	for l, err := range lines(r, position{}, func() { t.Error("ended was called, but the input was stopped") }) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, l)
	}
	want := []line{{"a", position{2, 1}, false}, {"b", position{4, 2}, false}, {"hal", position{7, 3}, true}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(line{})); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

func TestProcess_ReturnsResultOrErrorOfLine(t *testing.T) {
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
		{line{text: "a,1", partial: true}, "0,error,\"incomplete: the program was stopped before it had read the whole line\",\"a,1\"\n"},
	} {
		p := &pipeline{rounds: 10}
		if r, ok := p.process(t.Context(), test.line); !ok || r.text != test.want {
			t.Errorf("%q: got %q, %v; want %q", test.line.text, r.text, ok, test.want)
		}
	}
}

// Force ends the processing of a line that would otherwise take forever.
func TestProcess_ForceEndsEndlessProcessingOfLine(t *testing.T) {
	p := &pipeline{rounds: math.MaxInt}
	s := ctxshutdown.New(t.Context())
	defer s.Guard().Release()
	time.AfterFunc(time.Millisecond, func() { s.Force(nil) })
	if r, ok := p.process(s.Work(), line{text: "a,1"}); ok {
		t.Errorf("got %q", r.text)
	}
}

func TestRun_ProcessesWholeInput(t *testing.T) {
	for _, test := range []struct{ name, input, want string }{
		{"many lines", orders(5000), "done, lines: 5000, rejected: 50"},
		{"no newline at the end", "a,1\nb,2", "done, lines: 2, rejected: 0"},
		{"only bad lines", "\n\n", "done, lines: 2, rejected: 2"},
		{"empty input", "", "done, lines: 0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			in := filepath.Join(t.TempDir(), "in")
			write(t, in, test.input)
			code, stderr := runProgram(t, "-in", in, "-rounds", "10")
			if code != exitDone || !strings.Contains(stderr, test.want) {
				t.Errorf("code %d, want 0 and %q:\n%s", code, test.want, stderr)
			}
			if diff := cmp.Diff(wantOutput(test.input, 10), read(t, in+".out")); diff != "" {
				t.Errorf("output (-want +got):\n%s", diff)
			}
			if test.input == "" {
				return
			}
			if code, stderr := runProgram(t, "-in", in); code != exitDone || !strings.Contains(stderr, "nothing to do") {
				t.Errorf("second run: code %d, want 0 and the message 'nothing to do':\n%s", code, stderr)
			}
		})
	}
}

// Lines that are appended to an input after it was processed completely are processed by the next
// run.
func TestRun_ProcessesLinesAppendedToInput(t *testing.T) {
	in := filepath.Join(t.TempDir(), "in")
	all := orders(1000)
	for _, n := range []int{300, 301, 1000} {
		write(t, in, orders(n))
		if code, stderr := runProgram(t, "-in", in, "-rounds", "1"); code != exitDone {
			t.Fatalf("code %d:\n%s", code, stderr)
		}
	}
	if diff := cmp.Diff(wantOutput(all, 1), read(t, in+".out")); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
}

// If a program is stopped before it begins to work, it processes no line. The next run accepts the
// files that the program leaves.
func TestRun_ProcessesNoLineIfStoppedBeforeStart(t *testing.T) {
	dir := t.TempDir()
	in := filepath.Join(dir, "in")
	write(t, in, orders(100))
	first, stop := context.WithCancelCause(t.Context())
	stop(errors.New("interrupt"))
	code, stderr := runProgramUntil(first, t.Context(), "-in", in)
	if code != exitInterrupted {
		t.Errorf("code %d, want 130:\n%s", code, stderr)
	}
	if code, stderr := runProgram(t, "-in", in, "-rounds", "1"); code != exitDone {
		t.Errorf("code %d, want 0:\n%s", code, stderr)
	}
	if diff := cmp.Diff(wantOutput(orders(100), 1), read(t, in+".out")); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
}

// If the scope is stopped while the stages are being started, no stage waits forever for another
// one.
func TestStart_StagesEndIfStoppedDuringStart(t *testing.T) {
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
			t.Fatalf("lines read: %d, written: %d", read, written)
		}
		p.close()
	}
}

// What was read from a stream cannot be read again. So the drain waits for all of it, including the
// partial line at the end.
func TestStart_DrainProcessesAllLinesReadFromStream(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close() // close w only at the end of the test, because closing ends the stream
	text := orders(300) + "order-301,10"
	if _, err := io.WriteString(w, text); err != nil { // text fits into the buffer of a pipe on every system, so the write does not block
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
	// The buffer of the pipe contains far more lines than the stages can have in progress, so the
	// stop comes while most of them are unread.
	s.Shutdown()
	if err := s.Completion().Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p.atEnd.Load() {
		t.Error("the stop was mistaken for the end of the stream")
	}
	want := wantOutput(orders(300), 1000) + "301,error,\"incomplete: the program was stopped before it had read the whole line\",\"order-301,10\"\n"
	if diff := cmp.Diff(want, read(t, name)); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
}

// An error in writing the output stops all stages. The next run continues at the last checkpoint.
func TestStart_WriteErrorStopsAllStages(t *testing.T) {
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
		t.Errorf("failure %v, want os.ErrClosed", err)
	}
	p.in.Close()
	if code, stderr := runProgram(t, "-in", in, "-rounds", "1"); code != exitDone {
		t.Errorf("code %d, want 0:\n%s", code, stderr)
	}
	if diff := cmp.Diff(wantOutput(orders(2000), 1), read(t, in+".out")); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
}

// What was written after the checkpoint is removed, including an incomplete line, and written
// again.
func TestRun_AfterCrashRewritesOutputThatFollowsLastCheckpoint(t *testing.T) {
	in := filepath.Join(t.TempDir(), "in")
	out := in + ".out"
	write(t, in, orders(100))
	if code, stderr := runProgram(t, "-in", in, "-rounds", "1"); code != exitDone {
		t.Fatalf("code %d:\n%s", code, stderr)
	}
	write(t, in, orders(200))
	write(t, out, read(t, out)+"101,ok,order-101,700,0011\n102,o")
	code, stderr := runProgram(t, "-in", in, "-rounds", "1")
	if want := "bytes written after the last checkpoint: 31"; code != exitDone || !strings.Contains(stderr, want) {
		t.Errorf("code %d, want 0 and %q:\n%s", code, want, stderr)
	}
	if diff := cmp.Diff(wantOutput(orders(200), 1), read(t, out)); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
}

// Without flags, the program creates a demo input and processes it once.
func TestRun_ProcessesDemoInputWithoutFlags(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"XDG_CACHE_HOME", "HOME", "LocalAppData"} { // os.UserCacheDir reads these variables
		t.Setenv(name, dir)
	}
	for _, want := range []string{"done, lines: 200000, rejected: 200", "nothing to do"} {
		if code, stderr := runProgram(t, "-rounds", "0"); code != exitDone || !strings.Contains(stderr, want) {
			t.Errorf("code %d, want 0 and %q:\n%s", code, want, stderr)
		}
	}
}

// If a file is invalid, the error names that file and says what to do, and the output is not
// changed.
func TestRun_RefusesInvalidFiles(t *testing.T) {
	for _, test := range []struct {
		name   string
		modify func(t *testing.T, in, out, checkpoint string)
		want   []string // IN, OUT and CHECKPOINT stand for the names of the files
	}{
		{"truncated checkpoint", func(t *testing.T, in, out, checkpoint string) {
			write(t, checkpoint, read(t, checkpoint)[:20])
		}, []string{"CHECKPOINT is not a valid checkpoint: unexpected EOF", "remove OUT and CHECKPOINT to start over"}},
		{"empty checkpoint", func(t *testing.T, in, out, checkpoint string) {
			write(t, checkpoint, "")
		}, []string{"CHECKPOINT is not a valid checkpoint: EOF", "remove"}},
		{"binary checkpoint", func(t *testing.T, in, out, checkpoint string) {
			write(t, checkpoint, "\x00\x00\x00\x00")
		}, []string{"CHECKPOINT is not a valid checkpoint: ", "remove"}},
		{"unknown field in the checkpoint", func(t *testing.T, in, out, checkpoint string) {
			write(t, checkpoint, `{"offset": 1, "lines": 1, "length": 20, "head": "x", "tail": "y"}`)
		}, []string{"CHECKPOINT is not a valid checkpoint: ", "tail", "remove"}},
		{"two checkpoints in one file", func(t *testing.T, in, out, checkpoint string) {
			write(t, checkpoint, read(t, checkpoint)+read(t, checkpoint))
		}, []string{"CHECKPOINT is not a valid checkpoint: unexpected data after the JSON object", "remove"}},
		{"null checkpoint", func(t *testing.T, in, out, checkpoint string) {
			write(t, checkpoint, "null")
		}, []string{"CHECKPOINT is not a valid checkpoint: the numbers in it contradict each other", "remove"}},
		{"inconsistent numbers", func(t *testing.T, in, out, checkpoint string) {
			write(t, checkpoint, `{"offset": 10, "lines": 20, "rejected": 0, "length": 200, "head": "x"}`)
		}, []string{"CHECKPOINT is not a valid checkpoint: the numbers in it contradict each other", "remove"}},
		{"missing checkpoint", func(t *testing.T, in, out, checkpoint string) {
			os.Remove(checkpoint)
		}, []string{"OUT is not empty and has no checkpoint CHECKPOINT", "remove it or choose another -out"}},
		{"missing output", func(t *testing.T, in, out, checkpoint string) {
			os.Remove(out)
		}, []string{"OUT has 0 bytes, but its checkpoint CHECKPOINT records ", "remove OUT and CHECKPOINT"}},
		{"output too short", func(t *testing.T, in, out, checkpoint string) {
			write(t, out, "1,ok\n")
		}, []string{"OUT has 5 bytes", "remove"}},
		{"input too short", func(t *testing.T, in, out, checkpoint string) {
			write(t, in, "order-1,0\n")
		}, []string{"IN is not the input that the checkpoint CHECKPOINT was saved for: the input has 10 bytes, but ", " bytes have been processed", "restore that input, or"}},
		{"different input", func(t *testing.T, in, out, checkpoint string) {
			write(t, in, "x"+read(t, in))
		}, []string{"IN is not the input that the checkpoint CHECKPOINT was saved for: the beginning of the input differs", "restore that input, or"}},
		{"extended last line", func(t *testing.T, in, out, checkpoint string) {
			write(t, in, read(t, in)+"0\n")
		}, []string{"line 11, the last one that was processed, has been extended since", "restore that input, or"}},
		{"missing input", func(t *testing.T, in, out, checkpoint string) {
			os.Remove(in)
		}, []string{"IN"}},
		{"input is a directory", func(t *testing.T, in, out, checkpoint string) {
			os.Remove(in)
			os.Mkdir(in, 0o777)
		}, []string{"IN is a directory"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			in := filepath.Join(t.TempDir(), "in")
			out, checkpoint := in+".out", in+".out.checkpoint"
			write(t, in, orders(10)+"last,1")
			if code, stderr := runProgram(t, "-in", in, "-rounds", "1"); code != exitDone {
				t.Fatalf("code %d:\n%s", code, stderr)
			}
			test.modify(t, in, out, checkpoint)
			before, _ := os.ReadFile(out)
			code, stderr := runProgram(t, "-in", in)
			if code != exitFailed {
				t.Errorf("code %d, want 1", code)
			}
			for _, want := range test.want {
				want = strings.NewReplacer("CHECKPOINT", checkpoint, "OUT", out, "IN", in).Replace(want)
				if !strings.Contains(stderr, want) {
					t.Errorf("stderr does not contain %q:\n%s", want, stderr)
				}
			}
			if after, _ := os.ReadFile(out); !bytes.Equal(before, after) {
				t.Errorf("the output was changed from %q to %q", before, after)
			}
		})
	}
}

func TestRun_RefusesInvalidFlags(t *testing.T) {
	for _, test := range []struct {
		args string
		code int
		want string
	}{
		{"-workers 0", exitUsage, "pipeline: -workers 0: must be at least 1 (-h for help)\n"},
		{"-rounds -1", exitUsage, "pipeline: -rounds -1: must not be negative (-h for help)\n"},
		{"-in -", exitUsage, "pipeline: -in - requires -out (-h for help)\n"},
		{"orders.csv", exitUsage, `pipeline: unexpected argument "orders.csv": use -in for the input (-h for help)` + "\n"},
		{"-workers many", exitUsage, "invalid value \"many\" for flag -workers: parse error\nUsage of pipeline:\n"},
		{"-nonsense", exitUsage, "flag provided but not defined: -nonsense\nUsage of pipeline:\n"},
		{"-h", exitDone, "Usage of pipeline:\n"},
	} {
		code, stderr := runProgram(t, strings.Fields(test.args)...)
		if code != test.code || !strings.HasPrefix(stderr, test.want) {
			t.Errorf("%s: code %d, want %d and %q:\n%s", test.args, code, test.code, test.want, stderr)
		}
	}
}
