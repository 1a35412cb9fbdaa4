package main_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher/internal/load"
	"golang.org/x/sys/unix"
)

// status is what the command status --json prints.
type status struct {
	Groups []struct {
		Group     string
		Healthy   bool
		Ready     int
		Desired   int
		Revision  int
		Message   string
		Roll      *struct{ Paused bool }
		Processes []process
	}
}

type process struct {
	ProcessID string `json:"processId"`
	PID       int    `json:"pid"`
	State     string
	Outcome   string
	Exit      string
	Revision  int
	Since     time.Time
}

// mustRunAt is like mustRun, for a command that finds the launcher by its directory, whatever the
// file says.
func (d *daemon) mustRunAt(args ...string) string {
	d.t.Helper()
	stdout, stderr, code := d.run(append(args, "--dir", filepath.Join(d.dir, "s"))...)
	if code != 0 {
		d.t.Fatalf("launcher %q: exit code %d\n%s%s", args, code, stdout, stderr)
	}
	return stdout
}

func (d *daemon) status() (s status) {
	d.t.Helper()
	if err := json.Unmarshal([]byte(d.mustRunAt("status", "--json")), &s); err != nil {
		d.t.Fatal(err)
	}
	for i, g := range s.Groups { // leaves out the processes that have ended
		s.Groups[i].Processes = slices.DeleteFunc(g.Processes, func(p process) bool { return p.Outcome != "NOT_ENDED" })
	}
	return s
}

// waitForStatus asks for the status again and again until it satisfies the condition ok.
func (d *daemon) waitForStatus(what string, ok func(status) bool) status {
	d.t.Helper()
	for late := time.Now().Add(tooLong); ; {
		s := d.status()
		if ok(s) {
			return s
		}
		if time.Now().After(late) {
			d.t.Fatalf("not %s: %+v\n%s", what, s, d.log())
		}
	}
}

// pids returns a map from the ids of all processes, such as web-1, to their pids.
func (s status) pids() map[string]int {
	pids := map[string]int{}
	for _, g := range s.Groups {
		for _, p := range g.Processes {
			pids[p.ProcessID] = p.PID
		}
	}
	return pids
}

func settled(s status) bool {
	for _, g := range s.Groups {
		if !g.Healthy || g.Roll != nil || len(g.Processes) != g.Desired {
			return false
		}
	}
	return true
}

// webFile is the beginning of a configuration file: settings of the group, and other groups, can
// follow.
const webFile = `
state_dir: STATE
process_groups:
  - name: web
    command: RUNNER
    args: [--process-id, "{id}"]
`

// An upgrade keeps the processes of all groups, the exit codes of those that end during and after
// it, every line that they print, and the lines that the command logs shows.
func TestUpgrade_KeepsProcessesTheirOutputAndExitCodes(t *testing.T) {
	s := newSite(t, webFile+`    desired_instances: 2
  - name: count
    command: /bin/sh
    args: [-c, 'i=0; while :; do i=$((i+1)); echo $i; done']
    protocol: signals
    logs: {dir: DIR/logs, max_size: 1GiB, buffer: 100MiB}
  - name: kept
    command: /bin/sh
    args: [-c, 'while [ ! -e DIR/end ]; do sleep 0.1; done; exit 5']
    protocol: signals
    on_launcher_death: keep
    restart_policy: {policy: never}
  - name: job
    kind: job
    command: /bin/sh
    args: [-c, 'while [ ! -e DIR/end ]; do sleep 0.1; done; exit 7']
    protocol: signals
    restart_policy: {policy: never}
`)
	d := s.startReady()
	before := d.status().pids()
	dry := struct {
		Program   string
		Processes int
	}{}
	if err := json.Unmarshal([]byte(d.mustRun("upgrade", "--dry-run", "--json")), &dry); err != nil {
		t.Fatal(err)
	}
	testkit.Equal(t, "dry run", fmt.Sprint(dry), fmt.Sprintf("{%s 5}", command))
	for n := range 3 {
		testkit.Equal(t, "upgrade", d.mustRun("upgrade"), fmt.Sprintf("upgraded: %s has taken over with 5 processes\n", command))
		if n == 1 { // the processes end while, or shortly before, the next program takes over
			if err := os.WriteFile(filepath.Join(s.dir, "end"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			break
		}
	}
	d.mustRun("upgrade")
	after := d.waitForStatus("ended", func(s status) bool { return len(s.pids()) == 3 }).pids()
	for id, pid := range after {
		testkit.Equal(t, "pid of "+id, pid, before[id])
	}
	d.waitForLog("exit status 7")
	d.waitForLog("exit status 5")
	if !strings.Contains(d.mustRun("logs", "count", "--lines", "1000"), "count-1") {
		t.Error("the command logs shows no line")
	}
	d.mustRun("stop", "count-1", "--wait", "--no-replacement")
	text, err := os.ReadFile(filepath.Join(s.dir, "logs", "count-1.log"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	for i, line := range lines[:len(lines)-1] { // the last line may be incomplete
		if _, said, _ := strings.Cut(line, " | "); said != fmt.Sprint(i+1) {
			t.Fatalf("line %d of %d is %q", i+1, len(lines), line)
		}
	}
	if strings.Contains(d.log(), "level=ERROR msg=transition group=web") {
		t.Errorf("an error\n%s", d.log())
	}
}

// A process has printed a part of a line, and the launcher has read it. After an upgrade, the next
// program prints the whole line.
func TestUpgrade_KeepsPartOfLineThatWasRead(t *testing.T) {
	s := newSite(t, `
state_dir: STATE
process_groups:
  - name: half
    command: /bin/sh
    args: [-c, 'printf first-; : > DIR/printed; until [ -e DIR/go ]; do sleep 0.1; done; echo second; exec sleep 1000']
    protocol: signals
`)
	d := s.startReady()
	pid := d.status().pids()["half-1"]
	for late := time.Now().Add(tooLong); !s.exists("printed") || unread(t, pid) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(late) {
			t.Fatal("the launcher does not read what the process has printed")
		}
	}
	d.mustRun("upgrade")
	s.touch("go")
	if line := d.waitForLine("second"); !strings.Contains(line, "first-second") {
		t.Errorf("the launcher prints %q", line)
	}
}

// unread returns the number of bytes that a process has written to its stdout, a pipe, and that
// have not been read.
func unread(t *testing.T, pid int) int {
	t.Helper()
	pipe, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/1", pid), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	n, err := unix.IoctlGetInt(int(pipe.Fd()), unix.TIOCINQ)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// exists reports whether the directory of the site has a file with this name.
func (s *site) exists(name string) bool {
	_, err := os.Stat(filepath.Join(s.dir, name))
	return err == nil
}

// If the new program cannot take over a launcher, or refuses the configuration, the running
// launcher goes on.
func TestUpgrade_IfNewProgramRefusesOldLauncherContinues(t *testing.T) {
	s := newSite(t, webFile)
	d := s.startReady()
	before := d.status().pids()
	refused := func(want string, args ...string) {
		t.Helper()
		out, stderr, code := s.run(append([]string{"upgrade", "--dir", filepath.Join(s.dir, "s")}, args...)...)
		if code != 1 || out != "" || !strings.Contains(stderr, want) {
			t.Errorf("upgrade %q: code %d\n%s%s\nwant: %s", args, code, out, stderr, want)
		}
		testkit.Equal(t, "processes", d.status().pids(), before)
	}
	refused("no such file", "/no/such/program")
	refused(`the program is not a launcher that can take over: it printed "" instead of "swansong upgrade ok"; this launcher goes on`, "/bin/true")
	refused("the new program cannot take over: exit status 1", "/bin/false")
	script := filepath.Join(s.dir, "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho swansong upgrade ok\nrm $0\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	refused("no such file", script) // the script answers the check, but no longer exists when the launcher executes it
	s.write(webFile + "    colour: green\n")
	refused("colour: unknown key")
	s.write(strings.Replace(webFile, "STATE", "DIR/other", 1))
	refused("cannot change from " + filepath.Join(s.dir, "s"))
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	s.write(webFile + "    listeners: [{name: app, address: '" + taken.Addr().String() + "'}]\n")
	refused("address already in use")
	s.write(webFile)
	testkit.Equal(t, "upgrade --dry-run", d.mustRun("upgrade", "--dry-run"), "the program could take over; nothing was done\n")
	d.mustRun("upgrade")
	testkit.Equal(t, "processes", d.status().pids(), before)
}

// An upgrade does not change the time since which a process is in its state. That also holds for
// processes that are being stopped, and for several upgrades.
func TestUpgrade_KeepsTimeSinceWhichProcessIsInItsState(t *testing.T) {
	s := newSite(t, webFile+`  - name: hang
    command: RUNNER
    args: [--process-id, "{id}", --behavior, hang]
    protocol: grpc
    shutdown: {max_duration: 1h}
  - name: slow
    command: /bin/sh
    args: [-c, 'trap "" TERM; while :; do sleep 0.1; done']
    protocol: signals
    shutdown: {max_duration: 1h}
`)
	d := s.startReady()
	d.mustRun("stop", "slow-1", "hang-1", "--no-replacement")
	states := func(s status) map[string]process {
		all := map[string]process{}
		for _, g := range s.Groups {
			for _, p := range g.Processes {
				all[p.ProcessID] = p
			}
		}
		return all
	}
	stopping := func(s status) bool {
		return states(s)["slow-1"].State == "DRAINING" && states(s)["hang-1"].State == "BLOCKED" && states(s)["web-1"].State == "READY"
	}
	before := states(d.waitForStatus("stopping", stopping))
	for range 2 {
		began := time.Now()
		d.mustRun("upgrade")
		after := states(d.waitForStatus("stopping", stopping))
		for id, b := range before {
			a := after[id]
			if a.State != b.State || !a.Since.Before(began) || a.Since.Before(b.Since.Add(-tooLong)) {
				t.Errorf("%s was %s since %v, and is %s since %v after the upgrade", id, b.State, b.Since, a.State, a.Since)
			}
		}
	}
	d.mustRun("signal", "hang-1", "slow-1", "KILL")
}

// If the new program fails after it was executed, the earlier one is executed again, with the same
// processes.
func TestUpgrade_ExecutesOldProgramIfNewOneFails(t *testing.T) {
	const yaml = webFile + `    listeners: [{name: app, address: '127.0.0.1:0'}]
`
	s := newSite(t, yaml)
	d := s.startReady()
	before := d.status().pids()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	other := filepath.Join(s.dir, "other.yaml")
	text, _ := os.ReadFile(s.file())
	text = []byte(strings.Replace(string(text), "127.0.0.1:0", taken.Addr().String(), 1))
	if err := os.WriteFile(other, text, 0o600); err != nil {
		t.Fatal(err)
	}
	// The script answers the check as a program with a good file. Then it starts the launcher with
	// another file, whose address is in use.
	script := filepath.Join(s.dir, "script")
	lie := fmt.Sprintf("#!/bin/sh\n[ $1 = upgrade-check ] && exec %s \"$@\"\nexec %s run -f %s\n", command, command, other)
	if err := os.WriteFile(script, []byte(lie), 0o700); err != nil {
		t.Fatal(err)
	}
	_, stderr, code := s.run("upgrade", "-f", s.file(), script)
	if want := "not upgraded: the other program has taken over, and has failed"; code != 1 || !strings.Contains(stderr, want) || !strings.Contains(stderr, "address already in use") {
		t.Errorf("code %d\n%s\nwant: %s", code, stderr, want)
	}
	testkit.Equal(t, "processes", d.waitForStatus("settled", settled).pids(), before)
	d.waitForLog("level=ERROR msg=alarm message=\"not upgraded")
	d.mustRun("upgrade")
	testkit.Equal(t, "processes", d.waitForStatus("settled", settled).pids(), before)
}

// SIGUSR2 upgrades the launcher. Several at once, and SIGTERM among them, do no harm.
func TestUpgrade_SeveralUpgradeSignalsAndSIGTERMDoNoHarm(t *testing.T) {
	s := newSite(t, webFile)
	d := s.startReady()
	before := d.status().pids()
	for range 3 {
		d.cmd.Process.Signal(syscall.SIGUSR2)
		d.waitForLog("SIGUSR2")
	}
	for range 20 {
		d.cmd.Process.Signal(syscall.SIGUSR2)
		time.Sleep(time.Millisecond)
	}
	for late := time.Now().Add(tooLong); ; {
		_, stderr, code := s.run("upgrade", "-f", s.file())
		if code == 0 {
			break
		}
		// The upgrades by signal may still be under way, and this one is refused until they are
		// done.
		if time.Now().After(late) {
			t.Fatalf("upgrade: code %d\n%s", code, stderr)
		}
	}
	testkit.Equal(t, "processes", d.status().pids(), before)
	testkit.Equal(t, "exit code", d.stop(), 0)
}

// What differs in the file is applied by an upgrade: other addresses, which a reload refuses,
// groups that are new, and groups that are gone.
func TestUpgrade_AppliesChangesOfFileThatReloadRefuses(t *testing.T) {
	host := fmt.Sprintf("127.%d.%d.78", 1+os.Getpid()>>8&127, os.Getpid()&255) // an address that no other test uses
	first, second := host+":8001", host+":8002"
	yaml := func(address, group, level string) string {
		return fmt.Sprintf(`
state_dir: STATE
process_groups:
  - name: web
    command: RUNNER
    args: [--process-id, "{id}", --initial-work, "0", --work-duration, 1ms]
    listeners: [{name: app, address: '%s'}]
  - name: same
    command: RUNNER
    args: [--process-id, "{id}"]
    liveness: {interval: %s}
  - name: %s
    command: RUNNER
    args: [--process-id, "{id}"]
`, address, level, group)
	}
	s := newSite(t, yaml(first, "old", "3s"))
	d := s.startReady()
	before := d.status().pids()
	s.write(yaml(second, "new", "4s"))
	if _, stderr, code := s.run("reload", "-f", s.file()); code != 1 || !strings.Contains(stderr, "Listen") && !strings.Contains(stderr, "listeners") {
		t.Errorf("reload: code %d: %s", code, stderr)
	}
	d.mustRun("upgrade")
	after := d.waitForStatus("settled", func(s status) bool {
		pids := s.pids()
		return settled(s) && pids["old-1"] == 0 && pids["web-1"] == 0 && pids["web-2"] != 0
	})
	testkit.Equal(t, "process of the unchanged group", after.pids()["same-1"], before["same-1"])
	ask := func(address string) error {
		c := &load.Client{Dial: func(context.Context) (net.Conn, error) { return net.Dial("tcp", address) }}
		_, err := c.Do(context.Background(), "GET", "/", "")
		return err
	}
	if err := ask(second); err != nil {
		t.Errorf("the new address: %v", err)
	}
	if err := ask(first); err == nil {
		t.Error("the earlier address still answers")
	}
	testkit.Equal(t, "reload", d.mustRun("reload"), "nothing has changed\n")
}

// A roll goes on across upgrades, and no request is lost.
func TestUpgrade_DuringRollLosesNoRequest(t *testing.T) {
	s := newSite(t, `
state_dir: STATE
process_groups:
  - name: web
    command: RUNNER
    args: [--process-id, "{id}", --initial-work, "0", --work-duration, 1ms, --ready-after, 20ms]
    desired_instances: 3
    listeners: [{name: app, network: unix, address: DIR/app}]
`)
	d := s.startReady()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var l load.Ledger
	var clients sync.WaitGroup
	for n := range 2 {
		clients.Go(func() {
			l.Ask(ctx, &load.Client{KeepAlive: n == 0, Dial: func(context.Context) (net.Conn, error) {
				return net.Dial("unix", filepath.Join(s.dir, "app"))
			}}, nil)
		})
	}
	for n := range 3 {
		d.mustRun("restart", "web")
		for range 3 {
			d.mustRun("upgrade")
		}
		d.waitForStatus("rolled", func(s status) bool {
			for _, p := range s.Groups[0].Processes {
				if p.Revision != n+2 {
					return false
				}
			}
			return settled(s)
		})
	}
	cancel()
	clients.Wait()
	if sent, _ := l.Sent(); sent == 0 {
		t.Error("no request was sent")
	}
	for _, err := range l.Failures() {
		t.Error(err)
	}
	for _, bad := range []string{"UNKNOWN", "CRASHED", "FORCED", "level=ERROR"} {
		if strings.Contains(d.log(), bad) {
			t.Errorf("%s\n%s", bad, d.log())
		}
	}
}

// A paused roll stays paused across an upgrade. Afterwards it can be rolled back to the
// configuration that its processes had before the roll.
func TestUpgrade_PausedRollStaysPausedAndCanBeRolledBack(t *testing.T) {
	const yaml = `
state_dir: STATE
process_groups:
  - name: web
    command: RUNNER
    args: [--process-id, "{id}"%s]
    desired_instances: 2
    min_healthy_instances: 1
    max_surge: 0
`
	s := newSite(t, fmt.Sprintf(yaml, ""))
	d := s.startReady()
	s.write(fmt.Sprintf(yaml, ", --no-such-flag"))
	d.mustRun("reload")
	paused := func(s status) bool {
		return s.Groups[0].Roll != nil && s.Groups[0].Roll.Paused && s.Groups[0].Ready == 2
	}
	d.waitForStatus("paused", paused)
	d.mustRun("upgrade")
	d.waitForStatus("paused", paused)
	d.mustRun("restart", "web", "--rollback", "--wait")
	d.waitForStatus("rolled back", settled)
	d.mustRun("upgrade")
	after := d.waitForStatus("settled", settled)
	testkit.Equal(t, "revision after a rollback", after.Groups[0].Revision, 1)
	if changes := d.mustRun("reload", "--dry-run"); !strings.Contains(changes, "web") {
		t.Errorf("the file differs from what the group runs, but a reload says: %s", changes)
	}
}

// A group that was given up, and a process that was stopped without a replacement, stay so.
func TestUpgrade_GivenUpGroupAndStoppedProcessStayAsTheyWere(t *testing.T) {
	s := newSite(t, webFile+`    desired_instances: 2
    min_healthy_instances: 1
  - name: bad
    command: /bin/sh
    args: [-c, 'while [ ! -e DIR/end ]; do sleep 0.1; done; exit 1']
    protocol: signals
    restart_policy: {crash_loop_limit: 1}
`)
	d := s.startReady()
	if err := os.WriteFile(filepath.Join(s.dir, "end"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d.waitForLog("given up")
	d.mustRun("stop", "web-1", "--no-replacement", "--wait")
	d.mustRun("upgrade")
	d.mustRun("upgrade")
	after := d.waitForStatus("settled", func(s status) bool { return s.Groups[0].Ready == 1 })
	testkit.Equal(t, "desired", after.Groups[0].Desired, 1)
	if g := after.Groups[1]; !strings.Contains(g.Message, "given up after") || len(g.Processes) > 0 {
		t.Errorf("the group is not given up any more: %+v", g)
	}
	if strings.Contains(d.log(), "process=bad-2") {
		t.Errorf("a process of the group was started\n%s", d.log())
	}
}

// The launcher reports that a process with on_launcher_death: keep is missing from the state file.
// After an upgrade, it still reports that.
func TestUpgrade_AfterwardsStillReportsProcessMissingFromStateFile(t *testing.T) {
	s := newSite(t, webFile+`    on_launcher_death: keep
`)
	d := s.startReady()
	next := filepath.Join(s.dir, "s", "state.json.next") // a directory at the path of the temporary file makes each write fail
	for late := time.Now().Add(tooLong); ; time.Sleep(time.Millisecond) {
		err := os.Mkdir(next, 0o700) // returns an error as long as the launcher is writing the file
		if err == nil {
			break
		}
		if time.Now().After(late) {
			t.Fatal(err)
		}
	}
	d.mustRun("stop", "web-1", "--wait")
	const lacks = "the next launcher cannot adopt web-2"
	for n := range 2 {
		for !strings.Contains(d.mustRun("status", "--json=false"), lacks) {
			if strings.Contains(d.log(), "all-clear") {
				t.Fatalf("after %d upgrades, the state file is said to be complete\n%s", n, d.log())
			}
			if n > 0 && d.waitForStatus("settled", settled).pids()["web-2"] != 0 && !strings.Contains(d.mustRun("status", "--json=false"), lacks) {
				t.Fatalf("after %d upgrades, the status does not say: %s", n, lacks)
			}
		}
		if n == 0 {
			d.mustRun("upgrade")
		}
	}
	if err := os.Remove(next); err != nil {
		t.Fatal(err)
	}
	d.waitForLog("all-clear")
}
