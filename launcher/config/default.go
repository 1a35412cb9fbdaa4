package config

import (
	"github.com/swansong-go/swansong/launcher"
	"github.com/swansong-go/swansong/launcher/internal/spec"
)

// prepare sets the defaults of an element of a list before the file is read. A value in the file,
// also a 0, then replaces the default, and a setting that the file does not mention keeps it. Other
// types have no defaults.
func prepare(v any) {
	switch v := v.(type) {
	case *Group:
		*v = Group{GroupConfig: launcher.DefaultGroup(), Export: Export{Port: 50051, ServicePort: 8080}}
		v.MinHealthy = nil // the default depends on other keys; see derive
	case *launcher.Hook:
		v.Timeout = spec.DefaultHookTimeout
	case *launcher.Listen:
		v.Network = spec.DefaultListenNetwork
	}
}

// derive sets the defaults that depend on other keys of the file, after it was read. It asks the
// decoder whether the file has a key, since a value alone does not say that.
func (c *Config) derive(d *decoder) {
	for k := range c.Groups {
		g, at := &c.Groups[k], index("process_groups", k)
		for _, p := range []*Probe{&g.StartupProbe, &g.ReadinessProbe, &g.LivenessProbe} {
			p.FillIn()
		}
		if !d.set(at + ".protocol") {
			g.Protocol = spec.DefaultProtocol(g.Transport.Network)
		}
		if !d.set(at + ".command") {
			g.Command = append([]string{g.Name}, g.Command[min(1, len(g.Command)):]...)
		}
		if g.MinHealthy == nil {
			g.MinHealthy = launcher.Int(spec.DefaultMinHealthy(g.Desired, *g.MaxSurge))
		}
		// The default of grace_period must not be longer than a short max_duration in the file.
		if !d.set(at + ".shutdown.grace_period") {
			g.Shutdown.Grace = min(g.Shutdown.Grace, g.Shutdown.Max)
		}
	}
}
