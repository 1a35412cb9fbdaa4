package main_test

import (
	"fmt"
	"os"
	"path/filepath"
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

// A program that fails long before it could take over, for instance because its flags or its file are
// wrong, executes the earlier one again, too.
func TestUpgrade_GoesBackIfNewProgramFailsEarly(t *testing.T) {
	s := newSite(t, `
state_dir: STATE
process_groups:
  - name: web
    command: RUNNER
    args: [--process-id, "{id}"]
`)
	d := s.runs()
	before := d.status().pids()
	bad := filepath.Join(s.dir, "bad.yaml")
	if err := os.WriteFile(bad, []byte("colour: green\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(s.dir, "script")
	for args, want := range map[string]string{
		"run --no-such-flag": "no-such-flag",
		"run -f " + bad:      "colour: unknown key",
		"run --dir " + filepath.Join(s.dir, "s") + " --desired -1 -- /bin/true": "Desired",
	} {
		// It answers for the arguments of the launcher, and begins with others.
		lie := fmt.Sprintf("#!/bin/sh\n[ $1 = upgrade-check ] && exec %s \"$@\"\nexec %s %s\n", command, command, args)
		if err := os.WriteFile(script, []byte(lie), 0o700); err != nil {
			t.Fatal(err)
		}
		_, stderr, code := s.says("upgrade", "-f", s.file(), script)
		if code != 1 || !strings.Contains(stderr, "has taken over, and has failed") || !strings.Contains(stderr, want) {
			t.Errorf("%s: code %d\n%s\nwant: %s", args, code, stderr, want)
		}
		testkit.Equal(t, "processes", d.awaits("settled", settled).pids(), before)
	}
	d.must("upgrade")
	testkit.Equal(t, "processes", d.awaits("settled", settled).pids(), before)
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
