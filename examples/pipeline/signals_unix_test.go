//go:build unix

package main

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A process is a running instance of the program.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	stderr *bufio.Reader
	read   strings.Builder // the part of stderr that the test has read
}

// start starts the program.
func start(t *testing.T, stdin *os.File, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(os.Args[0], args...)}
	p.cmd.Env = append(os.Environ(), programVar+"=1")
	if stdin != nil { // the check is needed because a nil *os.File would be a non-nil io.Reader
		p.cmd.Stdin = stdin
	}
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.stderr = bufio.NewReader(stderr)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.cmd.Process.Kill() }) // if the test fails while the process still runs
	return p
}

// await waits until the program has written a line that matches pattern, or has ended.
func (p *process) await(pattern string) {
	p.t.Helper()
	for expr := regexp.MustCompile(pattern); ; {
		line, err := p.stderr.ReadString('\n')
		p.read.WriteString(line)
		if err != nil || expr.MatchString(line) {
			return
		}
	}
}

// signal sends a signal. It ignores errors, because the process may have ended already.
func (p *process) signal(sig os.Signal) { p.cmd.Process.Signal(sig) }

// wait waits for the end of the process. If a signal has killed the process, code is -1 and sig is
// that signal.
func (p *process) wait() (code int, sig syscall.Signal, stderr string) {
	rest, err := io.ReadAll(p.stderr)
	if err != nil {
		p.t.Fatal(err)
	}
	p.read.Write(rest)
	p.cmd.Wait()
	status := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		sig = status.Signal()
	}
	return p.cmd.ProcessState.ExitCode(), sig, p.read.String()
}

// startLine matches the line that the program prints when it starts to process lines.
const startLine = `: (starting|resuming) at line \d+\n`

// pause sleeps for a random time, so that the next signal hits the program at a random point.
func pause(rng *rand.Rand, limit time.Duration) {
	time.Sleep(time.Duration(rng.Int64N(int64(limit))))
}

// usuallyAwait calls await in three of four cases. In the fourth case the next signal may hit the
// program before it has reached main.
func usuallyAwait(rng *rand.Rand, p *process, pattern string) {
	if rng.IntN(4) > 0 {
		p.await(pattern)
	}
}

func interruptOnce(rng *rand.Rand, p *process) {
	usuallyAwait(rng, p, startLine)
	pause(rng, 10*time.Millisecond)
	p.signal(os.Interrupt)
}

func interruptTwice(rng *rand.Rand, p *process) {
	interruptOnce(rng, p)
	usuallyAwait(rng, p, "draining")
	pause(rng, 500*time.Microsecond)
	p.signal(os.Interrupt)
}

func terminate(rng *rand.Rand, p *process) {
	usuallyAwait(rng, p, startLine)
	pause(rng, 10*time.Millisecond)
	p.signal(syscall.SIGTERM)
}

func kill(rng *rand.Rand, p *process) {
	usuallyAwait(rng, p, startLine)
	pause(rng, 10*time.Millisecond)
	p.signal(os.Kill)
}

func killDuringDrain(rng *rand.Rand, p *process) {
	interruptOnce(rng, p)
	pause(rng, 5*time.Millisecond)
	p.signal(os.Kill)
}

// Signals hit the program at random points, and it is run again until it is done. In the end the
// output contains the result of every line of the input exactly once.
func TestSignals_AtRandomTimesLoseAndRepeatNoResult(t *testing.T) {
	for _, test := range []struct {
		name    string
		times   int
		attacks []func(*rand.Rand, *process)
	}{
		{"interrupted", 200, []func(*rand.Rand, *process){interruptOnce}},
		{"interrupted twice", 60, []func(*rand.Rand, *process){interruptTwice}},
		{"any signal", 60, []func(*rand.Rand, *process){interruptOnce, interruptTwice, terminate, kill, kill, killDuringDrain}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			seed := uint64(time.Now().UnixNano())
			if given, err := strconv.ParseUint(os.Getenv("PIPELINE_SEED"), 10, 64); err == nil {
				seed = given
			}
			t.Logf("PIPELINE_SEED=%d", seed)
			attackRepeatedly(t, rand.New(rand.NewPCG(seed, 0)), test.times, test.attacks)
		})
	}
}

const (
	attackLines  = 6000
	attackRounds = 200
)

// attackRepeatedly runs the program again and again, and calls one of the functions attacks for
// each run, which sends it a signal. When the given number of signals has hit a running program, a
// last run follows without an attack. Whenever the program has processed the whole input, the next
// run starts without output and checkpoint. The state of the files is checked after each run.
func attackRepeatedly(t *testing.T, rng *rand.Rand, times int, attacks []func(*rand.Rand, *process)) {
	dir := t.TempDir()
	in := filepath.Join(dir, "orders.csv")
	out, checkpointFile := in+".out", in+".out.checkpoint"
	write(t, in, orders(attackLines))
	want := wantOutput(orders(attackLines), attackRounds)

	outcomes := map[string]int{}
	for count := 0; count <= times; { // the last run receives no signal
		p := start(t, nil, "-in", in, "-workers", strconv.Itoa(1+rng.IntN(4)), "-rounds", strconv.Itoa(attackRounds),
			"-save", "3ms", "-drain-timeout", "1m")
		if count < times {
			attacks[rng.IntN(len(attacks))](rng, p)
		}
		code, sig, stderr := p.wait()
		outcome := fmt.Sprintf("exit code %d", code)
		switch {
		case code == exitDone:
			if diff := diffLines(want, read(t, out)); diff != "" {
				t.Fatalf("after %d interruptions: %s\n%s", count, diff, stderr)
			}
			if count == times {
				count++
				break
			}
			os.Remove(out)
			os.Remove(checkpointFile)
		case code == exitInterrupted && strings.Contains(stderr, "cut short"):
			outcome += ", cut short"
			count++
		case code == exitInterrupted && strings.Contains(stderr, "before anything was read"):
			outcome += ", before the start"
			count++
		case code == exitInterrupted:
			count++
			checkDrained(t, out, checkpointFile, stderr)
		case slices.Contains([]syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL}, sig):
			outcome = "ended by " + sig.String()
			count++
		default:
			t.Fatalf("%s %v:\n%s", outcome, sig, stderr)
		}
		outcomes[outcome]++
		if c, found, err := loadCheckpoint(checkpointFile); err != nil {
			t.Fatalf("after %d interruptions: %v\n%s", count, err, stderr)
		} else if !found {
			continue // the program was killed before it had saved a checkpoint
		} else if text := read(t, out); int64(len(text)) < c.Length || text[:c.Length] != want[:c.Length] {
			t.Fatalf("after %d interruptions, the output differs from what the checkpoint records: %s\n%s", count,
				diffLines(want[:c.Length], text[:min(int(c.Length), len(text))]), stderr)
		}
	}
	t.Log(outcomes)
}

var totals = regexp.MustCompile(`stopped: lines read: (\d+), written: (\d+)`)

// checkDrained checks the result of a graceful stop: every line that was read is written, and the
// checkpoint is up to date, so that the next run repeats no work.
func checkDrained(t *testing.T, out, checkpointFile, stderr string) {
	t.Helper()
	m := totals.FindStringSubmatch(stderr)
	if m == nil || m[1] != m[2] {
		t.Fatalf("not all lines that were read are written:\n%s", stderr)
	}
	c, found, err := loadCheckpoint(checkpointFile)
	text := read(t, out)
	if err != nil || !found || strconv.FormatInt(c.Lines, 10) != m[2] || c.Length != int64(len(text)) {
		t.Fatalf("the checkpoint is %+v (error %v) for an output of %d bytes: the next run would repeat work\n%s", c, err, len(text), stderr)
	}
}

// diffLines returns "" if got equals want. Otherwise it describes which lines are missing,
// duplicate or unexpected.
func diffLines(want, got string) string {
	if got == want {
		return ""
	}
	counts := map[string]int{}
	for l := range strings.Lines(got) {
		counts[l]++
	}
	var missing, duplicate []string
	for l := range strings.Lines(want) {
		number, _, _ := strings.Cut(l, ",")
		switch n := counts[l]; {
		case n == 0:
			missing = append(missing, number)
		case n > 1:
			duplicate = append(duplicate, number)
		}
		delete(counts, l)
	}
	first := func(lines []string) string {
		return fmt.Sprintf("%d %v", len(lines), lines[:min(len(lines), 5)])
	}
	unexpected := ""
	for l := range counts {
		unexpected = cmp.Or(unexpected, l)
	}
	return fmt.Sprintf("missing: %s, duplicate: %s, unexpected: %d %q (at most 5 of each)", first(missing), first(duplicate), len(counts), unexpected)
}

// The tests above rely on diffLines to find every missing and duplicate line.
func TestDiffLines_FindsMissingAndDuplicateLines(t *testing.T) {
	for _, test := range []struct{ got, want string }{
		{"1,a\n2,b\n3,c\n", ""},
		{"1,a\n3,c\n", `missing: 1 [2], duplicate: 0 [], unexpected: 0 "" (at most 5 of each)`},
		{"1,a\n2,b\n2,b\n3,c\n", `missing: 0 [], duplicate: 1 [2], unexpected: 0 "" (at most 5 of each)`},
		{"1,a\n2,b\n3,", `missing: 1 [3], duplicate: 0 [], unexpected: 1 "3," (at most 5 of each)`},
		{"2,b\n1,a\n3,c\n", `missing: 0 [], duplicate: 0 [], unexpected: 0 "" (at most 5 of each)`},
	} {
		if got := diffLines("1,a\n2,b\n3,c\n", test.got); got != test.want {
			t.Errorf("%q: %s, want %s", test.got, got, test.want)
		}
	}
}

// The flag -rounds is so large that no line is ever processed completely. The second ^C ends the
// program nevertheless, and the program's message names the stage that was still at work.
func TestSignals_SecondInterruptCutsDrainShort(t *testing.T) {
	in := filepath.Join(t.TempDir(), "orders.csv")
	write(t, in, orders(500))
	want := regexp.MustCompile(`cut short: ctxshutdown: Wait ended \(a second signal: interrupt\) with work still running: \d guards?: work ×[12], `)
	for ticks := 0; ; ticks++ {
		p := start(t, nil, "-in", in, "-workers", "2", "-rounds", strconv.Itoa(math.MaxInt), "-drain-timeout", "1h")
		p.await(startLine)
		for range ticks {
			p.await("per second")
		}
		p.signal(os.Interrupt)
		p.await("draining")
		p.signal(os.Interrupt)
		code, _, stderr := p.wait()
		if code != exitInterrupted {
			t.Fatalf("code %d, want 130:\n%s", code, stderr)
		}
		if want.MatchString(stderr) {
			break
		}
		t.Logf("no line was being processed yet:\n%s", stderr) // wait longer in the next attempt
	}
	if code, stderr := runProgram(t, "-in", in, "-rounds", "1"); code != exitDone {
		t.Fatalf("code %d, want 0:\n%s", code, stderr)
	}
	if diff := diffLines(wantOutput(orders(500), 1), read(t, in+".out")); diff != "" {
		t.Error(diff)
	}
}

// A stream without data does not delay the stop.
func TestSignals_ProgramStopsWhileInputStreamIsIdle(t *testing.T) {
	dir := t.TempDir()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	p := start(t, r, "-in", "-", "-out", filepath.Join(dir, "out"))
	// The program prints its rate, in lines per second, while it waits for the first byte of the
	// input.
	p.await("per second")
	p.signal(os.Interrupt)
	if code, _, stderr := p.wait(); code != exitInterrupted || !strings.Contains(stderr, "stopped: lines read: 0, written: 0") {
		t.Errorf("code %d, want 130 and that no line was read:\n%s", code, stderr)
	}
}

// At the end of a stream, the last line is complete even without a line end.
func TestRun_ProcessesLastLineOfStreamWithoutLineEnd(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	io.WriteString(w, "a,1\nb,2")
	w.Close()
	out := filepath.Join(t.TempDir(), "out")
	p := start(t, r, "-in", "-", "-out", out, "-rounds", "1")
	if code, _, stderr := p.wait(); code != exitDone || !strings.Contains(stderr, "done, lines: 2, rejected: 0") {
		t.Errorf("code %d, want 0:\n%s", code, stderr)
	}
	if diff := diffLines(wantOutput("a,1\nb,2", 1), read(t, out)); diff != "" {
		t.Error(diff)
	}
	// The program writes no checkpoint for a stream, so a second run cannot continue the first one.
	// It must fail instead of appending to the output of the first one.
	code, stderr := runProgram(t, "-in", "-", "-out", out)
	if code != exitFailed || !strings.Contains(stderr, "is not empty") {
		t.Errorf("second run: code %d, want 1:\n%s", code, stderr)
	}
}
