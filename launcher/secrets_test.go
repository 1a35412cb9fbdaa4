//go:build unix

package launcher_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher"
)

// printing returns a group of one process that prints lines.
func printing(name string, lines ...string) launcher.GroupConfig {
	return script(name, 1, "echo '"+strings.Join(lines, "'; echo '")+"'")
}

// shown returns the lines that a process has printed, up to a line "end", as the launcher shows
// them.
func (h *harness) shown(process string) string {
	h.t.Helper()
	lines, more, stop, err := h.Printed(process, 100)
	if err != nil {
		h.t.Fatal(err)
	}
	defer stop()
	ctx := soon(h.t)
	var all []string
	for len(all) == 0 || all[len(all)-1] != "end" {
		if len(lines) == 0 {
			select {
			case l := <-more:
				lines = append(lines, l)
			case <-ctx.Done():
				h.t.Fatalf("%s has printed %q, and no end", process, all)
			}
		}
		if lines[0].Stream == "out" {
			all = append(all, lines[0].Text)
		}
		lines = lines[1:]
	}
	return strings.Join(all, "\n")
}

// The launcher finds secrets in its own environment, in variables and arguments of groups, and in
// files, and masks them in the output of all groups.
func TestSecrets_AreMaskedWhereverTheyComeFrom(t *testing.T) {
	t.Setenv("INHERITED_TOKEN", "from the launcher")
	file := filepath.Join(t.TempDir(), "db")
	if err := os.WriteFile(file, []byte("from a file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	web := printing("web", "1: from the launcher", "2: from a group", "3: from-an-argument", "4: from a file", "5: from the config", "6: from a name", "7: aHVudGVyMi1vZi11cmw=",
		"8: from a hook", "9: from a check", "max_tokens=4096 password=x", "end")
	other := runners("other", 1)
	other.Env = append(other.Env, "DB_PASSWORD=from a group", "CARD_PIN=from a name", "URL=redis://:hunter2-of-url@cache")
	other.Command = []string{"/bin/sh", "-c", "exec " + os.Args[0] + " --process-id {id}", "--token", "from-an-argument"}
	other.PreStop = []launcher.Hook{{Command: []string{"/bin/true", "--secret=from a hook"}}}
	other.Roll = launcher.RollConfig{Canary: 1, Check: launcher.CanaryCheck{Command: []string{"/bin/true", "--secret", "from a check"}}}
	h := launchWith(t, launcher.Config{Groups: []launcher.GroupConfig{web, other},
		Secrets: launcher.SecretConfig{Names: []string{"*_PIN"}, Values: []string{"from the config"}, Files: []string{file}}}).ready()
	testkit.Equal(t, "lines", h.shown("web-1"), "1: ***\n2: ***\n3: ***\n4: ***\n5: ***\n6: ***\n7: ***\n8: ***\n9: ***\nmax_tokens=4096 password=x\nend")
}

// Output of a group with Unmasked is left as it is. Events and the status are masked all the same.
func TestSecrets_UnmaskedGroupShowsItsOutput(t *testing.T) {
	var out bytes.Buffer
	web := printing("web", "hunter2", "end")
	web.Unmasked = true
	h := launchWith(t, launcher.Config{Groups: []launcher.GroupConfig{web}, Output: &out, Secrets: launcher.SecretConfig{Values: []string{"hunter2"}}}).ready()
	testkit.Equal(t, "lines", h.shown("web-1"), "hunter2\nend")
	web.Unmasked = false
	if err := h.Reload(soon(t), launcher.Config{Dir: h.dir, Groups: []launcher.GroupConfig{web}, Secrets: launcher.SecretConfig{Values: []string{"hunter2"}}}, "hunter2"); err != nil {
		t.Fatal(err)
	}
	testkit.Equal(t, "processes after a reload without Unmasked", h.running("web")[0].ID, "web-1")
	if err := h.StopProcess("web-1", launcher.Stop{Reason: "of hunter2", NoReplacement: true}); err != nil {
		t.Fatal(err)
	}
	testkit.Equal(t, "reason", h.waitForEnd("web-1").Reason, "of ***")
	h.close()
	h.drainEvents()
	for _, e := range h.events {
		if strings.Contains(e.Message, "hunter2") {
			t.Errorf("event shows the secret: %+v", e)
		}
	}
	testkit.Equal(t, "lines in the output", strings.Count(out.String(), "web-1 out | hunter2\n"), 1)
}

// Secret files are read again when a process starts, because it may be started in order to use a
// changed secret.
func TestSecrets_ChangedFileIsReadWhenProcessStarts(t *testing.T) {
	file := filepath.Join(t.TempDir(), "db")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("first secret")
	web := printing("web", "first secret, second secret", "end")
	h := launchWith(t, launcher.Config{Groups: []launcher.GroupConfig{web}, Secrets: launcher.SecretConfig{Files: []string{file}}}).ready()
	testkit.Equal(t, "lines", h.shown("web-1"), "***, second secret\nend")
	write("second secret")
	if err := h.Restart(soon(t), "web", "test"); err != nil {
		t.Fatal(err)
	}
	testkit.Equal(t, "lines after the change", h.shown("web-2"), "first secret, ***\nend")
	write(strings.Repeat("x", 64<<10+1))
	if err := h.Restart(soon(t), "web", "test"); err != nil {
		t.Fatal(err)
	}
	testkit.Equal(t, "lines while the file cannot be read", h.shown("web-3"), "first secret, ***\nend")
	h.readUntil("an alarm", func(e launcher.Event) bool {
		return e.Kind == launcher.Alarm && e.Message == "the secret in "+file+" cannot be masked: the file is larger than 64 KiB"
	})
}

// A launcher that cannot read its secrets does not start. If it cannot read them at a reload, it
// refuses the reload.
func TestSecrets_UnreadableFileIsRefused(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "db")
	cfg := launcher.Config{Dir: shortDir(t), Groups: []launcher.GroupConfig{runners("web", 1)}}
	h := launchWith(t, cfg).ready()
	cfg.Secrets.Files = []string{missing}
	_, err := launcher.Start(t.Context(), cfg)
	var wrong *launcher.ConfigError
	if !errors.As(err, &wrong) || wrong.Field != "Secrets.Files" || !strings.Contains(err.Error(), missing) {
		t.Errorf("Start returns %v", err)
	}
	if err := h.Reload(soon(t), cfg, "test"); !errors.As(err, &wrong) || wrong.Field != "Secrets.Files" || !errors.Is(err, launcher.ErrNotReloaded) {
		t.Errorf("Reload returns %v", err)
	}
}

// A reload makes the launcher mask the new secrets. The old ones are masked until no process has
// them any more.
func TestReload_MasksOldSecretsUntilNoProcessHasThem(t *testing.T) {
	web := printing("web", "first secret, second secret", "end")
	with := func(secret string) launcher.GroupConfig {
		g := web
		g.Env = append(g.Env[:len(g.Env):len(g.Env)], "TOKEN="+secret)
		return g
	}
	h := launch(t, with("first secret")).ready()
	testkit.Equal(t, "lines", h.shown("web-1"), "***, second secret\nend")
	if err := h.Reload(soon(t), launcher.Config{Dir: h.dir, Groups: []launcher.GroupConfig{with("second secret")}}, "test"); err != nil {
		t.Fatal(err)
	}
	testkit.Equal(t, "lines while the old process runs", h.shown("web-2"), "***, ***\nend")
	h.waitForEnd("web-1")
	if err := h.Restart(soon(t), "web", "test"); err != nil {
		t.Fatal(err)
	}
	testkit.Equal(t, "lines after its end", h.shown("web-3"), "first secret, ***\nend")
}
