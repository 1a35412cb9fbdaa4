package main_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/swansong-go/swansong/internal/testkit"
	"golang.org/x/sys/unix"
)

// A process that has named another one as its main process and has exited leaves that one in its
// process group. An upgrade reaps the first one, and does not touch the other.
func TestUpgrade_KeepsProcessNamedByMAINPID(t *testing.T) {
	s := newSite(t, `
state_dir: STATE
process_groups:
  - name: web
    command: /bin/bash
    args: [-c, 'trap "" PIPE; bash -c "trap \"exit 0\" TERM; systemd-notify --ready --pid=\$\$; touch DIR/up; while :; do sleep 0.1; done" </dev/null & until [ -e DIR/up ]; do sleep 0.1; done']
    protocol: notify
`)
	d := s.startReady()
	d.waitForLog("takes the place")
	d.waitForStatus("exited", func(status) bool { return d.zombies() == 1 })
	before := d.status().pids()
	for range 2 {
		d.mustRun("upgrade")
		testkit.Equal(t, "processes", d.waitForStatus("settled", settled).pids(), before)
		testkit.Equal(t, "zombies", d.zombies(), 0)
	}
	d.mustRun("stop", "web-1", "--wait", "--no-replacement")
}

// If the new program fails, it executes the earlier program again, even if it fails long before it
// could take over, for instance because its flags or its file are wrong. The process then has the
// name of the earlier program again.
func TestUpgrade_ExecutesOldProgramIfNewOneFailsBeforeTakeover(t *testing.T) {
	s := newSite(t, webFile+`    env: {API_TOKEN: hunter2hunter2}
`)
	d := s.startReady()
	before := d.status().pids()
	comm := fmt.Sprintf("/proc/%d/comm", d.cmd.Process.Pid)
	name, err := os.ReadFile(comm)
	if err != nil {
		t.Fatal(err)
	}
	bad := filepath.Join(s.dir, "bad.yaml")
	if err := os.WriteFile(bad, []byte("colour: green\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"run --no-such-flag": "no-such-flag",
		"run -f " + bad:      "colour: unknown key",
		"run --dir " + filepath.Join(s.dir, "s") + " --desired -1 -- /bin/true": "Desired",
		"run -f /nowhere/hunter2hunter2.yaml":                                   "/nowhere/***.yaml", // the secret in the path is masked in the error
	} {
		_, stderr, code := s.run("upgrade", "-f", s.file(), s.liar("exec "+command+" "+args))
		if code != 1 || !strings.Contains(stderr, "has taken over, and has failed") || !strings.Contains(stderr, want) {
			t.Errorf("%s: code %d\n%s\nwant: %s", args, code, stderr, want)
		}
		testkit.Equal(t, "processes", d.waitForStatus("settled", settled).pids(), before)
		now, err := os.ReadFile(comm)
		if err != nil {
			t.Fatal(err)
		}
		testkit.Equal(t, "name of the process", string(now), string(name))
	}
	d.mustRun("upgrade")
	testkit.Equal(t, "processes", d.waitForStatus("settled", settled).pids(), before)
}

// If the new program ends before it has taken over, the launcher is gone, and the command says so
// at once.
func TestUpgrade_SaysThatNewProgramEndedBeforeTakeover(t *testing.T) {
	s := newSite(t, webFile)
	d := s.startReady()
	pid, _ := d.guardian()
	guardian, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(guardian)
	_, stderr, code := s.run("upgrade", "-f", s.file(), s.liar("exit 3"))
	if code != 1 || !strings.HasPrefix(stderr, "launcher: the new program has ended before it has taken over") {
		t.Errorf("code %d: %s", code, stderr)
	}
	testkit.Equal(t, "exit code of the launcher", d.ends(), 3)
	// The guardian ends later than the launcher, because it has to end the processes first.
	n, err := 0, error(unix.EINTR)
	for err == unix.EINTR { // a signal of the Go runtime can interrupt poll
		n, err = unix.Poll([]unix.PollFd{{Fd: int32(guardian), Events: unix.POLLIN}}, int(tooLong.Milliseconds()))
	}
	if n != 1 {
		t.Errorf("the guardian does not end: %v", err)
	}
}

// The launcher starts its guardian, and the helpers that become processes, from the program that it
// runs itself. If the file of that program has been replaced, before an upgrade or because one was
// undone, it does not start the new file.
func TestRun_StartsHelpersFromRunningProgramEvenIfFileIsReplaced(t *testing.T) {
	s := newSite(t, `
state_dir: STATE
process_groups:
  - name: web
    command: /bin/sleep
    args: ['1000']
    rlimits: {core: 0}
`)
	program := filepath.Join(s.dir, "launcher")
	if err := copyOfThis(program); err != nil {
		t.Fatal(err)
	}
	d := s.daemon(exec.Command(program, "run", "-f", s.file()))
	d.cmd.Env = s.environment()
	d.begin()
	d.waitForLine("ready")
	if err := os.Rename(s.liar("exit 1"), program); err != nil {
		t.Fatal(err)
	}
	d.mustRun("restart", "web", "--wait")
	_, name := d.guardian()
	if name != "launcher" {
		t.Errorf("the guardian is called %q", name)
	}
}

// guardian returns the pid of the guardian, and its name, as ps shows it.
func (d *daemon) guardian() (pid int, name string) {
	d.t.Helper()
	for _, child := range d.children() {
		args, _ := os.ReadFile("/proc/" + child + "/cmdline")
		if strings.Contains(string(args), "\x00guard\x00") {
			comm, _ := os.ReadFile("/proc/" + child + "/comm")
			pid, _ = strconv.Atoi(child)
			return pid, strings.TrimSpace(string(comm))
		}
	}
	d.t.Fatal("the launcher has no guardian")
	return 0, ""
}

// A process has removed the secrets from its environment, and a reload has replaced them in the
// file. After an upgrade, the launcher still masks the secrets that the process was started with.
func TestUpgrade_StillMasksSecretsOfProcess(t *testing.T) {
	s := newSite(t, `
state_dir: STATE
process_groups:
  - name: web
    command: /usr/bin/env
    args: [-i, /bin/sh, -c, 'trap "cat DIR/secret; exit 0" TERM; touch DIR/up; while :; do sleep 0.1; done']
    env: {API_TOKEN: first-secret}
    protocol: signals
`)
	d := s.startReady()
	d.waitForStatus("up", func(status) bool { _, err := os.Stat(filepath.Join(s.dir, "up")); return err == nil })
	if err := os.WriteFile(filepath.Join(s.dir, "secret"), []byte("it was first-secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(s.file())
	if err != nil {
		t.Fatal(err)
	}
	d.mustRun("upgrade")
	s.write(strings.Replace(string(text), "first-secret", "second-secret", 1))
	d.mustRun("reload", "--wait")
	if line := d.waitForLine("it was "); !strings.HasSuffix(line, "it was ***") {
		t.Error(line)
	}
}

// liar returns a program that answers the check of an upgrade as the launcher command does, and
// then does something else.
func (s *site) liar(does string) string {
	s.t.Helper()
	script := filepath.Join(s.dir, "script")
	text := fmt.Sprintf("#!/bin/sh\n[ $1 = upgrade-check ] && exec %s \"$@\"\n%s\n", command, does)
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
		s.t.Fatal(err)
	}
	return script
}

// A launcher receives a stop signal during an upgrade, shortly before it executes the new program.
// The signal stops the launcher once, whether the new program takes over or executes the old
// program again.
func TestUpgrade_LosesNoStopSignal(t *testing.T) {
	for _, args := range []string{`"$@"`, "run --no-such-flag"} {
		s := newSite(t, `
state_dir: STATE
process_groups:
  - name: slow
    command: /bin/sh
    args: [-c, 'trap "sleep 0.5; exit 0" TERM; touch DIR/up; while :; do sleep 0.1; done']
    protocol: signals
`)
		d := s.startReady()
		d.waitForStatus("up", func(status) bool { _, err := os.Stat(filepath.Join(s.dir, "up")); return err == nil })
		// The replaced program has received SIGTERM (15) and SIGINT (2) and forwards both to the
		// new one. SIGTERM stops the new program. It must then ignore SIGINT, which would be a
		// second stop signal and make it kill its processes.
		s.run("upgrade", "-f", s.file(), s.liar("SWANSONG_UPGRADE_SIGNALS=15,2 exec "+command+" "+args))
		testkit.Equal(t, "exit code after "+args, d.ends(), 0)
		if log := d.log(); strings.Contains(log, "FORCED") || strings.Contains(log, "KILLED") {
			t.Errorf("a process was killed\n%s", log)
		}
	}
}

// An upgrade is refused if the address for metrics is in use. If the new program finds that only
// after it has taken over, the processes go on without metrics.
func TestUpgrade_IsRefusedIfMetricsAddressIsInUse(t *testing.T) {
	const yaml = `
state_dir: STATE
metrics: {address: '%s'}
process_groups:
  - name: web
    command: RUNNER
    args: [--process-id, "{id}"]
`
	used, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer used.Close()
	s := newSite(t, fmt.Sprintf(yaml, "127.0.0.1:0"))
	d := s.startReady()
	before := d.status().pids()
	other := filepath.Join(s.dir, "other.yaml")
	free, err := os.ReadFile(s.file())
	if err != nil {
		t.Fatal(err)
	}
	inUse := strings.Replace(string(free), "127.0.0.1:0", used.Addr().String(), 1)
	if err := os.WriteFile(other, []byte(inUse), 0o600); err != nil {
		t.Fatal(err)
	}
	s.write(inUse)
	_, stderr, code := s.run("upgrade", "-f", s.file())
	if code != 1 || !strings.Contains(stderr, s.file()+":3:11: metrics.address: ") || !strings.Contains(stderr, "address already in use") {
		t.Errorf("code %d\n%s", code, stderr)
	}
	testkit.Equal(t, "processes", d.status().pids(), before)
	s.write(string(free))
	d.mustRun("upgrade", s.liar("exec "+command+" run -f "+other))
	d.waitForLog("metrics are not served; correct their address, and upgrade again")
	testkit.Equal(t, "processes", d.waitForStatus("settled", settled).pids(), before)
}

// The launcher with its own address for metrics can be upgraded, and serves them again.
func TestUpgrade_KeepsMetricsAddress(t *testing.T) {
	address := fmt.Sprintf("127.%d.%d.77:9464", 1+os.Getpid()>>8&127, os.Getpid()&255) // an address that no other test uses
	s := newSite(t, `
state_dir: STATE
metrics: {address: '`+address+`'}
process_groups:
  - name: web
    command: RUNNER
    args: [--process-id, "{id}"]
`)
	d := s.startReady()
	for range 2 {
		d.mustRun("upgrade")
		d.waitForLine("metrics at http://" + address)
	}
}

// While lines are queued because the output of the launcher is not read, an upgrade is refused. So
// no line is lost.
func TestUpgrade_LosesNoQueuedLine(t *testing.T) {
	const lines = 400 // lines of 1000 bytes that the process prints: more than the pipes can hold
	s := newSite(t, fmt.Sprintf(`
state_dir: STATE
process_groups:
  - name: web
    command: /bin/sh
    args: [-c, 'until [ -e DIR/go ]; do sleep 0.1; done; head -c %d /dev/zero | tr "\0" x | fold -w 1000; echo; touch DIR/printed; while :; do sleep 0.1; done']
    protocol: signals
`, 1000*lines))
	d := s.daemon(exec.Command(command, "run", "-f", s.file()))
	d.cmd.Env, d.lines = s.environment(), make(chan string)
	d.begin()
	readAll := func() {
		for range d.lines {
		}
	}
	t.Cleanup(func() { go readAll() }) // the launcher ends only when its output is read
	d.waitForLine("ready")
	if err := os.WriteFile(filepath.Join(s.dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d.waitForStatus("printed", func(status) bool { _, err := os.Stat(filepath.Join(s.dir, "printed")); return err == nil })
	_, stderr, code := s.run("upgrade", "-f", s.file())
	if code != 1 || !strings.Contains(stderr, "the reader of this output did not take the last lines within 1s; this launcher goes on") {
		t.Fatalf("code %d\n%s", code, stderr)
	}
	for n := 0; n < lines; n++ {
		d.waitForLine("| xxx")
	}
	go readAll()
	d.mustRun("upgrade")
}

// zombies returns how many children of the launcher have exited and have not been reaped.
func (d *daemon) zombies() (n int) {
	d.t.Helper()
	for _, pid := range d.children() {
		if stat, _ := os.ReadFile("/proc/" + pid + "/stat"); strings.Contains(string(stat), ") Z ") {
			n++
		}
	}
	return n
}

// children returns the pids of the processes that the launcher has started.
func (d *daemon) children() []string {
	d.t.Helper()
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", d.cmd.Process.Pid, d.cmd.Process.Pid))
	if err != nil {
		d.t.Fatal(err)
	}
	return strings.Fields(string(children))
}
