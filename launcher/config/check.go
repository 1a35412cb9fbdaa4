package config

import (
	"cmp"
	"errors"
	"net"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/swansong-go/swansong/internal/mask"
	"github.com/swansong-go/swansong/launcher"
	"github.com/swansong-go/swansong/launcher/internal/address"
	"github.com/swansong-go/swansong/launcher/internal/confine"
	"github.com/swansong-go/swansong/launcher/internal/peer"
	"github.com/swansong-go/swansong/launcher/internal/spec"
)

// A checker checks a decoded file. The rules for values are those of package launcher; the checker
// adds the rules that only files have: the form of names and paths, and what must exist on this
// machine.
type checker struct {
	*decoder
	open opener // opens the files of env_file; nil if the file is for another machine
}

// here reports whether the file is for this machine, so that the programs, directories and
// certificates that it names must exist.
func (k *checker) here() bool { return k.open != nil }

// must reports a broken rule at the key, unless ok is true or the key already has an error.
func (k *checker) must(ok bool, key, format string, args ...any) {
	if !ok && !k.wrong[key] {
		k.fail(key, format, args...)
	}
}

// config checks the whole file: first each key by itself, and at last, in the method values, by the
// rules of package launcher. A key that already has an error gets no second one, and a rule that
// compares several keys is skipped if one of them has an error.
func (k *checker) config(c *Config) {
	if !k.set("total_deadline") {
		c.TotalDeadline = c.derivedTotal()
	}
	k.absolute("state_dir", c.StateDir)
	k.tlsFiles("admin.tls", c.Admin.TLS)
	k.address("metrics.address", "tcp", c.Metrics.Address)
	k.secret(c.Secret)
	names := map[string]string{}
	for n := range c.Groups {
		at := index("process_groups", n)
		k.group(at, &c.Groups[n], c)
		k.unique(names, c.Groups[n].Name, at+".name", "the name of a group")
	}
	k.addresses(c)
	k.values(c)
}

// secret checks the patterns, values and files of secrets. A message never shows a value.
func (k *checker) secret(s launcher.SecretConfig) {
	for n, p := range s.Names {
		_, err := path.Match(p, "")
		k.must(err == nil && p != "", index("secret.names", n), "must be a pattern of names, such as *_PIN")
	}
	for n, v := range s.Values {
		k.must(len(v) >= mask.MinLength || v == mask.Mark, index("secret.values", n), "must have at least %d bytes: shorter values occur by chance, and are not masked", mask.MinLength)
	}
	for n, f := range s.Files {
		k.must(f != "", index("secret.files", n), "must be an absolute path")
		k.file(index("secret.files", n), f)
	}
}

// values checks the configuration by the rules of package launcher, and reports each problem at the
// key of its field. The problem of a field without a key, which a file cannot set, is reported at
// the group with the name of the field, so that no rule is lost.
func (k *checker) values(c *Config) {
	in := c.Launcher()
	in.Dir = cmp.Or(c.StateDir, "/") // the default directory depends on the machine; it is checked when the launcher starts
	var problems spec.Problems
	errors.As(in.Validate(), &problems)
	for _, p := range problems {
		at := ""
		if p.Group >= 0 {
			at = index("process_groups", p.Group)
		}
		compared := p.ComparedWith()
		key, ok := keyOf(at, p.Field)
		switch {
		case isMapping(p.Field), slices.ContainsFunc(compared, func(f spec.Field) bool { return k.isWrong(at, f) }):
			// Report nothing: the decoder has reported the error of the mapping already, or the
			// rule compares the field with one that has an error itself.
		case !ok:
			k.fail(at, "%s: %s", p.Field, p.Rule(lastName))
		default:
			k.must(false, key, "%s", p.Rule(lastName))
		}
	}
}

// isMapping reports whether the field is an element of the list Env or Rlimits. In the file, each
// of these lists is a mapping, and the decoder has already checked its names and values; see forms.
func isMapping(f spec.Field) bool {
	return strings.HasPrefix(string(f), "Env[") || strings.HasPrefix(string(f), "Rlimits[")
}

// isWrong reports whether the key of a field already has an error.
func (k *checker) isWrong(at string, f spec.Field) bool {
	key, ok := keyOf(at, f)
	return ok && k.wrong[key]
}

// group checks a group by the rules that hold for files and not for launcher.Config. The parameter
// at is the key of the group, such as process_groups[0].
func (k *checker) group(at string, g *Group, c *Config) {
	k.must(g.Name != "", at+".name", "is missing")
	k.label(at+".name", g.Name)
	k.program(at, g, c.StateDir)
	k.instances(at, g)
	k.must(g.OnLauncherDeath != launcher.Keep || c.StateDir != "", at+".on_launcher_death",
		"keep needs a state_dir, where the next launcher finds the processes")
	k.command(at+".canary.check.command", g.Roll.Check.Command)
	k.tlsFiles(at+".lifecycle.tls", g.Transport.TLS)
	k.listeners(at, g.Listen)
	for n, h := range g.PreStop {
		k.command(index(at+".pre_stop", n)+".command", h.Command)
	}
	k.logs(at, g.Log)
	k.must(!strings.ContainsAny(g.Export.Image, " \t\r\n"), at+".export.image", "must not contain white space")
	k.must(g.Export.Port >= 1 && g.Export.Port <= 65535, at+".export.grpc_port", "must be 1 to 65535, not %d", g.Export.Port)
	k.must(g.Export.ServicePort >= 1 && g.Export.ServicePort <= 65535, at+".export.port", "must be 1 to 65535, not %d", g.Export.ServicePort)
}

// reserved are the variables that the launcher and its processes use to communicate. In a file they
// are an error; in the launcher's own environment they are only left out.
var reserved = []string{"LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "NOTIFY_SOCKET"}

// users checks that processes can run as the user and the group on this machine. The default of
// stateDir depends on the environment, and is checked when the launcher starts.
func (k *checker) users(at string, g *Group, stateDir string) {
	if !k.here() {
		return
	}
	if field, err := confine.CheckUser(g.spec(), stateDir); err != nil {
		k.must(false, at+"."+keys[field], "%v", err)
	}
}

func isReserved(name string) bool { return slices.Contains(reserved, name) }

func (k *checker) program(at string, g *Group, stateDir string) {
	if g.Name == "" && !k.set(at+".command") {
		// A group without a command runs the program that has the name of the group. Here the name
		// is missing as well. Report only the missing name, and no error of the command.
		k.wrong[at+".command"] = true
	}
	k.command(at+".command", g.Command)
	k.directory(at+".working_dir", g.WorkDir)
	k.readEnvFiles(at, g)
	k.users(at, g, stateDir)
	names := map[string]string{}
	for n, d := range g.DependsOn {
		k.unique(names, d, index(at+".depends_on", n), "in the list")
	}
}

func (k *checker) instances(at string, g *Group) {
	if g.Desired > 0 && !k.wrong[at+".desired_instances"] { // a group that is scaled to 0 keeps its number of canaries for later
		k.must(g.Roll.Canary >= 0 && g.Roll.Canary <= g.Desired, at+".canary.instances",
			"must be 0 to desired_instances, which is %d, not %d", g.Desired, g.Roll.Canary)
	}
}

func (k *checker) listeners(at string, all []launcher.Listen) {
	names := map[string]string{}
	for n, l := range all {
		key := index(at+".listeners", n)
		k.must(l.Name != "", key+".name", "is missing")
		k.label(key+".name", l.Name)
		k.unique(names, l.Name, key+".name", "the name of a listener")
		k.address(key+".address", l.Network, l.Address)
	}
}

// logs checks the sizes, which depend on each other: a line has to fit into a file and into the
// buffer. In the file, max_files includes the current log, but the field MaxFiles does not: forms
// converts the number.
func (k *checker) logs(at string, l launcher.LogConfig) {
	k.absolute(at+".logs.dir", l.Dir)
	size, line, buffer := Bytes(l.MaxSize), Bytes(l.MaxLine), Bytes(l.Buffer)
	k.must(size >= 1<<10, at+".logs.max_size", "must be at least 1KiB, not %v", size)
	k.must(line >= 64 && (k.wrong[at+".logs.max_size"] || line <= size), at+".logs.max_line", "must be 64 to max_size (%v), not %v", size, line)
	k.must(buffer >= line, at+".logs.buffer", "must be max_line (%v) or more, not %v", line, buffer)
	k.must(l.MaxFiles >= 0, at+".logs.max_files", "must be 1 or more, not %d", l.MaxFiles+1)
}

// unique reports the value of a key if an earlier key has the same value.
func (k *checker) unique(seen map[string]string, value, key, kind string) {
	if value == "" {
		return
	}
	if first, ok := seen[value]; ok {
		k.must(false, key, "%q is already %s, in line %d", value, kind, k.lines[first].line)
		return
	}
	seen[value] = key
}

// A listener is an address in the file that the launcher or a group would listen on, with its key.
type listener struct {
	key, address string
	at           address.Address
}

// addresses reports addresses that cannot be listened on at the same time. The launcher would find
// that out at its start, one address after the other; here all of them are found, with their lines.
func (k *checker) addresses(c *Config) {
	var used []listener
	use := func(key, network, text string) {
		if l, ok := k.overlap(used, key, network, text); ok {
			used = append(used, l)
		}
	}
	use("admin.address", "tcp", c.Admin.Address)
	use("metrics.address", "tcp", c.Metrics.Address)
	for n, g := range c.Groups {
		at := index("process_groups", n)
		use(at+".lifecycle.address", "tcp", g.Transport.Address)
		for m, l := range g.Listen {
			use(index(at+".listeners", m)+".address", l.Network, l.Address)
		}
	}
}

// overlap parses the address in text, and returns it and true. If the address overlaps with one of
// the addresses in used, overlap records an error for key and returns false. It does not resolve
// host names.
//
// An address whose form is wrong, or that is empty, overlaps with none: other checks report it.
func (k *checker) overlap(used []listener, key, network, text string) (_ listener, ok bool) {
	resolved := text
	if key == "metrics.address" && strings.HasPrefix(text, ":") {
		resolved = "127.0.0.1" + text // the default host of metrics.Serve
	}
	at, err := address.Parse(network, resolved)
	if err != nil || text == "" {
		return listener{}, false
	}
	for _, u := range used {
		if !at.Overlaps(u.at) {
			continue
		}
		if u.address == text {
			k.must(false, key, "%q is already used, in line %d", text, k.lines[u.key].line)
		} else {
			k.must(false, key, "%q overlaps with %q, which is already used, in line %d", text, u.address, k.lines[u.key].line)
		}
		return listener{}, false
	}
	return listener{key, text, at}, true
}

// labels are accepted by DNS, Kubernetes, systemd, Nomad and file systems. A label cannot be "..".
var labels = regexp.MustCompile(`^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`)

// label checks that a name is permitted by all targets of an export, so that every group that the
// launcher runs can also be exported.
func (k *checker) label(key, name string) {
	k.must(name == "" || labels.MatchString(name), key, "must be up to 63 of a-z, 0-9 and -, begin with a letter and not end with -, not %q", name)
}

// absolute checks the form of a path. The file can be checked on another machine than the one it is
// for, so the path must have the form of a Unix path on every system.
func (k *checker) absolute(key, p string) {
	k.must(p == "" || path.IsAbs(p), key, "must be an absolute path, not %q", p)
	k.must(p == "" || p == path.Clean(p), key, "must be a clean path: %q, not %q", path.Clean(p), p)
}

func (k *checker) directory(key, p string) {
	k.absolute(key, p)
	if k.here() && p != "" {
		info, err := os.Stat(p)
		k.must(err == nil && info.IsDir(), key, "%q is not a directory on this machine", p)
	}
}

func (k *checker) file(key, p string) {
	k.absolute(key, p)
	if k.here() && p != "" {
		info, err := os.Stat(p)
		k.must(err == nil && info.Mode().IsRegular(), key, "%q is not a file on this machine", p)
	}
}

// command checks the program of a command, if there is one. A relative path is refused: it would
// depend on the working directory of the launcher, which is another one under systemd.
func (k *checker) command(key string, command []string) {
	if len(command) == 0 || command[0] == "" {
		return
	}
	program := command[0]
	k.must(path.IsAbs(program) || !strings.ContainsAny(program, `/\`), key,
		"must be an absolute path, or a name that is looked up in PATH, not %q", program)
	if path.IsAbs(program) {
		k.absolute(key, program)
	}
	if k.here() {
		_, err := exec.LookPath(program)
		k.must(err == nil, key, "there is no executable program %q on this machine", program)
	}
}

// tlsFiles checks the paths of the files and, on the machine that the file is for, that they exist.
// Their content is read when the launcher starts.
func (k *checker) tlsFiles(key string, t launcher.TLS) {
	k.file(key+".cert_file", t.Cert)
	k.file(key+".key_file", t.Key)
	k.file(key+".ca_file", t.CA)
}

// address checks the form of an address. A host name is not looked up: the file may be for another
// machine, and a name server that is slow must not delay a check.
func (k *checker) address(key, network, address string) {
	if address == "" {
		return
	}
	if network == "unix" {
		k.absolute(key, address)
		k.must(len(address) <= peer.MaxPath, key, "is %d bytes long; the path of a socket has at most %d", len(address), peer.MaxPath)
		return
	}
	_, port, _ := net.SplitHostPort(address)
	n, err := strconv.Atoi(port)
	k.must(err == nil && n >= 0 && n <= 65535, key, "must be host:port with a port of 0 to 65535, not %q", address)
}

// derivedTotal returns the total_deadline of a file that does not set one. A file that sets exactly
// this value is treated in the same way: the output of "launcher validate" sets it, and must mean
// the same as the original file.
func (c *Config) derivedTotal() time.Duration {
	return min(max(c.StopBound()/4*5, spec.MinTotalDeadline), spec.MaxDuration)
}
