package launcher

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/swansong-go/swansong/launcher/internal/confine"
	"github.com/swansong-go/swansong/launcher/internal/lifecycle"
	"github.com/swansong-go/swansong/launcher/internal/listeners"
	"github.com/swansong-go/swansong/launcher/internal/mtls"
	"github.com/swansong-go/swansong/launcher/internal/output"
	"github.com/swansong-go/swansong/launcher/internal/secrets"
	"github.com/swansong-go/swansong/launcher/internal/spawn"
	"github.com/swansong-go/swansong/launcher/internal/spec"
)

// A ConfigError says what is wrong with a configuration.
type ConfigError struct {
	Group string // name of the group; empty if the error is not about one group
	Field string // name of a field in [Config] or [GroupConfig], such as Shutdown.Grace
	Rule  string // what is wrong with the field, and what to do
}

func (e *ConfigError) Error() string {
	if e.Group == "" {
		return fmt.Sprintf("launcher: %s: %s", e.Field, e.Rule)
	}
	return fmt.Sprintf("launcher: group %q: %s: %s", e.Group, e.Field, e.Rule)
}

// Validate checks everything that can be checked without starting anything. It returns all
// problems, joined: each is a [*ConfigError].
func (c Config) Validate() error {
	groups := make([]string, len(c.Groups))
	var other []error
	for i, g := range c.Groups {
		groups[i] = g.Name
		other = append(other, c.checkDeath(g)...)
	}
	other = append(other, c.checkAddresses()...)
	return invalid(c.resolve().Check(), groups, other...)
}

// An invalidError has the [ConfigError]s for the caller. It also has the same problems in another
// form for package config, which knows the places of fields in a file.
type invalidError struct {
	error
	problems spec.Problems
}

func (e *invalidError) Unwrap() []error { return []error{e.error, e.problems} }

// invalid returns the error for the problems of these groups, and for other problems; nil if there
// are none.
func invalid(problems spec.Problems, groups []string, other ...error) error {
	var all []error
	for _, p := range problems {
		e := &ConfigError{Field: goField(p.Field), Rule: p.Rule(goField)}
		if p.Group >= 0 {
			e.Group = groups[p.Group]
		}
		all = append(all, e)
	}
	if all = append(all, other...); len(all) == 0 {
		return nil
	}
	return &invalidError{errors.Join(all...), problems}
}

// goField returns the path of a field without the part inside of an element of a list: Listen for
// Listen[0].Address.
func goField(f spec.Field) string {
	list, _, _ := strings.Cut(string(f), "[")
	return list
}

// checkAddresses returns an error for each address of the configuration that conflicts with another
// one, as far as can be seen without resolving host names.
func (c Config) checkAddresses() (all []error) {
	for _, conflict := range listeners.Check(c.resolve().Groups) {
		all = append(all, listenError(&conflict))
	}
	return all
}

func listenError(c *listeners.Conflict) *ConfigError { return &ConfigError{c.Group, "Listen", c.Rule} }

// checkFiles finds what would fail at the start of a process on this machine: missing directories,
// programs and certificates.
func (c Config) checkFiles(g spec.Group) error {
	bad := func(field, rule string) error { return &ConfigError{g.Name, field, rule} }
	if field, err := confine.Check(g, c.Dir, len(c.Helper) > 0); err != nil {
		return bad(field, err.Error())
	}
	if g.WorkDir != "" {
		if info, err := os.Stat(g.WorkDir); err != nil {
			return bad("WorkDir", err.Error())
		} else if !info.IsDir() {
			return bad("WorkDir", g.WorkDir+" is not a directory")
		}
	}
	if err := spawn.LookUp(g.Command[0], g.WorkDir); err != nil {
		return bad("Command", err.Error())
	}
	for _, s := range g.Shutdown.StopSignals {
		if lifecycle.StopSignals[s] == 0 {
			return bad("Shutdown.StopSignals", "this system does not have "+s)
		}
	}
	if g.Transport.Network == "tcp" {
		if _, err := mtls.Load(mtls.Files(g.Transport.TLS), nil); err != nil {
			return bad("Transport.TLS", err.Error())
		}
	}
	if g.Protocol == Notify && runtime.GOOS != "linux" {
		return bad("Protocol", "notify needs Linux; use auto or signals")
	}
	for i, p := range g.Probes() {
		if len(p.Exec.Command) == 0 {
			continue
		}
		if err := spawn.LookUp(p.Exec.Command[0], g.WorkDir); err != nil {
			return bad([]string{"StartupProbe", "ReadinessProbe", "LivenessProbe"}[i]+".Exec.Command", err.Error())
		}
	}
	if c := g.Roll.Check.Command; len(c) > 0 {
		if err := spawn.LookUp(c[0], ""); err != nil {
			return bad("Roll.Check.Command", err.Error())
		}
	}
	for _, h := range g.PreStop {
		if err := spawn.LookUp(h.Command[0], ""); err != nil {
			return bad("PreStop", err.Error())
		}
	}
	return nil
}

// checkLog creates the log directory of a group, or the log file if the group has only one. Its
// error names the field. It waits for the disk.
func checkLog(g spec.Group) error {
	if g.Log.Dir != "" {
		if err := os.MkdirAll(g.Log.Dir, 0o700); err != nil {
			return &ConfigError{g.Name, "Log.Dir", err.Error()}
		}
	} else if g.Log.Path != "" {
		if err := output.Check(g.Log.Path); err != nil {
			return &ConfigError{g.Name, "Log.Path", err.Error()}
		}
	}
	return nil
}

// readSecretFiles returns the content of the files in Secrets.
func (c Config) readSecretFiles() ([]string, error) {
	content, err := secrets.ReadFiles(c.Secrets.Files)
	if err != nil {
		return nil, &ConfigError{Field: "Secrets.Files", Rule: err.Error()}
	}
	return content, nil
}

// resolve returns the configuration with every default filled in.
func (c Config) resolve() spec.Config {
	out := spec.Config{Dir: c.Dir, TotalDeadline: c.TotalDeadline, Admin: spec.Admin{Address: c.Admin.Address, TLS: spec.TLS(c.Admin.TLS)}}
	for _, g := range c.Groups {
		out.Groups = append(out.Groups, g.resolve())
	}
	return out
}

// resolve returns the group with every default filled in, and with absolute paths of logs, which a
// later launcher with another working directory needs. Equal configurations have equal results: an
// empty list is nil.
func (g GroupConfig) resolve() spec.Group {
	out := spec.Group{
		Name: g.Name, Job: g.Job, Command: copied(g.Command), WorkDir: g.WorkDir, Env: copied(g.Env), ClearEnv: g.ClearEnv,
		User: g.User, UserGroup: g.UserGroup, Rlimits: copied(g.Rlimits), Limits: g.Limits, Conditions: maps.Clone(g.Conditions),
		Protocol:           g.Protocol,
		Transport:          spec.Transport{Network: g.Transport.Network, Address: g.Transport.Address, TLS: spec.TLS(g.Transport.TLS)},
		Desired:            g.Desired,
		HealthCheckTimeout: g.HealthCheckTimeout, MinReady: g.MinReady,
		LivenessInterval: g.LivenessInterval, LivenessTimeout: g.LivenessTimeout, LivenessFailures: g.LivenessFailures,
		Shutdown: spec.Shutdown(g.Shutdown), Restart: spec.Restart(g.Restart), Roll: spec.Roll(g.Roll),
		StartupProbe: g.StartupProbe, ReadinessProbe: g.ReadinessProbe, LivenessProbe: g.LivenessProbe, Watchdog: g.Watchdog,
		OnLauncherDeath: g.OnLauncherDeath,
		DependsOn:       copied(g.DependsOn),
		Log:             spec.Log(g.Log),
		Unmasked:        g.Unmasked,
	}
	out.Shutdown.StopSignals, out.Shutdown.SuccessCodes = copied(g.Shutdown.StopSignals), copied(g.Shutdown.SuccessCodes)
	out.Roll.Check.Command = copied(g.Roll.Check.Command)
	for _, h := range g.PreStop {
		out.PreStop = append(out.PreStop, spec.Hook{Command: copied(h.Command), Timeout: h.Timeout})
	}
	for _, l := range g.Listen {
		out.Listen = append(out.Listen, spec.Listen(l))
	}
	for _, p := range []*Probe{&out.StartupProbe, &out.ReadinessProbe, &out.LivenessProbe} {
		p.Exec.Command, p.HTTPGet.Headers = copied(p.Exec.Command), copied(p.HTTPGet.Headers)
		p.FillIn() // even with NoDefaults, 0 means the default in a probe, as in Kubernetes
	}
	if !g.NoDefaults {
		out.FillIn()
	}
	def := spec.Default()
	out.MaxSurge = *cmp.Or(g.MaxSurge, &def.MaxSurge)
	out.MinHealthy = *cmp.Or(g.MinHealthy, Int(spec.DefaultMinHealthy(g.Desired, out.MaxSurge)))
	for _, path := range []*string{&out.Log.Path, &out.Log.Dir} {
		if abs, err := filepath.Abs(*path); *path != "" && err == nil {
			*path = abs
		}
	}
	return out
}

// copied returns a copy of the list, which is nil if the list is empty.
func copied[E any](list []E) []E { return append([]E(nil), list...) }
