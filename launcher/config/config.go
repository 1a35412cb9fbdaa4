// Package config reads the configuration of the launcher from a YAML file. A key that it does not
// know is an error. The keys are those of [Config], in a file such as
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
// Only name is required. Durations are written with their unit, as in 500ms or 1m30s. Groups can
// share settings by anchors, aliases and merge keys (<<).
//
// All errors of a file are reported at once, each with its line and key: see [Errors]. Secrets are
// masked in what is printed of a configuration: see [Config.Masked].
package config

import (
	"cmp"
	"slices"
	"time"

	"github.com/swansong-go/swansong/launcher"
)

// The yaml tags are the keys. The reload tags are the effects of a change, for Diff; a field
// without one has the effect of the struct around it.

// A Config is the content of a file, with defaults for the keys that the file does not have.
type Config struct {
	// StateDir is the launcher's own directory, with mode 0700. It contains the launcher's sockets,
	// its lock, and the state file for the next launcher. The default is a directory of the user;
	// see Dir. With on_launcher_death: keep, StateDir must be set to a directory that is not
	// removed when the user logs out or the machine restarts.
	StateDir string `yaml:"state_dir" reload:"launcher"`

	// TotalDeadline bounds the stop of all groups. A fifth of it is reserved for SIGTERM and
	// SIGKILL. The default is 5/4 of StopBound.
	TotalDeadline time.Duration `yaml:"total_deadline" reload:"now"`

	Admin   Admin   `yaml:"admin" reload:"launcher"`
	Metrics Metrics `yaml:"metrics" reload:"launcher"`

	Secret Secret `yaml:"secret" reload:"now"`

	Groups []Group `yaml:"process_groups"`
}

// Secret says which values are masked in what processes print, in events and in the status, besides
// those that the launcher finds by their names; see [launcher.SecretConfig].
type Secret struct {
	Names  []string `yaml:"names"`  // patterns of further names of variables and flags, such as *_PIN
	Values []string `yaml:"values"` // further values that are secret
	Files  []string `yaml:"files"`  // absolute paths of files whose content is secret
}

// Admin says where operators reach the launcher, in addition to the socket in StateDir.
type Admin struct {
	Address string `yaml:"address"` // host:port; needs TLS; empty, the default: no TCP
	TLS     TLS    `yaml:"tls"`
}

// TLS names the files of mutual TLS: each side shows a certificate that the other side's authority
// has issued.
type TLS struct {
	Cert string `yaml:"cert_file"`
	Key  string `yaml:"key_file"`
	CA   string `yaml:"ca_file"`
}

// Metrics says where Prometheus finds the metrics.
type Metrics struct {
	Address string `yaml:"address"` // host:port, as in 127.0.0.1:9464; empty, the default: no metrics
}

// A Group is a number of instances of one program.
type Group struct {
	// Name is a DNS label: up to 63 of a-z, 0-9 and -, beginning with a letter and not ending with
	// -. It becomes part of the names of files and of exported objects.
	Name string `yaml:"name"`

	Kind Kind `yaml:"kind" reload:"roll"` // default service

	// Command is an absolute path, or a name that is looked up in the launcher's PATH; the default
	// is Name. Command and Args are not passed to a shell.
	Command    string            `yaml:"command" reload:"roll"`
	Args       []string          `yaml:"args" reload:"roll"`
	Env        map[string]string `yaml:"env" reload:"roll"`         // variables in addition to the launcher's environment, and to those of EnvFile
	EnvFile    []string          `yaml:"env_file" reload:"roll"`    // absolute paths of files with lines of the form NAME=value
	ClearEnv   bool              `yaml:"clear_env" reload:"roll"`   // the processes do not get the launcher's environment
	User       string            `yaml:"user" reload:"roll"`        // name or id of the user that the processes run as; empty: the launcher's
	UserGroup  string            `yaml:"group" reload:"roll"`       // name or id of the group; empty: that of User
	Rlimits    map[string]Rlimit `yaml:"rlimits" reload:"roll"`     // limits of the kernel for each process, such as nofile
	Limits     Limits            `yaml:"limits" reload:"roll"`      // limits of memory and processor time
	WorkingDir string            `yaml:"working_dir" reload:"roll"` // an absolute path; empty: the launcher's working directory

	// FromFiles are the variables in the files of EnvFile, which Load reads.
	FromFiles map[string]string `yaml:"-" show:"env_file" reload:"roll"`

	// DependsOn names the groups that must be healthy before this group starts, and that stop after
	// it. In the file it is a list, or a mapping of groups to conditions.
	DependsOn  []string                      `yaml:"depends_on" reload:"now"`
	Conditions map[string]launcher.Condition `yaml:"-" show:"depends_on" reload:"now"` // the conditions in the mapping, except for the condition healthy

	Desired    int `yaml:"desired_instances" reload:"scale"`   // default 1
	MinHealthy int `yaml:"min_healthy_instances" reload:"now"` // default Desired, or Desired-1 if MaxSurge is 0
	MaxSurge   int `yaml:"max_surge" reload:"now"`             // default 1; 0: stop each instance before replacing it

	HealthCheckTimeout time.Duration        `yaml:"health_check_timeout" reload:"now"`          // default 30s; limit from the start of an instance until it is READY
	MinReady           time.Duration        `yaml:"min_ready_seconds" reload:"now" unit:"true"` // default 0; a roll relies on an instance only after it has been READY for so long
	ProgressDeadline   time.Duration        `yaml:"progress_deadline" reload:"now"`             // default 10m; longest time without progress of a roll; 0: no limit
	OnFailure          launcher.RollFailure `yaml:"on_failure" reload:"now"`                    // default pause
	Retry              Retry                `yaml:"retry" reload:"now"`
	Canary             Canary               `yaml:"canary" reload:"now"`

	Shutdown         Shutdown `yaml:"shutdown" reload:"now"`
	StopSignals      []Signal `yaml:"stop_signals" reload:"now"`       // default [SIGTERM]; signals sent one after the other, before SIGKILL
	SuccessExitCodes []int    `yaml:"success_exit_codes" reload:"now"` // default [0]

	Restart         Restart                `yaml:"restart_policy" reload:"now"` // restart_policy: never sets only the policy
	Liveness        Liveness               `yaml:"liveness" reload:"now"`
	StartupProbe    Probe                  `yaml:"startupProbe" reload:"roll"`
	ReadinessProbe  Probe                  `yaml:"readinessProbe" reload:"roll"`
	LivenessProbe   Probe                  `yaml:"livenessProbe" reload:"roll"`
	Watchdog        time.Duration          `yaml:"watchdog" reload:"roll"`          // default 0: none; longest time between two messages WATCHDOG=1 of a READY instance
	OnLauncherDeath launcher.LauncherDeath `yaml:"on_launcher_death" reload:"roll"` // default kill

	Protocol  launcher.Protocol `yaml:"protocol" reload:"roll"` // default auto
	Lifecycle Lifecycle         `yaml:"lifecycle" reload:"roll"`
	Listeners []Listener        `yaml:"listeners" reload:"launcher"`
	PreStop   []Hook            `yaml:"pre_stop" reload:"now"`
	Logs      Logs              `yaml:"logs" reload:"roll"`
	Mask      Mask              `yaml:"mask" reload:"now"` // default on
	Export    Export            `yaml:"export" reload:"now"`
}

// Kind says what the instances of a group are for.
type Kind string

const (
	Service Kind = "service" // the instances run until they are stopped, and are replaced one by one in a roll
	Job     Kind = "job"     // the instances run to completion, and take no part in rolls
)

// Shutdown bounds the stop of an instance.
type Shutdown struct {
	GracePeriod     time.Duration `yaml:"grace_period"`     // default 3s; time in which an instance should stop
	MaxDuration     time.Duration `yaml:"max_duration"`     // default 10s; time in which an instance must stop
	SIGTERMTimeout  time.Duration `yaml:"sigterm_timeout"`  // default 2s; time between SIGTERM and SIGKILL
	PollInterval    time.Duration `yaml:"poll_interval"`    // default 500ms
	DeregisterDelay time.Duration `yaml:"deregister_delay"` // default 0; time between leaving the router and being asked to stop
	Grace           Grace         `yaml:"grace"`            // default advisory
}

// Grace says what happens at the end of the grace period.
type Grace string

const (
	Advisory Grace = "advisory" // the end is reported, and the instance has until MaxDuration
	Enforced Grace = "enforced" // an instance that has not asked for more time is stopped by signals
)

// A Signal is one of SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1 and SIGUSR2.
type Signal string

// Restart says what happens when an instance exits without having been asked to.
type Restart struct {
	Policy  launcher.RestartPolicy `yaml:"policy"`           // default on-failure
	Initial time.Duration          `yaml:"initial_backoff"`  // default 1s; first pause, doubled with each consecutive failure
	Max     time.Duration          `yaml:"max_backoff"`      // default 1m; longest pause
	Limit   int                    `yaml:"crash_loop_limit"` // default 10 consecutive failures; then the group is given up; 0: no limit
	Reset   time.Duration          `yaml:"reset_after"`      // default 10s; after being READY for that long, an instance resets the count of failures
}

// A Probe checks an instance from the outside; see [launcher.Probe]. Its keys are those of Kubernetes,
// so a probe can be copied from the file of a Deployment.
type Probe = launcher.Probe

// Liveness says how an instance with protocol grpc is checked after it has become READY.
type Liveness struct {
	Interval time.Duration `yaml:"interval"`          // default 2s; 0: no checks
	Timeout  time.Duration `yaml:"timeout"`           // default 1s
	Failures int           `yaml:"failure_threshold"` // default 3; number of consecutive failed checks after which an instance is UNHEALTHY
}

// Lifecycle says where the launcher and an instance talk.
type Lifecycle struct {
	Transport Transport `yaml:"transport"` // default unix
	Address   string    `yaml:"address"`   // host:port, used with tcp; the port must be 0 if there can be more than one instance
	TLS       TLS       `yaml:"tls"`       // certificates, used with tcp
}

// Transport is how the launcher and an instance are connected.
type Transport string

const (
	Unix Transport = "unix" // the launcher calls each instance through a socket of its own in StateDir
	TCP  Transport = "tcp"  // the launcher calls each instance by TCP with mutual TLS
)

// A Listener is opened by the launcher and inherited by all instances of the group (LISTEN_FDS). So
// a connection is not refused while an instance is replaced.
type Listener struct {
	Name    string  `yaml:"name"`
	Network Network `yaml:"network"` // default tcp
	Address string  `yaml:"address"`
}

// Network is the network of a Listener.
type Network string

const (
	NetworkTCP  Network = "tcp"
	NetworkTCP4 Network = "tcp4"
	NetworkTCP6 Network = "tcp6"
	NetworkUnix Network = "unix"
)

// A Hook is run before an instance is asked to stop. It is not passed to a shell.
type Hook struct {
	Command string        `yaml:"command"`
	Args    []string      `yaml:"args"`
	Timeout time.Duration `yaml:"timeout"` // default 5s
}

// Logs says where the output of the instances goes.
type Logs struct {
	Dir     string `yaml:"dir"`       // the absolute path of a folder, which gets a file for each instance; by default, the launcher's stdout gets the output
	MaxSize Bytes  `yaml:"max_size"`  // default 10MiB; size after which a file is rotated
	Files   int    `yaml:"max_files"` // default 5; number of files of each instance, including the current one
	MaxLine Bytes  `yaml:"max_line"`  // default 64KiB; longer lines are split
	Buffer  Bytes  `yaml:"buffer"`    // default 1MiB; buffer for a slow disk; what exceeds it is dropped and counted
}

// Mask says whether secrets are masked in what the instances print.
type Mask string

const (
	MaskOn  Mask = "on"
	MaskOff Mask = "off" // the output is stored and printed as it is
)

// Export contains settings for package export. The launcher does not use them.
type Export struct {
	Image string `yaml:"image"`     // name of the container image
	Port  int    `yaml:"grpc_port"` // default 50051; port at which the process serves grpc.health.v1

	// ServicePort takes the place of {port} where each instance has an address of its own; default
	// 8080.
	ServicePort int `yaml:"port"`
}

// StopBound returns the longest time that a stop of one instance takes, without the time for the
// kernel to end the process: DeregisterDelay, the hooks, MaxDuration, and SIGTERMTimeout for each
// of the signals.
func (g *Group) StopBound() time.Duration {
	d := g.Shutdown.DeregisterDelay + g.Shutdown.MaxDuration + time.Duration(len(g.StopSignals))*g.Shutdown.SIGTERMTimeout
	for _, h := range g.PreStop {
		d += h.Timeout
	}
	return d
}

// StopBound returns the longest time that a stop of all groups takes, without the time for the
// kernel to end the processes. Groups that do not depend on one another are stopped at the same
// time.
func (c *Config) StopBound() time.Duration {
	return c.longestChain(func(g *Group) time.Duration { return g.StopBound() })
}

// longestChain returns the largest sum of f over the groups along a chain of dependencies. If a
// configuration that has not been checked contains a cycle, each group of the cycle is counted
// once.
func (c *Config) longestChain(f func(*Group) time.Duration) (most time.Duration) {
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
		sums[name] = 0 // ends the recursion in a cycle
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

// Group returns the group with the name, or nil.
func (c *Config) Group(name string) *Group {
	k := slices.IndexFunc(c.Groups, func(g Group) bool { return g.Name == name })
	if k < 0 {
		return nil
	}
	return &c.Groups[k]
}

// WithGroup returns the configuration with the named group taken from another configuration, except
// for its depends_on. It makes Config a [launcher.GroupSource].
func (c *Config) WithGroup(name string, of any) any {
	k := slices.IndexFunc(c.Groups, func(g Group) bool { return g.Name == name })
	if k < 0 {
		return c
	}
	out := *c
	out.Groups = slices.Clone(c.Groups)
	var group *Group
	if other, ok := of.(*Config); ok {
		group = other.Group(name)
	}
	if group == nil {
		out.Groups = slices.Delete(out.Groups, k, k+1)
		return &out
	}
	out.Groups[k] = *group
	out.Groups[k].DependsOn, out.Groups[k].Conditions = c.Groups[k].DependsOn, c.Groups[k].Conditions
	return &out
}

// Load reads and checks a file. It also checks that the programs, directories and certificates that
// the file names exist on this machine. The error is [Errors], or an [*Error] if the file cannot be
// read.
func Load(file string) (*Config, error) {
	c, _, err := LoadSource(file)
	return c, err
}

// Parse reads and checks the text of a file that may be for another machine: unlike [Load], it does
// not check that programs, directories and certificates exist. The name of the file is used in
// errors.
func Parse(file string, text []byte) (*Config, error) {
	c, _, err := parse(cmp.Or(file, "config"), text, false)
	return c, err
}

func parse(file string, text []byte, here bool) (*Config, *Source, error) {
	c, d := &Config{}, newDecoder(file)
	if err := d.parse(text, c, here); err != nil {
		return nil, nil, err
	}
	return c, &Source{*d, c}, nil
}

// parse reads the text into c and checks it. It fills c as far as it can if there is an error.
func (d *decoder) parse(text []byte, c *Config, here bool) error {
	if d.document(text, c) {
		c.derive(d)
		k := checker{decoder: d, here: here}
		k.config(c)
	}
	if len(d.errs) > 0 {
		return d.sorted()
	}
	return nil
}
