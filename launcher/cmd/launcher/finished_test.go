//go:build linux

package main_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher/client"
)

// If all groups are jobs, the launcher exits when they are done, with a code that says whether one
// has failed. With a flag it exits, or keeps running, whatever the groups are.
func TestRun_ExitsWhenJobsAreDone(t *testing.T) {
	const job = "state_dir: STATE\nprocess_groups:\n  - {name: load, kind: job, protocol: signals, restart_policy: never, command: sh, args: [-c, 'echo loaded; exit CODE']}\n"
	s := newSite(t, strings.Replace(job, "CODE", "0", 1))
	stdout, stderr, code := s.run("run", "-f", s.file())
	testkit.Equal(t, "exit code", code, 0)
	if !strings.Contains(stdout, "loaded\n") {
		t.Errorf("it prints %q\n%s", stdout, stderr)
	}

	d := s.start("-f", s.file(), "--exit-when-done=false")
	d.waitForLog("msg=finished")
	testkit.Equal(t, "answer to a restart", s.mustRun("restart", "load", "--wait"), "the job runs once more\n")
	testkit.Equal(t, "exit code of a stop", d.stop(), 0)

	s.write(strings.Replace(job, "CODE", "3", 1))
	_, stderr, code = s.run("run", "-f", s.file())
	testkit.Equal(t, "exit code after a failure", code, 1)
	if !strings.HasSuffix(stderr, "launcher: group \"load\": 1 of 1 process failed\n") {
		t.Errorf("the log:\n%s", stderr)
	}

	for _, kind := range [][]string{{"--kind", "job"}, {"--exit-when-done"}} {
		args := append(append([]string{"run", "--dir", s.dir + "/s", "--protocol", "signals"}, kind...), "--", "true")
		_, stderr, code := s.run(args...)
		testkit.Equal(t, "exit code of "+kind[0]+"\n"+stderr, code, 0)
	}
}

// If a process has to be killed at its own deadline when the launcher is stopped, the exit code is
// that of a drain that was cut short, and the last line of the log says which groups are concerned.
// Processes that were killed earlier, such as by an order, do not count.
func TestRun_ExitsWithTwoIfProcessIsKilledAtStop(t *testing.T) {
	const stubborn = "{protocol: signals, command: sh, args: [-c, 'trap \"\" TERM; echo up {id}; while :; do sleep 0.05; done'], shutdown: {grace_period: 1ms, max_duration: 1ms, sigterm_timeout: 1ms}, name: "
	s := newSite(t, "state_dir: STATE\nprocess_groups:\n  - "+stubborn+"a, desired_instances: 2}\n  - "+stubborn+"b}\n")
	d := s.start()
	for range 3 {
		d.waitForLine("up ")
	}
	s.mustRun("stop", "b", "--wait")
	testkit.Equal(t, "exit code", d.stop(), 2)
	if !strings.HasSuffix(d.log(), "\nlauncher: processes were killed, because they had not ended in time: 2 of group a; the log names each process and its deadline\n") {
		t.Errorf("the log:\n%s", d.log())
	}

	d = s.start()
	for range 3 {
		d.waitForLine("up ")
	}
	s.mustRun("stop", "a", "b", "--wait")
	testkit.Equal(t, "exit code if processes were killed only before the stop", d.stop(), 0)
}

// If a process fails when the launcher is stopped, the last line of the log says which one and how.
// The exit code stays 0: the process has ended in time, and many programs end with another code
// when they are told to stop. Processes that failed earlier are not named.
func TestRun_NamesProcessesThatFailAtStop(t *testing.T) {
	const loop = "{shutdown: {max_duration: 1m}, protocol: signals, restart_policy: never, command: sh, args: [-c, 'trap \"ACTION\" TERM; echo up {id}; while :; do sleep 0.05; done'], name: "
	s := newSite(t, "state_dir: STATE\nprocess_groups:\n"+
		"  - "+strings.Replace(loop, "ACTION", "exit 3", 1)+"a}\n"+
		"  - "+strings.Replace(loop, "ACTION", "kill -USR1 $$$$", 1)+"b}\n"+
		"  - "+strings.Replace(loop, "ACTION", "exit 0", 1)+"c}\n")
	d := s.start()
	for range 3 {
		d.waitForLine("up ")
	}
	s.waitUntil("c is ready", func(h health) bool { return h.Groups[2].Ready == 1 })
	s.mustRun("signal", "c", "USR1")
	d.waitForLog("process=c-1 from=READY to=CRASHED")
	testkit.Equal(t, "exit code", d.stop(), 0)
	const want = "\nlauncher: processes failed while the launcher was stopped: a-1: exit status 3, b-1: signal: user defined signal 1\n"
	if !strings.HasSuffix(d.log(), want) {
		t.Errorf("the log:\n%s", d.log())
	}
	if !strings.Contains(d.log(), "level=ERROR msg=transition group=a process=a-1 from=DRAINING to=CRASHED outcome=CRASHED message=\"exit status 3\"") {
		t.Errorf("the log does not say that a-1 has failed:\n%s", d.log())
	}
}

// failDrain is a process whose drain fails with a long text that has an escape sequence and a line
// break in it. It returns the exit code.
func failDrain() int {
	life, err := client.Serve()
	if err != nil {
		return 10
	}
	defer life.Close()
	life.Readiness.Set(client.Ready, "")
	life.Shutdown.Run(context.Background(), func(context.Context) error {
		return errors.New("\x1b[31mfirst\nsecond" + strings.Repeat("é", 10_000))
	})
	return 1
}

// The text with which a process has failed is shown in part, on one line, and cannot change colours
// of the terminal.
func TestRun_ShowsPartOfTextOfProcessThatFailsAtStop(t *testing.T) {
	s := newSite(t, "state_dir: STATE\nprocess_groups:\n  - {name: a, protocol: grpc, command: DIR/failing}\n")
	if err := copyOfThis(filepath.Join(s.dir, "failing")); err != nil {
		t.Fatal(err)
	}
	d := s.startReady()
	testkit.Equal(t, "exit code", d.stop(), 0)
	const begin = "\x1b[31mfirst\nsecond"
	_, says, _ := strings.Cut(d.log(), "\nlauncher: processes failed")
	testkit.Equal(t, "line at the end", says, " while the launcher was stopped: a-1:  [31mfirst second"+strings.Repeat("é", 200-len(begin))+"…\n")
}
