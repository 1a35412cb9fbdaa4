package export_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher/config"
	"github.com/swansong-go/swansong/launcher/export"
	"go.uber.org/goleak"
	"go.yaml.in/yaml/v4"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var update = flag.Bool("update", false, "write the golden files")

func parse(t *testing.T, text string) *config.Config {
	t.Helper()
	c, err := config.Parse("launcher.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func example(t *testing.T) *config.Config {
	t.Helper()
	text, err := os.ReadFile("testdata/launcher.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, string(text))
}

func to(t *testing.T, target string, c *config.Config) *export.Result {
	t.Helper()
	r, err := export.To(target, c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The files are equal to those in testdata, which the tests in internal/integration/export read
// with the code of the targets.
func TestExport_WritesSameFilesAsTestdata(t *testing.T) {
	for _, target := range export.Targets() {
		t.Run(target, func(t *testing.T) {
			r, dir := to(t, target, example(t)), filepath.Join("testdata", target)
			var gaps strings.Builder
			for _, g := range r.Gaps {
				fmt.Fprintln(&gaps, g)
			}
			r.Files = append(r.Files, export.File{Name: "gaps.txt", Text: []byte(gaps.String())})
			if *update {
				if err := os.RemoveAll(dir); err != nil {
					t.Fatal(err)
				}
				if err := os.MkdirAll(dir, 0o755); err != nil {
					t.Fatal(err)
				}
				if err := r.Write(dir); err != nil {
					t.Fatal(err)
				}
			}
			want, got := map[string]string{}, map[string]string{}
			for _, f := range r.Files {
				got[f.Name] = string(f.Text)
			}
			entries, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				text, err := os.ReadFile(filepath.Join(dir, e.Name()))
				if err != nil {
					t.Fatal(err)
				}
				want[e.Name()] = string(text)
			}
			testkit.Equal(t, "go test ./export -update writes the golden files", got, want)
		})
	}
}

// Print writes YAML files as the documents of one stream, and unit files each after a comment with
// its name. It writes one JSON file as it is, and refuses several.
func TestResult_PrintsAllFilesToOneStreamUnlessSeveralAreJSON(t *testing.T) {
	const one, two = "process_groups: [{name: aaa}]", "process_groups: [{name: aaa}, {name: bbb}]"
	print := func(target, text string) (string, error) {
		var out bytes.Buffer
		err := to(t, target, parse(t, text)).Print(&out)
		return out.String(), err
	}
	t.Run("kubernetes", func(t *testing.T) {
		out, err := print("kubernetes", two)
		if err != nil {
			t.Fatal(err)
		}
		docs, err := yaml.NewLoader(strings.NewReader(out))
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for {
			var doc struct{ Metadata struct{ Name string } }
			if err := docs.Load(&doc); err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("%v in\n%s", err, out)
			}
			names = append(names, doc.Metadata.Name)
		}
		if diff := cmp.Diff([]string{"aaa", "bbb"}, names); diff != "" {
			t.Errorf("Deployments (-want +got):\n%s\n%s", diff, out)
		}
	})
	t.Run("nomad", func(t *testing.T) {
		out, err := print("nomad", one)
		if err != nil || !json.Valid([]byte(out)) {
			t.Errorf("%v, and no JSON:\n%s", err, out)
		}
		if out, err := print("nomad", two); err == nil || out != "" || !strings.Contains(err.Error(), "to a directory") {
			t.Errorf("%v, and printed is\n%s", err, out)
		}
	})
	t.Run("systemd", func(t *testing.T) {
		out, err := print("systemd", two)
		for _, name := range []string{"# aaa@.service\n", "# bbb.target\n"} {
			if err != nil || !strings.Contains(out, name) {
				t.Errorf("%v, and no %q in\n%s", err, name, out)
			}
		}
	})
}

func TestExport_WritesNoSecrets(t *testing.T) {
	for _, target := range export.Targets() {
		r := to(t, target, example(t))
		for _, f := range r.Files {
			if strings.Contains(string(f.Text), "hunter2") {
				t.Errorf("%s: %s has a secret", target, f.Name)
			}
		}
		said := false
		for _, g := range r.Gaps {
			said = said || g.Key == "env" && strings.Contains(g.What, "DATABASE_URL, SIGNING_KEY")
			if strings.Contains(g.String(), "hunter2") {
				t.Errorf("%s: %v", target, g)
			}
		}
		if !said {
			t.Errorf("%s does not say where secrets belong", target)
		}
	}
}

func TestKubernetes_RoundsUpGracePeriod(t *testing.T) {
	for _, c := range []struct{ shutdown, want string }{
		{"{}", "terminationGracePeriodSeconds: 13\n"},
		{"{deregister_delay: 5s}", "terminationGracePeriodSeconds: 18\n"},
		{"{deregister_delay: 300ms, max_duration: 10300ms, sigterm_timeout: 1400ms}", "terminationGracePeriodSeconds: 13\n"},
		{"{deregister_delay: 300ms, max_duration: 10300ms, sigterm_timeout: 1401ms}", "terminationGracePeriodSeconds: 14\n"},
	} {
		r := to(t, "kubernetes", parse(t, "process_groups: [{name: kv, shutdown: "+c.shutdown+"}]"))
		if text := string(r.Files[0].Text); !strings.Contains(text, c.want) {
			t.Errorf("%s: no %q in\n%s", c.shutdown, c.want, text)
		}
	}
}

// A process gets the port of its health checks, unless the file says that the program has its own
// health server.
func TestExport_PassesHealthPortToProgram(t *testing.T) {
	for _, c := range []struct {
		group string
		set   bool
	}{
		{"protocol: grpc, export: {grpc_port: 1234}", true},
		{"protocol: grpc, export: {grpc_port: 1234}, env: {SWANSONG_HEALTH_PORT: ''}", false},
		{"protocol: grpc, readinessProbe: {tcpSocket: {port: 1}}", false},
		{"export: {grpc_port: 1234}", false},
		{"protocol: signals", false},
	} {
		for target, want := range map[string]string{
			"kubernetes": "- name: SWANSONG_HEALTH_PORT\n          value: '1234'\n",
			"nomad":      `"SWANSONG_HEALTH_PORT": "1234"`,
		} {
			r := to(t, target, parse(t, "process_groups: [{name: kv, "+c.group+"}]"))
			if text := string(r.Files[0].Text); strings.Contains(text, want) != c.set {
				t.Errorf("%s: %q is there is not %v:\n%s", c.group, want, c.set, text)
			}
		}
	}
}

// An export reports the settings that its target, such as systemd, does not support.
func TestExport_ReportsSettingsThatTargetDoesNotSupport(t *testing.T) {
	const group = `process_groups: [{name: kv, on_failure: rollback, retry: {policy: exponential}, progress_deadline: 1m, pre_stop: [{command: "true"}]}]`
	said := func(r *export.Result, key, what string) bool {
		return slices.ContainsFunc(r.Gaps, func(g export.Gap) bool { return g.Key == key && strings.Contains(g.What, what) })
	}
	r := to(t, "systemd", parse(t, group))
	for key, what := range map[string]string{"on_failure": "rollback", "retry": "RestartSec", "progress_deadline": "TimeoutStartSec", "pre_stop": "MAINPID"} {
		if !said(r, key, what) {
			t.Errorf("systemd: no gap of %s with %q in %v", key, what, r.Gaps)
		}
	}
	for _, line := range []string{"Environment=SWANSONG_PROCESS_ID=%p-%i\n", "Environment=SWANSONG_PROCESS_GROUP=%p\n"} {
		if text := string(r.Files[0].Text); !strings.Contains(text, line) {
			t.Errorf("no %q in\n%s", line, text)
		}
	}
	if r := to(t, "kubernetes", parse(t, group)); !said(r, "pre_stop", "SWANSONG_PROCESS_PID") {
		t.Errorf("kubernetes: no gap of what the hook is not told in %v", r.Gaps)
	}
}

// No target supports total_deadline. That is reported if the file sets it.
func TestExport_ReportsThatTotalDeadlineIsNotExported(t *testing.T) {
	for text, want := range map[string]int{"process_groups: [{name: kv}]": 0, "total_deadline: 50s\nprocess_groups: [{name: kv}]": 1} {
		for _, target := range export.Targets() {
			gaps := 0
			for _, g := range to(t, target, parse(t, text)).Gaps {
				if strings.HasPrefix(g.String(), "total_deadline: there is no deadline") {
					gaps++
				}
			}
			if gaps != want {
				t.Errorf("%s: %q: %d gaps, want %d", target, text, gaps, want)
			}
		}
	}
}

// A setting that a target does not support is reported once, for a service and for a job.
func TestExport_ReportsEachGapOnce(t *testing.T) {
	const settings = "command: kv, args: [--password=hunter2, '{dir}'], env: {API_TOKEN: hunter2}, env_file: [/etc/kv.env], " +
		"pre_stop: [{command: hook, args: [--password=hunter2, '{socket}', '{id}']}], livenessProbe: {exec: {command: [a, '{id}']}}"
	for _, target := range export.Targets() {
		for _, kind := range []string{"service", "job"} {
			reported := map[export.Gap]bool{}
			for _, g := range to(t, target, parse(t, "process_groups: [{name: kv, kind: "+kind+", "+settings+"}]")).Gaps {
				if reported[g] {
					t.Errorf("%s: %s: twice: %v", target, kind, g)
				}
				reported[g] = true
			}
			if !reported[export.Gap{Group: "kv", Key: "args", What: "has a secret, which is not exported; pass it by env or by a file"}] {
				t.Errorf("%s: %s: the secret in args is not reported: %v", target, kind, reported)
			}
		}
	}
}

func TestKubernetes_ConvertsLimitsOfRollingUpdate(t *testing.T) {
	for _, c := range []struct{ group, want string }{
		{"desired_instances: 3, min_healthy_instances: 2", "maxSurge: 1\n      maxUnavailable: 1\n"},
		{"desired_instances: 3", "maxSurge: 1\n      maxUnavailable: 0\n"},
		{"desired_instances: 3, max_surge: 0", "maxSurge: 0\n      maxUnavailable: 1\n"},
		{"desired_instances: 0, max_surge: 0", "maxSurge: 1\n      maxUnavailable: 0\n"},
	} {
		r := to(t, "kubernetes", parse(t, "process_groups: [{name: kv, "+c.group+"}]"))
		if text := string(r.Files[0].Text); !strings.Contains(text, c.want) {
			t.Errorf("%s: no %q in\n%s", c.group, c.want, text)
		}
	}
}

func TestExport_RefusesUnknownTarget(t *testing.T) {
	_, err := export.To("swarm", &config.Config{})
	if err == nil || !strings.Contains(err.Error(), "the targets are kubernetes, nomad, systemd") {
		t.Errorf("%v", err)
	}
}

func TestResultWrite_ErrorNamesFile(t *testing.T) {
	r := to(t, "systemd", example(t))
	if err := r.Write(filepath.Join(t.TempDir(), "not", "there")); err == nil || !strings.Contains(err.Error(), "keyvalue-runner@.service") {
		t.Errorf("%v", err)
	}
}

// If systemd does not support the address of a socket unit, it refuses that unit and every service
// that requires it. So Systemd exports no unit for such an address.
func TestSystemdExport_ReportsUnsupportedListener(t *testing.T) {
	r := to(t, "systemd", parse(t, `process_groups: [{name: a, listeners: [{name: http, address: "127.0.0.1:80"}, {name: any, address: "127.0.0.1:0"}]}]`))
	var names, sockets []string
	for _, f := range r.Files {
		names = append(names, f.Name)
		for line := range strings.Lines(string(f.Text)) {
			if strings.Contains(line, ".socket") {
				sockets = append(sockets, strings.TrimSpace(line))
			}
		}
	}
	testkit.Equal(t, "files", names, []string{"a@.service", "a-http.socket", "a.target"})
	testkit.Equal(t, "required sockets", sockets, []string{"Requires=a-http.socket", "After=a-http.socket", "Sockets=a-http.socket"})
	left := slices.ContainsFunc(r.Gaps, func(g export.Gap) bool { return strings.HasPrefix(g.What, "any: is not exported; ") })
	if !left {
		t.Errorf("there is no gap for the listener: %v", r.Gaps)
	}
}

// The exported files tell a process its time limit. That is not longer than the time after which
// systemd or Nomad kills the process.
func TestExport_GracePeriodIsNotLongerThanLimitOfTarget(t *testing.T) {
	c := parse(t, `process_groups: [{name: a, shutdown: {grace_period: 1s, max_duration: 1s, sigterm_timeout: 200ms}}]`)
	for target, file := range map[string]string{"systemd": "Environment=TERMINATION_GRACE_PERIOD_SECONDS=2\n", "nomad": `"TERMINATION_GRACE_PERIOD_SECONDS": "2"`} {
		r := to(t, target, c)
		if !slices.ContainsFunc(r.Files, func(f export.File) bool { return strings.Contains(string(f.Text), file) }) {
			t.Errorf("%s does not say %s", target, file)
		}
	}
}

// A program with the defaults of package graceful accepts the time limit of a group with the
// defaults.
func TestSystemd_DefaultTimeLimitIsAcceptedByPackageGraceful(t *testing.T) {
	r := to(t, "systemd", parse(t, `process_groups: [{name: a}]`))
	grace := regexp.MustCompile(`TERMINATION_GRACE_PERIOD_SECONDS=(\d+)`).FindSubmatch(r.Files[0].Text)
	if grace == nil {
		t.Fatalf("no grace period in\n%s", r.Files[0].Text)
	}
	t.Setenv("TERMINATION_GRACE_PERIOD_SECONDS", string(grace[1]))
	if err := graceful.Run(t.Context(), func(*ctxshutdown.Swansong) error { return nil }, graceful.WithOutput(t.Output())); err != nil {
		t.Error(err)
	}
}
