package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

// programVar names an environment variable that makes the test binary run the program.
const programVar = "ACTOR_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	switch os.Getenv(programVar) {
	case "":
	case "hanging audit":
		os.Exit(run(context.Background(), os.Stdin, os.Stdout, &ledger{limit: time.Hour, compute: func(context.Context, string, int64) (string, error) {
			fmt.Println("the audit hangs")
			select {}
		}}))
	default:
		main()
	}
	goleak.VerifyTestMain(m)
}

const steps = `1. no new commands
2. commands in flight are answered or have timed out
3. the pool is idle
4. the loop is idle and stopped
5. the loop has ended
6. all callbacks have run and nothing is left behind
`

// answers checks the steps in the output and returns the other lines, which are the answers to
// commands. The order of audits among them is random.
func answers(t *testing.T, out string) (lines []string) {
	t.Helper()
	var found strings.Builder
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, line[:1]+". ") {
			found.WriteString(line)
		} else {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	if diff := cmp.Diff(steps, found.String()); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	return lines
}

// The program reads commands from a pipe, answers them, and shuts down in six steps at its end.
func TestProgram_AnswersEachCommand(t *testing.T) {
	cmd := exec.Command(os.Args[0], "-audit", "1h", "-rounds", "10")
	cmd.Env = append(os.Environ(), programVar+"=1")
	cmd.Stdin = strings.NewReader("deposit ann 100\ndeposit bob x\nbalance ann\nnonsense\ndeposit ann 1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want := []string{
		"ann has 100",
		`deposit: "x" is not a number of cents`,
		"ann has 100",
		`"nonsense": want deposit NAME CENTS, balance NAME or audit NAME`,
		"ann has 101",
	}
	if diff := cmp.Diff(want, answers(t, string(out))); diff != "" {
		t.Errorf("answers (-want +got):\n%s", diff)
	}
}

// The input ends while audits are running. Every audit is answered, with a result or a timeout.
func TestRun_AnswersAuditsThatStillRunWhenInputEnds(t *testing.T) {
	for name, test := range map[string]struct {
		limit  time.Duration
		rounds int
		want   string
	}{
		"in time":   {time.Hour, 1_000, "audit of ann with 5: "},
		"timed out": {time.Millisecond, math.MaxInt, "audit of ann: timed out"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			const n = 20
			if code := run(t.Context(), strings.NewReader("deposit ann 5\n"+strings.Repeat("audit ann\n", n)), &out, &ledger{limit: test.limit, compute: fingerprint(test.rounds)}); code != 0 {
				t.Errorf("code %d:\n%s", code, &out)
			}
			got := 0
			for _, line := range answers(t, out.String()) {
				if strings.HasPrefix(line, test.want) {
					got++
				}
			}
			if got != n {
				t.Errorf("%d of %d audits have the expected answer:\n%s", got, n, &out)
			}
		})
	}
}

// When the context ends, as after a ^C, the program ends, even if its input has not ended.
func TestRun_ReturnsAfterInterrupt(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	in, commands := io.Pipe()
	defer in.Close()
	out, answered := io.Pipe()
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, in, answered, &ledger{limit: time.Hour, compute: fingerprint(1)})
		answered.Close()
	}()
	fmt.Fprintln(commands, "deposit ann 1")
	var first [len("ann has 1\n")]byte
	if _, err := io.ReadFull(out, first[:]); err != nil {
		t.Fatal(err)
	}
	cancel()
	rest, _ := io.ReadAll(out)
	if c := <-code; c != 0 || len(answers(t, string(rest))) != 0 {
		t.Errorf("code %d:\n%s", c, rest)
	}
}

// An audit takes forever. The first ^C begins the drain, which waits for the audit. The second ^C
// cancels the audit. The program then ends, and prints only steps that have been done.
func TestProgram_SecondInterruptCancelsAudit(t *testing.T) {
	out, code := interruptTwice(t, "1", "balance ann", "ann has 0", "-audit", "1h", "-rounds", fmt.Sprint(math.MaxInt32))
	if code != 2 || strings.Contains(out, "2. ") {
		t.Errorf("exit code %d, want 2; the program printed:\n%s", code, out)
	}
}

// An audit hangs and ignores its context. The second ^C cancels the context of the audit, which has
// no effect, and two seconds later the program ends anyway. It prints that it did not wait, and
// prints only steps that have been done.
func TestProgram_EndsAlthoughAuditHangs(t *testing.T) {
	out, code := interruptTwice(t, "hanging audit", "", "the audit hangs")
	if code != 3 || strings.Contains(out, "2. ") || !strings.Contains(out, "has failed") {
		t.Errorf("exit code %d, want 3; the program printed:\n%s", code, out)
	}
}

// interruptTwice runs the program, with an audit and another command as its input. It interrupts
// the program when the program has printed the given line, and again when the program has printed
// its first step. It returns the output and the exit code of the program.
func interruptTwice(t *testing.T, program, command, line string, args ...string) (out string, code int) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("there are no signals to send")
	}
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), programVar+"="+program)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill() // kills the program if the test fails before the program has exited
	fmt.Fprintf(stdin, "audit ann\n%s\n", command)
	var all strings.Builder
	const first = "1. no new commands"
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		all.WriteString(lines.Text() + "\n")
		if lines.Text() == line || lines.Text() == first {
			cmd.Process.Signal(os.Interrupt)
		}
	}
	cmd.Wait()
	if !strings.Contains(all.String(), first+"\n") {
		t.Errorf("the program has not printed its first step:\n%s", all.String())
	}
	return all.String(), cmd.ProcessState.ExitCode()
}
