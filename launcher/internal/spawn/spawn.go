// Package spawn prepares what processes and their hooks are started with: programs, arguments and
// environments.
package spawn

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/swansong-go/swansong/internal/proc"
	"github.com/swansong-go/swansong/launcher/client"
	"github.com/swansong-go/swansong/launcher/internal/confine"
	"github.com/swansong-go/swansong/launcher/internal/spec"
)

// Environment variables of the processes of a launcher. If its state file is damaged, the next
// launcher finds the processes by these variables.
const (
	EnvDir  = "SWANSONG_DIR"               // the directory of the launcher; set in its processes, and in the guardian that watches it
	EnvKeep = "SWANSONG_ON_LAUNCHER_DEATH" // set to "keep" in processes that outlive their launcher; not set in other processes
)

// InheritedEnv returns env without the variables that a launcher or a service manager has set only
// for this program, not for its children.
//
// A launcher can itself run under a launcher or under systemd. If its processes inherited these
// variables, they could send notifications in its name, or take the listeners that it has inherited
// for their own.
func InheritedEnv(env []string) []string {
	var kept []string
	for _, v := range env {
		switch name, _, _ := strings.Cut(v, "="); name {
		case client.EnvID, client.EnvAddress, client.EnvLauncher, client.EnvCert, client.EnvKey, client.EnvCA, client.EnvHealth,
			"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "NOTIFY_SOCKET", client.EnvGrace, confine.EnvRlimits,
			EnvDir, EnvKeep, "WATCHDOG_USEC", "WATCHDOG_PID", "MAINPID":
		default:
			kept = append(kept, v)
		}
	}
	return kept
}

// Inherited returns the part of an environment that a process of the group inherits. With ClearEnv
// that is at most one variable: the one by which an outer launcher, under which this one runs,
// recognizes the descendants of its processes.
func Inherited(cfg spec.Group, env []string) []string {
	if !cfg.ClearEnv {
		return env
	}
	return slices.DeleteFunc(slices.Clone(env), func(v string) bool { return !strings.HasPrefix(v, proc.MarkVariable+"=") })
}

// Resolve returns a command with the path of its program, if that is found in the PATH of this
// program. The program that will execute the command can have another PATH. If it is not found, the
// command stays as it is, and the program that executes it reports the error.
func Resolve(args []string) []string {
	path, err := exec.LookPath(args[0])
	if err != nil {
		return args
	}
	return append([]string{path}, args[1:]...)
}

// LookUp returns an error if a command cannot be started with the working directory dir. If dir is
// empty, that is the directory of the launcher. A relative path with a separator is relative to
// dir, as for the kernel. A name without a separator is looked up in the PATH of the launcher.
func LookUp(command, dir string) error {
	if dir != "" && strings.ContainsRune(command, filepath.Separator) && !filepath.IsAbs(command) {
		command = filepath.Join(dir, command)
	}
	_, err := exec.LookPath(command)
	return err
}

// Placeholders are what {id}, {dir}, {socket} and {port} in the commands of a process stand for.
type Placeholders struct {
	ID, Group string // the name of the process, such as web-1, and that of its group
	Dir       string // the launcher's directory
	Socket    string // a path at which the process can listen
	Port      int    // a port at which the process can listen; 0 if its configuration mentions none
}

// replacer returns a Replacer for the placeholders. Without a port, {port} stays as it is.
func (p Placeholders) replacer() *strings.Replacer {
	pairs := []string{"{id}", p.ID, "{dir}", p.Dir, spec.SocketPlaceholder, p.Socket}
	if p.Port != 0 {
		pairs = append(pairs, spec.PortPlaceholder, strconv.Itoa(p.Port))
	}
	return strings.NewReplacer(pairs...)
}

// Probed returns the group with the placeholders in its probes replaced. The group of the caller
// stays as it is: it is shared by the processes of the group, which have other values.
func (p Placeholders) Probed(g spec.Group) spec.Group {
	expand := p.replacer()
	for _, probe := range []*spec.Probe{&g.StartupProbe, &g.ReadinessProbe, &g.LivenessProbe} {
		*probe = probe.Expand(expand)
	}
	return g
}

// Command returns the arguments and the environment of the process, which inherits the launcher's
// environment. In the order of the variables, those of the user replace inherited ones, those of
// the configuration replace both, and those of the launcher come last.
//
// If the user cannot be looked up, Command leaves its variables out and returns no error: the start
// looks the user up itself, and fails.
func (p Placeholders) Command(cfg spec.Group, inherited []string) (args, env []string) {
	expand := p.replacer()
	for _, a := range cfg.Command {
		args = append(args, expand.Replace(a))
	}
	env = InheritedEnv(inherited)
	if _, user, _, err := confine.LookUp(cfg); err == nil {
		env = append(env, user...)
	}
	env = append(env, p.configured(cfg)...)
	env = append(env, client.EnvID+"="+p.ID, EnvDir+"="+p.Dir)
	if cfg.OnLauncherDeath == spec.Keep {
		env = append(env, EnvKeep+"="+string(spec.Keep))
	}
	return args, env
}

// HookCommand returns the arguments and the environment of a hook of the process whose pid is pid.
// Like the process, the hook inherits the launcher's environment and has the variables of the
// configuration.
func (p Placeholders) HookCommand(cfg spec.Group, h spec.Hook, pid int, inherited []string) (args, env []string) {
	expand := p.replacer()
	for _, a := range h.Command {
		args = append(args, expand.Replace(a))
	}
	return args, p.about(append(InheritedEnv(inherited), p.configured(cfg)...), pid)
}

// configured returns the variables of the configuration, with placeholders replaced.
func (p Placeholders) configured(cfg spec.Group) (env []string) {
	expand := p.replacer()
	for _, v := range cfg.Env {
		name, value, _ := strings.Cut(v, "=")
		env = append(env, name+"="+expand.Replace(value))
	}
	return env
}

// about adds the environment variables that tell a hook or a probe for which process it is run.
func (p Placeholders) about(env []string, pid int) []string {
	return append(env, client.EnvID+"="+p.ID, "SWANSONG_PROCESS_GROUP="+p.Group, fmt.Sprintf("SWANSONG_PROCESS_PID=%d", pid))
}

// ProbeEnv returns the environment for commands that probe the process whose pid is pid. It is the
// environment of the process, with the variables that name the process, and without those by which
// the process speaks to the launcher.
func (p Placeholders) ProbeEnv(cfg spec.Group, pid int, inherited []string) []string {
	_, env := p.Command(cfg, inherited)
	return p.about(env, pid)
}
