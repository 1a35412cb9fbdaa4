//go:build unix

// Command measure measures a launcher with real processes: a thousand shutdowns in mixed behaviors against the success
// metrics of RFC-041, by how much the ends of stuck processes miss their deadline, how long replacements take and how long
// clients wait for them, and what a launcher costs that has nothing to do.
//
//	go run ./launcher/internal/measure [-shutdowns 1000] [-stuck 50] [-rolls 20] [-children 200] [-write]
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/swansong-go/swansong/internal/machine"
	"github.com/swansong-go/swansong/launcher"
	"github.com/swansong-go/swansong/launcher/internal/testrunner"
)

// role has the program be a subprocess of itself.
const role = "LAUNCHER_MEASURE_ROLE"

func main() {
	switch os.Getenv(role) {
	case "testrunner":
		os.Exit(testrunner.Main(os.Args[1:], os.Stderr))
	case "stuck":
		fatal(stuckProcess(os.Args[1]))
	case "idle":
		if err := idleLauncher(os.Args[1:]); err != nil {
			fatal(err)
		}
		return
	}
	n := flag.Int("shutdowns", 1000, "how many")
	times := flag.Int("stuck", 50, "shutdowns of each kind of stuck processes")
	rolls := flag.Int("rolls", 20, "how many of each kind")
	children := flag.Int("children", 200, "idle ones")
	write := flag.Bool("write", false, "also write docs/launcher-figures.md")
	flag.Parse()
	var page strings.Builder
	w := io.MultiWriter(os.Stdout, &page)
	fmt.Fprintf(w, "Measured %s on %s.\n", time.Now().Format(time.DateOnly), machine.String())
	for _, part := range []func() error{
		func() error { return shutdowns(w, *n) },
		func() error { return deadlines(w, *times) },
		func() error { return replacements(w, *rolls) },
		func() error { return idle(w, *children) },
	} {
		if err := part(); err != nil {
			fatal(err)
		}
	}
	if *write {
		if err := os.WriteFile("docs/launcher-figures.md", []byte(head+page.String()), 0o666); err != nil {
			fatal(fmt.Errorf("run it from the root of the repository: %w", err))
		}
	}
}

const head = `# launcher, measured

Produced by ` + "`make bench`" + `; do not edit.

`

func fatal(err error) {
	fmt.Fprintln(os.Stderr, "measure:", err)
	os.Exit(1)
}

// runners is a group of test runners with the defaults of the launcher.
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

// shortDir is a directory that is removed by done.
func shortDir() (dir string, done func(), err error) {
	dir, err = os.MkdirTemp("", "swm")
	return dir, func() { os.RemoveAll(dir) }, err
}

// spread is the median and the largest.
func spread(all []time.Duration) string {
	if len(all) == 0 {
		return "–"
	}
	slices.Sort(all)
	return fmt.Sprintf("%v (%v)", round(at(all, 50)), round(all[len(all)-1]))
}

// at is a percentile of what is sorted, 0 of nothing.
func at(all []time.Duration, percent int) time.Duration {
	if len(all) == 0 {
		return 0
	}
	return all[min(len(all)-1, len(all)*percent/100)]
}

func round(d time.Duration) time.Duration {
	if d > time.Second {
		return d.Round(10 * time.Millisecond)
	}
	return d.Round(time.Millisecond)
}
