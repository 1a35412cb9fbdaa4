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
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/swansong-go/swansong/launcher"
	"github.com/swansong-go/swansong/launcher/config"
)

// What a file says has an effect. Where 0 says none, it is not taken for the default.
func TestLauncher(t *testing.T) {
	c := read(t, "full.yaml")
	got := c.Launcher()
	want := launcher.Config{Dir: "/var/lib/launcher", TotalDeadline: 2 * time.Minute, Groups: []launcher.GroupConfig{got.Groups[0], {
		Name:    "keyvalue-runner",
		Command: []string{"/usr/bin/keyvalue-runner", "--data", "/var/lib/keyvalue", "--api-token=hunter2"},
		WorkDir: "/var/lib/keyvalue",
		Env:     []string{"CARD_PIN=1234", "DATABASE_URL=postgres://kv:hunter2@db.example.com/kv", "LOG_LEVEL=debug"},

		Protocol: launcher.GRPC, OnLauncherDeath: launcher.Keep,
		Transport: launcher.TransportConfig{Network: "tcp", Address: "127.0.0.1:0",
			TLS: launcher.TLS{Cert: "/etc/kv/tls.crt", Key: "/etc/kv/tls.key", CA: "/etc/kv/ca.crt"}},
		Desired: 4, MinHealthy: launcher.Int(3), MaxSurge: launcher.Int(2),
		HealthCheckTimeout: 45 * time.Second, MinReady: 2500 * time.Millisecond,
		LivenessInterval: 5 * time.Second, LivenessTimeout: 500 * time.Millisecond, LivenessFailures: 2,
		Shutdown: launcher.ShutdownConfig{Grace: 1500 * time.Millisecond, Max: 15 * time.Second, GraceAdvisory: true, Poll: 100 * time.Millisecond,
			SIGTERMTimeout: 4 * time.Second, DeregisterDelay: 5 * time.Second, StopSignals: []string{"SIGINT", "SIGTERM"}, SuccessCodes: []int{0, 143}},
		Restart: launcher.RestartConfig{Policy: launcher.Always, MinBackoff: 2 * time.Second, MaxBackoff: 30 * time.Second, ResetAfter: time.Minute, CrashLimit: 5},
		Roll: launcher.RollConfig{Canary: 1, CanaryWait: 90 * time.Second, ProgressDeadline: 5 * time.Minute, OnFailure: launcher.Rollback,
			Retry: launcher.Exponential, Retries: 2, MinBackoff: 250 * time.Millisecond, MaxBackoff: 10 * time.Second},
		PreStop:   []launcher.Hook{{Command: []string{"/usr/bin/deregister", "--service", "kv"}, Timeout: 3 * time.Second}},
		DependsOn: []string{"store"},
		Listen:    []launcher.Listen{{Name: "http", Network: "tcp4", Address: "0.0.0.0:8080"}},
		Log:       launcher.LogConfig{Dir: "/var/log/keyvalue", MaxSize: 1 << 20, MaxFiles: 2, MaxLine: 16 << 10, Buffer: 256 << 10},
	}}, Admin: launcher.AdminConfig{Address: "127.0.0.1:9443",
		TLS: launcher.TLS{Cert: "/etc/launcher/tls.crt", Key: "/etc/launcher/tls.key", CA: "/etc/launcher/ca.crt"}}}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(launcher.Config{}, "Redact")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if s := got.Redact("card_pin=1234"); s != "card_pin=[redacted]" {
		t.Errorf("a secret that the file names is shown: %s", s)
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
		t.Error("a total_deadline that is not in the file is taken for one that somebody wants")
	}
	none.Dir = "/d"
	if err := none.Validate(); err != nil {
		t.Error(err)
	}
	g, least := none.Groups[0], time.Millisecond
	for what, is := range map[string]bool{
		"progress_deadline": g.Roll.ProgressDeadline < 0, "canary.wait": g.Roll.CanaryWait == least, "retry.limit": g.Roll.Retry == launcher.Manual,
		"grace_period": g.Shutdown.Grace == least, "sigterm_timeout": g.Shutdown.SIGTERMTimeout == least, "crash_loop_limit": g.Restart.CrashLimit < 0,
		"reset_after": g.Restart.ResetAfter == least, "initial_backoff": g.Restart.MinBackoff == least, "interval": g.LivenessInterval < 0, "max_files": g.Log.MaxFiles < 0,
	} {
		if !is {
			t.Errorf("%s: 0 is not none", what)
		}
	}
}

// A field of the library that no key reaches has been forgotten, unless it is here.
func TestEveryFieldIsReached(t *testing.T) {
	elsewhere := map[string]string{
		"Shutdown.TotalDeadline": "total_deadline is that of all groups",
		"Log.Path":               "logs.dir has a file for each",
	}
	g := read(t, "full.yaml").Launcher().Groups[1]
	var walk func(path string, v reflect.Value)
	walk = func(path string, v reflect.Value) {
		if v.Kind() == reflect.Struct {
			for k := range v.NumField() {
				walk(strings.TrimPrefix(path+"."+v.Type().Field(k).Name, "."), v.Field(k))
			}
			return
		}
		if _, ok := elsewhere[path]; v.IsZero() != ok {
			t.Errorf("%s: is zero %v, is set elsewhere %v", path, v.IsZero(), ok)
		}
	}
	walk("", reflect.ValueOf(g))
}

// What is valid here, package launcher takes: nobody learns of it only when it runs.
func TestWhatIsValidCanRun(t *testing.T) {
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
			t.Errorf("%s\nis valid: %v; the error is %v", text, valid, err)
		}
		if err != nil {
			continue // nobody runs it
		}
		out := c.Launcher()
		out.Dir = "/run/launcher"
		if err := out.Validate(); err != nil {
			t.Errorf("%s\nis valid, and then: %v", text, err)
		}
	}
}

func TestDir(t *testing.T) {
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

// What the library finds fault with is found in the file, and is still what it was.
func TestLocate(t *testing.T) {
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
		{&launcher.ConfigError{Group: "web", Field: "Protocol", Rule: "odd"}, file + ":3:5: process_groups[0]: odd"},
		{&launcher.ConfigError{Group: "new", Field: "Listen", Rule: "in use"}, `launcher: group "new": Listen: in use`},
		{&launcher.GivenUpError{Group: "web", Failures: 2, Last: "web-2: ill"}, file + ":3:5: process_groups[0].name: given up after 2 failures in a row; the last: web-2: ill; restart the group when that is mended"},
		{&launcher.ConfigError{Field: "TotalDeadline", Rule: "odd"}, file + ":1:1: total_deadline: odd"}, // not in the file, and so where that begins
		{launcher.ErrInUse, file + ":1:1: state_dir: another launcher has this directory"},
		{other, "something else"},
	} {
		got := source.Locate(c.err)
		if got.Error() != c.want || !errors.Is(got, c.err) {
			t.Errorf("got  %v\nwant %s", got, c.want)
		}
	}
}

// Nobody has to have checked what is handed over: what is wrong with it, package launcher says.
func TestUncheckedCircle(t *testing.T) {
	c := &config.Config{Groups: []config.Group{{Name: "a", DependsOn: []string{"b"}}, {Name: "b", DependsOn: []string{"a"}}}}
	out := c.Launcher()
	out.Dir = t.TempDir()
	if err := out.Validate(); err == nil || !strings.Contains(err.Error(), "DependsOn") {
		t.Errorf("a circle is valid: %v", err)
	}
}
