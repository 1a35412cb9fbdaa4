//go:build linux

package main_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/swansong-go/swansong/internal/testkit"
)

// A launcher does not start with a damaged state file and a group to be kept, and names the command
// recover. The command shows what it finds, and then writes another file with which the launcher
// starts and adopts the process.
func TestRecover_ReplacesDamagedStateFile(t *testing.T) {
	s := newSite(t, "state_dir: STATE\nprocess_groups:\n  - {name: web, command: RUNNER, args: [--process-id, '{id}'], on_launcher_death: keep, "+
		"listeners: [{name: http, address: '127.0.0.1:0'}]}\n")
	d := s.startReady()
	pid := s.health().Groups[0].Processes[0].PID
	_, stderr, code := s.run("recover", "-f", s.file())
	if code != 1 || !strings.Contains(stderr, "another launcher has this directory") {
		t.Errorf("while the launcher runs: exit code %d, %q", code, stderr)
	}
	d.cmd.Process.Kill()
	<-d.ended
	path := filepath.Join(s.dir, "s", "state.json")
	if got, want := s.mustRun("recover"), "nothing to recover: "+path+" is intact or missing, and no process was found that it lacks\n"; got != want {
		t.Errorf("with an intact file: %q, want %q", got, want)
	}
	if err := os.WriteFile(path, []byte("half a fi"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, stderr, code = s.run("run", "-f", s.file())
	if code != 1 || !strings.Contains(stderr, fmt.Sprintf("run launcher recover, which writes a new one with the processes that still run: web-1 (pid %d)", pid)) {
		t.Errorf("run: exit code %d, %q", code, stderr)
	}
	adopts := fmt.Sprintf("the next launcher adopts web-1, testrunner (pid %d)\n", pid)
	const damage = "not valid JSON: invalid character 'h' looking for beginning of value"
	testkit.Equal(t, "recover --dry-run", s.mustRun("recover", "--dry-run"), adopts+path+" would be renamed and replaced: "+damage+"\n")
	got := s.mustRun("recover")
	if want := adopts + path + " was damaged (" + damage + "), and is now " + path + ".corrupt-"; !strings.HasPrefix(got, want) {
		t.Errorf("recover: %q, want %q", got, want)
	}
	s.startReady().waitForLog(fmt.Sprintf("msg=adopted group=web process=web-1 message=\"pid %d, of revision 1\"", pid))
}

// A recover that fails after it has renamed the damaged file prints one document as JSON, with the
// new name and the error.
func TestRecover_JSONHasErrorAndNewNameOfDamagedFile(t *testing.T) {
	s := newSite(t, "")
	path := filepath.Join(s.dir, "state.json")
	if err := os.WriteFile(path, []byte("half a fi"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path+".next", 0o700); err != nil { // the new file is written to this path first
		t.Fatal(err)
	}
	stdout, stderr, code := s.run("recover", "--json", "--dir", s.dir)
	testkit.Equal(t, "exit code", code, 1)
	var got struct{ SetAside, Error string }
	if err := json.Unmarshal([]byte(stdout), &got); err != nil {
		t.Fatalf("%v: %s", err, stdout)
	}
	testkit.Equal(t, "error", got.Error+"\n", stderr)
	if !strings.HasPrefix(got.Error, "launcher: cannot write the state file: ") || !strings.HasPrefix(got.SetAside, path+".corrupt-") {
		t.Errorf("recover prints %s", stdout)
	}
}
