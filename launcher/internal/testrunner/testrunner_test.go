package testrunner_test

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/swansong-go/swansong/launcher/internal/testrunner"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The flags are those of the document that the protocol comes from, with its defaults.
func TestFlags(t *testing.T) {
	t.Setenv("SWANSONG_PROCESS_ID", "test-1")
	var help bytes.Buffer
	if code := testrunner.Main([]string{"--help"}, &help); code != 0 {
		t.Errorf("exit code %d", code)
	}
	got := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^  -([a-z-]+) .*\n.*\(default "?([^)"]*)"?\)$`).FindAllStringSubmatch(help.String(), -1) {
		got[m[1]] = m[2]
	}
	want := map[string]string{"process-id": "test-1", "behavior": "clean", "drain-duration": "2s", "work-duration": "100ms", "initial-work": "5", "more": "5s"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
	if !strings.Contains(help.String(), "  -port port\n") {
		t.Errorf("there is no port:\n%s", &help)
	}
	if diff := cmp.Diff([]string{"clean", "slow-drain", "hang", "request-more", "crash"}, testrunner.Behaviors); diff != "" {
		t.Errorf("behaviors (-want +got):\n%s", diff)
	}
}

// What it cannot be told is refused before anything is begun.
func TestBadUsage(t *testing.T) {
	for args, want := range map[string]string{
		"--behavior sulk":     `testrunner: behavior "sulk"`,
		"--behavior hang now": `arguments ["now"]`,
		"--drain-duration 2":  `invalid value "2" for flag -drain-duration`,
	} {
		var said bytes.Buffer
		if code := testrunner.Main(strings.Fields(args), &said); code != 2 || !strings.Contains(said.String(), want) {
			t.Errorf("%s: exit code %d, %s", args, code, &said)
		}
	}
}
