// Command bench measures what the README claims: each row pairs an operation of swansong with what a user would
// otherwise use, in turn, in one run. It prints the tables as Markdown.
//
//	go run ./bench [-rounds 101] [-write] [-only regexp]
//	go run ./bench -gate [-only regexp]
//
// With -write it also puts them into docs/benchmarks.md. Quote ratios: they hold when the machine's speed drifts.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/internal/machine"
)

func main() {
	if repeated() {
		return
	}
	rounds := flag.Int("rounds", 101, "timed runs of each side of a row")
	write := flag.Bool("write", false, "also write docs/benchmarks.md")
	gate := flag.Bool("gate", false, "instead, fail if a ratio is far above its target, or an operation allocates more or less than stated")
	only := flag.String("only", "", "leave out the operations that do not match this `regexp`, and the other tables")
	flag.Parse()
	match, err := regexp.Compile(*only)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench: -only:", err)
		os.Exit(2)
	}
	if *rounds < 1 || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "bench: -rounds takes a number from 1 on, and there are no arguments")
		os.Exit(2)
	}
	rows := slices.Concat(guardRows(), childRows(), endRows(), interruptRows(), lspRows(), loopRows())
	if *only != "" {
		rows = slices.Concat(rows, floorRows(), interruptFloorRows()) // which otherwise have tables of their own
	}
	rows = slices.DeleteFunc(rows, func(r row) bool { return !match.MatchString(r.what) })
	if *gate {
		if !pass(os.Stdout, rows, measure) {
			os.Exit(1)
		}
		return
	}
	var page strings.Builder
	out := io.MultiWriter(os.Stdout, &page)
	fmt.Fprintf(out, "Measured %s on %s: medians of %d interleaved rounds a row, and of %d\nwhere each has to be prepared.\n\n", time.Now().Format(time.DateOnly), machine.String(), *rounds, row{once: true}.rounds(*rounds))
	printRows(out, "swansong", rows, *rounds)
	if *only != "" {
		return
	}
	fmt.Fprint(out, peerNotes)
	for _, job := range jobs {
		fmt.Fprintf(out, "- *%s*: %s\n", job.name, job.says)
	}
	fmt.Fprintln(out)
	printPeers(out, peers(), *rounds)
	printLoops(out)
	fmt.Fprint(out, memoryNotes)
	line(out, "live heap for each of 100,000", "bytes")
	line(out, "---", "---:")
	for _, m := range memory() {
		line(out, m.what, fmt.Sprintf("%.0f", bytesEach(100_000, m.keep())))
	}
	fmt.Fprint(out, floorNotes)
	printRows(out, "time", floorRows(), *rounds)
	fmt.Fprint(out, interruptFloorNotes)
	printRows(out, "time", interruptFloorRows(), *rounds)
	printInstructions(out)
	if *write {
		if err := os.WriteFile("docs/benchmarks.md", []byte(head+page.String()), 0o666); err != nil {
			fmt.Fprintln(os.Stderr, "bench: run it from the root of the repository:", err)
			os.Exit(1)
		}
	}
}

const head = `# Benchmarks

Produced by ` + "`make bench`" + `; do not edit. A ratio below 1 means that swansong is the cheaper one. A target is what
the median of this run was meant to reach, and a row that did not says *missed*; ` + "`make gate`" + ` fails a row only far above it.

`

const peerNotes = `
A child that holds nothing is not in its parent's list. It learns of the stop when it is asked or waited on, and pays for
its context then: hence the rows that stop many children for next to nothing, and the one that asks them all.

## The same job, by library

Time for one, and how many times that of swansong in the same run. A dash: it cannot do this job, or not without code of your
own around it. http.Server.Shutdown does none of them for code other than handlers; what it does is compared in
[httpdrain.md](httpdrain.md). Of suture a child is a service, with a goroutine that is waited for; of swansong and context it is none.

`

const memoryNotes = `
## Memory

A child was meant to take 300 bytes at most, with what its guards take: a guard that escapes takes 24, and a cancel function 16.

One that is waited on takes more: with the scope (192) it has what any context.WithCancel has that is waited on (227: its channel takes
112, the context 80, its place in the parent's map the rest), what joins the two (32) and the function that ends the context (16). In
300 that has no room: the child can be stopped by itself, so its channel is its own, and the scope and the channel alone make 304; or,
from the other side, the context and its function leave 57 bytes for a scope. Its signal is a plain context because deadlines, causes,
and that what derives from it needs no goroutine, rest on that.

`

const floorNotes = `
## The floor of two goroutines

What could be reached at best, on this machine and in this run, where two goroutines on one scope are meant to take 0.25 × of what
they take on one sync.WaitGroup. The first two rows are of goroutines that have nothing in common: with the two additions that a guard
is made of, and not an instruction more; and with a sync.WaitGroup each. The other two say how much more two get done than one: 0.50 ×
would be two whole processors. Two threads of one core are less, as the third row shows, and there the peer's cache line need not be
sent back and forth, so that it takes less than elsewhere: of both the ratio is made.

`

const interruptFloorNotes = `
## The floor of interrupts

What a look at a context, or being woken, takes at least, where an element or a Read is meant to take 2.5 ns more than what is wrapped:
the least that can be written by hand, without a check of anything, against what it wraps. Where the end of a row is that it missed
the target, too, nobody can reach it who goes through a wrapper, and is exact.

- *Of a context that others may end* each look asks ctx.Err: a call through an interface, and an atomic load. Nothing cheaper is exact.
  Package context tells nobody before it has closed Done, so a flag would be raised too late for who has seen that; a receive from Done
  with a default takes twice as long. Of a scope, with values or not, and of a Work, it is not asked, unless there is such a context above.
- *A source that can be woken*, such as a connection, may pass to another owner between any two Reads, without a word to the Reader. So who
  ends the context has to know whether there is a Read to wake, and each Read counts itself in and out. Several may read at once: both are
  locked additions, and the second one is made also where the source panics. Of a Read from the kernel all this is a hundredth.

Of cache lines, an element reads that of the flag, and a Read also one of the Reader, or two; nobody writes them. Of a context that others
may end it is the line of its error besides. Of a source that can be woken each Read writes one line, that of its counter, twice.

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
		{"coalesced change of 1 KiB to a language server that does not read", behind},
	}
}
