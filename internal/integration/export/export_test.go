package export_test

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	nomad "github.com/hashicorp/nomad/api"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"
)

// files returns the files in testdata that were exported for a target, by name. The tests of
// package export check that the exporter writes exactly these files.
func files(t *testing.T, target, pattern string) map[string][]byte {
	t.Helper()
	names, err := filepath.Glob(filepath.Join("../../../launcher/export/testdata", target, pattern))
	if err != nil || len(names) == 0 {
		t.Fatalf("no files: %v", err)
	}
	all := map[string][]byte{}
	for _, n := range names {
		if all[filepath.Base(n)], err = os.ReadFile(n); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func deployments(t *testing.T) map[string]appsv1.Deployment {
	t.Helper()
	all := map[string]appsv1.Deployment{}
	for name, text := range files(t, "kubernetes", "*.deployment.yaml") {
		var d appsv1.Deployment
		if err := yaml.UnmarshalStrict(text, &d); err != nil { // UnmarshalStrict refuses unknown and duplicate keys
			t.Fatalf("%s: %v", name, err)
		}
		all[strings.TrimSuffix(name, ".deployment.yaml")] = d
	}
	return all
}

// The Deployments contain nothing that the Kubernetes API server would refuse, and nothing that
// could not work.
func TestKubernetes_ServerAcceptsDeployments(t *testing.T) {
	for name, d := range deployments(t) {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(metav1.TypeMeta{Kind: "Deployment", APIVersion: "apps/v1"}, d.TypeMeta); diff != "" {
				t.Error(diff)
			}
			s, pod := d.Spec, d.Spec.Template
			selector, err := metav1.LabelSelectorAsSelector(s.Selector)
			if err != nil || selector.Empty() || !selector.Matches(labels.Set(pod.Labels)) {
				t.Errorf("the selector does not match its own pods: %v", err)
			}
			c := pod.Spec.Containers[0]
			for _, n := range []string{d.Name, c.Name} {
				if errs := validation.IsDNS1123Label(n); len(errs) > 0 {
					t.Errorf("%q: %v", n, errs)
				}
			}
			if r := s.Strategy.RollingUpdate; r.MaxSurge.IntValue() == 0 && r.MaxUnavailable.IntValue() == 0 {
				t.Error("maxSurge and maxUnavailable are both 0")
			}
			if *s.ProgressDeadlineSeconds <= s.MinReadySeconds {
				t.Error("the progress deadline is not longer than minReadySeconds")
			}
			ports := map[int32]bool{}
			names := map[string]bool{}
			for _, p := range c.Ports {
				if errs := validation.IsValidPortName(p.Name); len(errs) > 0 || names[p.Name] {
					t.Errorf("port %q: %v", p.Name, errs)
				}
				ports[p.ContainerPort], names[p.Name] = true, true
			}
			for _, p := range []*corev1.Probe{c.StartupProbe, c.ReadinessProbe, c.LivenessProbe} {
				switch {
				case p == nil:
				case p.GRPC != nil && !ports[p.GRPC.Port], p.HTTPGet != nil && !ports[p.HTTPGet.Port.IntVal], p.TCPSocket != nil && !ports[p.TCPSocket.Port.IntVal]:
					t.Errorf("the probe uses a port that the container does not have: %+v", p)
				case p.PeriodSeconds < 1 || p.FailureThreshold < 1:
					t.Errorf("%+v", p)
				}
			}
			for _, e := range c.Env {
				if errs := validation.IsEnvVarName(e.Name); len(errs) > 0 {
					t.Errorf("variable %q: %v", e.Name, errs)
				}
			}
			if l := c.Lifecycle; l != nil && l.PreStop.Sleep != nil && l.PreStop.Sleep.Seconds >= *pod.Spec.TerminationGracePeriodSeconds {
				t.Error("preStop takes the whole grace period")
			}
		})
	}
}

// The Deployments have the values that the exporter computes from testdata/launcher.yaml.
func TestKubernetes_DeploymentHasValuesOfLauncherConfiguration(t *testing.T) {
	d := deployments(t)["keyvalue-runner"]
	type sums struct {
		Replicas, MinReady, Deadline, Surge, Unavailable int32
		Grace, Sleep                                     int64
		Startup, ReadinessPort                           int32
	}
	pod := d.Spec.Template.Spec
	c, r := pod.Containers[0], d.Spec.Strategy.RollingUpdate
	got := sums{*d.Spec.Replicas, d.Spec.MinReadySeconds, *d.Spec.ProgressDeadlineSeconds, int32(r.MaxSurge.IntValue()), int32(r.MaxUnavailable.IntValue()),
		*pod.TerminationGracePeriodSeconds, c.Lifecycle.PreStop.Sleep.Seconds, c.StartupProbe.PeriodSeconds * c.StartupProbe.FailureThreshold, c.ReadinessProbe.GRPC.Port}
	// MinReady is 2.5s, Grace is 4.7s + 15s + 1.5s + 1s, and Sleep is 4.7s, each rounded up.
	want := sums{Replicas: 4, MinReady: 3, Deadline: 300, Surge: 2, Unavailable: 4 - 3, Grace: 23, Sleep: 5, Startup: 45, ReadinessPort: 9000}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := *deployments(t)["legacy"].Spec.ProgressDeadlineSeconds; got != math.MaxInt32 {
		t.Errorf("no progress deadline is %d", got)
	}
}

// A job of the launcher is exported as a Job of Kubernetes. The containers of Jobs and of
// Deployments have the limits of their group.
func TestKubernetes_LauncherJobIsExportedAsKubernetesJob(t *testing.T) {
	var j batchv1.Job
	if err := yaml.UnmarshalStrict(files(t, "kubernetes", "migrate.job.yaml")["migrate.job.yaml"], &j); err != nil {
		t.Fatal(err)
	}
	type values struct {
		Kind, Version                          string
		Completions, Parallelism, BackoffLimit int32
		Restart                                corev1.RestartPolicy
		Memory, MilliCPUs                      int64
	}
	limits := j.Spec.Template.Spec.Containers[0].Resources.Limits
	got := values{j.Kind, j.APIVersion, *j.Spec.Completions, *j.Spec.Parallelism, *j.Spec.BackoffLimit, j.Spec.Template.Spec.RestartPolicy,
		limits.Memory().Value(), limits.Cpu().MilliValue()}
	if diff := cmp.Diff(values{"Job", "batch/v1", 3, 3, 4, corev1.RestartPolicyOnFailure, 2_000_000, 2000}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	c := deployments(t)["legacy"].Spec.Template.Spec.Containers[0]
	if *c.SecurityContext.RunAsUser != 1000 || *c.SecurityContext.RunAsGroup != 1001 || c.EnvFrom[0].SecretRef.Name != "legacy-env" ||
		c.Resources.Limits.Memory().Value() != 100<<20 || c.Resources.Limits.Cpu().MilliValue() != 1500 {
		t.Errorf("%+v", c)
	}
}

func jobs(t *testing.T) map[string]*nomad.Job {
	t.Helper()
	all := map[string]*nomad.Job{}
	for name, text := range files(t, "nomad", "*.json") {
		var file struct{ Job *nomad.Job }
		in := json.NewDecoder(bytes.NewReader(text))
		in.DisallowUnknownFields()
		if err := in.Decode(&file); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		file.Job.Canonicalize() // sets the defaults, as the Nomad server does
		all[strings.TrimSuffix(name, ".nomad.json")] = file.Job
	}
	return all
}

// The jobs contain nothing that the Nomad server would refuse.
func TestNomad_ServerAcceptsJobs(t *testing.T) {
	for name, j := range jobs(t) {
		t.Run(name, func(t *testing.T) {
			g := j.TaskGroups[0]
			u, r, task := g.Update, g.RestartPolicy, g.Tasks[0]
			if batch := *j.Type == "batch"; batch != (u == nil) {
				t.Fatalf("a job of the type %s has the update %+v; Nomad refuses one for a batch job", *j.Type, u)
			} else if batch {
				return
			}
			if *u.MaxParallel < 1 || *u.HealthyDeadline <= *u.MinHealthyTime || *u.ProgressDeadline <= *u.HealthyDeadline {
				t.Errorf("update: %+v", u)
			}
			if *u.AutoPromote && *u.Canary == 0 {
				t.Error("AutoPromote is not set")
			}
			if *r.Interval < 5*time.Second || time.Duration(*r.Attempts)**r.Delay > *r.Interval {
				t.Errorf("restarts %d times with pauses of %v within %v", *r.Attempts, *r.Delay, *r.Interval)
			}
			var ports []string
			for _, n := range g.Networks {
				for _, p := range append(n.DynamicPorts, n.ReservedPorts...) {
					ports = append(ports, p.Label)
					if !regexp.MustCompile(`^[a-zA-Z0-9_]+$`).MatchString(p.Label) {
						t.Errorf("port %q", p.Label)
					}
				}
			}
			for _, s := range g.Services {
				if !slices.Contains(ports, s.PortLabel) {
					t.Errorf("the service uses the port %q, which does not exist", s.PortLabel)
				}
				for _, c := range s.Checks {
					if c.Interval < time.Second || c.Timeout < time.Second {
						t.Errorf("check: %+v", c)
					}
				}
			}
			if task.Driver == "docker" && task.Config["image"] == nil {
				t.Error("docker without an image")
			}
		})
	}
	j := jobs(t)["keyvalue-runner"].TaskGroups[0]
	if got, want := *j.ShutdownDelay+*j.Tasks[0].KillTimeout, 22200*time.Millisecond; got != want {
		t.Errorf("a stop may take %v, not %v", got, want)
	}
}

func TestSystemd_AcceptsUnits(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("systemd-analyze is missing, and CI skips nothing (apt-get install systemd)")
		}
		t.Skip("skipped: there is no systemd-analyze")
	}
	temp := t.TempDir()
	args := []string{"verify", "--man=no", "--recursive-errors=no"}
	command := regexp.MustCompile(`(?m)^(Exec[A-Za-z]+=-?)\S+`)
	for _, pattern := range []string{"*.socket", "*.target"} {
		for name, text := range files(t, "systemd", pattern) {
			write(t, filepath.Join(temp, name), text)
			args = append(args, filepath.Join(temp, name))
		}
	}
	for name, text := range files(t, "systemd", "*.service") {
		text = command.ReplaceAll(text, []byte("${1}/bin/true")) // the program must exist for systemd-analyze
		for _, n := range []string{name, strings.Replace(name, "@", "@1", 1)} {
			write(t, filepath.Join(temp, n), text)
		}
		args = append(args, filepath.Join(temp, strings.Replace(name, "@", "@1", 1)))
	}
	run := exec.Command(analyze, args...)
	run.Env = append(os.Environ(), "SYSTEMD_UNIT_PATH="+temp+":")
	if out, err := run.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}

func write(t *testing.T, name string, text []byte) {
	t.Helper()
	if err := os.WriteFile(name, text, 0o644); err != nil {
		t.Fatal(err)
	}
}
