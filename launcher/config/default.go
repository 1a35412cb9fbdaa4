package config

import (
	"github.com/swansong-go/swansong/launcher/internal/spec"
)

// A defaulter is a part of the configuration that sets its own defaults. It does so before the file
// is read.
type defaulter interface{ defaults() }

func (g *Group) defaults() {
	d := spec.Default()
	g.Desired, g.MaxSurge = 1, d.MaxSurge
	g.HealthCheckTimeout, g.ProgressDeadline = d.HealthCheckTimeout, d.Roll.ProgressDeadline
	g.OnFailure = d.Roll.OnFailure
	g.SuccessExitCodes = d.Shutdown.SuccessCodes
	for _, s := range d.Shutdown.StopSignals {
		g.StopSignals = append(g.StopSignals, Signal(s))
	}
	g.OnLauncherDeath = d.OnLauncherDeath
	g.Protocol = d.Protocol
	g.Mask = MaskOn
	g.Kind = Service
	g.Limits.IfUnavailable = d.Limits.IfUnavailable
}

func (s *Shutdown) defaults() {
	d := spec.Default().Shutdown
	*s = Shutdown{GracePeriod: d.Grace, MaxDuration: d.Max, SIGTERMTimeout: d.SIGTERMTimeout, PollInterval: d.Poll, Grace: Advisory}
}

func (r *Retry) defaults() {
	d := spec.Default().Roll
	*r = Retry{Policy: d.Retry, Limit: d.Retries, Initial: d.MinBackoff, Max: d.MaxBackoff}
}

func (c *Canary) defaults() { c.Wait = spec.Default().Roll.CanaryWait }

func (c *CanaryCheck) defaults() {
	d := spec.Default().Roll.Check
	c.Interval, c.Timeout = d.Interval, d.Timeout
}

func (r *Restart) defaults() {
	d := spec.Default().Restart
	*r = Restart{Policy: d.Policy, Initial: d.MinBackoff, Max: d.MaxBackoff, Limit: d.CrashLimit, Reset: d.ResetAfter}
}

func (l *Liveness) defaults() {
	d := spec.Default()
	*l = Liveness{Interval: d.LivenessInterval, Timeout: d.LivenessTimeout, Failures: d.LivenessFailures}
}

func (l *Lifecycle) defaults() { l.Transport = Transport(spec.Default().Transport.Network) }

func (l *Listener) defaults() { l.Network = Network(spec.DefaultListenNetwork) }

func (h *Hook) defaults() { h.Timeout = spec.DefaultHookTimeout }

func (l *Logs) defaults() {
	d := spec.Default().Log
	*l = Logs{MaxSize: Bytes(d.MaxSize), Files: d.MaxFiles + 1, MaxLine: Bytes(d.MaxLine), Buffer: Bytes(d.Buffer)}
}

func (e *Export) defaults() { e.Port, e.ServicePort = 50051, 8080 }

// derive sets the defaults that depend on other keys of the file.
func (c *Config) derive(d *decoder) {
	for k := range c.Groups {
		g, at := &c.Groups[k], index("process_groups", k)
		for _, p := range []*Probe{&g.StartupProbe, &g.ReadinessProbe, &g.LivenessProbe} {
			p.FillIn()
		}
		if !d.set(at + ".protocol") {
			g.Protocol = spec.DefaultProtocol(string(g.Lifecycle.Transport))
		}
		if !d.set(at + ".command") {
			g.Command = g.Name
		}
		if !d.set(at + ".min_healthy_instances") {
			g.MinHealthy = spec.DefaultMinHealthy(g.Desired, g.MaxSurge)
		}
		if !d.set(at + ".shutdown.grace_period") { // the default must not be longer than a short max_duration
			g.Shutdown.GracePeriod = min(g.Shutdown.GracePeriod, g.Shutdown.MaxDuration)
		}
	}
}
