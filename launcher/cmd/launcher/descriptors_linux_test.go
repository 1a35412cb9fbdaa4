package main_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/swansong-go/swansong/internal/testkit"
)

// A descriptor that the launcher has inherited reaches none of its processes: the reader of a pipe
// sees the end when the launcher has exited, and a process has only the descriptors of its own.
func TestRun_ProcessesInheritNoFileDescriptorOfLauncher(t *testing.T) {
	s := newSite(t, `state_dir: STATE
process_groups:
  - name: list
    kind: job
    protocol: signals
    restart_policy: never
    command: sh
    args: [-c, 'for fd in 0 1 2 3 4 5 6 7 8 9; do test -e /proc/self/fd/$fd && echo fd $fd; done; echo fd none']
`)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	d := s.daemon(exec.Command(command, "run", "-f", s.file()))
	d.cmd.Env = s.environment()
	d.cmd.ExtraFiles = []*os.File{w, w}
	d.begin()
	for _, want := range []string{"fd 0", "fd 1", "fd 2", "fd none"} {
		_, got, _ := strings.Cut(d.waitForLine("| fd "), "| ")
		testkit.Equal(t, "next descriptor of a process", got, want)
	}
	testkit.Equal(t, "exit code", d.ends(), 0)
}
