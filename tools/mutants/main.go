// Mutants proves that the tests notice when a guarantee is broken.
//
// The tables testdata/mutants/*.txt list mutants: each breaks the code in one way, and names the
// test that must then fail. The named test is run on the code as it is, where it must pass, and
// on the broken code, where it must fail. If the test still passes, the mutant has survived:
// the guarantee is documented but not tested.
//
// The changed files are given to the go command as an overlay. The working tree is never
// touched, so mutants run in parallel, and an interrupted run leaves nothing to undo.
//
//	go run ./tools/mutants [-check] [-C root] [-p 10] [-tested] [-v] [name ...]
//
// A name is that of a mutant, a pattern such as 'packed-*', or a table such as packed.txt.
// Without names, all mutants are run.
//
// With -check, nothing is built or run. It takes a second, and fails unless every edit applies,
// every named test exists, and the name of every named subtest is written in its test.
//
// testdata/mutants/README.md describes the tables.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Verdicts. Only killed and skipped let the run succeed.
const (
	killed       = "killed"
	survived     = "SURVIVED"
	doesNotApply = "DOES NOT APPLY"
	doesNotBuild = "DOES NOT BUILD"
	badBaseline  = "BAD BASELINE" // the test is missing, or fails on the code as it is
	failed       = "ERROR"        // the go command did not say whether the test passes
	skipped      = "skipped"      // the test was skipped, because this machine cannot run it; the machines of CI can run all tests
)

// An outcome is a mutant's line in the report. output is printed below the line. took is how long
// the test took, if it has passed.
type outcome struct {
	verdict, detail, output string
	took                    time.Duration
}

// A runner holds what the mutants of one run share.
type runner struct {
	ctx       context.Context
	out       io.Writer
	root      string // absolute path of the repository; overlays must contain absolute file names
	temp      string
	tested    bool // all tests have just passed, so run no test of a mutant without flags on the unchanged code again
	sources   *sources
	builds    chan struct{} // holds an element for each build that is running
	runs      chan struct{} // holds an element for each test that is running
	mu        sync.Mutex
	baselines map[baseline]func() outcome
	programs  map[baseline]func() (file, complaint string)
	built     int          // number of programs that were built alone
	alone     atomic.Int32 // number of mutants that were built into a program of their own
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	code := run(ctx, os.Args[1:], os.Stdout)
	stop()
	os.Exit(code)
}

// run returns the exit code: 0 if all mutants were killed, 1 if not, and 2 if none were run
// because the tables, or the names, are wrong.
func run(ctx context.Context, args []string, out io.Writer) int {
	flags := flag.NewFlagSet("mutants", flag.ExitOnError)
	root := flags.String("C", ".", "`root` of the repository")
	checkOnly := flags.Bool("check", false, "only check that every edit applies and every named test and subtest exists; build and run nothing")
	parallel := flags.Int("p", 5*runtime.NumCPU(), "`number` of tests to run in parallel; many of them mostly wait")
	tested := flags.Bool("tested", false, "all tests have just passed: do not run them on the unchanged code again")
	verbose := flags.Bool("v", false, "print the output of the tests that killed mutants, to see whether they fail for the right reason")
	flags.Parse(args)

	dir, err := filepath.Abs(*root)
	if err != nil {
		fmt.Fprintln(out, "mutants:", err)
		return 2
	}
	mutants, err := readTables(filepath.Join(dir, "testdata", "mutants"))
	if err == nil {
		mutants, err = choose(mutants, flags.Args())
	}
	if err != nil {
		fmt.Fprintf(out, "mutants: testdata/mutants: %v\n", err)
		return 2
	}
	sources := newSources(dir)
	if *checkOnly {
		return check(sources, mutants, out)
	}

	temp, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		fmt.Fprintln(out, "mutants:", err)
		return 2
	}
	defer os.RemoveAll(temp)
	r := &runner{ctx: ctx, out: out, root: dir, temp: temp, tested: *tested, sources: sources,
		builds: make(chan struct{}, runtime.NumCPU()), runs: make(chan struct{}, max(1, *parallel)),
		baselines: map[baseline]func() outcome{}, programs: map[baseline]func() (string, string){}}
	return r.runAll(mutants, *verbose)
}

// choose returns the mutants with the given names, and all mutants if no name is given.
func choose(all []*mutant, names []string) ([]*mutant, error) {
	if len(all) == 0 { // without this error, a run in the wrong folder would succeed
		return nil, fmt.Errorf("there are no mutants; run this in the root of the repository, or set -C")
	}
	if len(names) == 0 {
		return all, nil
	}
	chosen := map[*mutant]bool{}
	for _, name := range names {
		found := false
		for _, m := range all {
			match, err := path.Match(name, m.name)
			if err != nil {
				return nil, fmt.Errorf("pattern %q: %w", name, err)
			}
			if match || path.Base(name) == m.table {
				chosen[m], found = true, true
			}
		}
		if !found {
			return nil, fmt.Errorf("no mutant and no table is named %q; the name of a table ends in .txt", name)
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(m *mutant) bool { return !chosen[m] }), nil
}

// check reports whether all mutants apply and their tests exist, and returns the exit code.
func check(s *sources, mutants []*mutant, out io.Writer) int {
	var errs []error
	for _, m := range mutants {
		if _, err := s.apply(m); err != nil {
			errs = append(errs, err)
		}
		if err := s.checkTest(m); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", m.where(m.line), err))
		}
	}
	for _, err := range errs {
		fmt.Fprintln(out, err)
	}
	fmt.Fprintf(out, "mutants: %d checked, errors: %d\n", len(mutants), len(errs))
	return min(len(errs), 1)
}

// runAll runs the mutants, prints the report, and returns the exit code.
func (r *runner) runAll(mutants []*mutant, verbose bool) int {
	var (
		begin = time.Now()
		count = map[string]int{}
		left  []string // names of the mutants that were not killed
		print sync.Mutex
		wait  sync.WaitGroup
	)
	for _, m := range mutants {
		if err := r.sources.writeOverlay(m, filepath.Join(r.temp, "alone", m.name)); err != nil {
			m.decided = &outcome{verdict: doesNotApply, detail: m.reason, output: err.Error()}
		}
	}
	r.buildShared(mutants)
	r.buildTogether(mutants)
	// All mutants start at once. They wait for their turn to build a program, and then for their
	// turn to run a test. The last tables come first: the tests of the launcher take longest.
	for _, m := range slices.Backward(mutants) {
		wait.Go(func() {
			o := r.try(m)
			if r.ctx.Err() != nil {
				o = outcome{verdict: failed, detail: "interrupted"}
			}
			print.Lock()
			defer print.Unlock()
			count[o.verdict]++
			if o.verdict != killed && o.verdict != skipped {
				left = append(left, m.name)
			}
			fmt.Fprintf(r.out, "%-14s %6.1fs  %s: %s\n", o.verdict, o.took.Seconds(), m.name, o.detail)
			if text := strings.TrimSpace(o.output); text != "" && (o.verdict != killed || verbose) {
				fmt.Fprintf(r.out, "\t%s\n", strings.ReplaceAll(text, "\n", "\n\t"))
			}
		})
	}
	wait.Wait()
	fmt.Fprintf(r.out, "mutants: %d killed, %d not killed, %d skipped, in %.1fs; %d were built alone\n",
		count[killed], len(left), count[skipped], time.Since(begin).Seconds(), r.alone.Load())
	// List the mutants that were not killed once more, because the output above may be long.
	for _, name := range left {
		fmt.Fprintf(r.out, "not killed: %s\n", name)
	}
	return min(len(left), 1)
}

// try runs one mutant. If the mutant is in the shared program, try runs it there first. If it is
// not, or if it is not killed there, try runs it in a program of its own.
func (r *runner) try(m *mutant) outcome {
	if m.decided != nil {
		return *m.decided
	}
	timeout := m.timeout
	if m.shared {
		shared := baseline{m.testCommand, r.sharedOverlay()}
		if o := r.checkBaseline(shared); o.verdict == "" {
			timeout = m.limit(o.took)
			program, _ := r.program(shared)
			if res := r.runTest(m.testCommand, m.count, timeout, program, m.name); res.finished && !res.passed {
				return outcome{killed, res.reason(), res.output, res.took}
			}
		}
	}
	if !r.tested || m.flags != "" { // -tested says that the tests have passed, but not with flags such as -race
		o := r.checkBaseline(baseline{testCommand: m.testCommand})
		if o.verdict != "" {
			return o
		}
		timeout = m.limit(o.took)
	}
	r.alone.Add(1)
	program, complaint := r.program(baseline{m.testCommand, m.overlay + ".json"})
	if program == "" {
		return outcome{verdict: doesNotBuild, detail: m.reason, output: complaint}
	}
	res := r.runTest(m.testCommand, m.count, timeout, program, "")
	os.Remove(program) // do not keep the programs of all mutants, which would need gigabytes
	switch {
	case !res.finished:
		return outcome{failed, "the test program ended without saying whether the test passed", res.output, res.took}
	case res.passed:
		return outcome{survived, m.reason, fmt.Sprintf("%s %s still passes", m.pkg, m.run), res.took}
	default:
		return outcome{killed, res.reason(), res.output, res.took}
	}
}

// limit returns the time limit for the test with the mutant: the limit in the table, or less if the
// test took little time without the mutant. Many mutants make their test hang, so the limit is as
// short as possible. It is long enough that a slow test is not taken for one that hangs: without
// the mutant, the test ran on the same busy machine.
func (m *mutant) limit(took time.Duration) time.Duration {
	return min(m.timeout, 3*time.Second+4*took*time.Duration(m.count))
}
