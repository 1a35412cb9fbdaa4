//go:build unix

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// The test of the mutant starts a process and does not end it. The tool kills that process.
func TestRun_KillsProcessesThatTestLeaves(t *testing.T) {
	root := writeModule(t, []entry{inN("leaves", "# x\ntest: TestAbs_WithProcessLeftBehind\n"+noSign)})
	var out bytes.Buffer
	if code := run(t.Context(), []string{"-C", root}, &out); code != 0 {
		t.Fatalf("exit code %d:\n%s", code, out.String())
	}
	text, err := os.ReadFile(filepath.Join(root, "left.pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(string(text))
	if err != nil {
		t.Fatal(err)
	}
	for isRunning(pid) { // SIGKILL takes effect a little later
		time.Sleep(time.Millisecond)
	}
}

// isRunning reports whether a process runs. One that has ended, but for which no process has waited
// yet, does not.
func isRunning(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	_, state, _ := bytes.Cut(stat, []byte(") "))
	return !bytes.HasPrefix(state, []byte("Z"))
}
