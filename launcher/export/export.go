// Package export writes the files to run the groups of a launcher's configuration on another
// platform, called a target: Deployments for Kubernetes, jobs for Nomad, units for systemd.
//
// A target can replace, check and stop processes as well, but not all settings have a counterpart.
// Each setting that the target does not support, or supports in another way, is reported: see
// [Gap]. Secrets are not written to the files. The files refer to them, and a gap says where to
// store them.
//
// A process gets the time limit of its shutdown as an environment variable. For Kubernetes and
// Nomad it also gets the port at which it must serve grpc.health.v1: Export.Port. It must handle
// SIGTERM as it handles Shutdown under the launcher. Package client does all of this. A program
// that serves its health at that port without package client sets SWANSONG_HEALTH_PORT to an empty
// string in its Env.
package export

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/swansong-go/swansong/launcher"
	"github.com/swansong-go/swansong/launcher/client"
	"github.com/swansong-go/swansong/launcher/config"
	"github.com/swansong-go/swansong/launcher/internal/spec"
)

// A Result has the files for a target, and the gaps: the settings that the target does not support,
// or supports in another way. The gaps are in the order of the groups. A setting that was left at
// its default has a gap, too, if the target does something else.
type Result struct {
	Files []File
	Gaps  []Gap
}

// A File is one file for the target, complete and with a line break at its end.
type File struct {
	Name string // the name of the file, without a directory
	Text []byte
}

// A Gap is a setting that the target does not support, or supports in another way.
type Gap struct {
	Group string // empty if the setting does not belong to a group
	Key   string // the key in the configuration file
	What  string // what the target does instead, and what the user can do
}

func (g Gap) String() string {
	if g.Group == "" {
		return fmt.Sprintf("%s: %s", g.Key, g.What)
	}
	return fmt.Sprintf("%s: %s: %s", g.Group, g.Key, g.What)
}

// Targets returns the names of the targets.
func Targets() []string { return slices.Sorted(maps.Keys(targets)) }

// targets has the function that exports to a target, by the name of the target in the command
// export.
var targets = map[string]func(*config.Config) (*Result, error){"kubernetes": Kubernetes, "nomad": Nomad, "systemd": Systemd}

// To exports a configuration to the target with the name.
func To(target string, c *config.Config) (*Result, error) {
	f := targets[target]
	if f == nil {
		return nil, fmt.Errorf("export: unknown target %q; the targets are %s", target, strings.Join(Targets(), ", "))
	}
	return f(c)
}

// Write writes the files to an existing directory, and overwrites files with the same names. The
// files have no secrets, so every user may read them. After an error some files may have been
// written.
func (r *Result) Write(dir string) error {
	for _, f := range r.Files {
		if err := os.WriteFile(filepath.Join(dir, f.Name), f.Text, 0o644); err != nil {
			return fmt.Errorf("export: %w", err)
		}
	}
	return nil
}

// Print writes all files to w, each after a comment with its name. YAML files are separate
// documents. Print returns an error if there is more than one JSON file, because JSON has neither
// comments nor documents.
func (r *Result) Print(w io.Writer) error {
	var all bytes.Buffer
	for _, f := range r.Files {
		switch filepath.Ext(f.Name) {
		case ".json":
			if len(r.Files) > 1 {
				return fmt.Errorf("export: %d JSON files, such as %s, cannot be written to one stream; write them to a directory", len(r.Files), f.Name)
			}
		case ".yaml":
			fmt.Fprintf(&all, "---\n# %s\n", f.Name)
		default:
			fmt.Fprintf(&all, "# %s\n", f.Name)
		}
		all.Write(f.Text)
	}
	_, err := w.Write(all.Bytes())
	return err
}

func (r *Result) file(name string, text []byte) { r.Files = append(r.Files, File{name, text}) }

// A group holds what is needed to export one group of the configuration. Each target is a set of
// its methods, which return a part of a file or add gaps to the result.
type group struct {
	*config.Group
	masked *config.Group // the same group without secrets
	config *config.Config
	result *Result
}

// each calls f for each group, and returns r. If f fails, the error names the group, and there is
// no result: the files of the other groups could be taken for all files.
func each(c *config.Config, r *Result, f func(g group) error) (*Result, error) {
	if c.TotalDeadline > 0 && !c.Launcher().TotalDeadlineDerived {
		r.Gaps = append(r.Gaps, Gap{"", "total_deadline", "there is no deadline for all groups together; each process has the deadline of its group"})
	}
	masked := c.Masked()
	for k := range c.Groups {
		g, err := complete(c.Groups[k])
		if err == nil {
			err = f(group{&g, &masked.Groups[k], c, r})
		}
		if err != nil {
			return nil, fmt.Errorf("export: %s: %w", c.Groups[k].Name, err)
		}
	}
	return r, nil
}

// complete returns the group with the defaults that depend on other settings. A group from a file
// already has them; one that a program has made may lack them.
func complete(g config.Group) (config.Group, error) {
	hasNoProgram := func(h launcher.Hook) bool { return len(h.Command) == 0 }
	if len(g.Command) == 0 || len(g.Shutdown.StopSignals) == 0 || slices.ContainsFunc(g.PreStop, hasNoProgram) {
		return g, errors.New("has no Command or StopSignals, or a hook without Command; begin with launcher.DefaultGroup, or read a file")
	}
	if g.MaxSurge == nil {
		g.MaxSurge = launcher.Int(spec.Default().MaxSurge)
	}
	if g.MinHealthy == nil {
		g.MinHealthy = launcher.Int(spec.DefaultMinHealthy(g.Desired, *g.MaxSurge))
	}
	return g, nil
}

// clientVariables returns the environment variables that package client reads, except for those
// that the configuration of the group sets.
//
// They tell the process that it has the given number of seconds for its shutdown. The port of the
// health service is set only if probed is true, that is, if the target probes that service: a
// process that is not probed need not open it.
func (g group) clientVariables(seconds int64, probed bool) map[string]string {
	all := map[string]string{client.EnvGrace: strconv.FormatInt(seconds, 10)}
	if probed && g.servesHealth() {
		all[client.EnvHealth] = strconv.Itoa(g.Export.Port)
	}
	for _, v := range g.Env {
		name, _, _ := strings.Cut(v, "=")
		delete(all, name)
	}
	return all
}

// gap adds a gap to the result if isSet is true, which means that the configuration uses a setting
// that the target does not support.
//
// There is one call for each gap, in a long list: so a reader of the code sees when a setting is
// reported, and with which words. The key is the one in the file, without that of the group.
func (g group) gap(isSet bool, key, format string, args ...any) {
	if isSet {
		g.result.Gaps = append(g.result.Gaps, Gap{g.Name, key, fmt.Sprintf(format, args...)})
	}
}

// environment returns the variables without secrets, and the names of those with a secret. A
// variable has a secret if the launcher would mask it in its output. The variables in the files of
// env_file are in neither result: what is exported refers to an env_file as a whole.
func (g group) environment() (plain map[string]string, secret []string) {
	plain = map[string]string{}
	for i, v := range g.Env {
		name, value, _ := strings.Cut(v, "=")
		if g.masked.Env[i] != v {
			secret = append(secret, name)
		} else {
			plain[name] = value
		}
	}
	return plain, secret
}

// arguments returns the arguments without secrets. Unlike environment variables, arguments cannot
// be read from a store of secrets.
func (g group) arguments() []string {
	args := g.masked.Command[1:]
	g.gap(!slices.Equal(args, g.Command[1:]), "args", "has a secret, which is not exported; pass it by env or by a file")
	g.gap(g.mentions("{dir}") || g.mentions("{socket}"), "args", "{dir} and {socket} are paths of the launcher, and are not replaced; use other paths")
	return args
}

// mentions reports whether a placeholder such as {dir} is in the command, an argument or a variable
// of the group.
func (g group) mentions(placeholder string) bool {
	return contains(slices.Concat(g.Command, g.Env), placeholder)
}

// hookArguments returns the arguments of the hook with this index without secrets.
func (g group) hookArguments(n int) []string {
	h, args := g.PreStop[n].Command, g.masked.PreStop[n].Command[1:]
	g.gap(!slices.Equal(args, h[1:]), "pre_stop", "has a secret, which is not exported; pass it by a file")
	g.gap(contains(h, "{dir}") || contains(h, "{socket}"), "pre_stop", "{dir} and {socket} are paths of the launcher, and are not replaced; use other paths")
	return args
}

// contains reports whether one of the texts contains the placeholder.
func contains(texts []string, placeholder string) bool {
	return slices.ContainsFunc(texts, func(s string) bool { return strings.Contains(s, placeholder) })
}

// bound returns the time that a process has from SIGTERM to SIGKILL. That is one second more than
// under the launcher, for the sake of package graceful: it requires that its own limits are
// shorter, and by default they are as long as those of the launcher.
func (g group) bound() time.Duration {
	return g.Shutdown.Max + g.Shutdown.SIGTERMTimeout + time.Second
}

// up rounds up to whole seconds, so that a limit is not shortened, and a short one does not become
// 0.
func up(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// down rounds a duration down to whole seconds, but to at least 1. It is for durations that must
// end before the time limit of the target.
func down(d time.Duration) int64 { return max(1, int64(d/time.Second)) }

// maxUnavailable returns how many instances may be missing during a roll.
func (g group) maxUnavailable() int { return g.Desired - *g.MinHealthy }
