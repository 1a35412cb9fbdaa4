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

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher"
)

// A wrong configuration is refused with group, field and rule, and nothing is started.
func TestStart_RefusesInvalidConfiguration(t *testing.T) {
	for _, c := range []struct {
		name  string
		bad   func(c *launcher.Config)
		field string
		rule  string
	}{
		{"no groups", func(c *launcher.Config) { c.Groups = nil }, "Groups", "at least one group"},
		{"no directory", func(c *launcher.Config) { c.Dir = "" }, "Dir", "is missing"},
		{"a duplicate name", func(c *launcher.Config) { c.Groups = append(c.Groups, c.Groups[0]) }, "Name", "another group"},
		{"a name with a path", func(c *launcher.Config) { c.Groups[0].Name = "../etc" }, "Name", "must be up to 63 letters"},
		{"a name of dots", func(c *launcher.Config) { c.Groups[0].Name = ".." }, "Name", "must be up to 63 letters"},
		{"no command", func(c *launcher.Config) { c.Groups[0].Command = nil }, "Command", "name a program"},
		{"a missing program", func(c *launcher.Config) { c.Groups[0].Command = []string{"no-such-program"} }, "Command", "not found"},
		{"a missing directory", func(c *launcher.Config) { c.Groups[0].WorkDir = "/no/such" }, "WorkDir", "no such file"},
		{"no surge with all healthy", func(c *launcher.Config) {
			c.Groups[0].MaxSurge, c.Groups[0].MinHealthy = launcher.Int(0), launcher.Int(2)
		}, "MaxSurge", "no way to replace an instance"},
		{"MinHealthy above Desired", func(c *launcher.Config) { c.Groups[0].MinHealthy = launcher.Int(3) }, "MinHealthy", "must be 0 to Desired, which is 2, not 3"},
		{"a negative surge", func(c *launcher.Config) { c.Groups[0].MaxSurge = launcher.Int(-1) }, "MaxSurge", "-1"},
		{"a duration without a unit", func(c *launcher.Config) { c.Groups[0].Shutdown.Grace = 3 }, "Shutdown.Grace", "at least 1ms"},
		{"Grace above Max", func(c *launcher.Config) { c.Groups[0].Shutdown.Grace = time.Minute }, "Shutdown.Grace", "longer than Shutdown.Max"},
		{"an unknown signal", func(c *launcher.Config) { c.Groups[0].Shutdown.StopSignals = []string{"SIGKILL"} }, "Shutdown.StopSignals", "must be SIGTERM"},
		{"an unknown policy", func(c *launcher.Config) { c.Groups[0].Restart.Policy = "sometimes" }, "Restart.Policy", "must be always, on-failure or never, not"},
		{"an unknown dependency", func(c *launcher.Config) { c.Groups[0].DependsOn = []string{"x"} }, "DependsOn", "no group"},
		{"a dependency on itself", func(c *launcher.Config) { c.Groups[0].DependsOn = []string{"web"} }, "DependsOn", "cycle"},
		{"an address that cannot be listened on", func(c *launcher.Config) {
			c.Groups[0].Listen = []launcher.Listen{{Address: "127.0.0.1:0"}, {Network: "unix", Address: "/no/such/socket"}}
		}, "Listen", "no such file"},
		{"a host name in two groups", func(c *launcher.Config) {
			other := runners("other", 1)
			other.Listen = []launcher.Listen{{Address: "no.such.host.invalid:80"}}
			c.Groups[0].Listen = other.Listen
			c.Groups = append(c.Groups, other)
		}, "Listen", `group "web" already listens on tcp no.such.host.invalid:80`},
		{"a host name in two groups, on two networks", func(c *launcher.Config) {
			other := runners("other", 1)
			other.Listen = []launcher.Listen{{Network: "tcp4", Address: "no.such.host.invalid:80"}}
			c.Groups[0].Listen = []launcher.Listen{{Address: "no.such.host.invalid:80"}}
			c.Groups = append(c.Groups, other)
		}, "Listen", `group "web" already listens on tcp no.such.host.invalid:80, which conflicts with tcp4 no.such.host.invalid:80`},
		{"a host name and all addresses", func(c *launcher.Config) {
			c.Groups[0].Listen = []launcher.Listen{{Address: ":80"}, {Address: "no.such.host.invalid:80"}}
		}, "Listen", `group "web" already listens on tcp :80, which conflicts with tcp no.such.host.invalid:80`},
		{"a log file that cannot be created", func(c *launcher.Config) { c.Groups[0].Log.Path = "/no/such/log" }, "Log.Path", "no such file"},
		{"a directory with a long path", func(c *launcher.Config) { c.Dir += strings.Repeat("x", 100) }, "Name", "shorten"},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := shortDir(t)
			cfg := launcher.Config{Dir: filepath.Join(root, "d"), Groups: []launcher.GroupConfig{runners("web", 2)}}
			cfg.Groups[0].Shutdown.Max = 30 * time.Second
			c.bad(&cfg)
			m, err := launcher.Start(context.Background(), cfg)
			if err == nil {
				m.Shutdown().Wait(soon(t))
				t.Fatal("Start returned no error")
			}
			var rule *launcher.ConfigError
			if !errors.As(err, &rule) {
				t.Fatalf("%T: %v", err, err)
			}
			testkit.Equal(t, "field", rule.Field, c.field)
			if !strings.Contains(rule.Rule, c.rule) {
				t.Errorf("the rule is %q, want %q in it", rule.Rule, c.rule)
			}
			for _, name := range []string{"launcher.sock", "web-1.sock"} {
				if _, err := os.Lstat(filepath.Join(cfg.Dir, name)); err == nil {
					t.Errorf("%s is left over", name)
				}
			}
		})
	}
}

// Secrets are neither in errors nor in events.
func TestStart_ShowsNoSecretsInErrorsAndEvents(t *testing.T) {
	// The launcher cannot know that the argument is secret, so it does not mask it.
	const secret, argument = "hunter2", "swordfish"
	g := runners("web", 1)
	g.Env = append(g.Env, secret)
	_, err := launcher.Start(context.Background(), launcher.Config{Dir: shortDir(t), Groups: []launcher.GroupConfig{g}})
	if err == nil {
		t.Error("an Env that is not NAME=value was accepted")
	}
	if strings.Contains(testkit.ErrorText(err), secret) {
		t.Errorf("the error has the secret: %v", err)
	}
	g = runners("web", 1)
	g.Env = append(g.Env, "PASSWORD="+secret)
	g.Command = append(g.Command, "--unknown-flag="+argument)
	g.Restart.Policy = launcher.Never
	h := launch(t, g)
	h.waitForEnd("web-1")
	if strings.Contains(h.story(), secret) || strings.Contains(h.story(), argument) {
		t.Errorf("an event has the secret or the argument:\n%s", h.story())
	}
}
