package config_test

import (
	"errors"
	"fmt"
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
	"github.com/swansong-go/swansong/launcher/internal/spec"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func read(t *testing.T, name string) *config.Config {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, string(text))
}

func parse(t *testing.T, text string) *config.Config {
	t.Helper()
	c, err := config.Parse("launcher.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// standard returns a group with all defaults.
func standard(name string) config.Group {
	return config.Group{GroupConfig: launcher.GroupConfig{
		Name:               name,
		NoDefaults:         true,
		Command:            []string{name},
		Desired:            1,
		MinHealthy:         launcher.Int(1),
		MaxSurge:           launcher.Int(1),
		HealthCheckTimeout: 30 * time.Second,
		LivenessInterval:   2 * time.Second, LivenessTimeout: time.Second, LivenessFailures: 3,
		Shutdown: launcher.ShutdownConfig{Grace: 3 * time.Second, Max: 10 * time.Second, SIGTERMTimeout: 2 * time.Second,
			Poll: 500 * time.Millisecond, StopSignals: []string{"SIGTERM"}, SuccessCodes: []int{0}},
		Restart: launcher.RestartConfig{Policy: launcher.OnFailure, MinBackoff: time.Second, MaxBackoff: time.Minute, CrashLimit: 10, ResetAfter: 10 * time.Second},
		Roll: launcher.RollConfig{ProgressDeadline: 10 * time.Minute, OnFailure: launcher.Pause, Retry: launcher.Manual, Retries: 3, MinBackoff: time.Second, MaxBackoff: time.Minute,
			CanaryWait: time.Minute, Check: launcher.CanaryCheck{Interval: 10 * time.Second, Timeout: 5 * time.Second}},
		OnLauncherDeath: launcher.Kill,
		Protocol:        launcher.Auto,
		Transport:       launcher.TransportConfig{Network: "unix"},
		Log:             launcher.LogConfig{MaxSize: 10 << 20, MaxFiles: 4, MaxLine: 64 << 10, Buffer: 1 << 20},
		Limits:          launcher.LimitConfig{IfUnavailable: launcher.Refuse},
	}, Export: config.Export{Port: 50051, ServicePort: 8080}}
}

// probe returns the probe with the defaults of Kubernetes.
func probe(p config.Probe) config.Probe {
	p.Period, p.Timeout, p.SuccessThreshold, p.FailureThreshold = 10*time.Second, time.Second, 1, 3
	return p
}

func TestParse_SetsDefaults(t *testing.T) {
	want := &config.Config{TotalDeadline: 15 * time.Second, Groups: []config.Group{standard("kv")}}
	if diff := cmp.Diff(want, parse(t, "process_groups: [{name: kv}]")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The example file of the specification, in which most keys have their defaults.
func TestParse_ReadsExampleOfSpecification(t *testing.T) {
	kv, pubsub := standard("keyvalue-runner"), standard("pubsub-runner")
	kv.Desired, pubsub.Desired, pubsub.MinHealthy = 2, 3, launcher.Int(2)
	pubsub.HealthCheckTimeout = 45 * time.Second
	pubsub.Shutdown.Grace, pubsub.Shutdown.Max = 5*time.Second, 15*time.Second
	want := &config.Config{TotalDeadline: 21250 * time.Millisecond, Groups: []config.Group{kv, pubsub}}
	if diff := cmp.Diff(want, read(t, "rfc.yaml")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestParse_ReadsEveryKey(t *testing.T) {
	got := read(t, "full.yaml")
	store := standard("store")
	store.Protocol, store.Watchdog = launcher.Notify, time.Minute
	store.LivenessProbe = probe(config.Probe{TCPSocket: spec.TCPSocketAction{Port: "6379", Host: "127.0.0.2"}})
	want := &config.Config{
		StateDir:      "/var/lib/launcher",
		TotalDeadline: 2 * time.Minute,
		Admin: launcher.AdminConfig{Address: "127.0.0.1:9443",
			TLS: launcher.TLS{Cert: "/etc/launcher/tls.crt", Key: "/etc/launcher/tls.key", CA: "/etc/launcher/ca.crt"}},
		Metrics: config.Metrics{Address: "127.0.0.1:9464"},
		Secret:  launcher.SecretConfig{Names: []string{"*_PIN"}, Values: []string{"correct horse"}, Files: []string{"/run/secrets/db"}},
		Groups: []config.Group{store, {GroupConfig: launcher.GroupConfig{
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
			StartupProbe: probe(config.Probe{Exec: spec.ExecAction{Command: []string{"/usr/bin/started", "--api-token=hunter2"}}, InitialDelay: time.Second,
				TerminationGrace: 3 * time.Second}),
			ReadinessProbe: config.Probe{HTTPGet: spec.HTTPGetAction{Path: "/ready", Port: "8080", Host: "localhost", Scheme: "HTTPS",
				Headers: []spec.HTTPHeader{{Name: "Authorization", Value: "Bearer hunter2"}}}, Period: 500 * time.Millisecond,
				Timeout: 250 * time.Millisecond, SuccessThreshold: 2, FailureThreshold: 4},
			LivenessProbe: probe(config.Probe{GRPC: spec.GRPCAction{Port: "{port}", Service: "kv"}}),
			Shutdown: launcher.ShutdownConfig{Grace: 1500 * time.Millisecond, Max: 15 * time.Second, GraceEnforced: true, Poll: 100 * time.Millisecond,
				SIGTERMTimeout: 4 * time.Second, DeregisterDelay: 5 * time.Second, StopSignals: []string{"SIGINT", "SIGTERM"}, SuccessCodes: []int{0, 143}},
			Restart: launcher.RestartConfig{Policy: launcher.Always, MinBackoff: 2 * time.Second, MaxBackoff: 30 * time.Second, ResetAfter: time.Minute, CrashLimit: 5},
			Roll: launcher.RollConfig{Canary: 1, CanaryWait: 90 * time.Second,
				Check:            launcher.CanaryCheck{Command: []string{"/usr/bin/judge", "--errors", "0.01", "--api-token=hunter2"}, Interval: 15 * time.Second, Timeout: 2 * time.Second},
				ProgressDeadline: 5 * time.Minute, OnFailure: launcher.Rollback,
				Retry: launcher.Exponential, Retries: 2, MinBackoff: 250 * time.Millisecond, MaxBackoff: 10 * time.Second},
			PreStop:   []launcher.Hook{{Command: []string{"/usr/bin/deregister", "--service", "kv"}, Timeout: 3 * time.Second}},
			DependsOn: []string{"store"}, Conditions: map[string]launcher.Condition{"store": launcher.IsStarted}, ClearEnv: true,
			Rlimits:  []launcher.Rlimit{{Name: "core", Soft: launcher.Unlimited, Hard: launcher.Unlimited}, {Name: "nofile", Soft: 1024, Hard: 65536}, {Name: "nproc", Soft: 100, Hard: 100}},
			Limits:   launcher.LimitConfig{Memory: 512 << 20, CPUs: 1.5, IfUnavailable: launcher.Warn},
			Listen:   []launcher.Listen{{Name: "http", Network: "tcp4", Address: "0.0.0.0:8080"}},
			Log:      launcher.LogConfig{Dir: "/var/log/keyvalue", MaxSize: 1 << 20, MaxFiles: 2, MaxLine: 16 << 10, Buffer: 256 << 10},
			Unmasked: true,
		},
			EnvFile: []string{"/etc/keyvalue.env"},
			Export:  config.Export{Image: "registry.example.com/keyvalue:1.0.0", Port: 9000, ServicePort: 8443},
		}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	out := got.Launcher()
	for k := range out.Groups {
		if diff := cmp.Diff(want.Groups[k].GroupConfig, out.Groups[k]); diff != "" {
			t.Errorf("package launcher gets another group (-want +got):\n%s", diff)
		}
	}
	out.Groups = nil
	if diff := cmp.Diff(launcher.Config{Dir: want.StateDir, TotalDeadline: want.TotalDeadline, Admin: want.Admin, Secrets: want.Secret}, out); diff != "" {
		t.Errorf("package launcher gets another configuration (-want +got):\n%s", diff)
	}
}

// testdata/full.yaml has every key, and so sets every field of the Go API that a key can set. The
// other fields are listed in withoutKey.
func TestParse_EveryFieldOfGoAPICanBeSetByKey(t *testing.T) {
	withoutKey := map[string]string{
		"Shutdown.TotalDeadline": "total_deadline is for all groups together",
		"Log.Path":               "logs.dir has a file for each instance",
		"Watchdog":               "is not possible with the protocol grpc of this group",
		"Roll.Check.Prometheus":  "canary.check of the file has a command",
		"Roll.Check.Query":       "canary.check of the file has a command",
		"User":                   "the group of the file has protocol grpc",
		"UserGroup":              "the group of the file has protocol grpc",
	}
	c := read(t, "full.yaml")
	probes := map[string]bool{} // whether any of the probes in the file sets the field
	var walk func(path string, v reflect.Value)
	walk = func(path string, v reflect.Value) {
		if v.Kind() == reflect.Struct {
			for k := range v.NumField() {
				walk(strings.TrimPrefix(path+"."+v.Type().Field(k).Name, "."), v.Field(k))
			}
		} else if _, field, ok := strings.Cut(path, "Probe."); ok {
			probes[field] = probes[field] || !v.IsZero()
		} else if _, ok := withoutKey[path]; v.IsZero() != ok {
			t.Errorf("%s: zero value %v, expected to have no key %v", path, v.IsZero(), ok)
		}
	}
	walk("", reflect.ValueOf(c.Groups[1].GroupConfig))
	walk("LivenessProbe", reflect.ValueOf(c.Groups[0].LivenessProbe))
	walk("Export", reflect.ValueOf(c.Groups[1].Export))
	for _, v := range []any{c.Admin, c.Metrics, c.Secret} {
		walk(reflect.TypeOf(v).Name(), reflect.ValueOf(v))
	}
	for field, set := range probes {
		if !set {
			t.Errorf("no probe of testdata/full.yaml sets %s", field)
		}
	}
}

// The order of keys has no meaning, although command and args are read into one field.
func TestParse_AcceptsArgsBeforeCommand(t *testing.T) {
	for text, want := range map[string][]string{
		"args: [a, b], command: c": {"c", "a", "b"},
		"command: c, args: [a, b]": {"c", "a", "b"},
		"args: [a]":                {"kv", "a"},
		"args: []":                 {"kv"},
	} {
		testkit.Equal(t, text, parse(t, "process_groups: [{name: kv, "+text+"}]").Groups[0].Command, want)
	}
}

func TestConfig_StopBoundAddsTimesOfGroupsThatStopInSequence(t *testing.T) {
	// The groups a and b stop at the same time, which takes 2s for a hook + 10s + 2 × 2s. Then c
	// stops, which takes 5s + 10s + 2s.
	c := parse(t, `
process_groups:
  - {name: c, shutdown: {deregister_delay: 5s}}
  - {name: a, depends_on: [c], stop_signals: [SIGINT, SIGTERM], pre_stop: [{command: "true", timeout: 2s}]}
  - {name: b, depends_on: [c]}
`)
	if got := c.StopBound(); got != 33*time.Second {
		t.Errorf("StopBound is %v, want 33s", got)
	}
	if got := c.TotalDeadline; got != 41250*time.Millisecond {
		t.Errorf("total_deadline is %v, want 5/4 of the bound", got)
	}
}

func TestParse_MinHealthyDefaultsToOneLessThanDesiredIfSurgeIs0(t *testing.T) {
	c := parse(t, "process_groups: [{name: a, desired_instances: 3, max_surge: 0}, {name: b, desired_instances: 0, max_surge: 0}]")
	if a, b := c.Groups[0], c.Groups[1]; *a.MinHealthy != 2 || *b.MinHealthy != 0 {
		t.Errorf("min_healthy_instances is %d of 3, %d of 0", *a.MinHealthy, *b.MinHealthy)
	}
}

func TestParse_DefaultGracePeriodStaysWithinMaxDuration(t *testing.T) {
	c := parse(t, "process_groups: [{name: a, shutdown: {max_duration: 700ms}}]")
	if got := c.Groups[0].Shutdown.Grace; got != 700*time.Millisecond {
		t.Errorf("%v", got)
	}
}

// alone returns the text of a group that can have only one process, because its port is fixed.
func alone(name string) string {
	return "{name: " + name + ", min_healthy_instances: 0, max_surge: 0, lifecycle: {transport: tcp, address: '127.0.0.1:5000', tls: {cert_file: /a, key_file: /b, ca_file: /c}}}"
}

func TestParse_ExpandsAliasesAndMerges(t *testing.T) {
	c := parse(t, `
process_groups:
  - &kv
    name: kv
    shutdown: &slow {max_duration: 1m, deregister_delay: 1s}
    args: [a]
  - <<: *kv
    name: other
    args: [b]
  - name: third
    shutdown:
      <<: [{max_duration: 2m}, *slow]
      poll_interval: 1s
`)
	want := []config.Group{standard("kv"), standard("other"), standard("third")}
	want[0].Command, want[1].Command = []string{"kv", "a"}, []string{"other", "b"}
	want[0].Shutdown.Max, want[1].Shutdown.Max, want[2].Shutdown.Max = time.Minute, time.Minute, 2*time.Minute
	want[2].Shutdown.Poll = time.Second
	for k := range want {
		want[k].Shutdown.DeregisterDelay = time.Second
	}
	if diff := cmp.Diff(want, c.Groups); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestParse_ReportsErrorsByLineAndKey(t *testing.T) {
	const group = "process_groups: [{name: kv, "
	for _, c := range []struct {
		name, text string
		want       []string // the expected errors, each in the form file:line:column: key: beginning of the rule
	}{
		{"nothing", "", []string{"f.yaml:1:1: is empty; it needs process_groups"}},
		{"a comment", "# soon", []string{"f.yaml:1:1: is empty; it needs process_groups"}},
		{"an empty document", "---\n", []string{"f.yaml:1:1: is empty; it needs process_groups"}},
		{"null", "null", []string{"f.yaml:1:1: is empty; it needs process_groups"}},
		{"two documents", "process_groups: [{name: kv}]\n---\n{}", []string{"f.yaml:2:1: a second document begins here (---)"}},
		{"an empty second document", "process_groups: [{name: kv}]\n---\n", []string{"f.yaml:2:1: a second document begins here (---)"}},
		{"a second document that is not YAML", "process_groups: [{name: kv}]\n---\na: [", []string{"f.yaml:4:1: is not YAML: "}},
		{"not UTF-8", "# soon\nprocess_groups: [{name: '\xff'}]", []string{"f.yaml:2:26: is not UTF-8: it has the byte 0xff"}},
		{"a control character", "process_groups:\n  - name: \"\x01\"", []string{`f.yaml:2:12: is not YAML: it has the control character U+0001; in double quotes it can be written as \u0001`}},
		{"a tab", "process_groups:\n\t- name: kv", []string{"f.yaml:2:1: is not YAML: a tab is not allowed here; indent with spaces"}},
		{"a tab in a later line", "process_groups:\n  - name: kv\n\tmax_surge: 1", []string{"f.yaml:3:1: is not YAML: a tab is not allowed here; indent with spaces"}},
		{"a value that begins with @", "process_groups: [{name: kv, args: [@a]}]", []string{"f.yaml:1:36: is not YAML: a value cannot begin with '@'; put it in quotes"}},
		{"an unterminated quote", "process_groups: [{name: \"kv}]\n", []string{"f.yaml:2:1: is not YAML: found unexpected end of stream while scanning a quoted scalar that begins in line 1"}},
		{"an unknown anchor", "secret: *a", []string{"f.yaml:1:9: is not YAML: unknown anchor 'a'"}},
		{"nested too deeply", "process_groups: " + strings.Repeat("[", 20_000), []string{"f.yaml:1:10017: is not YAML: exceeded max depth of 10000"}},
		{"not YAML", "process_groups:\n  - name: [", []string{"f.yaml:3:1: is not YAML: "}},
		{"a list instead of a mapping", "[]", []string{"f.yaml:1:1: must be a mapping with process_groups in it, not a list"}},
		{"a string instead of a mapping", "kv", []string{"f.yaml:1:1: must be a mapping with process_groups in it, not a string"}},
		{"an unknown key", "process_groups: [{name: kv}]\nsurge: 1", []string{"f.yaml:2:1: surge: unknown key; the keys here are admin, "}},
		{"a misspelled key", "process_groups:\n  - name: kv\n    max_serge: 1", []string{"f.yaml:3:5: process_groups[0].max_serge: unknown key; did you mean max_surge?"}},
		{"a duplicate key", "process_groups:\n  - name: kv\n    max_surge: 1\n    max_surge: 2", []string{"f.yaml:4:5: process_groups[0].max_surge: is set twice, first in line 3"}},
		{"a key that is a list", "process_groups: [{name: kv, [a]: b}]", []string{"f.yaml:1:29: process_groups[0]: has a key that is a list"}},

		{"a string for a number", group + "max_surge: one}]", []string{"f.yaml:1:40: process_groups[0].max_surge: must be a whole number, not a string"}},
		{"a fraction for a number", group + "max_surge: 1.5}]", []string{"f.yaml:1:40: process_groups[0].max_surge: must be a whole number, not a fraction"}},
		{"a list for a number", group + "max_surge: [1]}]", []string{"f.yaml:1:40: process_groups[0].max_surge: must be a whole number, not a list"}},
		{"no value for a number", group + "max_surge: }]", []string{"f.yaml:1:40: process_groups[0].max_surge: must be a whole number, not an empty value"}},
		{"a number above the range of int64", group + "max_surge: 99999999999999999999}]", []string{"f.yaml:1:40: process_groups[0].max_surge: 99999999999999999999 is out of range"}},
		{"a number below the range of int64", group + "max_surge: -99999999999999999999}]", []string{"f.yaml:1:40: process_groups[0].max_surge: -99999999999999999999 is out of range"}},
		{"the largest int64 plus 1", group + "max_surge: 9223372036854775808}]", []string{"f.yaml:1:40: process_groups[0].max_surge: 9223372036854775808 is out of range"}},
		{"desired_instances out of range", group + "desired_instances: 99999999999999999999}]", []string{"f.yaml:1:48: process_groups[0].desired_instances: 99999999999999999999 is out of range"}},
		{"min_healthy_instances out of range", group + "min_healthy_instances: 99999999999999999999}]", []string{"f.yaml:1:52: process_groups[0].min_healthy_instances: 99999999999999999999 is out of range"}},
		{"an exit code out of range", group + "success_exit_codes: [99999999999999999999]}]", []string{"f.yaml:1:50: process_groups[0].success_exit_codes[0]: 99999999999999999999 is out of range"}},
		{"a port out of range", group + "export: {grpc_port: 99999999999999999999}}]", []string{"f.yaml:1:49: process_groups[0].export.grpc_port: 99999999999999999999 is out of range"}},
		{"a threshold out of range", group + "liveness: {failure_threshold: 99999999999999999999}}]", []string{"f.yaml:1:59: process_groups[0].liveness.failure_threshold: 99999999999999999999 is out of range"}},
		{"a size out of range", group + "logs: {max_size: 99999999999GiB}}]", []string{"f.yaml:1:46: process_groups[0].logs.max_size: must be 0 to 8589934591GiB"}},
		{"a negative size", group + "logs: {max_size: -1}}]", []string{"f.yaml:1:46: process_groups[0].logs.max_size: must be 0 to 8589934591GiB"}},
		{"a number with an exponent", group + "max_surge: 1e9}]", []string{"f.yaml:1:40: process_groups[0].max_surge: must be a whole number, not a number with an exponent"}},
		{"not a number", group + "max_surge: .nan}]", []string{"f.yaml:1:40: process_groups[0].max_surge: must be a whole number, not .nan"}},
		{"an infinite number", group + "max_surge: -.inf}]", []string{"f.yaml:1:40: process_groups[0].max_surge: must be a whole number, not .inf"}},
		{"a leading zero", group + "max_surge: 010}]", []string{"f.yaml:1:40: process_groups[0].max_surge: begins with a 0, which some programs read as octal"}},
		{"a leading zero before 8", group + "max_surge: 08}]", []string{"f.yaml:1:40: process_groups[0].max_surge: begins with a 0"}},
		{"a number in quotes", group + `max_surge: "1"}]`, []string{"f.yaml:1:40: process_groups[0].max_surge: must be a whole number, not a string; leave out the quotes"}},
		{"a number for a string", group + "env: {PASSWORD: 12345}}]", []string{"f.yaml:1:45: process_groups[0].env.PASSWORD: must be a string, not a number; put it in quotes"}},
		{"a boolean for a string", group + "args: [true]}]", []string{"f.yaml:1:36: process_groups[0].args[0]: must be a string, not a boolean; put it in quotes"}},
		{"no value for a string", group + "command: }]", []string{"f.yaml:1:38: process_groups[0].command: has no value"}},
		{"a mapping for a list", group + "args: {a: b}}]", []string{"f.yaml:1:35: process_groups[0].args: must be a list, not a mapping"}},
		{"a list for a mapping", group + "env: [A=b]}]", []string{"f.yaml:1:34: process_groups[0].env: must be a mapping of names to strings, not a list"}},
		{"a scalar for a mapping", group + "shutdown: 3s}]", []string{"f.yaml:1:39: process_groups[0].shutdown: must be a mapping, not a string"}},
		{"a number for a duration", group + "health_check_timeout: 30}]", []string{"f.yaml:1:51: process_groups[0].health_check_timeout: needs a unit: 30s, or 30ms?"}},
		{"a word for a duration", group + "health_check_timeout: soon}]", []string{"f.yaml:1:51: process_groups[0].health_check_timeout: must be a duration"}},
		{"a duration above 24h", group + "health_check_timeout: 10000h}]", []string{"f.yaml:1:29: process_groups[0].health_check_timeout: must be 1ms to 24h0m0s"}},
		{"not a number of seconds", group + "min_ready_seconds: .nan}]", []string{"f.yaml:1:48: process_groups[0].min_ready_seconds: must be a number of seconds"}},
		{"an infinite number of seconds", group + "min_ready_seconds: .inf}]", []string{"f.yaml:1:48: process_groups[0].min_ready_seconds: .inf is out of range"}},
		{"seconds out of range", group + "min_ready_seconds: 99999999999999999999}]", []string{"f.yaml:1:48: process_groups[0].min_ready_seconds: 99999999999999999999 is out of range"}},
		{"seconds with a leading zero", group + "min_ready_seconds: 010}]", []string{"f.yaml:1:48: process_groups[0].min_ready_seconds: begins with a 0"}},
		{"a duration out of range", group + "health_check_timeout: 300000000h}]", []string{"f.yaml:1:51: process_groups[0].health_check_timeout: 300000000h is out of range"}},
		{"a negative duration out of range", group + "health_check_timeout: -300000000h}]", []string{"f.yaml:1:51: process_groups[0].health_check_timeout: -300000000h is out of range"}},
		{"an exponent for a duration", group + "health_check_timeout: 1e9}]", []string{"f.yaml:1:51: process_groups[0].health_check_timeout: must be a duration with its unit (ms, s, m or h)"}},
		{"a duration in days", group + "health_check_timeout: 1d}]", []string{"f.yaml:1:51: process_groups[0].health_check_timeout: must be a duration with its unit (ms, s, m or h)"}},
		{"an unknown unit of a size", group + "logs: {max_size: 10MB}}]", []string{"f.yaml:1:46: process_groups[0].logs.max_size: must be a size"}},
		{"an unknown choice", group + "on_failure: stop}]", []string{`f.yaml:1:29: process_groups[0].on_failure: must be pause, rollback or continue, not "stop"`}},
		{"an unknown restart policy", group + "restart_policy: rolling_replace}]", []string{`f.yaml:1:29: process_groups[0].restart_policy.policy: must be always, on-failure or never`}},
		{"an unknown signal", group + "stop_signals: [SIGKILL]}]", []string{`f.yaml:1:44: process_groups[0].stop_signals[0]: must be SIGTERM,`}},
		{"a NUL byte", group + `args: ["a\0b"]}]`, []string{"f.yaml:1:36: process_groups[0].args[0]: has a NUL byte"}},
		{"a merge of a string", group + "<<: a}]", []string{"f.yaml:1:29: process_groups[0]: merges (<<) a string"}},

		{"a merge of itself", "process_groups: [{name: kv, env: &a {<<: [*a, *a]}}]", []string{"f.yaml:1:34: process_groups[0].env: merges itself", "f.yaml:1:34: process_groups[0].env: merges itself"}},

		{"an empty list of groups", "process_groups: []", []string{"f.yaml:1:1: process_groups: must have at least one group"}},
		{"a missing name", "process_groups: [{command: kv}]", []string{"f.yaml:1:18: process_groups[0].name: is missing"}},
		{"a name with a path", "process_groups: [{name: ../../etc/cron.d/kv, command: kv}]", []string{"f.yaml:1:19: process_groups[0].name: must be up to 63 of"}},
		{"a dot as name", "process_groups: [{name: ., command: kv}]", []string{"f.yaml:1:19: process_groups[0].name: must be up to 63 of"}},
		{"a listener name with a path", group + "listeners: [{name: a/b, address: ':1'}]}]", []string{"f.yaml:1:42: process_groups[0].listeners[0].name: must be up to 63 of"}},
		{"a path with ..", group + "working_dir: /srv/../etc}]", []string{`f.yaml:1:29: process_groups[0].working_dir: must be a clean path: "/etc", not "/srv/../etc"`}},
		{"a relative command", group + "command: bin/kv}]", []string{`f.yaml:1:29: process_groups[0].command: must be an absolute path, or a name`}},
		{"a relative directory", group + "logs: {dir: logs}}]", []string{`f.yaml:1:36: process_groups[0].logs.dir: must be an absolute path, not "logs"`}},
		{"duplicate names", "process_groups:\n  - name: kv\n  - name: kv", []string{`f.yaml:3:5: process_groups[1].name: "kv" is already the name of a group, in line 2`}},
		{"negative instances", group + "desired_instances: -1}]", []string{"f.yaml:1:29: process_groups[0].desired_instances: must be 0 to 10000, not -1"}},
		{"impossible instances", group + "desired_instances: 1000000}]", []string{"f.yaml:1:29: process_groups[0].desired_instances: must be 0 to 10000, not 1000000"}},
		{"min_healthy_instances above desired_instances", group + "min_healthy_instances: 2}]", []string{"f.yaml:1:29: process_groups[0].min_healthy_instances: must be 0 to desired_instances, which is 1, not 2"}},
		{"no instance can be replaced", group + "desired_instances: 2, min_healthy_instances: 2, max_surge: 0}]", []string{"f.yaml:1:77: process_groups[0].max_surge: 0 with min_healthy_instances = desired_instances (2) leaves no way"}},
		{"more canaries than instances", group + "canary: {instances: 2}}]", []string{"f.yaml:1:38: process_groups[0].canary.instances: must be 0 to desired_instances, which is 1, not 2"}},
		{"negative canaries of an empty group", group + "desired_instances: 0, canary: {instances: -1}}]", []string{"f.yaml:1:60: process_groups[0].canary.instances: must be 0 or more, not -1"}},
		{"no key process_groups", "state_dir: /srv", []string{"f.yaml:1:1: process_groups: must have at least one group"}},
		{"a progress deadline below min_ready_seconds", group + "min_ready_seconds: 20, progress_deadline: 10s}]", []string{"f.yaml:1:52: process_groups[0].progress_deadline: 10s is not longer than min_ready_seconds, 20s"}},
		{"a grace period above max_duration", group + "shutdown: {grace_period: 11s}}]", []string{"f.yaml:1:40: process_groups[0].shutdown.grace_period: 11s is longer than max_duration, 10s"}},
		{"max_backoff below initial_backoff", group + "retry: {initial_backoff: 2m}}]", []string{"f.yaml:1:29: process_groups[0].retry.max_backoff: 1m0s is shorter than initial_backoff, 2m0s"}},
		{"no stop signals", group + "stop_signals: []}]", []string{"f.yaml:1:29: process_groups[0].stop_signals: must have at least one"}},
		{"an exit code above 255", group + "success_exit_codes: [256]}]", []string{"f.yaml:1:50: process_groups[0].success_exit_codes[0]: must be 0 to 255, not 256"}},
		{"a reserved variable", group + "env: {LISTEN_FDS: '3'}}]", []string{"f.yaml:1:35: process_groups[0].env.LISTEN_FDS: is reserved"}},
		{"an invalid variable name", group + "env: {A=B: c}}]", []string{"f.yaml:1:35: process_groups[0].env.A=B: the name of a variable"}},
		{"keep without a state_dir", group + "on_launcher_death: keep}]", []string{"f.yaml:1:29: process_groups[0].on_launcher_death: keep needs a state_dir"}},
		{"TCP without TLS", group + "lifecycle: {transport: tcp, address: '127.0.0.1:0'}}]", []string{"f.yaml:1:29: process_groups[0].lifecycle.tls: is missing; transport tcp needs"}},
		{"tcp with protocol signals", group + "protocol: signals, lifecycle: {transport: tcp, address: ':0', tls: {cert_file: /a, key_file: /b, ca_file: /c}}}]", []string{"f.yaml:1:60: process_groups[0].lifecycle.transport: tcp has no effect"}},
		{"incomplete TLS", "process_groups: [{name: kv}]\nadmin: {address: ':1', tls: {cert_file: /a, key_file: /b}}", []string{"f.yaml:2:24: admin.tls.ca_file: is missing"}},
		{"TLS without an address", "process_groups: [{name: kv}]\nadmin: {tls: {cert_file: /a}}", []string{"f.yaml:2:9: admin.tls: has no effect without an address"}},
		{"a fixed port for two processes", group + "lifecycle: {transport: tcp, address: 'a:1', tls: {cert_file: /a, key_file: /b, ca_file: /c}}}]", []string{"f.yaml:1:57: process_groups[0].lifecycle.address: \"a:1\" has a fixed port"}},
		{"no address", group + "listeners: [{name: http, address: '8080'}]}]", []string{`f.yaml:1:54: process_groups[0].listeners[0].address: must be host:port`}},
		{"two listeners on one address", "process_groups:\n  - {name: a, listeners: [{name: l, address: ':80'}]}\n  - {name: b, listeners: [{name: l, address: ':80'}]}", []string{`f.yaml:3:37: process_groups[1].listeners[0].address: ":80" is already used, in line 2`}},
		{"two on one address, of one of which it is every one", "process_groups:\n  - {name: a, listeners: [{name: l, address: ':80'}]}\n  - {name: b, listeners: [{name: l, address: '127.0.0.1:80'}]}", []string{`f.yaml:3:37: process_groups[1].listeners[0].address: "127.0.0.1:80" overlaps with ":80", which is already used, in line 2`}},
		{"one address written in two ways", "process_groups:\n  - {name: a, listeners: [{name: l, address: ':80'}, {name: m, address: '0.0.0.0:80'}]}", []string{`f.yaml:2:64: process_groups[0].listeners[1].address: "0.0.0.0:80" overlaps with ":80", which is already used, in line 2`}},
		{"the metrics on the address of a listener", "metrics: {address: '127.0.0.1:80'}\nprocess_groups:\n  - {name: a, listeners: [{name: l, address: ':80'}]}", []string{`f.yaml:3:37: process_groups[0].listeners[0].address: ":80" overlaps with "127.0.0.1:80", which is already used, in line 1`}},
		{"the metrics, without a host, on the address of a listener", "metrics: {address: ':80'}\nprocess_groups:\n  - {name: a, listeners: [{name: l, address: '127.0.0.1:80'}]}", []string{`f.yaml:3:37: process_groups[0].listeners[0].address: "127.0.0.1:80" overlaps with ":80", which is already used, in line 1`}},
		{"two listeners on one host name", "process_groups:\n  - {name: a, listeners: [{name: l, address: 'localhost:80'}, {name: m, address: 'localhost:80'}]}", []string{`f.yaml:2:73: process_groups[0].listeners[1].address: "localhost:80" is already used, in line 2`}},
		{"a host name on two networks", "process_groups:\n  - {name: a, listeners: [{name: l, address: 'localhost:80'}, {name: m, network: tcp4, address: 'localhost:80'}]}", []string{`f.yaml:2:88: process_groups[0].listeners[1].address: "localhost:80" is already used, in line 2`}},
		{"a host name and all addresses", "process_groups:\n  - {name: a, listeners: [{name: l, address: ':80'}, {name: m, address: 'localhost:80'}]}", []string{`f.yaml:2:64: process_groups[0].listeners[1].address: "localhost:80" overlaps with ":80", which is already used, in line 2`}},
		{"a host name in two groups", "process_groups:\n  - {name: a, listeners: [{name: l, address: 'example.org:80'}]}\n  - {name: b, listeners: [{name: l, address: 'Example.org:80'}]}", []string{`f.yaml:3:37: process_groups[1].listeners[0].address: "Example.org:80" overlaps with "example.org:80", which is already used, in line 2`}},
		{"two processes on one address", "process_groups:\n  - " + alone("a") + "\n  - " + alone("b"), []string{`f.yaml:3:83: process_groups[1].lifecycle.address: "127.0.0.1:5000" is already used, in line 2`}},
		{"a process on the address of a listener", "process_groups:\n  - {name: a, listeners: [{name: l, address: ':5000'}]}\n  - " + alone("b"), []string{`f.yaml:3:83: process_groups[1].lifecycle.address: "127.0.0.1:5000" overlaps with ":5000", which is already used, in line 2`}},
		{"a process on the address of a listener of its own", "process_groups:\n  - " + strings.TrimSuffix(alone("b"), "}") + ", listeners: [{name: l, address: ':5000'}]}", []string{`f.yaml:2:182: process_groups[0].listeners[0].address: ":5000" overlaps with "127.0.0.1:5000", which is already used, in line 2`}},
		{"a process on the address of the metrics", "metrics: {address: '127.0.0.1:5000'}\nprocess_groups:\n  - " + alone("b"), []string{`f.yaml:3:83: process_groups[0].lifecycle.address: "127.0.0.1:5000" is already used, in line 1`}},
		{"two listeners on one unix socket", "process_groups:\n  - {name: a, listeners: [{name: l, network: unix, address: /a}]}\n  - {name: b, listeners: [{name: l, network: unix, address: /a}]}", []string{`f.yaml:3:52: process_groups[1].listeners[0].address: "/a" is already used, in line 2`}},
		{"all addresses of IPv4", group + "lifecycle: {transport: tcp, address: '0.0.0.0:0', tls: {cert_file: /a, key_file: /b, ca_file: /c}}}]", []string{`f.yaml:1:57: process_groups[0].lifecycle.address: "0.0.0.0:0" is every address of this machine; name one`}},
		{"all addresses", group + "lifecycle: {transport: tcp, address: ':0', tls: {cert_file: /a, key_file: /b, ca_file: /c}}}]", []string{`f.yaml:1:57: process_groups[0].lifecycle.address: ":0" is every address`}},
		{"a total deadline below 10ms", group + "}]\ntotal_deadline: 9ms", []string{"f.yaml:2:1: total_deadline: must be 10ms to 24h0m0s, not 9ms"}},
		{"a unix socket with a long path", group + "listeners: [{name: l, network: unix, address: /" + strings.Repeat("a", 103) + "}]}]", []string{"f.yaml:1:66: process_groups[0].listeners[0].address: is 104 bytes long"}},
		{"an unknown dependency", group + "depends_on: [db]}]", []string{`f.yaml:1:42: process_groups[0].depends_on[0]: there is no group "db"`}},
		{"a dependency on itself", group + "depends_on: [kv]}]", []string{"f.yaml:1:42: process_groups[0].depends_on[0]: forms a cycle: kv waits for kv"}},
		{"a dependency cycle", "process_groups:\n  - {name: z, depends_on: [a]}\n  - {name: a, depends_on: [b]}\n  - {name: b, depends_on: [c]}\n  - {name: c, depends_on: [a]}",
			[]string{"f.yaml:5:28: process_groups[3].depends_on[0]: forms a cycle: a waits for b waits for c waits for a"}},
		{"a duplicate dependency", "process_groups: [{name: a}, {name: b, depends_on: [a, a]}]", []string{`f.yaml:1:55: process_groups[1].depends_on[1]: "a" is already in the list`}},
		{"an invalid pattern", "process_groups: [{name: kv}]\nsecret: {names: ['[']}", []string{"f.yaml:2:18: secret.names[0]: must be a pattern"}},
		{"max_line above max_size", group + "logs: {max_line: 20MiB, buffer: 1GiB}}]", []string{"f.yaml:1:36: process_groups[0].logs.max_line: must be 64 to max_size (10MiB), not 20MiB"}},
		{"an image name with white space", group + `export: {image: "a b"}}]`, []string{"f.yaml:1:38: process_groups[0].export.image: must not contain white space"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := config.Parse("f.yaml", []byte(c.text))
			if got != nil {
				t.Error("Parse returned a configuration together with an error")
			}
			var errs config.Errors
			if !errors.As(err, &errs) {
				t.Fatalf("the error is not of type Errors: %v", err)
			}
			if len(errs) != len(c.want) {
				t.Fatalf("%d errors, not %d:\n%v", len(errs), len(c.want), err)
			}
			for k, want := range c.want {
				if !strings.HasPrefix(errs[k].Error(), want) {
					t.Errorf("got  %s\nwant %s…", errs[k], want)
				}
			}
		})
	}
}

func TestParse_ReportsAllErrorsInOrder(t *testing.T) {
	_, err := config.Parse("f.yaml", []byte(`
total_deadline: -1s
process_groups:
  - name: Kv
    desired_instances: 2
    min_healthy_instances: 3
    depends_on: [db]
  - command: ./kv
    max_surge: many
    surge: 1
`))
	want := strings.Join([]string{
		"f.yaml:2:1: total_deadline: must be 10ms to 24h0m0s, not -1s",
		`f.yaml:4:5: process_groups[0].name: must be up to 63 of a-z, 0-9 and -, begin with a letter and not end with -, not "Kv"`,
		"f.yaml:6:5: process_groups[0].min_healthy_instances: must be 0 to desired_instances, which is 2, not 3",
		`f.yaml:7:18: process_groups[0].depends_on[0]: there is no group "db"`,
		"f.yaml:8:5: process_groups[1].name: is missing",
		`f.yaml:8:5: process_groups[1].command: must be an absolute path, or a name that is looked up in PATH, not "./kv"`,
		"f.yaml:9:16: process_groups[1].max_surge: must be a whole number, not a string",
		"f.yaml:10:5: process_groups[1].surge: unknown key; did you mean max_surge?",
	}, "\n")
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var first *config.Error
	if !errors.As(err, &first) || first.Line != 2 || first.Column != 1 || first.File != "f.yaml" || first.Key != "total_deadline" {
		t.Errorf("the first error is %+v", first)
	}
}

func TestLoad_RefusesMissingProgramsAndDirectories(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "kv")
	write := func(name, text string, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, "launcher.yaml")
	load := func(text string) error {
		write(file, text, 0o644)
		_, err := config.Load(file)
		return err
	}
	says := func(err error, want string) {
		t.Helper()
		if err == nil || !strings.HasPrefix(err.Error(), file+want) {
			t.Errorf("got  %v\nwant %s%s…", err, file, want)
		}
	}
	text := "process_groups:\n  - name: kv\n    command: " + program + "\n"
	says(load(text), ":3:5: process_groups[0].command: there is no executable program ")
	write(program, "", 0o644)
	says(load(text), ":3:5: process_groups[0].command: there is no executable program ") // now the file exists, but is not executable
	if err := os.Chmod(program, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := load(text); err != nil {
		t.Error(err)
	}
	says(load("process_groups:\n  - name: no-such-program"), ":2:5: process_groups[0].command: there is no executable program ")
	says(load(text+"    working_dir: "+program), ":4:5: process_groups[0].working_dir: ")
	says(load(text+"    working_dir: /no/such"), ":4:5: process_groups[0].working_dir: ")
	says(load(text+"    pre_stop: [{command: /no/such}]"), ":4:17: process_groups[0].pre_stop[0].command: there is no executable program ")
	says(load(text+"admin: {address: ':0', tls: {cert_file: "+program+", key_file: "+program+", ca_file: /no/such}}"), ":4:")
	says(load(text+"admin: {address: ':0', tls: {cert_file: "+program+", key_file: "+program+", ca_file: "+dir+"}}"), ":4:")
}

// An error of the file as a whole has the name of the file.
func TestLoad_NamesUnreadableFile(t *testing.T) {
	dir := t.TempDir()
	big := filepath.Join(dir, "big.yaml")
	if err := os.WriteFile(big, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(big, 5<<20); err != nil {
		t.Fatal(err)
	}
	for file, rule := range map[string]string{
		filepath.Join(dir, "gone.yaml"): "cannot be read: ",
		dir:                             "is a directory; name a file in it",
		big:                             "is larger than 4MiB, the limit for a configuration file",
	} {
		_, err := config.Load(file)
		var e *config.Error
		if !errors.As(err, &e) || e.File != file || !strings.HasPrefix(err.Error(), file+": "+rule) {
			t.Errorf("got  %v\nwant %s: %s…", err, file, rule)
		}
	}
	if _, err := config.Load(filepath.Join(dir, "gone.yaml")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

// All ways to write a number in YAML are accepted.
func TestParse_AcceptsEveryNotationOfNumbers(t *testing.T) {
	for text, want := range map[string]int{"+12": 12, "0xc": 12, "0o14": 12, "0b1100": 12, "1_2": 12, "!!int '12'": 12, "-0": 0, "0": 0} {
		g := parse(t, "process_groups: [{name: kv, desired_instances: "+text+", min_ready_seconds: "+text+"}]").Groups[0]
		if g.Desired != want || g.MinReady != time.Duration(want)*time.Second {
			t.Errorf("%s: %d instances, %v", text, g.Desired, g.MinReady)
		}
	}
}

// doubled returns n mappings, each of which merges the previous one twice.
func doubled(n int) string {
	s := ", &x0 {}"
	for k := range n {
		s += fmt.Sprintf(", &x%d {<<: [*x%d, *x%d]}", k+1, k, k)
	}
	return s
}

// Aliases cannot expand a small file to a large configuration.
func TestParse_RefusesAliasesThatExpandTooFar(t *testing.T) {
	for name, text := range map[string]string{
		"aliases": "secret: {names: &a [" + strings.Repeat("x, ", 1000) + "x]}\nprocess_groups: [" + strings.Repeat("{name: a, args: *a}, ", 200) + "{name: b}]",
		"merges":  "secret: {names: [a, &x {}" + doubled(20) + "]}\nprocess_groups: [{name: a, env: {<<: *x20}}]",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := config.Parse("f.yaml", []byte(text))
			if err == nil || strings.Count(err.Error(), "with its aliases expanded") != 1 {
				t.Errorf("%.300v", err)
			}
		})
	}
}

// A group that is scaled to 0 can keep its canaries.
func TestParse_AcceptsCanariesInEmptyGroup(t *testing.T) {
	c := parse(t, "process_groups: [{name: a, desired_instances: 0, canary: {instances: 1}}]")
	if err := c.Launcher().Validate(); err != nil {
		t.Error(err)
	}
}
