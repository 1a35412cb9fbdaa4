package config

import (
	"maps"
	"net"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/swansong-go/swansong/launcher/internal/address"
	"github.com/swansong-go/swansong/launcher/internal/peer"
)

const (
	maxInstances = 1000                  // of one launcher on one machine: more is a slip of the hand
	maxDuration  = 24 * time.Hour        // so that sums do not overflow, nor slips of the hand go unnoticed
	leastTotal   = 10 * time.Millisecond // of package launcher, which keeps a fifth of it to kill in
)

// A checker looks for what each key by itself cannot show.
type checker struct {
	*decoder
	here bool // look at this machine too
}

// must reports a rule at the key unless ok, and unless the value there was no value in the first place.
func (k *checker) must(ok bool, key, format string, args ...any) {
	if !ok && !k.wrong[key] {
		k.fail(key, format, args...)
	}
}

func (k *checker) config(c *Config) {
	k.absolute("state_dir", c.StateDir)
	k.tls("admin.tls", c.Admin.TLS, c.Admin.Address != "", "admin.address")
	k.address("admin.address", NetworkTCP, c.Admin.Address, false)
	k.address("metrics.address", NetworkTCP, c.Metrics.Address, false)
	for n, p := range c.Redact {
		_, err := path.Match(p, "")
		k.must(err == nil && p != "", index("redact", n), "must be a pattern of names, such as *_PIN")
	}
	k.must(len(c.Groups) > 0, "process_groups", "must have at least one group")

	names := map[string]string{}
	var listeners []listener
	listeners = k.apart(listeners, Listener{Network: NetworkTCP, Address: c.Admin.Address}, "admin.address")
	listeners = k.apart(listeners, Listener{Network: NetworkTCP, Address: c.Metrics.Address}, "metrics.address")
	for n := range c.Groups {
		at := index("process_groups", n)
		k.group(at, &c.Groups[n], c)
		k.unique(names, c.Groups[n].Name, c.Groups[n].Name, at+".name", "the name of a group")
		listeners = k.apart(listeners, Listener{Network: NetworkTCP, Address: c.Groups[n].Lifecycle.Address}, at+".lifecycle.address")
		for m, l := range c.Groups[n].Listeners {
			listeners = k.apart(listeners, l, index(at+".listeners", m)+".address")
		}
	}
	k.cycles(c)
	if k.set("total_deadline") {
		k.duration("total_deadline", c.TotalDeadline, leastTotal)
	} else {
		c.TotalDeadline = c.derivedTotal()
	}
}

// unique reports what has been seen already. It is shown as the file has it.
func (k *checker) unique(seen map[string]string, what, shown, key, kind string) {
	if what == "" {
		return
	}
	if first, ok := seen[what]; ok {
		k.must(false, key, "%q is %s already, in line %d", shown, kind, k.lines[first].line)
		return
	}
	seen[what] = key
}

// A listener is who has an address already.
type listener struct {
	key, address string
	at           address.Address
}

// apart reports an address that cannot be listened on because of one before it. What a name stands for is not looked up.
func (k *checker) apart(before []listener, l Listener, key string) []listener {
	text := l.Address
	if key == "metrics.address" && strings.HasPrefix(text, ":") {
		text = "127.0.0.1" + text // see metrics.Serve
	}
	at, err := address.Parse(string(l.Network), text)
	if err != nil || l.Address == "" {
		return before
	}
	for _, has := range before {
		switch {
		case !at.Overlaps(has.at):
			continue
		case has.address == l.Address:
			k.must(false, key, "%q is listened on already, in line %d", l.Address, k.lines[has.key].line)
		default:
			k.must(false, key, "%q cannot be had beside %q, which is listened on already, in line %d", l.Address, has.address, k.lines[has.key].line)
		}
		return before
	}
	return append(before, listener{key, l.Address, at})
}

// A label is the least that DNS, Kubernetes, systemd, Nomad and file systems agree on. It has no way to say "../".
var label = regexp.MustCompile(`^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`)

func (k *checker) name(key, name string) {
	k.must(label.MatchString(name), key, "must be up to 63 of a-z, 0-9 and -, begin with a letter and not end with -, not %q", name)
}

func (k *checker) group(at string, g *Group, c *Config) {
	k.must(g.Name != "", at+".name", "is missing")
	if g.Name != "" {
		k.name(at+".name", g.Name)
	}
	if c.StateDir != "" { // where else it is, depends on the machine, and is short
		longest := path.Join(c.StateDir, g.Name+"-1234567.sock")
		k.must(len(longest) <= peer.MaxPath, at+".name", "makes, in the state_dir, a socket with a path of %d bytes, and %d is the limit; shorten one of them", len(longest), peer.MaxPath)
	}
	if g.Name != "" || k.set(at+".command") {
		k.command(at+".command", g.Command)
	}
	k.directory(at+".working_dir", g.WorkingDir)
	for name := range maps.Keys(g.Env) {
		key := at + ".env." + name
		k.must(name != "" && !strings.ContainsAny(name, "=\x00"), key, "the name of a variable cannot be empty, nor have = or NUL in it")
		k.must(!slices.Contains(reserved, name), key, "is set by the launcher, for what it hands over")
	}

	k.must(g.Desired >= 0 && g.Desired <= maxInstances, at+".desired_instances", "must be 0 to %d, not %v", maxInstances, k.said(at+".desired_instances", g.Desired))
	k.must(g.MaxSurge >= 0 && g.MaxSurge <= maxInstances, at+".max_surge", "must be 0 to %d, not %v", maxInstances, k.said(at+".max_surge", g.MaxSurge))
	k.share(at, "min_healthy_instances", g.MinHealthy, g.Desired)
	k.must(g.MaxSurge != 0 || g.Desired <= 0 || g.MinHealthy != g.Desired, at+".max_surge",
		"0 with min_healthy_instances = desired_instances (%d) leaves no way to replace an instance; allow one more, or one fewer", g.Desired)
	if g.Desired == 0 { // for now: nobody goes first
		k.count(at+".canary.instances", g.Canary.Instances, 0)
	} else {
		k.share(at, "canary.instances", g.Canary.Instances, g.Desired)
	}
	k.duration(at+".canary.wait", g.Canary.Wait, 0)
	k.duration(at+".health_check_timeout", g.HealthCheckTimeout, time.Millisecond)
	k.duration(at+".min_ready_seconds", g.MinReady, 0)
	k.duration(at+".progress_deadline", g.ProgressDeadline, 0)
	k.must(k.wrong[at+".min_ready_seconds"] || g.ProgressDeadline == 0 || g.ProgressDeadline > g.MinReady, at+".progress_deadline",
		"%v is not longer than min_ready_seconds, %v: no instance could be in time", g.ProgressDeadline, g.MinReady)

	k.count(at+".retry.limit", g.Retry.Limit, 0)
	k.backoff(at+".retry", g.Retry.Initial, g.Retry.Max)
	k.count(at+".restart_policy.crash_loop_limit", g.Restart.Limit, 0)
	k.duration(at+".restart_policy.reset_after", g.Restart.Reset, 0)
	k.backoff(at+".restart_policy", g.Restart.Initial, g.Restart.Max)

	s := g.Shutdown
	k.duration(at+".shutdown.max_duration", s.MaxDuration, time.Millisecond)
	k.duration(at+".shutdown.grace_period", s.GracePeriod, 0)
	k.must(k.wrong[at+".shutdown.max_duration"] || s.GracePeriod <= s.MaxDuration, at+".shutdown.grace_period", "%v is longer than max_duration, %v", s.GracePeriod, s.MaxDuration)
	k.duration(at+".shutdown.sigterm_timeout", s.SIGTERMTimeout, 0)
	k.duration(at+".shutdown.poll_interval", s.PollInterval, time.Millisecond)
	k.duration(at+".shutdown.deregister_delay", s.DeregisterDelay, 0)

	k.must(len(g.StopSignals) > 0, at+".stop_signals", "must have at least one; the default is [SIGTERM]")
	k.must(len(g.SuccessExitCodes) > 0, at+".success_exit_codes", "must have at least one; the default is [0]")
	for n, code := range g.SuccessExitCodes {
		key := index(at+".success_exit_codes", n)
		k.must(code >= 0 && code <= 255, key, "must be 0 to 255, not %v", k.said(key, code))
	}

	l := g.Liveness
	k.duration(at+".liveness.interval", l.Interval, 0)
	k.duration(at+".liveness.timeout", l.Timeout, time.Millisecond)
	k.must(k.wrong[at+".liveness.interval"] || l.Interval == 0 || l.Timeout <= l.Interval, at+".liveness.timeout", "%v is longer than the interval, %v", l.Timeout, l.Interval)
	k.count(at+".liveness.failure_threshold", l.Failures, 1)

	k.must(g.OnLauncherDeath != Keep || c.StateDir != "", at+".on_launcher_death",
		"keep needs a state_dir, for the next launcher to find the processes in")

	k.must(g.Protocol == GRPC || g.Lifecycle.Transport == Unix, at+".lifecycle.transport", "is of no use with protocol signals")
	tcp := g.Lifecycle.Transport == TCP
	k.must(!tcp || g.Lifecycle.Address != "", at+".lifecycle.address", "is missing; transport tcp needs one, such as 127.0.0.1:0")
	k.must(tcp || g.Lifecycle.Address == "", at+".lifecycle.address", "is for transport tcp")
	k.address(at+".lifecycle.address", NetworkTCP, g.Lifecycle.Address, g.Desired+g.MaxSurge > 1)
	host, _, err := net.SplitHostPort(g.Lifecycle.Address)
	k.must(g.Protocol != GRPC || err != nil || host != "" && !net.ParseIP(host).IsUnspecified(), at+".lifecycle.address",
		"%q is every address of this machine; name one, such as 127.0.0.1:0", g.Lifecycle.Address)
	k.tls(at+".lifecycle.tls", g.Lifecycle.TLS, tcp, "transport tcp")

	names := map[string]string{}
	for n, l := range g.Listeners {
		key := index(at+".listeners", n)
		k.must(l.Name != "", key+".name", "is missing")
		if l.Name != "" {
			k.name(key+".name", l.Name)
		}
		k.unique(names, l.Name, l.Name, key+".name", "the name of a listener")
		k.must(l.Address != "", key+".address", "is missing")
		k.address(key+".address", l.Network, l.Address, false)
	}
	for n, h := range g.PreStop {
		key := index(at+".pre_stop", n)
		k.command(key+".command", h.Command)
		k.duration(key+".timeout", h.Timeout, time.Millisecond)
	}

	k.absolute(at+".logs.dir", g.Logs.Dir)
	k.must(g.Logs.MaxSize >= 1<<10, at+".logs.max_size", "must be at least 1KiB, not %v", g.Logs.MaxSize)
	k.must(g.Logs.MaxLine >= 64 && (k.wrong[at+".logs.max_size"] || g.Logs.MaxLine <= g.Logs.MaxSize), at+".logs.max_line", "must be 64 to max_size, which is %v, not %v", g.Logs.MaxSize, g.Logs.MaxLine)
	k.must(g.Logs.Buffer >= g.Logs.MaxLine, at+".logs.buffer", "must be at least max_line, which is %v, not %v", g.Logs.MaxLine, g.Logs.Buffer)
	k.count(at+".logs.max_files", g.Logs.Files, 1)

	k.must(!strings.ContainsAny(g.Export.Image, " \t\r\n"), at+".export.image", "has white space in it")
	k.must(g.Export.Port >= 1 && g.Export.Port <= 65535, at+".export.grpc_port", "must be 1 to 65535, not %v", k.said(at+".export.grpc_port", g.Export.Port))
}

// reserved is what the protocols between launcher and process are about.
var reserved = []string{"LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "NOTIFY_SOCKET"}

func (k *checker) count(key string, n, least int) {
	k.must(n >= least && n <= maxInstances, key, "must be %d to %d, not %v", least, maxInstances, k.said(key, n))
}

// share checks a number of the instances that are desired. Where those are wrong, there is nothing to compare it with.
func (k *checker) share(at, name string, n, desired int) {
	key := at + "." + name
	if k.wrong[at+".desired_instances"] {
		if k.set(key) {
			k.count(key, n, 0)
		}
		return
	}
	k.must(n >= 0 && n <= desired, key, "must be 0 to desired_instances, which is %d, not %v", desired, k.said(key, n))
}

func (k *checker) duration(key string, d, least time.Duration) {
	k.must(d >= least && d <= maxDuration, key, "must be %v to %v, not %v", least, maxDuration, k.said(key, d))
	k.must(d <= 0 || d >= time.Millisecond, key, "must be 0, or at least 1ms, not %v", d)
}

func (k *checker) backoff(key string, initial, most time.Duration) {
	k.duration(key+".initial_backoff", initial, 0)
	k.duration(key+".max_backoff", most, 0)
	k.must(k.wrong[key+".initial_backoff"] || initial <= most, key+".max_backoff", "%v is shorter than initial_backoff, %v", most, initial)
}

// absolute checks the form of a path. It is one of a machine that a launcher runs on, wherever it is read.
func (k *checker) absolute(key, p string) {
	k.must(p == "" || path.IsAbs(p), key, "must be an absolute path, not %q", p)
	k.must(p == "" || p == path.Clean(p), key, "must be a plain path: %q, not %q", path.Clean(p), p)
}

func (k *checker) directory(key, p string) {
	k.absolute(key, p)
	if k.here && p != "" {
		info, err := os.Stat(p)
		k.must(err == nil && info.IsDir(), key, "%q is no directory on this machine", p)
	}
}

func (k *checker) file(key, p string) {
	k.must(p != "", key, "is missing")
	k.absolute(key, p)
	if k.here && p != "" {
		info, err := os.Stat(p)
		k.must(err == nil && info.Mode().IsRegular(), key, "%q is no file on this machine", p)
	}
}

func (k *checker) command(key, command string) {
	k.must(command != "", key, "is missing")
	if command == "" {
		return
	}
	k.must(path.IsAbs(command) || !strings.ContainsAny(command, `/\`), key,
		"must be an absolute path, or a name that is looked up in PATH, not %q", command)
	if path.IsAbs(command) {
		k.absolute(key, command)
	}
	if k.here {
		_, err := exec.LookPath(command)
		k.must(err == nil, key, "there is no program %q on this machine that can be run", command)
	}
}

// tls checks that all three files are given where they are needed, and none where they are not.
func (k *checker) tls(key string, t TLS, needed bool, by string) {
	if !needed {
		k.must(t == TLS{}, key, "is of no use without %s", by)
		return
	}
	if (t == TLS{}) {
		k.must(false, key, "is missing; %s needs cert_file, key_file and ca_file", by)
		return
	}
	k.file(key+".cert_file", t.Cert)
	k.file(key+".key_file", t.Key)
	k.file(key+".ca_file", t.CA)
}

// address checks the form of an address. Any says that there is more than one to use it.
func (k *checker) address(key string, network Network, address string, any bool) {
	if address == "" {
		return
	}
	if network == NetworkUnix {
		k.absolute(key, address)
		k.must(len(address) <= 103, key, "is %d bytes long; the path of a socket has at most 103 on all systems", len(address))
		return
	}
	_, port, _ := net.SplitHostPort(address)
	n, err := strconv.Atoi(port) // of "" there is none
	k.must(err == nil && n >= 0 && n <= 65535, key, "must be host:port with a port of 0 to 65535, not %q", address)
	k.must(!any || n == 0, key, "must have port 0, since there can be more than one instance; each reports the one it got")
}

// cycles reports groups that wait for one another, and what they wait for that is not there.
func (k *checker) cycles(c *Config) {
	const (
		visiting = 1
		visited  = 2
	)
	state := map[string]int{}
	var visit func(n int, path []string)
	visit = func(n int, path []string) {
		g := &c.Groups[n]
		state[g.Name] = visiting
		path = append(path, g.Name)
		names := map[string]string{}
		for m, d := range g.DependsOn {
			key := index(index("process_groups", n)+".depends_on", m)
			k.unique(names, d, d, key, "in the list")
			next := slices.IndexFunc(c.Groups, func(g Group) bool { return g.Name == d })
			switch {
			case next < 0:
				k.must(false, key, "there is no group %q", d)
			case state[d] == visiting:
				cycle := append(slices.Clone(path[slices.Index(path, d):]), d)
				k.must(false, key, "goes in a circle: %s", strings.Join(cycle, " waits for "))
			case state[d] == 0:
				visit(next, path)
			}
		}
		state[g.Name] = visited
	}
	for n, g := range c.Groups {
		if state[g.Name] == 0 {
			visit(n, nil)
		}
	}
}
