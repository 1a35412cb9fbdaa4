package main_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/swansong-go/swansong/internal/testkit"
)

// A process that has named another one as its main process and has exited leaves that one in its
// process group. An upgrade reaps the first one, and does not touch the other.
func TestUpgrade_KeepsProcessThatIsFollowed(t *testing.T) {
	s := newSite(t, `
state_dir: STATE
process_groups:
  - name: web
    command: /bin/bash
    args: [-c, 'trap "" PIPE; bash -c "trap \"exit 0\" TERM; systemd-notify --ready --pid=\$\$; touch DIR/up; while :; do sleep 0.01; done" </dev/null & until [ -e DIR/up ]; do sleep 0.01; done']
    protocol: notify
`)
	d := s.runs()
	d.logs("takes the place")
	d.awaits("exited", func(status) bool { return d.zombies() == 1 })
	before := d.status().pids()
	for range 2 {
		d.must("upgrade")
		testkit.Equal(t, "processes", d.awaits("settled", settled).pids(), before)
		testkit.Equal(t, "zombies", d.zombies(), 0)
	}
	d.must("stop", "web-1", "--wait", "--no-replacement")
}

// zombies returns how many children of the launcher have exited and have not been reaped.
func (d *daemon) zombies() (n int) {
	d.t.Helper()
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", d.cmd.Process.Pid, d.cmd.Process.Pid))
	if err != nil {
		d.t.Fatal(err)
	}
	for _, pid := range strings.Fields(string(children)) {
		if stat, _ := os.ReadFile("/proc/" + pid + "/stat"); strings.Contains(string(stat), ") Z ") {
			n++
		}
	}
	return n
}
