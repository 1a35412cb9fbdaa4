package deploy_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/swansong-go/swansong/launcher/config"
)

func read(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// setting returns the value that the unit file sets for a key.
func setting(t *testing.T, unit []byte, key string) string {
	t.Helper()
	for line := range strings.Lines(string(unit)) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), key+"="); ok {
			return v
		}
	}
	t.Fatalf("the unit has no %s", key)
	return ""
}

// systemd must wait longer than the launcher takes to start its processes and to stop them.
func TestUnit_TimeLimitsExceedThoseOfLauncher(t *testing.T) {
	c, err := config.Parse("launcher.yaml", read(t, "launcher.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	unit := read(t, "launcher.service")
	stop, err := time.ParseDuration(setting(t, unit, "TimeoutStopSec") + "s")
	if err != nil {
		t.Fatal(err)
	}
	// rest is the time that the launcher needs after the drain to kill the remaining processes and
	// to exit.
	const rest = 10 * time.Second
	if stop < c.TotalDeadline+rest {
		t.Errorf("TimeoutStopSec is %v, but total_deadline is %v; make it longer", stop, c.TotalDeadline)
	}
	start, err := time.ParseDuration(strings.Replace(setting(t, unit, "TimeoutStartSec"), "min", "m", 1))
	if err != nil {
		t.Fatal(err)
	}
	ready := time.Duration(0)
	for _, g := range c.Groups {
		ready += g.HealthCheckTimeout
	}
	if start < ready {
		t.Errorf("TimeoutStartSec is %v, but the groups may take %v; make it longer", start, ready)
	}
	for key, want := range map[string]string{"Type": "notify", "KillMode": "mixed", "Delegate": "yes", "RuntimeDirectoryMode": "0700"} {
		if got := setting(t, unit, key); got != want {
			t.Errorf("%s=%s, want %s", key, got, want)
		}
	}
}

func TestUnit_IsAcceptedBySystemd(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("systemd-analyze is missing, which CI does not skip; apt-get install systemd")
		}
		t.Skip("skipped: systemd-analyze is not installed")
	}
	// systemd-analyze checks that the program of the unit exists, so the test puts an existing one
	// in its place.
	unit := bytes.ReplaceAll(read(t, "launcher.service"), []byte("/usr/local/bin/launcher"), []byte("/bin/true"))
	name := filepath.Join(t.TempDir(), "launcher.service")
	if err := os.WriteFile(name, unit, 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(analyze, "verify", "--man=no", "--recursive-errors=no", name).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}
