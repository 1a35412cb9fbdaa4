package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
)

// quiet is how long all objects must stay unchanged before a state is recorded. The wait is needed
// because a controller that has observed all objects may still be about to change one of them.
const quiet = 400 * time.Millisecond

// A rollout records a trace while a Deployment is rolled out in a cluster.
type rollout struct {
	*trace
	number int
	client *kubernetes.Clientset
	seen   *cluster
	random *rand.Rand
}

func (r *rollout) name() string { return fmt.Sprint("rollout-", r.number) }

func (r *rollout) run(ctx context.Context) error {
	r.random = rand.New(rand.NewPCG(1, uint64(r.number)))
	if _, err := r.client.AppsV1().Deployments("default").Create(ctx, r.deployment(), metav1.CreateOptions{}); err != nil {
		return err
	}
	if err := r.settle(ctx, ""); err != nil {
		return err
	}
	for range r.Desired {
		if err := r.do(ctx, "ready old"); err != nil {
			return err
		}
		if r.MinReady {
			if err := r.do(ctx, "prove old"); err != nil {
				return err
			}
		}
	}
	if err := r.do(ctx, "update"); err != nil {
		return err
	}
	r.Steps = r.Steps[len(r.Steps)-1:]
	crashes, changeAt, target := 0, -1, 1
	switch r.Life {
	case undo, supersede:
		crashes, changeAt = 2, 1+r.random.IntN(2*int(r.Desired)+1)
	case crashing, proving:
		crashes = 4
	}
	for len(r.Steps) < 200 {
		if len(r.Steps) == changeAt {
			if target = 0; r.Life == supersede {
				target = 2
			}
			if err := r.do(ctx, string(r.Life)); err != nil {
				return err
			}
			continue
		}
		n := r.Steps[len(r.Steps)-1].Then
		end := make([]counts, len(n))
		end[target][available] = int(r.Desired)
		if slices.Equal(n, end) {
			return nil
		}
		event := r.choose(n, &crashes)
		if event == "" {
			return fmt.Errorf("no pod can be created, become available or end, but the rollout has not ended: %v", n)
		}
		if err := r.do(ctx, event); err != nil {
			return err
		}
	}
	return fmt.Errorf("the rollout has not ended after %d steps", len(r.Steps))
}

// choose returns the next event.
func (r *rollout) choose(n []counts, crashes *int) string {
	var ends, readies, crashables []string
	for v := range n {
		name := names[v]
		for range n[v][terminating] {
			ends = append(ends, "end "+name)
		}
		for range n[v][starting] {
			readies = append(readies, "ready "+name)
		}
		for range n[v][fresh] {
			readies = append(readies, "prove "+name)
			crashables = append(crashables, "relapse "+name)
		}
		for range n[v][available] {
			crashables = append(crashables, "crash "+name)
		}
	}
	of := func(some []string) string {
		if len(some) == 0 {
			return ""
		}
		return some[r.random.IntN(len(some))]
	}
	switch {
	case r.Life == prompt && len(ends) > 0, r.Life == slow && len(readies) == 0:
		return of(ends)
	case r.Life == prompt, r.Life == slow:
		return of(readies)
	case *crashes > 0 && len(crashables) > 0 && r.random.IntN(3) == 0:
		*crashes--
		return of(crashables)
	}
	return of(append(ends, readies...))
}

// do makes an event happen, and waits until the controllers are idle again.
func (r *rollout) do(ctx context.Context, event string) error {
	r.seen.mu.Lock()
	r.seen.objectsOf(r.name()).scaled = nil
	r.seen.mu.Unlock()
	var err error
	what, version, _ := strings.Cut(event, " ")
	pod := func(health int, do func(p *corev1.Pod) error) error { return r.pod(ctx, version, health, do) }
	switch what {
	case "update":
		err = r.image(ctx, names[1])
	case "undo":
		err = r.image(ctx, names[0])
	case "supersede":
		err = r.image(ctx, names[2])
	case "ready":
		err = pod(starting, func(p *corev1.Pod) error { return r.status(ctx, p, corev1.PodRunning, true, 0) })
	case "prove":
		err = pod(fresh, func(p *corev1.Pod) error { return r.status(ctx, p, corev1.PodRunning, true, 2*readyTime) })
	case "relapse":
		err = pod(fresh, func(p *corev1.Pod) error { return r.crash(ctx, p) })
	case "crash":
		err = pod(available, func(p *corev1.Pod) error { return r.crash(ctx, p) })
	case "end":
		err = pod(terminating, func(p *corev1.Pod) error { return r.remove(ctx, p) })
	}
	if err != nil {
		return fmt.Errorf("%s: %w", event, err)
	}
	return r.settle(ctx, event)
}

// crash makes a pod crash in one of two ways: its container is started again, or the pod fails as a
// whole, and the ReplicaSet starts another one. Either way a starting pod takes its place.
func (r *rollout) crash(ctx context.Context, p *corev1.Pod) error {
	if r.random.IntN(2) == 0 {
		return r.status(ctx, p, corev1.PodRunning, false, 0)
	}
	if err := r.status(ctx, p, corev1.PodFailed, false, 0); err != nil {
		return err
	}
	return r.remove(ctx, p)
}

func (r *rollout) deployment() *appsv1.Deployment {
	labels := map[string]string{label: r.name()}
	minReady := int32(0)
	if r.MinReady {
		minReady = int32(readyTime / time.Second)
	}
	surge, unavailable := intstr.FromInt32(r.Surge), intstr.FromInt32(r.Unavailable)
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: r.name(), Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas:                &r.Desired,
			MinReadySeconds:         minReady,
			Selector:                &metav1.LabelSelector{MatchLabels: labels},
			ProgressDeadlineSeconds: new(int32(2 * readyTime / time.Second)),
			Strategy: appsv1.DeploymentStrategy{
				Type:          appsv1.RollingUpdateDeploymentStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &surge, MaxUnavailable: &unavailable},
			},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					// Kubernetes would delete a pod without a node at once, and the pod would never
					// be terminating.
					NodeName:   "node",
					Containers: []corev1.Container{{Name: "container", Image: names[0]}},
				},
			},
		},
	}
}

func (r *rollout) image(ctx context.Context, image string) error {
	patch := fmt.Appendf(nil, `[{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": %q}]`, image)
	d, err := r.client.AppsV1().Deployments("default").Patch(ctx, r.name(), types.JSONPatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return err
	}
	return r.until(ctx, func(o *objects) bool { return o.deployment.Generation >= d.Generation })
}

// pod calls the function do with one of the pods that have this version and health.
func (r *rollout) pod(ctx context.Context, version string, health int, do func(*corev1.Pod) error) error {
	r.seen.mu.Lock()
	var some []*corev1.Pod
	for _, p := range r.seen.objectsOf(r.name()).pods {
		if h, ok := healthOf(p, r.MinReady); ok && h == health && names[versionOf(p.Spec)] == version {
			some = append(some, p)
		}
	}
	r.seen.mu.Unlock()
	if len(some) == 0 {
		return fmt.Errorf("no such pod")
	}
	slices.SortFunc(some, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return do(some[r.random.IntN(len(some))])
}

func (r *rollout) status(ctx context.Context, p *corev1.Pod, phase corev1.PodPhase, ready bool, since time.Duration) error {
	p = p.DeepCopy()
	p.Status.Phase = phase
	condition := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(time.Now().Add(-since))}
	if ready {
		condition.Status = corev1.ConditionTrue
	}
	p.Status.Conditions = []corev1.PodCondition{condition}
	p, err := r.client.CoreV1().Pods("default").UpdateStatus(ctx, p, metav1.UpdateOptions{})
	if err != nil {
		return err
	}
	return r.until(ctx, func(o *objects) bool {
		now := o.pods[p.Name]
		return now == nil || now.ResourceVersion == p.ResourceVersion || now.DeletionTimestamp != nil
	})
}

func (r *rollout) remove(ctx context.Context, p *corev1.Pod) error {
	if err := r.client.CoreV1().Pods("default").Delete(ctx, p.Name, *metav1.NewDeleteOptions(0)); err != nil {
		return err
	}
	return r.until(ctx, func(o *objects) bool { return o.pods[p.Name] == nil })
}

// settle waits until the controllers are idle, and records what they have done.
func (r *rollout) settle(ctx context.Context, event string) error {
	return r.until(ctx, func(o *objects) bool {
		if !o.settled() || time.Since(o.changed) < quiet {
			return false
		}
		if event != "" {
			then, versions := o.counts(), 2
			if r.Life == supersede {
				versions = 3
			}
			r.Steps = append(r.Steps, step{Event: event, Scale: slices.Clone(o.scaled), Then: then[:versions]})
		}
		return true
	})
}

func (r *rollout) until(ctx context.Context, f func(*objects) bool) error {
	late := time.Now().Add(time.Minute)
	for {
		r.seen.mu.Lock()
		o := r.seen.objectsOf(r.name())
		ok, now := f(o), o.counts()
		r.seen.mu.Unlock()
		switch {
		case ok:
			return nil
		case time.Now().After(late):
			return fmt.Errorf("the controllers did not become idle: %v", now)
		case ctx.Err() != nil:
			return ctx.Err()
		}
		time.Sleep(20 * time.Millisecond)
	}
}
