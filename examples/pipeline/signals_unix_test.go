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

// A process is the program in a process of its own.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	stderr *bufio.Reader
	said   strings.Builder
}

func start(t *testing.T, stdin *os.File, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(os.Args[0], args...)}
	p.cmd.Env = append(os.Environ(), asProgram+"=1")
	if stdin != nil { // else an *os.File that is nil would be an io.Reader that is not
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
	t.Cleanup(func() { p.cmd.Process.Kill() }) // for a test that has failed half-way
	return p
}

// await waits until the program has said something, or has ended.
func (p *process) await(what string) {
	p.t.Helper()
	for expr := regexp.MustCompile(what); ; {
		line, err := p.stderr.ReadString('\n')
		p.said.WriteString(line)
		if err != nil || expr.MatchString(line) {
			return
		}
	}
}

func (p *process) signal(sig os.Signal) { p.cmd.Process.Signal(sig) } // that it has ended is no error

// end waits for the end. code is -1 where a signal has ended the process.
func (p *process) end() (code int, sig syscall.Signal, said string) {
	rest, err := io.ReadAll(p.stderr)
	if err != nil {
		p.t.Fatal(err)
	}
	p.said.Write(rest)
	p.cmd.Wait()
	status := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		sig = status.Signal()
	}
	return p.cmd.ProcessState.ExitCode(), sig, p.said.String()
}

var begins = `: (beginning|resuming at line \d+)\n`

func pause(rng *rand.Rand, most time.Duration) {
	time.Sleep(time.Duration(rng.Int64N(int64(most)))) // what is checked holds wherever the program is then
}

// mostly waits for what the program says, in three of four cases. In the others it may not even have got to main.
func mostly(rng *rand.Rand, p *process, what string) {
	if rng.IntN(4) > 0 {
		p.await(what)
	}
}

func interruptOnce(rng *rand.Rand, p *process) {
	mostly(rng, p, begins)
	pause(rng, 10*time.Millisecond)
	p.signal(os.Interrupt)
}

func interruptTwice(rng *rand.Rand, p *process) {
	interruptOnce(rng, p)
	mostly(rng, p, "draining")
	pause(rng, 500*time.Microsecond)
	p.signal(os.Interrupt)
}

func terminate(rng *rand.Rand, p *process) {
	mostly(rng, p, begins)
	pause(rng, 10*time.Millisecond)
	p.signal(syscall.SIGTERM)
}

func kill(rng *rand.Rand, p *process) {
	mostly(rng, p, begins)
	pause(rng, 10*time.Millisecond)
	p.signal(os.Kill)
}

func killDuringTheDrain(rng *rand.Rand, p *process) {
	interruptOnce(rng, p)
	pause(rng, 5*time.Millisecond)
	p.signal(os.Kill)
}

// Whatever hits the program, and wherever, every line of the input is in the output exactly once in the end.
func TestNoLineIsLostOrDoubled(t *testing.T) {
	for _, test := range []struct {
		name    string
		times   int
		attacks []func(*rand.Rand, *process)
	}{
		{"interrupted", 200, []func(*rand.Rand, *process){interruptOnce}},
		{"interrupted twice", 60, []func(*rand.Rand, *process){interruptTwice}},
		{"anything", 60, []func(*rand.Rand, *process){interruptOnce, interruptTwice, terminate, kill, kill, killDuringTheDrain}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			seed := uint64(time.Now().UnixNano())
			if given, err := strconv.ParseUint(os.Getenv("PIPELINE_SEED"), 10, 64); err == nil {
				seed = given
			}
			t.Logf("PIPELINE_SEED=%d", seed)
			storm(t, rand.New(rand.NewPCG(seed, 0)), test.times, test.attacks)
		})
	}
}

const (
	stormLines  = 6000
	stormRounds = 200
)

// storm interrupts the program that many times. When it is done before that, it begins anew.
func storm(t *testing.T, rng *rand.Rand, times int, attacks []func(*rand.Rand, *process)) {
	dir := t.TempDir()
	in := filepath.Join(dir, "orders.csv")
	out, saved := in+".out", in+".out.checkpoint"
	write(t, in, orders(stormLines))
	want := processed(orders(stormLines), stormRounds)

	outcomes := map[string]int{}
	for count := 0; count <= times; { // the last run is left in peace
		p := start(t, nil, "-in", in, "-workers", strconv.Itoa(1+rng.IntN(4)), "-rounds", strconv.Itoa(stormRounds),
			"-save", "3ms", "-patience", "1m")
		if count < times {
			attacks[rng.IntN(len(attacks))](rng, p)
		}
		code, sig, said := p.end()
		outcome := fmt.Sprintf("exit code %d", code)
		switch {
		case code == done:
			if diff := lostOrDoubled(want, read(t, out)); diff != "" {
				t.Fatalf("after %d interruptions: %s\n%s", count, diff, said)
			}
			if count == times {
				count++
				break
			}
			os.Remove(out)
			os.Remove(saved)
		case code == interrupted && strings.Contains(said, "cut short"):
			outcome += ", cut short"
			count++
		case code == interrupted && strings.Contains(said, "before anything was read"):
			outcome += ", before the start"
			count++
		case code == interrupted:
			count++
			checkDrained(t, out, saved, said)
		case slices.Contains([]syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL}, sig):
			outcome = "ended by " + sig.String()
			count++
		default:
			t.Fatalf("%s %v:\n%s", outcome, sig, said)
		}
		outcomes[outcome]++
		if c, found, err := loadCheckpoint(saved); err != nil {
			t.Fatalf("after %d interruptions: %v\n%s", count, err, said)
		} else if !found {
			continue // it had not got that far
		} else if text := read(t, out); int64(len(text)) < c.Length || text[:c.Length] != want[:c.Length] {
			t.Fatalf("after %d interruptions, what the checkpoint counts as done is not: %s\n%s", count,
				lostOrDoubled(want[:c.Length], text[:min(int(c.Length), len(text))]), said)
		}
	}
	t.Log(outcomes)
}

var totals = regexp.MustCompile(`stopped: (\d+) lines read, (\d+) written`)

// checkDrained checks what the graceful stop is for: what was read is written, and nothing has to be done again.
func checkDrained(t *testing.T, out, saved, said string) {
	t.Helper()
	m := totals.FindStringSubmatch(said)
	if m == nil || m[1] != m[2] {
		t.Fatalf("what was read was not all written:\n%s", said)
	}
	c, found, err := loadCheckpoint(saved)
	text := read(t, out)
	if err != nil || !found || strconv.FormatInt(c.Lines, 10) != m[2] || c.Length != int64(len(text)) {
		t.Fatalf("the checkpoint is %+v, %v, for an output of %d bytes: work was wasted\n%s", c, err, len(text), said)
	}
}

// lostOrDoubled says which lines are not there exactly once and in order, the first few of them.
func lostOrDoubled(want, got string) string {
	if got == want {
		return ""
	}
	times := map[string]int{}
	for l := range strings.Lines(got) {
		times[l]++
	}
	var lost, doubled []string
	for l := range strings.Lines(want) {
		number, _, _ := strings.Cut(l, ",")
		switch n := times[l]; {
		case n == 0:
			lost = append(lost, number)
		case n > 1:
			doubled = append(doubled, number)
		}
		delete(times, l)
	}
	first := func(lines []string) string {
		return fmt.Sprintf("%d %v", len(lines), lines[:min(len(lines), 5)])
	}
	foreign := ""
	for l := range times {
		foreign = cmp.Or(foreign, l)
	}
	return fmt.Sprintf("lost: %s, doubled: %s, not of the input: %d %q (the first few each)", first(lost), first(doubled), len(times), foreign)
}

// A test that cannot see a loss is worth nothing.
func TestLostOrDoubled(t *testing.T) {
	for _, test := range []struct{ got, want string }{
		{"1,a\n2,b\n3,c\n", ""},
		{"1,a\n3,c\n", `lost: 1 [2], doubled: 0 [], not of the input: 0 "" (the first few each)`},
		{"1,a\n2,b\n2,b\n3,c\n", `lost: 0 [], doubled: 1 [2], not of the input: 0 "" (the first few each)`},
		{"1,a\n2,b\n3,", `lost: 1 [3], doubled: 0 [], not of the input: 1 "3," (the first few each)`},
		{"2,b\n1,a\n3,c\n", `lost: 0 [], doubled: 0 [], not of the input: 0 "" (the first few each)`},
	} {
		if got := lostOrDoubled("1,a\n2,b\n3,c\n", test.got); got != test.want {
			t.Errorf("%q: %s, want %s", test.got, got, test.want)
		}
	}
}

// Each line is far too much work. The second ^C has to end it all the same, and to say where it was.
func TestSecondInterruptCutsShort(t *testing.T) {
	in := filepath.Join(t.TempDir(), "orders.csv")
	write(t, in, orders(500))
	want := regexp.MustCompile(`cut short: ctxshutdown: not drained when the wait ended \(a second signal: interrupt\): \d guards?: work ×[12], `)
	for ticks := 0; ; ticks++ {
		p := start(t, nil, "-in", in, "-workers", "2", "-rounds", strconv.Itoa(math.MaxInt), "-patience", "1h")
		p.await(begins)
		for range ticks {
			p.await("lines/s")
		}
		p.signal(os.Interrupt)
		p.await("draining")
		p.signal(os.Interrupt)
		code, _, said := p.end()
		if code != interrupted {
			t.Fatalf("code %d, want 130:\n%s", code, said)
		}
		if want.MatchString(said) {
			break
		}
		t.Logf("nobody was at work yet:\n%s", said) // then give it more time
	}
	if code, stderr := pipe(t, "-in", in, "-rounds", "1"); code != done {
		t.Fatalf("code %d, want 0:\n%s", code, stderr)
	}
	if diff := lostOrDoubled(processed(orders(500), 1), read(t, in+".out")); diff != "" {
		t.Error(diff)
	}
}

// A stream that nobody writes to holds nothing up.
func TestIdleStream(t *testing.T) {
	dir := t.TempDir()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	p := start(t, r, "-in", "-", "-out", filepath.Join(dir, "out"))
	p.await("lines/s") // by then it waits for the first byte
	p.signal(os.Interrupt)
	if code, _, said := p.end(); code != interrupted || !strings.Contains(said, "stopped: 0 lines read, 0 written") {
		t.Errorf("code %d, want 130 and no line:\n%s", code, said)
	}
}

// The end of a stream is the end: its last line is a line.
func TestStreamEnds(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	io.WriteString(w, "a,1\nb,2")
	w.Close()
	out := filepath.Join(t.TempDir(), "out")
	p := start(t, r, "-in", "-", "-out", out, "-rounds", "1")
	if code, _, said := p.end(); code != done || !strings.Contains(said, "done: 2 lines, 0 of them rejected") {
		t.Errorf("code %d, want 0:\n%s", code, said)
	}
	if diff := lostOrDoubled(processed("a,1\nb,2", 1), read(t, out)); diff != "" {
		t.Error(diff)
	}
	// No checkpoint is kept, so a second run must not mix its lines with these.
	code, stderr := pipe(t, "-in", "-", "-out", out)
	if code != failed || !strings.Contains(stderr, "is not empty") {
		t.Errorf("again: code %d, want 1:\n%s", code, stderr)
	}
}
