//go:build unix

package launcher_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher"
)

// jobThat returns a job with one process that runs a shell script.
func jobThat(name, script string) launcher.GroupConfig {
	g := group(name, 1, "")
	g.Command, g.Protocol, g.Job = []string{"/bin/sh", "-c", script}, launcher.Signals, true
	g.Restart = launcher.RestartConfig{MinBackoff: time.Millisecond, MaxBackoff: time.Millisecond, CrashLimit: 2}
	return g
}

// Finished waits for all groups, and says what has failed and what was not started because of that.
func TestFinished_ErrorNamesGroupsThatFailedOrWereNotStarted(t *testing.T) {
	never := jobThat("load", "exit 3")
	never.Restart.Policy = launcher.Never
	waits := jobThat("report", "exit 0")
	waits.DependsOn = []string{"web"}
	last := jobThat("mail", "exit 0")
	last.DependsOn = []string{"report"}
	for name, c := range map[string]struct {
		groups []launcher.GroupConfig
		want   string
	}{
		"jobs that end":       {[]launcher.GroupConfig{jobThat("a", "exit 0"), jobThat("b", "exit 0")}, ""},
		"a group of 0":        {[]launcher.GroupConfig{runners("none", 0)}, ""},
		"a failure":           {[]launcher.GroupConfig{never, jobThat("b", "exit 0")}, `launcher: group "load": 1 of 1 process failed`},
		"a group given up":    {[]launcher.GroupConfig{jobThat("a", "exit 3")}, `launcher: group "a": given up after 2 failures in a row; the last: a-2: CRASHED: exit status 3; restart the group when that is fixed`},
		"groups that wait":    {[]launcher.GroupConfig{group("web", 1, "exit", "0"), waits, last}, "launcher: group \"report\" did not start: it waits until group \"web\" is healthy, but \"web\" has finished and will not be healthy\nlauncher: group \"mail\" did not start: it waits until group \"report\" is healthy, but \"report\" did not start either"},
		"a group that starts": {[]launcher.GroupConfig{jobThat("web", "exit 0"), waits}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := launch(t, c.groups...)
			got := ""
			if err := h.Finished(soon(t)); err != nil {
				got = err.Error()
			}
			testkit.Equal(t, "error", got, c.want)
		})
	}
}

// Finished waits as long as a process runs, and as long as one is to be started. An order begins
// the wait again.
func TestFinished_WaitsWhileProcessRunsOrIsToBeStarted(t *testing.T) {
	dir := t.TempDir()
	gate := filepath.Join(dir, "gate")
	h := launch(t, jobThat("fast", "exit 0"), jobThat("slow", "until [ -e "+gate+" ]; do sleep 0.1; done; [ -e "+gate+"2 ] || { touch "+gate+"2; exit 3; }"))
	h.waitForEnd("fast-1")
	ended, cancel := context.WithCancel(soon(t))
	cancel()
	if err := h.Finished(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("while a job runs: %v\n%s", err, h.story())
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	testkit.Equal(t, "error", h.Finished(soon(t)), nil)
	testkit.Equal(t, "state of the second try", stateOf(h, "slow-2"), launcher.Complete)
}

// Finished returns an error when the launcher is stopped.
func TestFinished_ReturnsWhenLauncherIsStopped(t *testing.T) {
	h := launch(t, runners("web", 1)).ready()
	result := make(chan error)
	go func() { result <- h.Finished(context.Background()) }()
	h.Shutdown()
	if err := <-result; err == nil {
		t.Error("no error")
	}
}
