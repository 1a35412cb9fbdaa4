package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// A baseline is a test, and the code in which it runs while no mutant is chosen. A baseline is also
// the key of a compiled test program; then its testCommand has only the package and the compiler
// flags.
type baseline struct {
	testCommand
	overlay string // the file of the overlay, which many mutants may share; "" for the code as it is
}

// baselineTimeout is the time limit of a test without a mutant. It is longer than any in the
// tables, because the test runs beside others.
const baselineTimeout = 5 * time.Minute

// checkBaseline checks that the named test exists and passes while no mutant is chosen. If the test
// fails without a mutant, or does not run, its failure with the mutant proves nothing. It returns
// an outcome without a verdict if all is well. Mutants with the same baseline share one check.
func (r *runner) checkBaseline(b baseline) outcome {
	r.mu.Lock()
	check := r.baselines[b]
	if check == nil {
		check = sync.OnceValue(func() outcome {
			if strings.Contains(b.flags, "-race") && os.Getenv("CI") == "" {
				// CGO_ENABLED is 0 if there is no C compiler.
				cgo, _ := exec.CommandContext(r.ctx, "go", "env", "CGO_ENABLED").Output()
				if strings.TrimSpace(string(cgo)) == "0" {
					return outcome{verdict: skipped, detail: "-race needs a C compiler"}
				}
			}
			program, complaint := r.program(b)
			if program == "" {
				return outcome{verdict: badBaseline, detail: fmt.Sprintf("%s does not build without the mutant", b.pkg), output: complaint}
			}
			chosen := ""
			if b.overlay != "" {
				chosen = noMutant
			}
			res := r.runTest(b.testCommand, 1, baselineTimeout, program, chosen)
			switch {
			case !res.passed:
				return outcome{verdict: badBaseline, detail: fmt.Sprintf("%s %s fails without the mutant", b.pkg, b.run), output: res.output}
			case res.passes == 0:
				return outcome{verdict: badBaseline, detail: fmt.Sprintf("%s has no test %s, or skips it", b.pkg, b.run)}
			}
			return outcome{took: res.took}
		})
		r.baselines[b] = check
	}
	r.mu.Unlock()
	return check()
}

// command returns the command that runs the test in a program, in the way of go test. chosen is the
// name of a mutant in the program, or [noMutant], or "" if the program has none to choose.
func (r *runner) command(t testCommand, count int, timeout time.Duration, program, chosen string) *exec.Cmd {
	args := []string{"-test.v=test2json", "-test.paniconexit0", "-test.failfast", fmt.Sprint("-test.count=", count),
		"-test.timeout=" + timeout.String(), "-test.run=" + t.run}
	_, runFlags := t.splitFlags()
	for _, f := range runFlags {
		args = append(args, "-test."+strings.TrimLeft(f, "-"))
	}
	cmd := exec.CommandContext(r.ctx, program, args...)
	cmd.Dir = filepath.Join(r.root, t.pkg)
	if chosen != "" {
		cmd.Env = append(os.Environ(), variable+"="+chosen)
	}
	return cmd
}

// splitFlags splits the flags into those for the compiler and those for the test program.
func (t testCommand) splitFlags() (build, run []string) {
	for f := range strings.FieldsSeq(t.flags) {
		switch name, _, _ := strings.Cut(strings.TrimLeft(f, "-"), "="); name {
		case "race", "tags", "gcflags", "ldflags":
			build = append(build, f)
		default:
			run = append(run, f)
		}
	}
	return build, run
}

// program builds the test program of a package, once for all baselines and mutants that use it. If
// the build fails, program returns the output of the compiler.
func (r *runner) program(b baseline) (file, complaint string) {
	b = b.programKey()
	r.mu.Lock()
	once := r.programs[b]
	if once == nil {
		once = sync.OnceValues(func() (string, string) { return r.buildAlone(b) })
		r.programs[b] = once
	}
	r.mu.Unlock()
	return once()
}

// programKey returns the key of the program that runs the test.
func (b baseline) programKey() baseline {
	build, _ := b.splitFlags()
	b.testCommand = testCommand{pkg: b.pkg, flags: strings.Join(build, " ")}
	return b
}

// buildTogether arranges that the shared programs of the mutants are built several at a time: the
// go command needs half a second to read the packages, each time it starts.
func (r *runner) buildTogether(mutants []*mutant) {
	type set struct {
		dir, flags string
		pkgs       []string
		build      func()
	}
	var sets []*set
	for _, m := range slices.Backward(mutants) { // in the order in which runAll starts them
		b := baseline{m.testCommand, r.sharedOverlay()}.programKey()
		if !m.shared || r.programs[b] != nil {
			continue
		}
		// The go command names a program after the last element of the package's path, so these
		// elements differ in a set.
		i := slices.IndexFunc(sets, func(s *set) bool {
			return s.flags == b.flags && len(s.pkgs) < 8 &&
				!slices.ContainsFunc(s.pkgs, func(pkg string) bool { return path.Base(pkg) == path.Base(b.pkg) })
		})
		if i < 0 {
			s := &set{dir: filepath.Join(r.temp, fmt.Sprintf("shared-%d", len(sets))) + string(os.PathSeparator), flags: b.flags}
			s.build = sync.OnceFunc(func() { r.build(s.dir, r.sharedOverlay(), s.flags, s.pkgs...) })
			i, sets = len(sets), append(sets, s)
		}
		s := sets[i]
		s.pkgs = append(s.pkgs, b.pkg)
		r.programs[b] = sync.OnceValues(func() (string, string) {
			s.build()
			file := s.dir + path.Base(b.pkg) + ".test"
			if _, err := os.Stat(file); err != nil {
				return r.buildAlone(b) // returns the error of this package
			}
			return file, ""
		})
	}
}

// buildAlone builds one test program, and returns the output of the compiler if that fails.
func (r *runner) buildAlone(b baseline) (file, complaint string) {
	r.mu.Lock()
	r.built++
	file = filepath.Join(r.temp, fmt.Sprintf("program-%d.test", r.built))
	r.mu.Unlock()
	if complaint = r.build(file, b.overlay, b.flags, b.pkg); complaint != "" {
		return "", complaint
	}
	return file, ""
}

// build builds the test programs of packages into a file or, if its name ends with a separator, a
// folder. It returns the output of the go command, or "" if all is well. vet is off because it
// would reject many mutants.
func (r *runner) build(file, overlay, flags string, pkgs ...string) (complaint string) {
	r.builds <- struct{}{}
	defer func() { <-r.builds }()
	args := append([]string{"test", "-c", "-vet=off", "-ldflags=-w", "-o", file, "-overlay=" + overlay}, strings.Fields(flags)...)
	cmd := exec.CommandContext(r.ctx, "go", append(args, pkgs...)...)
	cmd.Dir = r.root
	out, err := cmd.CombinedOutput()
	if err == nil {
		return ""
	}
	return r.shorten(string(out) + err.Error())
}

// shorten returns output without the name of the temporary folder.
func (r *runner) shorten(output string) string {
	return strings.ReplaceAll(output, r.temp+string(os.PathSeparator), "")
}

// A result is the result of one run of a test.
type result struct {
	finished, passed bool
	passes           int    // number of tests that ran and passed, including subtests if the pattern names some
	failing          string // the first test that failed; "" if the test program failed outside of its tests
	output           string
	took             time.Duration
}

// runTest runs a test up to count times, until it fails. The test is in the given program. The
// method command describes the parameter chosen.
func (r *runner) runTest(t testCommand, count int, timeout time.Duration, program, chosen string) (res result) {
	r.runs <- struct{}{}
	defer func() { <-r.runs }()
	cmd := r.command(t, count, timeout, program, chosen)
	inGroup(cmd)
	start := time.Now()
	out, err := runWithFile(cmd, r.temp)
	res.took = time.Since(start)

	var text strings.Builder
	// running is the name of the running test. A program that times out prints no line that says
	// which test has failed. Then it is the running test.
	var running string
	for line := range strings.Lines(string(out)) {
		before, report, isReport := strings.Cut(line, marker)
		text.WriteString(before + report)
		verb, name, _ := strings.Cut(strings.TrimSpace(report), ": ")
		name, _, _ = strings.Cut(name, " (") // cut off the duration, which is in parentheses
		switch {
		case !isReport:
		case strings.HasPrefix(report, "=== RUN "):
			running = strings.TrimSpace(strings.TrimPrefix(report, "=== RUN "))
		case verb == "--- FAIL":
			res.failing = cmp.Or(res.failing, name)
		case verb == "--- PASS":
			running = ""
			// If the flag -run names a subtest that does not exist, its parent test passes. So
			// count only tests at the level of the name in -run.
			if strings.Count(name, "/") >= strings.Count(t.run, "/") {
				res.passes++
			}
		}
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		fmt.Fprintln(&text, err)
	}
	// If the run is interrupted or the program cannot be started, the result says nothing about the
	// test.
	res.finished = r.ctx.Err() == nil && (err == nil || exit != nil)
	res.passed = err == nil && res.finished
	res.failing = cmp.Or(res.failing, running)
	res.output = r.shorten(text.String())
	return res
}

// runWithFile runs a command, kills the processes that it leaves, and returns the output. It uses a
// file in the folder temp, because a pipe would have no end while a process that is left has it
// open.
func runWithFile(cmd *exec.Cmd, temp string) ([]byte, error) {
	file, err := os.CreateTemp(temp, "output-")
	if err != nil {
		return nil, err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	cmd.Stdout, cmd.Stderr = file, file
	err = cmd.Run()
	killGroup(cmd)
	out, failed := os.ReadFile(file.Name())
	return out, cmp.Or(err, failed)
}

// marker begins each line that a test program itself prints about its tests, with
// -test.v=test2json. If a test has printed an unfinished line, the marker is in the middle of a
// line.
const marker = "\x16"

// reason says in words how the test failed. A mutant counts as killed if the test times out, but
// each run then takes the whole time limit. So the report says that it was a timeout.
func (r result) reason() string {
	test := cmp.Or(r.failing, "the test program")
	for _, s := range [][2]string{
		{"panic: test timed out after ", "times out"},
		{"WARNING: DATA RACE", "has a data race"},
		{"fatal error: all goroutines are asleep", "deadlocks"},
		{"panic: deadlock: ", "deadlocks"}, // package synctest reports a deadlock in a bubble by this panic
		{"panic: ", "panics"},
	} {
		if strings.Contains(r.output, s[0]) {
			return test + " " + s[1]
		}
	}
	return test + " fails"
}
