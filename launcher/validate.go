package launcher

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/swansong-go/swansong/launcher/internal/mtls"
	"github.com/swansong-go/swansong/launcher/internal/peer"
)

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
	all = append(all, c.checkAddresses()...)
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

// checkFiles says early, and by field, what would fail at the start of a process.
func checkFiles(g GroupConfig) error {
	if g.WorkDir != "" {
		if info, err := os.Stat(g.WorkDir); err != nil {
			return &ConfigError{g.Name, "WorkDir", err.Error()}
		} else if !info.IsDir() {
			return &ConfigError{g.Name, "WorkDir", g.WorkDir + " is no directory"}
		}
	}
	if err := lookUp(g.Command[0], g.WorkDir); err != nil {
		return &ConfigError{g.Name, "Command", err.Error()}
	}
	if g.Transport.Network == "tcp" {
		if _, err := mtls.Load(mtls.Files(g.Transport.TLS), nil); err != nil {
			return &ConfigError{g.Name, "Transport.TLS", err.Error()}
		}
	}
	for _, h := range g.PreStop {
		if err := lookUp(h.Command[0], ""); err != nil {
			return &ConfigError{g.Name, "PreStop", err.Error()}
		}
	}
	return nil
}
