//go:build unix

// Command measure measures a launcher with real processes:
//
//   - a thousand shutdowns in mixed behaviors, compared with the targets in
//     docs/internals/launcher.md#success-metrics,
//   - how late stuck processes end after their deadline,
//   - how long replacements take, and how long clients wait during them,
//   - whether requests are lost when newer orders supersede rolls, or the launcher is upgraded,
//   - whether requests are lost when a group of 200 processes is rolled and scaled,
//   - whether requests are lost in rolls with probes, of programs that do not know the launcher,
//   - the cost of an idle launcher.
//
// It is run from the root of the repository:
//
//	go run ./launcher/internal/measure [-shutdowns 1000] [-stuck 50] [-rolls 20] [-superseded 50] [-upgrades 100] [-many 200] [-children 200] [-only probes] [-write]
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/swansong-go/swansong/internal/figures"
	"github.com/swansong-go/swansong/launcher"
	"github.com/swansong-go/swansong/launcher/internal/testrunner"
)

// role is the environment variable that makes this program act as one of its own subprocesses.
const role = "LAUNCHER_MEASURE_ROLE"

func main() {
	switch os.Getenv(role) {
	case "testrunner":
		os.Exit(testrunner.Main(os.Args[1:], os.Stderr))
	case "probed":
		if err := probedProcess(os.Args[1]); err != nil {
			fatal(err)
		}
		return
	case "stuck":
		fatal(stuckProcess(os.Args[1]))
	case "idle":
		if err := idleLauncher(os.Args[1:]); err != nil {
			fatal(err)
		}
		return
	}
	n := flag.Int("shutdowns", 1000, "number of shutdowns")
	times := flag.Int("stuck", 50, "number of shutdowns of stuck processes, for each way to be stuck")
	rolls := flag.Int("rolls", 20, "rolls of each kind of group")
	orders := flag.Int("superseded", 50, "rolls that a newer order supersedes")
	upgraded := flag.Int("upgrades", 100, "upgrades of the launcher in place")
	only := flag.String("only", "", "measure only these parts, separated by commas: shutdowns, deadlines, replacements, superseded, upgrades, many, probes, idle")
	crowd := flag.Int("many", 200, "processes of a group that is rolled and scaled")
	children := flag.Int("children", 200, "processes of the idle launcher")
	write := flag.Bool("write", false, "also write docs/measured/launcher-figures.md")
	flag.Parse()
	if *write && *only != "" {
		fatal(errors.New("-write writes all parts; leave out -only"))
	}
	w := figures.NewPage("docs/measured/launcher-figures.md", head)
	fmt.Fprintf(w, "%s.\n", figures.Origin())
	for _, part := range []struct {
		name    string
		measure func() error
	}{
		{"shutdowns", func() error { return shutdowns(w, *n) }},
		{"deadlines", func() error { return deadlines(w, *times) }},
		{"replacements", func() error { return replacements(w, *rolls) }},
		{"superseded", func() error { return superseded(w, *orders) }},
		{"upgrades", func() error { return upgrades(w, *upgraded) }},
		{"many", func() error { return many(w, *crowd) }},
		{"probes", func() error { return probes(w) }},
		{"idle", func() error { return idle(w, *children) }},
	} {
		if *only != "" && !slices.Contains(strings.Split(*only, ","), part.name) {
			continue
		}
		if err := part.measure(); err != nil {
			fatal(err)
		}
	}
	if *write {
		if err := w.Save(); err != nil {
			fatal(err)
		}
	}
	if len(missed) > 0 {
		fatal(fmt.Errorf("the targets are missed: %s", strings.Join(missed, "; ")))
	}
}

// missed lists what was counted and should not have occurred, such as lost requests. The command
// fails if the list is not empty.
var missed []string

// mustBeNone checks that n is 0. If it is not, mustBeNone adds n, with the text that says what was
// counted, to the list missed.
func mustBeNone(what string, n int, args ...any) {
	if n != 0 {
		missed = append(missed, fmt.Sprintf("%d "+what, append([]any{n}, args...)...))
	}
}

const head = `# launcher, measured

Produced by ` + "`make bench`" + `; do not edit.

`

func fatal(err error) {
	fmt.Fprintln(os.Stderr, "measure:", err)
	os.Exit(1)
}

// runners returns a group of test runners with default settings.
func runners(name string, desired int, args ...string) launcher.GroupConfig {
	self, err := os.Executable()
	if err != nil {
		fatal(err)
	}
	return launcher.GroupConfig{
		Name:    name,
		Command: append([]string{self, "--process-id", "{id}"}, args...),
		Env:     []string{role + "=testrunner"},
		Desired: desired,
	}
}

// shortDir returns a new directory with a short path, and a function that removes it.
func shortDir() (dir string, done func(), err error) {
	dir, err = os.MkdirTemp("", "swm")
	return dir, func() { os.RemoveAll(dir) }, err
}

// spread returns the median and, in parentheses, the maximum.
func spread(all []time.Duration) string {
	if len(all) == 0 {
		return "–"
	}
	return fmt.Sprintf("%v (%v)", round(figures.Median(all)), round(slices.Max(all)))
}

func round(d time.Duration) time.Duration {
	if d > time.Second {
		return d.Round(10 * time.Millisecond)
	}
	return d.Round(time.Millisecond)
}
