//go:build unix

package launcher_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/swansong-go/swansong/launcher"
)

// What processes print is kept for who asks, handed on to who follows, and written, each time without secrets.
func TestPrinted(t *testing.T) {
	var out bytes.Buffer
	g := script("web", 1, "echo before; echo my hunter2 is {id}; echo odd >&2")
	h := launchWith(t, launcher.Config{Groups: []launcher.GroupConfig{g}, Output: &out,
		Redact: func(s string) string { return strings.ReplaceAll(s, "hunter2", "***") }}).ready()

	said := func(lines []launcher.Line) (all []string) {
		for _, l := range lines {
			all = append(all, fmt.Sprintf("%s %s %s: %s", l.Group, l.Process, l.Stream, l.Text))
		}
		return all
	}
	_, more, stop, err := h.Printed("web", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	kill(t, h.running("web")[0].PID)
	h.enters("web-2", launcher.Ready)
	var followed []launcher.Line
	for len(followed) < 3 {
		followed = append(followed, <-more)
	}
	h.ends("web-1")
	lines, _, stopThem, err := h.Printed("web-1", 100)
	if err != nil {
		t.Fatal(err)
	}
	stopThem()
	// The streams are two, and nobody can tell which was first.
	sorted := cmp.Transformer("sorted", func(all []string) map[string]int {
		n := map[string]int{}
		for _, s := range all {
			n[s]++
		}
		return n
	})
	if diff := cmp.Diff([]string{"web web-1 out: before", "web web-1 out: my *** is web-1", "web web-1 err: odd"}, said(lines), sorted); diff != "" {
		t.Errorf("of one that has ended (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"web web-2 out: before", "web web-2 out: my *** is web-2", "web web-2 err: odd"}, said(followed), sorted); diff != "" {
		t.Errorf("to who follows (-want +got):\n%s", diff)
	}
	last, _, stopLast, err := h.Printed("", 1)
	if err != nil || len(last) != 1 || last[0].Process != "web-2" {
		t.Errorf("the last line of all is %v, %v", last, err)
	}
	stopLast()
	if _, _, _, err := h.Printed("nobody", 1); !errors.Is(err, launcher.ErrNotFound) {
		t.Errorf("of nobody: %v", err)
	}
	h.close()
	if text := out.String(); strings.Contains(text, "hunter2") || !strings.Contains(text, "web-2 out | my *** is web-2\n") {
		t.Errorf("what is written is\n%s", text)
	}
}
