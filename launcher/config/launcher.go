package config

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/swansong-go/swansong/launcher"
)

// Dir returns the launcher's directory: StateDir, or [DefaultDir] if StateDir is empty.
func (c *Config) Dir() string { return cmp.Or(c.StateDir, DefaultDir()) }

// DefaultDir returns the launcher's directory if the file does not name one. It is
// $RUNTIME_DIRECTORY, which systemd sets, or swansong in $XDG_RUNTIME_DIR, or swansong-<uid> in the
// directory for temporary files.
func DefaultDir() string {
	if d := os.Getenv("RUNTIME_DIRECTORY"); d != "" {
		return filepath.SplitList(d)[0]
	}
	if d := os.Getenv("XDG_RUNTIME_DIR"); d != "" {
		return filepath.Join(d, "swansong")
	}
	return filepath.Join(os.TempDir(), fmt.Sprintf("swansong-%d", os.Getuid()))
}

// Launcher returns the configuration for package launcher. It does not set Logger, Output, Router,
// Helper, Guardian and Reread, nor start a server of package metrics: the program adds these.
func (c *Config) Launcher() launcher.Config {
	out := launcher.Config{Dir: c.Dir(), TotalDeadline: c.TotalDeadline, TotalDeadlineDerived: c.TotalDeadline == c.derivedTotal(),
		Secrets: launcher.SecretConfig(c.Secret), Admin: launcher.AdminConfig{Address: c.Admin.Address, TLS: launcher.TLS(c.Admin.TLS)}}
	for k := range c.Groups {
		out.Groups = append(out.Groups, c.Groups[k].launcher())
	}
	return out
}

// launcher returns the group for package launcher. All defaults are filled in, so a zero means zero
// and not the default.
func (g *Group) launcher() launcher.GroupConfig {
	out := launcher.GroupConfig{
		Name:       g.Name,
		Job:        g.Kind == Job,
		NoDefaults: true,
		Command:    append([]string{g.Command}, g.Args...),
		WorkDir:    g.WorkingDir,
		Env:        g.environment(),
		ClearEnv:   g.ClearEnv,
		User:       g.User, UserGroup: g.UserGroup, Rlimits: g.rlimits(),
		Limits: launcher.LimitConfig{Memory: int64(g.Limits.Memory), CPUs: g.Limits.CPUs,
			IfUnavailable: g.Limits.IfUnavailable},
		Protocol: g.Protocol,

		OnLauncherDeath: g.OnLauncherDeath,
		Transport: launcher.TransportConfig{Network: string(g.Lifecycle.Transport), Address: g.Lifecycle.Address,
			TLS: launcher.TLS(g.Lifecycle.TLS)},

		Desired:    g.Desired,
		MinHealthy: launcher.Int(g.MinHealthy),
		MaxSurge:   launcher.Int(g.MaxSurge),

		HealthCheckTimeout: g.HealthCheckTimeout,
		MinReady:           g.MinReady,
		LivenessInterval:   g.Liveness.Interval,
		LivenessTimeout:    g.Liveness.Timeout,
		LivenessFailures:   g.Liveness.Failures,
		StartupProbe:       g.StartupProbe,
		ReadinessProbe:     g.ReadinessProbe,
		LivenessProbe:      g.LivenessProbe,
		Watchdog:           g.Watchdog,

		Shutdown: launcher.ShutdownConfig{
			Grace:           g.Shutdown.GracePeriod,
			Max:             g.Shutdown.MaxDuration,
			GraceEnforced:   g.Shutdown.Grace == Enforced,
			Poll:            g.Shutdown.PollInterval,
			SIGTERMTimeout:  g.Shutdown.SIGTERMTimeout,
			DeregisterDelay: g.Shutdown.DeregisterDelay,
			SuccessCodes:    g.SuccessExitCodes,
		},
		Restart: launcher.RestartConfig{
			Policy:     g.Restart.Policy,
			MinBackoff: g.Restart.Initial,
			MaxBackoff: g.Restart.Max,
			ResetAfter: g.Restart.Reset,
			CrashLimit: g.Restart.Limit,
		},
		Roll: launcher.RollConfig{
			Canary:     g.Canary.Instances,
			CanaryWait: g.Canary.Wait,
			Check: launcher.CanaryCheck{Prometheus: g.Canary.Check.Prometheus, Query: g.Canary.Check.Query,
				Interval: g.Canary.Check.Interval, Timeout: g.Canary.Check.Timeout},
			ProgressDeadline: g.ProgressDeadline,
			OnFailure:        g.OnFailure,
			Retry:            g.Retry.Policy,
			Retries:          g.Retry.Limit,
			MinBackoff:       g.Retry.Initial,
			MaxBackoff:       g.Retry.Max,
		},
		DependsOn:  g.DependsOn,
		Conditions: g.Conditions,
		Log: launcher.LogConfig{Dir: g.Logs.Dir, MaxSize: int64(g.Logs.MaxSize), MaxFiles: g.Logs.Files - 1,
			MaxLine: int(g.Logs.MaxLine), Buffer: int(g.Logs.Buffer)},
		Unmasked: g.Mask == MaskOff,
	}
	if c := g.Canary.Check; c.Command != "" {
		out.Roll.Check.Command = append([]string{c.Command}, c.Args...)
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

// environment returns the variables of the file, and of its env_files.
func (g *Group) environment() (env []string) {
	all := map[string]string{}
	maps.Copy(all, g.FromFiles)
	maps.Copy(all, g.Env)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		env = append(env, name+"="+all[name])
	}
	return env
}
