package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher"
	"github.com/swansong-go/swansong/launcher/config"
)

// An explicit 0 in a file stays 0 in package launcher.
func TestConfig_LauncherKeepsExplicitZeros(t *testing.T) {
	none := parse(t, `
process_groups:
  - name: kv
    progress_deadline: 0s
    canary: {wait: 0s}
    retry: {policy: immediate, limit: 0}
    shutdown: {grace_period: 0s, sigterm_timeout: 0s}
    restart_policy: {crash_loop_limit: 0, reset_after: 0s, initial_backoff: 0s}
    liveness: {interval: 0s}
    logs: {max_files: 1}
`).Launcher()
	if !none.TotalDeadlineDerived {
		t.Error("TotalDeadlineDerived is not set, although the file has no total_deadline")
	}
	none.Dir = "/d"
	if err := none.Validate(); err != nil {
		t.Error(err)
	}
	g := none.Groups[0]
	for what, got := range map[string]int64{
		"progress_deadline": int64(g.Roll.ProgressDeadline), "canary.wait": int64(g.Roll.CanaryWait), "retry.limit": int64(g.Roll.Retries),
		"grace_period": int64(g.Shutdown.Grace), "sigterm_timeout": int64(g.Shutdown.SIGTERMTimeout), "crash_loop_limit": int64(g.Restart.CrashLimit),
		"reset_after": int64(g.Restart.ResetAfter), "initial_backoff": int64(g.Restart.MinBackoff), "interval": int64(g.LivenessInterval), "max_files": int64(g.Log.MaxFiles),
	} {
		if got != 0 {
			t.Errorf("%s: an explicit 0 is %d in launcher.GroupConfig", what, got)
		}
	}
	check := parse(t, "process_groups: [{name: kv, canary: {instances: 1, check: {prometheus: 'http://127.0.0.1:9090', query: up}}}]").Launcher().Groups[0].Roll.Check
	testkit.Equal(t, "check by a query", check, launcher.CanaryCheck{Prometheus: "http://127.0.0.1:9090", Query: "up", Interval: 10 * time.Second, Timeout: 5 * time.Second})
	// The bound is the sum of max_duration, two calls of the router, and ReapTimeout. The
	// sigterm_timeout is 0 here.
	if bound := g.Bound(); bound != 16*time.Second {
		t.Errorf("the bound of a stop is %v, want 16s", bound)
	}
}

// If Parse accepts a file, package launcher accepts the configuration that the file describes.
func TestParse_AcceptsSameConfigurationsAsLauncher(t *testing.T) {
	const tls = "tls: {cert_file: /a, key_file: /b, ca_file: /c}"
	for text, valid := range map[string]bool{
		"process_groups: [{name: kv}]\ntotal_deadline: 1ms":                                              false,
		"process_groups: [{name: kv}]\ntotal_deadline: 9999us":                                           false,
		"process_groups: [{name: kv}]\ntotal_deadline: 10ms":                                             true,
		"process_groups: [{name: kv, shutdown: {max_duration: 5ms, sigterm_timeout: 0s}}]":               true,
		"process_groups: [{name: kv, shutdown: {max_duration: 24h}}]":                                    true,
		"process_groups: [{name: kv, lifecycle: {transport: tcp, address: '0.0.0.0:0', " + tls + "}}]":   false,
		"process_groups: [{name: kv, lifecycle: {transport: tcp, address: '[::]:0', " + tls + "}}]":      false,
		"process_groups: [{name: kv, lifecycle: {transport: tcp, address: ':0', " + tls + "}}]":          false,
		"process_groups: [{name: kv, lifecycle: {transport: tcp, address: '127.0.0.1:0', " + tls + "}}]": true,
	} {
		c, err := config.Parse("f.yaml", []byte(text))
		if (err == nil) != valid {
			t.Errorf("%s\nvalid: want %v, but the error is %v", text, valid, err)
		}
		if err != nil {
			continue
		}
		out := c.Launcher()
		out.Dir = "/run/launcher"
		if err := out.Validate(); err != nil {
			t.Errorf("%s\nis valid, but package launcher says: %v", text, err)
		}
	}
}

func TestParse_StateDirSettingTakesPrecedenceOverEnvironmentVariables(t *testing.T) {
	for _, c := range []struct{ yaml, systemd, user, want string }{
		{"state_dir: /srv/l\nprocess_groups: [{name: kv}]", "/run/unit", "/run/user/1", "/srv/l"},
		{"process_groups: [{name: kv}]", "/run/unit:/run/more", "/run/user/1", "/run/unit"},
		{"process_groups: [{name: kv}]", "", "/run/user/1", "/run/user/1/swansong"},
	} {
		t.Setenv("RUNTIME_DIRECTORY", c.systemd)
		t.Setenv("XDG_RUNTIME_DIR", c.user)
		if got := parse(t, c.yaml).Launcher().Dir; got != c.want {
			t.Errorf("with %q and %q: %s, want %s", c.systemd, c.user, got, c.want)
		}
	}
}

// Locate finds the position of an error of package launcher, and the result wraps the error.
func TestLocate_FindsLineOfErrorInConfigurationFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "l.yaml")
	if err := os.WriteFile(file, []byte("state_dir: /d\nprocess_groups:\n  - name: web\n    command: sh\n    listeners: [{name: a, address: ':80'}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, source, err := config.LoadSource(file)
	if err != nil {
		t.Fatal(err)
	}
	other := errors.New("something else")
	for _, c := range []struct {
		err  error
		want string
	}{
		{&launcher.ConfigError{Group: "web", Field: "Listen", Rule: "in use"}, file + ":5:5: process_groups[0].listeners: in use"},
		{&launcher.ConfigError{Group: "web", Field: "Protocol", Rule: "odd"}, file + ":3:5: process_groups[0].protocol: odd"},
		{&launcher.ConfigError{Group: "new", Field: "Listen", Rule: "in use"}, `launcher: group "new": Listen: in use`},
		{&launcher.GivenUpError{Group: "web", Failures: 2, Last: "web-2: ill"}, file + ":3:5: process_groups[0].name: given up after 2 failures in a row; the last: web-2: ill; restart the group when that is fixed"},
		{&launcher.ConfigError{Field: "TotalDeadline", Rule: "odd"}, file + ":1:1: total_deadline: odd"}, // the key is not in the file, so the error is located at the beginning of the file
		{launcher.ErrInUse, file + ":1:1: state_dir: another launcher has this directory"},
		{other, "something else"},
	} {
		got := source.Locate(c.err)
		if got.Error() != c.want || !errors.Is(got, c.err) {
			t.Errorf("got  %v\nwant %s", got, c.want)
		}
	}
}

// Position returns the line and column of a key. If the file does not have the key, they are those
// of the mapping that would contain it. For a group that the file does not have, they are 0.
func TestSource_PositionReturnsLineOfKeyOrOfMappingAroundIt(t *testing.T) {
	_, source, err := config.ParseSource("l.yaml", []byte("state_dir: /d\nprocess_groups:\n  - name: other\n  - name: web\n    shutdown:\n      grace: enforced\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		group, key   string
		line, column int
	}{
		{"web", "shutdown.grace", 6, 7}, {"web", "shutdown.max_duration", 5, 5}, {"web", "retry", 4, 5}, {"other", "retry", 3, 5},
		{"", "state_dir", 1, 1}, {"", "total_deadline", 1, 1}, {"none", "retry", 0, 0},
	} {
		if line, column := source.Position(c.group, c.key); line != c.line || column != c.column {
			t.Errorf("%q of %q is at %d:%d, want %d:%d", c.key, c.group, line, column, c.line, c.column)
		}
	}
}

// A configuration that was not parsed from a file is validated by package launcher.
func TestConfig_LauncherRefusesDependencyCycle(t *testing.T) {
	c := &config.Config{Groups: []config.Group{{GroupConfig: launcher.GroupConfig{Name: "a", DependsOn: []string{"b"}}}, {GroupConfig: launcher.GroupConfig{Name: "b", DependsOn: []string{"a"}}}}}
	out := c.Launcher()
	out.Dir = t.TempDir()
	if err := out.Validate(); err == nil || !strings.Contains(err.Error(), "DependsOn") {
		t.Errorf("a dependency cycle is valid: %v", err)
	}
}
