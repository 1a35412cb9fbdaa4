package config

import "time"

// A defaulter has values before the file is looked at. Those of the RFC are its own: 3s, 10s, 500ms, 2s, one more, 30s.
type defaulter interface{ defaults() }

func (g *Group) defaults() {
	g.Desired, g.MaxSurge = 1, 1
	g.HealthCheckTimeout, g.ProgressDeadline = 30*time.Second, 10*time.Minute
	g.OnFailure = Pause
	g.StopSignals, g.SuccessExitCodes = []Signal{"SIGTERM"}, []int{0}
	g.OnLauncherDeath = Kill
	g.Protocol = GRPC
}

func (s *Shutdown) defaults() {
	*s = Shutdown{GracePeriod: 3 * time.Second, MaxDuration: 10 * time.Second, SIGTERMTimeout: 2 * time.Second,
		PollInterval: 500 * time.Millisecond, Grace: Strict}
}

func (r *Retry) defaults() {
	*r = Retry{Policy: Manual, Limit: 3, Initial: time.Second, Max: time.Minute}
}

func (c *Canary) defaults() { c.Wait = time.Minute }

func (r *Restart) defaults() {
	*r = Restart{Policy: IfItFailed, Initial: time.Second, Max: time.Minute, Limit: 10, Reset: 10 * time.Second}
}

func (l *Liveness) defaults() {
	*l = Liveness{Interval: 2 * time.Second, Timeout: time.Second, Failures: 3}
}

func (l *Lifecycle) defaults() { l.Transport = Unix }

func (l *Listener) defaults() { l.Network = NetworkTCP }

func (h *Hook) defaults() { h.Timeout = 5 * time.Second }

func (l *Logs) defaults() { *l = Logs{MaxSize: 10 << 20, Files: 5, MaxLine: 64 << 10, Buffer: 1 << 20} }

func (e *Export) defaults() { e.Port = 50051 }

// derive fills in what depends on something else that the file says.
func (c *Config) derive(d *decoder) {
	for k := range c.Groups {
		g, at := &c.Groups[k], index("process_groups", k)
		if !d.set(at + ".command") {
			g.Command = g.Name
		}
		if !d.set(at + ".min_healthy_instances") {
			g.MinHealthy = max(g.Desired, 0)
			if g.MaxSurge == 0 && g.Desired > 0 {
				g.MinHealthy--
			}
		}
		// Half of what it says should work: with a short limit, the default of a shorter one is no contradiction to it.
		if !d.set(at + ".shutdown.grace_period") {
			g.Shutdown.GracePeriod = min(g.Shutdown.GracePeriod, g.Shutdown.MaxDuration)
		}
	}
}
