package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// Instructions do not depend on who else uses the machine, so they tell what a time cannot: how far an operation is from
// its floor. They are counted by callgrind, which runs this program again with these variables set.
const (
	repeatVar = "SWANSONG_BENCH_REPEAT"
	timesVar  = "SWANSONG_BENCH_TIMES"
)

type counted struct {
	what   string
	repeat func(n int)
}

func countable() []counted {
	return []counted{
		{"sync.WaitGroup Add + Done", (&waitGroup{}).run},
		{"Guard + Release, depth 4", guards{deep(4)}.run},
		{"TryGuard + Release, root", tries{deep(0)}.run},
		{"TryGuard + Release, depth 4", tries{deep(4)}.run},
		{"Err of a context.WithCancel", asks{cancellable()}.run},
		{"a loop over an iter.Seq, an element", func(n int) { sum(numbers(n)) }},
		{"Seq, an element", func(n int) { sum(ctxshutdown.Seq(deep(0), numbers(n))) }},
		{"Read of a type of one's own through an interface", reads(&zeros{})},
		{"the same through a Reader", reads(ctxshutdown.NewReader(deep(0), &zeros{}))},
	}
}

type asks struct{ ctx context.Context }

//go:noinline
func (b asks) run(n int) {
	for range n {
		if b.ctx.Err() != nil {
			panic("ended")
		}
	}
}

func cancellable() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	_ = cancel // it lasts as long as the program
	return ctx
}

// repeated does what callgrind is to count, if this is the run for that.
func repeated() bool {
	what := os.Getenv(repeatVar)
	if what == "" {
		return false
	}
	n, err := strconv.Atoi(os.Getenv(timesVar))
	all := countable()
	i := slices.IndexFunc(all, func(c counted) bool { return c.what == what })
	if err != nil || i < 0 {
		fmt.Fprintf(os.Stderr, "bench: %s and %s are for its own use\n", repeatVar, timesVar)
		os.Exit(2)
	}
	all[i].repeat(n)
	return true
}

const instructionNotes = `
## Instructions

Of one operation, counted by callgrind. They show the floors: TryGuard is a Guard and a look whether the scope has been told to
stop; below the root that look is the Err of a context.WithCancel, because others can end what the scope derives from. Of cache
lines, each of Guard, TryGuard and Release writes one, that of the counting word; TryGuard reads that of the signal besides, which
nobody writes before the stop.

`

// printInstructions prints nothing but a reason where there is no valgrind.
func printInstructions(w io.Writer) {
	valgrind, err := exec.LookPath("valgrind")
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench: instructions are not counted, there is no valgrind")
		return
	}
	fmt.Fprint(w, instructionNotes)
	line(w, "operation", "instructions")
	line(w, "---", "---:")
	const few, many = 200_000, 1_200_000
	for _, c := range countable() {
		a, err1 := instructions(valgrind, c.what, few)
		b, err2 := instructions(valgrind, c.what, many)
		if err := cmp.Or(err1, err2); err != nil {
			fmt.Fprintln(os.Stderr, "bench: counting the instructions of", c.what+":", err)
			continue
		}
		line(w, c.what, fmt.Sprintf("%.0f", float64(b-a)/(many-few)))
	}
}

var collected = regexp.MustCompile(`Collected\s*:\s*(\d+)`)

func instructions(valgrind, what string, times int) (int, error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	for range 5 {
		cmd := exec.Command(valgrind, "--tool=callgrind", "--callgrind-out-file=/dev/null", self)
		cmd.Env = append(os.Environ(), repeatVar+"="+what, timesVar+"="+strconv.Itoa(times), "GOGC=off", "GODEBUG=asyncpreemptoff=1")
		var out []byte
		if out, err = cmd.CombinedOutput(); err == nil {
			if m := collected.FindSubmatch(out); m != nil {
				return strconv.Atoi(string(m[1]))
			}
		}
		// It does not always survive the signals that the runtime sends to its own threads.
	}
	return 0, fmt.Errorf("valgrind fails again and again: %w", err)
}
