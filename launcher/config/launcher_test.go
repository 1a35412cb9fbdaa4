package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher"
	"github.com/swansong-go/swansong/launcher/config"
)

// Every key reaches package launcher, and an explicit 0 stays 0.
func TestConfig_LauncherConvertsEveryKey(t *testing.T) {
	c := read(t, "full.yaml")
	got := c.Launcher()
	want := launcher.Config{Dir: "/var/lib/launcher", TotalDeadline: 2 * time.Minute, Groups: []launcher.GroupConfig{got.Groups[0], {
		Name: "keyvalue-runner", NoDefaults: true, Job: true,
		Command: []string{"/usr/bin/keyvalue-runner", "--data", "/var/lib/keyvalue", "--api-token=hunter2"},
		WorkDir: "/var/lib/keyvalue",
		Env:     []string{"CARD_PIN=1234", "DATABASE_URL=postgres://kv:hunter2@db.example.com/kv", "LOG_LEVEL=debug"},

		Protocol: launcher.GRPC, OnLauncherDeath: launcher.Keep,
		Transport: launcher.TransportConfig{Network: "tcp", Address: "127.0.0.1:0",
			TLS: launcher.TLS{Cert: "/etc/kv/tls.crt", Key: "/etc/kv/tls.key", CA: "/etc/kv/ca.crt"}},
		Desired: 4, MinHealthy: launcher.Int(3), MaxSurge: launcher.Int(2),
		HealthCheckTimeout: 45 * time.Second, MinReady: 2500 * time.Millisecond,
		LivenessInterval: 5 * time.Second, LivenessTimeout: 500 * time.Millisecond, LivenessFailures: 2,
		StartupProbe: c.Groups[1].StartupProbe, ReadinessProbe: c.Groups[1].ReadinessProbe, LivenessProbe: c.Groups[1].LivenessProbe,
		Shutdown: launcher.ShutdownConfig{Grace: 1500 * time.Millisecond, Max: 15 * time.Second, GraceEnforced: true, Poll: 100 * time.Millisecond,
			SIGTERMTimeout: 4 * time.Second, DeregisterDelay: 5 * time.Second, StopSignals: []string{"SIGINT", "SIGTERM"}, SuccessCodes: []int{0, 143}},
		Restart: launcher.RestartConfig{Policy: launcher.Always, MinBackoff: 2 * time.Second, MaxBackoff: 30 * time.Second, ResetAfter: time.Minute, CrashLimit: 5},
		Roll: launcher.RollConfig{Canary: 1, CanaryWait: 90 * time.Second,
			Check: launcher.CanaryCheck{Command: []string{"/usr/bin/judge", "--errors", "0.01", "--api-token=hunter2"}, Interval: 15 * time.Second, Timeout: 2 * time.Second}, ProgressDeadline: 5 * time.Minute, OnFailure: launcher.Rollback,
			Retry: launcher.Exponential, Retries: 2, MinBackoff: 250 * time.Millisecond, MaxBackoff: 10 * time.Second},
		PreStop:   []launcher.Hook{{Command: []string{"/usr/bin/deregister", "--service", "kv"}, Timeout: 3 * time.Second}},
		DependsOn: []string{"store"}, Conditions: map[string]launcher.Condition{"store": launcher.IsStarted}, ClearEnv: true,
		Rlimits:  []launcher.Rlimit{{Name: "core", Soft: launcher.Unlimited, Hard: launcher.Unlimited}, {Name: "nofile", Soft: 1024, Hard: 65536}, {Name: "nproc", Soft: 100, Hard: 100}},
		Limits:   launcher.LimitConfig{Memory: 512 << 20, CPUs: 1.5, IfUnavailable: launcher.Warn},
		Listen:   []launcher.Listen{{Name: "http", Network: "tcp4", Address: "0.0.0.0:8080"}},
		Log:      launcher.LogConfig{Dir: "/var/log/keyvalue", MaxSize: 1 << 20, MaxFiles: 2, MaxLine: 16 << 10, Buffer: 256 << 10},
		Unmasked: true,
	}}, Secrets: launcher.SecretConfig{Names: []string{"*_PIN"}, Values: []string{"correct horse"}, Files: []string{"/run/secrets/db"}}, Admin: launcher.AdminConfig{Address: "127.0.0.1:9443",
		TLS: launcher.TLS{Cert: "/etc/launcher/tls.crt", Key: "/etc/launcher/tls.key", CA: "/etc/launcher/ca.crt"}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

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
	if bound := g.Bound(); bound != 16*time.Second { // the sum of max_duration, two calls of the router, and the reap; there is no SIGTERM timeout
		t.Errorf("the bound of a stop is %v, want 16s", bound)
	}
}

// Every field of the Go API is set by a key of the file, except for these.
func TestConfig_LauncherSetsEveryField(t *testing.T) {
	withoutKey := map[string]string{
		"Shutdown.TotalDeadline": "total_deadline is for all groups together",
		"Log.Path":               "logs.dir has a file for each instance",
		"Watchdog":               "is not possible with the protocol grpc of this group",
		"Roll.Check.Prometheus":  "canary.check of the file has a command",
		"Roll.Check.Query":       "canary.check of the file has a command",
		"User":                   "the group of the file has protocol grpc",
		"UserGroup":              "the group of the file has protocol grpc",
	}
	g := read(t, "full.yaml").Launcher().Groups[1]
	var walk func(path string, v reflect.Value)
	walk = func(path string, v reflect.Value) {
		if _, ok := v.Interface().(launcher.Probe); ok && !v.IsZero() {
			return // the yaml tags of a probe are its keys
		}
		if v.Kind() == reflect.Struct {
			for k := range v.NumField() {
				walk(strings.TrimPrefix(path+"."+v.Type().Field(k).Name, "."), v.Field(k))
			}
			return
		}
		if _, ok := withoutKey[path]; v.IsZero() != ok {
			t.Errorf("%s: zero value %v, expected to have no key %v", path, v.IsZero(), ok)
		}
	}
	walk("", reflect.ValueOf(g))
}

// A valid file is valid for package launcher.
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

func TestConfigDir_UsesStateDirBeforeEnvironment(t *testing.T) {
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

// A configuration that was not parsed from a file is validated by package launcher.
func TestConfig_LauncherRefusesDependencyCycle(t *testing.T) {
	c := &config.Config{Groups: []config.Group{{Name: "a", DependsOn: []string{"b"}}, {Name: "b", DependsOn: []string{"a"}}}}
	out := c.Launcher()
	out.Dir = t.TempDir()
	if err := out.Validate(); err == nil || !strings.Contains(err.Error(), "DependsOn") {
		t.Errorf("a dependency cycle is valid: %v", err)
	}
}
