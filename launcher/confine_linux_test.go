package launcher_test

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/swansong-go/swansong/internal/proc"
	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher"
)

// scriptJob returns a job that writes what a shell script prints to a file, and the name of the
// file.
func scriptJob(t *testing.T, script string) (g launcher.GroupConfig, file string) {
	dir := t.TempDir()
	for _, d := range []string{filepath.Dir(dir), dir} { // so that a process of another user can write to the directory
		if err := os.Chmod(d, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	file = filepath.Join(dir, "out")
	g = jobThat("job", "{ "+script+"; } >"+file+" 2>&1")
	g.Restart.Policy = launcher.Never
	return g, file
}

// outputOf runs a job and returns what it has written to its file.
func outputOf(t *testing.T, g launcher.GroupConfig, file string, cfg launcher.Config) string {
	t.Helper()
	cfg.Groups = []launcher.GroupConfig{g}
	h := launchWith(t, cfg)
	if err := h.Finished(soon(t)); err != nil {
		t.Fatalf("%v\n%s", err, h.story())
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// With ClearEnv, the environment of a process contains only the variables that the group sets and
// those that the launcher adds to identify the process.
func TestClearEnv_ProcessDoesNotInheritEnvironmentOfLauncher(t *testing.T) {
	t.Setenv("OF_LAUNCHER", "visible")
	g, file := scriptJob(t, "/usr/bin/env | sort | cut -d= -f1 | grep -v ^_ | grep -v ^PWD | tr '\\n' ' '")
	g.Env = []string{"OWN=1"}
	g.ClearEnv = true
	testkit.Equal(t, "variables", outputOf(t, g, file, launcher.Config{}), "OWN SWANSONG_DIR SWANSONG_PROC SWANSONG_PROCESS_ID")
	g, file = scriptJob(t, "echo $OF_LAUNCHER")
	testkit.Equal(t, "without ClearEnv", outputOf(t, g, file, launcher.Config{}), "visible")
}

// A hook has the variables that its group sets, with the placeholders replaced, and those by which
// the launcher tells it which process it runs for. With ClearEnv it inherits none of the
// launcher's.
func TestClearEnv_HooksHaveVariablesOfGroup(t *testing.T) {
	t.Setenv("OF_LAUNCHER", "visible")
	for _, clear := range []bool{false, true} {
		file := filepath.Join(t.TempDir(), "variables")
		g := jobThat("web", "exec sleep 1000")
		g.Job, g.ClearEnv, g.Env = false, clear, []string{"OWN=of {id}"}
		g.PreStop = []launcher.Hook{{Command: []string{"/bin/sh", "-c", `echo "$OWN, $OF_LAUNCHER, $SWANSONG_PROCESS_ID" > ` + file}}}
		launch(t, g).ready().stopAndWait("web-1")
		want := "of web-1, visible, web-1\n"
		if clear {
			want = "of web-1, , web-1\n"
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		testkit.Equal(t, fmt.Sprintf("variables of the hook if ClearEnv is %v", clear), string(text), want)
	}
}

// A process runs as the user of its group, with that user's Unix groups and home directory. If the
// launcher has no privilege to change the user, because it does not run as root, Start returns an
// error.
func TestUser_RunsProcessAsUser(t *testing.T) {
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	g, file := scriptJob(t, "id -u; id -g; echo $HOME $USER; grep -c SWANSONG_PROCESS_ID /proc/self/environ")
	g.User = "nobody"
	var wrong *launcher.ConfigError
	if os.Geteuid() != 0 {
		g.User = "root"
		_, err := launcher.Start(t.Context(), launcher.Config{Dir: shortDir(t), Groups: []launcher.GroupConfig{g}})
		if !errors.As(err, &wrong) || wrong.Field != "User" || !strings.Contains(wrong.Rule, "only root") {
			t.Errorf("as an ordinary user: %v", err)
		}
		return
	}
	testkit.Equal(t, "ids, home and variables", outputOf(t, g, file, launcher.Config{}),
		nobody.Uid+"\n"+nobody.Gid+"\n"+nobody.HomeDir+" nobody\n1")
	g, file = scriptJob(t, "id -u; id -g; echo $HOME")
	g.User, g.UserGroup, g.Env = "12345", "0", []string{"HOME=/own"}
	testkit.Equal(t, "ids without names", outputOf(t, g, file, launcher.Config{}), "12345\n0\n/own")
	for _, c := range []struct{ user, group, field, rule string }{
		{"no-such-user", "", "User", `there is no user "no-such-user" on this machine`},
		{"12345", "", "User", "the user 12345 has no name on this machine, so its group is not known; name a group, too"},
		{"", "no-such-group", "UserGroup", `there is no group "no-such-group" on this machine`},
	} {
		g.User, g.UserGroup = c.user, c.group
		_, err := launcher.Start(t.Context(), launcher.Config{Dir: shortDir(t), Groups: []launcher.GroupConfig{g}})
		if !errors.As(err, &wrong) || wrong.Field != c.field || wrong.Rule != c.rule {
			t.Errorf("%+v: %v", c, err)
		}
	}
	dir := filepath.Join(shortDir(t), "state")
	g.User, g.UserGroup, g.Protocol, g.Job = "nobody", "", launcher.GRPC, false
	_, err = launcher.Start(t.Context(), launcher.Config{Dir: dir, Groups: []launcher.GroupConfig{g}})
	if !errors.As(err, &wrong) || wrong.Field != "User" || !strings.Contains(wrong.Rule, "no permission to enter "+filepath.Dir(dir)+"; choose another directory") {
		t.Errorf("in a directory that the user cannot enter: %v", err)
	}
}

// A process of another user is stopped, and leaves nothing behind.
func TestUser_LauncherStopsProcessThatRunsAsOtherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		// only root can start a process as another user; check that the launcher refuses to try
		TestUser_RunsProcessAsUser(t)
		return
	}
	g := jobThat("web", "trap '' TERM; sleep 1000 & wait")
	g.Job, g.User = false, "nobody"
	g.Shutdown.Max, g.Shutdown.Grace, g.Shutdown.SIGTERMTimeout = time.Millisecond, time.Millisecond, time.Millisecond
	h := launch(t, g).ready()
	if err := h.StopGroup(soon(t), "web", "test"); err != nil {
		t.Errorf("%v\n%s", err, h.story())
	}
	st, err := h.Process("web-1")
	if err != nil || len(st.Survivors) > 0 {
		t.Errorf("%+v, %v", st, err)
	}
}

// A process has the resource limits (Rlimits) that are configured for its group. Start refuses
// limits that the launcher cannot set.
func TestRlimits_AreSetForProcess(t *testing.T) {
	g, file := scriptJob(t, "ulimit -Sn; ulimit -Hn; ulimit -c; grep -c RLIMITS /proc/self/environ; true")
	g.Rlimits = []launcher.Rlimit{{Name: "nofile", Soft: 100, Hard: 200}, {Name: "core"}}
	cfg := launcher.Config{Helper: []string{os.Args[0], "exec", "--"}}
	testkit.Equal(t, "limits", outputOf(t, g, file, cfg), "100\n200\n0\n0")
	var wrong *launcher.ConfigError
	_, err := launcher.Start(t.Context(), launcher.Config{Dir: shortDir(t), Groups: []launcher.GroupConfig{g}})
	if !errors.As(err, &wrong) || wrong.Field != "Rlimits" || wrong.Rule != "need Config.Helper, the program that sets the limits in the process" {
		t.Errorf("without a helper: %v", err)
	}
	var own syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &own); err != nil {
		t.Fatal(err)
	}
	g.Rlimits[0].Hard = own.Max + 1
	cfg.Dir, cfg.Groups = shortDir(t), []launcher.GroupConfig{g}
	_, err = launcher.Start(t.Context(), cfg)
	if !errors.As(err, &wrong) || wrong.Field != "Rlimits" || !strings.Contains(wrong.Rule, "raise that one, under systemd with LimitNOFILE=") {
		t.Errorf("more than the launcher has: %v", err)
	}
}

// Limits of memory and processor time are kept where the machine has the controllers. Elsewhere the
// launcher refuses them, or says in an alarm that a process runs without them.
func TestLimits_AreEnforcedOrRefused(t *testing.T) {
	g := jobThat("web", "exec dd if=/dev/zero of=/dev/null bs=64M")
	g.Restart.Policy = launcher.Never
	g.Limits = launcher.LimitConfig{Memory: 16 << 20, CPUs: 0.5}
	if proc.CheckLimits(proc.Limits{Memory: 1, CPUs: 1}) == nil {
		h := launch(t, g)
		if err := h.Finished(soon(t)); err == nil {
			t.Error("no error")
		}
		if st, _ := h.Process("web-1"); st.Outcome != launcher.Crash || !strings.Contains(st.Exit, "out of memory") {
			t.Errorf("%+v\n%s", st, h.story())
		}
		return
	}
	var wrong *launcher.ConfigError
	_, err := launcher.Start(t.Context(), launcher.Config{Dir: shortDir(t), Groups: []launcher.GroupConfig{g}})
	if !errors.As(err, &wrong) || wrong.Field != "Limits" || !strings.HasPrefix(wrong.Rule, "cannot be enforced: ") {
		t.Errorf("on a machine without the controllers: %v", err)
	}
	g.Command = []string{"true"}
	g.Limits.IfUnavailable = launcher.Warn
	h := launch(t, g)
	h.readUntil("an alarm says so", func(e launcher.Event) bool {
		return e.Kind == launcher.Alarm && strings.HasPrefix(e.Message, "runs without its limits: ")
	})
	testkit.Equal(t, "outcome", h.waitForEnd("web-1").Outcome, launcher.Clean)
}
