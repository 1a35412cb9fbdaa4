package spec

import (
	"cmp"
	"fmt"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// A Probe checks a process from the outside, as a probe of Kubernetes checks a container. The yaml
// tags are the names of the fields in Kubernetes. The zero value is no probe; otherwise exactly one
// of HTTPGet.Port, TCPSocket.Port, Exec.Command and GRPC.Port is set.
type Probe struct {
	HTTPGet   HTTPGetAction   `yaml:"httpGet"`
	TCPSocket TCPSocketAction `yaml:"tcpSocket"`
	Exec      ExecAction      `yaml:"exec"`
	GRPC      GRPCAction      `yaml:"grpc"`

	InitialDelay     time.Duration `yaml:"initialDelaySeconds" form:"seconds"`
	Period           time.Duration `yaml:"periodSeconds" form:"seconds"`
	Timeout          time.Duration `yaml:"timeoutSeconds" form:"seconds"`
	SuccessThreshold int           `yaml:"successThreshold"`
	FailureThreshold int           `yaml:"failureThreshold"`
	TerminationGrace time.Duration `yaml:"terminationGracePeriodSeconds" form:"seconds"` // 0 means the Shutdown.Max of the group
}

// An HTTPGetAction sends a request. A status from 200 to 399 is success.
type HTTPGetAction struct {
	Path    string       `yaml:"path"`
	Port    Port         `yaml:"port"`
	Host    string       `yaml:"host"`
	Scheme  string       `yaml:"scheme"`
	Headers []HTTPHeader `yaml:"httpHeaders"`
}

// An HTTPHeader is a header of a request.
type HTTPHeader struct {
	Name  string `yaml:"name"`
	Value string `yaml:"value"`
}

// A TCPSocketAction opens a connection.
type TCPSocketAction struct {
	Port Port   `yaml:"port"`
	Host string `yaml:"host"`
}

// An ExecAction runs a command, without a shell. The exit code 0 is success.
type ExecAction struct {
	Command []string `yaml:"command"`
}

// A GRPCAction calls grpc.health.v1. The answer SERVING is success.
type GRPCAction struct {
	Port    Port   `yaml:"port"`
	Service string `yaml:"service"`
}

// A Port is the number of a port, or PortPlaceholder.
type Port string

// PortPlaceholder stands for the port that the launcher has chosen for a process.
const PortPlaceholder = "{port}"

// SocketPlaceholder is replaced by a path at which the process may create a socket.
const SocketPlaceholder = "{socket}"

// IsSet reports whether there is a probe.
func (p Probe) IsSet() bool { return len(p.kinds()) > 0 }

// kinds returns the names of the ways to check that are set. A way is set if its required field is:
// httpGet with a path and without a port is not. The check of the configuration refuses more than
// one way.
func (p Probe) kinds() (all []string) {
	for _, k := range []struct {
		name string
		set  bool
	}{{"httpGet", p.HTTPGet.Port != ""}, {"tcpSocket", p.TCPSocket.Port != ""}, {"exec", len(p.Exec.Command) > 0}, {"grpc", p.GRPC.Port != ""}} {
		if k.set {
			all = append(all, k.name)
		}
	}
	return all
}

// FillIn replaces zero values by the defaults of Kubernetes. It does nothing if there is no probe,
// so that the zero value remains the zero value. InitialDelay and TerminationGrace have the default
// 0.
func (p *Probe) FillIn() {
	if !p.IsSet() {
		return
	}
	p.Period = cmp.Or(p.Period, 10*time.Second)
	p.Timeout = cmp.Or(p.Timeout, time.Second)
	p.SuccessThreshold = cmp.Or(p.SuccessThreshold, 1)
	p.FailureThreshold = cmp.Or(p.FailureThreshold, 3)
	if p.HTTPGet.Port != "" {
		p.HTTPGet.Path = cmp.Or(p.HTTPGet.Path, "/")
		p.HTTPGet.Scheme = cmp.Or(p.HTTPGet.Scheme, "HTTP")
	}
}

// Expand returns the probe with the replacements of r made in its texts. It makes new slices,
// because p shares its slices with the configuration of the group.
func (p Probe) Expand(r *strings.Replacer) Probe {
	for _, text := range []*string{&p.HTTPGet.Path, &p.HTTPGet.Host, (*string)(&p.HTTPGet.Port), (*string)(&p.TCPSocket.Port), &p.TCPSocket.Host,
		(*string)(&p.GRPC.Port), &p.GRPC.Service} {
		*text = r.Replace(*text)
	}
	command, headers := p.Exec.Command, p.HTTPGet.Headers
	p.Exec.Command, p.HTTPGet.Headers = nil, nil
	for _, arg := range command {
		p.Exec.Command = append(p.Exec.Command, r.Replace(arg))
	}
	for _, h := range headers {
		p.HTTPGet.Headers = append(p.HTTPGet.Headers, HTTPHeader{h.Name, r.Replace(h.Value)})
	}
	return p
}

// Secrets returns the texts of the probe in which there may be secrets: arguments, and headers as
// NAME=value. The parts of the query in a path are among the arguments, because token=x is a secret
// there as --token=x is in a command.
func (p Probe) Secrets() (args, headers []string) {
	args = append(args, p.Exec.Command...)
	args = append(args, strings.FieldsFunc(p.HTTPGet.Path, func(r rune) bool { return r == '?' || r == '&' })...)
	for _, h := range p.HTTPGet.Headers {
		headers = append(headers, h.Name+"="+h.Value)
	}
	return args, headers
}

// UsesPort reports whether the launcher has to choose a port for each process of the group.
func (g Group) UsesPort() bool { return g.mentions(PortPlaceholder) }

// UsesSockets reports whether the processes of the group use sockets in a directory of the
// launcher.
func (g Group) UsesSockets() bool { return g.Protocol != Signals || g.mentions(SocketPlaceholder) }

// mentions reports whether a placeholder occurs anywhere in the group.
func (g Group) mentions(placeholder string) bool {
	texts := append(append([]string{}, g.Command...), g.Env...)
	for _, p := range g.Probes() {
		texts = append(texts, string(p.HTTPGet.Port), string(p.TCPSocket.Port), string(p.GRPC.Port), p.HTTPGet.Path, p.HTTPGet.Host, p.TCPSocket.Host, p.GRPC.Service)
		texts = append(texts, p.Exec.Command...)
		for _, h := range p.HTTPGet.Headers {
			texts = append(texts, h.Value)
		}
	}
	for _, h := range g.PreStop {
		texts = append(texts, h.Command...)
	}
	return strings.Contains(strings.Join(texts, "\x00"), placeholder)
}

// Probes returns the three probes of the group, of which some may not be set.
func (g Group) Probes() []Probe { return []Probe{g.StartupProbe, g.ReadinessProbe, g.LivenessProbe} }

const readinessProbe Field = "ReadinessProbe"

func (k *checker) probes(g Group) {
	k.probe("StartupProbe", g.StartupProbe, g.Shutdown.Max)
	k.probe(readinessProbe, g.ReadinessProbe, g.Shutdown.Max)
	k.probe("LivenessProbe", g.LivenessProbe, g.Shutdown.Max)
}

// probe reports what is wrong in the configuration of one probe. maxStop is Shutdown.Max, which
// TerminationGrace must not exceed: after a failed probe, a process can have less time to stop than
// Shutdown.Max, and not more.
func (k *checker) probe(at Field, p Probe, maxStop time.Duration) {
	kinds := p.kinds()
	if len(kinds) == 0 {
		k.must(reflect.ValueOf(p).IsZero(), at, "checks nothing; add one of httpGet with a port, tcpSocket with a port, exec with a command and grpc with a port")
		return
	}
	k.must(len(kinds) == 1, at, "has %s; a probe has exactly one way to check", strings.Join(kinds, " and "))
	k.port(at+".HTTPGet.Port", p.HTTPGet.Port)
	k.port(at+".TCPSocket.Port", p.TCPSocket.Port)
	k.port(at+".GRPC.Port", p.GRPC.Port)
	if p.HTTPGet.Port != "" {
		oneOf(k, at+".HTTPGet.Scheme", p.HTTPGet.Scheme, "HTTP", "HTTPS")
		_, err := url.ParseRequestURI(p.HTTPGet.Path)
		k.must(err == nil && strings.HasPrefix(p.HTTPGet.Path, "/"), at+".HTTPGet.Path", "must be a path with an optional query, such as /healthz, not %q", p.HTTPGet.Path)
		for _, h := range p.HTTPGet.Headers {
			k.must(h.Name != "" && !strings.ContainsAny(h.Name, "\r\n: ") && !strings.ContainsAny(h.Value, "\r\n"),
				at+".HTTPGet.Headers", "must each have the name of a header, and a value of one line")
		}
	}
	k.must(len(p.Exec.Command) == 0 || p.Exec.Command[0] != "", at+".Exec.Command", "is empty; name a program")
	k.duration(at+".InitialDelay", p.InitialDelay, 0)
	k.duration(at+".Period", p.Period, time.Millisecond)
	k.duration(at+".Timeout", p.Timeout, time.Millisecond)
	k.must(p.FailureThreshold >= 1, at+".FailureThreshold", "must be 1 or more, not %d", p.FailureThreshold)
	k.must(p.SuccessThreshold >= 1, at+".SuccessThreshold", "must be 1 or more, not %d", p.SuccessThreshold)
	k.must(p.SuccessThreshold == 1 || at == readinessProbe, at+".SuccessThreshold", "must be 1, not %d: only a readiness probe is repeated after a success", p.SuccessThreshold)
	k.duration(at+".TerminationGrace", p.TerminationGrace, 0)
	k.must(p.TerminationGrace == 0 || at != readinessProbe, at+".TerminationGrace", "has no effect: a readiness probe stops no process")
	k.must(p.TerminationGrace <= maxStop, at+".TerminationGrace", "%v is longer than %s, %v", p.TerminationGrace, Field("Shutdown.Max"), maxStop)
}

func (k *checker) port(field Field, port Port) {
	n, err := strconv.Atoi(string(port))
	k.must(port == "" || port == PortPlaceholder || err == nil && n >= 1 && n <= 65535, field,
		"must be 1 to 65535, or %s for the port that the launcher chooses for each process, not %q", PortPlaceholder, string(port))
}

// Describe names the way in which a probe checks, for messages.
func (p Probe) Describe() string {
	switch {
	case p.HTTPGet.Port != "":
		return fmt.Sprintf("httpGet %s on port %s", p.HTTPGet.Path, p.HTTPGet.Port)
	case p.TCPSocket.Port != "":
		return fmt.Sprintf("tcpSocket on port %s", p.TCPSocket.Port)
	case p.GRPC.Port != "":
		return fmt.Sprintf("grpc on port %s", p.GRPC.Port)
	case p.IsSet():
		return "exec " + p.Exec.Command[0]
	}
	return ""
}
