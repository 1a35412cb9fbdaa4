package export

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/swansong-go/swansong/launcher"
	"github.com/swansong-go/swansong/launcher/config"
)

// The following types declare only those fields of Nomad's api package that this package writes.
// Durations are in nanoseconds. The tests in internal/integration/export read the result into the
// real types.

type nomadJob struct {
	ID         string
	Name       string
	Type       string
	TaskGroups []nomadGroup
}

type nomadGroup struct {
	Name             string
	Count            int
	ShutdownDelay    time.Duration
	Update           *nomadUpdate `json:",omitempty"`
	RestartPolicy    nomadRestart
	ReschedulePolicy *nomadReschedule `json:",omitempty"`
	Networks         []nomadNetwork   `json:",omitempty"`
	Services         []nomadService   `json:",omitempty"`
	Tasks            []nomadTask
}

type nomadUpdate struct {
	MaxParallel      int
	Canary           int
	AutoPromote      bool
	AutoRevert       bool
	HealthCheck      string
	MinHealthyTime   time.Duration
	HealthyDeadline  time.Duration
	ProgressDeadline time.Duration
}

type nomadRestart struct {
	Attempts int
	Interval time.Duration
	Delay    time.Duration
	Mode     string
}

type nomadReschedule struct {
	Attempts  int
	Unlimited bool
}

type nomadNetwork struct {
	DynamicPorts  []nomadPort `json:",omitempty"`
	ReservedPorts []nomadPort `json:",omitempty"`
}

type nomadPort struct {
	Label string
	Value int `json:",omitempty"`
	To    int `json:",omitempty"`
}

type nomadService struct {
	Name      string
	PortLabel string
	Checks    []nomadCheck
}

type nomadCheck struct {
	Name                   string `json:",omitempty"`
	Type                   string
	Path                   string              `json:",omitempty"`
	Protocol               string              `json:",omitempty"`
	PortLabel              string              `json:",omitempty"`
	Header                 map[string][]string `json:",omitempty"`
	TLSSkipVerify          bool                `json:",omitempty"`
	GRPCService            string              `json:",omitempty"`
	Command                string              `json:",omitempty"`
	Args                   []string            `json:",omitempty"`
	TaskName               string              `json:",omitempty"`
	Interval               time.Duration
	Timeout                time.Duration
	SuccessBeforePassing   int                `json:",omitempty"`
	FailuresBeforeCritical int                `json:",omitempty"`
	CheckRestart           *nomadCheckRestart `json:",omitempty"`
}

type nomadCheckRestart struct {
	Limit int
	Grace time.Duration
}

type nomadTask struct {
	Name        string
	Driver      string
	Config      map[string]any
	Env         map[string]string `json:",omitempty"`
	Templates   []nomadTemplate   `json:",omitempty"`
	User        string            `json:",omitempty"`
	Resources   *nomadResources   `json:",omitempty"`
	KillTimeout time.Duration
	KillSignal  string
}

type nomadResources struct {
	Cores    int `json:",omitempty"`
	MemoryMB int `json:",omitempty"`
}

type nomadTemplate struct {
	EmbeddedTmpl string
	DestPath     string
	Envvars      bool
}

// Nomad exports a job for each group, as JSON for nomad job run -json.
//
//	desired_instances        Count
//	min_healthy_instances    MaxParallel = desired - min_healthy; if that is 0, all new instances are canaries
//	min_ready_seconds        MinHealthyTime
//	health_check_timeout     HealthyDeadline = health_check_timeout + min_ready_seconds
//	progress_deadline        ProgressDeadline
//	on_failure: rollback     AutoRevert
//	canary                   Canary, AutoPromote
//	deregister_delay         ShutdownDelay
//	max_duration + sigterm_timeout + 1s    KillTimeout
//	readinessProbe, livenessProbe    checks of a Consul service; that of livenessProbe restarts the task
//	protocol: grpc           without probes, a gRPC check for both
//	restart_policy           RestartPolicy
//
// The driver is docker if export.image is set, and exec otherwise. Secrets are read from the Nomad
// variable of the job.
func Nomad(c *config.Config) (*Result, error) {
	return each(c, &Result{}, func(g group) error {
		var text bytes.Buffer
		out := json.NewEncoder(&text)
		out.SetEscapeHTML(false)
		out.SetIndent("", "  ")
		if err := out.Encode(map[string]nomadJob{"Job": g.job()}); err != nil {
			return err
		}
		g.result.file(g.Name+".nomad.json", text.Bytes())
		g.nomadGaps()
		return nil
	})
}

// job returns the job of a group, with one task group and one task.
//
// Nomad writes the secrets to files in the directory secrets, which is private to the task, and
// sets the variables in these files in the environment of the task.
//
// The restart policy of the group has a number of attempts, an interval and a mode. Nomad restarts
// a failed task at most that many times within the interval. After that, the allocation fails if
// the mode is fail. If the mode is delay, Nomad restarts the task again in the next interval, so
// the total number of restarts has no limit. A reschedule policy with zero attempts keeps Nomad
// from replacing an allocation that has failed.
func (g group) job() nomadJob {
	plain, secret := g.environment()
	named := func(s string) string {
		return nomadPorted(strings.ReplaceAll(s, "{id}", g.Name+"-${NOMAD_ALLOC_INDEX}"))
	}
	args := g.arguments()
	for k := range args {
		args[k] = named(args[k])
	}
	for name := range plain {
		plain[name] = named(plain[name])
	}
	t := nomadTask{
		Name:        g.Name,
		Driver:      "exec",
		Config:      map[string]any{"command": g.Command[0], "args": args},
		Env:         plain,
		KillTimeout: g.bound(),
		KillSignal:  g.Shutdown.StopSignals[0],
	}
	maps.Copy(t.Env, g.clientVariables(down(t.KillTimeout), true))
	if len(secret) > 0 {
		var b strings.Builder
		fmt.Fprintf(&b, "{{ with nomadVar %q }}\n", variablePath(g.Name))
		for _, name := range secret {
			fmt.Fprintf(&b, "%s={{ index . %q }}\n", name, name)
		}
		b.WriteString("{{ end }}\n")
		t.Templates = []nomadTemplate{{b.String(), "secrets/env", true}}
	}
	if len(g.EnvFile) > 0 {
		text := fmt.Sprintf("{{ with nomadVar %q }}{{ range .Tuples }}\n{{ .K }}={{ .V | toJSON }}{{ end }}{{ end }}\n", g.envVariables())
		t.Templates = append(t.Templates, nomadTemplate{text, "secrets/file.env", true})
	}
	t.User = g.User
	t.Resources = g.nomadResources()
	ports, services := g.network()
	if g.Export.Image != "" {
		t.Driver = "docker"
		t.Config["image"] = g.Export.Image
		var labels []string
		for _, p := range append(slices.Clone(ports.DynamicPorts), ports.ReservedPorts...) {
			labels = append(labels, p.Label)
		}
		if len(labels) > 0 {
			t.Config["ports"] = labels
		}
		if g.WorkDir != "" {
			t.Config["work_dir"] = g.WorkDir
		}
	}

	tg := nomadGroup{
		Name:          g.Name,
		Count:         g.Desired,
		ShutdownDelay: g.Shutdown.DeregisterDelay,
		RestartPolicy: nomadRestart{Attempts: g.Restart.CrashLimit, Delay: g.Restart.MinBackoff, Mode: "fail"},
		Services:      services,
		Tasks:         []nomadTask{t},
	}
	// Interval is the longest time that CrashLimit consecutive failures can take. They take so long
	// if each process is ready for almost ResetAfter before it fails.
	tg.RestartPolicy.Interval = max(time.Duration(g.Restart.CrashLimit)*(g.Restart.MinBackoff+g.Restart.ResetAfter), leastInterval)
	switch {
	case g.Restart.Policy == launcher.Never:
		tg.RestartPolicy.Attempts = 0
		tg.ReschedulePolicy = &nomadReschedule{}
	case g.Restart.CrashLimit == 0:
		tg.RestartPolicy.Attempts, tg.RestartPolicy.Mode = 1, "delay"
	}
	if len(ports.DynamicPorts)+len(ports.ReservedPorts) > 0 {
		tg.Networks = []nomadNetwork{ports}
	}
	if g.Job { // Nomad refuses a batch job that has an update block
		return nomadJob{g.Name, g.Name, "batch", []nomadGroup{tg}}
	}
	update := g.update()
	tg.Update = &update
	return nomadJob{g.Name, g.Name, "service", []nomadGroup{tg}}
}

// nomadResources returns the limits that Nomad supports, or nil if there are none.
func (g group) nomadResources() *nomadResources {
	const mib = 1 << 20
	r := nomadResources{MemoryMB: int((g.Limits.Memory + mib - 1) / mib)}
	if r.MemoryMB > 0 {
		r.MemoryMB = max(r.MemoryMB, 10) // Nomad accepts no smaller number
	}
	if cpus := g.Limits.CPUs; cpus == math.Trunc(cpus) {
		r.Cores = int(cpus)
	}
	if r == (nomadResources{}) {
		return nil
	}
	return &r
}

func (g group) envVariables() string { return variablePath(g.Name) + "/env" }

// network returns the ports of the group, and the service with its health check. Nomad chooses a
// dynamic port and tells it to the process by a variable; a reserved one is fixed, and only one
// instance on a client can have it.
func (g group) network() (ports nomadNetwork, services []nomadService) {
	if g.usesPort() {
		ports.DynamicPorts = append(ports.DynamicPorts, nomadPort{Label: nomadServicePort})
	}
	if checks, needed := g.nomadChecks(); len(checks) > 0 {
		ports.ReservedPorts = append(ports.ReservedPorts, needed...)
		services = []nomadService{{g.Name, checks[0].PortLabel, checks}}
	}
	if g.servesHealth() {
		p := nomadPort{Label: nomadPortName, To: g.Export.Port}
		if g.Export.Image == "" { // the driver exec runs no container, so the port cannot be mapped
			p = nomadPort{Label: nomadPortName, Value: g.Export.Port}
			ports.ReservedPorts = append(ports.ReservedPorts, p)
		} else {
			ports.DynamicPorts = append(ports.DynamicPorts, p)
		}
		check := nomadCheck{Type: "grpc", Interval: max(g.LivenessInterval, time.Second), Timeout: max(g.LivenessTimeout, time.Second)}
		if g.LivenessInterval > 0 {
			check.CheckRestart = &nomadCheckRestart{g.LivenessFailures, g.HealthCheckTimeout}
		}
		services = []nomadService{{g.Name, nomadPortName, []nomadCheck{check}}}
	}
	for _, l := range g.Listen {
		if n, ok := containerPort(l); ok {
			ports.ReservedPorts = append(ports.ReservedPorts, nomadPort{Label: "l_" + strings.ReplaceAll(l.Name, "-", "_"), Value: n})
		}
	}
	return ports, services
}

const (
	nomadPortName  = "grpc_health"
	leastInterval  = 5 * time.Second  // the shortest interval that Nomad accepts
	mostKill       = 30 * time.Second // the default of max_kill_timeout on Nomad clients
	nomadUnlimited = 30 * 24 * time.Hour
)

func variablePath(job string) string { return "nomad/jobs/" + job }

// update returns how Nomad replaces the instances of the group. Nomad first starts the canaries, in
// addition to the running instances. It then replaces MaxParallel instances at a time, and stops
// each before its replacement starts. If no instance may be missing, all new instances are
// canaries.
func (g group) update() nomadUpdate {
	u := nomadUpdate{
		MaxParallel:      max(g.maxUnavailable(), 1),
		Canary:           g.Roll.Canary,
		AutoRevert:       g.Roll.OnFailure == launcher.Rollback,
		HealthCheck:      "checks",
		MinHealthyTime:   g.MinReady,
		HealthyDeadline:  g.HealthCheckTimeout + g.MinReady,
		ProgressDeadline: g.Roll.ProgressDeadline,
	}
	if len(g.Listen) == 0 && !g.servesHealth() && !g.ReadinessProbe.IsSet() && !g.LivenessProbe.IsSet() {
		u.HealthCheck = "task_states"
	}
	if g.blueGreen() {
		u.Canary, u.MaxParallel = g.Desired, g.Desired
	}
	u.AutoPromote = u.Canary > 0
	if u.ProgressDeadline == 0 { // Nomad takes 0 to mean that a deployment fails at the first failure
		u.ProgressDeadline = nomadUnlimited
	}
	u.ProgressDeadline = max(u.ProgressDeadline, u.HealthyDeadline+time.Second) // Nomad requires ProgressDeadline to be longer than HealthyDeadline
	return u
}

func (g group) blueGreen() bool { return g.Desired > 0 && g.maxUnavailable() == 0 }

func (g group) nomadGaps() {
	u := g.update()
	plain, secret := g.environment()
	interpolated := contains(slices.Concat(slices.Collect(maps.Values(plain)), g.Command[1:]), "${")
	g.gap(interpolated, "args", "Nomad replaces ${…} in arguments and in env")
	g.gap(g.Export.Image == "", "command", "the driver is exec: %s must exist on each client, inside its chroot", g.Command[0])
	g.gap(len(secret) > 0, "env", "%s are read from the variable %s, which must exist: nomad var put %[2]s", strings.Join(secret, ", "), variablePath(g.Name))
	g.gap(g.WorkDir != "" && g.Export.Image == "", "working_dir", "is ignored; the driver exec has its own working directory")
	g.gap(len(g.DependsOn) > 0, "depends_on", "Nomad starts jobs in no fixed order; let the process wait, or stay unready, until it can reach %s", strings.Join(g.DependsOn, ", "))
	g.gap(len(g.EnvFile) > 0, "env_file", "is read from the variable %s, which must exist: nomad var put %[1]s NAME=value ...", g.envVariables())
	g.gap(g.UserGroup != "", "group", "is not exported; the process has the groups of its user")
	g.gap(len(g.Rlimits) > 0, "rlimits", "are not exported; with the driver docker, set ulimit")
	g.gap(g.Limits.CPUs != math.Trunc(g.Limits.CPUs), "limits.cpus", "%v is not exported: Nomad reserves MHz, or whole cores; set Resources.CPU", g.Limits.CPUs)
	g.gap(g.Limits.Memory > 0 && g.Limits.Memory < 10<<20, "limits.memory", "is 10MiB, because Nomad accepts no smaller number")
	g.gap(g.Restart.Policy == launcher.Always && g.Job, "restart_policy", "always is not possible: a task of a batch job that has succeeded is not started again")
	for _, name := range g.DependsOn {
		g.gap(g.Conditions[name] == launcher.IsCompleted, "depends_on."+name, "run the job %s first, or as a task with the lifecycle hook prestart", name)
	}
	if g.Job {
		return
	}
	g.gap(g.blueGreen(), "max_surge", "because no instance may be missing, all %d new instances are started in addition to the old ones, and promoted together", g.Desired)
	g.gap(!g.blueGreen() && *g.MaxSurge > 0, "max_surge", "there is no surge; %d at a time are stopped, and then replaced", u.MaxParallel)
	g.gap(g.Roll.Check.IsSet(), "canary.check", "is ignored; to judge canaries by hand, remove AutoPromote and run nomad deployment promote")
	g.gap(g.Roll.Canary > 0, "canary.wait", "is ignored; canaries are promoted when they have been healthy for min_ready_seconds")
	g.gap(g.Roll.OnFailure == launcher.Pause, "on_failure", "a failed roll is retried until progress_deadline, and then stays as it is")
	g.gap(g.Roll.OnFailure == launcher.Rollback, "on_failure", "a failed roll is reverted as a whole, at progress_deadline, to the last stable version")
	g.gap(g.Roll.OnFailure == launcher.Continue, "on_failure", "a failed roll does not continue with other instances")
	g.gap(true, "retry", "a failed instance is rescheduled, possibly on another client, with the back-off of Nomad, until progress_deadline")
	g.gap(u.ProgressDeadline != g.Roll.ProgressDeadline, "progress_deadline", "is %v, because Nomad requires more than health_check_timeout + min_ready_seconds", u.ProgressDeadline)
	g.gap(g.servesHealth(), "health_check_timeout", "the check is one of a Consul service, because services of Nomad have no gRPC checks")
	g.gap(g.servesHealth() && g.Export.Image == "" && g.Desired+*g.MaxSurge > 1, "export.grpc_port", "is the same for all instances, so a client can run only one of them")
	g.gap(g.Protocol == launcher.Auto && len(g.probes()) == 0, "protocol", "there are no checks, because it is not known whether the process uses the lifecycle protocol; set grpc if it does, or add a readinessProbe")
	g.gap(g.Protocol == launcher.Notify, "protocol", "there is no sd_notify, so READY=1 says nothing; add a readinessProbe")
	g.gap(g.Watchdog > 0, "watchdog", "there is no watchdog; add a livenessProbe")
	g.gap(g.StartupProbe.IsSet(), "startupProbe", "is not exported; the checks begin at once, and restart a process only after health_check_timeout")
	for _, p := range g.probes() {
		g.gap(p.HTTPGet.Port == "" && p.TCPSocket.Port == "", p.key, "the check is one of a Consul service, because services of Nomad have only http and tcp checks")
	}
	g.gap(len(g.ReadinessProbe.Exec.Command) > 0, "readinessProbe.failureThreshold", "is 1, and so is successThreshold, because Nomad has no thresholds for a check by a command")
	g.gap(g.LivenessProbe.TerminationGrace > 0, "livenessProbe.terminationGracePeriodSeconds", "is not supported; after a failed probe, a process has the whole KillTimeout to end")
	g.probeGaps()
	g.gap(g.Shutdown.GraceEnforced && g.Shutdown.Grace < g.Shutdown.Max, "shutdown.grace_period", "is not supported; each process has all of max_duration without asking for more time")
	g.gap(g.bound() > mostKill, "shutdown.max_duration", "needs a max_kill_timeout of at least %v in the configuration of the clients; the default is 30s", g.bound())
	g.gap(len(g.Shutdown.StopSignals) > 1, "stop_signals", "only %s is sent, and then SIGKILL", g.Shutdown.StopSignals[0])
	g.gap(!slices.Equal(g.Shutdown.SuccessCodes, []int{0}), "success_exit_codes", "is ignored; every exit is followed by a restart")
	g.gap(g.Restart.Policy == launcher.OnFailure, "restart_policy", "on-failure is not possible; every exit is followed by a restart")
	g.gap(g.Restart.Policy != launcher.Never && g.Restart.MaxBackoff > g.Restart.MinBackoff, "restart_policy.max_backoff", "the pause before each restart is always %v, until the allocation has failed and Nomad reschedules it", g.Restart.MinBackoff)
	g.gap(len(g.PreStop) > 0, "pre_stop", "is not exported: Nomad can run a task after the stop (poststop), but not before")
	g.gap(len(g.Listen) > 0, "listeners", "are not handed over; the process must listen by itself, on a port that no other instance on the client uses")
	g.gap(g.Log.Dir != "", "logs", "output goes to the logs of the allocation, with the limits of Nomad")
}
