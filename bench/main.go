// Command bench measures the figures of the README. Each row compares an operation of swansong with
// what a user would use instead; the two run alternately. It prints the tables as Markdown.
//
//	go run ./bench [-rounds 101] [-write] [-only regexp]
//	go run ./bench -gate [-only regexp]
//
// With -write it also writes the tables to docs/measured/benchmarks.md, and adds the ratios to
// bench/runs.csv. When you quote a result,
// quote the ratio: unlike the times, it does not depend on the current speed of the machine.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"sync"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/internal/figures"
)

func main() {
	if repeatForCallgrind() {
		return
	}
	rounds := flag.Int("rounds", 101, "`number` of timed runs of each side of a row")
	write := flag.Bool("write", false, "also write docs/measured/benchmarks.md")
	gate := flag.Bool("gate", false, "print no tables, but fail if a ratio is far above its target, or if the allocations of an operation have changed")
	only := flag.String("only", "", "measure only the operations that match `regexp`, and print no other tables")
	flag.Parse()
	match, err := regexp.Compile(*only)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench: -only:", err)
		os.Exit(2)
	}
	if *rounds < 1 || flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "bench: -rounds %d, arguments %q: -rounds must be at least 1, and arguments are not accepted\n", *rounds, flag.Args())
		os.Exit(2)
	}
	rows := slices.Concat(guardRows(), goRows(), childRows(), endRows(), interruptRows(), lspRows(), loopRows(), poolRows(), maskRows())
	if *only != "" {
		rows = append(rows, floorRows()...) // a run without -only prints these rows in a table of their own
	}
	rows = slices.DeleteFunc(rows, func(r row) bool { return !match.MatchString(r.what) })
	if *gate {
		if !passGate(os.Stdout, rows, measureForGate) {
			os.Exit(1)
		}
		return
	}
	out := figures.NewPage("docs/measured/benchmarks.md", head)
	fmt.Fprintf(out, "%s: medians of %d interleaved rounds a row, and of %d\nfor operations that are prepared anew for each run.\n\n", figures.Origin(), *rounds, row{once: true}.rounds(*rounds))
	past, err := readRuns(runsFile)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	printRows(out, "swansong", rows, *rounds, past)
	if *only != "" {
		return
	}
	fmt.Fprint(out, peerNotes)
	for _, job := range jobs {
		fmt.Fprintf(out, "- *%s*: %s\n", job.name, job.says)
	}
	fmt.Fprintln(out)
	printPeers(out, peers(), *rounds)
	printFirstGuards(out)
	printLoops(out)
	printOrder(out)
	fmt.Fprint(out, memoryNotes)
	figures.Row(out, "live heap for each of 100,000", "bytes")
	figures.Row(out, "---", "---:")
	for _, m := range memory() {
		figures.Row(out, m.what, fmt.Sprintf("%.0f", bytesEach(100_000, m.keep())))
	}
	fmt.Fprint(out, floorNotes)
	printRows(out, "time", floorRows(), *rounds, past)
	printInstructions(out)
	if *write {
		if err := errors.Join(out.Save(), past.write(runsFile)); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
	}
}

const head = `# Benchmarks

Produced by ` + "`make bench`" + `; do not edit. A ratio below 1 means that swansong takes less time. A target is what
the median of a run should reach. If it does not, the row says *missed*. ` + "`make gate`" + ` fails only if a row is far above its target.
It measures some rows on one processor, because their ratio varies less there.

*All runs* is the range of the ratio over the runs in bench/runs.csv, which were made on several hosts. *The host's own
spread* is the middle half of the ratios of the peer's time in one round to its time in the round before: a difference
within that range is the host's.

`

const peerNotes = `
A child without guards is not in its parent's list. It finds out that it has been stopped when its Err is called or a
goroutine waits on it, and only then does it create its context. So the rows that stop many children without waiters
show almost no time, and another row calls Err of each child.

## The same job, by library

The time of one operation, and its ratio to that of swansong in the same run. A dash means that the library cannot do
the job without additional code. http.Server.Shutdown does these jobs only for handlers, which
[httpdrain-figures.md](httpdrain-figures.md) compares. A child of suture is a service with a goroutine, which is waited
for; a child of swansong or of context has no goroutine.

`

const memoryNotes = `
## Memory

The target for a child was 300 bytes, including its guards: a guard that escapes to the heap takes 24 bytes, and a
cancel function 16.

A child on which a goroutine waits takes more: the scope (192), a context.WithCancel on which a goroutine waits (227:
the channel 112, the context 80, the entry in the parent's map the rest), the link between the two (32) and the function
that cancels the context (16). That cannot fit into 300 bytes: the child can be stopped separately, so it needs its own
channel, and scope and channel alone take 304. The signal of the child is a standard context because deadlines, causes,
and derived contexts without goroutines need one.

`

const floorNotes = `
## The floor of two goroutines

The target for two goroutines on one scope is 0.25 × of their time on one sync.WaitGroup. This table shows the best
possible ratios on this machine. In the first two rows, the goroutines share no memory: one row has only the two
additions of a guard, the other a sync.WaitGroup for each goroutine. The last two rows compare two goroutines with one:
with two full processors the ratio would be 0.50 ×. Two threads of one core are slower than that, as the third row
shows. On such threads the cache line of the sync.WaitGroup does not move between cores, so that the shared
sync.WaitGroup is faster than on two cores. Both effects increase the ratios.

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
		{"child scope that holds a guard", ours(guardedChild)},
		{"child scope and its cancel function", ours(func(f *family) any {
			_, cancel := ctxshutdown.WithCancel(f.scope)
			return cancel
		})},
		{"child scope that is waited on", ours(waitedChild)},
		{"context.WithCancel", ours(stdChild)},
		{"context.WithCancel and its cancel function", ours(func(f *family) any {
			_, cancel := context.WithCancel(f.ctx)
			return cancel
		})},
		{"context.WithCancel that is waited on", ours(stdWaited)},
		{"context.WithCancel, waited on, and a sync.WaitGroup", ours(func(f *family) any {
			return &struct {
				ctx any
				wg  sync.WaitGroup
			}{ctx: stdWaited(f)}
		})},
		{"coalesced change of 1 KiB to a language server that does not read", sendToStalled},
	}
}
