// Package spec defines the configuration of a launcher in its final form: every value is set, and
// zero means zero.
//
// Users write a configuration in one of two forms: in Go, as launcher.Config, or in a file, which
// package config reads. Each form is converted to a [Config], with [Default] for values that are
// missing, and [Config.Check] validates the result.
package spec

import (
	"cmp"
	"math"
	"path/filepath"
	"reflect"
	"time"
)

// A Config describes all groups that a launcher runs.
type Config struct {
	Dir           string
	Groups        []Group
	TotalDeadline time.Duration // 0 means no total deadline
	Admin         Admin
}

// An Admin says where operators can connect to the launcher, besides the socket in its directory.
type Admin struct {
	Address string // TCP address; if empty, operators can connect to the socket only
	TLS     TLS
}

// TLS names the PEM files of mutual TLS.
type TLS struct{ Cert, Key, CA string }

// A Group is a number of processes that run the same program. The state file contains it as JSON,
// with the names of these fields as keys.
//
// If a field were renamed, the file of an earlier launcher could not be read any more. A new field
// has omitempty or omitzero, so a file that does not use it has no key that an earlier launcher
// does not know.
type Group struct {
	Name    string
	Job     bool `json:",omitempty"` // the processes run to completion, and take no part in rolls
	Command []string
	WorkDir string
	Env     []string // variables in the form NAME=value

	ClearEnv bool `json:",omitempty"` // the processes do not get the launcher's environment

	User      string   `json:",omitempty"` // name or id; empty: the launcher's user
	UserGroup string   `json:",omitempty"` // name or id; empty: the group of User
	Rlimits   []Rlimit `json:",omitempty"`
	Limits    Limits   `json:",omitzero"`

	Protocol  Protocol
	Transport Transport

	Desired    int
	MinHealthy int
	MaxSurge   int

	HealthCheckTimeout time.Duration
	MinReady           time.Duration
	LivenessInterval   time.Duration // time between two liveness checks; 0 means no checks
	LivenessTimeout    time.Duration
	LivenessFailures   int
	StartupProbe       Probe         `json:",omitzero"`
	ReadinessProbe     Probe         `json:",omitzero"`
	LivenessProbe      Probe         `json:",omitzero"`
	Watchdog           time.Duration `json:",omitempty"` // time between two messages WATCHDOG=1; 0 means that none is needed

	Shutdown Shutdown
	Restart  Restart
	Roll     Roll

	PreStop         []Hook
	OnLauncherDeath LauncherDeath

	DependsOn  []string
	Conditions map[string]Condition `json:",omitempty"` // conditions of groups in DependsOn; a group without a condition must be healthy
	Listen     []Listen
	Log        Log
	Unmasked   bool `json:",omitempty"` // the output of the processes is stored and printed with the secrets in it
}

// Protocol says how the launcher communicates with a process.
type Protocol string

const (
	Auto    Protocol = "auto"    // the launcher finds out which of the other three protocols the process uses
	GRPC    Protocol = "grpc"    // the process serves the lifecycle protocol
	Notify  Protocol = "notify"  // the process sends sd_notify(3) messages, and is stopped by signals
	Signals Protocol = "signals" // the process uses no protocol, and is stopped by signals
)

// CallsProcess reports whether the launcher calls, or tries to call, the process. With Auto the
// process may turn out to use another protocol.
func (p Protocol) CallsProcess() bool { return p == Auto || p == GRPC }

// TakesMessages reports whether the process can send sd_notify(3) messages.
func (p Protocol) TakesMessages() bool { return p == Auto || p == Notify }

// A Condition is what must hold for a group before a group that depends on it is started.
type Condition string

const (
	Started   Condition = "started"
	Healthy   Condition = "healthy"
	Completed Condition = "completed"
)

// ConditionOf returns the condition for a group in DependsOn. Conditions has only those that were
// given, so a dependency without one waits until the group is healthy.
func (g Group) ConditionOf(name string) Condition { return cmp.Or(g.Conditions[name], Healthy) }

// An Rlimit is a limit of the kernel for each process.
type Rlimit struct {
	Name       string // the name of the limit, such as nofile
	Soft, Hard uint64 // the soft and the hard limit; Unlimited means no limit
}

// Unlimited is the value of an Rlimit that is no limit. It is the RLIM_INFINITY of Linux.
const Unlimited = math.MaxUint64

// Limits bound the memory and processors that a process and all processes that it has started use
// together.
type Limits struct {
	Memory        int64         `yaml:"memory" form:"bytes"` // bytes; 0 means no limit
	CPUs          float64       `yaml:"cpus"`                // processors; 0 means no limit
	IfUnavailable IfUnavailable `yaml:"if_unavailable"`
}

// AreSet reports whether there is a limit. IfUnavailable alone limits nothing.
func (l Limits) AreSet() bool { return l.Memory != 0 || l.CPUs != 0 }

// IfUnavailable says what happens if a limit cannot be enforced on this machine: Refuse makes the
// configuration an error, and Warn starts the processes without the limit and raises an alarm.
type IfUnavailable string

const (
	Refuse IfUnavailable = "refuse"
	Warn   IfUnavailable = "warn"
)

// LauncherDeath says what happens to the processes when the launcher dies without stopping them.
type LauncherDeath string

const (
	Kill LauncherDeath = "kill"
	Keep LauncherDeath = "keep"
)

// A Transport says how the launcher and a process connect to each other.
type Transport struct {
	Network string // "unix" or "tcp"
	Address string // host:port, for tcp
	TLS     TLS    // certificates for tcp
}

// Shutdown bounds the shutdown of one process.
type Shutdown struct {
	Grace           time.Duration
	Max             time.Duration
	GraceEnforced   bool
	Poll            time.Duration
	SIGTERMTimeout  time.Duration
	TotalDeadline   time.Duration // 0 means no total deadline
	DeregisterDelay time.Duration
	StopSignals     []string
	SuccessCodes    []int
}

// RestartPolicy says which processes that exit without having been asked to are replaced.
type RestartPolicy string

const (
	OnFailure RestartPolicy = "on-failure"
	Always    RestartPolicy = "always"
	Never     RestartPolicy = "never"
)

// Restart bounds how often failing processes are restarted.
type Restart struct {
	Policy     RestartPolicy
	MinBackoff time.Duration
	MaxBackoff time.Duration
	ResetAfter time.Duration
	CrashLimit int // 0 means no limit
}

// Backoff returns how long to wait before the restart after the given number of consecutive
// failures: MinBackoff after the first, twice as long after each further one, and at most
// MaxBackoff. 0 failures count as one. A MinBackoff of 0 means no wait.
func (r Restart) Backoff(failures int) time.Duration {
	wait := r.MinBackoff
	for ; failures > 1 && wait > 0 && wait < r.MaxBackoff; failures-- {
		wait *= 2
	}
	return min(wait, r.MaxBackoff)
}

// A Roll says which replacements go first, and what happens when one does not become ready.
type Roll struct {
	Canary           int
	CanaryWait       time.Duration
	Check            CanaryCheck
	ProgressDeadline time.Duration // 0 means no deadline
	OnFailure        RollFailure
	Retry            Retry
	Retries          int
	MinBackoff       time.Duration
	MaxBackoff       time.Duration
}

// A CanaryCheck judges the canaries of a roll, by a command or by a query. The zero value, with or
// without Interval and Timeout, is no check.
type CanaryCheck struct {
	Command    []string      `yaml:"command" form:"command,args"`
	Prometheus string        `yaml:"prometheus"`
	Query      string        `yaml:"query"`
	Interval   time.Duration `yaml:"interval"`
	Timeout    time.Duration `yaml:"timeout"`
}

// IsSet reports whether the canaries are checked.
func (c CanaryCheck) IsSet() bool { return len(c.Command) > 0 || c.Prometheus != "" }

// RollFailure says what a roll does when a replacement fails for good.
type RollFailure string

const (
	Pause    RollFailure = "pause"
	Rollback RollFailure = "rollback"
	Continue RollFailure = "continue"
)

// Retry says whether and when a failed replacement is tried again.
type Retry string

const (
	Manual      Retry = "manual"
	Immediate   Retry = "immediate"
	Exponential Retry = "exponential"
)

// A Hook is a command that is run before a process is asked to stop.
type Hook struct {
	Command []string
	Timeout time.Duration
}

// A Listen is an address that the launcher listens on for a group.
type Listen struct {
	Name    string
	Network string
	Address string
}

// A Log says where the output of the processes goes.
type Log struct {
	Path     string
	Dir      string
	MaxSize  int64
	MaxFiles int // rotated files kept besides the current one
	MaxLine  int
	Buffer   int
}

// File returns the path of the file for the output of a process. It returns an empty string if the
// process has no file of its own.
func (l Log) File(id string) string {
	if l.Dir != "" {
		return filepath.Join(l.Dir, id+".log")
	}
	return l.Path
}

// SameProcess reports whether a process that was started with g can keep running when the
// configuration changes to o. It can if g and o differ only in fields on which the process itself
// does not depend.
//
// Those fields are listed, and all others compared. So a new field rolls the group until it is
// listed here: a replacement that was not needed does less harm than an old value that stays in
// use.
func (g Group) SameProcess(o Group) bool {
	// The process was started without a port, and the changed configuration needs one, for example
	// in a new hook; so the process is replaced.
	if o.UsesPort() && !g.UsesPort() {
		return false
	}
	g.Desired, g.MinHealthy, g.MaxSurge = o.Desired, o.MinHealthy, o.MaxSurge
	g.HealthCheckTimeout, g.MinReady = o.HealthCheckTimeout, o.MinReady
	g.LivenessInterval, g.LivenessTimeout, g.LivenessFailures = o.LivenessInterval, o.LivenessTimeout, o.LivenessFailures
	g.Shutdown, g.Restart, g.Roll = o.Shutdown, o.Restart, o.Roll
	g.PreStop, g.DependsOn, g.Conditions, g.Unmasked = o.PreStop, o.DependsOn, o.Conditions, o.Unmasked
	return reflect.DeepEqual(g, o)
}
