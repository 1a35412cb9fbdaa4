package testrunner_test

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher/internal/testrunner"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The flags and their defaults are those of the specification of the protocol; see
// docs/internals/launcher.md#test-runner.
func TestTestrunnerFlags_HaveDefaultsOfSpecification(t *testing.T) {
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
	testkit.Equal(t, "defaults", got, want)
	if !strings.Contains(help.String(), "  -port port\n") {
		t.Errorf("the help has no flag -port:\n%s", &help)
	}
	testkit.Equal(t, "behaviors", testrunner.Behaviors, []string{"clean", "slow-drain", "hang", "request-more", "crash"})
}

func TestMain_RefusesInvalidFlags(t *testing.T) {
	for args, want := range map[string]string{
		"--behavior sulk":     `testrunner: behavior "sulk"`,
		"--behavior hang now": `arguments ["now"]`,
		"--drain-duration 2":  `invalid value "2" for flag -drain-duration`,
	} {
		var stderr bytes.Buffer
		if code := testrunner.Main(strings.Fields(args), &stderr); code != 2 || !strings.Contains(stderr.String(), want) {
			t.Errorf("%s: exit code %d, %s", args, code, &stderr)
		}
	}
}
