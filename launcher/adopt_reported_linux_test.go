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

// The next launcher knows what an adopted process has said: one that has sent READY=1 and waits for
// its readiness probe becomes ready when that succeeds, and not before.
func TestLauncherDeath_NextLauncherKnowsThatProcessReportedReady(t *testing.T) {
	healthy := filepath.Join(t.TempDir(), "healthy")
	g := kept(bash(t, "systemd-notify --ready", "exec sleep 3600"))
	g.Protocol = launcher.Notify
	g.ReadinessProbe = quick(launcher.Probe{Exec: launcher.ExecAction{Command: []string{"test", "-f", healthy}}})
	g.ReadinessProbe.FailureThreshold = 2
	cfg := launcher.Config{Dir: shortDir(t), Guardian: guardianCommand, Groups: []launcher.GroupConfig{g}}
	a := startAnother(t, cfg, "")
	awaitInFile(t, filepath.Join(cfg.Dir, "state.json"), `"said_ready":true`)
	a.kill()
	b := startAnother(t, cfg, "")
	if err := os.WriteFile(healthy, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.checkLine("ready")
	os.Remove(healthy)
	awaitInFile(t, filepath.Join(cfg.Dir, "state.json"), `"warming":true`)
	b.kill()
	h := launchWith(t, cfg)
	h.waitForState("main-1", launcher.Warming)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := h.Scale(over, "main", 2, "test"); !errors.Is(err, context.Canceled) { // the context has ended, so Scale does not wait for the result
		t.Fatal(err)
	}
	h.waitForStatus("main-2", "it is started meanwhile", func(st launcher.Status) bool { return st.PID != 0 })
	if err := os.WriteFile(healthy, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	testkit.Equal(t, "time from the start", h.waitForState("main-1", launcher.Ready).Took, time.Duration(0))
	h.ready()
	testkit.Equal(t, "processes that were started", h.count(launcher.Restart), 0)
}
