package export

import (
	"fmt"
	"maps"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/swansong-go/swansong/launcher"
	"github.com/swansong-go/swansong/launcher/config"
	"go.yaml.in/yaml/v4"
)

// The following types declare only those fields of k8s.io/api that this package writes, in the
// usual order of the keys. The tests in internal/integration/export read the result into the real
// types.

type metadata struct {
	Name   string            `yaml:"name,omitempty"`
	Labels map[string]string `yaml:"labels"`
}

type deployment struct {
	APIVersion string         `yaml:"apiVersion"`
	Kind       string         `yaml:"kind"`
	Metadata   metadata       `yaml:"metadata"`
	Spec       deploymentSpec `yaml:"spec"`
}

type deploymentSpec struct {
	Replicas                int      `yaml:"replicas"`
	MinReadySeconds         int64    `yaml:"minReadySeconds"`
	ProgressDeadlineSeconds int64    `yaml:"progressDeadlineSeconds"`
	Selector                selector `yaml:"selector"`
	Strategy                strategy `yaml:"strategy"`
	Template                pod      `yaml:"template"`
}

type selector struct {
	MatchLabels map[string]string `yaml:"matchLabels"`
}

type strategy struct {
	Type          string        `yaml:"type"`
	RollingUpdate rollingUpdate `yaml:"rollingUpdate"`
}

type rollingUpdate struct {
	MaxSurge       int `yaml:"maxSurge"`
	MaxUnavailable int `yaml:"maxUnavailable"`
}

type pod struct {
	Metadata metadata `yaml:"metadata"`
	Spec     podSpec  `yaml:"spec"`
}

type podSpec struct {
	RestartPolicy                 string      `yaml:"restartPolicy,omitempty"`
	TerminationGracePeriodSeconds int64       `yaml:"terminationGracePeriodSeconds"`
	Containers                    []container `yaml:"containers"`
}

type container struct {
	Name           string     `yaml:"name"`
	Image          string     `yaml:"image"`
	Command        []string   `yaml:"command"`
	Args           []string   `yaml:"args,omitempty"`
	WorkingDir     string     `yaml:"workingDir,omitempty"`
	Env            []variable `yaml:"env,omitempty"`
	EnvFrom        []envFrom  `yaml:"envFrom,omitempty"`
	Resources      *resources `yaml:"resources,omitempty"`
	Security       *security  `yaml:"securityContext,omitempty"`
	Ports          []port     `yaml:"ports,omitempty"`
	StartupProbe   *probe     `yaml:"startupProbe,omitempty"`
	ReadinessProbe *probe     `yaml:"readinessProbe,omitempty"`
	LivenessProbe  *probe     `yaml:"livenessProbe,omitempty"`
	Lifecycle      *lifecycle `yaml:"lifecycle,omitempty"`
}

type envFrom struct {
	SecretRef struct {
		Name string `yaml:"name"`
	} `yaml:"secretRef"`
}

type resources struct {
	Limits map[string]string `yaml:"limits"`
}

type security struct {
	RunAsUser  *int64 `yaml:"runAsUser,omitempty"`
	RunAsGroup *int64 `yaml:"runAsGroup,omitempty"`
}

type variable struct {
	Name      string     `yaml:"name"`
	Value     *string    `yaml:"value,omitempty"`
	ValueFrom *valueFrom `yaml:"valueFrom,omitempty"`
}

type valueFrom struct {
	SecretKeyRef *secretKeyRef `yaml:"secretKeyRef,omitempty"`
	FieldRef     *fieldRef     `yaml:"fieldRef,omitempty"`
}

type secretKeyRef struct {
	Name string `yaml:"name"`
	Key  string `yaml:"key"`
}

type fieldRef struct {
	FieldPath string `yaml:"fieldPath"`
}

type port struct {
	Name          string `yaml:"name"`
	ContainerPort int    `yaml:"containerPort"`
}

type probe struct {
	HTTPGet                       *httpGet    `yaml:"httpGet,omitempty"`
	TCPSocket                     *tcpSocket  `yaml:"tcpSocket,omitempty"`
	Exec                          *exec       `yaml:"exec,omitempty"`
	GRPC                          *grpcAction `yaml:"grpc,omitempty"`
	InitialDelaySeconds           int64       `yaml:"initialDelaySeconds,omitempty"`
	PeriodSeconds                 int64       `yaml:"periodSeconds"`
	TimeoutSeconds                int64       `yaml:"timeoutSeconds,omitempty"`
	SuccessThreshold              int64       `yaml:"successThreshold,omitempty"`
	FailureThreshold              int64       `yaml:"failureThreshold"`
	TerminationGracePeriodSeconds int64       `yaml:"terminationGracePeriodSeconds,omitempty"`
}

type httpGet struct {
	Path        string       `yaml:"path"`
	Port        int          `yaml:"port"`
	Host        string       `yaml:"host,omitempty"`
	Scheme      string       `yaml:"scheme"`
	HTTPHeaders []httpHeader `yaml:"httpHeaders,omitempty"`
}

type httpHeader struct {
	Name  string `yaml:"name"`
	Value string `yaml:"value"`
}

type tcpSocket struct {
	Port int    `yaml:"port"`
	Host string `yaml:"host,omitempty"`
}

type grpcAction struct {
	Port    int    `yaml:"port"`
	Service string `yaml:"service,omitempty"`
}

type lifecycle struct {
	PreStop struct {
		Sleep *sleep `yaml:"sleep,omitempty"`
		Exec  *exec  `yaml:"exec,omitempty"`
	} `yaml:"preStop"`
}

type sleep struct {
	Seconds int64 `yaml:"seconds"`
}

type exec struct {
	Command []string `yaml:"command"`
}

// Kubernetes exports a Deployment for each group, and a Job for a group of the kind job.
//
//	desired_instances        replicas
//	max_surge                maxSurge
//	min_healthy_instances    maxUnavailable = desired - min_healthy
//	min_ready_seconds        minReadySeconds
//	progress_deadline        progressDeadlineSeconds
//	deregister_delay         preStop.sleep
//	deregister_delay + max_duration + sigterm_timeout + 1s    terminationGracePeriodSeconds
//	startupProbe, readinessProbe, livenessProbe    the same
//	health_check_timeout     a startupProbe, if there is none: it restarts a pod that is not ready in time
//	protocol: grpc           without probes, all three by gRPC, with liveness as livenessProbe
//	limits                   resources.limits
//	user, group              securityContext, if they are ids
//	env_file                 envFrom, with a Secret
//
// Seconds are rounded up. If that makes preStop.sleep longer, the process has less time after it.
// Secrets are read from a Secret with the name of the group.
func Kubernetes(c *config.Config) (*Result, error) {
	return each(c, &Result{}, func(g group) error {
		var object any
		name := g.Name + ".deployment.yaml"
		if g.Job {
			object, name = g.kubernetesJob(), g.Name+".job.yaml"
		} else {
			object = g.deployment()
		}
		text, err := yaml.Dump(object, yaml.WithLineWidth(-1))
		if err != nil {
			return err
		}
		g.result.file(name, text)
		g.kubernetesGaps()
		return nil
	})
}

// pod returns the template of the pods, for a Deployment and for a Job. Its grace period is the
// whole time from the order to stop until SIGKILL. The preStop hook runs at its beginning.
func (g group) pod() pod {
	stop := g.Shutdown
	grace := up(stop.DeregisterDelay + g.bound())

	con := container{
		Name:       g.Name,
		Image:      g.Export.Image,
		Command:    []string{literal(g.ported(g.Command[0]))},
		WorkingDir: g.WorkDir,
	}
	for _, a := range g.arguments() {
		con.Args = append(con.Args, literal(g.ported(a)))
	}
	if con.Image == "" {
		con.Image = g.Name
	}
	plain, secret := g.environment()
	if g.mentions("{id}") { // POD_NAME comes first, because only later variables can refer to it
		con.Env = append(con.Env, variable{Name: idVariable, ValueFrom: &valueFrom{FieldRef: &fieldRef{"metadata.name"}}})
	}
	for _, name := range slices.Sorted(maps.Keys(plain)) {
		con.Env = append(con.Env, variable{Name: name, Value: value(g.ported(plain[name]))})
	}
	for _, name := range secret {
		con.Env = append(con.Env, variable{Name: name, ValueFrom: &valueFrom{SecretKeyRef: &secretKeyRef{g.Name, name}}})
	}
	// preStop takes a part of the grace period; the process gets the rest.
	ours := g.clientVariables(grace-up(stop.DeregisterDelay), true)
	for _, name := range slices.Sorted(maps.Keys(ours)) {
		con.Env = append(con.Env, variable{Name: name, Value: value(ours[name])})
	}
	g.setKubernetesProbes(&con)
	g.confine(&con)
	for k, l := range g.Listen {
		if n, ok := containerPort(l); ok {
			con.Ports = append(con.Ports, port{fmt.Sprintf("listener-%d", k+1), n})
		}
	}
	switch {
	case stop.DeregisterDelay > 0:
		con.Lifecycle = &lifecycle{}
		con.Lifecycle.PreStop.Sleep = &sleep{up(stop.DeregisterDelay)}
	case len(g.PreStop) > 0:
		con.Lifecycle = &lifecycle{}
		g.gap(contains(g.PreStop[0].Command, "{id}"), "pre_stop", "{id} is not replaced in a hook; in a shell, $HOSTNAME is the name of the pod")
		con.Lifecycle.PreStop.Exec = &exec{append(g.PreStop[0].Command[:1:1], g.hookArguments(0)...)}
	}
	return pod{metadata{Labels: g.labels()}, podSpec{"", grace, []container{con}}}
}

func (g group) labels() map[string]string {
	return map[string]string{"app.kubernetes.io/name": g.Name, "app.kubernetes.io/managed-by": "swansong-launcher"}
}

// confine sets the user and the limits of a container, and the variables of env_file.
func (g group) confine(con *container) {
	limits := map[string]string{}
	if m := g.Limits.Memory; m > 0 {
		limits["memory"] = strconv.FormatInt(int64(m), 10)
	}
	if cpus := g.Limits.CPUs; cpus > 0 {
		limits["cpu"] = fmt.Sprintf("%dm", int64(math.Ceil(cpus*1000)))
	}
	if len(limits) > 0 {
		con.Resources = &resources{limits}
	}
	if user, group := numeric(g.User), numeric(g.UserGroup); user != nil || group != nil {
		con.Security = &security{user, group}
	}
	if len(g.EnvFile) > 0 {
		from := envFrom{}
		from.SecretRef.Name = g.envSecret()
		con.EnvFrom = []envFrom{from}
	}
}

func (g group) envSecret() string { return g.Name + "-env" }

// numeric returns the text as an id, or nil if the text is a name or empty.
func numeric(text string) *int64 {
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil
	}
	return &id
}

// deployment returns the Deployment of a group. Kubernetes requires a progress deadline of more
// than minReadySeconds. If a Deployment sets none, the deadline is ten minutes.
func (g group) deployment() deployment {
	matched := map[string]string{"app.kubernetes.io/name": g.Name}
	roll := rollingUpdate{*g.MaxSurge, g.maxUnavailable()}
	// Kubernetes refuses a rolling update with 0 for both maxSurge and maxUnavailable, even without
	// instances.
	if roll == (rollingUpdate{}) {
		roll.MaxSurge = 1
	}
	deadline := up(g.Roll.ProgressDeadline)
	if deadline == 0 {
		deadline = math.MaxInt32 // the configuration sets no deadline
	}
	return deployment{
		APIVersion: "apps/v1",
		Kind:       "Deployment",
		Metadata:   metadata{g.Name, g.labels()},
		Spec: deploymentSpec{
			Replicas:                g.Desired,
			MinReadySeconds:         up(g.MinReady),
			ProgressDeadlineSeconds: max(deadline, up(g.MinReady)+1),
			Selector:                selector{matched},
			Strategy:                strategy{"RollingUpdate", roll},
			Template:                g.pod(),
		},
	}
}

// portName is the name of the port of grpc.health.v1. Ports of listeners are numbered, because a
// name has at most 15 bytes.
const portName = "grpc-health"

// idVariable is the environment variable with the name of the pod, which replaces {id}.
const idVariable = "POD_NAME"

// literal escapes $(NAME) and $$, which Kubernetes would expand and the launcher does not, and
// replaces {id}.
func literal(s string) string {
	if slices.ContainsFunc([]string{"$(", "$$", "${id}"}, func(special string) bool { return strings.Contains(s, special) }) {
		s = strings.ReplaceAll(s, "$", "$$")
	}
	return strings.ReplaceAll(s, "{id}", "$("+idVariable+")")
}

func value(s string) *string {
	s = literal(s)
	return &s
}

func containerPort(l launcher.Listen) (int, bool) {
	if l.Network == "unix" {
		return 0, false
	}
	_, p, _ := net.SplitHostPort(l.Address)
	n, err := strconv.Atoi(p)
	return n, err == nil && n > 0
}

func (g group) kubernetesGaps() {
	_, secret := g.environment()
	g.gap(len(g.EnvFile) > 0, "env_file", "is read from a Secret that must exist: kubectl create secret generic %s --from-env-file=%s", g.envSecret(), strings.Join(g.EnvFile, " --from-env-file="))
	g.gap(g.User != "" && numeric(g.User) == nil, "user", "%s is not exported, because a pod needs the id of the user in the image; set it as runAsUser", g.User)
	g.gap(g.UserGroup != "" && numeric(g.UserGroup) == nil, "group", "%s is not exported, because a pod needs the id of the group in the image; set it as runAsGroup", g.UserGroup)
	g.gap(len(g.Rlimits) > 0, "rlimits", "are not exported; the container runtime of the node sets them")
	if g.Job {
		g.kubernetesJobGaps()
		return
	}
	g.gap(g.Export.Image == "", "export.image", "is missing; replace the image in the file, which is the name of the group")
	g.gap(len(secret) > 0, "env", "%s are read from a Secret that must exist: kubectl create secret generic %s", strings.Join(secret, ", "), g.Name)
	g.gap(len(g.DependsOn) > 0, "depends_on", "Deployments have no order; let the process wait, or stay unready, until it can reach %s", strings.Join(g.DependsOn, ", "))
	for _, name := range g.DependsOn {
		g.gap(g.Conditions[name] == launcher.IsCompleted, "depends_on."+name, "wait for the Job in an init container: kubectl wait --for=condition=complete job/%s", name)
	}
	g.gap(g.Protocol == launcher.Signals && len(g.probes()) == 0, "protocol", "there are no probes, so a process counts as ready once it runs")
	g.gap(g.Protocol == launcher.Auto && len(g.probes()) == 0, "protocol", "there are no probes, because it is not known whether the process uses the lifecycle protocol, so it counts as ready once it runs; set grpc if it does, or add a readinessProbe")
	g.gap(g.Protocol == launcher.Notify, "protocol", "there is no sd_notify, so READY=1 says nothing; add a readinessProbe")
	g.gap(g.Watchdog > 0, "watchdog", "there is no watchdog; add a livenessProbe")
	g.probeGaps()
	g.gap(g.Roll.OnFailure == launcher.Pause, "on_failure", "a failed roll is not paused, but retried, within maxUnavailable; pause it by kubectl rollout pause")
	g.gap(g.Roll.OnFailure == launcher.Rollback, "on_failure", "a failed roll is not rolled back; undo it by kubectl rollout undo")
	g.gap(g.Roll.OnFailure == launcher.Continue, "on_failure", "a failed roll is retried; no instance is given up")
	g.gap(true, "retry", "a failed instance is always restarted, with the back-off of Kubernetes, from 10s to 5m")
	g.gap(g.Roll.Canary > 0, "canary", "there are no canaries; use a second Deployment with the same labels, or a rollout controller")
	g.gap(g.Shutdown.GraceEnforced && g.Shutdown.Grace < g.Shutdown.Max, "shutdown.grace_period", "is not supported; each process has all of max_duration without asking for more time")
	g.gap(true, "shutdown.sigterm_timeout", "SIGTERM is sent first, and SIGKILL at the end; the process has max_duration and sigterm_timeout together")
	g.gap(!slices.Equal(g.Shutdown.StopSignals, []string{"SIGTERM"}), "stop_signals", "the image sets the signal (STOPSIGNAL), and there is only one")
	g.gap(!slices.Equal(g.Shutdown.SuccessCodes, []int{0}), "success_exit_codes", "is ignored; every exit is followed by a restart")
	g.gap(g.Restart.Policy != launcher.Always, "restart_policy", "%s is not possible; every exit is followed by a restart", g.Restart.Policy)
	g.gap(g.Restart.CrashLimit > 0, "restart_policy.crash_loop_limit", "there is no limit; a pod in CrashLoopBackOff is restarted every 5m")
	if len(g.PreStop) > 0 {
		g.gap(g.Shutdown.DeregisterDelay > 0, "pre_stop", "is not exported: a pod has one hook, and deregister_delay uses it (sleep)")
		g.gap(g.Shutdown.DeregisterDelay == 0 && len(g.PreStop) > 1, "pre_stop", "only the first hook is exported, because a pod has one")
		g.gap(g.Shutdown.DeregisterDelay == 0, "pre_stop", "the hook does not get SWANSONG_PROCESS_ID, SWANSONG_PROCESS_GROUP and SWANSONG_PROCESS_PID; it runs in the container, where HOSTNAME is the name of the pod and the first process has the pid 1")
		g.gap(g.Shutdown.DeregisterDelay == 0, "pre_stop[0].timeout", "is not supported; the hook takes its time from the stop of the process")
	}
	g.gap(len(g.Listen) > 0, "listeners", "are not handed over; the process must listen by itself, and a Service must lead to it")
	g.gap(g.Log.Dir != "", "logs", "output goes to the log of the node, with the limits of the node")
}
