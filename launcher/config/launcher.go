package config

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"

	"github.com/swansong-go/swansong/launcher"
	"github.com/swansong-go/swansong/launcher/internal/spec"
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
		Secrets: c.Secret, Admin: c.Admin}
	for k := range c.Groups {
		out.Groups = append(out.Groups, c.Groups[k].launcher())
	}
	return out
}

// launcher returns the group for package launcher.
func (g *Group) launcher() launcher.GroupConfig {
	out := g.GroupConfig
	all := maps.Clone(g.FromFiles)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, variables(g.Env))
	out.Env = environment(all)
	return out
}

// spec returns the settings of the group that decide as which user its processes run, and whether
// they need sockets or a port: everything that can contain {socket} or {port}, env_file included.
func (g *Group) spec() spec.Group {
	out := spec.Group{User: g.User, UserGroup: g.UserGroup, Protocol: g.Protocol, Command: g.Command, Env: g.launcher().Env,
		StartupProbe: g.StartupProbe, ReadinessProbe: g.ReadinessProbe, LivenessProbe: g.LivenessProbe}
	for _, h := range g.PreStop {
		out.PreStop = append(out.PreStop, spec.Hook(h))
	}
	return out
}
