package spec

import (
	"fmt"
	"math"
	"net"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/swansong-go/swansong/launcher/internal/peer"
	"github.com/swansong-go/swansong/launcher/internal/userdir"
)

const (
	MaxDuration      = 24 * time.Hour // maximum of every duration, so that sums cannot overflow and typing errors are found
	MinTotalDeadline = 10 * time.Millisecond

	MaxProcesses = 10_000 // maximum number of processes of a group, so that typing errors are found
)

// StopSignals are the names that Shutdown.StopSignals may have.
var StopSignals = []string{"SIGTERM", "SIGINT", "SIGQUIT", "SIGHUP", "SIGUSR1", "SIGUSR2"}

// A Field is the path of a field in the Go form of the configuration, such as Shutdown.Grace or
// Listen[0].Address.
type Field string

// A Problem is a rule that the configuration breaks. Field names the field that is wrong; the rule
// can refer to other fields as well.
type Problem struct {
	Group  int // index in Config.Groups; -1 for a field of Config
	Field  Field
	format string
	args   []any
}

// Rule says what is wrong with the field, and how to correct it. To mention another field, Rule
// calls the function name, which returns the field's name in Go or its key in a file.
func (p Problem) Rule(name func(Field) string) string {
	args := slices.Clone(p.args)
	for i, arg := range args {
		if f, ok := arg.(Field); ok {
			args[i] = name(f)
		}
	}
	return fmt.Sprintf(p.format, args...)
}

// ComparedWith returns the fields with which the rule compares the field of the problem.
func (p Problem) ComparedWith() (fields []Field) {
	for _, arg := range p.args {
		if f, ok := arg.(Field); ok {
			fields = append(fields, f)
		}
	}
	return fields
}

// Problems is the error of a configuration that breaks rules.
type Problems []Problem

func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, problem := range p {
		lines[i] = fmt.Sprintf("%s: %s", problem.Field, problem.Rule(func(f Field) string { return string(f) }))
	}
	return strings.Join(lines, "\n")
}

// A checker collects problems. It keeps at most one problem of each field, and does not compare a
// field that has a problem with other fields.
type checker struct {
	group    int
	problems Problems
}

func (c *checker) must(ok bool, field Field, format string, args ...any) {
	p := Problem{c.group, field, format, args}
	if !ok && !c.has(field) && !slices.ContainsFunc(p.ComparedWith(), c.has) {
		c.problems = append(c.problems, p)
	}
}

func (c *checker) has(field Field) bool {
	return slices.ContainsFunc(c.problems, func(p Problem) bool { return p.Group == c.group && p.Field == field })
}

// Check returns every rule that the configuration breaks. It does not look at the machine: files,
// programs and the names of hosts are not looked up.
func (c Config) Check() Problems {
	k := checker{group: -1}
	k.must(c.Dir != "", "Dir", "is missing; name a directory for the sockets")
	k.must(len(c.Groups) > 0, "Groups", "must have at least one group")
	k.must(c.TotalDeadline == 0 || c.TotalDeadline >= MinTotalDeadline && c.TotalDeadline <= MaxDuration,
		"TotalDeadline", "must be %v to %v, not %v", MinTotalDeadline, MaxDuration, c.TotalDeadline)
	k.hostPort("Admin.Address", c.Admin.Address)
	k.tls("Admin.TLS", c.Admin.TLS, c.Admin.Address != "", "an address")
	for i, g := range c.Groups {
		k.group = i
		k.name(g, c.Dir)
		first := slices.IndexFunc(c.Groups, func(o Group) bool { return o.Name == g.Name })
		k.must(first == i, "Name", "%q is the name of another group", g.Name)
		k.process(g)
	}
	k.dependencies(c.Groups)
	return k.problems
}

// CheckGroup returns every rule that the group g breaks. Package launcher calls it for a group that
// replaces another group of the same name.
func CheckGroup(g Group, dir string) Problems {
	k := checker{}
	k.name(g, dir)
	k.process(g)
	return k.problems
}

func (k *checker) process(g Group) {
	k.program(g)
	k.confinement(g)
	k.instances(g)
	k.transport(g)
	k.liveness(g)
	k.probes(g)
	k.shutdown(g.Shutdown)
	k.restart(g.Restart)
	k.roll(g)
	k.hooks(g.PreStop)
	k.listeners(g.Listen)
	k.log(g.Log)
}

// groupName matches names that can be used in file names: it excludes ".." and names with a slash.
var groupName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

func (k *checker) name(g Group, dir string) {
	k.must(groupName.MatchString(g.Name), "Name", "must be up to 63 letters, digits, dots, dashes and underscores, and begin with a letter or digit, not %q", g.Name)
	if g.User != "" && g.UsesSockets() {
		dir = userdir.In(dir, math.MaxUint32)
	}
	socket := filepath.Join(dir, g.Name+"-1234567.sock")
	k.must(len(socket) <= peer.MaxPath, "Name", "makes the path of a socket in %s %d bytes long, and the limit is %d; shorten the name or that directory",
		Field("Dir"), len(socket), peer.MaxPath)
}

func (k *checker) program(g Group) {
	k.must(len(g.Command) > 0 && g.Command[0] != "", "Command", "is missing; name a program")
	for i, v := range g.Env {
		name, _, ok := strings.Cut(v, "=")
		k.must(ok && name != "", index("Env", i), "is not NAME=value") // the message does not show the text, which may be a secret
	}
	oneOf(k, "OnLauncherDeath", string(g.OnLauncherDeath), Choices(g.OnLauncherDeath)...)
}

// RlimitNames are the names that an Rlimit can have.
var RlimitNames = []string{"as", "core", "cpu", "data", "fsize", "memlock", "nofile", "nproc", "stack"}

const (
	minMemory = 1 << 20 // least memory limit; a smaller one probably lacks its unit, as in 512 for 512 MiB
	maxCPUs   = 10_000
)

func (k *checker) confinement(g Group) {
	for i, r := range g.Rlimits {
		at := index("Rlimits", i)
		oneOf(k, at+".Name", r.Name, RlimitNames...)
		k.must(r.Soft <= r.Hard, at+".Soft", "is more than the hard limit, %d", r.Hard)
		first := slices.IndexFunc(g.Rlimits, func(o Rlimit) bool { return o.Name == r.Name })
		k.must(first == i, at+".Name", "%q is limited twice", r.Name)
	}
	l := g.Limits
	k.must(l.Memory == 0 || l.Memory >= minMemory, "Limits.Memory", "must be at least 1MiB, or 0 for no limit, not %d", l.Memory)
	k.must(l.CPUs == 0 || l.CPUs >= 0.01 && l.CPUs <= maxCPUs, "Limits.CPUs", "must be 0.01 to %d, or 0 for no limit, not %v", maxCPUs, l.CPUs)
	oneOf(k, "Limits.IfUnavailable", string(l.IfUnavailable), Choices(l.IfUnavailable)...)
}

func (k *checker) instances(g Group) {
	k.must(g.Desired >= 0 && g.Desired <= MaxProcesses, "Desired", "must be 0 to %d, not %d", MaxProcesses, g.Desired)
	k.must(g.MaxSurge >= 0 && g.MaxSurge <= MaxProcesses, "MaxSurge", "must be 0 to %d, not %d", MaxProcesses, g.MaxSurge)
	k.must(g.MinHealthy >= 0 && g.MinHealthy <= g.Desired, "MinHealthy", "must be 0 to %s, which is %d, not %d", Field("Desired"), g.Desired, g.MinHealthy)
	k.must(g.MinHealthy >= 0, "MinHealthy", "must be 0 or more, not %d", g.MinHealthy)
	k.must(g.MaxSurge != 0 || g.Desired == 0 || g.MinHealthy != g.Desired, "MaxSurge",
		"0 with %[1]s = %[2]s (%[3]d) leaves no way to replace an instance; make it 1 or more, or lower %[1]s", Field("MinHealthy"), Field("Desired"), g.Desired)
	k.duration("HealthCheckTimeout", g.HealthCheckTimeout, time.Millisecond)
	k.duration("MinReady", g.MinReady, 0)
}

func (k *checker) transport(g Group) {
	oneOf(k, "Protocol", string(g.Protocol), Choices(g.Protocol)...)
	k.duration("Watchdog", g.Watchdog, 0)
	k.must(g.Watchdog == 0 || g.Protocol.TakesMessages(), "Watchdog", "needs %s auto or notify: by other protocols, a process sends no WATCHDOG=1", Field("Protocol"))
	t := g.Transport
	oneOf(k, "Transport.Network", t.Network, "unix", "tcp")
	if k.has("Transport.Network") {
		return
	}
	tcp := t.Network == "tcp"
	k.must(!tcp || g.Protocol == GRPC, "Transport.Network", "tcp has no effect with protocol %s; use unix, or protocol grpc", string(g.Protocol))
	k.must(tcp || t.Address == "", "Transport.Address", "is only for transport tcp")
	k.must(!tcp || t.Address != "", "Transport.Address", "is missing; transport tcp needs one, such as 127.0.0.1:0")
	port := k.hostPort("Transport.Address", t.Address)
	host, _, err := net.SplitHostPort(t.Address)
	k.must(g.Protocol != GRPC || err != nil || host != "" && !net.ParseIP(host).IsUnspecified(), "Transport.Address",
		"%q is every address of this machine; name one, such as 127.0.0.1:0", t.Address)
	k.must(port == 0 || g.Desired+g.MaxSurge <= 1, "Transport.Address",
		"%q has a fixed port, but there can be %d processes; use port 0, and each process reports its own", t.Address, g.Desired+g.MaxSurge)
	k.tls("Transport.TLS", t.TLS, tcp, "transport tcp")
}

func (k *checker) liveness(g Group) {
	k.duration("LivenessInterval", g.LivenessInterval, 0)
	k.duration("LivenessTimeout", g.LivenessTimeout, time.Millisecond)
	k.must(g.LivenessFailures >= 1, "LivenessFailures", "must be 1 or more, not %d", g.LivenessFailures)
}

func (k *checker) shutdown(s Shutdown) {
	k.duration("Shutdown.Max", s.Max, time.Millisecond)
	k.duration("Shutdown.Grace", s.Grace, 0)
	k.must(s.Grace <= s.Max, "Shutdown.Grace", "%v is longer than %s, %v", s.Grace, Field("Shutdown.Max"), s.Max)
	k.duration("Shutdown.Poll", s.Poll, time.Millisecond)
	k.duration("Shutdown.SIGTERMTimeout", s.SIGTERMTimeout, 0)
	k.duration("Shutdown.TotalDeadline", s.TotalDeadline, 0)
	k.duration("Shutdown.DeregisterDelay", s.DeregisterDelay, 0)
	k.must(len(s.StopSignals) > 0, "Shutdown.StopSignals", "must have at least one; the default is [SIGTERM]")
	for i, signal := range s.StopSignals {
		oneOf(k, index("Shutdown.StopSignals", i), signal, StopSignals...)
	}
	k.must(len(s.SuccessCodes) > 0, "Shutdown.SuccessCodes", "must have at least one; the default is [0]")
	for i, code := range s.SuccessCodes {
		k.must(code >= 0 && code <= 255, index("Shutdown.SuccessCodes", i), "must be 0 to 255, not %d", code)
	}
}

func (k *checker) restart(r Restart) {
	oneOf(k, "Restart.Policy", string(r.Policy), Choices(r.Policy)...)
	k.backoff("Restart", r.MinBackoff, r.MaxBackoff)
	k.duration("Restart.ResetAfter", r.ResetAfter, 0)
	k.must(r.CrashLimit >= 0, "Restart.CrashLimit", "must be 0 or more, not %d", r.CrashLimit)
}

func (k *checker) roll(g Group) {
	r := g.Roll
	oneOf(k, "Roll.OnFailure", string(r.OnFailure), Choices(r.OnFailure)...)
	oneOf(k, "Roll.Retry", string(r.Retry), Choices(r.Retry)...)
	k.must(r.Canary >= 0, "Roll.Canary", "must be 0 or more, not %d", r.Canary)
	k.duration("Roll.CanaryWait", r.CanaryWait, 0)
	k.canaryCheck(r)
	k.duration("Roll.ProgressDeadline", r.ProgressDeadline, 0)
	k.must(r.ProgressDeadline == 0 || r.ProgressDeadline > g.MinReady, "Roll.ProgressDeadline",
		"%v is not longer than %s, %v: no process could be in time", r.ProgressDeadline, Field("MinReady"), g.MinReady)
	k.must(r.Retries >= 0, "Roll.Retries", "must be 0 or more, not %d", r.Retries)
	k.backoff("Roll", r.MinBackoff, r.MaxBackoff)
}

func (k *checker) canaryCheck(r Roll) {
	c := r.Check
	k.must(len(c.Command) == 0 || c.Command[0] != "", "Roll.Check.Command", "is empty; name a program")
	k.must(len(c.Command) == 0 || c.Prometheus == "", "Roll.Check.Prometheus", "cannot be used with %s; use one of them", Field("Roll.Check.Command"))
	u, err := url.Parse(c.Prometheus)
	k.must(c.Prometheus == "" || err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil && u.RawQuery == "" && u.Fragment == "",
		"Roll.Check.Prometheus", "must be the address of a server, such as http://127.0.0.1:9090, without a user name, password or query") // the message leaves out the value, which may contain a password
	k.must(c.Prometheus == "" || strings.TrimSpace(c.Query) != "", "Roll.Check.Query", "is missing; %s needs one, such as sum(rate(errors[1m])) < bool 1", Field("Roll.Check.Prometheus"))
	k.must(c.Prometheus != "" || c.Query == "", "Roll.Check.Query", "has no effect without %s", Field("Roll.Check.Prometheus"))
	if c.IsSet() {
		k.must(r.Canary > 0, "Roll.Canary", "must be 1 or more: a check needs a canary")
		k.duration("Roll.Check.Interval", c.Interval, time.Millisecond)
		k.duration("Roll.Check.Timeout", c.Timeout, time.Millisecond)
	}
}

func (k *checker) hooks(hooks []Hook) {
	for i, h := range hooks {
		at := index("PreStop", i)
		k.must(len(h.Command) > 0 && h.Command[0] != "", at+".Command", "is missing; name a program")
		k.duration(at+".Timeout", h.Timeout, time.Millisecond)
	}
}

func (k *checker) listeners(listeners []Listen) {
	for i, l := range listeners {
		at := index("Listen", i)
		k.must(!strings.Contains(l.Name, ":"), at+".Name", "%q has a colon, which LISTEN_FDNAMES cannot have", l.Name)
		oneOf(k, at+".Network", l.Network, "tcp", "tcp4", "tcp6", "unix")
		k.must(l.Address != "", at+".Address", "is missing")
	}
}

func (k *checker) log(l Log) {
	k.must(l.Path == "" || l.Dir == "", "Log.Path", "cannot be used with %s; name a file for all processes, or a directory with a file for each", Field("Log.Dir"))
	k.must(l.MaxSize >= 0, "Log.MaxSize", "must be 0 or more, not %d", l.MaxSize)
	k.must(l.MaxFiles >= 0, "Log.MaxFiles", "must be 0 or more, not %d", l.MaxFiles)
	k.must(l.MaxLine >= 0, "Log.MaxLine", "must be 0 or more, not %d", l.MaxLine)
	k.must(l.Buffer >= 0, "Log.Buffer", "must be 0 or more, not %d", l.Buffer)
}

// condition checks the condition of the dependency g.DependsOn[i], such as "healthy".
func (k *checker) condition(g Group, groups []Group, i int) {
	at, name := index("DependsOn", i), g.DependsOn[i]
	oneOf(k, at, string(g.ConditionOf(name)), Choices(g.ConditionOf(name))...)
	needed := slices.IndexFunc(groups, func(g Group) bool { return g.Name == name })
	k.must(needed < 0 || g.ConditionOf(name) != Completed || groups[needed].Job, at,
		"%q is a service, which is not meant to complete; make it a job, or wait until it is healthy", name)
}

// dependencies reports dependencies on groups that do not exist, and groups that wait for one
// another.
func (k *checker) dependencies(groups []Group) {
	const (
		visiting = 1
		visited  = 2
	)
	state := map[string]int{}
	var visit func(n int, path []string)
	visit = func(n int, path []string) {
		g := groups[n]
		state[g.Name] = visiting
		path = append(path, g.Name)
		for i, name := range g.DependsOn {
			k.group = n
			k.condition(g, groups, i)
			next := slices.IndexFunc(groups, func(g Group) bool { return g.Name == name })
			switch {
			case next < 0:
				k.must(false, index("DependsOn", i), "there is no group %q", name)
			case state[name] == visiting:
				cycle := append(slices.Clone(path[slices.Index(path, name):]), name)
				k.must(false, index("DependsOn", i), "forms a cycle: %s", strings.Join(cycle, " waits for "))
			case state[name] == 0:
				visit(next, path)
			}
		}
		state[g.Name] = visited
	}
	for n, g := range groups {
		if state[g.Name] == 0 {
			visit(n, nil)
		}
	}
}

// duration checks that d is at least the given minimum. It also rejects durations so short that the
// unit was probably forgotten.
func (k *checker) duration(field Field, d, least time.Duration) {
	k.must(d >= least && d <= MaxDuration, field, "must be %v to %v, not %v", least, MaxDuration, d)
	k.must(d <= 0 || d >= time.Millisecond, field, "must be 0, or at least 1ms, not %v", d)
}

func (k *checker) backoff(field Field, least, most time.Duration) {
	k.duration(field+".MinBackoff", least, 0)
	k.duration(field+".MaxBackoff", most, 0)
	k.must(least <= most, field+".MaxBackoff", "%v is shorter than %s, %v", most, field+".MinBackoff", least)
}

// hostPort checks the form of a TCP address, and returns its port.
func (k *checker) hostPort(field Field, address string) (port int) {
	if address == "" {
		return 0
	}
	_, text, _ := net.SplitHostPort(address)
	port, err := strconv.Atoi(text)
	k.must(err == nil && port >= 0 && port <= 65535, field, "must be host:port with a port of 0 to 65535, not %q", address)
	return port
}

// tls checks that all three files are named if they are needed, and that none is named otherwise.
// Its errors name the setting that needs the files.
func (k *checker) tls(field Field, t TLS, needed bool, setting string) {
	switch {
	case !needed:
		k.must(t == TLS{}, field, "has no effect without %s", setting)
	case t == TLS{}:
		k.must(false, field, "is missing; %s needs %s, %s and %s", setting, field+".Cert", field+".Key", field+".CA")
	default:
		k.must(t.Cert != "", field+".Cert", "is missing")
		k.must(t.Key != "", field+".Key", "is missing")
		k.must(t.CA != "", field+".CA", "is missing")
	}
}

func oneOf[T ~string](k *checker, field Field, got T, want ...T) {
	names := make([]string, len(want))
	for i, w := range want {
		names[i] = string(w)
	}
	last := len(names) - 1
	k.must(slices.Contains(want, got), field, "must be %s or %s, not %q", strings.Join(names[:last], ", "), names[last], string(got))
}

func index(field Field, i int) Field { return Field(fmt.Sprintf("%s[%d]", field, i)) }
