package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// findSection returns the whole section, so that a section that is not measured stays as it is.
func TestFindSection_ReturnsWholeSection(t *testing.T) {
	const page = "# Page\n\n## One\n\ntext\n\n## Two\n\n## Two and a half\n\nend\n"
	for title, want := range map[string]string{
		"One":            "\n## One\n\ntext\n",
		"Two":            "\n## Two\n",
		"Two and a half": "\n## Two and a half\n\nend\n",
	} {
		got, ok := findSection(page, title)
		if diff := cmp.Diff(want, got); diff != "" || !ok {
			t.Errorf("%s (-want +got):\n%s", title, diff)
		}
	}
	if text, ok := findSection(page, "Three"); ok {
		t.Errorf("found %q", text)
	}
}
