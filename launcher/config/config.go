// Package config reads what the launcher shall run: a YAML file into plain structs, with every key either understood or
// refused. See [Config] for the keys, in a file such as
//
//	process_groups:
//	  - name: keyvalue-runner
//	    command: /usr/bin/keyvalue-runner
//	    args: [--data, /var/lib/keyvalue]
//	    desired_instances: 2
//	    min_healthy_instances: 1
//	    max_surge: 1
//	    health_check_timeout: 30s
//	    shutdown:
//	      grace_period: 3s
//	      max_duration: 10s
//
// Only the name has to be given. Durations are written with their unit, as in 500ms or 1m30s. Anchors, aliases
// and merge keys (<<) can be used for what groups have in common.
//
// What is wrong is reported with file, line, key and rule, all of it at once: see [Errors]. What is printed of a
// configuration has its secrets taken out: see [Redactor].
package config

import (
	"cmp"
	"slices"
	"time"
)

// The yaml tags are the keys. The reload tags say what becomes of a change, for Diff: a field without one has that of
// the struct around it.

// A Config is a file, with the defaults in the place of what it leaves out.
type Config struct {
	// StateDir is the launcher's own directory, with mode 0700: its sockets, its lock, and what it remembers of its processes
	// for the launcher that comes after it. It is one directory for all of these, since sockets need one anyway, and since it
	// has to be one launcher's alone. Empty, the default, is the user's: see Dir; on_launcher_death: keep needs one that lasts.
	StateDir string `yaml:"state_dir" reload:"launcher"`

	// TotalDeadline is how long a stop of everything may take; a fifth of it is kept for SIGTERM and SIGKILL. The default is
	// 5/4 of StopBound.
	TotalDeadline time.Duration `yaml:"total_deadline" reload:"now"`

	Admin   Admin   `yaml:"admin" reload:"launcher"`
	Metrics Metrics `yaml:"metrics" reload:"launcher"`

	// Redact adds to what is taken out of anything printed: see NewRedactor.
	Redact []string `yaml:"redact" reload:"now"`

	Groups []Group `yaml:"process_groups"`
}

// Admin says where the launcher takes orders.
type Admin struct {
	Address string `yaml:"address"` // of TCP, besides the socket in StateDir; needs TLS. Empty, the default, is no TCP
	TLS     TLS    `yaml:"tls"`
}

// TLS is mutual: each side shows a certificate of the authority that the other one trusts.
type TLS struct {
	Cert string `yaml:"cert_file"`
	Key  string `yaml:"key_file"`
	CA   string `yaml:"ca_file"`
}

// Metrics says where Prometheus finds the metrics.
type Metrics struct {
	Address string `yaml:"address"` // of TCP, as in 127.0.0.1:9464; empty, the default, is nowhere
}

// A Group is a number of instances of one program.
type Group struct {
	// Name is a DNS label: up to 63 of a-z, 0-9 and -, which begin with a letter and do not end with -. It becomes part of
	// file names and of what is exported.
	Name string `yaml:"name"`

	// Command is an absolute path, or a name that is looked up in the launcher's PATH; the default is Name. No shell reads
	// it, or Args.
	Command    string            `yaml:"command" reload:"roll"`
	Args       []string          `yaml:"args" reload:"roll"`
	Env        map[string]string `yaml:"env" reload:"roll"`         // on top of the launcher's
	WorkingDir string            `yaml:"working_dir" reload:"roll"` // an absolute path; empty is the launcher's

	// DependsOn names the groups that are ready before this one is started, and stopped after it.
	DependsOn []string `yaml:"depends_on" reload:"now"`

	Desired    int `yaml:"desired_instances" reload:"scale"`   // 1
	MinHealthy int `yaml:"min_healthy_instances" reload:"now"` // Desired, or one fewer where MaxSurge is 0
	MaxSurge   int `yaml:"max_surge" reload:"now"`             // 1; 0 stops before it starts

	HealthCheckTimeout time.Duration `yaml:"health_check_timeout" reload:"now"`          // 30s; from the start to READY
	MinReady           time.Duration `yaml:"min_ready_seconds" reload:"now" unit:"true"` // 0; READY for that long to be counted on
	ProgressDeadline   time.Duration `yaml:"progress_deadline" reload:"now"`             // 10m; 0 is for ever
	OnFailure          OnFailure     `yaml:"on_failure" reload:"now"`                    // pause
	Retry              Retry         `yaml:"retry" reload:"now"`
	Canary             Canary        `yaml:"canary" reload:"now"`

	Shutdown         Shutdown `yaml:"shutdown" reload:"now"`
	StopSignals      []Signal `yaml:"stop_signals" reload:"now"`       // [SIGTERM]; one after the other, before SIGKILL
	SuccessExitCodes []int    `yaml:"success_exit_codes" reload:"now"` // [0]

	Restart         Restart       `yaml:"restart_policy" reload:"now"` // or just the policy, as in restart_policy: never
	Liveness        Liveness      `yaml:"liveness" reload:"now"`
	OnLauncherDeath LauncherDeath `yaml:"on_launcher_death" reload:"roll"` // kill

	Protocol  Protocol   `yaml:"protocol" reload:"roll"` // grpc
	Lifecycle Lifecycle  `yaml:"lifecycle" reload:"roll"`
	Listeners []Listener `yaml:"listeners" reload:"launcher"`
	PreStop   []Hook     `yaml:"pre_stop" reload:"now"`
	Logs      Logs       `yaml:"logs" reload:"roll"`
	Export    Export     `yaml:"export" reload:"now"`
}

// Shutdown says how long a stop may take.
type Shutdown struct {
	GracePeriod     time.Duration `yaml:"grace_period"`     // 3s; then it is over, unless the process has asked for more
	MaxDuration     time.Duration `yaml:"max_duration"`     // 10s; then it is over
	SIGTERMTimeout  time.Duration `yaml:"sigterm_timeout"`  // 2s; from there to SIGKILL
	PollInterval    time.Duration `yaml:"poll_interval"`    // 500ms
	DeregisterDelay time.Duration `yaml:"deregister_delay"` // 0; between leaving routing and being told to stop
	Grace           Grace         `yaml:"grace"`            // strict
}

// Grace says what the end of the grace period does.
type Grace string

const (
	Strict   Grace = "strict"   // ends a process that has not asked for more time
	Advisory Grace = "advisory" // ends nobody; MaxDuration is the limit
)

// OnFailure says what becomes of a roll whose instances fail for good.
type OnFailure string

const (
	Pause    OnFailure = "pause"
	Rollback OnFailure = "rollback"
	Continue OnFailure = "continue"
)

// Retry says what becomes of an instance that fails in a roll before that is for good.
type Retry struct {
	Policy  RetryPolicy   `yaml:"policy"`          // manual
	Limit   int           `yaml:"limit"`           // 3 failures in a row are tried again; not for manual
	Initial time.Duration `yaml:"initial_backoff"` // 1s, for exponential
	Max     time.Duration `yaml:"max_backoff"`     // 1m, for exponential
}

// RetryPolicy says when it is tried again.
type RetryPolicy string

const (
	Manual      RetryPolicy = "manual"      // by order
	Immediate   RetryPolicy = "immediate"   // at once
	Exponential RetryPolicy = "exponential" // after a pause, doubled each time
)

// Canary says which instances go first.
type Canary struct {
	Instances int           `yaml:"instances"` // 0, which is no canary
	Wait      time.Duration `yaml:"wait"`      // 1m; how long these have to have stayed ready
}

// A Signal is one of SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1 and SIGUSR2.
type Signal string

// Restart says what becomes of a process that ends without having been told to.
type Restart struct {
	Policy  RestartPolicy `yaml:"policy"`           // on-failure
	Initial time.Duration `yaml:"initial_backoff"`  // 1s, doubled each time
	Max     time.Duration `yaml:"max_backoff"`      // 1m
	Limit   int           `yaml:"crash_loop_limit"` // 10 failures in a row, and the group is given up; 0 is no limit
	Reset   time.Duration `yaml:"reset_after"`      // 10s of being READY end the row
}

// RestartPolicy says whether it is started again.
type RestartPolicy string

const (
	Always      RestartPolicy = "always"
	IfItFailed  RestartPolicy = "on-failure" // with an exit code that is no success, or by a signal
	NeverReturn RestartPolicy = "never"
)

// Liveness says how a process is watched once it has been READY.
type Liveness struct {
	Interval time.Duration `yaml:"interval"`          // 2s; 0 is not at all
	Timeout  time.Duration `yaml:"timeout"`           // 1s
	Failures int           `yaml:"failure_threshold"` // 3 in a row, and it is UNHEALTHY
}

// LauncherDeath says what becomes of the processes of a launcher that is killed.
type LauncherDeath string

const (
	Kill LauncherDeath = "kill" // are killed too
	Keep LauncherDeath = "keep" // stay, and are taken over by the next launcher on the same StateDir
)

// Protocol says whether launcher and process talk.
type Protocol string

const (
	GRPC    Protocol = "grpc"    // the process serves the lifecycle protocol
	Signals Protocol = "signals" // it does not: it is READY once it runs, and is stopped by signals
)

// Lifecycle says where launcher and process talk.
type Lifecycle struct {
	Transport Transport `yaml:"transport"` // unix
	Address   string    `yaml:"address"`   // for tcp; port 0 where there can be more than one instance
	TLS       TLS       `yaml:"tls"`       // for tcp
}

// Transport is how launcher and process are connected.
type Transport string

const (
	Unix Transport = "unix" // a socket for each instance, in StateDir
	TCP  Transport = "tcp"  // with mutual TLS
)

// A Listener is opened by the launcher and inherited by each instance (LISTEN_FDS), so that none of them has to be there
// for a connection not to be refused.
type Listener struct {
	Name    string  `yaml:"name"`
	Network Network `yaml:"network"` // tcp
	Address string  `yaml:"address"`
}

// Network is what a Listener listens on.
type Network string

const (
	NetworkTCP  Network = "tcp"
	NetworkTCP4 Network = "tcp4"
	NetworkTCP6 Network = "tcp6"
	NetworkUnix Network = "unix"
)

// A Hook is run before an instance is told to stop. No shell reads it.
type Hook struct {
	Command string        `yaml:"command"`
	Args    []string      `yaml:"args"`
	Timeout time.Duration `yaml:"timeout"` // 5s
}

// Logs says where what a process writes goes.
type Logs struct {
	Dir     string `yaml:"dir"`       // an absolute path; a file for each instance; empty, the default, is the launcher's own stdout
	MaxSize Bytes  `yaml:"max_size"`  // 10MiB; of a file, before the next one is begun
	Files   int    `yaml:"max_files"` // 5, of each instance, with the one that is written
	MaxLine Bytes  `yaml:"max_line"`  // 64KiB; what is longer becomes several lines
	Buffer  Bytes  `yaml:"buffer"`    // 1MiB; what a slow disk has not taken beyond that is dropped, and counted
}

// Export has what package export needs, and the launcher does not.
type Export struct {
	Image string `yaml:"image"`     // of the container
	Port  int    `yaml:"grpc_port"` // 50051; where the process then serves grpc.health.v1
}

// StopBound returns how long a stop of the group takes at most, without the reap: DeregisterDelay, the hooks, MaxDuration and
// SIGTERMTimeout for each of the signals.
func (g *Group) StopBound() time.Duration {
	d := g.Shutdown.DeregisterDelay + g.Shutdown.MaxDuration + time.Duration(len(g.StopSignals))*g.Shutdown.SIGTERMTimeout
	for _, h := range g.PreStop {
		d += h.Timeout
	}
	return d
}

// StopBound returns how long a stop of all groups takes at most, without the reaps: groups that do not depend on one
// another are stopped at the same time.
func (c *Config) StopBound() time.Duration {
	return c.along(func(g *Group) time.Duration { return g.StopBound() })
}

// derivedTotal is the TotalDeadline of a file that has none. A file that has the same written out counts as one that has none: the
// copy that validate prints has to mean what its original does.
func (c *Config) derivedTotal() time.Duration {
	return min(max(c.StopBound()/4*5, leastTotal), maxDuration)
}

// along returns the largest sum along a chain of dependencies. A circle, in a configuration that nobody has checked,
// counts once.
func (c *Config) along(f func(*Group) time.Duration) (most time.Duration) {
	sums := map[string]time.Duration{}
	var visit func(name string) time.Duration
	visit = func(name string) time.Duration {
		if d, ok := sums[name]; ok {
			return d
		}
		g := c.Group(name)
		if g == nil {
			return 0
		}
		sums[name] = 0 // ends a circle
		below := time.Duration(0)
		for _, d := range g.DependsOn {
			below = max(below, visit(d))
		}
		sums[name] = below + f(g)
		return sums[name]
	}
	for k := range c.Groups {
		most = max(most, visit(c.Groups[k].Name))
	}
	return most
}

// Group returns the group of that name, or nil.
func (c *Config) Group(name string) *Group {
	k := slices.IndexFunc(c.Groups, func(g Group) bool { return g.Name == name })
	if k < 0 {
		return nil
	}
	return &c.Groups[k]
}

// WithGroup returns the configuration with a group as another one has it, but for depends_on: a Config is a
// [launcher.GroupSource].
func (c *Config) WithGroup(name string, of any) any {
	k := slices.IndexFunc(c.Groups, func(g Group) bool { return g.Name == name })
	if k < 0 {
		return c
	}
	out := *c
	out.Groups = slices.Clone(c.Groups)
	var has *Group
	if other, ok := of.(*Config); ok {
		has = other.Group(name)
	}
	if has == nil {
		out.Groups = slices.Delete(out.Groups, k, k+1)
		return &out
	}
	out.Groups[k] = *has
	out.Groups[k].DependsOn = c.Groups[k].DependsOn
	return &out
}

// Load reads a file, and checks that what it names is there: programs, directories, certificates. Errors are [Errors],
// or an [*Error] where the file itself cannot be read.
func Load(file string) (*Config, error) {
	c, _, err := LoadSource(file)
	return c, err
}

// Parse reads text, as Load does, without a look at this machine: for what is to run on another one. The name of the file
// is for errors.
func Parse(file string, text []byte) (*Config, error) {
	c, _, err := parse(cmp.Or(file, "config"), text, false)
	return c, err
}

func parse(file string, text []byte, here bool) (*Config, *Source, error) {
	c := &Config{}
	d := decoder{file: file, lines: map[string]position{}, wrong: map[string]bool{}, texts: map[string]string{}}
	if d.document(text, c) {
		c.derive(&d)
		k := checker{decoder: &d, here: here}
		k.config(c)
	}
	if len(d.errs) > 0 {
		return nil, nil, d.sorted()
	}
	return c, &Source{d, c}, nil
}
