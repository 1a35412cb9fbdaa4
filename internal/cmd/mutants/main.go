// Mutants proves that the tests notice when a guarantee is broken.
//
// Every testdata/mutants/*.patch breaks the code in one way and names the test that must then fail. The named test is
// run on the code as it is, where it must pass, and on the code with the patch, where it must fail. A mutant whose test
// still passes has survived: the guarantee is written down but not guarded.
//
// The patched files are handed to the go command as an overlay. The working tree is never touched, so mutants run side by
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
	"sync/atomic"
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

// A mutant is a patch file that has been read and applied to copies.
type mutant struct {
	name, why string
	spec
	overlay  string   // the folder of the copies
	files    []string // relative to it, and to the root
	together bool     // it is in the overlay that many share
	decided  *outcome // it cannot be tried
}

// A runner holds what the mutants of one run share.
type runner struct {
	ctx       context.Context
	out       io.Writer
	root      string // absolute: the overlay goes by file name
	temp      string
	tested    bool // no baseline is needed; a test that is not there fails no mutant, and lets it survive
	mu        sync.Mutex
	baselines map[base]func() outcome
	programs  map[base]func() (string, string)
	alone     atomic.Int32 // mutants that took a program for themselves
}

// A base is a test in code where no mutant is chosen. For a program, it is any test of the package.
type base struct {
	spec
	overlay string // the file of the one that many share, or none for the code as it is
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
	parallel := flags.Int("p", 3*runtime.NumCPU(), "`number` of mutants to run at a time; many wait for what does not come")
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
	r := &runner{ctx: ctx, out: out, root: dir, temp: temp, tested: *tested,
		baselines: map[base]func() outcome{}, programs: map[base]func() (string, string){}}
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
	mutants := make([]*mutant, len(names))
	for i, name := range names {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			mutants[i] = r.read(strings.TrimSuffix(filepath.Base(name), ".patch"))
		})
	}
	wait.Wait()
	r.together(mutants)
	for _, m := range mutants {
		slots <- struct{}{} // taken here, so that mutants start in the order of their names
		wait.Go(func() {
			defer func() { <-slots }()
			start := time.Now()
			o := r.try(m)
			if ctx.Err() != nil {
				o = outcome{broken, "interrupted", ""}
			}
			print.Lock()
			defer print.Unlock()
			count[o.verdict]++
			if o.verdict != killed && o.verdict != skipped {
				left = append(left, m.name)
			}
			fmt.Fprintf(out, "%-14s %6.1fs  %s: %s\n", o.verdict, time.Since(start).Seconds(), m.name, o.detail)
			if text := strings.TrimSpace(o.output); text != "" && (o.verdict != killed || *verbose) {
				fmt.Fprintf(out, "\t%s\n", strings.ReplaceAll(text, "\n", "\n\t"))
			}
		})
	}
	wait.Wait()
	fmt.Fprintf(out, "mutants: %d killed, %d not killed, %d skipped, in %.1fs; %d were built alone\n",
		count[killed], len(left), count[skipped], time.Since(begin).Seconds(), r.alone.Load())
	for _, name := range left { // again, at the end of what may be long
		fmt.Fprintf(out, "not killed: %s\n", name)
	}
	return min(len(left), 1)
}

// read reads a patch file and applies it.
func (r *runner) read(name string) *mutant {
	m := &mutant{name: name}
	path := filepath.Join(r.root, "testdata", "mutants", name+".patch")
	var err error
	if m.why, m.spec, err = readHeader(path); err != nil {
		m.decided = &outcome{badHeader, err.Error(), ""}
	} else if m.overlay, m.files, err = r.apply(name, path); err != nil {
		m.decided = &outcome{doesNotApply, m.why, err.Error()}
	}
	return m
}

// try runs one mutant.
func (r *runner) try(m *mutant) outcome {
	if m.decided != nil {
		return *m.decided
	}
	if m.together {
		if b := (base{m.spec, r.combined()}); r.baseline(b).verdict == "" {
			program, _ := r.program(b)
			if res := r.result(m.spec, r.prebuilt(m.spec, program, m.name)); res.finished && !res.passed {
				return outcome{killed, res.reason(), res.output}
			}
		}
	}
	if !r.tested || m.flags != "" { // nobody else has run it with these flags
		if o := r.baseline(base{spec: m.spec}); o.verdict != "" {
			return o
		}
	}
	r.alone.Add(1)
	switch res := r.result(m.spec, r.own(m)); {
	case !res.built:
		return outcome{doesNotBuild, m.why, res.output}
	case !res.finished:
		return outcome{broken, "go test came to no verdict", res.output}
	case res.passed:
		return outcome{survived, m.why, fmt.Sprintf("%s %s still passes", m.pkg, m.run)}
	default:
		return outcome{killed, res.reason(), res.output}
	}
}

// baseline checks that the named test exists and passes while no mutant is chosen: a test that fails anyway, or does not
// run, proves nothing. The zero outcome says that all is well.
func (r *runner) baseline(b base) outcome {
	r.mu.Lock()
	check := r.baselines[b]
	if check == nil {
		check = sync.OnceValue(func() outcome {
			if strings.Contains(b.flags, "-race") && os.Getenv("CI") == "" {
				cgo, _ := exec.CommandContext(r.ctx, "go", "env", "CGO_ENABLED").Output() // 0 without a C compiler
				if strings.TrimSpace(string(cgo)) == "0" {
					return outcome{skipped, "-race needs a C compiler", ""}
				}
			}
			program, complaint := r.program(b)
			if program == "" {
				return outcome{badBaseline, fmt.Sprintf("%s does not build without the patch", b.pkg), complaint}
			}
			chosen := ""
			if b.overlay != "" {
				chosen = nobody
			}
			switch res := r.result(b.spec, r.prebuilt(b.spec, program, chosen)); {
			case !res.passed:
				return outcome{badBaseline, fmt.Sprintf("%s %s fails without the patch", b.pkg, b.run), res.output}
			case res.passes == 0:
				return outcome{badBaseline, fmt.Sprintf("%s has no test %s, or skips it", b.pkg, b.run), ""}
			}
			return outcome{}
		})
		r.baselines[b] = check
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

// apply applies the patch to copies of the files it touches, and returns their folder and names; the file for
// `go test -overlay` has the name of the folder with .json.
func (r *runner) apply(name, patch string) (dir string, files []string, err error) {
	dir = filepath.Join(r.temp, "alone", name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", nil, err
	}
	stat, err := r.gitApply(dir, "--numstat", "-z", patch) // "added \t removed \t name \0" for each file
	if err != nil {
		return "", nil, err
	}
	replace := map[string]string{}
	for entry := range strings.SplitSeq(strings.TrimSuffix(stat, "\x00"), "\x00") {
		file := entry[strings.LastIndexByte(entry, '\t')+1:]
		if strings.HasSuffix(file, "_test.go") {
			return "", nil, errors.New(file + " is a test: a mutant breaks the code, not what checks it")
		}
		from, to := filepath.Join(r.root, file), filepath.Join(dir, file)
		text, err := os.ReadFile(from)
		if err == nil {
			err = errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, text, 0o644))
		}
		if err != nil {
			return "", nil, err
		}
		replace[from] = to
		files = append(files, file)
	}
	if _, err := r.gitApply(dir, "--whitespace=nowarn", patch); err != nil {
		return "", nil, err
	}
	text, _ := json.Marshal(map[string]any{"Replace": replace})
	return dir, files, os.WriteFile(dir+".json", text, 0o644)
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

// own is the command that builds the test program with the patch and runs the named test. -json is what tells a test
// that fails from one that does not build. vet is off because many a mutant is just what vet warns of. The mutant's own
// flags come last, so that they win. A test that outlives its timeout is ended by go test.
func (r *runner) own(m *mutant) *exec.Cmd {
	args := []string{"test", "-json", "-vet=off", "-failfast", "-count=1", "-ldflags=-w", "-timeout=" + m.timeout.String(),
		"-run=" + m.run, "-overlay=" + m.overlay + ".json"}
	cmd := exec.CommandContext(r.ctx, "go", append(append(args, strings.Fields(m.flags)...), m.pkg)...)
	cmd.Dir = r.root
	return cmd
}

// prebuilt is the command that runs the test in a program that is there already, as go test does. If the program holds
// mutants, one is chosen, or [nobody].
func (r *runner) prebuilt(s spec, program, chosen string) *exec.Cmd {
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
	if chosen != "" {
		cmd.Env = append(os.Environ(), variable+"="+chosen)
	}
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

// program builds the tests of a package, once for all who run some of them. Where that fails, it returns what the
// compiler says.
func (r *runner) program(b base) (file, complaint string) {
	build, _ := b.sorted()
	b.spec = spec{pkg: b.pkg, flags: strings.Join(build, " ")}
	r.mu.Lock()
	once := r.programs[b]
	if once == nil {
		file := filepath.Join(r.temp, fmt.Sprintf("program-%d.test", len(r.programs)))
		once = sync.OnceValues(func() (string, string) {
			args := append([]string{"test", "-c", "-vet=off", "-ldflags=-w", "-o", file, "-overlay=" + b.overlay}, build...)
			cmd := exec.CommandContext(r.ctx, "go", append(args, b.pkg)...)
			cmd.Dir = r.root
			if out, err := cmd.CombinedOutput(); err != nil {
				return "", string(out)
			}
			return file, ""
		})
		r.programs[b] = once
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
