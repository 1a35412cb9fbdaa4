package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestSwansongvet_RunsUnderGoVet runs the command under the installed go vet.
func TestSwansongvet_RunsUnderGoVet(t *testing.T) {
	tool := build(t)
	for _, c := range []struct {
		name, flag, pkg string
		want            []string
	}{
		{"all checks", "", "./lostscope/program", []string{"lostscope/program/main.go:15: the scope s is not shut down when the function returns at line 17"}},
		{"a scope of another package", "", "./lostguard/indirect", []string{"lostguard/indirect/indirect.go:7: the guard g is not released when the function returns at line 9"}},
		{"one check", "-waitctx", "./lostscope/program", nil},
		{"all but one", "-lostscope=false", "./lostscope/program", nil},
		{"similar code that does not depend on ctxshutdown", "", "./nothing", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := []string{c.pkg}
			if c.flag != "" {
				args = []string{c.flag, c.pkg}
			}
			got, failed := goVet(tool, args...)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
			if failed != (len(c.want) > 0) {
				t.Errorf("go vet failed: %v", failed)
			}
		})
	}
}

// TestSwansongvet_KnowsThatFunctionsSuchAsExitNeverReturn checks that under go vet, the command
// reports the lines of testdata that have a "want" comment, and no others. Some lines without this
// comment do not release a guard because os.Exit, log.Fatal or Fatal of a test never returns. The
// tests of package vet know these functions from a list; the command learns of them by analyzing
// the packages log, os and testing.
func TestSwansongvet_KnowsThatFunctionsSuchAsExitNeverReturn(t *testing.T) {
	found, _ := goVet(build(t), "-lostguard", "./lostguard")
	got := map[string]bool{}
	for _, f := range found {
		place, _, _ := strings.Cut(f, ": ")
		got[place] = true
	}
	want := map[string]bool{}
	for _, name := range []string{"quiet.go", "quiet_test.go", "reported.go"} {
		text, err := os.ReadFile(filepath.Join(testdata, "lostguard", name))
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(text), "\n") {
			if strings.Contains(line, "// want ") {
				want[fmt.Sprintf("lostguard/%s:%d", name, i+1)] = true
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lines with a report (-want +got):\n%s", diff)
	}
}

var testdata = filepath.Join("..", "..", "testdata")

// build builds the command and returns its file.
func build(t *testing.T) (tool string) {
	t.Helper()
	tool = filepath.Join(t.TempDir(), "swansongvet")
	if runtime.GOOS == "windows" {
		tool += ".exe"
	}
	if out, err := exec.Command("go", "build", "-o", tool, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return tool
}

// goVet runs the tool under go vet, in the module of testdata. It returns the reports, each as
// "file:line: message", and whether go vet failed.
func goVet(tool string, args ...string) (findings []string, failed bool) {
	cmd := exec.Command("go", append([]string{"vet", "-vettool=" + tool}, args...)...)
	cmd.Dir = testdata
	cmd.Env = append(os.Environ(), "GOWORK=off")
	out, err := cmd.CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if m := finding.FindStringSubmatch(filepath.ToSlash(line)); m != nil {
			findings = append(findings, m[1]+": "+m[2])
		}
	}
	return findings, err != nil
}

// finding matches file.go:line:column: message; what to do. Not every message says what to do. A
// tab in front of the message marks a related place, which is no finding.
var finding = regexp.MustCompile(`(?m)^(?:\./)?(.+\.go:\d+):\d+: ([^\s;][^;\n]*)`)
