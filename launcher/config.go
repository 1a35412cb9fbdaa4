package launcher

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/swansong-go/swansong/launcher/internal/spec"
)

// A Config says what to launch.
type Config struct {
	// Dir is the launcher's own directory, with its sockets and its lock. It is created with mode
	// 0700 if it does not exist; a directory that other users can read is refused. The name must be
	// short, because the paths of sockets have to be.
	Dir string

	Groups []GroupConfig

	// TotalDeadline, unless it is 0, bounds the time in which all processes stop. The time begins
	// when the launcher is asked to stop. After four fifths of it the remaining processes get
	// SIGTERM, after nine tenths SIGKILL.
	TotalDeadline time.Duration

	// TotalDeadlineDerived says that TotalDeadline was computed from the bounds of the groups, not
	// configured. A reload that shortens such a deadline does not shorten the stop of a group that
	// it removes: until the group has ended, the longer of the two deadlines applies.
	TotalDeadlineDerived bool

	Admin  AdminConfig
	Router Router // the launcher notifies the router when processes start and stop taking requests; nil: no router

	// Logger logs events; nil: nothing is logged. If its handler panics, that message is lost, and
	// the first panic is reported as an [Alarm].
	Logger *slog.Logger

	// Output gets the output of processes whose group has no [LogConfig]; nil: the output is
	// discarded. A panic in Write counts as a write error.
	Output io.Writer

	// Secrets says which values are secret, besides those that the launcher finds itself.
	Secrets SecretConfig

	// Reread reads the configuration again when an operator asks for a reload. It returns the new
	// configuration and, for display, lines that describe the changes from the current one, whose
	// Source is passed; see [GroupSource]. If it returns an error as well, the lines are only
	// displayed. nil: operators cannot reload.
	//
	// A panic in Reread reaches the caller of [Manager.Reread]. If an operator asked for the
	// reload, the reload fails, and the panic is also reported as an [Alarm].
	Reread func(ctx context.Context, source any) (next Config, changes []string, err error)
	Source any // what the configuration was read from, passed to Reread; see [GroupSource]

	// File is the file that Reread reads, so that an operator can compare it with the intended one;
	// empty: no file.
	File string

	// Locate adds to the error of a refused reload the place in the configuration file that has
	// caused the error, as config.Source.Locate does. Its result must match the original error.
	// nil: errors are not changed.
	Locate func(error) error

	// Helper is prepended to the command of a process that inherits listeners or has Rlimits, as in
	// {"/proc/self/exe", "exec", "--"}. It must set LISTEN_PID to its own process id and then
	// become the command, as [Exec] does. It also sets Rlimits. Without a helper, LISTEN_PID is not
	// set: package client accepts that, sd_listen_fds(3) does not.
	Helper []string

	// Guardian is a command that calls [Guard] of the same version, as in {"/proc/self/exe",
	// "guard"}. It runs beside the launcher, and handles the launcher's processes if the launcher
	// dies; see [LauncherDeath]. Without a guardian, the next launcher with the same Dir does that.
	Guardian []string

	// UpgradeCheck are the arguments with which [Manager.Upgrade] runs the new program first, as in
	// {"upgrade-check", "--", "run", "-f", "launcher.yaml"}. When it runs with these, the program
	// has to call [AnswerUpgradeCheck], with its standard input and output; nil: no upgrades.
	UpgradeCheck []string
}

// A GroupSource is a [Config].Source that can be combined group by group.
//
// The configuration that a group runs need not be the one that was loaded last: its roll may have
// been rolled back, or be paused. So Reread is called with the Source that was loaded last, but
// with every group as in the Source that the group runs. A group that a program has changed by
// [Manager.Roll] keeps its Source.
type GroupSource interface {
	// WithGroup returns the Source with the named group taken from another Source, except for its
	// dependencies, which a roll does not change. If the other Source does not have the group,
	// neither does the result.
	WithGroup(name string, of any) (source any)
}

// A GroupConfig describes a group: a number of processes that run the same program. The yaml tags
// are the keys of a configuration file, which package config reads; a dot separates a key from the
// mapping that it is in.
type GroupConfig struct {
	Name string `yaml:"name"`

	// NoDefaults says that a zero value means zero. Otherwise a field that is zero, or empty, gets
	// its default. A nil MinHealthy or MaxSurge gets its default in both cases.
	NoDefaults bool

	// Job says that the processes run to completion: no client needs them to be ready. They take no
	// part in rolls. [Manager.Roll], [Manager.Restart] and a reload that changes what a process is
	// started with stop the processes that still run, and run each of them once more when those
	// have ended. None of these calls waits until the jobs have run.
	Job bool `yaml:"kind" form:"service|job"`

	// Command is the program and its arguments; it is not passed to a shell. In Command, in the
	// values of Env and in probes, {id} stands for the id of the process, {dir} for the launcher's
	// directory, {socket} for a path in that directory that the process can listen on, and {port}
	// for a TCP port, from 20000 to 32767, that the launcher chooses for each process that mentions
	// it.
	Command []string `yaml:"command" form:"command,args"`
	WorkDir string   `yaml:"working_dir"`    // if empty, the launcher's working directory
	Env     []string `yaml:"env" form:"env"` // NAME=value, in addition to the launcher's environment

	// ClearEnv leaves the launcher's environment out: the processes and their hooks get only Env
	// and what the launcher sets. Command is still looked up in the launcher's PATH.
	ClearEnv bool `yaml:"clear_env"`

	// User and UserGroup are the user and the group that the processes run as, by name or id, with
	// the other groups of the user; default the launcher's. Only root can set them. The sockets of
	// such a process, and what {socket} stands for, are in a directory beside the launcher's. HOME,
	// USER and LOGNAME are those of the user, unless Env has them.
	User      string `yaml:"user"`
	UserGroup string `yaml:"group"`

	Rlimits []Rlimit    `yaml:"rlimits" form:"rlimits"` // limits of the kernel for each process; they need [Config].Helper
	Limits  LimitConfig `yaml:"limits"`                 // limits of memory and processor time

	Protocol  Protocol        `yaml:"protocol"` // default Auto, or GRPC if Transport is TCP
	Transport TransportConfig `yaml:"lifecycle"`

	Desired    int  `yaml:"desired_instances"`
	MinHealthy *int `yaml:"min_healthy_instances"` // number of processes that must be ready during a roll; default Desired, or Desired-1 if MaxSurge is 0
	MaxSurge   *int `yaml:"max_surge"`             // how many processes there may be beyond Desired, including those that are stopping; default 1

	HealthCheckTimeout time.Duration `yaml:"health_check_timeout"`             // from the start of a process until it is ready; default 30 s
	MinReady           time.Duration `yaml:"min_ready_seconds" form:"seconds"` // time that a process must stay ready before a roll relies on it; default 0
	LivenessInterval   time.Duration `yaml:"liveness.interval"`                // time from the answer to a call until the next call to a ready process that uses GRPC; default 2 s, negative: no calls
	LivenessTimeout    time.Duration `yaml:"liveness.timeout"`                 // time that a process has to answer a check; default 1 s
	LivenessFailures   int           `yaml:"liveness.failure_threshold"`       // consecutive failed checks after which a process is replaced; default 3

	StartupProbe   Probe `yaml:"startupProbe"`   // the other probes begin when the startup probe has succeeded; if it fails, the process counts as failed
	ReadinessProbe Probe `yaml:"readinessProbe"` // while this probe fails, the process is WARMING: it gets no requests and does not count as ready
	LivenessProbe  Probe `yaml:"livenessProbe"`  // if this probe fails, the process is stopped and counts as failed

	// Watchdog, unless 0, is how long a ready process may be silent before it counts as failed. The
	// process sends WATCHDOG=1 (sd_notify(3)); WATCHDOG_USEC has the limit. Auto and Notify only.
	Watchdog time.Duration `yaml:"watchdog"`

	Shutdown ShutdownConfig `yaml:",inline"`
	Restart  RestartConfig  `yaml:"restart_policy"`
	Roll     RollConfig     `yaml:",inline"`

	PreStop         []Hook        `yaml:"pre_stop"`          // commands that run one after the other, before a process is asked to stop
	OnLauncherDeath LauncherDeath `yaml:"on_launcher_death"` // what happens to the processes if the launcher is killed; default Kill

	DependsOn []string `yaml:"depends_on"` // groups that must be healthy, or meet their Conditions, before this one starts; they stop after it

	// Conditions maps a group in DependsOn to the condition that it must meet. A group without an
	// entry must be healthy.
	Conditions map[string]Condition

	Listen []Listen  `yaml:"listeners"` // listeners that every process of the group inherits
	Log    LogConfig `yaml:"logs"`

	// Unmasked says that the output of the processes is stored and printed as it is, with the
	// secrets in it; see [SecretConfig].
	Unmasked bool `yaml:"mask" form:"on|off"`
}

// A TransportConfig says how the launcher connects to a process. Notifications of the process
// always go to the launcher's unix socket, because only on a unix socket the kernel says which
// process a message comes from.
type TransportConfig struct {
	Network string `yaml:"transport"` // "unix", the default: each process has a socket in Dir. Or "tcp", with mutual TLS

	// Address is the host and port that a process listens on, for tcp. A group that can have more
	// than one process needs port 0; each process then reports its port. The certificate must be
	// valid for the host.
	Address string `yaml:"address"`

	// TLS is used with tcp, by the launcher and the process. The process gets the names of the
	// files and reads them itself. Every client with a certificate of the same authority can stop
	// the process, so use an authority for this purpose only.
	TLS TLS `yaml:"tls"`
}

// TLS names PEM files for mutual TLS 1.3: the certificate to present, with intermediate
// certificates; its key, which other users must not be able to read; and the authorities that the
// other side's certificate may come from. Replaced files are used from the next connection on.
// While a new certificate does not match its key, the previous ones stay in use.
type TLS struct {
	Cert string `yaml:"cert_file"`
	Key  string `yaml:"key_file"`
	CA   string `yaml:"ca_file"`
}

// A ShutdownConfig bounds a shutdown. From the moment that the process is asked to stop, a shutdown
// takes at most Max + SIGTERMTimeout + 2 s, of which the kernel may need 2 s to end the process.
// [GroupConfig.Bound] includes the time before that moment.
type ShutdownConfig struct {
	Grace           time.Duration `yaml:"shutdown.grace_period"`                   // time in which a process should stop; what still drains then is reported as [GraceOver]; default 3 s
	Max             time.Duration `yaml:"shutdown.max_duration"`                   // time in which a process must stop, whatever it asks for; default 10 s, or Grace if that is longer
	GraceEnforced   bool          `yaml:"shutdown.grace" form:"advisory|enforced"` // if set, a process that still drains after Grace, and has not asked for more time, is ended
	Poll            time.Duration `yaml:"shutdown.poll_interval"`                  // time between two calls to the process, and the timeout of each call; default 500 ms
	SIGTERMTimeout  time.Duration `yaml:"shutdown.sigterm_timeout"`                // time between SIGTERM and SIGKILL; default 2 s
	TotalDeadline   time.Duration // unless 0, limit of the whole stop; a fifth is reserved for SIGTERM and SIGKILL
	DeregisterDelay time.Duration `yaml:"shutdown.deregister_delay"` // time between the end of routing to the process and the request to stop; default 0
	StopSignals     []string      `yaml:"stop_signals"`              // signals sent one after the other to a process without the protocol; default SIGTERM
	SuccessCodes    []int         `yaml:"success_exit_codes"`        // exit codes of a clean exit; default 0
}

// RestartPolicy says which processes are replaced when they exit without having been asked to.
type RestartPolicy = spec.RestartPolicy

const (
	OnFailure RestartPolicy = spec.OnFailure // restart processes that fail; the default
	Always    RestartPolicy = spec.Always    // restart all processes that end
	Never     RestartPolicy = spec.Never     // never restart a process
)

// A RestartConfig limits how often failing processes are restarted.
type RestartConfig struct {
	Policy     RestartPolicy `yaml:"policy"`
	MinBackoff time.Duration `yaml:"initial_backoff"` // pause before the first restart, doubled with each consecutive failure; default 1 s
	MaxBackoff time.Duration `yaml:"max_backoff"`     // longest pause; default 1 min, or MinBackoff if that is longer

	// ResetAfter is how long a process must be ready for the count of consecutive failures to start
	// again at 0. The process must have become ready after the last failure. Default 10 s.
	ResetAfter time.Duration `yaml:"reset_after"`

	// CrashLimit is the number of consecutive failures after which the group is given up until an
	// operator restarts it. Default 10, negative: no limit.
	CrashLimit int `yaml:"crash_loop_limit"`
}

// A RollConfig says which replacements go first, and what happens when one does not become ready.
type RollConfig struct {
	Canary     int           `yaml:"canary.instances"` // how many processes are replaced first; there are no canaries if it is 0, or Desired or more
	CanaryWait time.Duration `yaml:"canary.wait"`      // how long the canaries must stay available before the others follow; default 1 min
	Check      CanaryCheck   `yaml:"canary.check"`     // what judges the canaries during CanaryWait; zero: they only have to stay available

	// ProgressDeadline is how long a roll may make no progress before that counts as a failure.
	// Back-off and CanaryWait do not count. Default 10 min, negative: no deadline.
	ProgressDeadline time.Duration `yaml:"progress_deadline"`

	OnFailure  RollFailure   `yaml:"on_failure"`
	Retry      Retry         `yaml:"retry.policy"`
	Retries    int           `yaml:"retry.limit"`           // consecutive failures that are retried before OnFailure applies; default 3
	MinBackoff time.Duration `yaml:"retry.initial_backoff"` // pause before the first retry if Retry is Exponential, doubled with each further one; default 1 s
	MaxBackoff time.Duration `yaml:"retry.max_backoff"`     // longest pause; default 1 min, or MinBackoff if that is longer
}

// A CanaryCheck judges the canaries of a roll, by a command or by a query of Prometheus, once in
// each Interval of CanaryWait, and once more after it. If a check fails, the roll is rolled back at
// once, whatever OnFailure is; a roll of adopted processes pauses. The other processes follow after
// a check that has passed and that began after CanaryWait.
//
// A check can also give no answer: the command cannot be started or exceeds Timeout, the server
// does not answer, or the query has no result. Then it is repeated, and an event says so. A roll
// that gets no answer for ProgressDeadline after CanaryWait has failed, and OnFailure says what
// follows.
//
// Its fields are
//
//	// Command is a program and its arguments, without a shell. Exit code 0 passes, every other
//	// one fails; the last line that it prints is the reason. Its environment has
//	// SWANSONG_PROCESS_GROUP, SWANSONG_REVISION and SWANSONG_CANARIES, which are the ids of the
//	// canaries, separated by spaces.
//	Command []string
//
//	Prometheus string // the address of a server, such as http://127.0.0.1:9090
//
//	// Query is an expression whose value is the verdict: 0 fails, every other number passes, and
//	// of several values each must pass. No value, or NaN, is no answer. In Query, {group} stands
//	// for the name of the group, and {ids} for the ids of the canaries, separated by |.
//	Query string
//
//	Interval time.Duration // time between two checks; default 10 s
//	Timeout  time.Duration // time that a check may take; default 5 s
type CanaryCheck = spec.CanaryCheck

// RollFailure says what a roll does when a replacement fails for good.
type RollFailure = spec.RollFailure

const (
	// Pause keeps the processes that have been replaced, and waits for an operator. It is the
	// default.
	Pause RollFailure = spec.Pause

	// Rollback replaces the new processes by processes of the previous configuration.
	Rollback RollFailure = spec.Rollback

	// Continue goes on to replace the other processes. Each failed replacement leaves an old
	// process running, or the group with one process fewer, but never fewer than MinHealthy. If all
	// replacements fail, the roll is rolled back.
	Continue RollFailure = spec.Continue
)

// Retry says whether and when a failed replacement is tried again.
type Retry = spec.Retry

const (
	Manual      Retry = spec.Manual      // the launcher waits until [Manager.Resume] is called; the default
	Immediate   Retry = spec.Immediate   // the launcher tries again at once
	Exponential Retry = spec.Exponential // the launcher tries again after a pause that doubles with each failure
)

// A Hook is a command that is run before a process is asked to stop. {id}, {dir} and {socket} are
// replaced in it as in [GroupConfig].Command. Its environment has [GroupConfig].Env, and
// SWANSONG_PROCESS_ID, SWANSONG_PROCESS_GROUP and SWANSONG_PROCESS_PID.
//
// A hook that fails, or is killed at its timeout, is reported as an event, and the shutdown
// continues. If the process exits meanwhile, the hook is killed, and the remaining hooks are not
// run.
type Hook struct {
	Command []string      `yaml:"command" form:"command,args"`
	Timeout time.Duration `yaml:"timeout"` // limit for the hook to end; default 5 s
}

// A Listen is an address that the launcher listens on for a group. The inherited sockets are
// non-blocking (O_NONBLOCK). All processes share this property and must not change it.
type Listen struct {
	Name    string `yaml:"name"`    // name of the listener in the variable LISTEN_FDNAMES
	Network string `yaml:"network"` // "tcp", "tcp4", "tcp6" or "unix"; default "tcp"
	Address string `yaml:"address"`
}

// A LogConfig says where the standard output and standard error of processes go, line by line: to
// one file for the group, to one file for each process, or, if neither Path nor Dir is set, to
// [Config].Output. A line longer than MaxLine is split.
//
// Dir has the files of the running processes, and of the 32 processes of each group that ended
// last; the files of older ones are removed, also those of earlier launchers. So a group uses at
// most (Desired + MaxSurge + 32) * (MaxFiles + 1) * MaxSize bytes. The files stay when the group or
// the launcher ends. If the group is not started again, or with another Dir, they are never
// removed. A process whose id was used before appends to the old file.
//
// Launchers can share a Dir if no two of their groups have the same name. Otherwise each would
// remove the other's files.
type LogConfig struct {
	Path     string // one file for all processes; if Path or Dir is relative, it begins in the launcher's working directory
	Dir      string `yaml:"dir"`                    // one file for each process, named after its id, with the extension .log
	MaxSize  int64  `yaml:"max_size" form:"bytes"`  // bytes after which a file is rotated; default 10 MiB
	MaxFiles int    `yaml:"max_files" form:"files"` // number of rotated files to keep: Path.1, Path.2 and so on; default 4, negative: none
	MaxLine  int    `yaml:"max_line" form:"bytes"`  // length in bytes at which a line is split; default 64 KiB
	Buffer   int    `yaml:"buffer" form:"bytes"`    // bytes that are buffered for a slow disk, before lines are dropped and counted; default 1 MiB
}

// A SecretConfig says which values the launcher masks: it replaces them by *** in what processes
// print, in events and in the status. It recognizes these by their names:
//
//   - variables, of its own environment and of Env of the groups,
//   - flags and assignments in Command and PreStop, as in --password=value, --password value and
//     PASSWORD=value, and
//   - passwords in URLs, in all of these.
//
// The usual names are known, such as *PASSWORD*, *SECRET*, *TOKEN* and *_KEY. A value is masked
// wherever it occurs, also if it is encoded by base64, by hexadecimal digits or by the escapes of
// URLs, JSON or shells. Nothing else of the output is changed. A value of fewer than 6 bytes is not
// masked, because such values are too common. Of a value with several lines, each line of at least
// 6 bytes is masked.
//
// A value stops being masked when no group and no process has it any more.
type SecretConfig struct {
	// Names are patterns for further variables and flags that are secret, in the syntax of
	// path.Match. Upper and lower case are equal, and so are - and _.
	Names  []string `yaml:"names"`
	Values []string `yaml:"values"` // values to mask in addition to those that are recognized by their names

	// Files are regular files whose content is secret. They are read at the start of each process,
	// and of the launcher; a file has at most 64 KiB.
	Files []string `yaml:"files"`
}

// DefaultGroup returns a group with all defaults, and with NoDefaults, so that a program that sets
// a field to 0 gets 0. Name, Command and MinHealthy have no default.
func DefaultGroup() GroupConfig {
	d := spec.Default()
	return GroupConfig{
		NoDefaults: true,
		Protocol:   d.Protocol, Transport: TransportConfig{Network: d.Transport.Network},
		Desired: 1, MaxSurge: &d.MaxSurge, HealthCheckTimeout: d.HealthCheckTimeout, Limits: d.Limits,
		LivenessInterval: d.LivenessInterval, LivenessTimeout: d.LivenessTimeout, LivenessFailures: d.LivenessFailures,
		Shutdown: ShutdownConfig(d.Shutdown), Restart: RestartConfig(d.Restart), Roll: RollConfig(d.Roll), Log: LogConfig(d.Log),
		OnLauncherDeath: d.OnLauncherDeath,
	}
}

// Int returns a pointer to n, for fields in which nil is the default.
func Int(n int) *int { return &n }

// Bound returns the longest time from the order to stop a process until the process has been
// reaped, or has survived SIGKILL. It includes the time for a [Router]; [Status].Bound includes
// that time only if there is a router.
func (g GroupConfig) Bound() time.Duration { return g.resolve().Bound(true) }
