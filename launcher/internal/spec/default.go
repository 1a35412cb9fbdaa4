package spec

import (
	"cmp"
	"slices"
	"time"
)

// Default returns a group in which every field that has a default is set to it. Name, Command,
// Desired and MinHealthy have no default. Each call returns slices of its own, so the caller may
// change them.
func Default() Group {
	return Group{
		Protocol:           Auto,
		Transport:          Transport{Network: "unix"},
		MaxSurge:           1,
		HealthCheckTimeout: 30 * time.Second,
		LivenessInterval:   2 * time.Second,
		LivenessTimeout:    time.Second,
		LivenessFailures:   3,
		Shutdown: Shutdown{
			Grace:          3 * time.Second,
			Max:            10 * time.Second,
			Poll:           500 * time.Millisecond,
			SIGTERMTimeout: 2 * time.Second,
			StopSignals:    []string{"SIGTERM"},
			SuccessCodes:   []int{0},
		},
		Restart: Restart{
			Policy:     OnFailure,
			MinBackoff: time.Second,
			MaxBackoff: time.Minute,
			ResetAfter: 10 * time.Second,
			CrashLimit: 10,
		},
		Roll: Roll{
			CanaryWait:       time.Minute,
			Check:            CanaryCheck{Interval: 10 * time.Second, Timeout: 5 * time.Second},
			ProgressDeadline: 10 * time.Minute,
			OnFailure:        Pause,
			Retry:            Manual,
			Retries:          3,
			MinBackoff:       time.Second,
			MaxBackoff:       time.Minute,
		},
		OnLauncherDeath: Kill,
		Limits:          Limits{IfUnavailable: Refuse},
		Log:             Log{MaxSize: 10 << 20, MaxFiles: 4, MaxLine: 64 << 10, Buffer: 1 << 20},
	}
}

// Defaults of hooks and listeners.
const (
	DefaultHookTimeout   = 5 * time.Second
	DefaultListenNetwork = "tcp"
)

// DefaultProtocol returns the default of the protocol of a group with this Transport.Network.
func DefaultProtocol(network string) Protocol {
	if network == "tcp" { // only the lifecycle protocol uses TCP
		return GRPC
	}
	return Default().Protocol
}

// DefaultMinHealthy returns how many of the desired processes have to stay ready by default: all of
// them, or one fewer where a process can only be replaced after it has been stopped.
func DefaultMinHealthy(desired, maxSurge int) int {
	if maxSurge == 0 {
		desired--
	}
	return max(0, desired)
}

// FillIn replaces zero values by their defaults. A negative value becomes 0 in fields where 0 means
// none, such as Restart.CrashLimit. MaxSurge and MinHealthy are left as they are.
//
// A default gives way to a value that was set: with a Grace of a minute, Max is at least a minute,
// and with a MinBackoff of an hour, MaxBackoff is at least an hour.
func (g *Group) FillIn() {
	def := Default()
	g.Transport.Network = cmp.Or(g.Transport.Network, def.Transport.Network)
	g.Protocol = cmp.Or(g.Protocol, DefaultProtocol(g.Transport.Network))
	g.Limits.IfUnavailable = cmp.Or(g.Limits.IfUnavailable, def.Limits.IfUnavailable)
	g.OnLauncherDeath = cmp.Or(g.OnLauncherDeath, def.OnLauncherDeath)
	g.HealthCheckTimeout = cmp.Or(g.HealthCheckTimeout, def.HealthCheckTimeout)
	g.LivenessInterval = orNone(g.LivenessInterval, def.LivenessInterval)
	g.LivenessTimeout = cmp.Or(g.LivenessTimeout, def.LivenessTimeout)
	g.LivenessFailures = cmp.Or(g.LivenessFailures, def.LivenessFailures)

	s := &g.Shutdown
	s.Grace = cmp.Or(s.Grace, def.Shutdown.Grace)
	s.Max = cmp.Or(s.Max, max(def.Shutdown.Max, s.Grace))
	s.Poll = cmp.Or(s.Poll, def.Shutdown.Poll)
	s.SIGTERMTimeout = cmp.Or(s.SIGTERMTimeout, def.Shutdown.SIGTERMTimeout)
	s.StopSignals = orDefault(s.StopSignals, def.Shutdown.StopSignals)
	s.SuccessCodes = orDefault(s.SuccessCodes, def.Shutdown.SuccessCodes)

	r := &g.Restart
	r.Policy = cmp.Or(r.Policy, def.Restart.Policy)
	r.MinBackoff = cmp.Or(r.MinBackoff, def.Restart.MinBackoff)
	r.MaxBackoff = cmp.Or(r.MaxBackoff, max(def.Restart.MaxBackoff, r.MinBackoff))
	r.ResetAfter = cmp.Or(r.ResetAfter, def.Restart.ResetAfter)
	r.CrashLimit = orNone(r.CrashLimit, def.Restart.CrashLimit)

	roll := &g.Roll
	roll.CanaryWait = cmp.Or(roll.CanaryWait, def.Roll.CanaryWait)
	roll.Check.Interval = cmp.Or(roll.Check.Interval, def.Roll.Check.Interval)
	roll.Check.Timeout = cmp.Or(roll.Check.Timeout, def.Roll.Check.Timeout)
	roll.ProgressDeadline = orNone(roll.ProgressDeadline, def.Roll.ProgressDeadline)
	roll.OnFailure = cmp.Or(roll.OnFailure, def.Roll.OnFailure)
	roll.Retry = cmp.Or(roll.Retry, def.Roll.Retry)
	roll.Retries = cmp.Or(roll.Retries, def.Roll.Retries)
	roll.MinBackoff = cmp.Or(roll.MinBackoff, def.Roll.MinBackoff)
	roll.MaxBackoff = cmp.Or(roll.MaxBackoff, max(def.Roll.MaxBackoff, roll.MinBackoff))

	for i := range g.PreStop {
		g.PreStop[i].Timeout = cmp.Or(g.PreStop[i].Timeout, DefaultHookTimeout)
	}
	for i := range g.Listen {
		g.Listen[i].Network = cmp.Or(g.Listen[i].Network, DefaultListenNetwork)
	}
	g.Log.MaxSize = cmp.Or(g.Log.MaxSize, def.Log.MaxSize)
	g.Log.MaxFiles = orNone(g.Log.MaxFiles, def.Log.MaxFiles)
	g.Log.MaxLine = cmp.Or(g.Log.MaxLine, def.Log.MaxLine)
	g.Log.Buffer = cmp.Or(g.Log.Buffer, def.Log.Buffer)
}

// orNone returns def if the value is 0, 0 if it is negative, and otherwise the value.
func orNone[T int | time.Duration](value, def T) T { return max(0, cmp.Or(value, def)) }

// orDefault returns a copy of the list, or the default if it is empty. The copy is for a caller
// that changes its list later.
func orDefault[E any](list, def []E) []E {
	if len(list) == 0 {
		return def
	}
	return slices.Clone(list)
}
