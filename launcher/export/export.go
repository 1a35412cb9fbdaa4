// Package export writes what others need to run the groups of a launcher's configuration: Deployments for Kubernetes, jobs
// for Nomad, units for systemd.
//
// Each of these knows how to replace, watch and stop processes, in its own words and not as exactly. What it has no words
// for is not passed over: see [Gap]. Secrets are not written anywhere: the files refer to them, and a gap says where they
// have to be put.
//
// A process is told how long it has, and for Kubernetes and Nomad a port, Export.Port, at which it has to serve grpc.health.v1.
// It has to take SIGTERM for what Shutdown is under the launcher. One that uses package client does all of that; one that serves
// its health at that port by itself sets SWANSONG_HEALTH_PORT to nothing in its Env.
package export

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/swansong-go/swansong/launcher/client"
	"github.com/swansong-go/swansong/launcher/config"
)

// A Result is what a target needs, and what it will not do.
type Result struct {
	Files []File
	Gaps  []Gap
}

// A File is to be given to the target.
type File struct {
	Name string // without a directory
	Text []byte
}

// A Gap is something that the configuration says and the target does not do, or does in another way.
type Gap struct {
	Group string // empty: the whole of it
	Key   string // as in the configuration
	What  string // what the target does instead, and what can be done about it
}

func (g Gap) String() string {
	if g.Group == "" {
		return fmt.Sprintf("%s: %s", g.Key, g.What)
	}
	return fmt.Sprintf("%s: %s: %s", g.Group, g.Key, g.What)
}

// Targets are those that To knows.
func Targets() []string { return slices.Sorted(maps.Keys(targets)) }

var targets = map[string]func(*config.Config) (*Result, error){"kubernetes": Kubernetes, "nomad": Nomad, "systemd": Systemd}

// To exports c to a target, by its name.
func To(target string, c *config.Config) (*Result, error) {
	f := targets[target]
	if f == nil {
		return nil, fmt.Errorf("export: there is no target %q; there are %s", target, strings.Join(Targets(), ", "))
	}
	return f(c)
}

// Write writes the files into a directory, over those of the same names.
func (r *Result) Write(dir string) error {
	for _, f := range r.Files {
		if err := os.WriteFile(filepath.Join(dir, f.Name), f.Text, 0o644); err != nil {
			return fmt.Errorf("export: %w", err)
		}
	}
	return nil
}

// Print writes the files one after the other, each under its name, so that programs can still tell them apart: what is YAML
// as documents of their own. JSON has neither names nor a second document, so more than one file of it is an error.
func (r *Result) Print(w io.Writer) error {
	var all bytes.Buffer
	for _, f := range r.Files {
		switch filepath.Ext(f.Name) {
		case ".json":
			if len(r.Files) > 1 {
				return fmt.Errorf("export: %d files of JSON do not fit into one stream, %s among them; have them written into a directory", len(r.Files), f.Name)
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

// A group is one that is being exported.
type group struct {
	*config.Group
	config *config.Config
	result *Result
}

// each calls f with each group.
func each(c *config.Config, r *Result, f func(g group) error) (*Result, error) {
	if c.TotalDeadline > 0 && !c.Launcher().TotalDeadlineDerived {
		r.Gaps = append(r.Gaps, Gap{"", "total_deadline", "there is none for all of them together; each process has the time of its own group"})
	}
	for k := range c.Groups {
		if err := f(group{&c.Groups[k], c, r}); err != nil {
			return nil, fmt.Errorf("export: %s: %w", c.Groups[k].Name, err)
		}
	}
	return r, nil
}

// ours are the variables that package client looks for, as far as the group does not set them itself.
func (g group) ours(seconds int64, probed bool) map[string]string {
	all := map[string]string{client.EnvGrace: strconv.FormatInt(seconds, 10)}
	if probed && g.Protocol == config.GRPC {
		all[client.EnvHealth] = strconv.Itoa(g.Export.Port)
	}
	maps.DeleteFunc(all, func(name, _ string) bool { _, ok := g.Env[name]; return ok })
	return all
}

// gap reports what the target does instead, where the configuration says something that it cannot do.
func (g group) gap(says bool, key, format string, args ...any) {
	if says {
		g.result.Gaps = append(g.result.Gaps, Gap{g.Name, key, fmt.Sprintf(format, args...)})
	}
}

// environment returns the variables that can be shown, and the names of those that are secrets.
func (g group) environment() (plain map[string]string, secret []string) {
	r := g.config.Redactor()
	plain = map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(g.Env)) {
		if r.Secret(name, g.Env[name]) {
			secret = append(secret, name)
		} else {
			plain[name] = g.Env[name]
		}
	}
	return plain, secret
}

// arguments returns the arguments without secrets, which no target takes from elsewhere.
func (g group) arguments() []string {
	args := g.config.Redactor().Args(g.Args)
	g.gap(!slices.Equal(args, g.Args), "args", "has a secret, which is left out; pass it by env or by a file")
	g.gap(g.mentions("{dir}") || g.mentions("{socket}"), "args", "{dir} and {socket} are paths of the launcher's, and stand there as they are; name others")
	return args
}

// mentions reports whether the launcher would put something in the place of this.
func (g group) mentions(placeholder string) bool {
	return slices.ContainsFunc(slices.Concat([]string{g.Command}, g.Args, slices.Collect(maps.Values(g.Env))), func(s string) bool {
		return strings.Contains(s, placeholder)
	})
}

// hookArguments is arguments, for a hook.
func (g group) hookArguments(h config.Hook) []string {
	args := g.config.Redactor().Args(h.Args)
	g.gap(!slices.Equal(args, h.Args), "pre_stop", "has a secret, which is left out; pass it by a file")
	g.gap(mentions(h, "{dir}") || mentions(h, "{socket}"), "pre_stop", "{dir} and {socket} are paths of the launcher's, and stand there as they are; name others")
	return args
}

// mentions is that of a group, for a hook.
func mentions(h config.Hook, placeholder string) bool {
	return slices.ContainsFunc(append([]string{h.Command}, h.Args...), func(s string) bool { return strings.Contains(s, placeholder) })
}

// bound is how long a process may take to end, once it was told to: a second more than with the launcher. A program that checks
// its own limits against this one, as package graceful does, wants them to be shorter, and by default its are as long as the launcher's.
func (g group) bound() time.Duration {
	return g.Shutdown.MaxDuration + g.Shutdown.SIGTERMTimeout + time.Second
}

// up rounds up to whole seconds, so that nothing is cut short and nothing that is short becomes none at all.
func up(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// down is for what has to be over before a limit that is kept to the millisecond. There is nothing less than a second but none.
func down(d time.Duration) int64 { return max(1, int64(d/time.Second)) }

// maxUnavailable is what the launcher calls by its complement.
func (g group) maxUnavailable() int { return g.Desired - g.MinHealthy }
