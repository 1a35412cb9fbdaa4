package config

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/swansong-go/swansong/launcher"
)

// Dir returns the launcher's directory: StateDir, or where the file names none, the one that belongs to the user, which is
// $RUNTIME_DIRECTORY under systemd, else swansong in $XDG_RUNTIME_DIR, else swansong-<uid> in the directory for temporary
// files.
func (c *Config) Dir() string { return cmp.Or(c.StateDir, DefaultDir()) }

// DefaultDir is Dir without a StateDir.
func DefaultDir() string {
	if d := os.Getenv("RUNTIME_DIRECTORY"); d != "" {
		return filepath.SplitList(d)[0]
	}
	if d := os.Getenv("XDG_RUNTIME_DIR"); d != "" {
		return filepath.Join(d, "swansong")
	}
	return filepath.Join(os.TempDir(), fmt.Sprintf("swansong-%d", os.Getuid()))
}

// Launcher returns the configuration for package launcher, complete but for what a program adds: Logger, Output, Router,
// Helper, Reread, and a server of package metrics.
func (c *Config) Launcher() launcher.Config {
	out := launcher.Config{Dir: c.Dir(), TotalDeadline: c.TotalDeadline, TotalDeadlineDerived: c.TotalDeadline == c.derivedTotal(), Redact: c.Redactor().Text,
		Admin: launcher.AdminConfig{Address: c.Admin.Address, TLS: launcher.TLS(c.Admin.TLS)}}
	for k := range c.Groups {
		out.Groups = append(out.Groups, c.Groups[k].launcher())
	}
	return out
}

func (g *Group) launcher() launcher.GroupConfig {
	out := launcher.GroupConfig{
		Name:     g.Name,
		Command:  append([]string{g.Command}, g.Args...),
		WorkDir:  g.WorkingDir,
		Protocol: launcher.Protocol(g.Protocol),

		OnLauncherDeath: launcher.LauncherDeath(g.OnLauncherDeath),
		Transport: launcher.TransportConfig{Network: string(g.Lifecycle.Transport), Address: g.Lifecycle.Address,
			TLS: launcher.TLS(g.Lifecycle.TLS)},

		Desired:    g.Desired,
		MinHealthy: launcher.Int(g.MinHealthy),
		MaxSurge:   launcher.Int(g.MaxSurge),

		HealthCheckTimeout: g.HealthCheckTimeout,
		MinReady:           g.MinReady,
		LivenessInterval:   orNone(g.Liveness.Interval),
		LivenessTimeout:    g.Liveness.Timeout,
		LivenessFailures:   g.Liveness.Failures,

		Shutdown: launcher.ShutdownConfig{
			Grace:           shortest(g.Shutdown.GracePeriod),
			Max:             g.Shutdown.MaxDuration,
			GraceAdvisory:   g.Shutdown.Grace == Advisory,
			Poll:            g.Shutdown.PollInterval,
			SIGTERMTimeout:  shortest(g.Shutdown.SIGTERMTimeout),
			DeregisterDelay: g.Shutdown.DeregisterDelay,
			SuccessCodes:    g.SuccessExitCodes,
		},
		Restart: launcher.RestartConfig{
			Policy:     launcher.RestartPolicy(g.Restart.Policy),
			MinBackoff: shortest(g.Restart.Initial),
			MaxBackoff: shortest(g.Restart.Max),
			ResetAfter: shortest(g.Restart.Reset),
			CrashLimit: orNone(g.Restart.Limit),
		},
		Roll: launcher.RollConfig{
			Canary:           g.Canary.Instances,
			CanaryWait:       shortest(g.Canary.Wait),
			ProgressDeadline: orNone(g.ProgressDeadline),
			OnFailure:        launcher.RollFailure(g.OnFailure),
			Retry:            launcher.Retry(g.Retry.Policy),
			Retries:          g.Retry.Limit,
			MinBackoff:       shortest(g.Retry.Initial),
			MaxBackoff:       shortest(g.Retry.Max),
		},
		DependsOn: g.DependsOn,
		Log: launcher.LogConfig{Dir: g.Logs.Dir, MaxSize: int64(g.Logs.MaxSize), MaxFiles: orNone(g.Logs.Files - 1),
			MaxLine: int(g.Logs.MaxLine), Buffer: int(g.Logs.Buffer)},
	}
	if g.Retry.Limit == 0 {
		out.Roll.Retry = launcher.Manual
	}
	for _, name := range slices.Sorted(maps.Keys(g.Env)) {
		out.Env = append(out.Env, name+"="+g.Env[name])
	}
	for _, s := range g.StopSignals {
		out.Shutdown.StopSignals = append(out.Shutdown.StopSignals, string(s))
	}
	for _, h := range g.PreStop {
		out.PreStop = append(out.PreStop, launcher.Hook{Command: append([]string{h.Command}, h.Args...), Timeout: h.Timeout})
	}
	for _, l := range g.Listeners {
		out.Listen = append(out.Listen, launcher.Listen{Name: l.Name, Network: string(l.Network), Address: l.Address})
	}
	return out
}

// orNone is for numbers whose 0 means none here, and the default there, where none is negative.
func orNone[T ~int | ~int64](n T) T {
	if n == 0 {
		return -1
	}
	return n
}

// shortest is for times that can be 0 here, which there means the default.
func shortest(d time.Duration) time.Duration { return max(d, time.Millisecond) }
