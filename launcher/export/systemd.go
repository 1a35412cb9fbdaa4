package export

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/swansong-go/swansong/launcher/config"
)

// A unit is a file for systemd in the making.
type unit struct{ strings.Builder }

func (u *unit) section(name string) {
	if u.Len() > 0 {
		u.WriteByte('\n')
	}
	u.WriteString("[" + name + "]\n")
}

func (u *unit) set(key, value string) { u.WriteString(key + "=" + value + "\n") }

// Systemd exports for each group a template of a service, the sockets that its instances share, and a target that starts as
// many instances as are desired.
//
//	desired_instances        instances name@1 to name@N, which name.target wants
//	readiness                Type=notify
//	health_check_timeout     TimeoutStartSec
//	max_duration + sigterm_timeout + 1s    TimeoutStopSec
//	stop_signals             KillSignal
//	pre_stop                 ExecStop
//	restart_policy           Restart, RestartSec, StartLimitBurst, StartLimitIntervalSec
//	success_exit_codes       SuccessExitStatus
//	depends_on               Wants, After
//	listeners                sockets, handed over by LISTEN_FDS
//
// Secrets are read from the file /etc/name/secrets.env, which should belong to root alone.
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
	// So many failures in a row, each after a while of being ready that is too short to end the row.
	u.set("StartLimitIntervalSec", seconds(time.Duration(g.Restart.Limit)*(g.Restart.Initial+g.Restart.Reset)))
	u.set("StartLimitBurst", strconv.Itoa(max(g.Restart.Limit, 1)))

	u.section("Service")
	if g.Protocol == config.GRPC {
		u.set("Type", "notify")
		u.set("NotifyAccess", "main")
	} else {
		u.set("Type", "exec")
	}
	u.set("ExecStart", named(commandLine(g.Command, g.arguments())))
	if len(g.PreStop) > 0 { // which are the process's, too, and to package client no sign of a launcher
		u.set("Environment", "SWANSONG_PROCESS_ID=%p-%i")
		u.set("Environment", "SWANSONG_PROCESS_GROUP=%p")
	}
	for _, h := range g.PreStop {
		u.set("ExecStop", "-"+named(commandLine(h.Command, g.hookArguments(h))))
	}
	if g.WorkingDir != "" {
		u.set("WorkingDirectory", specifiers(g.WorkingDir))
	}
	plain, secret := g.environment()
	for _, name := range slices.Sorted(maps.Keys(plain)) {
		u.set("Environment", named(specifiers(quote(name+"="+plain[name]))))
	}
	limit := g.bound()
	ours := g.ours(down(limit), false)
	for _, name := range slices.Sorted(maps.Keys(ours)) {
		u.set("Environment", name+"="+ours[name])
	}
	if len(secret) > 0 {
		u.set("EnvironmentFile", g.secretFile())
	}
	u.set("TimeoutStartSec", seconds(g.HealthCheckTimeout))
	u.set("TimeoutStopSec", seconds(limit))
	// The process stops its children itself; what is left when it has ended is killed.
	u.set("KillMode", "mixed")
	u.set("KillSignal", string(g.StopSignals[0]))
	u.set("Restart", map[config.RestartPolicy]string{config.Always: "always", config.IfItFailed: "on-failure", config.NeverReturn: "no"}[g.Restart.Policy])
	u.set("RestartSec", seconds(g.Restart.Initial))
	var codes []string
	for _, code := range g.SuccessExitCodes {
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

// sockets returns the listeners that systemd can have. It refuses a unit with another address, and then those that need it.
func (g group) sockets() []config.Listener {
	return slices.DeleteFunc(slices.Clone(g.Listeners), func(l config.Listener) bool {
		_, ok := listenStream(l)
		return !ok
	})
}

func (g group) socketName(l config.Listener) string { return g.Name + "-" + l.Name + ".socket" }

func (g group) socket(l config.Listener) string {
	u := &unit{}
	u.section("Unit")
	u.set("Description", "Listener "+l.Name+" of "+g.Name)
	u.set("PartOf", g.Name+".target")
	u.section("Socket")
	if l.Network == config.NetworkTCP6 {
		u.set("BindIPv6Only", "ipv6-only")
	}
	address, _ := listenStream(l)
	u.set("ListenStream", specifiers(address))
	u.set("FileDescriptorName", l.Name)
	u.set("Service", g.Name+"@1.service")
	return u.String()
}

// listenStream writes an address for systemd, which resolves no names.
func listenStream(l config.Listener) (address string, ok bool) {
	if l.Network == config.NetworkUnix {
		return l.Address, true
	}
	host, port, _ := net.SplitHostPort(l.Address)
	if host == "localhost" {
		host = map[bool]string{true: "::1", false: "127.0.0.1"}[l.Network == config.NetworkTCP6]
	}
	switch {
	case port == "0":
		return l.Address, false
	case host == "" && l.Network == config.NetworkTCP:
		return port, true // of all addresses, of both kinds
	case host == "" && l.Network == config.NetworkTCP4:
		host = "0.0.0.0"
	case host == "":
		host = "::"
	}
	return net.JoinHostPort(host, port), net.ParseIP(host) != nil
}

func (g group) target() string {
	u := &unit{}
	u.section("Unit")
	u.set("Description", fmt.Sprintf("%s, %d instances", g.Name, g.Desired))
	// A target is reached after what it wants, so what is ordered after this one waits until all of these are ready.
	for k := range g.Desired {
		u.set("Wants", fmt.Sprintf("%s@%d.service", g.Name, k+1))
	}
	u.section("Install")
	u.set("WantedBy", "multi-user.target")
	return u.String()
}

func (g group) secretFile() string { return "/etc/" + g.Name + "/secrets.env" }

// seconds writes a duration as systemd reads it, to the millisecond.
func seconds(d time.Duration) string {
	ms := (d + time.Millisecond - 1) / time.Millisecond
	if ms%1000 == 0 {
		return strconv.FormatInt(int64(ms/1000), 10)
	}
	return strconv.FormatInt(int64(ms), 10) + "ms"
}

// specifiers keeps systemd from expanding %.
func specifiers(s string) string { return strings.ReplaceAll(s, "%", "%%") }

// named has systemd expand {id}.
func named(s string) string { return strings.ReplaceAll(s, "{id}", "%p-%i") }

// commandLine writes a command for systemd, which splits it at white space, and expands $ and %.
func commandLine(command string, args []string) string {
	words := []string{specifiers(quote(command))} // no $ is expanded in the first word
	for _, a := range args {
		words = append(words, strings.ReplaceAll(specifiers(quote(a)), "$", "$$"))
	}
	return strings.Join(words, " ")
}

// quote writes a word for systemd, see "Quoting" in systemd.syntax(7).
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
	g.gap(len(secret) > 0, "env", "%s are read from %s, which has to exist", strings.Join(secret, ", "), g.secretFile())
	g.gap(g.Desired > 0, "min_healthy_instances", "there is no roll; restart one instance after the other: systemctl restart %s@1, and wait for it (Type=notify does)", g.Name)
	g.gap(g.MaxSurge > 0, "max_surge", "there is none; an instance is stopped before it is replaced")
	g.gap(g.Canary.Instances > 0, "canary", "there are none; restart one instance, and look at it")
	g.gap(g.MinReady > 0, "min_ready_seconds", "is not looked at")
	g.gap(g.Shutdown.DeregisterDelay > 0, "shutdown.deregister_delay", "there is no routing to leave; the process has to go on serving for that long by itself")
	g.gap(g.Shutdown.Grace == config.Strict && g.Shutdown.GracePeriod < g.Shutdown.MaxDuration, "shutdown.grace_period", "there is no first limit; each process has all of max_duration, and need not ask for more")
	g.gap(len(g.StopSignals) > 1, "stop_signals", "there is one, %s, and then SIGKILL", g.StopSignals[0])
	g.gap(g.OnFailure != config.Continue, "on_failure", "there is no roll that could fail, and so no %s; look at an instance before the next one is restarted", g.OnFailure)
	g.gap(g.Retry.Policy != config.Manual, "retry", "there is none of a roll; what fails is started again by Restart, after RestartSec")
	g.gap(g.ProgressDeadline > 0, "progress_deadline", "there is none; an instance that is not ready fails after TimeoutStartSec, and how often is tried StartLimitBurst says")
	g.gap(len(g.PreStop) > 0, "pre_stop", "a hook has TimeoutStopSec, and not its own timeout; SWANSONG_PROCESS_ID is name-instance, and in the place of SWANSONG_PROCESS_PID there is MAINPID")
	g.gap(g.Protocol == config.GRPC && g.Liveness.Interval > 0, "liveness", "nobody asks; a process that says WATCHDOG=1 by itself can be given WatchdogSec=")
	g.gap(g.Restart.Policy != config.NeverReturn && g.Restart.Max > g.Restart.Initial, "restart_policy.max_backoff", "the pause is always %v (RestartSteps= of systemd 254 can make it grow)", g.Restart.Initial)
	for _, l := range g.Listeners {
		_, ok := listenStream(l)
		g.gap(!ok, "listeners", "%s: is left out; systemd listens on IP addresses and ports, not on %s", l.Name, l.Address)
	}
	g.gap(len(g.Listeners) > 0 && g.Desired > 1, "listeners", "a connection that comes while no instance runs starts the first one only")
	g.gap(g.Logs.Dir != "", "logs", "stdout and stderr go to the journal, with its limits")
}
