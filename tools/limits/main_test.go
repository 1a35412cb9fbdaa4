package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/swansong-go/swansong/internal/testkit"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A line of comment may end at column 100 and not at column 101, also in a test. Tabs count as four
// columns. Preformatted text, comments after code, and the output of examples have no limit.
func TestCheck_ListsLongCommentLines(t *testing.T) {
	comment := func(width int) string { return "// " + strings.Repeat("é", width-len("// ")) + "\n" }
	source := "package p\n\n" + comment(100) + "func f() {\n\t" + comment(96) + "\t" + comment(97) + "}\n\n" + comment(101) +
		"//\t" + strings.Repeat("x", 200) + "\nvar v = 1 " + comment(200)
	for name, want := range map[string][]string{
		"p.go":              {":6: the comment ends at column 101, the limit is 100", ":9: the comment ends at column 101, the limit is 100"},
		"p_test.go":         {":6: the comment ends at column 101, the limit is 100", ":9: the comment ends at column 101, the limit is 100"},
		"example_p_test.go": nil,
	} {
		testkit.Equal(t, name, excesses(t, check, name, source), want)
	}
}

// A line of Markdown may end at column 120 and not at column 121. Tables, code blocks, a link alone
// on a line, and pages that a program has written have no limit.
func TestCheckMarkdown_ListsLongLines(t *testing.T) {
	line := func(begin string, width int) string {
		return begin + " " + strings.Repeat("é", width-len(begin)-1) + "\n"
	}
	prose := line("a", 120) + line("- a", 121) + "\n```\n" + line("a", 200) + "```\n\n" + line("a", 121)
	exempt := line("|", 200) + line("    a", 200) + "- [" + strings.Repeat("x", 200) + "](page.md)\n"
	for name, test := range map[string]struct {
		text string
		want []string
	}{
		"prose":     {prose, []string{":2: the line ends at column 121, the limit is 120", ":8: the line ends at column 121, the limit is 120"}},
		"exempt":    {exempt, nil},
		"generated": {"Produced by `make x`; do not edit.\n" + line("a", 200), nil},
	} {
		testkit.Equal(t, name, excesses(t, checkMarkdown, "page.md", test.text), test.want)
	}
}

// A file may have 400 lines, and not 401.
func TestCheck_ListsLongFile(t *testing.T) {
	for lines, want := range map[int][]string{400: nil, 401: {": 401 lines, the limit is 400"}} {
		text := "package p\n" + strings.Repeat("\n", lines-2) + "var v int\n"
		testkit.Equal(t, "excesses", excesses(t, check, "p.go", text), want)
	}
}

// excesses writes a file with this name and text, and returns the findings of check in it. It
// removes the path of the file from them.
func excesses(t *testing.T, check func(path string) ([]string, error), name, text string) []string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	found, err := check(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range found {
		found[i] = strings.TrimPrefix(found[i], path)
	}
	return found
}
