package main_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/swansong-go/swansong/internal/testkit"
	"golang.org/x/sys/unix"
)

// As the first process of a container, the launcher reaps orphans: here the process of the group
// starts only after the kernel has removed an orphan. It also passes on signals, and exits with the
// exit code of its child.
func TestInit_ReapsOrphansAndForwardsSignals(t *testing.T) {
	s := newSite(t, `state_dir: STATE
process_groups:
  - name: web
    command: sh
    args: [-c, 'sh -c "setsid true & echo \$!" > DIR/orphan; while kill -0 $(cat DIR/orphan); do sleep 0.1; done; exec RUNNER --process-id {id}']
    protocol: grpc
`)
	inside := s.inPIDNamespace()
	d := s.daemon(inside(command, "run", "-f", s.file()))
	d.begin()
	d.waitForLine("ready")
	if err := syscall.Kill(d.initPID(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-d.ended
	testkit.Equal(t, "exit, with log "+d.log(), d.cmd.ProcessState.String(), "exit status 0")

	s.write("no file")
	refused := inside(command, "run", "-f", s.file())
	var stderr bytes.Buffer
	refused.Stderr = &stderr
	refused.Run()
	testkit.Equal(t, "exit for an invalid file, with "+stderr.String(), refused.ProcessState.String(), "exit status 1")
}

// The launcher runs in a container that has a terminal, as with "docker run -it". A ^C on the
// terminal must send the launcher exactly one SIGINT, because the launcher kills its processes at a
// second one. ^Z must not suspend the launcher, because there is no shell that could continue it.
func TestInit_TerminalInterruptsOnceAndNeverSuspends(t *testing.T) {
	s := newSite(t, `state_dir: STATE
process_groups:
  - name: web
    command: sh
    args: [-c, 'trap "while ! [ -e DIR/go ]; do sleep 0.1; done; exit 0" TERM; echo trapped; while :; do sleep 0.1; done']
    protocol: signals
    shutdown: {max_duration: 1m}
`)
	master, slave := terminal(t)
	d := s.daemon(s.inPIDNamespace()("setsid", "--ctty", command, "run", "-f", s.file()))
	d.cmd.Stdin = slave
	d.begin()
	d.waitForLine("trapped") // once this line is printed, the trap is set, and the signal does not end the process any more
	types := func(key byte, shown string) {
		t.Helper()
		if _, err := master.Write([]byte{key}); err != nil {
			t.Fatal(err)
		}
		master.SetReadDeadline(time.Now().Add(tooLong))
		var said []byte
		for b := make([]byte, 100); !strings.Contains(string(said), shown); { // the terminal echoes the key after it has sent the signal
			n, err := master.Read(b)
			if err != nil {
				t.Fatal(err)
			}
			said = append(said, b[:n]...)
		}
	}
	// The terminal sends signals to its foreground process group. The first process of the
	// container must not be in that group: it forwards every signal, so the launcher would get each
	// signal twice.
	foreground, err := control(t, master, func(fd int) (int, error) { return unix.IoctlGetInt(fd, unix.TIOCGPGRP) })
	if err != nil {
		t.Fatal(err)
	}
	group, err := syscall.Getpgid(d.initPID())
	if err != nil {
		t.Fatal(err)
	}
	testkit.Equal(t, "the first process is in the foreground group", group == foreground, false)
	types('Z'-'@', "^Z")
	s.mustRun("status")
	types('C'-'@', "^C")
	d.waitForLog("SHUTDOWN_REQUESTED")
	s.mustRun("status")
	if err := os.WriteFile(filepath.Join(s.dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	testkit.Equal(t, "exit, with log "+d.log(), d.ends(), 0)
}

// inPIDNamespace returns a function that runs a command as the first process of a PID namespace.
func (s *site) inPIDNamespace() func(command ...string) *exec.Cmd {
	s.t.Helper()
	unshare := []string{"--pid", "--fork", "--mount-proc", "--kill-child"}
	if os.Geteuid() != 0 {
		unshare = append(unshare, "--user", "--map-root-user")
	}
	inside := func(command ...string) *exec.Cmd {
		cmd := exec.Command("unshare", slices.Concat(unshare, command)...)
		cmd.Env = s.environment()
		return cmd
	}
	if out, err := inside("true").CombinedOutput(); err != nil && os.Getenv("CI") == "" {
		s.t.Skipf("there are no PID namespaces to be had: %s", out)
	}
	return inside
}

// initPID returns the pid of the first process of the namespace.
func (d *daemon) initPID() int {
	d.t.Helper()
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", d.cmd.Process.Pid, d.cmd.Process.Pid))
	if err != nil {
		d.t.Fatal(err)
	}
	first, err := strconv.Atoi(strings.TrimSpace(string(children)))
	if err != nil {
		d.t.Fatal(err)
	}
	return first
}

// terminal returns both ends of a new terminal.
func terminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		if os.Getenv("CI") == "" {
			t.Skip("there are no terminals to be had: ", err)
		}
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	number, err := control(t, master, func(fd int) (int, error) {
		if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
			return 0, err
		}
		return unix.IoctlGetInt(fd, unix.TIOCGPTN)
	})
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(fmt.Sprint("/dev/pts/", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { slave.Close() })
	return master, slave
}

// control calls f with the file descriptor of a file, even if another goroutine is reading from the
// file.
func control(t *testing.T, file *os.File, f func(fd int) (int, error)) (n int, err error) {
	t.Helper()
	conn, err := file.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if e := conn.Control(func(fd uintptr) { n, err = f(int(fd)) }); e != nil {
		t.Fatal(e)
	}
	return n, err
}
