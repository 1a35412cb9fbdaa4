//go:build linux

package main_test

import (
	"strings"
	"testing"

	"github.com/swansong-go/swansong/internal/testkit"
)

// If all groups are jobs, the launcher exits when they are done, with a code that says whether one
// has failed. With a flag it exits, or keeps running, whatever the groups are.
func TestRun_ExitsWhenJobsAreDone(t *testing.T) {
	const job = "state_dir: STATE\nprocess_groups:\n  - {name: load, kind: job, protocol: signals, restart_policy: never, command: sh, args: [-c, 'echo loaded; exit CODE']}\n"
	s := newSite(t, strings.Replace(job, "CODE", "0", 1))
	stdout, stderr, code := s.says("run", "-f", s.file())
	testkit.Equal(t, "exit code", code, 0)
	if !strings.Contains(stdout, "loaded\n") {
		t.Errorf("it prints %q\n%s", stdout, stderr)
	}

	d := s.starts("-f", s.file(), "--exit-when-done=false")
	d.logs("msg=finished")
	testkit.Equal(t, "exit code of a stop", d.stops(), 0)

	s.write(strings.Replace(job, "CODE", "3", 1))
	_, stderr, code = s.says("run", "-f", s.file())
	testkit.Equal(t, "exit code after a failure", code, 1)
	if !strings.HasSuffix(stderr, "launcher: group \"load\": 1 of 1 process failed\n") {
		t.Errorf("the log:\n%s", stderr)
	}

	for _, kind := range [][]string{{"--kind", "job"}, {"--exit-when-done"}} {
		args := append(append([]string{"run", "--dir", s.dir + "/s", "--protocol", "signals"}, kind...), "--", "true")
		_, stderr, code := s.says(args...)
		testkit.Equal(t, "exit code of "+kind[0]+"\n"+stderr, code, 0)
	}
}
