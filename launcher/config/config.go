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

// A Config is the content of a file, with defaults for the keys that the file does not have.
type Config struct {
	// StateDir is the launcher's own directory, with mode 0700. It contains the launcher's sockets,
	// its lock, and the state file for the next launcher. The default is a directory of the user;
	// see Dir. With on_launcher_death: keep, StateDir must be set to a directory that is not
	// removed when the user logs out or the machine restarts.
	StateDir string `yaml:"state_dir"`

	// TotalDeadline bounds the stop of all groups. A fifth of it is reserved for SIGTERM and
	// SIGKILL. The default is 5/4 of StopBound.
	TotalDeadline time.Duration `yaml:"total_deadline"`

	Admin   launcher.AdminConfig  `yaml:"admin"`
	Metrics Metrics               `yaml:"metrics"`
	Secret  launcher.SecretConfig `yaml:"secret"` // which values are masked, besides those that the launcher finds by their names

	Groups []Group `yaml:"process_groups"`
}

// Metrics says where Prometheus finds the metrics.
type Metrics struct {
	Address string `yaml:"address"` // host:port, as in 127.0.0.1:9464; empty, the default: no metrics
}

// A Group is a group of processes, with the settings that only a file has.
//
// In a group that was read from a file, no zero value stands for a default: its NoDefaults is set,
// so a 0 in the file is 0. Name is a DNS label: up to 63 of a-z, 0-9 and -, beginning with a letter
// and not ending with -. It becomes part of the names of files and of exported objects.
type Group struct {
	launcher.GroupConfig `yaml:",inline"`

	EnvFile   []string          `yaml:"env_file"` // absolute paths of files with lines of the form NAME=value
	FromFiles map[string]string // the variables in these files, which Load reads; Env overrides them
	Export    Export            `yaml:"export"`
}

// A Probe checks an instance from the outside; see [launcher.Probe]. Its keys are those of
// Kubernetes, so a probe can be copied from the file of a Deployment.
type Probe = launcher.Probe

// Export contains settings for package export. The launcher does not use them.
type Export struct {
	Image string `yaml:"image"`     // name of the container image
	Port  int    `yaml:"grpc_port"` // port at which the process serves grpc.health.v1; default 50051

	// ServicePort takes the place of {port} where each instance has an address of its own; default
	// 8080.
	ServicePort int `yaml:"port"`
}

// StopBound returns the longest time that a stop of one instance takes, without the time for the
// kernel to end the process: DeregisterDelay, the hooks, Max, and SIGTERMTimeout for each
// of the signals.
func (g *Group) StopBound() time.Duration {
	d := g.Shutdown.DeregisterDelay + g.Shutdown.Max + time.Duration(len(g.Shutdown.StopSignals))*g.Shutdown.SIGTERMTimeout
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
		sums[name] = 0 // ends the recursion if the dependencies form a cycle
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

// Group returns the group with the name, or nil. The result points into c.Groups.
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
// the file names exist on this machine. If the file is a pipe, it waits for the program that writes
// to the pipe. The error is [Errors], or an [*Error] if the file cannot be read.
func Load(file string) (*Config, error) {
	c, _, err := LoadSource(file)
	return c, err
}

// Parse reads and checks the text of a file that may be for another machine: unlike [Load], it does
// not check that programs, directories and certificates exist. The name of the file is used in
// errors.
func Parse(file string, text []byte) (*Config, error) {
	c, _, err := ParseSource(file, text)
	return c, err
}

// ParseSource is like [Parse], and also returns the Source.
func ParseSource(file string, text []byte) (*Config, *Source, error) {
	return parse(cmp.Or(file, "config"), text, nil)
}

func parse(file string, text []byte, open opener) (*Config, *Source, error) {
	c, d := &Config{}, newDecoder(file)
	if err := d.parse(text, c, open); err != nil {
		return nil, nil, err
	}
	return c, &Source{*d, c}, nil
}

// parse reads the text into c and checks it. It fills c as far as it can if there is an error. The
// parameter open is nil if the file is for another machine.
func (d *decoder) parse(text []byte, c *Config, open opener) error {
	if d.document(text, c) {
		c.derive(d)
		k := checker{d, open}
		k.config(c)
	}
	if len(d.errs) > 0 {
		return d.sorted()
	}
	return nil
}
