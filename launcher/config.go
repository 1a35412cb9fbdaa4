package launcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/swansong-go/swansong/launcher/internal/peer"
	"github.com/swansong-go/swansong/launcher/internal/roll"
)

// A Config says what to launch. It is plain data, but for what a program adds to it: Router and Logger.
type Config struct {
	// Dir is where the sockets and the lock of this launcher are: a directory of its own, which is made if it is not
	// there, and which nobody else may be able to look into (0700). Its name is short, since those of sockets have to be.
	Dir string

	Groups []GroupConfig

	// TotalDeadline, where it is not 0, bounds the stop of everything, from the moment that the launcher is told to stop. A
	// fifth of it is kept: after four fifths whoever is left gets SIGTERM, after nine tenths SIGKILL.
	TotalDeadline time.Duration

	Admin  AdminConfig
	Router Router       // nil: nobody has to be told who takes on work
	Logger *slog.Logger // nil: nothing is logged. A message that its handler panics at is lost, and the first is an [Alarm]
	Output io.Writer    // for what processes print whose group has no [LogConfig] of its own; nil: nowhere. To panic is to fail

	// Redact takes the secrets out of what is shown: messages of events and of processes, and what processes print. nil
	// shows all of it. It may be called concurrently, under locks of the launcher, and must not end its goroutine. For what
	// it panics at, a note is shown and not the text; the first time is an [Alarm].
	Redact func(string) string

	// Reread reads the configuration anew when an operator orders a reload, and says in lines for people how it differs from
	// the one that holds, whose Source it gets. nil: a reload cannot be ordered. With an error, the lines are for looking at.
	// A panic in it reaches the caller of [Manager.Reread]; where an operator has ordered it, the order fails, and it is an
	// [Alarm], too.
	Reread func(ctx context.Context, source any) (next Config, changes []string, err error)
	Source any // whatever Reread wants to find again

	// Helper is put before the command of a process that inherits listeners, as in {"/proc/self/exe", "exec", "--"}. It
	// has to set LISTEN_PID to its own process id, and to become the command: [Exec] does. Without it the variable is left
	// out, which package client understands, and sd_listen_fds(3) does not.
	Helper []string

	// Guardian is a command that calls [Guard], as in {"/proc/self/exe", "guard"}: a process that outlives a launcher that
	// dies, and sees to what becomes of its processes then; see [LauncherDeath]. Without it, it is the next launcher with this
	// directory that does.
	Guardian []string
}

// A GroupConfig says what a group of like processes is. Where zero is no sensible value, it means the default.
type GroupConfig struct {
	Name string

	// Command is the program and its arguments; no shell is between. In it, and in the values of Env, {id} is the name of
	// the process, {dir} the launcher's directory and {socket} a path in it that the process can listen on.
	Command []string
	WorkDir string   // empty: that of the launcher
	Env     []string // NAME=value, beside those of the launcher

	Protocol  Protocol
	Transport TransportConfig

	Desired    int
	MinHealthy *int // how many have to be ready while they are replaced; nil: Desired where MaxSurge is above 0, else one less
	MaxSurge   *int // how many there may be above Desired, with those that are shutting down; nil: 1

	HealthCheckTimeout time.Duration // for a process to become ready; default 30 s
	MinReady           time.Duration // for a process to be ready before it is counted on; default 0
	LivenessInterval   time.Duration // between checks of one that is ready; default 2 s, negative: there are none
	LivenessTimeout    time.Duration // for the answer to one; default 1 s, and no longer than the interval
	LivenessFailures   int           // in a row, for it to be replaced; default 3

	Shutdown ShutdownConfig
	Restart  RestartConfig
	Roll     RollConfig

	PreStop         []Hook        // run one after the other, before a process is asked to stop
	OnLauncherDeath LauncherDeath // what becomes of the processes of a launcher that is killed; default Kill

	DependsOn []string // groups that have to be healthy before this one is started, and outlive it
	Listen    []Listen // listeners that every process of the group inherits
	Log       LogConfig
}

// Protocol is how a process is spoken with.
type Protocol string

const (
	GRPC    Protocol = "grpc"    // the lifecycle protocol; the default
	Signals Protocol = "signals" // none: ready when it runs, stopped by signals
)

// A ShutdownConfig bounds a shutdown. The longest that one can take, from the moment that the process is asked, is
// Max + SIGTERMTimeout + two seconds for the kernel; [GroupConfig.Bound] adds what comes before.
type ShutdownConfig struct {
	Grace          time.Duration // without a request for more time, this is all there is; default 3 s
	Max            time.Duration // with any number of them, this is; default 10 s
	GraceAdvisory  bool          // a process that is still draining after Grace has until Max, without asking
	Poll           time.Duration // between calls, each of which has to be answered within it; default 500 ms
	SIGTERMTimeout time.Duration // from SIGTERM to SIGKILL; default 2 s

	// TotalDeadline, where it is not 0, bounds all of it, from the moment that the process leaves routing. A fifth of it is
	// kept for the escalation.
	TotalDeadline time.Duration

	DeregisterDelay time.Duration // between leaving routing and being asked, for routers that learn late; default 0
	StopSignals     []string      // for those that do not take part, one after the other; default SIGTERM
	SuccessCodes    []int         // exit codes of a clean end; default 0
}

// RestartPolicy says which processes that end by themselves are replaced.
type RestartPolicy string

const (
	OnFailure RestartPolicy = "on-failure" // those that fail; the default
	Always    RestartPolicy = "always"     // all of them
	Never     RestartPolicy = "never"      // none
)

// A RestartConfig bounds what processes that fail cost.
type RestartConfig struct {
	Policy     RestartPolicy
	MinBackoff time.Duration // before the first restart; it doubles with each failure in a row; default 1 s
	MaxBackoff time.Duration // default 1 min
	ResetAfter time.Duration // a process that was ready for so long ends the row; default 10 s
	CrashLimit int           // after so many failures in a row the group is given up until it is restarted; default 10, negative: never
}

// A RollConfig says which replacements go first, and what to do when one does not become ready.
type RollConfig struct {
	Canary     int           // how many go first, and are waited for; 0, or not less than Desired: none
	CanaryWait time.Duration // how long these have to stay available, before the others follow; default 1 min

	// ProgressDeadline is how long nothing may get better, back-off and the wait for canaries apart, before that counts as
	// a failure. Default 10 min, negative: for ever.
	ProgressDeadline time.Duration

	OnFailure  RollFailure
	Retry      Retry
	Retries    int           // with Retry, how many failures in a row are tried again, before OnFailure; default 3
	MinBackoff time.Duration // with Exponential, before the first; it doubles with each failure in a row; default 1 s
	MaxBackoff time.Duration // default 1 min
}

// RollFailure is what becomes of a roll that has failed.
type RollFailure string

const (
	Pause    RollFailure = "pause"    // what is replaced stays, the rest is left alone until there is an order; the default
	Rollback RollFailure = "rollback" // what is replaced is replaced by what was there before
	Continue RollFailure = "continue" // with the others: each failure leaves one that was there, or one fewer; never under MinHealthy
)

// Retry is whether and when a replacement that has failed is tried again.
type Retry string

const (
	Manual      Retry = "manual"      // by [Manager.Resume]; the default
	Immediate   Retry = "immediate"   // at once
	Exponential Retry = "exponential" // after a pause, which doubles
)

// A Hook is a command to run for a process. It has SWANSONG_PROCESS_ID, SWANSONG_PROCESS_GROUP and SWANSONG_PROCESS_PID in
// its environment. One that fails, or is killed at its time-out, is an event, and stops nothing.
type Hook struct {
	Command []string
	Timeout time.Duration // default 5 s
}

// A Listen is an address that the launcher listens on for a group. What the processes inherit is non-blocking (O_NONBLOCK),
// which is a property of the socket that all who hold it share, and must be left as it is.
type Listen struct {
	Name    string // for LISTEN_FDNAMES
	Network string // "tcp", "tcp4", "tcp6" or "unix"; default "tcp"
	Address string
}

// A LogConfig says where stdout and stderr of the processes of a group go, line by line: to one file, to a file for each of
// them, or, with neither named, to [Config].Output. What is longer than MaxLine becomes several lines.
type LogConfig struct {
	Path     string // the file of all
	Dir      string // the directory of a file for each, by the name of the process with ".log"
	MaxSize  int64  // bytes before a new file is begun; default 10 MiB
	MaxFiles int    // files kept beside it, as Path.1, Path.2 and so on; default 4, negative: none
	MaxLine  int    // bytes; default 64 KiB
	Buffer   int    // bytes held for a slow disk, before lines are dropped and counted; default 1 MiB
}

// Int returns a pointer to n, for the fields where nil is the default.
func Int(n int) *int { return &n }

// withDefaults returns the configuration with nothing left open.
func (g GroupConfig) withDefaults() GroupConfig {
	or := func(d *time.Duration, def time.Duration) {
		if *d == 0 {
			*d = def
		}
	}
	if g.Protocol == "" {
		g.Protocol = GRPC
	}
	if g.Transport.Network == "" {
		g.Transport.Network = "unix"
	}
	if g.OnLauncherDeath == "" {
		g.OnLauncherDeath = Kill
	}
	if g.MaxSurge == nil {
		g.MaxSurge = Int(1)
	}
	if g.MinHealthy == nil {
		g.MinHealthy = Int(g.Desired)
		if *g.MaxSurge == 0 {
			g.MinHealthy = Int(max(0, g.Desired-1))
		}
	}
	or(&g.HealthCheckTimeout, 30*time.Second)
	or(&g.LivenessInterval, 2*time.Second)
	or(&g.LivenessTimeout, time.Second)
	if g.LivenessInterval > 0 {
		g.LivenessTimeout = min(g.LivenessTimeout, g.LivenessInterval)
	}
	if g.LivenessFailures == 0 {
		g.LivenessFailures = 3
	}
	s := &g.Shutdown
	or(&s.Grace, 3*time.Second)
	or(&s.Max, max(10*time.Second, s.Grace))
	or(&s.Poll, 500*time.Millisecond)
	or(&s.SIGTERMTimeout, 2*time.Second)
	if len(s.StopSignals) == 0 {
		s.StopSignals = []string{"SIGTERM"}
	}
	if len(s.SuccessCodes) == 0 {
		s.SuccessCodes = []int{0}
	}
	r := &g.Restart
	if r.Policy == "" {
		r.Policy = OnFailure
	}
	or(&r.MinBackoff, time.Second)
	or(&r.MaxBackoff, max(time.Minute, r.MinBackoff))
	or(&r.ResetAfter, 10*time.Second)
	if r.CrashLimit == 0 {
		r.CrashLimit = 10
	}
	rolls := &g.Roll
	or(&rolls.CanaryWait, time.Minute)
	or(&rolls.ProgressDeadline, 10*time.Minute)
	if rolls.OnFailure == "" {
		rolls.OnFailure = Pause
	}
	if rolls.Retry == "" {
		rolls.Retry = Manual
	}
	if rolls.Retries == 0 {
		rolls.Retries = 3
	}
	or(&rolls.MinBackoff, time.Second)
	or(&rolls.MaxBackoff, max(time.Minute, rolls.MinBackoff))
	g.PreStop = slices.Clone(g.PreStop)
	for i := range g.PreStop {
		or(&g.PreStop[i].Timeout, 5*time.Second)
	}
	g.Listen = slices.Clone(g.Listen)
	for i := range g.Listen {
		if g.Listen[i].Network == "" {
			g.Listen[i].Network = "tcp"
		}
	}
	if g.Log.MaxSize == 0 {
		g.Log.MaxSize = 10 << 20
	}
	if g.Log.MaxFiles == 0 {
		g.Log.MaxFiles = 4
	}
	if g.Log.MaxLine == 0 {
		g.Log.MaxLine = 64 << 10
	}
	if g.Log.Buffer == 0 {
		g.Log.Buffer = 1 << 20
	}
	return g
}

// arithmetic returns the rules that package roll decides by. g is complete.
func (g GroupConfig) arithmetic(desired int) roll.Config {
	c := roll.Config{
		Desired: desired, MinHealthy: min(*g.MinHealthy, desired), MaxSurge: *g.MaxSurge,
		MinReady: g.MinReady, ProgressDeadline: max(0, g.Roll.ProgressDeadline),
		Canary: min(g.Roll.Canary, desired), CanaryWait: g.Roll.CanaryWait,
		OnFailure: map[RollFailure]roll.OnFailure{Pause: roll.Pause, Rollback: roll.Rollback, Continue: roll.Continue}[g.Roll.OnFailure],
	}
	if c.MaxSurge == 0 {
		c.MinHealthy = max(0, min(c.MinHealthy, desired-1)) // of those that are left when some were not to be replaced
	}
	if g.Roll.Retry != Manual {
		c.Retries = max(0, g.Roll.Retries)
	}
	if g.Roll.Retry == Exponential {
		c.Backoff, c.MaxBackoff = g.Roll.MinBackoff, g.Roll.MaxBackoff
	}
	return c
}

// leaveBound is the longest that leaving routing and the hooks can take. The router may be about to be told the contrary.
func (g GroupConfig) leaveBound() time.Duration { return 2*routerPatience + g.delays() }

// delays is leaveBound where there is no router.
func (g GroupConfig) delays() time.Duration {
	d := g.Shutdown.DeregisterDelay
	for _, h := range g.PreStop {
		d += h.Timeout
	}
	return d
}

// Bound returns the longest that a shutdown of one process can take, from the moment that it is ordered until the process
// has been reaped, or is known not to die. It has room for a [Router]; [Status] has the bound where there is none.
func (g GroupConfig) Bound() time.Duration {
	g = g.withDefaults()
	return g.boundAfter(g.leaveBound())
}

func (g GroupConfig) boundAfter(leaving time.Duration) time.Duration {
	bound := leaving + g.Shutdown.Max + g.Shutdown.SIGTERMTimeout
	if total := g.Shutdown.TotalDeadline; total > 0 {
		bound = min(bound, total/10*9)
	}
	return bound + reapPatience
}

// bound is Bound, without what nobody can take.
func (m *Manager) bound(g GroupConfig) time.Duration {
	if m.cfg.Router == nil {
		g = g.withDefaults()
		return g.boundAfter(g.delays())
	}
	return g.Bound()
}

var goodName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// A ConfigError says what is wrong with a configuration.
type ConfigError struct {
	Group string // empty: no group in particular
	Field string // as in this package
	Rule  string // what is wrong with it, and what to do instead
}

func (e *ConfigError) Error() string {
	if e.Group == "" {
		return fmt.Sprintf("launcher: %s: %s", e.Field, e.Rule)
	}
	return fmt.Sprintf("launcher: group %q: %s: %s", e.Group, e.Field, e.Rule)
}

// Validate checks what can be checked without starting anything, and returns all that is wrong, joined.
func (c Config) Validate() error {
	var all []error
	if c.Dir == "" {
		all = append(all, &ConfigError{Field: "Dir", Rule: "is empty; name a directory for the sockets"})
	}
	if len(c.Groups) == 0 {
		all = append(all, &ConfigError{Field: "Groups", Rule: "there is none, so there is nothing to launch"})
	}
	all = append(all, c.Admin.validate()...)
	if d := c.TotalDeadline; d < 0 || d > 0 && d < 10*time.Millisecond {
		all = append(all, &ConfigError{Field: "TotalDeadline", Rule: fmt.Sprintf("%v is less than ten milliseconds; is the unit missing?", d)})
	}
	byName := map[string]GroupConfig{}
	for _, g := range c.Groups {
		if _, ok := byName[g.Name]; ok {
			all = append(all, &ConfigError{g.Name, "Name", "another group has this name"})
		}
		byName[g.Name] = g
	}
	for _, g := range c.Groups {
		all = append(all, g.validate(c.Dir)...)
		all = append(all, c.checkDeath(g)...)
		for _, name := range g.DependsOn {
			if _, ok := byName[name]; !ok {
				all = append(all, &ConfigError{g.Name, "DependsOn", fmt.Sprintf("there is no group %q", name)})
			}
		}
	}
	if cycle := findCycle(c.Groups); cycle != nil {
		all = append(all, &ConfigError{cycle[0], "DependsOn", "goes in a circle: " + strings.Join(cycle, " → ")})
	}
	return errors.Join(all...)
}

func (g GroupConfig) validate(dir string) (all []error) {
	bad := func(field, rule string, args ...any) {
		all = append(all, &ConfigError{g.Name, field, fmt.Sprintf(rule, args...)})
	}
	if !goodName.MatchString(g.Name) {
		bad("Name", "%q is no name: it is part of file names, so up to 63 letters, digits, dots, dashes and underscores, the first a letter or digit", g.Name)
	}
	if len(g.Command) == 0 || g.Command[0] == "" {
		bad("Command", "is empty; name a program")
	}
	for i, v := range g.Env {
		if name, _, ok := strings.Cut(v, "="); !ok || name == "" {
			bad("Env", "entry %d is not NAME=value", i+1) // and not what it is: that may be a secret
		}
	}
	g = g.withDefaults()
	oneOf(bad, "Protocol", g.Protocol, GRPC, Signals)
	g.validateTransport(bad)
	oneOf(bad, "OnLauncherDeath", g.OnLauncherDeath, Kill, Keep)
	oneOf(bad, "Restart.Policy", g.Restart.Policy, OnFailure, Always, Never)
	oneOf(bad, "Roll.OnFailure", g.Roll.OnFailure, Pause, Rollback, Continue)
	oneOf(bad, "Roll.Retry", g.Roll.Retry, Manual, Immediate, Exponential)

	const most = 10_000
	surge, healthy := *g.MaxSurge, *g.MinHealthy
	switch {
	case g.Desired < 0 || g.Desired > most:
		bad("Desired", "%d is not between 0 and %d", g.Desired, most)
	case surge < 0 || surge > most:
		bad("MaxSurge", "%d is not between 0 and %d", surge, most)
	case healthy < 0:
		bad("MinHealthy", "%d is negative", healthy)
	case healthy > g.Desired:
		bad("MinHealthy", "%d is more than the %d desired", healthy, g.Desired)
	case surge == 0 && healthy == g.Desired && g.Desired > 0:
		bad("MinHealthy", "%d with MaxSurge 0 lets nothing be replaced: one more may not be started, one less may not be ready; lower it, or raise MaxSurge", healthy)
	}
	for _, d := range []struct {
		field string
		value time.Duration
		least time.Duration
	}{
		{"HealthCheckTimeout", g.HealthCheckTimeout, time.Millisecond},
		{"MinReady", g.MinReady, 0},
		{"LivenessInterval", max(g.LivenessInterval, 0), 0},
		{"LivenessTimeout", g.LivenessTimeout, time.Millisecond},
		{"Shutdown.Grace", g.Shutdown.Grace, time.Millisecond},
		{"Shutdown.Max", g.Shutdown.Max, time.Millisecond},
		{"Shutdown.Poll", g.Shutdown.Poll, time.Millisecond},
		{"Shutdown.SIGTERMTimeout", g.Shutdown.SIGTERMTimeout, time.Millisecond},
		{"Shutdown.TotalDeadline", g.Shutdown.TotalDeadline, 0},
		{"Shutdown.DeregisterDelay", g.Shutdown.DeregisterDelay, 0},
		{"Restart.MinBackoff", g.Restart.MinBackoff, time.Millisecond},
		{"Restart.MaxBackoff", g.Restart.MaxBackoff, time.Millisecond},
		{"Restart.ResetAfter", g.Restart.ResetAfter, time.Millisecond},
		{"Roll.CanaryWait", g.Roll.CanaryWait, 0},
		{"Roll.ProgressDeadline", max(g.Roll.ProgressDeadline, 0), 0},
		{"Roll.MinBackoff", g.Roll.MinBackoff, time.Millisecond},
		{"Roll.MaxBackoff", g.Roll.MaxBackoff, time.Millisecond},
	} {
		switch {
		case d.value < 0:
			bad(d.field, "%v is negative", d.value)
		case d.value != 0 && d.value < time.Millisecond, d.value < d.least:
			bad(d.field, "%v is less than a millisecond; is the unit missing?", d.value)
		case d.value > 24*time.Hour:
			bad(d.field, "%v is more than a day", d.value)
		}
	}
	if g.Shutdown.Grace > g.Shutdown.Max {
		bad("Shutdown.Grace", "%v is longer than Shutdown.Max, which is %v", g.Shutdown.Grace, g.Shutdown.Max)
	}
	if g.Restart.MinBackoff > g.Restart.MaxBackoff {
		bad("Restart.MinBackoff", "%v is longer than Restart.MaxBackoff, which is %v", g.Restart.MinBackoff, g.Restart.MaxBackoff)
	}
	if g.Roll.MinBackoff > g.Roll.MaxBackoff {
		bad("Roll.MinBackoff", "%v is longer than Roll.MaxBackoff, which is %v", g.Roll.MinBackoff, g.Roll.MaxBackoff)
	}
	if d := g.Roll.ProgressDeadline; d > 0 && d <= g.MinReady {
		bad("Roll.ProgressDeadline", "%v is not longer than MinReady, which is %v: no process could be in time", d, g.MinReady)
	}
	if g.Roll.Canary < 0 || g.Roll.Retries < 0 {
		bad("Roll", "there is a negative number in it")
	}
	if g.LivenessFailures < 0 {
		bad("LivenessFailures", "%d is negative", g.LivenessFailures)
	}
	for _, s := range g.Shutdown.StopSignals {
		if signalNumber(s) == 0 {
			bad("Shutdown.StopSignals", "%q is none of %s", s, strings.Join(slices.Sorted(maps.Keys(stopSignals)), ", "))
		}
	}
	for _, h := range g.PreStop {
		if len(h.Command) == 0 || h.Command[0] == "" || h.Timeout < 0 {
			bad("PreStop", "a hook has no command, or a negative time-out")
		}
	}
	for _, l := range g.Listen {
		oneOf(bad, "Listen.Network", l.Network, "tcp", "tcp4", "tcp6", "unix")
		if l.Address == "" || strings.Contains(l.Name, ":") {
			bad("Listen", "%q: an address is needed, and a name without colons", l.Name)
		}
	}
	if g.Log.MaxSize < 0 || g.Log.MaxLine < 0 || g.Log.Buffer < 0 {
		bad("Log", "there is a negative number in it")
	}
	if g.Log.Path != "" && g.Log.Dir != "" {
		bad("Log", "it has Path and Dir; name a file for all processes, or a directory for a file of each")
	}
	if path := filepath.Join(dir, g.Name+"-1234567.sock"); len(path) > peer.MaxPath {
		bad("Name", "with Dir %q it makes sockets of %d bytes, and %d is the limit; shorten one of them", dir, len(path), peer.MaxPath)
	}
	return all
}

func oneOf[T ~string](bad func(field, rule string, args ...any), field string, got T, want ...T) {
	if !slices.Contains(want, got) {
		bad(field, "%q is none of %v", got, want)
	}
}

// findCycle returns groups that depend on each other in a circle, nil if none do.
func findCycle(groups []GroupConfig) []string {
	deps := map[string][]string{}
	for _, g := range groups {
		deps[g.Name] = g.DependsOn
	}
	done := map[string]bool{}
	var visit func(name string, path []string) []string
	visit = func(name string, path []string) []string {
		if i := slices.Index(path, name); i >= 0 {
			return append(slices.Clone(path[i:]), name)
		}
		if done[name] {
			return nil
		}
		done[name] = true
		for _, d := range deps[name] {
			if c := visit(d, append(path, name)); c != nil {
				return c
			}
		}
		return nil
	}
	for _, g := range groups {
		if c := visit(g.Name, nil); c != nil {
			return c
		}
	}
	return nil
}
