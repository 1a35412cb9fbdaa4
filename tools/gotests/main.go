// Gotests runs tests of other projects with httpdrain in place of net/http: those of Go's net/http
// and httputil, and those of two websocket libraries. They start their servers with package
// httptest. An overlay for the go command makes httptest serve them by httpdrain.Serve, and those
// with TLS by Serve on a TLS listener in one run and by ServeTLS in another.
//
// Gotests fails if a test that passes with net/http alone does not pass with httpdrain, unless it
// is listed here with a reason. It changes no file, and copies none of Go's into this repository.
//
//	go run ./tools/gotests [package ...]
package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"go/version"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// A suite is the tests of some packages.
type suite struct {
	module   string // the folder of the module whose go.mod has the versions of the packages
	packages []string
	atLeast  int // the minimum number of tests that must pass; with fewer, something other than httpdrain is wrong
}

var suites = []suite{
	{".", []string{"net/http", "net/http/httptest", "net/http/httputil"}, 1500},
	{"internal/integration", []string{"github.com/coder/websocket", "github.com/gorilla/websocket"}, 250},
}

// skipped are tests that build programs, which takes half a minute. They start no server.
const skipped = "^(TestOmitHTTP2|TestOmitHTTP2Vet|TestCmdGoNoHTTPServer)$"

// The ways to serve. The environment variable tells the tests which way to use.
const (
	wayVariable = "SWANSONG_GOTESTS_WAY"
	plain       = "net/http"
	serve       = "Serve"
	serveTLS    = "ServeTLS"
)

// A result identifies the result of a test that was run with one way to serve.
type result struct{ way, pkg, test string }

// A difference is why a test passes with net/http alone but not with httpdrain.
type difference struct {
	since string // the first release of Go in which the test fails with httpdrain
	why   string
}

var known = map[result]difference{
	{serve, "net/http", "TestServerShutdown/h2"}: {"go1.26", "It calls Shutdown of the server, which a program that uses httpdrain must not. " +
		"On a TLS listener, net/http never learns that an HTTP/2 connection is active."},
	{serve, "net/http", "TestServerKeepAlivesEnabled/h2"}:    {"go1.27", keepAlives},
	{serveTLS, "net/http", "TestServerKeepAlivesEnabled/h2"}: {"go1.27", keepAlives},
}

const keepAlives = "It calls SetKeepAlivesEnabled, which a program that uses httpdrain must not. " +
	"net/http does not pass the call on to the server that httpdrain uses for HTTP/2."

// isKnown reports whether r, or a subtest of it, is known not to pass.
func isKnown(r result) bool {
	for k, d := range known {
		if k.way == r.way && k.pkg == r.pkg && (k.test == r.test || strings.HasPrefix(k.test, r.test+"/")) &&
			version.Compare(version.Lang(runtime.Version()), d.since) >= 0 {
			return true
		}
	}
	return false
}

// tries is how often a test that fails with httpdrain is run, until it passes. Some tests of
// net/http fail on a busy machine.
const tries = 4

func main() {
	flag.Parse()
	err := run(flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "gotests:", err)
		os.Exit(1)
	}
}

func run(packages []string) error {
	root, err := filepath.Abs(".")
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "gotests-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	overlay, err := writeOverlay(root, dir)
	if err != nil {
		return err
	}
	failed := false
	for _, s := range suites {
		if len(packages) > 0 {
			s.atLeast = 0
			s.packages = slices.DeleteFunc(slices.Clone(s.packages), func(p string) bool { return !slices.Contains(packages, p) })
			if len(s.packages) == 0 {
				continue
			}
		}
		s.module = filepath.Join(root, s.module)
		want, _, err := s.run(plain, overlay, "-skip="+skipped)
		if err != nil {
			return err
		}
		for _, way := range []string{serve, serveTLS} {
			ok, err := s.compare(way, overlay, want)
			if err != nil {
				return err
			}
			failed = failed || !ok
		}
	}
	if failed {
		return fmt.Errorf("tests pass with net/http alone but not with httpdrain: see above")
	}
	return nil
}

// outcomes are the outcomes of tests, pass, fail or skip, by package and name.
type outcomes map[result]string

// compare runs the tests with httpdrain, and prints how they differ from want, the outcomes with
// net/http alone. It reports whether each test that passes with net/http alone also passes with
// httpdrain, or is known not to.
func (s suite) compare(way, overlay string, want outcomes) (ok bool, err error) {
	got, output, err := s.run(way, overlay, "-skip="+skipped)
	if err != nil {
		return false, err
	}
	ok = true
	total := 0
	for _, pkg := range s.packages {
		passed, differ := 0, 0
		var failed []result
		for _, r := range slices.SortedFunc(maps.Keys(want), func(a, b result) int { return cmp.Compare(a.test, b.test) }) {
			if r.pkg != pkg || want[r] != "pass" {
				continue
			}
			r.way = way
			switch passes, isKnown := got[r] == "pass", isKnown(r); {
			case passes:
				passed++
				// A test on the list of tests that do not pass may pass by chance. That is no
				// failure.
				if isKnown {
					fmt.Printf("%s %s passed with %s; if it passes every time, remove it from the list of those that do not\n", pkg, r.test, way)
				}
			case isKnown:
				differ++
			default:
				failed = append(failed, r)
			}
		}
		of := passed + differ + len(failed)
		again, err := s.repeat(failed, overlay, output[pkg])
		if err != nil {
			return false, err
		}
		for _, r := range again {
			ok = false
			fmt.Printf("%s %s fails with %s\n", pkg, r.test, way)
		}
		passed += len(failed) - len(again)
		fmt.Printf("%-30s %-8s  %4d of %d tests pass as with net/http alone, %d are known not to\n", pkg, way, passed, of, differ)
		total += passed
	}
	if total < s.atLeast {
		return false, fmt.Errorf("with %s, %d tests passed; the suite requires at least %d", way, total, s.atLeast)
	}
	return ok, nil
}

// repeat runs the failed tests of a package until each has passed once, or has been run tries times
// in all. It returns those that have not passed. It prints the end of output, which the package
// printed when they failed. It runs them in one process and not in one each, because there may be
// many: if the first process died, most tests of the package have failed.
func (s suite) repeat(failed []result, overlay, output string) ([]result, error) {
	for range tries - 1 {
		if len(failed) == 0 {
			return nil, nil
		}
		var names []string
		for _, r := range failed {
			// Some subtests need the subtests before them, so the whole test is run.
			name, _, _ := strings.Cut(r.test, "/")
			names = append(names, regexp.QuoteMeta(name))
		}
		names = slices.Compact(names)
		fmt.Printf("%s\n%d tests of %s failed with %s and are run again: %s\n",
			output[max(0, len(output)-10_000):], len(failed), failed[0].pkg, failed[0].way, strings.Join(names[:min(20, len(names))], " "))
		s.packages = []string{failed[0].pkg}
		got, outputs, err := s.run(failed[0].way, overlay, "-count=1", "-run=^("+strings.Join(names, "|")+")$", "-skip="+skipped)
		if err != nil {
			return nil, err
		}
		output = outputs[failed[0].pkg]
		failed = slices.DeleteFunc(failed, func(r result) bool { return got[r] == "pass" })
	}
	return failed, nil
}

// run runs tests, which may fail, and returns their outcomes and what each package prints.
func (s suite) run(way, overlay string, flags ...string) (all outcomes, output map[string]string, err error) {
	args := slices.Concat([]string{"test", "-json", "-short", "-vet=off", "-timeout=2m"}, flags, s.packages)
	if way != plain {
		args = slices.Insert(args, 1, "-overlay="+overlay)
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = s.module
	cmd.Env = append(os.Environ(), wayVariable+"="+way)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, _ := cmd.Output() // ignore the error: it says only that a test has failed
	all = outcomes{}
	printed := map[string]*strings.Builder{}
	for _, pkg := range s.packages {
		printed[pkg] = &strings.Builder{}
	}
	ran := map[string]bool{}
	for dec := json.NewDecoder(bytes.NewReader(out)); dec.More(); {
		var e struct{ Action, Package, Test, Output string }
		if err := dec.Decode(&e); err != nil {
			return nil, nil, fmt.Errorf("%s: %w\n%s", cmd, err, &stderr)
		}
		if b := printed[e.Package]; b != nil {
			b.WriteString(e.Output)
		}
		if e.Test != "" && slices.Contains([]string{"pass", "fail", "skip"}, e.Action) {
			all[result{way, e.Package, e.Test}] = e.Action
			ran[e.Package] = true
		}
	}
	output = map[string]string{}
	for _, pkg := range s.packages {
		output[pkg] = printed[pkg].String()
		if !ran[pkg] {
			return nil, nil, fmt.Errorf("%s: no test of %s has run:\n%s%s", cmd, pkg, &stderr, output[pkg])
		}
	}
	return all, output, nil
}
