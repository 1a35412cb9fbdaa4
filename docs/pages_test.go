// Package docs has no code. Its test reads every page of the repository.
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

// pages returns the Markdown files of the repository, by their path below its root.
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
		t.Fatalf("only %d pages are found", len(found))
	}
	return found
}

var (
	block   = regexp.MustCompile("(?s)(?:<!-- from ([^ ]+) -->\n)?[ \t]*```(\\w*)\n(.*?)```")
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	noSlug  = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// A link leads to a file that is there, and to a heading that it has. Those that leave the repository are not followed.
func TestLinks(t *testing.T) {
	all := pages(t)
	for name, text := range all {
		text = block.ReplaceAllString(text, "")
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			file, anchor, _ := strings.Cut(m[1], "#")
			target := name
			if file != "" {
				target = path.Join(path.Dir(name), file)
			}
			if _, err := os.Stat(filepath.Join(root, target)); err != nil {
				t.Errorf("%s: a link to %s, which is not there", name, m[1])
				continue
			}
			if anchor != "" && !slugs(all[target])[anchor] {
				t.Errorf("%s: a link to %s, but there is no such heading", name, m[1])
			}
		}
	}
}

// slugs returns the anchors that a forge makes of the headings of a page.
func slugs(text string) map[string]bool {
	found := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		found[strings.ReplaceAll(noSlug.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")] = true
	}
	return found
}

// A block of Go names its file, and is in it as it is, but for the indentation: so it is compiled, and mostly run.
func TestCode(t *testing.T) {
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
					t.Errorf("%s: this is not in %s as it is:\n%s", name, source, code)
				}
			case language == "go":
				t.Errorf("%s: this does not say where it is compiled, as in <!-- from docs/snippets_test.go -->:\n%s", name, code)
			}
		}
	}
	if from == 0 {
		t.Error("no block names its file")
	}
}

// A step of the guide says how to run it, by a program that is there and with an address that it has.
func TestGuideRuns(t *testing.T) {
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
		_, says, ok := strings.Cut(guide, "`go run ./examples/guide/"+dir)
		if !ok {
			t.Errorf("docs/guide.md does not say how to run %s", dir)
			continue
		}
		says, _, _ = strings.Cut(says, "\n\n")
		asked := regexp.MustCompile(`curl [^`+"`"+`]*?127\.0\.0\.1:(\d+)(/\w+)`).FindAllStringSubmatch(says, -1)
		if len(asked) == 0 {
			t.Errorf("docs/guide.md does not say what to ask %s", dir)
		}
		for _, m := range asked {
			if !strings.Contains(string(source), `"127.0.0.1:`+m[1]+`"`) || !regexp.MustCompile(`"(GET|POST) `+m[2]+`"`).Match(source) {
				t.Errorf("docs/guide.md asks %s for %s at port %s, which it does not have", dir, m[2], m[1])
			}
		}
	}
}

// The figures of README.md are those of docs/benchmarks.md, where make bench writes them: when and where they were measured, the rows
// (without their targets), and those in sentences.
func TestFigures(t *testing.T) {
	all := pages(t)
	readme, measured := all["README.md"], all["docs/benchmarks.md"]
	_, costs, _ := strings.Cut(readme, "## What it costs")
	costs, _, _ = strings.Cut(costs, "\n## ")
	known := map[string]bool{}
	for l := range strings.Lines(measured) {
		known[l] = true
		if cells := strings.Split(l, " | "); len(cells) == 7 {
			known[strings.Join(append(cells[:5:5], cells[6]), " | ")] = true
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
		if len(cells) != 7 || !strings.HasPrefix(cells[5], "≤") {
			continue
		}
		took, _, _ := strings.Cut(cells[4], " (")
		if !strings.ContainsAny(cells[5], "×+") {
			took = cells[1] // the target is a time, and not a ratio or a difference
		} else if strings.HasPrefix(took, "–") {
			continue
		}
		targets++
		if missed := figure(took) > figure(cells[5]) && !strings.Contains(took, "<"); missed != strings.Contains(cells[5], "missed") {
			t.Errorf("docs/benchmarks.md: a row is to say that it has missed its target, and no other one:\n%s", l)
		}
	}
	if targets < 30 || !strings.Contains(measured, "A target is what") {
		t.Errorf("docs/benchmarks.md has %d rows with targets, and does not say what these are; make bench writes it", targets)
	}
	rows := 0
	for l := range strings.Lines(costs) {
		if strings.HasPrefix(l, "Measured ") || strings.HasPrefix(l, "| ") {
			rows++
			if !known[l] {
				t.Errorf("README.md: this is not in docs/benchmarks.md:\n%s", l)
			}
		}
	}
	if rows < 15 {
		t.Errorf("README.md has %d rows of figures; has the test lost them?", rows)
	}
	costs = strings.Join(strings.Fields(costs), " ")
	for _, f := range []struct{ says, row string }{
		{"been warned of (%s instructions", "TryGuard + Release, depth 4"},
		{"the Guard takes %s,", "Guard + Release, depth 4"},
		{"a WaitGroup's Add and Done %s)", "sync.WaitGroup Add + Done"},
		{"A live child takes %s bytes", "child scope"},
		{"%s with a guard", "child scope that holds a guard"},
		{"%s when somebody waits on it; a", "child scope that is waited on"},
		{"a `context.WithCancel` takes %s,", "context.WithCancel"},
		{"and %s when somebody waits on it.", "context.WithCancel that is waited on"},
	} {
		m := regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(f.row) + ` \| (\d+) \|$`).FindStringSubmatch(measured)
		if m == nil {
			t.Errorf("docs/benchmarks.md has no figure for %q", f.row)
		} else if want := strings.Replace(f.says, "%s", m[1], 1); !strings.Contains(costs, want) {
			t.Errorf("README.md does not say %q, as docs/benchmarks.md does", want)
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
