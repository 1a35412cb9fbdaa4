package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// A baseline is a test that runs while no mutant is chosen. Where a baseline is the key of a
// compiled test program, its testCommand has only the package and the flags of the compiler.
type baseline struct {
	testCommand
	overlay string // the file of the overlay that many mutants share, or "" for the code as it is
}

// checkBaseline checks that the named test exists and passes while no mutant is chosen. If the test
// fails without a mutant, or does not run, its failure with the mutant proves nothing. It returns
// the zero outcome if all is well. Mutants with the same baseline share one check.
func (r *runner) checkBaseline(b baseline) outcome {
	r.mu.Lock()
	check := r.baselines[b]
	if check == nil {
		check = sync.OnceValue(func() outcome {
			if strings.Contains(b.flags, "-race") && os.Getenv("CI") == "" {
				cgo, _ := exec.CommandContext(r.ctx, "go", "env", "CGO_ENABLED").Output() // the output is 0 if there is no C compiler
				if strings.TrimSpace(string(cgo)) == "0" {
					return outcome{skipped, "-race needs a C compiler", ""}
				}
			}
			program, complaint := r.program(b)
			if program == "" {
				return outcome{badBaseline, fmt.Sprintf("%s does not build without the mutant", b.pkg), complaint}
			}
			chosen := ""
			if b.overlay != "" {
				chosen = noMutant
			}
			switch res := r.runTest(b.testCommand, r.prebuilt(b.testCommand, program, chosen)); {
			case !res.passed:
				return outcome{badBaseline, fmt.Sprintf("%s %s fails without the mutant", b.pkg, b.run), res.output}
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

// goTest returns the command that builds the test program with the mutant and runs the named
// test. -json distinguishes a test that fails from one that does not build. vet is off because it
// would reject many mutants. The mutant's own flags come last, so that they win. go test ends a
// test that runs into its timeout.
func (r *runner) goTest(m *mutant) *exec.Cmd {
	args := []string{"test", "-json", "-vet=off", "-failfast", "-count=1", "-ldflags=-w", "-timeout=" + m.timeout.String(),
		"-run=" + m.run, "-overlay=" + m.overlay + ".json"}
	cmd := exec.CommandContext(r.ctx, "go", append(append(args, strings.Fields(m.flags)...), m.pkg)...)
	cmd.Dir = r.root
	return cmd
}

// prebuilt returns the command that runs the test in a program that exists already, in the way of
// go test. chosen is the name of a mutant in the program, or [noMutant], or "" if the program has
// no mutants.
func (r *runner) prebuilt(t testCommand, program, chosen string) *exec.Cmd {
	args := []string{"-test.v=test2json", "-test.paniconexit0", "-test.failfast", "-test.count=1",
		"-test.timeout=" + t.timeout.String(), "-test.run=" + t.run}
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

// toJSON converts the output of a prebuilt program, which has ended with err, into the format of go
// test -json. test2json does not start the program itself, because the program would then ignore
// [os.Interrupt].
func toJSON(out []byte, err error) []byte {
	tool, failed := test2json()
	if failed == nil {
		cmd := exec.Command(tool, "-t")
		cmd.Stdin = bytes.NewReader(out)
		out, failed = cmd.CombinedOutput()
	}
	if failed != nil {
		out = append(out, failed.Error()...)
	}
	if err != nil { // a program that panics ends without an event for its package
		out = append(out, `{"Action":"fail"}`+"\n"...)
	}
	return out
}

// test2json returns the path of the tool test2json. It asks the go command once, because that takes
// 120 ms.
var test2json = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "tool", "-n", "test2json").Output()
	return strings.TrimSpace(string(out)), err
})

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

// program builds the test program of a package, once for all baselines and mutants that use it.
// If that fails, it returns the output of the compiler.
func (r *runner) program(b baseline) (file, complaint string) {
	build, _ := b.splitFlags()
	b.testCommand = testCommand{pkg: b.pkg, flags: strings.Join(build, " ")}
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

// A result is the result of one run of a test.
type result struct {
	built, finished, passed bool
	passes                  int    // number of tests that ran and passed, including subtests if the pattern names some
	failing                 string // the first test that failed; "" if the test program failed outside of its tests
	output                  string
}

// runTest runs the command of goTest or prebuilt.
func (r *runner) runTest(t testCommand, cmd *exec.Cmd) (res result) {
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	isPrebuilt := cmd.Args[0] != "go"
	if isPrebuilt {
		out = toJSON(out, err)
	}

	var text strings.Builder
	var running string // the test that is running; a test that times out has no "fail" event
	var fail, pass int // numbers of failed and passed packages
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
			// A parent passes even if the subtest that -run names does not exist.
			if strings.Count(e.Test, "/") >= strings.Count(t.run, "/") {
				res.passes++
			}
		case e.Action == "pass":
			pass++
		}
	}
	if err != nil && fail == 0 {
		fmt.Fprintln(&text, err)
	}
	// If go test is interrupted or does not know a flag, it ends without a fail or pass event.
	res.finished = r.ctx.Err() == nil && (fail > 0 || err == nil && pass > 0)
	res.passed = res.finished && fail == 0
	res.failing = cmp.Or(res.failing, running)
	res.output = strings.ReplaceAll(text.String(), r.temp+string(os.PathSeparator), "")
	return res
}

// reason says in words how the test failed. A mutant counts as killed if the test times out, but
// each run then takes the whole time limit. So the report says that it was a timeout.
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
