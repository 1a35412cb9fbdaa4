//go:build linux

package main_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/swansong-go/swansong/internal/testkit"
	main "github.com/swansong-go/swansong/launcher/cmd/launcher"
	runner "github.com/swansong-go/swansong/launcher/internal/testrunner"
	"go.uber.org/goleak"
)

// tooLong is the time after which a waiting test fails.
const tooLong = time.Minute

var command, testrunner string // paths of copies of this test program with the names launcher and testrunner

// TestMain lets the test program be the launcher command, or the test runner, if it is called by
// that name. So mutants and the race detector affect the command as well.
func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case "launcher", "exe": // the name is exe if the program is executed as /proc/self/exe
		main.Main()
		os.Exit(0)
	case "testrunner":
		os.Exit(runner.Main(os.Args[1:], os.Stderr))
	case "failing":
		os.Exit(failDrain())
	}
	bin, err := os.MkdirTemp("", "swl-bin")
	if err != nil {
		panic(err)
	}
	command, testrunner = filepath.Join(bin, "launcher"), filepath.Join(bin, "testrunner")
	for _, name := range []string{command, testrunner} {
		if err := copyOfThis(name); err != nil {
			fmt.Fprintln(os.Stderr, "cannot copy the test program:", err)
			os.Exit(1)
		}
	}
	code := m.Run()
	os.RemoveAll(bin)
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// copyOfThis creates a hard link to this program, or a copy of it, with another name. A symbolic
// link would not do: a program that asks for its own path would get the target of the link.
func copyOfThis(name string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if os.Link(self, name) == nil {
		return nil
	}
	program, err := os.ReadFile(self) // copy the program, because the directory is on another file system
	if err != nil {
		return err
	}
	return os.WriteFile(name, program, 0o700)
}

// A site is a temporary directory with a configuration file and the state of a launcher.
type site struct {
	t   *testing.T
	dir string
}

// newSite creates a site with a short path, because the paths of sockets are limited.
func newSite(t *testing.T, yaml string) *site {
	t.Helper()
	dir, err := os.MkdirTemp("", "swl")
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t, dir}
	t.Cleanup(func() {
		s.checkNothingLeft()
		os.RemoveAll(dir)
	})
	s.write(yaml)
	return s
}

func (s *site) file() string { return filepath.Join(s.dir, "launcher.yaml") }

// write writes the configuration file. It replaces STATE, RUNNER and DIR in the text by paths. A
// group on one line gets protocol grpc, so that it does not depend on the speed of the machine when
// it is ready.
func (s *site) write(yaml string) {
	s.t.Helper()
	yaml = strings.NewReplacer("STATE", filepath.Join(s.dir, "s"), "command: RUNNER,", "command: "+testrunner+", protocol: grpc,", "RUNNER", testrunner, "DIR", s.dir).Replace(yaml)
	if err := os.WriteFile(s.file(), []byte(yaml), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// environment returns the environment for a process of this site. It contains a variable by which
// the test recognizes the process.
func (s *site) environment() []string {
	return append(os.Environ(), "SWL_TEST_SITE="+s.dir, "GORACE=atexit_sleep_ms=0")
}

// run runs the command, waits until it exits, and returns what it has printed and its exit code.
func (s *site) run(args ...string) (stdout, stderr string, code int) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), tooLong)
	defer cancel()
	cmd := exec.CommandContext(ctx, command, args...)
	cmd.Dir, cmd.Env = s.dir, s.environment()
	var out, err bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &err
	var exit *exec.ExitError
	if e := cmd.Run(); e != nil && !errors.As(e, &exit) {
		s.t.Fatal(e)
	}
	if ctx.Err() != nil {
		s.t.Fatalf("launcher %q does not end\n%s%s", args, &out, &err)
	}
	return out.String(), err.String(), cmd.ProcessState.ExitCode()
}

// mustRun runs the command on the file of the site, and returns its standard output. It fails the
// test if the command fails.
func (s *site) mustRun(args ...string) string {
	s.t.Helper()
	stdout, stderr, code := s.run(append(args, "-f", s.file())...)
	if code != 0 {
		s.t.Fatalf("launcher %q: exit code %d\n%s%s", args, code, stdout, stderr)
	}
	return stdout
}

// checkNothingLeft reports processes and sockets that are left over.
func (s *site) checkNothingLeft() {
	s.t.Helper()
	all, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, name := range all {
		env, err := os.ReadFile(name)
		if err == nil && slices.Contains(strings.Split(string(env), "\x00"), "SWL_TEST_SITE="+s.dir) {
			text, _ := os.ReadFile(filepath.Join(filepath.Dir(name), "cmdline"))
			s.t.Errorf("%s is still there: %q", filepath.Dir(name), text)
		}
	}
	sockets, _ := filepath.Glob(filepath.Join(s.dir, "s", "*.sock"))
	testkit.Equal(s.t, "sockets left over", sockets, []string(nil))
}

// A daemon is a running launcher.
type daemon struct {
	*site
	cmd   *exec.Cmd
	lines chan string // receives the lines of standard output
	ended chan struct{}
	wrote chan struct{} // receives a value after each write of the launcher to its log

	mu     sync.Mutex
	stderr bytes.Buffer
}

func (d *daemon) Write(b []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case d.wrote <- struct{}{}:
	default:
	}
	return d.stderr.Write(b)
}

func (d *daemon) log() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stderr.String()
}

// startReady starts a launcher, and waits until it has printed that it is ready.
func (s *site) startReady(args ...string) *daemon {
	s.t.Helper()
	d := s.start(args...)
	d.waitForLine("ready")
	return d
}

// start starts a launcher with the given arguments or, if there are none, with the configuration
// file of s. The end of the test drains the launcher.
func (s *site) start(args ...string) *daemon {
	s.t.Helper()
	if len(args) == 0 {
		args = []string{"-f", s.file()}
	}
	d := s.daemon(exec.Command(command, append([]string{"run"}, args...)...))
	d.cmd.Env = s.environment()
	d.begin()
	return d
}

// daemon returns a launcher that cmd will start.
func (s *site) daemon(cmd *exec.Cmd) *daemon {
	return &daemon{site: s, cmd: cmd, lines: make(chan string, 10_000), ended: make(chan struct{}), wrote: make(chan struct{}, 1)}
}

// begin starts the launcher.
func (d *daemon) begin() {
	d.t.Helper()
	d.cmd.Stderr = d
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // needed because no cleanup runs if this test program is killed or times out
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		d.t.Fatal(err)
	}
	if err := d.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	go func() {
		defer close(d.ended)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			d.lines <- lines.Text()
		}
		close(d.lines)
		d.cmd.Wait()
	}()
	d.t.Cleanup(func() { d.stop() })
}

// waitForLine waits for a line with the text on standard output, and returns the line.
func (d *daemon) waitForLine(text string) string {
	d.t.Helper()
	late := time.NewTimer(tooLong)
	defer late.Stop()
	for {
		select {
		case l, ok := <-d.lines:
			if !ok {
				d.t.Fatalf("the launcher has ended, and not printed %q\n%s", text, d.log())
			}
			if strings.Contains(l, text) {
				return l
			}
		case <-late.C:
			d.t.Fatalf("the launcher does not print %q\n%s", text, d.log())
		}
	}
}

// waitForLog waits until the log contains the text.
func (d *daemon) waitForLog(text string) {
	d.t.Helper()
	late := time.NewTimer(tooLong)
	defer late.Stop()
	for !strings.Contains(d.log(), text) {
		select {
		case <-d.wrote:
		case <-late.C:
			d.t.Fatalf("the launcher does not log %q\n%s", text, d.log())
		}
	}
}

// stop drains the launcher, and returns its exit code.
func (d *daemon) stop() int {
	d.t.Helper()
	d.cmd.Process.Signal(syscall.SIGTERM)
	return d.ends()
}

func (d *daemon) ends() int {
	d.t.Helper()
	select {
	case <-d.ended:
	case <-time.After(tooLong):
		d.cmd.Process.Kill()
		<-d.ended
		d.t.Errorf("the launcher does not end\n%s", d.log())
	}
	return d.cmd.ProcessState.ExitCode()
}
