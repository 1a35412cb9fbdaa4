package launcher

import (
	"context"
	"io"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/swansong-go/swansong/launcher/internal/roll"
)

// A Config says what to launch. It is plain data, but for what a program adds to it: Router and Logger.
type Config struct {
	// Dir is where the sockets of this launcher are: a directory of its own, which it locks. It is made if it is not
	// there, and nobody else may be able to look into it (0700). Its name is short, since those of sockets have to be.
	Dir string

	Groups []GroupConfig

	// TotalDeadline, where it is not 0, bounds the stop of everything, from the moment that the launcher is told to stop. A
	// fifth of it is kept: after four fifths whoever is left gets SIGTERM, after nine tenths SIGKILL.
	TotalDeadline time.Duration

	// TotalDeadlineDerived says that TotalDeadline is no wish, but made from how long the groups may take. Then a reload that
	// makes it shorter takes nothing from the groups that it drops: until they are gone, what they had when they were dropped
	// counts, where that is longer.
	TotalDeadlineDerived bool

	Admin  AdminConfig
	Router Router       // nil: nobody has to be told who takes on work
	Logger *slog.Logger // nil: nothing is logged. A message that its handler panics at is lost, and the first is an [Alarm]
	Output io.Writer    // for what processes print whose group has no [LogConfig] of its own; nil: nowhere. To panic is to fail

	// Redact takes the secrets out of what is shown: messages of events and of processes, what these say
	// that they are busy with, and what they print. nil shows all of it. It may be called concurrently, under locks of the
	// launcher, and must not end its goroutine. For what it panics at, a note is shown and not the text; the first time is an
	// [Alarm].
	Redact func(string) string

	// Reread reads the configuration anew when an operator orders a reload, and says in lines for people how it differs from
	// the one that holds, whose Source it gets; see [GroupSource]. nil: a reload cannot be ordered. With an error, the lines are
	// for looking at.
	// A panic in it reaches the caller of [Manager.Reread]; where an operator has ordered it, the order fails, and it is an
	// [Alarm], too.
	Reread func(ctx context.Context, source any) (next Config, changes []string, err error)
	Source any // whatever Reread wants to find again

	// File is what Reread has read, for who orders that and may think of another one; empty: no file.
	File string

	// Locate says of an error by which a reload to this configuration is refused where in its file the fault is, as
	// config.Source.Locate does; what it returns has to match what it was given. nil: errors stay as they are.
	Locate func(error) error

	// Helper is put before the command of a process that inherits listeners, as in {"/proc/self/exe", "exec", "--"}. It
	// has to set LISTEN_PID to its own process id, and to become the command: [Exec] does. Without it the variable is left
	// out, which package client understands, and sd_listen_fds(3) does not.
	Helper []string

	// Guardian is a command that calls [Guard], as in {"/proc/self/exe", "guard"}: a process that outlives a launcher that
	// dies, and sees to what becomes of its processes then; see [LauncherDeath]. Without it, it is the next launcher with this
	// directory that does.
	Guardian []string
}

// A GroupSource is a [Config].Source that knows of groups. What holds for a group need not be what was loaded last: a roll to
// that may have gone back, or be paused. So Reread gets the Source that was loaded last, with each group as the Source has it
// whose configuration the group has. One that a program has rolled ([Manager.Roll]) keeps the Source that it had.
type GroupSource interface {
	// WithGroup returns the Source with a group as another Source has it, but for what it depends on, which no roll changes. A
	// group that it does not know is left out.
	WithGroup(name string, of any) (source any)
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
	ResetAfter time.Duration // a process that was ready for so long, and not before the last failure, ends the row; default 10 s
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
	Continue RollFailure = "continue" // with the others: each failure leaves one that was there, or one fewer; never under MinHealthy; where all fail, Rollback
)

// Retry is whether and when a replacement that has failed is tried again.
type Retry string

const (
	Manual      Retry = "manual"      // by [Manager.Resume]; the default
	Immediate   Retry = "immediate"   // at once
	Exponential Retry = "exponential" // after a pause, which doubles
)

// A Hook is a command to run for a process, with {id}, {dir} and {socket} in it as in that of the process. It has SWANSONG_PROCESS_ID, SWANSONG_PROCESS_GROUP and SWANSONG_PROCESS_PID in
// its environment. One that fails, or is killed at its time-out, is an event, and stops nothing. It is killed, too, when the process
// has ended, and those after it are left out.
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
//
// In Dir are the files of those that run, and of the 32 that ended last of each group; what older ones have printed is removed,
// whichever launcher they had. So it holds no more than (Desired + MaxSurge + 32) * (MaxFiles + 1) * MaxSize of a group. What is
// there when the group, or the launcher, ends is left; of a group that is not started again, or with another Dir, nobody removes it.
// Processes of the same name may add to it. Launchers can share a Dir where no two of their groups have the same name: each would take
// the other's files for such as are left.
type LogConfig struct {
	Path     string // the file of all; as Dir, from where the launcher runs, unless absolute: kept by one that ran elsewhere, the group is rolled
	Dir      string // the directory of a file for each, by the name of the process with ".log"
	MaxSize  int64  // bytes before a new file is begun; default 10 MiB
	MaxFiles int    // files kept beside it, as Path.1, Path.2 and so on; default 4, negative: none
	MaxLine  int    // bytes; default 64 KiB
	Buffer   int    // bytes held for a slow disk, before lines are dropped and counted; default 1 MiB
}

// Int returns a pointer to n, for the fields where nil is the default.
func Int(n int) *int { return &n }

// withDefaults returns the configuration with nothing left open. What means the same is the same then: what is empty is nil, also for
// the digest in a state file.
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
	g.Env, g.DependsOn = copied(g.Env), copied(g.DependsOn)
	g.PreStop, g.Listen = copied(g.PreStop), copied(g.Listen)
	for i := range g.PreStop {
		or(&g.PreStop[i].Timeout, 5*time.Second)
	}
	for i := range g.Listen {
		if g.Listen[i].Network == "" {
			g.Listen[i].Network = "tcp"
		}
	}
	for _, path := range []*string{&g.Log.Path, &g.Log.Dir} {
		if abs, err := filepath.Abs(*path); *path != "" && err == nil { // also for a launcher that comes later, and runs elsewhere
			*path = abs
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

// copied returns a copy, nil of what is empty: slices.Clone would leave that empty.
func copied[E any](all []E) []E { return append([]E(nil), all...) }

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
