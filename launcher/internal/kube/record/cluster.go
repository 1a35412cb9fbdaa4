package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// label is the key of the label that each object has. The value is the name of its Deployment.
const label = "rollout"

// A cluster has the current objects of the Kubernetes server, by the name of their Deployment.
type cluster struct {
	mu  sync.Mutex
	all map[string]*objects
}

type objects struct {
	deployment *appsv1.Deployment
	replicas   [3]*appsv1.ReplicaSet // the replica set of each version
	pods       map[string]*corev1.Pod
	scaled     []string // decisions of the controllers since the last event
	changed    time.Time
}

// watch follows the changes on the server until ctx is done.
func watch(ctx context.Context, client *kubernetes.Clientset) *cluster {
	c := &cluster{all: map[string]*objects{}}
	shared := informers.NewSharedInformerFactory(client, 0)
	on := func(i cache.SharedIndexInformer) {
		i.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { c.onChange(o.(metav1.Object), false) },
			UpdateFunc: func(_, o any) { c.onChange(o.(metav1.Object), false) },
			DeleteFunc: func(o any) {
				if d, ok := o.(cache.DeletedFinalStateUnknown); ok {
					o = d.Obj
				}
				c.onChange(o.(metav1.Object), true)
			},
		})
	}
	on(shared.Apps().V1().Deployments().Informer())
	on(shared.Apps().V1().ReplicaSets().Informer())
	on(shared.Core().V1().Pods().Informer())
	shared.Start(ctx.Done())
	shared.WaitForCacheSync(ctx.Done())
	return c
}

func (c *cluster) onChange(o metav1.Object, gone bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.objectsOf(o.GetLabels()[label])
	all.changed = time.Now()
	switch o := o.(type) {
	case *appsv1.Deployment:
		all.deployment = o
	case *appsv1.ReplicaSet:
		v := versionOf(o.Spec.Template.Spec)
		if before := all.replicas[v]; before == nil && *o.Spec.Replicas > 0 || before != nil && *before.Spec.Replicas != *o.Spec.Replicas {
			all.scaled = append(all.scaled, fmt.Sprint(names[v], " ", *o.Spec.Replicas))
		}
		all.replicas[v] = o
	case *corev1.Pod:
		if all.pods[o.Name] = o; gone {
			delete(all.pods, o.Name)
		}
	}
}

// objectsOf returns the objects of a Deployment. The caller holds mu.
func (c *cluster) objectsOf(name string) *objects {
	all := c.all[name]
	if all == nil {
		all = &objects{pods: map[string]*corev1.Pod{}}
		c.all[name] = all
	}
	return all
}

// names are the images of pods. The image of a pod shows which version of its Deployment it has.
var names = [3]string{"old", "new", "newer"}

func versionOf(s corev1.PodSpec) int {
	return slices.Index(names[:], s.Containers[0].Image)
}

// readyTime is minReadySeconds of the Deployments: how long a pod must have been ready to count as
// available. The recording does not wait that long. It makes a pod available by a time in the past
// in the pod's condition Ready.
const readyTime = time.Hour

// healthOf returns the health of a pod, and false for a pod that has failed, which does not count.
func healthOf(p *corev1.Pod, minReady bool) (int, bool) {
	switch {
	case p.Status.Phase == corev1.PodFailed:
		return 0, false
	case p.DeletionTimestamp != nil:
		return terminating, true
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			if minReady && time.Since(c.LastTransitionTime.Time) < readyTime {
				return fresh, true
			}
			return available, true
		}
	}
	return starting, true
}

func (o *objects) counts() (n [3]counts) {
	for _, p := range o.pods {
		if h, ok := healthOf(p, o.deployment != nil && o.deployment.Spec.MinReadySeconds > 0); ok {
			n[versionOf(p.Spec)][h]++
		}
	}
	return n
}

// settled reports whether every controller has observed the current objects, and has nothing left
// to do.
func (o *objects) settled() bool {
	d := o.deployment
	if d == nil || d.Status.ObservedGeneration != d.Generation || o.replicas[versionOf(d.Spec.Template.Spec)] == nil {
		return false
	}
	n, sum := o.counts(), counts{}
	for v, r := range o.replicas {
		if r == nil {
			continue
		}
		live := n[v][starting] + n[v][fresh] + n[v][available]
		switch s := r.Status; {
		case s.ObservedGeneration != r.Generation, int(*r.Spec.Replicas) != live, int(s.Replicas) != live,
			int(s.ReadyReplicas) != n[v][fresh]+n[v][available], int(s.AvailableReplicas) != n[v][available],
			s.TerminatingReplicas == nil || int(*s.TerminatingReplicas) != n[v][terminating]:
			return false
		}
		for h := range sum {
			sum[h] += n[v][h]
		}
	}
	current := n[versionOf(d.Spec.Template.Spec)]
	s := d.Status
	return int(s.Replicas) == sum[starting]+sum[fresh]+sum[available] && int(s.ReadyReplicas) == sum[fresh]+sum[available] &&
		int(s.AvailableReplicas) == sum[available] && int(s.UpdatedReplicas) == current[starting]+current[fresh]+current[available] &&
		s.TerminatingReplicas != nil && int(*s.TerminatingReplicas) == sum[terminating]
}
