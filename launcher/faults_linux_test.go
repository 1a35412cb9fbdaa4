package launcher_test

import (
	"bytes"
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
)

// What the redact of a guardian panics at is not shown; the guardian goes on, so that no process is held up by its pipe.
func TestFaults_Guard(t *testing.T) {
	text := printedUnseen(t, append(guardianCommand[:2:2], "panics"))
	withheld := bytes.Count(text, []byte("web-1 out | [not shown: Redact has panicked]\n"))
	if withheld == 0 {
		t.Error("nothing is withheld")
	}
	equal(t, "lines", withheld+bytes.Count(text, []byte("web-1 out | xxx")), 5000) // the last go through the next launcher
	equal(t, "last lines", bytes.Count(text, []byte("web-1 out | all of it")), 1)
}

// A guardian whose launcher has died before it has heard the answer guards nevertheless.
func TestGuardianAnswersNobody(t *testing.T) {
	cmd := exec.CommandContext(soon(t), guardianCommand[0], guardianCommand[1:]...)
	cmd.Stdin = strings.NewReader(`{"pen":{"mark":"nobody-` + rand.Text() + `"},"dir":"` + t.TempDir() + `","self":{"mark":"self"}}` + "\n")
	answers, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	answers.Close()
	if err := cmd.Run(); err != nil {
		t.Error(err)
	}
}

// A guardian that cannot write a log says so, once, with the path and what to do; the next launcher tells of it. It is told, too,
// where the guardian could not say it either until it left.
func TestFaults_GuardWithoutLog(t *testing.T) {
	t.Run("told at once", func(t *testing.T) { guardWithoutLog(t, false) })
	t.Run("told at last", func(t *testing.T) { guardWithoutLog(t, true) })
}

func guardWithoutLog(t *testing.T, speechless bool) {
	b := newBrood(t)
	g := kept(b.of(group("web", 1, "burst", "--process-id", "{id}", "--work-duration", "1ms")))
	dir := shortDir(t)
	logs := filepath.Join(dir, "logs")
	g.Log = launcher.LogConfig{Dir: logs}
	cfg := launcher.Config{Dir: filepath.Join(dir, "d"), Guardian: guardianCommand, Groups: []launcher.GroupConfig{g}}
	first := startAnother(t, cfg, "").hears("ready")
	awaitInFile(t, launcher.StateIn(cfg.Dir), `"ready":`)
	// It is there, or it would be made anew.
	awaitFile(t, filepath.Join(logs, "web-1.log"), true)
	if err := errors.Join(os.RemoveAll(logs), os.WriteFile(logs, nil, 0o600)); err != nil { // in which nothing can be made
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
		if err := syscall.Kill(pid, syscall.SIGUSR1); err != nil { // it prints 5001 lines, and ends when the guardian has read most of them
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
	if len(alarms) != 1 || !strings.Contains(alarms[0], filepath.Join(logs, "web-1.log")) || !strings.Contains(alarms[0], "see to it that") {
		t.Errorf("what is told: %q", alarms)
	}
	if _, err := os.Stat(complaints); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it will be told again: %v", err)
	}
}
