// The tests check the manifests and units that the documentation recommends: that they are valid,
// that their times fit into the grace period, and that the pages show the files as they are.
package deploy_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/swansong-go/swansong/internal/testkit"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// graceVariable is the environment variable in which package graceful expects the grace period.
const graceVariable = "TERMINATION_GRACE_PERIOD_SECONDS"

const docs = "../../../docs"

// decode reads a manifest. It fails the test if the type T lacks a field of the manifest, or if a
// field occurs twice.
func decode[T any](t *testing.T, name string) (v T) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../../docs/deploy/kubernetes", name))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(text, &v); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return v
}

func deployment(t *testing.T, name string) appsv1.Deployment {
	t.Helper()
	return is(t, name, decode[appsv1.Deployment](t, name), "apps/v1", "Deployment", func(d appsv1.Deployment) metav1.TypeMeta { return d.TypeMeta })
}

func is[T any](t *testing.T, name string, v T, version, kind string, meta func(T) metav1.TypeMeta) T {
	t.Helper()
	testkit.Equal(t, name, meta(v), metav1.TypeMeta{Kind: kind, APIVersion: version})
	return v
}

// phases are the times in the flags of the example program.
type phases struct{ lameDuck, soft, hard time.Duration }

func (p phases) total() time.Duration { return p.lameDuck + p.soft + p.hard }

func parsePhases(args []string) (p phases, err error) {
	found := 0
	for _, a := range args {
		name, value, _ := strings.Cut(a, "=")
		into, ok := map[string]*time.Duration{"-lame-duck": &p.lameDuck, "-soft": &p.soft, "-hard": &p.hard}[name]
		if !ok {
			continue
		}
		if *into, err = time.ParseDuration(value); err != nil {
			return p, err
		}
		found++
	}
	if found != 3 {
		return p, fmt.Errorf("%q sets only %d of the flags -lame-duck, -soft and -hard", args, found)
	}
	return p, nil
}

// fits returns an error if preStop and the phases together are not shorter than the grace period.
func fits(p phases, before, grace time.Duration) error {
	if sum := before + p.total(); sum >= grace {
		return fmt.Errorf("preStop %v + lame duck %v + soft %v + hard %v = %v, which is not less than %v", before, p.lameDuck, p.soft, p.hard, sum, grace)
	}
	return nil
}

func TestFits_RefusesPhasesThatExceedTimeLimit(t *testing.T) {
	l, err := parsePhases([]string{"-lame-duck=5s", "-other", "-soft=15s", "-hard=2s"})
	if err != nil || fits(l, 0, 30*time.Second) != nil || fits(l, 7*time.Second, 30*time.Second) != nil {
		t.Error("fits refuses times that fit")
	}
	if fits(l, 0, 22*time.Second) == nil || fits(l, 8*time.Second, 30*time.Second) == nil {
		t.Error("fits accepts times that do not fit")
	}
	if _, err := parsePhases([]string{"-soft=15s"}); err == nil {
		t.Error("parsePhases accepts a command line with one of the three flags")
	}
}

func TestDeploymentFile_PhasesFitGracePeriod(t *testing.T) {
	d := deployment(t, "deployment.yaml")
	pod := d.Spec.Template
	selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	if err != nil || !selector.Matches(labels.Set(pod.Labels)) {
		t.Errorf("the selector does not match its own pods: %v", err)
	}
	c := pod.Spec.Containers[0]
	l, err := parsePhases(c.Args)
	if err != nil {
		t.Fatal(err)
	}
	grace := time.Duration(*pod.Spec.TerminationGracePeriodSeconds) * time.Second
	if err := fits(l, 0, grace); err != nil {
		t.Error(err)
	}
	var inEnv string
	for _, e := range c.Env {
		if e.Name == graceVariable {
			inEnv = e.Value
		}
	}
	if want := strconv.FormatInt(*pod.Spec.TerminationGracePeriodSeconds, 10); inEnv != want {
		t.Errorf("%s is %q, but the grace period is %s", graceVariable, inEnv, want)
	}
	if shell := regexp.MustCompile(`(^|/)(ba|da)?sh$`); shell.MatchString(c.Command[0]) {
		t.Errorf("the command is %s, and a shell does not pass SIGTERM on; run the program itself", c.Command[0])
	}

	// Each probe uses a port of the container, and load balancers notice the failed readiness probe
	// within the lame duck phase.
	ports := map[string]bool{}
	for _, p := range c.Ports {
		ports[p.Name] = true
	}
	for name, p := range map[string]*corev1.Probe{"startup": c.StartupProbe, "readiness": c.ReadinessProbe, "liveness": c.LivenessProbe} {
		if p == nil || p.HTTPGet == nil || !ports[p.HTTPGet.Port.String()] {
			t.Errorf("%s probe: %+v", name, p)
		}
	}
	if seen := time.Duration(c.ReadinessProbe.PeriodSeconds*c.ReadinessProbe.FailureThreshold) * time.Second; seen >= l.lameDuck {
		t.Errorf("a failed readiness is noticed after %v, but the lame duck lasts %v", seen, l.lameDuck)
	}
	if c.ReadinessProbe.HTTPGet.Path == c.LivenessProbe.HTTPGet.Path {
		t.Error("a program that drains would fail its liveness probe")
	}

	// The other manifests must select the pods of the Deployment, or name the Deployment.
	service := is(t, "service.yaml", decode[corev1.Service](t, "service.yaml"), "v1", "Service", func(s corev1.Service) metav1.TypeMeta { return s.TypeMeta })
	if !labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(pod.Labels)) {
		t.Error("the Service selects other pods")
	}
	for _, p := range service.Spec.Ports {
		if !ports[p.TargetPort.String()] {
			t.Errorf("the Service sends to port %v, which the pod does not have", p.TargetPort.String())
		}
	}
	pdb := is(t, "poddisruptionbudget.yaml", decode[policyv1.PodDisruptionBudget](t, "poddisruptionbudget.yaml"),
		"policy/v1", "PodDisruptionBudget", func(p policyv1.PodDisruptionBudget) metav1.TypeMeta { return p.TypeMeta })
	if selector, err := metav1.LabelSelectorAsSelector(pdb.Spec.Selector); err != nil || !selector.Matches(labels.Set(pod.Labels)) {
		t.Errorf("the PodDisruptionBudget selects other pods: %v", err)
	}
	if n := pdb.Spec.MaxUnavailable; n == nil || n.IntValue() < 1 {
		t.Error("the PodDisruptionBudget blocks every node")
	}
	hpa := is(t, "horizontalpodautoscaler.yaml", decode[autoscalingv2.HorizontalPodAutoscaler](t, "horizontalpodautoscaler.yaml"),
		"autoscaling/v2", "HorizontalPodAutoscaler", func(h autoscalingv2.HorizontalPodAutoscaler) metav1.TypeMeta { return h.TypeMeta })
	want := autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: d.Name}
	testkit.Equal(t, "target of the HorizontalPodAutoscaler", hpa.Spec.ScaleTargetRef, want)
	for _, p := range hpa.Spec.Behavior.ScaleDown.Policies {
		if time.Duration(p.PeriodSeconds)*time.Second < grace {
			t.Error("scale-in is faster than a drain")
		}
	}
	if d.Spec.Replicas != nil {
		t.Error("the Deployment and the autoscaler both set the replicas")
	}
}

func TestPreStopPatch_PhasesFitGracePeriod(t *testing.T) {
	whole, patch := deployment(t, "deployment.yaml"), deployment(t, "prestop.yaml")
	c := patch.Spec.Template.Spec.Containers[0]
	l, err := parsePhases(c.Args)
	if err != nil {
		t.Fatal(err)
	}
	if l.lameDuck != 0 {
		t.Error("the patch has a lame duck in addition to preStop")
	}
	before := time.Duration(c.Lifecycle.PreStop.Sleep.Seconds) * time.Second
	if err := fits(l, before, time.Duration(*whole.Spec.Template.Spec.TerminationGracePeriodSeconds)*time.Second); err != nil {
		t.Error(err)
	}
	if whole.Name != patch.Name || whole.Spec.Template.Spec.Containers[0].Name != c.Name {
		t.Error("the patch is not for the container of deployment.yaml")
	}
}

func TestSidecarFile_RestartPolicyIsAlways(t *testing.T) {
	for _, c := range deployment(t, "sidecar.yaml").Spec.Template.Spec.InitContainers {
		if c.RestartPolicy == nil || *c.RestartPolicy != corev1.ContainerRestartPolicyAlways {
			t.Errorf("%s is not a sidecar; set restartPolicy: Always", c.Name)
		}
	}
}

// setting returns the last value of a key in a unit.
func setting(unit, key string) (value string) {
	for line := range strings.Lines(unit) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), "="); ok && k == key {
			value = v
		}
	}
	return value
}

func TestServiceFile_PhasesFitStopTimeout(t *testing.T) {
	text, err := os.ReadFile("../../../docs/deploy/systemd/example.service")
	if err != nil {
		t.Fatal(err)
	}
	unit := string(text)
	l, err := parsePhases(strings.Fields(setting(unit, "ExecStart")))
	if err != nil {
		t.Fatal(err)
	}
	limit := setting(unit, "TimeoutStopSec")
	seconds, err := strconv.Atoi(limit)
	if err != nil {
		t.Fatal(err)
	}
	if err := fits(l, 0, time.Duration(seconds)*time.Second); err != nil {
		t.Error(err)
	}
	if inEnv := setting(unit, "Environment"); inEnv != graceVariable+"="+limit {
		t.Errorf("Environment=%s does not have the grace period TimeoutStopSec=%s", inEnv, limit)
	}
	for key, want := range map[string]string{"Type": "notify", "NotifyAccess": "main", "KillMode": "mixed", "SuccessExitStatus": ""} {
		if got := setting(unit, key); got != want {
			t.Errorf("%s=%s, want %s", key, got, want)
		}
	}
}

func TestUnits_AreAcceptedBySystemd(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("systemd-analyze is missing, which CI does not skip; apt-get install systemd")
		}
		t.Skip("skipped: systemd-analyze is not installed")
	}
	units, err := filepath.Glob("../../../docs/deploy/systemd/*")
	if err != nil || len(units) == 0 {
		t.Fatalf("no units: %v", err)
	}
	temp := t.TempDir()
	args := []string{"verify", "--man=no", "--recursive-errors=no"}
	for _, name := range units {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		// systemd-analyze checks that the program exists.
		text = bytes.ReplaceAll(text, []byte("/usr/local/bin/example"), []byte("/bin/true"))
		copied := filepath.Join(temp, filepath.Base(name))
		if err := os.WriteFile(copied, text, 0o644); err != nil {
			t.Fatal(err)
		}
		args = append(args, copied)
	}
	if out, err := exec.Command(analyze, args...).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}

var block = regexp.MustCompile("(?s)<!-- (deploy/\\S+) -->\n```[a-z]+\n(.*?)```\n")

// TestPages_ShowDeploymentFilesUnchanged compares each marked block with its file, and checks that
// every file is shown and every block has a file.
func TestPages_ShowDeploymentFilesUnchanged(t *testing.T) {
	for page, dir := range map[string]string{"kubernetes.md": "deploy/kubernetes", "systemd.md": "deploy/systemd"} {
		text, err := os.ReadFile(filepath.Join(docs, "reference", page))
		if err != nil {
			t.Fatal(err)
		}
		shown := map[string]bool{}
		for _, m := range block.FindAllStringSubmatch(string(text), -1) {
			shown[m[1]] = true
			file, err := os.ReadFile(filepath.Join(docs, m[1]))
			if err != nil {
				t.Error(err)
				continue
			}
			if diff := cmp.Diff(string(file), m[2]); diff != "" {
				t.Errorf("%s does not show %s (-file +page):\n%s", page, m[1], diff)
			}
		}
		if n := strings.Count(string(text), "\n```") / 2; n != len(shown) {
			t.Errorf("%s has %d blocks, %d of them marked with a file", page, n, len(shown))
		}
		files, err := filepath.Glob(filepath.Join(docs, dir, "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if name := dir + "/" + filepath.Base(f); !shown[name] {
				t.Errorf("%s does not show %s", page, name)
			}
		}
	}
}
