//go:build unix

package launcher_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/swansong-go/swansong/launcher"
)

// A configuration that cannot work is refused by group, field and rule, and nothing is started.
func TestBadConfigurations(t *testing.T) {
	for _, c := range []struct {
		name  string
		bad   func(c *launcher.Config)
		field string
		rule  string
	}{
		{"no groups", func(c *launcher.Config) { c.Groups = nil }, "Groups", "nothing to launch"},
		{"no directory", func(c *launcher.Config) { c.Dir = "" }, "Dir", "is empty"},
		{"twice the same name", func(c *launcher.Config) { c.Groups = append(c.Groups, c.Groups[0]) }, "Name", "another group"},
		{"a name that leads elsewhere", func(c *launcher.Config) { c.Groups[0].Name = "../etc" }, "Name", "part of file names"},
		{"a name that is hidden", func(c *launcher.Config) { c.Groups[0].Name = ".." }, "Name", "part of file names"},
		{"no command", func(c *launcher.Config) { c.Groups[0].Command = nil }, "Command", "name a program"},
		{"a command that is not there", func(c *launcher.Config) { c.Groups[0].Command = []string{"no-such-program"} }, "Command", "not found"},
		{"a directory that is not there", func(c *launcher.Config) { c.Groups[0].WorkDir = "/no/such" }, "WorkDir", "no such file"},
		{"surge 0, and all have to be healthy", func(c *launcher.Config) {
			c.Groups[0].MaxSurge, c.Groups[0].MinHealthy = launcher.Int(0), launcher.Int(2)
		}, "MinHealthy", "lets nothing be replaced"},
		{"more healthy than there are", func(c *launcher.Config) { c.Groups[0].MinHealthy = launcher.Int(3) }, "MinHealthy", "more than the 2 desired"},
		{"a negative surge", func(c *launcher.Config) { c.Groups[0].MaxSurge = launcher.Int(-1) }, "MaxSurge", "-1"},
		{"a duration without its unit", func(c *launcher.Config) { c.Groups[0].Shutdown.Grace = 3 }, "Shutdown.Grace", "unit"},
		{"grace beyond the maximum", func(c *launcher.Config) { c.Groups[0].Shutdown.Grace = time.Minute }, "Shutdown.Grace", "longer than Shutdown.Max"},
		{"a signal that is none", func(c *launcher.Config) { c.Groups[0].Shutdown.StopSignals = []string{"SIGKILL"} }, "Shutdown.StopSignals", "none of"},
		{"a policy that is none", func(c *launcher.Config) { c.Groups[0].Restart.Policy = "sometimes" }, "Restart.Policy", "none of"},
		{"a group that is not there", func(c *launcher.Config) { c.Groups[0].DependsOn = []string{"x"} }, "DependsOn", "no group"},
		{"a group that needs itself", func(c *launcher.Config) { c.Groups[0].DependsOn = []string{"web"} }, "DependsOn", "circle"},
		{"an address that is taken", func(c *launcher.Config) {
			c.Groups[0].Listen = []launcher.Listen{{Address: "127.0.0.1:0"}, {Network: "unix", Address: "/no/such/socket"}}
		}, "Listen", "no such file"},
		{"a host that two groups name", func(c *launcher.Config) {
			other := runners("other", 1)
			other.Listen = []launcher.Listen{{Address: "no.such.host.invalid:80"}}
			c.Groups[0].Listen = other.Listen
			c.Groups = append(c.Groups, other)
		}, "Listen", `group "web" has tcp no.such.host.invalid:80 already`},
		{"a host that two groups name, on two networks", func(c *launcher.Config) {
			other := runners("other", 1)
			other.Listen = []launcher.Listen{{Network: "tcp4", Address: "no.such.host.invalid:80"}}
			c.Groups[0].Listen = []launcher.Listen{{Address: "no.such.host.invalid:80"}}
			c.Groups = append(c.Groups, other)
		}, "Listen", `group "web" has tcp no.such.host.invalid:80, and with it tcp4 no.such.host.invalid:80, already`},
		{"a host beside every address", func(c *launcher.Config) {
			c.Groups[0].Listen = []launcher.Listen{{Address: ":80"}, {Address: "no.such.host.invalid:80"}}
		}, "Listen", `group "web" has tcp :80, and with it tcp no.such.host.invalid:80, already`},
		{"a log that cannot be", func(c *launcher.Config) { c.Groups[0].Log.Path = "/no/such/log" }, "Log.Path", "no such file"},
		{"a directory with a long name", func(c *launcher.Config) { c.Dir += strings.Repeat("x", 100) }, "Name", "shorten"},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := shortDir(t)
			cfg := launcher.Config{Dir: filepath.Join(root, "d"), Groups: []launcher.GroupConfig{runners("web", 2)}}
			cfg.Groups[0].Shutdown.Max = 30 * time.Second
			c.bad(&cfg)
			m, err := launcher.Start(context.Background(), cfg)
			if err == nil {
				m.Shutdown().Wait(soon(t))
				t.Fatal("it was started")
			}
			var rule *launcher.ConfigError
			if !errors.As(err, &rule) {
				t.Fatalf("%T: %v", err, err)
			}
			equal(t, "field", rule.Field, c.field)
			if !strings.Contains(rule.Rule, c.rule) {
				t.Errorf("it says %q, and not %q", rule.Rule, c.rule)
			}
			for _, name := range []string{"launcher.sock", "web-1.sock"} {
				if _, err := os.Lstat(filepath.Join(cfg.Dir, name)); err == nil {
					t.Errorf("%s was left behind", name)
				}
			}
		})
	}
}

// What may be a secret is in no error and in no event.
func TestNoSecretIsTold(t *testing.T) {
	const secret = "hunter2"
	g := runners("web", 1)
	g.Env = append(g.Env, secret)
	_, err := launcher.Start(context.Background(), launcher.Config{Dir: shortDir(t), Groups: []launcher.GroupConfig{g}})
	if err == nil {
		t.Error("an Env that is not NAME=value was taken")
	}
	if strings.Contains(errText(err), secret) {
		t.Errorf("it is in the error: %v", err)
	}
	g = runners("web", 1)
	g.Env = append(g.Env, "PASSWORD="+secret)
	g.Command = append(g.Command, "--unknown-flag="+secret)
	g.Restart.Policy = launcher.Never
	h := launch(t, g)
	h.ends("web-1")
	if strings.Contains(h.story(), secret) {
		t.Errorf("it is in an event:\n%s", h.story())
	}
}
