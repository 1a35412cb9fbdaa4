// Cover reports the test coverage of the core. It fails if the coverage is too low, or if a block
// of statements that no test reaches is not explained.
//
//	go run ./tools/cover [-all] [-o profile]
//
// With -all it also runs the tests of the packages that use the core, and reports on these
// packages.
//
// testdata/uncovered.txt explains each block of the core that the tests may miss: it has the file,
// the text of the line on which the block begins, and the reason. An entry whose text is no longer
// in the file is an error.
package main

import (
	"bufio"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const (
	root  = "github.com/swansong-go/swansong/"
	least = 95 // minimum share of the statements of the core that tests must reach, in percent
	notes = "testdata/uncovered.txt"
)

// The folders of the packages of the core, and of other packages that use the core.
var (
	core   = []string{"ctxshutdown", "internal/packed"}
	others = []string{"shutdowntest", "graceful", "httpdrain", "eventloop", "lspconn", "internal/proc"}
)

func main() {
	all := flag.Bool("all", false, "also report on the packages that use the core")
	out := flag.String("o", "", "write the profile to `file`, in the format of go tool cover (default: delete it)")
	flag.Parse()
	dirs := core
	if *all {
		dirs = slices.Concat(core, others)
	}
	if err := run(dirs, *out, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "cover:", err)
		os.Exit(1)
	}
}

func run(dirs []string, profile string, w io.Writer) error {
	if profile == "" {
		dir, err := os.MkdirTemp("", "cover-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		profile = filepath.Join(dir, "profile")
	}
	found := map[string]block{}
	var blocks []block
	// A block of code that runs only if two goroutines race in a certain way may be executed in one
	// run of the tests and not in another.
	for range 3 {
		var err error
		if blocks, err = measure(dirs, profile, found); err != nil {
			return err
		}
		if explained(blocks, io.Discard) == nil {
			break
		}
	}
	var reached, all int
	for _, dir := range dirs {
		in, of := count(blocks, dir)
		fmt.Fprintf(w, "%-16s %6.1f %% of %d statements\n", dir, 100*float64(in)/float64(max(1, of)), of)
		if slices.Contains(core, dir) {
			reached, all = reached+in, all+of
		}
	}
	var err error
	if reached*100 < all*least {
		err = fmt.Errorf("the tests reach %.1f %% of the statements of the core; the minimum is %d %%", 100*float64(reached)/float64(all), least)
	}
	return errors.Join(err, explained(blocks, w))
}

// A block is a sequence of statements without a branch in between.
type block struct {
	file       string // path, relative to the root of the repository
	from, to   string // begin and end of the block, as line.column
	statements int
	runs       int
}

// measure runs the tests of some packages, and returns all blocks of these packages. The number of
// runs of each block includes the runs in earlier calls of measure, if these calls got the same map
// found. The profile has a line for each block and each package that was tested.
func measure(dirs []string, profile string, found map[string]block) ([]block, error) {
	var packages []string
	for _, dir := range dirs {
		packages = append(packages, "./"+dir)
	}
	args := append([]string{"test", "-count=1", "-coverprofile=" + profile, "-coverpkg=" + strings.Join(packages, ",")}, packages...)
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, out)
	}
	f, err := os.Open(profile)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		// A line has the form path/file.go:12.34,13.5 2 1
		var b block
		place, rest, _ := strings.Cut(strings.TrimPrefix(lines.Text(), root), " ")
		if _, err := fmt.Sscan(rest, &b.statements, &b.runs); err != nil {
			continue // the first line of a profile is its mode and not a block
		}
		b.file, place, _ = strings.Cut(place, ":")
		b.from, b.to, _ = strings.Cut(place, ",")
		key := b.file + ":" + place
		b.runs += found[key].runs
		found[key] = b
	}
	var blocks []block
	for _, b := range found {
		blocks = append(blocks, b)
	}
	slices.SortFunc(blocks, func(a, b block) int { return cmp.Or(cmp.Compare(a.file, b.file), cmp.Compare(a.line(), b.line())) })
	return blocks, lines.Err()
}

func (b block) line() (n int) {
	fmt.Sscan(b.from, &n) // Sscan stops at the dot between line and column
	return n
}

func count(blocks []block, dir string) (reached, all int) {
	for _, b := range blocks {
		if filepath.ToSlash(filepath.Dir(b.file)) != dir {
			continue
		}
		all += b.statements
		if b.runs > 0 {
			reached += b.statements
		}
	}
	return reached, all
}

// explained checks that testdata/uncovered.txt explains every block of the core that was not
// reached, and that the code of all its entries exists. It prints the explanations that apply.
func explained(blocks []block, w io.Writer) error {
	text, err := os.ReadFile(notes)
	if err != nil {
		return err
	}
	source := map[string][]string{}
	lineOf := func(file string, n int) (string, error) {
		if source[file] == nil {
			text, err := os.ReadFile(file)
			if err != nil {
				return "", err
			}
			source[file] = strings.Split(string(text), "\n")
		}
		if n > len(source[file]) {
			return "", fmt.Errorf("%s has no line %d", file, n)
		}
		return strings.TrimSpace(source[file][n-1]), nil
	}
	why := map[string]string{} // by file and line of code: why the tests need not reach the line
	var errs []error
	for entry := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n\n") {
		// an entry has a file, a line of code and a reason; or it is a comment
		parts := strings.SplitN(entry, "\n", 3)
		if strings.HasPrefix(entry, "#") {
			continue
		}
		if len(parts) != 3 {
			errs = append(errs, fmt.Errorf("%s: cannot read %q: an entry has at least three lines: the name of the file, the line of code, and the reason", notes, entry))
			continue
		}
		file, code, reason := parts[0], strings.TrimSpace(parts[1]), strings.Join(strings.Fields(parts[2]), " ")
		if _, err := lineOf(file, 1); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", notes, err))
		} else if !slices.ContainsFunc(source[file], func(l string) bool { return strings.TrimSpace(l) == code }) {
			errs = append(errs, fmt.Errorf("%s: %s no longer has the line %q; delete or change the entry", notes, file, code))
		}
		why[file+"\n"+code] = reason
	}
	for _, b := range blocks {
		if b.runs > 0 || b.statements == 0 || !slices.Contains(core, filepath.ToSlash(filepath.Dir(b.file))) {
			continue
		}
		code, err := lineOf(b.file, b.line())
		if err != nil {
			errs = append(errs, err)
			continue
		}
		reason := why[b.file+"\n"+code]
		if reason == "" {
			errs = append(errs, fmt.Errorf("%s:%d: no test reaches the statements after %q; write a test that does, or say in %s why there is none", b.file, b.line(), code, notes))
			continue
		}
		fmt.Fprintf(w, "%s:%d: not reached: %s\n", b.file, b.line(), reason)
	}
	return errors.Join(errs...)
}
