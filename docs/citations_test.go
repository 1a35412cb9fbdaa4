package docs

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A citation names a section of a document by its path from the root of the repository, as in
// docs/internals/core.md#semantic-5. TestCitations_NameExistingSections checks that the document
// and the section exist.
func TestCitations_NameExistingSections(t *testing.T) {
	all, found := pages(t), 0
	sections := map[string]map[string]bool{}
	for name, text := range all {
		sections[name] = slugs(text)
	}
	for name, text := range sources(t) {
		for line := range strings.Lines(text) {
			if !strings.Contains(line, "docs/") {
				continue
			}
			for _, m := range citation.FindAllStringSubmatch(line, -1) {
				found++
				page, section, _ := strings.Cut(m[1], "#")
				switch {
				case sections[page] == nil:
					t.Errorf("%s cites %s, but there is no such document", name, m[1])
				case section != "" && !sections[page][section]:
					t.Errorf("%s cites %s, but %s has no such section", name, m[1], page)
				}
			}
		}
	}
	if found < 10 {
		t.Errorf("only %d citations are found in the whole repository; is the pattern of this test wrong?", found)
	}
}

// TestCitations_ContainPathOfCitedDocument checks that every citation has the path of its document,
// so that a reader can open it.
func TestCitations_ContainPathOfCitedDocument(t *testing.T) {
	for name, text := range sources(t) {
		n := 0
		if path.Ext(name) == ".md" {
			text = wholeLink.ReplaceAllString(text, "")
		}
		for line := range strings.Lines(text) {
			n++
			for literal, pattern := range bare {
				// Search for the literal first: this takes much less time than matching the
				// pattern.
				if !strings.Contains(line, literal) {
					continue
				}
				if m := pattern.FindStringSubmatch(line); m != nil {
					t.Errorf("%s:%d: %q cites no section that a reader can open; write docs/internals/<page>.md#<section>", name, n, m[1])
				}
			}
		}
	}
}

var (
	citation  = regexp.MustCompile(`(?:^|[^\w/-]|/blob/main/)(?:\.\./)*(docs/(?:[\w-]+/)*[\w-]+\.md(?:#[\w-]+)?)`)
	wholeLink = regexp.MustCompile(`\[[^\]]*\]\([^)\s]+\)`)
	// The key of each pattern is a literal text that every match of the pattern contains.
	bare = map[string]*regexp.Regexp{
		"RFC-041":         regexp.MustCompile(`(RFC-041)`),
		"emantic ":        regexp.MustCompile(`\b([Ss]emantic \d+)`),
		"spec":            regexp.MustCompile(`\b(spec(?:ification)? [3-8](?:\.\d)?)\b`),
		"specification's": regexp.MustCompile(`\b(specification's section \d)`),
		".md":             regexp.MustCompile(`(?:^|[^\w/.-])((?:core|counting|process|eventloop|lspconn|launcher|launcher-runbook|interrupts|kubernetes|scaling|design)\.md\b)(?:[^)\]"` + "`" + `]|$)`),
	}
)

// sources returns the text files that may cite a document, by their path from the root of the
// repository. Pages of docs/internals are left out: they link to each other.
func sources(t *testing.T) map[string]string {
	found := map[string]string{}
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (strings.HasPrefix(d.Name(), ".") && name != "." || d.Name() == "node_modules" || name == "bin" || name == "docs/internals"):
			return fs.SkipDir
		case d.IsDir(), name == "docs/citations_test.go":
			return nil
		case d.Name() != "Makefile" && !slices.Contains([]string{".go", ".md", ".pml", ".proto", ".sh", ".txt", ".yaml"}, path.Ext(name)):
			return nil
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		found[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
