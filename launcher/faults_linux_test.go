package launcher_test

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/swansong-go/swansong/launcher"
	"github.com/swansong-go/swansong/launcher/internal/statefile"
)

// A guardian does its work even if the launcher has died before it read the guardian's answer.
func TestGuardianProcess_WorksEvenIfLauncherDiesBeforeItReadsAnswer(t *testing.T) {
	cmd := exec.CommandContext(soon(t), guardianCommand[0], guardianCommand[1:]...)
	cmd.Stdin = strings.NewReader(`{"containment":{"mark":"none-` + rand.Text() + `"},"dir":"` + t.TempDir() + `","self":{"mark":"self"}}` + "\n")
	answers, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	answers.Close()
	if err := cmd.Run(); err != nil {
		t.Error(err)
	}
}

// A guardian that cannot write a log reports that once, with the path and what to do, and the next
// launcher publishes it as an alarm. This holds, too, if the guardian could not write its report
// until it ended.
func TestGuardianProcess_ReportsUnwritableLogOnce(t *testing.T) {
	t.Run("the guardian writes its report at once", func(t *testing.T) { guardWithoutLog(t, false) })
	t.Run("the guardian writes its report when it ends", func(t *testing.T) { guardWithoutLog(t, true) })
}

func guardWithoutLog(t *testing.T, speechless bool) {
	b := newBrood(t)
	g := kept(b.of(group("web", 1, "burst", "--process-id", "{id}", "--work-duration", "1ms")))
	dir := shortDir(t)
	logs := filepath.Join(dir, "logs")
	g.Log = launcher.LogConfig{Dir: logs}
	cfg := launcher.Config{Dir: filepath.Join(dir, "d"), Guardian: guardianCommand, Groups: []launcher.GroupConfig{g}}
	first := startAnother(t, cfg, "").checkLine("ready")
	awaitInFile(t, statefile.Path(cfg.Dir), `"ready":`)
	// Wait until the launcher has made the directory logs. Otherwise the guardian would make it.
	awaitFile(t, filepath.Join(logs, "web-1.log"), true)
	// Put a file in the place of the directory, so that the guardian cannot open a log in it.
	if err := errors.Join(os.RemoveAll(logs), os.WriteFile(logs, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	complaints := filepath.Join(cfg.Dir, "guardian.err")
	if speechless {
		if err := os.Mkdir(complaints, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	first.kill()
	for _, pid := range b.alive() {
		// SIGUSR1 makes the process print 5001 lines, and end when the guardian has read most of
		// them.
		if err := syscall.Kill(pid, syscall.SIGUSR1); err != nil {
			t.Fatal(err)
		}
		awaitEnd(t, pid, tooLong)
	}

	if speechless {
		if err := os.Remove(complaints); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(logs); err != nil {
		t.Fatal(err)
	}
	h := launchWith(t, cfg).ready()
	h.drainEvents()
	var alarms []string
	for _, e := range h.events {
		if e.Kind == launcher.Alarm {
			alarms = append(alarms, e.Message)
		}
	}
	if len(alarms) != 1 || !strings.Contains(alarms[0], filepath.Join(logs, "web-1.log")) || !strings.Contains(alarms[0], "make the log writable again") {
		t.Errorf("alarms are %q", alarms)
	}
	if _, err := os.Stat(complaints); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the report was not removed: %v", err)
	}
}
