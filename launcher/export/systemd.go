package export

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/swansong-go/swansong/internal/worktext"
	"github.com/swansong-go/swansong/launcher"
	"github.com/swansong-go/swansong/launcher/config"
)

// A unit is the text of a systemd unit that is being written.
type unit struct{ strings.Builder }

// section begins a section, after an empty line unless it is the first.
func (u *unit) section(name string) {
	if u.Len() > 0 {
		u.WriteByte('\n')
	}
	u.WriteString("[" + name + "]\n")
}

// set writes a line. If a key is set twice, systemd takes both values as a list, or only the last
// one, depending on the key. The caller has quoted and escaped the value as its key requires; see
// quote, specifiers and commandLine.
func (u *unit) set(key, value string) { u.WriteString(key + "=" + value + "\n") }

// Systemd exports for each group a template of a service, the sockets that its instances share, and
// a target that starts the desired number of instances.
//
//	desired_instances        instances name@1 to name@N, which name.target wants
//	protocol: grpc or notify    Type=notify
//	watchdog                 WatchdogSec
//	health_check_timeout     TimeoutStartSec
//	max_duration + sigterm_timeout + 1s    TimeoutStopSec
//	stop_signals             KillSignal
//	pre_stop                 ExecStop
//	restart_policy           Restart, RestartSec, StartLimitBurst, StartLimitIntervalSec
//	success_exit_codes       SuccessExitStatus
//	depends_on               Wants, After
//	kind: job                Type=oneshot
//	env_file                 EnvironmentFile
//	user, group              User, Group
//	rlimits, limits          LimitNOFILE and others, MemoryMax, CPUQuota
//	listeners                sockets, passed by LISTEN_FDS
//
// Secrets are read from the file /etc/name/secrets.env, which only root should be able to read.
func Systemd(c *config.Config) (*Result, error) {
	return each(c, &Result{}, func(g group) error {
		g.result.file(g.Name+"@.service", []byte(g.service()))
		for _, l := range g.sockets() {
			g.result.file(g.socketName(l), []byte(g.socket(l)))
		}
		g.result.file(g.Name+".target", []byte(g.target()))
		g.systemdGaps()
		return nil
	})
}

// service returns the template unit name@.service. %i in it is the number of an instance, and %p
// the name of the group.
//
// A limit of 0 failures means no limit: the interval is 0 then, which switches the limit of systemd
// off. A job has no limit for its start, because a oneshot unit is starting until its process has
// ended.
func (g group) service() string {
	u := &unit{}
	u.section("Unit")
	u.set("Description", g.Name+" %i")
	u.set("PartOf", g.Name+".target")
	for _, d := range g.DependsOn {
		u.set("Wants", d+".target")
		u.set("After", d+".target")
	}
	for _, l := range g.sockets() {
		u.set("Requires", g.socketName(l))
		u.set("After", g.socketName(l))
	}
	// The interval is the longest time that CrashLimit consecutive failures can take. They take so
	// long if each process is ready for almost ResetAfter before it fails.
	u.set("StartLimitIntervalSec", seconds(time.Duration(g.Restart.CrashLimit)*(g.Restart.MinBackoff+g.Restart.ResetAfter)))
	u.set("StartLimitBurst", strconv.Itoa(max(g.Restart.CrashLimit, 1)))

	u.section("Service")
	u.setType(g)
	if g.Watchdog > 0 {
		u.set("WatchdogSec", seconds(g.Watchdog))
		if g.Protocol == launcher.Auto {
			u.set("NotifyAccess", "all")
		}
	}
	u.set("ExecStart", g.ported(named(commandLine(g.Command[0], g.arguments()))))
	// The hooks read these variables. The process gets them, too, but they alone do not make
	// package client assume that a launcher has started the process.
	if len(g.PreStop) > 0 {
		u.set("Environment", "SWANSONG_PROCESS_ID=%p-%i")
		u.set("Environment", "SWANSONG_PROCESS_GROUP=%p")
	}
	for n, h := range g.PreStop {
		u.set("ExecStop", "-"+named(commandLine(h.Command[0], g.hookArguments(n))))
	}
	if g.WorkDir != "" {
		u.set("WorkingDirectory", specifiers(g.WorkDir))
	}
	plain, secret := g.environment()
	for _, name := range slices.Sorted(maps.Keys(plain)) {
		u.set("Environment", g.ported(named(specifiers(quote(name+"="+plain[name])))))
	}
	limit := g.bound()
	ours := g.clientVariables(down(limit), false)
	for _, name := range slices.Sorted(maps.Keys(ours)) {
		u.set("Environment", name+"="+ours[name])
	}
	if len(secret) > 0 {
		u.set("EnvironmentFile", g.secretFile())
	}
	u.confine(g)
	start := seconds(g.HealthCheckTimeout)
	if g.Job {
		start = "infinity"
	}
	u.set("TimeoutStartSec", start)
	u.set("TimeoutStopSec", seconds(limit))
	// systemd signals only the process, which stops its children itself. systemd kills the children
	// that remain after the process has exited.
	u.set("KillMode", "mixed")
	u.set("KillSignal", g.Shutdown.StopSignals[0])
	u.set("Restart", g.systemdRestart())
	u.set("RestartSec", seconds(g.Restart.MinBackoff))
	var codes []string
	for _, code := range g.Shutdown.SuccessCodes {
		if code != 0 {
			codes = append(codes, strconv.Itoa(code))
		}
	}
	if len(codes) > 0 {
		u.set("SuccessExitStatus", strings.Join(codes, " "))
	}
	for _, l := range g.sockets() {
		u.set("Sockets", g.socketName(l))
	}
	return u.String()
}

// setType says when systemd considers a process started. Only units of Type=notify and oneshot
// make others wait for more than the start of the program.
func (u *unit) setType(g group) {
	switch {
	case g.Job: // units ordered after a oneshot unit wait until its process has ended
		u.set("Type", "oneshot")
	case g.Protocol == launcher.GRPC:
		u.set("Type", "notify")
		u.set("NotifyAccess", "main")
	case g.Protocol == launcher.Notify:
		u.set("Type", "notify")
		// like this launcher, systemd then accepts messages from all processes of the service
		u.set("NotifyAccess", "all")
	default:
		u.set("Type", "exec")
	}
}

// systemdRestart returns the value of Restart in the unit. systemd does not restart a oneshot unit
// that has succeeded. So a job whose policy is always gets on-failure, which is reported as a gap.
func (g group) systemdRestart() string {
	if g.Restart.Policy == launcher.Always && g.Job {
		return "on-failure"
	}
	return map[launcher.RestartPolicy]string{launcher.Always: "always", launcher.OnFailure: "on-failure", launcher.Never: "no"}[g.Restart.Policy]
}

// confine sets the files with variables, the user and the limits.
func (u *unit) confine(g group) {
	for _, name := range g.EnvFile {
		u.set("EnvironmentFile", specifiers(name))
	}
	if g.User != "" {
		u.set("User", specifiers(g.User))
	}
	if g.UserGroup != "" {
		u.set("Group", specifiers(g.UserGroup))
	}
	limit := func(n uint64) string {
		if n == launcher.Unlimited {
			return "infinity"
		}
		return strconv.FormatUint(n, 10)
	}
	for _, r := range g.Rlimits {
		u.set("Limit"+strings.ToUpper(r.Name), limit(r.Soft)+":"+limit(r.Hard))
	}
	if m := g.Limits.Memory; m > 0 {
		u.set("MemoryMax", strconv.FormatInt(int64(m), 10))
	}
	if cpus := g.Limits.CPUs; cpus > 0 {
		u.set("CPUQuota", strconv.FormatFloat(cpus*100, 'f', -1, 64)+"%")
	}
}

// sockets returns the listeners that systemd supports. systemd refuses a socket unit with any other
// address, and then also the services that require the unit.
func (g group) sockets() []launcher.Listen {
	return slices.DeleteFunc(slices.Clone(g.Listen), func(l launcher.Listen) bool {
		_, ok := listenStream(l)
		return !ok
	})
}

// socketName returns the name of the unit of a listener, which all instances share.
func (g group) socketName(l launcher.Listen) string { return g.Name + "-" + l.Name + ".socket" }

// socket returns the socket unit of a listener. When a client connects and no instance runs,
// systemd starts the first instance. The other instances get the socket by Sockets= in their own
// units.
func (g group) socket(l launcher.Listen) string {
	u := &unit{}
	u.section("Unit")
	u.set("Description", "Listener "+l.Name+" of "+g.Name)
	u.set("PartOf", g.Name+".target")
	u.section("Socket")
	if l.Network == "tcp6" {
		u.set("BindIPv6Only", "ipv6-only")
	}
	address, _ := listenStream(l)
	u.set("ListenStream", specifiers(address))
	u.set("FileDescriptorName", l.Name)
	u.set("Service", g.Name+"@1.service")
	return u.String()
}

// listenStream returns the address of a listener in the form of systemd. The result ok is false if
// the address has a host name, which systemd does not resolve.
func listenStream(l launcher.Listen) (address string, ok bool) {
	if l.Network == "unix" {
		return l.Address, true
	}
	host, port, _ := net.SplitHostPort(l.Address)
	if host == "localhost" {
		host = map[bool]string{true: "::1", false: "127.0.0.1"}[l.Network == "tcp6"]
	}
	switch {
	case port == "0":
		return l.Address, false
	case host == "" && l.Network == "tcp":
		return port, true // a port without a host means all addresses of IPv4 and IPv6
	case host == "" && l.Network == "tcp4":
		host = "0.0.0.0"
	case host == "":
		host = "::"
	}
	return net.JoinHostPort(host, port), net.ParseIP(host) != nil
}

// target returns the unit that starts and stops all instances of a group together.
func (g group) target() string {
	u := &unit{}
	u.section("Unit")
	u.set("Description", g.Name+", "+worktext.Pluralize(g.Desired, "instance"))
	// systemd reaches a target only after the units that the target wants. So units that are
	// ordered after this target wait until all instances are ready.
	for k := range g.Desired {
		u.set("Wants", fmt.Sprintf("%s@%d.service", g.Name, k+1))
	}
	u.section("Install")
	u.set("WantedBy", "multi-user.target")
	return u.String()
}

// secretFile returns the path of the file from which systemd reads secret variables. systemd itself
// reads it, as root, before it changes to the user of the process.
func (g group) secretFile() string { return "/etc/" + g.Name + "/secrets.env" }

// seconds returns a duration for systemd, rounded up to milliseconds. A number without a unit means
// seconds; ms is written only where it is needed.
func seconds(d time.Duration) string {
	ms := (d + time.Millisecond - 1) / time.Millisecond
	if ms%1000 == 0 {
		return strconv.FormatInt(int64(ms/1000), 10)
	}
	return strconv.FormatInt(int64(ms), 10) + "ms"
}

// specifiers escapes %, which systemd would expand.
func specifiers(s string) string { return strings.ReplaceAll(s, "%", "%%") }

// named replaces {id} by the specifiers with which systemd inserts the name of the instance.
func named(s string) string { return strings.ReplaceAll(s, "{id}", "%p-%i") }

// commandLine returns a command line for systemd, which splits it at white space, and expands $ and
// %. The launcher does neither, so what means something to systemd is escaped.
func commandLine(command string, args []string) string {
	// systemd does not expand $ in the program, the first word of a command line
	words := []string{specifiers(quote(command))}
	for _, a := range args {
		words = append(words, strings.ReplaceAll(specifiers(quote(a)), "$", "$$"))
	}
	return strings.Join(words, " ")
}

// quote returns a word for systemd; see "Quoting" in systemd.syntax(7).
func quote(s string) string {
	if s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r == 0x7f || strings.ContainsRune(`"'\;`, r)
	}) {
		return s
	}
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range []byte(s) {
		switch {
		case c == '"' || c == '\\':
			b.WriteString(`\` + string(c))
		case c < ' ' || c == 0x7f:
			fmt.Fprintf(&b, `\x%02x`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

func (g group) systemdGaps() {
	_, secret := g.environment()
	g.gap(len(secret) > 0, "env", "%s are read from %s, which must exist", strings.Join(secret, ", "), g.secretFile())
	g.gap(len(g.EnvFile) > 0 && len(g.Env) > 0, "env_file", "overrides env; under the launcher, env overrides env_file")
	g.gap(g.Restart.Policy == launcher.Always && g.Job, "restart_policy", "always is not possible: an instance that has succeeded is not started again")
	for _, name := range g.DependsOn {
		g.gap(g.Conditions[name] == launcher.IsStarted, "depends_on."+name, "the group starts only when the other one is ready, not as soon as it has been started")
		g.gap(g.Conditions[name] == launcher.IsCompleted, "depends_on."+name, "the group starts even if the job fails; Requires=%s.target instead of Wants= prevents that", name)
	}
	g.gap(len(g.Shutdown.StopSignals) > 1, "stop_signals", "only %s is sent, and then SIGKILL", g.Shutdown.StopSignals[0])
	g.gap(len(g.PreStop) > 0, "pre_stop", "a hook has TimeoutStopSec instead of its own timeout; SWANSONG_PROCESS_ID is name-instance, and MAINPID replaces SWANSONG_PROCESS_PID")
	g.gap(g.Restart.Policy != launcher.Never && g.Restart.MaxBackoff > g.Restart.MinBackoff, "restart_policy.max_backoff", "the pause before each restart is always %v; RestartSteps= of systemd 254 can increase it", g.Restart.MinBackoff)
	g.gap(g.Log.Dir != "", "logs", "output goes to the journal, with its limits")
	if g.Job {
		return
	}
	g.gap(g.Desired > 0, "min_healthy_instances", "there is no roll; restart one instance after the other, and wait until it is ready: systemctl restart %s@1 (waits with Type=notify)", g.Name)
	g.gap(*g.MaxSurge > 0, "max_surge", "there is no surge; an instance is stopped before its replacement starts")
	g.gap(g.Roll.Canary > 0, "canary", "there are no canaries; restart one instance, and check it")
	g.gap(g.MinReady > 0, "min_ready_seconds", "is ignored")
	g.gap(g.Shutdown.DeregisterDelay > 0, "shutdown.deregister_delay", "systemd has no router; after SIGTERM, the process itself must continue to serve for %v", g.Shutdown.DeregisterDelay)
	g.gap(g.Shutdown.GraceEnforced && g.Shutdown.Grace < g.Shutdown.Max, "shutdown.grace_period", "is not supported; each process has all of max_duration without asking for more time")
	g.gap(g.Roll.OnFailure != launcher.Continue, "on_failure", "there is no roll, and so no %s; check an instance before you restart the next one", g.Roll.OnFailure)
	g.gap(g.Roll.Retry != launcher.Manual, "retry", "there is no roll; a failed instance is restarted by Restart, after RestartSec")
	g.gap(g.Roll.ProgressDeadline > 0, "progress_deadline", "there is no roll; an instance that is not ready fails after TimeoutStartSec, and is retried StartLimitBurst times")
	g.gap(g.Protocol == launcher.GRPC && g.LivenessInterval > 0, "liveness", "there are no checks; for a process that sends WATCHDOG=1, set WatchdogSec=")
	g.gap(g.Protocol == launcher.Auto, "protocol", "a process counts as ready once it runs, because it is not known what it uses; set grpc or notify if it sends READY=1, as package client does")
	for _, p := range g.probes() {
		g.gap(true, p.key, "there are no probes; for a process that sends WATCHDOG=1, set watchdog")
	}
	g.gap(g.usesPort(), "export.port", "%d takes the place of {port}, in all instances", g.Export.ServicePort)
	for _, l := range g.Listen {
		_, ok := listenStream(l)
		g.gap(!ok, "listeners", "%s: is not exported; systemd listens on IP addresses and ports, not on %s", l.Name, l.Address)
	}
	g.gap(len(g.Listen) > 0 && g.Desired > 1, "listeners", "a connection while no instance runs starts only the first one")
}
