package main_test

import (
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

// TestSwansongvet_RunsUnderGoVet builds the command and runs it under the installed go vet.
func TestSwansongvet_RunsUnderGoVet(t *testing.T) {
	tool := filepath.Join(t.TempDir(), "swansongvet")
	if runtime.GOOS == "windows" {
		tool += ".exe"
	}
	if out, err := exec.Command("go", "build", "-o", tool, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	vet := func(args ...string) (findings []string, failed bool) {
		cmd := exec.Command("go", append([]string{"vet", "-vettool=" + tool}, args...)...)
		cmd.Dir = filepath.Join("..", "..", "testdata")
		cmd.Env = append(os.Environ(), "GOWORK=off")
		out, err := cmd.CombinedOutput()
		for line := range strings.Lines(string(out)) {
			if m := finding.FindStringSubmatch(filepath.ToSlash(line)); m != nil {
				findings = append(findings, m[1]+": "+m[2])
			}
		}
		return findings, err != nil
	}
	for _, c := range []struct {
		name, flag, pkg string
		want            []string
	}{
		{"all checks", "", "./lostscope/program", []string{"lostscope/program/main.go:14: the scope s is not shut down when the function returns at line 16"}},
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
			got, failed := vet(args...)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
			if failed != (len(c.want) > 0) {
				t.Errorf("go vet failed: %v", failed)
			}
		})
	}
}

// finding matches file.go:line:column: message; what to do.
var finding = regexp.MustCompile(`(?m)^(?:\./)?(.+\.go:\d+):\d+: ([^;]+);`)
