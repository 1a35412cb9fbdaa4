package main_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// As the first process of a container, the launcher has somebody wait for orphans: here, no process starts before the kernel has
// forgotten one. It is told of signals, and ends as it does elsewhere.
func TestFirstProcess(t *testing.T) {
	s := newSite(t, `state_dir: STATE
process_groups:
  - name: web
    command: sh
    args: [-c, 'sh -c "setsid true & echo \$!" > DIR/orphan; while kill -0 $(cat DIR/orphan); do sleep 0.01; done; exec RUNNER --process-id {id}']
`)
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
		t.Skipf("there are no PID namespaces to be had: %s", out)
	}
	d := &daemon{site: s, cmd: inside(command, "run", "-f", s.file()), lines: make(chan string, 10_000), ended: make(chan struct{}), wrote: make(chan struct{}, 1)}
	d.begin()
	d.prints("ready")
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", d.cmd.Process.Pid, d.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	first, err := strconv.Atoi(strings.TrimSpace(string(children)))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(first, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-d.ended
	equal(t, "how it ends with "+d.log(), d.cmd.ProcessState.String(), "exit status 0")

	s.write("no file")
	refused := inside(command, "run", "-f", s.file())
	var stderr bytes.Buffer
	refused.Stderr = &stderr
	refused.Run()
	equal(t, "how it ends where it does not begin, with "+stderr.String(), refused.ProcessState.String(), "exit status 1")
}
