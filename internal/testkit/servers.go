package testkit

import (
	"os"
	"path/filepath"
	"testing"
)

// LanguageServer returns the path of a program in bin/lsp, the folder of the repository in which
// tools/lsp/install installs language servers. If the program is not there, the test is skipped, or
// fails in CI.
func LanguageServer(t testing.TB, name string) string {
	t.Helper()
	dir, err := os.Getwd()
	for err == nil {
		path := filepath.Join(dir, "bin", "lsp", name)
		if _, err := os.Stat(path); err == nil {
			return path
		}
		if filepath.Dir(dir) == dir {
			break
		}
		dir = filepath.Dir(dir)
	}
	if os.Getenv("CI") != "" {
		t.Fatalf("%s is not installed: run tools/lsp/install", name)
	}
	t.Skipf("%s is not installed: run tools/lsp/install", name)
	return ""
}

// Gopls returns the path of gopls; see [LanguageServer].
func Gopls(t testing.TB) string {
	t.Helper()
	return LanguageServer(t, "gopls")
}
