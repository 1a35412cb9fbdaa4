//go:build linux

package main_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/swansong-go/swansong/internal/testkit"
)

// onlyOnce is the last part of the error for a file that a launcher could not read again.
const onlyOnce = " cannot be read: it is no regular file, so the launcher can read it only once, at its start; use a regular file"

// pipe creates a named pipe.
func (s *site) pipe(name string) string {
	s.t.Helper()
	pipe := filepath.Join(s.dir, name)
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		s.t.Fatal(err)
	}
	return pipe
}

// release ends the wait of all programs that are opening the pipe. A test that has failed calls it
// at its end, so that no program waits for ever.
func release(pipe string) {
	if f, err := os.OpenFile(pipe, os.O_RDWR, 0); err == nil {
		f.Close()
	}
}

// refuses runs a command that must fail with this error. If it does not, or fails with another
// error, the test ends at once: the next commands might wait for a writer of the pipe.
func (s *site) refuses(want string, args ...string) {
	s.t.Helper()
	_, stderr, code := s.run(args...)
	testkit.Equal(s.t, "error of "+strings.Join(args, " "), stderr, want+"\n")
	testkit.Equal(s.t, "exit code", code, 1)
	if s.t.Failed() {
		s.t.FailNow()
	}
}

// A launcher can start with a file that is a named pipe, but cannot read it again: it could wait
// for ever for a program that writes to the pipe. So a reload and an upgrade return an error at
// once.
func TestReload_RefusesNamedPipe(t *testing.T) {
	s := newSite(t, web)
	text, err := os.ReadFile(s.file())
	if err != nil {
		t.Fatal(err)
	}
	pipe := s.pipe("pipe")
	wrote := make(chan error, 1)
	go func() { wrote <- os.WriteFile(pipe, text, 0o600) }()
	d := s.start("-f", pipe)
	t.Cleanup(func() { release(pipe) })
	d.waitForLine("ready")
	if err := <-wrote; err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(s.dir, "s")
	notUpgraded := "launcher: not upgraded to " + command + ": the new program cannot take over: " + pipe + ":" + onlyOnce + "; this launcher goes on"
	s.refuses(pipe+":"+onlyOnce, "reload", "--dir", dir, "-f", pipe)
	s.refuses(pipe+":"+onlyOnce, "reload", "--dir", dir, "--wait")
	s.refuses(notUpgraded, "upgrade", "--dir", dir, "-f", pipe)
	s.refuses(notUpgraded, "upgrade", "--dir", dir, "--dry-run")
	d.cmd.Process.Signal(syscall.SIGHUP)
	d.waitForLog("msg=reload error=\"" + pipe + ":" + onlyOnce)
	testkit.Equal(t, "exit code of the launcher", d.stop(), 0)
}

// A launcher that starts waits for a program that writes to a named pipe of env_file, says so, and
// starts when the program has written.
func TestRun_SaysWhichNamedPipeItWaitsFor(t *testing.T) {
	s := newSite(t, web+"    env_file: [DIR/env]\n")
	pipe := s.pipe("env")
	t.Cleanup(func() { release(pipe) })
	d := s.start()
	d.waitForLog("launcher: waiting for a program that writes to the pipe " + pipe + "\n")
	if err := os.WriteFile(pipe, []byte("A=1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d.waitForLine("ready")
	testkit.Equal(t, "exit code of the launcher", d.stop(), 0)
}

// A file of env_file that has become a named pipe is refused by a reload and an upgrade, at its
// line. Nothing waits for a program that writes to the pipe, and the launcher can be stopped.
func TestReload_RefusesNamedPipeAsEnvFile(t *testing.T) {
	s := newSite(t, web+"    env_file: [DIR/env]\n")
	variables := filepath.Join(s.dir, "env")
	if err := os.WriteFile(variables, []byte("A=1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := s.startReady()
	if err := os.Remove(variables); err != nil {
		t.Fatal(err)
	}
	s.pipe("env")
	t.Cleanup(func() { release(variables) })
	want := s.file() + ":6:16: process_groups[0].env_file[0]: " + variables + onlyOnce
	s.refuses(want, "reload", "-f", s.file(), "--dry-run")
	s.refuses(want, "reload", "-f", s.file())
	s.refuses("launcher: not upgraded to "+command+": the new program cannot take over: "+want+"; this launcher goes on", "upgrade", "-f", s.file(), "--dry-run")
	d.cmd.Process.Signal(syscall.SIGHUP)
	d.waitForLog("msg=reload error=\"" + want)
	testkit.Equal(t, "exit code of the launcher", d.stop(), 0)
}

// recover reads no pipe as the configuration file, in env_file, or as the state file. So it never
// waits for a program that writes to the pipe, and does not take from a pipe what the next launcher
// is to read. A launcher does not read a pipe as its state file, either.
func TestRecover_RefusesNamedPipe(t *testing.T) {
	s := newSite(t, web+"    env_file: [DIR/env]\n")
	pipe := s.pipe("env")
	wrote := make(chan error, 1)
	go func() { wrote <- os.WriteFile(pipe, []byte("A=1\n"), 0o600) }()
	t.Cleanup(func() { // give the pipe a reader, so that the goroutine that writes ends
		if f, err := os.OpenFile(pipe, os.O_RDWR, 0); err == nil {
			defer f.Close()
		}
		<-wrote
	})
	s.refuses(pipe+":"+onlyOnce, "recover", "-f", pipe)
	s.refuses(pipe+":"+onlyOnce, "recover", "-f", pipe, "--dir", s.dir)
	s.refuses(s.file()+":6:16: process_groups[0].env_file[0]: "+pipe+onlyOnce, "recover", "-f", s.file())
	state := s.pipe("state.json")
	t.Cleanup(func() { release(state) })
	for _, args := range [][]string{{"recover"}, {"run", "--", command}} {
		s.refuses("launcher: cannot use the state file "+state+": open "+state+": it is no regular file; the file is unchanged: restore the right one, or move it away to start without it. "+
			"Then no launcher manages the processes that an earlier one left running, and they have to be ended by hand: they have SWANSONG_DIR="+s.dir+" in their environment",
			append([]string{args[0], "--dir", s.dir}, args[1:]...)...)
	}
}

// A command that needs the file only to find the launcher's directory does not read a named pipe,
// and says what to name instead. With --dir it does not need the file; the launcher then says which
// file it reads.
func TestCommands_DoNotReadNamedPipeToFindLauncher(t *testing.T) {
	s := newSite(t, web)
	d := s.startReady()
	pipe := s.pipe("pipe")
	t.Cleanup(func() { release(pipe) })
	for _, args := range [][]string{{"status"}, {"stop", "web"}, {"reload"}, {"upgrade", "--dry-run"}} {
		s.refuses(pipe+": cannot be read: it is no regular file; to find the launcher, name its directory by --dir", append(args, "-f", pipe)...)
	}
	s.refuses("launcher: the launcher was started with "+s.file()+", not with "+pipe+"; nothing was applied. Edit "+s.file()+", or start a launcher with "+pipe,
		"reload", "-f", pipe, "--dir", filepath.Join(s.dir, "s"))
	if _, stderr, code := s.run("status", "-f", pipe, "--dir", filepath.Join(s.dir, "s")); code != 0 {
		t.Errorf("status with --dir: exit code %d, %s", code, stderr)
	}
	testkit.Equal(t, "exit code of the launcher", d.stop(), 0)
}
