// Package docs has no code. Its tests check every Markdown page of the repository.
package docs

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

const root = ".."

// pages returns the Markdown files of the repository, by their path from its root.
func pages(t *testing.T) map[string]string {
	found := map[string]string{}
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (strings.HasPrefix(d.Name(), ".") && name != "." || d.Name() == "node_modules" || name == "bin"):
			return fs.SkipDir
		case path.Ext(name) != ".md":
			return nil
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		found[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) < 5 {
		t.Fatalf("only %d pages are found; does the test look in the wrong place?", len(found))
	}
	return found
}

var (
	block   = regexp.MustCompile("(?s)(?:<!-- from ([^ ]+) -->\n)?[ \t]*```(\\w*)\n(.*?)```")
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	anchor  = regexp.MustCompile(`<a id="([^"]+)"></a>`)
	noSlug  = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// TestLinks_LeadToExistingPlaces checks that every relative link leads to an existing file and
// heading. Links to other sites are not followed.
func TestLinks_LeadToExistingPlaces(t *testing.T) {
	all := pages(t)
	for name, text := range all {
		text = block.ReplaceAllString(text, "")
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			file, section, _ := strings.Cut(m[1], "#")
			target := name
			if file != "" {
				target = path.Join(path.Dir(name), file)
			}
			if _, err := os.Stat(filepath.Join(root, target)); err != nil {
				t.Errorf("%s links to %s, but there is no such file", name, m[1])
				continue
			}
			if section != "" && !slugs(all[target])[section] {
				t.Errorf("%s links to %s, but the page has no such heading", name, m[1])
			}
		}
	}
}

// slugs returns the anchors of a page: those that GitHub derives from its headings, and explicit
// ones.
func slugs(text string) map[string]bool {
	found := map[string]bool{}
	text = block.ReplaceAllString(text, "")
	for _, m := range anchor.FindAllStringSubmatch(text, -1) {
		found[m[1]] = true
	}
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		found[strings.ReplaceAll(noSlug.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")] = true
	}
	return found
}

// TestCode_BlocksOfGoAreFoundInFileThatTheyName checks that every Go block names the file that it
// is from, and that the file contains it, whatever the indentation. So all code in pages is
// compiled, and most of it is run.
func TestCode_BlocksOfGoAreFoundInFileThatTheyName(t *testing.T) {
	from := 0
	for name, text := range pages(t) {
		for _, m := range block.FindAllStringSubmatch(text, -1) {
			source, language, code := m[1], m[2], m[3]
			switch {
			case source != "":
				from++
				file, err := os.ReadFile(filepath.Join(root, source))
				if err != nil {
					t.Errorf("%s: %v", name, err)
				} else if !strings.Contains(flat(string(file)), flat(code)) {
					t.Errorf("%s: the block is not in %s in this form; copy it from there again:\n%s", name, source, code)
				}
			case language == "go":
				t.Errorf("%s: the block does not name the file that it is from; put a line such as <!-- from docs/snippets_test.go --> before it:\n%s", name, code)
			}
		}
	}
	if from == 0 {
		t.Error("no block names its file; is the pattern of this test wrong?")
	}
}

// TestGuide_StepsMatchPrograms checks that every step of the guide says how to run its program, and
// that the program serves the addresses which the guide requests.
func TestGuide_StepsMatchPrograms(t *testing.T) {
	guide := pages(t)["docs/guide.md"]
	steps, err := filepath.Glob(filepath.Join(root, "examples", "guide", "*", "main.go"))
	if err != nil || len(steps) != 7 {
		t.Fatalf("%d steps, %v", len(steps), err)
	}
	for _, step := range steps {
		source, err := os.ReadFile(step)
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Base(filepath.Dir(step))
		_, instructions, ok := strings.Cut(guide, "`go run ./examples/guide/"+dir)
		if !ok {
			t.Errorf("docs/guide.md does not say how to run %s", dir)
			continue
		}
		instructions, _, _ = strings.Cut(instructions, "\n\n")
		requests := regexp.MustCompile(`curl [^`+"`"+`]*?127\.0\.0\.1:(\d+)(/\w+)`).FindAllStringSubmatch(instructions, -1)
		if len(requests) == 0 {
			t.Errorf("docs/guide.md does not say which request to send to %s", dir)
		}
		for _, m := range requests {
			if !strings.Contains(string(source), `"127.0.0.1:`+m[1]+`"`) || !regexp.MustCompile(`"(GET|POST) `+m[2]+`"`).Match(source) {
				t.Errorf("docs/guide.md sends a request to %s for %s at port %s, which that program does not serve", dir, m[2], m[1])
			}
		}
	}
}

// TestFigures_OfReadmeEqualThoseOfBenchmarksPage checks that the figures of README.md are those of
// docs/measured/benchmarks.md, which make bench writes: date and machine, the rows (without their
// targets and the host's spread), and the figures in sentences.
func TestFigures_OfReadmeEqualThoseOfBenchmarksPage(t *testing.T) {
	all := pages(t)
	readme, measured := all["README.md"], all["docs/measured/benchmarks.md"]
	_, costs, _ := strings.Cut(readme, "## What it costs")
	costs, _, _ = strings.Cut(costs, "\n## ")
	known := map[string]bool{}
	for l := range strings.Lines(measured) {
		known[l] = true
		if cells := strings.Split(l, " | "); len(cells) == 9 {
			known[strings.Join(append(cells[:6:6], cells[8]), " | ")] = true
		}
	}
	figure := func(cell string) float64 {
		f, _ := strconv.ParseFloat(regexp.MustCompile(`-?\d+(\.\d+)?`).FindString(cell), 64)
		if d, err := time.ParseDuration(regexp.MustCompile(`[ ,*]|missed|≤`).ReplaceAllString(cell, "")); err == nil && !strings.Contains(cell, "+") {
			f = float64(d)
		}
		return f
	}
	targets := 0
	for l := range strings.Lines(measured) {
		cells := strings.Split(l, " | ")
		if len(cells) != 9 || !strings.HasPrefix(cells[7], "≤") {
			continue
		}
		took, _, _ := strings.Cut(cells[4], " (")
		if !strings.ContainsAny(cells[7], "×+") {
			// The target of this row is a time and not a ratio, so compare it with the time in the
			// second column.
			took = cells[1]
		} else if strings.HasPrefix(took, "–") {
			continue
		}
		targets++
		if missed := figure(took) > figure(cells[7]) && !strings.Contains(took, "<"); missed != strings.Contains(cells[7], "missed") {
			t.Errorf("docs/measured/benchmarks.md: a row that misses its target must say missed, and no other row:\n%s", l)
		}
	}
	if targets < 30 || !strings.Contains(measured, "A target is what") {
		t.Errorf("docs/measured/benchmarks.md has %d rows with targets, or does not explain targets; run make bench", targets)
	}
	rows := 0
	for l := range strings.Lines(costs) {
		if strings.HasPrefix(l, "Measured ") || strings.HasPrefix(l, "| ") {
			rows++
			if !known[l] {
				t.Errorf("README.md has a row that is not in docs/measured/benchmarks.md:\n%s", l)
			}
		}
	}
	if rows < 15 {
		t.Errorf("README.md has only %d rows of figures; is the pattern of this test wrong?", rows)
	}
	costs = strings.Join(strings.Fields(costs), " ")
	for _, f := range []struct{ says, row string }{
		{"checks a bit of the word: %s instructions", "TryGuard + Release, depth 4"},
		{"a `Guard` takes %s,", "Guard + Release, depth 4"},
		{"`Add` and `Done` of a WaitGroup %s.", "sync.WaitGroup Add + Done"},
		{"A live child takes %s bytes", "child scope"},
		{"%s with a guard", "child scope that holds a guard"},
		{"and %s when a goroutine waits on it. A", "child scope that is waited on"},
		{"A `context.WithCancel` takes %s bytes,", "context.WithCancel"},
		{"and %s when a goroutine waits on it.", "context.WithCancel that is waited on"},
	} {
		m := regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(f.row) + ` \| (\d+) \|$`).FindStringSubmatch(measured)
		if m == nil {
			t.Errorf("docs/measured/benchmarks.md has no row %q", f.row)
		} else if want := strings.Replace(f.says, "%s", m[1], 1); !strings.Contains(costs, want) {
			t.Errorf("README.md does not say %q, as docs/measured/benchmarks.md does", want)
		}
	}
}

func flat(code string) string {
	lines := strings.Split(strings.TrimSpace(code), "\n")
	for i, l := range lines {
		lines[i] = strings.TrimSpace(l)
	}
	return strings.Join(lines, "\n")
}
