// Command bench measures what the README claims: each row pairs an operation of swansong with what a user would
// otherwise use, in turn, in one run. It prints the tables as Markdown.
//
//	go run ./bench [-rounds 31] [-write]
//
// With -write it also puts them into docs/benchmarks.md. Quote ratios: they hold when the machine's speed drifts.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"
)

func main() {
	rounds := flag.Int("rounds", 31, "timed runs of each side of a row")
	write := flag.Bool("write", false, "also write docs/benchmarks.md")
	flag.Parse()
	if *rounds < 1 || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "bench: -rounds takes a number from 1 on, and there are no arguments")
		os.Exit(2)
	}
	var page strings.Builder
	out := io.MultiWriter(os.Stdout, &page)
	fmt.Fprintf(out, "Measured %s on %s, %d processors, %s/%s, %s: %d interleaved rounds a row, medians.\n\n",
		time.Now().Format(time.DateOnly), cpu(), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version(), *rounds)

	line(out, "operation", "swansong", "against", "its time", "ratio (middle half)", "target", "allocations")
	line(out, "---", "---:", "---", "---:", "---:", "---:", "---:")
	for _, r := range rows() {
		n := *rounds
		if r.once {
			n = max(1, n/3) // preparing 100,000 children takes longer than stopping them
		}
		line(out, measure(r, n).cells()...)
	}

	fmt.Fprint(out, notes)
	line(out, "live heap for each of 100,000", "bytes")
	line(out, "---", "---:")
	for _, m := range memory() {
		line(out, m.what, fmt.Sprintf("%.0f", bytesEach(100_000, m.keep())))
	}
	if *write {
		if err := os.WriteFile("docs/benchmarks.md", []byte(head+page.String()), 0o666); err != nil {
			fmt.Fprintln(os.Stderr, "bench: run it from the root of the repository:", err)
			os.Exit(1)
		}
	}
}

const head = `# Benchmarks

Produced by ` + "`make bench`" + `; do not edit. A ratio below 1 means that swansong is the cheaper one.

`

const notes = `
A child that holds nothing is not in its parent's list. It learns of the stop when it is asked or waited on, and pays for
its context then: hence the rows that stop many children for next to nothing, and the last row, which asks them all.

`

func memory() []struct {
	what string
	keep func() func() any
} {
	ours := func(child func(*family) any) func() func() any {
		return func() func() any { f := newFamily(0, nil); return func() any { return child(f) } }
	}
	return []struct {
		what string
		keep func() func() any
	}{
		{"child scope", ours(idleChild)},
		{"child scope that holds a guard", ours(heldChild)},
		{"child scope that is waited on", ours(waitedChild)},
		{"context.WithCancel", ours(stdChild)},
		{"context.WithCancel that is waited on", ours(stdWaited)},
		{"context.WithCancel, waited on, and a sync.WaitGroup", ours(func(f *family) any {
			return &struct {
				ctx any
				waitGroup
			}{ctx: stdWaited(f)}
		})},
	}
}

func line(w io.Writer, cells ...string) { fmt.Fprintln(w, "| "+strings.Join(cells, " | ")+" |") }

func cpu() string {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err == nil {
		for l := range strings.Lines(string(info)) {
			if k, v, ok := strings.Cut(l, ":"); ok && strings.TrimSpace(k) == "model name" {
				return strings.TrimSpace(v)
			}
		}
	}
	return "an unnamed processor"
}
