package export

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/swansong-go/swansong/launcher"
	"github.com/swansong-go/swansong/launcher/config"
)

// A namedProbe is a probe of a group with its key in the file, by which a Gap names it.
type namedProbe struct {
	key string
	config.Probe
}

// probes returns the probes of the group that are set.
func (g group) probes() (all []namedProbe) {
	for _, p := range []namedProbe{{"startupProbe", g.StartupProbe}, {"readinessProbe", g.ReadinessProbe}, {"livenessProbe", g.LivenessProbe}} {
		if p.IsSet() {
			all = append(all, p)
		}
	}
	return all
}

// maskedProbe returns the probe with this key, without its secrets. Use it for what is written to a
// file. For what is only compared or counted, the probe itself may be used.
func (g group) maskedProbe(key string) config.Probe {
	return map[string]config.Probe{"startupProbe": g.masked.StartupProbe, "readinessProbe": g.masked.ReadinessProbe, "livenessProbe": g.masked.LivenessProbe}[key]
}

// servesHealth reports whether the process is known to serve grpc.health.v1 at Export.Port, and is
// probed there because the group has no probes of its own.
func (g group) servesHealth() bool { return g.Protocol == launcher.GRPC && len(g.probes()) == 0 }

// port returns the number of a port, where export.port takes the place of {port}: outside of the
// launcher each instance has an address of its own, so all instances can have the same port.
func (g group) port(p string) int {
	if n, err := strconv.Atoi(p); err == nil {
		return n
	}
	return g.Export.ServicePort
}

// ported returns the text with export.port in the place of {port}.
func (g group) ported(s string) string {
	return strings.ReplaceAll(s, "{port}", strconv.Itoa(g.Export.ServicePort))
}

// usesPort reports whether the launcher chooses a port for each process of the group.
func (g group) usesPort() bool {
	texts := []string{}
	for _, p := range g.probes() {
		texts = append(texts, string(p.HTTPGet.Port), string(p.TCPSocket.Port), string(p.GRPC.Port), p.HTTPGet.Path)
		texts = append(texts, p.Exec.Command...)
	}
	return g.mentions("{port}") || slices.ContainsFunc(texts, func(s string) bool { return strings.Contains(s, "{port}") })
}

// host returns the host to which a probe connects. A probe that executes a command connects to no
// host, and the result connects is false.
func host(p config.Probe) (name string, connects bool) {
	switch {
	case p.HTTPGet.Port != "":
		return p.HTTPGet.Host, true
	case p.TCPSocket.Port != "":
		return p.TCPSocket.Host, true
	}
	return "", p.GRPC.Port != ""
}

// isLoopback reports whether the launcher probes this host on the machine itself.
func isLoopback(name string) bool {
	ip := net.ParseIP(name)
	return name == "" || name == "localhost" || ip != nil && ip.IsLoopback()
}

// probeGaps reports the settings of probes that the target does not support, or supports in another
// way.
func (g group) probeGaps() {
	for _, p := range g.probes() {
		masked := g.maskedProbe(p.key)
		name, connects := host(p.Probe)
		texts := append([]string{p.HTTPGet.Path, p.GRPC.Service}, p.Exec.Command...)
		secret := !slices.Equal(p.Exec.Command, masked.Exec.Command) || !slices.Equal(p.HTTPGet.Headers, masked.HTTPGet.Headers) || p.HTTPGet.Path != masked.HTTPGet.Path
		g.gap(secret, p.key, "has a secret, which is not exported")
		g.gap(slices.ContainsFunc(texts, func(s string) bool {
			return strings.Contains(s, "{id}") || strings.Contains(s, "{dir}") || strings.Contains(s, "{socket}")
		}), p.key, "{id}, {dir} and {socket} are not replaced in a probe")
		g.gap(connects && isLoopback(name), p.key, "connects to the address of the instance, so the process must listen there, and not only on %s", "127.0.0.1")
		for _, d := range []struct {
			key string
			is  time.Duration
		}{{"initialDelaySeconds", p.InitialDelay}, {"periodSeconds", p.Period}, {"timeoutSeconds", p.Timeout}, {"terminationGracePeriodSeconds", p.TerminationGrace}} {
			g.gap(d.is%time.Second != 0, p.key+"."+d.key, "is %ds, because the target has whole seconds", up(d.is))
		}
	}
}

// kubernetesProbe returns the probe in the form of Kubernetes.
func (g group) kubernetesProbe(key string) *probe {
	p := g.maskedProbe(key)
	if !p.IsSet() {
		return nil
	}
	out := &probe{InitialDelaySeconds: up(p.InitialDelay), PeriodSeconds: up(p.Period), TimeoutSeconds: up(p.Timeout),
		FailureThreshold: int64(p.FailureThreshold), TerminationGracePeriodSeconds: up(p.TerminationGrace)}
	if p.SuccessThreshold > 1 {
		out.SuccessThreshold = int64(p.SuccessThreshold)
	}
	elsewhere := func(name string) string {
		if isLoopback(name) {
			return "" // with an empty host, Kubernetes probes the address of the pod
		}
		return name
	}
	switch {
	case p.HTTPGet.Port != "":
		h := &httpGet{Path: g.ported(p.HTTPGet.Path), Port: g.port(string(p.HTTPGet.Port)), Host: elsewhere(p.HTTPGet.Host), Scheme: p.HTTPGet.Scheme}
		for _, header := range p.HTTPGet.Headers {
			h.HTTPHeaders = append(h.HTTPHeaders, httpHeader{header.Name, header.Value})
		}
		out.HTTPGet = h
	case p.TCPSocket.Port != "":
		out.TCPSocket = &tcpSocket{Port: g.port(string(p.TCPSocket.Port)), Host: elsewhere(p.TCPSocket.Host)}
	case p.GRPC.Port != "":
		out.GRPC = &grpcAction{Port: g.port(string(p.GRPC.Port)), Service: p.GRPC.Service}
	default:
		out.Exec = &exec{}
		for _, a := range p.Exec.Command {
			out.Exec.Command = append(out.Exec.Command, g.ported(a))
		}
	}
	return out
}

// setKubernetesProbes sets the probes of the container. If the group configures none and its
// processes use the lifecycle protocol, the probes use that protocol, too. A startup probe bounds
// the time until the process is ready.
//
// The launcher waits for a process to become ready for health_check_timeout and then fails it; a
// readinessProbe of Kubernetes waits without an end. So a startupProbe is added where none is
// configured. It tries once a second, and the number of failures that it permits is
// health_check_timeout in seconds.
func (g group) setKubernetesProbes(con *container) {
	if g.servesHealth() {
		con.Ports = append(con.Ports, port{portName, g.Export.Port})
		con.StartupProbe = g.healthProbe(1, 0, max(up(g.HealthCheckTimeout), 1))
		con.ReadinessProbe = g.healthProbe(1, 0, 1)
		if g.LivenessInterval > 0 {
			con.LivenessProbe = g.healthProbe(up(g.LivenessInterval), up(g.LivenessTimeout), int64(g.LivenessFailures))
		}
		return
	}
	con.StartupProbe, con.ReadinessProbe, con.LivenessProbe = g.kubernetesProbe("startupProbe"), g.kubernetesProbe("readinessProbe"), g.kubernetesProbe("livenessProbe")
	// Kubernetes accepts only 1 as the successThreshold of a startupProbe. The field 0 is left out
	// of the manifest, and 1 is the default.
	if con.StartupProbe == nil && con.ReadinessProbe != nil {
		starting := *con.ReadinessProbe
		starting.SuccessThreshold, starting.PeriodSeconds = 0, 1
		starting.FailureThreshold = max(up(g.HealthCheckTimeout)-starting.InitialDelaySeconds, 1)
		con.StartupProbe = &starting
	}
	if g.usesPort() {
		con.Ports = append(con.Ports, port{"service", g.Export.ServicePort})
	}
	for _, p := range g.probes() {
		for _, at := range []launcher.Port{p.HTTPGet.Port, p.TCPSocket.Port, p.GRPC.Port} {
			if n := g.port(string(at)); at != "" && !slices.ContainsFunc(con.Ports, func(known port) bool { return known.ContainerPort == n }) {
				con.Ports = append(con.Ports, port{fmt.Sprintf("probe-%d", n), n})
			}
		}
	}
}

// healthProbe returns a probe of grpc.health.v1, with times in seconds; a timeout of 0 is the
// default of Kubernetes.
func (g group) healthProbe(period, timeout, failures int64) *probe {
	return &probe{GRPC: &grpcAction{Port: g.Export.Port}, PeriodSeconds: period, TimeoutSeconds: timeout, FailureThreshold: failures}
}

// nomadChecks returns the checks for the readiness and liveness probes, and the ports that they
// need.
//
// A fixed port is reserved, because the process listens on it whichever port Nomad chooses. It is
// reserved only once, even if several probes use it, and its label contains its number. Nomad has
// no startup probe. Instead, the check of the livenessProbe restarts a task only when the task has
// run for health_check_timeout, or for the initial delay if that is longer.
func (g group) nomadChecks() (checks []nomadCheck, ports []nomadPort) {
	label := func(p string) string {
		if p == "{port}" {
			return nomadServicePort
		}
		name := "p" + p
		if !slices.ContainsFunc(ports, func(known nomadPort) bool { return known.Label == name }) {
			n, _ := strconv.Atoi(p)
			ports = append(ports, nomadPort{Label: name, Value: n})
		}
		return name
	}
	for _, p := range g.probes() {
		if p.key == "startupProbe" {
			continue
		}
		m := g.maskedProbe(p.key)
		c := nomadCheck{Name: p.key, Interval: max(p.Period, time.Second), Timeout: max(p.Timeout, time.Second)}
		if p.key == "readinessProbe" && len(p.Exec.Command) == 0 { // Nomad has no thresholds for checks that run a command
			c.FailuresBeforeCritical = p.FailureThreshold
			if p.SuccessThreshold > 1 {
				c.SuccessBeforePassing = p.SuccessThreshold
			}
		}
		if p.key == "livenessProbe" {
			c.CheckRestart = &nomadCheckRestart{p.FailureThreshold, max(p.InitialDelay, g.HealthCheckTimeout)}
		}
		switch {
		case p.HTTPGet.Port != "":
			c.Type, c.Path, c.PortLabel, c.Protocol = "http", m.HTTPGet.Path, label(string(p.HTTPGet.Port)), strings.ToLower(p.HTTPGet.Scheme)
			c.TLSSkipVerify = c.Protocol == "https"
			for _, h := range m.HTTPGet.Headers {
				if c.Header == nil {
					c.Header = map[string][]string{}
				}
				c.Header[h.Name] = append(c.Header[h.Name], h.Value)
			}
		case p.TCPSocket.Port != "":
			c.Type, c.PortLabel = "tcp", label(string(p.TCPSocket.Port))
		case p.GRPC.Port != "":
			c.Type, c.GRPCService, c.PortLabel = "grpc", p.GRPC.Service, label(string(p.GRPC.Port))
		default:
			c.Type, c.Command, c.TaskName = "script", m.Exec.Command[0], g.Name
			for _, a := range m.Exec.Command[1:] {
				c.Args = append(c.Args, nomadPorted(a))
			}
		}
		checks = append(checks, c)
	}
	return checks, ports
}

// nomadServicePort is the label of the port that Nomad chooses in the place of {port}.
const nomadServicePort = "service"

// nomadPorted replaces {port} by the variable with the port that Nomad has chosen.
func nomadPorted(s string) string {
	return strings.ReplaceAll(s, "{port}", fmt.Sprintf("${NOMAD_PORT_%s}", nomadServicePort))
}
