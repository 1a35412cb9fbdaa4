//go:build unix

package launcher_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher"
)

// Printed returns recent lines and then streams new ones. Secrets are masked in these lines and in
// the output.
func TestPrinted_ReturnsRecentLinesThenStreamsNewOnesMasked(t *testing.T) {
	var out bytes.Buffer
	g := script("web", 1, "echo before; echo my hunter2 is {id}; echo odd >&2")
	h := launchWith(t, launcher.Config{Groups: []launcher.GroupConfig{g}, Output: &out,
		Secrets: launcher.SecretConfig{Values: []string{"hunter2"}}}).ready()

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
	h.waitForState("web-2", launcher.Ready)
	var followed []launcher.Line
	for len(followed) < 3 {
		followed = append(followed, <-more)
	}
	h.waitForEnd("web-1")
	lines, _, stopThem, err := h.Printed("web-1", 100)
	if err != nil {
		t.Fatal(err)
	}
	stopThem()
	// stdout and stderr are separate pipes, so the order of their lines is undefined.
	sorted := cmp.Transformer("sorted", func(all []string) map[string]int {
		n := map[string]int{}
		for _, s := range all {
			n[s]++
		}
		return n
	})
	if diff := cmp.Diff([]string{"web web-1 out: before", "web web-1 out: my *** is web-1", "web web-1 err: odd"}, said(lines), sorted); diff != "" {
		t.Errorf("lines of a process that has ended (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"web web-2 out: before", "web web-2 out: my *** is web-2", "web web-2 err: odd"}, said(followed), sorted); diff != "" {
		t.Errorf("streamed lines (-want +got):\n%s", diff)
	}
	last, _, stopLast, err := h.Printed("", 1)
	if err != nil || len(last) != 1 || last[0].Process != "web-2" {
		t.Errorf("the last line of all processes is %v, %v", last, err)
	}
	stopLast()
	if _, _, _, err := h.Printed("missing", 1); !errors.Is(err, launcher.ErrNotFound) {
		t.Errorf("Printed of an unknown name: %v", err)
	}
	h.close()
	if text := out.String(); strings.Contains(text, "hunter2") || !strings.Contains(text, "web-2 out | my *** is web-2\n") {
		t.Errorf("the output is\n%s", text)
	}
}

// Without Config.Output and a log file, output is discarded. Discarded lines do not count as
// dropped, and raise no alarm.
func TestOutput_NilDiscardsLines(t *testing.T) {
	h := launchWith(t, launcher.Config{Groups: []launcher.GroupConfig{script("web", 1, "echo printed")}}).ready()
	lines, more, stop, err := h.Printed("web-1", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	if len(lines) == 0 {
		<-more
	}
	h.stopAndWait("web-1")
	h.close()
	testkit.Equal(t, "alarms", h.count(launcher.Alarm), 0)
	testkit.Equal(t, "counted lines", h.Stats().Groups["web"].Log, launcher.LogStats{})
}
