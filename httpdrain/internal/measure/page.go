package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/swansong-go/swansong/internal/figures"
)

const pageFile = "docs/measured/httpdrain-figures.md"

// A section is a part of the page that can be measured alone.
type section struct {
	name    string // name of the section for the flag -only
	title   string
	measure func(io.Writer) error // makes the measurements and writes this section, from its "\n## " and title on
}

// writePage measures the sections whose names are in selected, separated by commas. If selected is
// empty, it measures all sections. The other sections stay as they are on the page. If save is
// true, writePage writes the page.
func writePage(sections []section, selected string, save bool) error {
	names := strings.FieldsFunc(selected, func(r rune) bool { return r == ',' })
	for _, name := range names {
		if !slices.ContainsFunc(sections, func(s section) bool { return s.name == name }) {
			return fmt.Errorf("there is no section %q; -h lists them", name)
		}
	}
	before := ""
	if len(names) > 0 {
		b, err := os.ReadFile(pageFile)
		if err != nil {
			return fmt.Errorf("%w; run this program from the root of the repository", err)
		}
		before = string(b)
	}
	w := figures.NewPage(pageFile, head)
	for _, s := range sections {
		if len(names) > 0 && !slices.Contains(names, s.name) {
			text, ok := findSection(before, s.title)
			if !ok {
				return fmt.Errorf("%s has no section %q to keep; measure it too", pageFile, s.title)
			}
			io.WriteString(w, text)
			continue
		}
		if err := s.measure(w); err != nil {
			return err
		}
		fmt.Fprintf(w, "\n%s.\n", figures.Origin())
	}
	if !save {
		return nil
	}
	return w.Save()
}

// findSection returns the section with this title, from the empty line before the title to the next
// section or the end of the page.
func findSection(page, title string) (text string, ok bool) {
	begin := strings.Index(page, "\n## "+title+"\n")
	if begin < 0 {
		return "", false
	}
	if n := strings.Index(page[begin+1:], "\n## "); n >= 0 {
		return page[begin : begin+1+n], true
	}
	return page[begin:], true
}
