// The tests check that what the documentation tells people to deploy would work: that the manifests and units are
// valid, that their times add up, and that the pages show what the files say.
package lint_test

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
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// graceVariable is where package graceful looks for the time that it has.
const graceVariable = "TERMINATION_GRACE_PERIOD_SECONDS"

const docs = "../.."

// decode reads a manifest and fails on a field that its type does not have, and on one given twice.
func decode[T any](t *testing.T, name string) (v T) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../kubernetes", name))
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
	if diff := cmp.Diff(metav1.TypeMeta{Kind: kind, APIVersion: version}, meta(v)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
	return v
}

// A ladder is what the flags of the example say.
type ladder struct{ lameDuck, soft, hard time.Duration }

func (l ladder) total() time.Duration { return l.lameDuck + l.soft + l.hard }

func ladderOf(args []string) (l ladder, err error) {
	found := 0
	for _, a := range args {
		name, value, _ := strings.Cut(a, "=")
		into, ok := map[string]*time.Duration{"-lame-duck": &l.lameDuck, "-soft": &l.soft, "-hard": &l.hard}[name]
		if !ok {
			continue
		}
		if *into, err = time.ParseDuration(value); err != nil {
			return l, err
		}
		found++
	}
	if found != 3 {
		return l, fmt.Errorf("%q gives %d of -lame-duck, -soft and -hard", args, found)
	}
	return l, nil
}

// fits returns what is wrong with the times.
func fits(l ladder, before, grace time.Duration) error {
	if sum := before + l.total(); sum >= grace {
		return fmt.Errorf("preStop %v + lame duck %v + soft %v + hard %v = %v, which is not less than %v", before, l.lameDuck, l.soft, l.hard, sum, grace)
	}
	return nil
}

func TestArithmetic(t *testing.T) {
	l, err := ladderOf([]string{"-lame-duck=5s", "-other", "-soft=15s", "-hard=2s"})
	if err != nil || fits(l, 0, 30*time.Second) != nil || fits(l, 7*time.Second, 30*time.Second) != nil {
		t.Error("refuses what fits")
	}
	if fits(l, 0, 22*time.Second) == nil || fits(l, 8*time.Second, 30*time.Second) == nil {
		t.Error("accepts what does not fit")
	}
	if _, err := ladderOf([]string{"-soft=15s"}); err == nil {
		t.Error("accepts half a ladder")
	}
}

func TestDeployment(t *testing.T) {
	d := deployment(t, "deployment.yaml")
	pod := d.Spec.Template
	selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	if err != nil || !selector.Matches(labels.Set(pod.Labels)) {
		t.Errorf("the selector does not match its own pods: %v", err)
	}
	c := pod.Spec.Containers[0]
	l, err := ladderOf(c.Args)
	if err != nil {
		t.Fatal(err)
	}
	grace := time.Duration(*pod.Spec.TerminationGracePeriodSeconds) * time.Second
	if err := fits(l, 0, grace); err != nil {
		t.Error(err)
	}
	var told string
	for _, e := range c.Env {
		if e.Name == graceVariable {
			told = e.Value
		}
	}
	if want := strconv.FormatInt(*pod.Spec.TerminationGracePeriodSeconds, 10); told != want {
		t.Errorf("%s is %q, and the grace period %s", graceVariable, told, want)
	}
	if shell := regexp.MustCompile(`(^|/)(ba|da)?sh$`); shell.MatchString(c.Command[0]) {
		t.Errorf("%s keeps SIGTERM for itself", c.Command[0])
	}

	// What is probed is there, and readiness is believed within the lame duck.
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
		t.Errorf("readiness takes %v to be noticed, and the lame duck %v", seen, l.lameDuck)
	}
	if c.ReadinessProbe.HTTPGet.Path == c.LivenessProbe.HTTPGet.Path {
		t.Error("a program that drains would fail its liveness probe")
	}

	// The others are about the same pods.
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
	if diff := cmp.Diff(want, hpa.Spec.ScaleTargetRef); diff != "" {
		t.Errorf("the HorizontalPodAutoscaler scales something else (-want +got):\n%s", diff)
	}
	for _, p := range hpa.Spec.Behavior.ScaleDown.Policies {
		if time.Duration(p.PeriodSeconds)*time.Second < grace {
			t.Error("scale-in is faster than a drain")
		}
	}
	if d.Spec.Replicas != nil {
		t.Error("the Deployment and the autoscaler both set the replicas")
	}
}

func TestPreStop(t *testing.T) {
	whole, patch := deployment(t, "deployment.yaml"), deployment(t, "prestop.yaml")
	c := patch.Spec.Template.Spec.Containers[0]
	l, err := ladderOf(c.Args)
	if err != nil {
		t.Fatal(err)
	}
	if l.lameDuck != 0 {
		t.Error("a lame duck on top of preStop")
	}
	before := time.Duration(c.Lifecycle.PreStop.Sleep.Seconds) * time.Second
	if err := fits(l, before, time.Duration(*whole.Spec.Template.Spec.TerminationGracePeriodSeconds)*time.Second); err != nil {
		t.Error(err)
	}
	if whole.Name != patch.Name || whole.Spec.Template.Spec.Containers[0].Name != c.Name {
		t.Error("patches something else")
	}
}

func TestSidecar(t *testing.T) {
	for _, c := range deployment(t, "sidecar.yaml").Spec.Template.Spec.InitContainers {
		if c.RestartPolicy == nil || *c.RestartPolicy != corev1.ContainerRestartPolicyAlways {
			t.Errorf("%s is no sidecar", c.Name)
		}
	}
}

// setting returns the last value that a unit gives a key.
func setting(unit, key string) (value string) {
	for line := range strings.Lines(unit) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), "="); ok && k == key {
			value = v
		}
	}
	return value
}

func TestService(t *testing.T) {
	text, err := os.ReadFile("../systemd/example.service")
	if err != nil {
		t.Fatal(err)
	}
	unit := string(text)
	l, err := ladderOf(strings.Fields(setting(unit, "ExecStart")))
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
	if told := setting(unit, "Environment"); told != graceVariable+"="+limit {
		t.Errorf("Environment=%s, and TimeoutStopSec=%s", told, limit)
	}
	for key, want := range map[string]string{"Type": "notify", "NotifyAccess": "main", "KillMode": "mixed", "SuccessExitStatus": ""} {
		if got := setting(unit, key); got != want {
			t.Errorf("%s=%s, not %s", key, got, want)
		}
	}
}

func TestUnitsVerify(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("systemd-analyze is missing, and CI skips nothing (apt-get install systemd)")
		}
		t.Skip("skipped: there is no systemd-analyze")
	}
	units, err := filepath.Glob("../systemd/*")
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
		// The program has to exist.
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

// TestPagesShowTheFiles compares each marked block with its file, and sees that no file and no block is left over.
func TestPagesShowTheFiles(t *testing.T) {
	for page, dir := range map[string]string{"kubernetes.md": "deploy/kubernetes", "systemd.md": "deploy/systemd"} {
		text, err := os.ReadFile(filepath.Join(docs, page))
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
