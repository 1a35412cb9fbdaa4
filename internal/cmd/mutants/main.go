// Mutants proves that the tests notice when a guarantee is broken.
//
// Every testdata/mutants/*.patch breaks the code in one way and names the test that must then fail. The named test is
// run on the code as it is, where it must pass, and on the code with the patch, where it must fail. A mutant whose test
// still passes has survived: the guarantee is written down but not guarded.
//
// The patched files are handed to `go test` as an overlay. The working tree is never touched, so mutants run side by
// side, and an interrupted run leaves nothing to undo.
//
//	go run ./internal/cmd/mutants [-C root] [-p 4] [-tested] [-v] [name ...]
//
// testdata/mutants/README.md describes the patch files. The tool needs git, for `git apply`.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"
)

// What can become of a mutant. Only killed, and skipped, let the run succeed.
const (
	killed       = "killed"
	survived     = "SURVIVED"
	doesNotApply = "DOES NOT APPLY"
	doesNotBuild = "DOES NOT BUILD"
	badHeader    = "BAD HEADER"
	badBaseline  = "BAD BASELINE" // the test is missing, or fails without the patch
	broken       = "ERROR"
	skipped      = "skipped" // never in CI
)

// An outcome is a mutant's line in the report; output is printed below the line.
type outcome struct{ verdict, detail, output string }

// A spec is the test that a mutant names. Equal specs share one baseline.
type spec struct {
	pkg, run, flags string
	timeout         time.Duration
}

// A runner holds what the mutants of one run share.
type runner struct {
	ctx       context.Context
	root      string // absolute: the overlay goes by file name
	temp      string
	tested    bool // no baseline is needed; a test that is not there fails no mutant, and lets it survive
	mu        sync.Mutex
	baselines map[spec]func() outcome
	programs  map[string]func() (string, string) // by build flags and package: see program
	kits      map[string]func() (kit, error)     // by package
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	code := run(ctx, os.Args[1:], os.Stdout)
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, out io.Writer) int {
	flags := flag.NewFlagSet("mutants", flag.ExitOnError)
	root := flags.String("C", ".", "`root` of the repository")
	parallel := flags.Int("p", 2+runtime.NumCPU(), "`number` of mutants to run at a time; some wait for what does not come")
	tested := flags.Bool("tested", false, "all tests have just passed: do not run them without the patches again")
	verbose := flags.Bool("v", false, "print what the killing test said: does it fail for the right reason?")
	flags.Parse(args)

	dir, _ := filepath.Abs(*root)
	temp, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		fmt.Fprintln(out, "mutants:", err)
		return 2
	}
	defer os.RemoveAll(temp)
	r := &runner{ctx: ctx, root: dir, temp: temp, tested: *tested,
		baselines: map[spec]func() outcome{}, programs: map[string]func() (string, string){}, kits: map[string]func() (kit, error){}}
	names := flags.Args()
	if len(names) == 0 {
		names, _ = filepath.Glob(filepath.Join(dir, "testdata", "mutants", "*.patch"))
	}
	if len(names) == 0 { // an empty folder, or the wrong one, proves nothing and must not look like success
		fmt.Fprintln(out, "mutants: no patches in", filepath.Join(dir, "testdata", "mutants"))
		return 2
	}

	var (
		begin = time.Now()
		slots = make(chan struct{}, max(1, *parallel))
		count = map[string]int{}
		left  []string // not killed
		print sync.Mutex
		wait  sync.WaitGroup
	)
	for _, name := range names {
		name = strings.TrimSuffix(filepath.Base(name), ".patch")
		slots <- struct{}{} // taken here, so that mutants start in the order of their names
		wait.Go(func() {
			defer func() { <-slots }()
			start := time.Now()
			o := r.try(name)
			if ctx.Err() != nil {
				o = outcome{broken, "interrupted", ""}
			}
			print.Lock()
			defer print.Unlock()
			count[o.verdict]++
			if o.verdict != killed && o.verdict != skipped {
				left = append(left, name)
			}
			fmt.Fprintf(out, "%-14s %6.1fs  %s: %s\n", o.verdict, time.Since(start).Seconds(), name, o.detail)
			if text := strings.TrimSpace(o.output); text != "" && (o.verdict != killed || *verbose) {
				fmt.Fprintf(out, "\t%s\n", strings.ReplaceAll(text, "\n", "\n\t"))
			}
		})
	}
	wait.Wait()
	fmt.Fprintf(out, "mutants: %d killed, %d not killed, %d skipped, in %.1fs\n",
		count[killed], len(left), count[skipped], time.Since(begin).Seconds())
	for _, name := range left { // again, at the end of what may be long
		fmt.Fprintf(out, "not killed: %s\n", name)
	}
	return min(len(left), 1)
}

// try runs one mutant, cheapest check first.
func (r *runner) try(name string) outcome {
	path := filepath.Join(r.root, "testdata", "mutants", name+".patch")
	why, s, err := readHeader(path)
	if err != nil {
		return outcome{badHeader, err.Error(), ""}
	}
	overlay, err := r.overlay(name, path)
	if err != nil {
		return outcome{doesNotApply, why, err.Error()}
	}
	if !r.tested || s.flags != "" { // nobody else has run it with these flags
		if o := r.baseline(s); o.verdict != "" {
			return o
		}
	}
	cmd := r.patched(s, overlay)
	if program := r.relink(s, overlay); program != "" {
		defer os.Remove(program)
		cmd = r.prebuilt(s, program)
	}
	switch res := r.result(s, cmd); {
	case !res.built:
		return outcome{doesNotBuild, why, res.output}
	case !res.finished:
		return outcome{broken, "go test came to no verdict", res.output}
	case res.passed:
		return outcome{survived, why, fmt.Sprintf("%s %s still passes", s.pkg, s.run)}
	default:
		return outcome{killed, res.reason(), res.output}
	}
}

// baseline checks that the named test exists and passes without the patch: a test that fails anyway, or does not run,
// proves nothing. The zero outcome says that all is well.
func (r *runner) baseline(s spec) outcome {
	r.mu.Lock()
	check := r.baselines[s]
	if check == nil {
		check = sync.OnceValue(func() outcome {
			if strings.Contains(s.flags, "-race") && os.Getenv("CI") == "" {
				cgo, _ := exec.CommandContext(r.ctx, "go", "env", "CGO_ENABLED").Output() // 0 without a C compiler
				if strings.TrimSpace(string(cgo)) == "0" {
					return outcome{skipped, "-race needs a C compiler", ""}
				}
			}
			program, complaint := r.program(s)
			if program == "" {
				return outcome{badBaseline, fmt.Sprintf("%s does not build without the patch", s.pkg), complaint}
			}
			switch res := r.result(s, r.prebuilt(s, program)); {
			case !res.passed:
				return outcome{badBaseline, fmt.Sprintf("%s %s fails without the patch", s.pkg, s.run), res.output}
			case res.passes == 0:
				return outcome{badBaseline, fmt.Sprintf("%s has no test %s, or skips it", s.pkg, s.run), ""}
			}
			return outcome{}
		})
		r.baselines[s] = check
	}
	r.mu.Unlock()
	return check()
}

// readHeader reads the lines above the diff. A line it does not know is an error: a misspelt "Flags:" must not be lost.
func readHeader(path string) (why string, s spec, err error) {
	text, err := os.ReadFile(path)
	s.timeout = time.Minute
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "diff --git ") || strings.HasPrefix(line, "--- ") {
			break
		}
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch {
		case line == "":
		case line[0] == '#': // the first says what breaks, the others may explain
			why = cmp.Or(why, strings.TrimSpace(line[1:]))
		case key == "Test":
			s.pkg, s.run, _ = strings.Cut(value, " ")
		case key == "Flags":
			s.flags = value
		case key == "Timeout":
			if s.timeout, err = time.ParseDuration(value); err != nil {
				return why, s, err
			}
		default:
			return why, s, fmt.Errorf("%q is neither # … nor Test: …, Flags: …, Timeout: …", line)
		}
	}
	if err == nil && (why == "" || s.pkg == "" || s.run == "") {
		err = errors.New("the header needs `# what it breaks` and `Test: ./package TestRegexp`")
	}
	return why, s, err
}

// overlay applies the patch to copies of the files it touches, in a folder that it returns; the file for `go test -overlay`
// has its name with .json.
func (r *runner) overlay(name, patch string) (string, error) {
	dir := filepath.Join(r.temp, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	stat, err := r.gitApply(dir, "--numstat", "-z", patch) // "added \t removed \t name \0" for each file
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for entry := range strings.SplitSeq(strings.TrimSuffix(stat, "\x00"), "\x00") {
		file := entry[strings.LastIndexByte(entry, '\t')+1:]
		if strings.HasSuffix(file, "_test.go") {
			return "", errors.New(file + " is a test: a mutant breaks the code, not what checks it")
		}
		from, to := filepath.Join(r.root, file), filepath.Join(dir, file)
		text, err := os.ReadFile(from)
		if err == nil {
			err = errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, text, 0o644))
		}
		if err != nil {
			return "", err
		}
		replace[from] = to
	}
	if _, err := r.gitApply(dir, "--whitespace=nowarn", patch); err != nil {
		return "", err
	}
	for from, to := range replace {
		before, err := os.ReadFile(from)
		after, err2 := os.ReadFile(to)
		if err := errors.Join(err, err2); err != nil {
			return "", err
		}
		if strings.HasSuffix(to, ".go") {
			os.WriteFile(to, []byte(align(string(before), string(after))), 0o644)
		}
	}
	text, _ := json.Marshal(map[string]any{"Replace": replace})
	return dir, os.WriteFile(dir+".json", text, 0o644)
}

// gitApply is strict: every line of context must match, though it may be found further up or down. It runs outside of
// any repository: inside one, git silently passes over files that are not below the current folder.
func (r *runner) gitApply(dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(r.ctx, "git", append([]string{"-c", "core.autocrlf=false", "apply"}, args...)...)
	cmd.Dir = dir
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "GIT_") { // set when a hook runs us
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, "GIT_CEILING_DIRECTORIES="+r.temp)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stdout, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("git apply: %w\n%s", err, stderr.String())
	}
	return string(stdout), err
}

// A result is what one run of `go test` said.
type result struct {
	built, finished, passed bool
	passes                  int    // tests that ran and passed, as deep as the name goes
	failing                 string // the first test that failed; none if the test program failed around its tests
	output                  string
}

// quicker leaves out what only debuggers read. That is a sixth of what it takes to build a test program.
var quicker = []string{"-gcflags=-dwarf=false", "-ldflags=-w"}

// patched is the command that builds the test program with the patch and runs the named test. -json is what tells a test that fails from one that does
// not build. vet is off because many a mutant is just what vet warns of. The mutant's own flags come last, so that they win.
// A test that outlives its timeout is ended by go test.
func (r *runner) patched(s spec, overlay string) *exec.Cmd {
	args := []string{"test", "-json", "-vet=off", "-failfast", "-count=1", "-timeout=" + s.timeout.String(), "-run=" + s.run, "-overlay=" + overlay + ".json"}
	args = append(append(append(args, quicker...), strings.Fields(s.flags)...), s.pkg)
	cmd := exec.CommandContext(r.ctx, "go", args...)
	cmd.Dir = r.root
	return cmd
}

// prebuilt is the command that runs it in a test program that is there already, with the patch or without, as go test does.
func (r *runner) prebuilt(s spec, program string) *exec.Cmd {
	args := []string{"-t", program, "-test.v=test2json", "-test.paniconexit0", "-test.failfast", "-test.count=1",
		"-test.timeout=" + s.timeout.String(), "-test.run=" + s.run}
	_, run := s.sorted()
	for _, f := range run {
		args = append(args, "-test."+strings.TrimLeft(f, "-"))
	}
	tool, err := test2json()
	if err != nil {
		tool, args = "go", append([]string{"tool", "test2json"}, args...) // which says what is wrong
	}
	cmd := exec.CommandContext(r.ctx, tool, args...)
	cmd.Dir = filepath.Join(r.root, s.pkg)
	return cmd
}

// test2json is where the go command has built it: to ask it each time takes an eighth of a second.
var test2json = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "tool", "-n", "test2json").Output()
	return strings.TrimSpace(string(out)), err
})

// sorted returns the flags of the compiler, and those of the test program.
func (s spec) sorted() (build, run []string) {
	for f := range strings.FieldsSeq(s.flags) {
		switch name, _, _ := strings.Cut(strings.TrimLeft(f, "-"), "="); name {
		case "race", "tags", "gcflags", "ldflags":
			build = append(build, f)
		default:
			run = append(run, f)
		}
	}
	return build, run
}

// program builds the tests of a package without a patch, once for all baselines: to link them takes longer than to run
// most. Where that fails, it returns what the compiler says.
func (r *runner) program(s spec) (file, complaint string) {
	build, _ := s.sorted()
	key := strings.Join(append(build, s.pkg), " ")
	r.mu.Lock()
	once := r.programs[key]
	if once == nil {
		file := filepath.Join(r.temp, fmt.Sprintf("baseline-%d.test", len(r.programs)))
		once = sync.OnceValues(func() (string, string) {
			args := append(append([]string{"test", "-c", "-vet=off", "-o", file}, quicker...), build...)
			cmd := exec.CommandContext(r.ctx, "go", append(args, s.pkg)...)
			cmd.Dir = r.root
			if out, err := cmd.CombinedOutput(); err != nil {
				return "", string(out)
			}
			return file, ""
		})
		r.programs[key] = once
	}
	r.mu.Unlock()
	return once()
}

// result runs a command that reports on tests in the format of go test -json.
func (r *runner) result(s spec, cmd *exec.Cmd) (res result) {
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()

	var text strings.Builder
	var running string // a test that times out gets no "fail"
	var fail, pass int // packages
	res.built = true
	for line := range bytes.Lines(out) {
		var e struct{ Action, Test, Output, FailedBuild string }
		if json.Unmarshal(line, &e) != nil {
			e.Output = string(line)
		}
		text.WriteString(e.Output)
		switch {
		case e.Action == "run":
			running = e.Test
		case e.Action == "fail" && e.Test != "":
			res.failing = cmp.Or(res.failing, e.Test)
		case e.Action == "fail":
			fail++
			res.built = res.built && e.FailedBuild == ""
		case e.Action == "pass" && e.Test != "":
			running = ""
			// A parent passes although the subtest that was asked for does not exist.
			if strings.Count(e.Test, "/") >= strings.Count(s.run, "/") {
				res.passes++
			}
		case e.Action == "pass":
			pass++
		}
	}
	if err != nil && fail == 0 {
		fmt.Fprintln(&text, err)
	}
	if err != nil && cmp.Or(res.failing, running) != "" {
		fail++ // without go test around it, a program that panics has no last word on the package
	}
	// Interrupted, or given a flag it does not know, go test ends without a word on any package or test.
	res.finished = r.ctx.Err() == nil && (fail > 0 || err == nil && pass > 0)
	res.passed = res.finished && fail == 0
	res.failing = cmp.Or(res.failing, running)
	res.output = strings.ReplaceAll(text.String(), r.temp+string(os.PathSeparator), "")
	return res
}

// reason says how the test failed. A timeout kills like any failure, but who reads of one may want a quicker test.
func (r result) reason() string {
	test := cmp.Or(r.failing, "the test program")
	for _, s := range [][2]string{
		{"panic: test timed out after ", "times out"},
		{"WARNING: DATA RACE", "has a data race"},
		{"fatal error: all goroutines are asleep", "deadlocks"},
		{"panic: deadlock: ", "deadlocks"}, // in a synctest bubble
		{"panic: ", "panics"},
	} {
		if strings.Contains(r.output, s[0]) {
			return test + " " + s[1]
		}
	}
	return test + " fails"
}
