//go:build linux

package main_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/swansong-go/swansong/internal/testkit"
	"golang.org/x/sys/unix"
)

// health is the JSON output of status.
type health struct {
	Groups []struct {
		Group, Message  string
		Revision, Ready int
		Roll            *struct {
			Phase, Why string
			Paused     bool
		}
		Processes []struct {
			ProcessID, State string
			PID              int
			Metrics          struct{ BlockingOperations []string }
		}
	}
}

func (s *site) health() (h health) {
	s.t.Helper()
	if err := json.Unmarshal([]byte(s.mustRun("status")), &h); err != nil {
		s.t.Fatal(err)
	}
	return h
}

// waitUntil waits until the status of the launcher satisfies the condition.
func (s *site) waitUntil(what string, condition func(h health) bool) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), tooLong)
	defer cancel()
	cmd := exec.CommandContext(ctx, command, "status", "--watch", "-f", s.file())
	out, err := cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var h health
		if err := json.Unmarshal(lines.Bytes(), &h); err != nil {
			s.t.Fatalf("%v: %s", err, lines.Text())
		}
		if condition(h) {
			return
		}
	}
	s.t.Fatalf("status never shows that %s", what)
}

// A reload shows the changes of the file and applies them: it scales groups, and rolls those whose
// processes must be replaced.
func TestReload_ShowsAndAppliesChanges(t *testing.T) {
	s := newSite(t, web+"    env: {API_TOKEN: hunter2}\n")
	d := s.startReady()
	testkit.Equal(t, "reload without changes", s.mustRun("reload"), "nothing has changed\n")

	s.write(web + "    env: {API_TOKEN: hunter2}\n    desired_instances: 2\n    max_surge: 2\n")
	diff := "~ web: desired_instances: 1 → 2 (starts or stops some)\n~ web: min_healthy_instances: 1 → 2 (at once)\n~ web: max_surge: 1 → 2 (at once)\n"
	testkit.Equal(t, "changes of the preview", s.mustRun("reload", "--dry-run"), diff+"nothing was applied\n")
	testkit.Equal(t, "number of processes", len(s.health().Groups[0].Processes), 1)
	testkit.Equal(t, "applied changes", s.mustRun("reload", "--wait"), diff+"applied\n")
	testkit.Equal(t, "number of processes", len(s.health().Groups[0].Processes), 2)

	s.write(web + "    env: {API_TOKEN: hunter3}\n    desired_instances: 2\n    max_surge: 2\n  - name: other\n    command: RUNNER\n")
	testkit.Equal(t, "changes of a secret and a group", s.mustRun("reload", "--wait"),
		"~ web: env.API_TOKEN: \"***\" → \"***\", changed (rolls the group)\n+ other (starts the group)\napplied\n")
	h := s.health()
	testkit.Equal(t, "groups", len(h.Groups), 2)
	testkit.Equal(t, "revision", h.Groups[0].Revision, 2)

	// SIGHUP makes the launcher reload the file.
	s.write(web + "    desired_instances: 0\n")
	d.cmd.Process.Signal(syscall.SIGHUP)
	s.waitUntil("no process is left", func(h health) bool { return len(h.Groups) == 1 && h.Groups[0].Ready == 0 })

	upgrade := "need an upgrade; undo these, or run launcher upgrade"
	if runtime.GOOS != "linux" {
		upgrade = "need a new launcher"
	}
	for name, c := range map[string]struct{ yaml, want string }{
		"another directory": {strings.Replace(web, "STATE", "STATEx", 1), "need a new launcher; undo these, or stop the launcher"},
		"another listener":  {web + "    listeners: [{name: a, address: '127.0.0.1:0'}]\n", upgrade},
		"a kept listener":   {web + "  - {name: fresh, command: sleep, on_launcher_death: keep, listeners: [{name: a, address: '127.0.0.1:0'}]}\n", "+ fresh (with an upgrade)"},
		"not YAML":          {"process_groups: [", "launcher.yaml:"},
		"no such program":   {web + "  - {name: fresh, command: /no/such}\n", "launcher.yaml:6:19: process_groups[1].command"},
	} {
		s.write(c.yaml)
		_, stderr, code := s.run("reload", "--dir", filepath.Join(s.dir, "s"))
		if code != 1 || !strings.Contains(stderr, c.want) {
			t.Errorf("%s: exit code %d, %s", name, code, stderr)
		}
	}
	s.write(web)
	testkit.Equal(t, "number of groups after refused reloads", len(s.health().Groups), 1)
	if strings.Contains(d.log(), "hunter") {
		t.Errorf("the log has a secret:\n%s", d.log())
	}
}

// An operator sees that a roll is paused, and continues it or undoes it.
func TestRestart_PausedRollCanBeResumedOrRolledBack(t *testing.T) {
	const yaml = `state_dir: STATE
process_groups:
  - name: web
    command: sh
    args: [-c, 'test ! -e DIR/bad || exit 3; exec RUNNER --process-id {id} --work-duration 1ms']
`
	s := newSite(t, yaml)
	s.startReady()
	bad := filepath.Join(s.dir, "bad")
	for _, c := range []struct {
		order, says string
		revision    int
	}{
		{"--resume", "all processes have been replaced\n", 2},
		{"--rollback", "all processes have been rolled back\n", 2},
	} {
		if err := os.WriteFile(bad, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		_, stderr, code := s.run("restart", "-f", s.file(), "--wait", "web")
		if code != 1 || !strings.Contains(stderr, "the roll has failed") {
			t.Errorf("exit code %d, %s", code, stderr)
		}
		if r := s.health().Groups[0].Roll; r == nil || !r.Paused || !strings.Contains(r.Why, "exit status 3") {
			t.Errorf("status does not show the pause: %+v", r)
		}
		if out := s.mustRun("status", "--json=false"); !strings.Contains(out, "waiting for\n  web: the roll to revision ") || !strings.Contains(out, "; launcher restart web --resume, or --rollback\n") {
			t.Errorf("status does not say what to do:\n%s", out)
		}
		if err := os.Remove(bad); err != nil {
			t.Fatal(err)
		}
		testkit.Equal(t, c.order, s.mustRun("restart", "web", "--wait", c.order), c.says)
		testkit.Equal(t, "revision", s.health().Groups[0].Revision, c.revision)
	}
}

// status names what it is waiting for, in colour only on a terminal.
func TestStatus_ListsWhatDrainingProcessWaitsFor(t *testing.T) {
	s := newSite(t, strings.Replace(web, "1ms]", "1ms, --behavior, slow-drain, --drain-duration, 1h]", 1)+
		"    protocol: grpc\n    shutdown: {grace_period: 1h, max_duration: 1h, sigterm_timeout: 1s}\n")
	d := s.startReady()
	if out := s.mustRun("status", "--json=false"); !strings.Contains(out, "waiting for nothing") || strings.Contains(out, "\x1b") {
		t.Errorf("before the stop: %q", out)
	}
	s.mustRun("stop", "web-1", "--no-replacement")
	s.waitUntil("web-1 is blocked", func(h health) bool {
		p := h.Groups[0].Processes[0]
		return p.State == "BLOCKED" && slices.Contains(p.Metrics.BlockingOperations, "a slow disk")
	})
	out := s.mustRun("status", "--json=false")
	if !strings.Contains(out, "waiting for\n  web-1: stopping for ") || !strings.Contains(out, "blocked by a slow disk\n") || !strings.Contains(out, "[----------]") {
		t.Errorf("status is\n%s", out)
	}
	// Without the second signal, which kills the processes, the drain would last an hour.
	d.cmd.Process.Signal(syscall.SIGTERM)
	s.waitUntil("the launcher is stopping", func(h health) bool { return h.Groups[0].Message == "stopping" })
	d.cmd.Process.Signal(os.Interrupt)
	testkit.Equal(t, "exit code", d.ends(), 2)
}

// During a stop, status does not list processes and groups that have stopped, and says of a group
// that waits which group it waits for.
func TestStatus_ListsOnlyUnstoppedGroupsDuringStop(t *testing.T) {
	s := newSite(t, `state_dir: STATE
process_groups:
  - {name: kv, command: RUNNER, args: [--process-id, '{id}'], desired_instances: 2}
  - {name: done, command: RUNNER, args: [--process-id, '{id}']}
  - name: web
    command: RUNNER
    args: [--process-id, '{id}', --behavior, hang]
    protocol: grpc
    depends_on: [kv]
    shutdown: {max_duration: 1h}
`)
	d := s.startReady()
	d.cmd.Process.Signal(syscall.SIGTERM)
	s.waitUntil("done has stopped", func(h health) bool {
		return h.Groups[1].Message == "stopping" && h.Groups[1].Processes[0].State == "COMPLETE"
	})
	s.waitUntil("kv waits", func(h health) bool { return h.Groups[0].Message == "stopping, after web" })
	for left := 1; left >= 0; left-- {
		oldest := s.health().Groups[0].Processes[0] // the oldest process that runs
		if err := syscall.Kill(oldest.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		s.waitUntil(fmt.Sprintf("kv has %d left", left), func(h health) bool { return h.Groups[0].Ready == left })
		out := s.mustRun("status", "--json=false")
		_, list, _ := strings.Cut(out, "waiting for\n")
		if !strings.HasPrefix(list, "  web-1: stopping for ") || strings.Count(list, "\n") != 1 || !strings.Contains(out, "stopping, after web\n") {
			t.Errorf("status is\n%s", out)
		}
	}
	s.killsAll(2)
	d.ends()
}

// On a terminal, status prints the view for people, in colour unless NO_COLOR is set; otherwise it
// prints JSON.
func TestStatus_PrintsTextOnTerminalAndJSONElsewhere(t *testing.T) {
	s := newSite(t, web)
	s.startReady()
	// Other variables, such as COLORTERM, could change the result. The last one selects a mutant.
	without := []string{"PATH=" + os.Getenv("PATH"), "SWANSONG_MUTANT=" + os.Getenv("SWANSONG_MUTANT")}
	for _, test := range []struct {
		name     string
		env      []string
		terminal bool
		colours  bool
	}{
		{"a terminal", []string{"TERM=xterm-256color"}, true, true},
		{"NO_COLOR", []string{"TERM=xterm-256color", "NO_COLOR=1"}, true, false},
		{"a terminal without colours", []string{"TERM=dumb"}, true, false},
		{"a pipe", []string{"TERM=xterm-256color"}, false, false},
	} {
		cmd := exec.Command(command, "status", "--dir", filepath.Join(s.dir, "s"))
		cmd.Env = append(slices.Clip(without), test.env...)
		var out string
		if test.terminal {
			out = onTerminal(t, cmd)
		} else {
			text, err := cmd.Output()
			if err != nil {
				t.Fatalf("%s: %v", test.name, err)
			}
			out = string(text)
		}
		if colours := strings.Contains(out, "\x1b["); colours != test.colours {
			t.Errorf("%s: colours: %v, want %v: %q", test.name, colours, test.colours, out)
		}
		if view := strings.Contains(out, "waiting for nothing") && !strings.Contains(out, "{"); view != test.terminal {
			t.Errorf("%s: view for people: %v, want %v:\n%s", test.name, view, test.terminal, out)
		}
		if text := regexp.MustCompile(`"\w+": *"-?\d+"`).FindString(out); text != "" {
			t.Errorf("%s: a number is printed as a string: %s", test.name, text)
		}
	}
}

// onTerminal runs a command on a pseudo-terminal, and returns its output.
func onTerminal(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	var number int
	conn, err := master.SyscallConn()
	if err == nil {
		err = conn.Control(func(fd uintptr) {
			if err := unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); err != nil {
				t.Error(err)
			}
			if number, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN); err != nil {
				t.Error(err)
			}
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = slave, slave
	err = cmd.Start()
	slave.Close()
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(master) // reads until the error EIO, which means that the other end is closed
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %v\n%s", cmd.Args, err, text)
	}
	return string(text)
}

// While the launcher starts, status lists what it is waiting for, including groups without a
// process.
func TestStatus_ListsWhatStartOfLauncherWaitsFor(t *testing.T) {
	s := newSite(t, `state_dir: STATE
process_groups:
  - name: kv
    command: "false"
    protocol: grpc
    max_surge: 0
    listeners: [{name: kv, address: "127.0.0.1:0"}]
    restart_policy: {initial_backoff: 1h, max_backoff: 1h}
  - name: web
    command: RUNNER
    depends_on: [kv]
`)
	d := s.start()
	d.waitForLine("listening on")
	s.waitUntil("kv has failed", func(h health) bool { return strings.HasPrefix(h.Groups[0].Message, "a failure; the next start is in ") })
	out := s.mustRun("status", "--json=false")
	for _, want := range []string{"exit status 1\n", "waiting for\n  kv: 0 of 1 ready: a failure; the next start is in ", "\n  web: 0 of 1 ready: waits for kv\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("status does not have %q:\n%s", want, out)
		}
	}
}

// The output of processes goes to the launcher's standard output or to files, and to the command
// logs, always without secrets, and otherwise unchanged.
func TestLogs_PrintsOutputWithoutSecrets(t *testing.T) {
	s := newSite(t, `state_dir: STATE
secret: {names: ["*_PIN"], values: [correct horse]}
process_groups:
  - name: web
    command: sh
    args: [-c, 'echo it is $CARD_PIN as {id}; echo no token: $DB >&2; exec RUNNER --process-id {id}']
    env: {CARD_PIN: "12345678", DB: "postgres://kv:hunter2@db/kv"}
  - name: filed
    command: sh
    args: [-c, 'echo correct horse, password=x as {id}; exec RUNNER --process-id {id}']
    logs: {dir: DIR/logs}
`)
	d := s.startReady()
	out := s.mustRun("logs", "web")
	for _, want := range []string{"web-1 out | it is *** as web-1\n", "web-1 err | no token: postgres://kv:***@db/kv\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("logs does not have %q:\n%s", want, out)
		}
	}
	out = s.mustRun("logs", "filed-1", "-n", "1")
	if !strings.HasSuffix(out, "filed-1 out | ***, password=x as filed-1\n") || strings.Count(out, "\n") != 1 {
		t.Errorf("the last line of one process: %q", out)
	}
	_, stderr, code := s.run("logs", "-f", s.file(), "unknown")
	if code != 1 || !strings.Contains(stderr, `neither a group nor a process has the name "unknown"`) {
		t.Errorf("unknown name: exit code %d, %s", code, stderr)
	}
	testkit.Equal(t, "exit code", d.stop(), 0)
	text, err := os.ReadFile(filepath.Join(s.dir, "logs", "filed-1.log"))
	if err != nil || !strings.HasSuffix(string(text), "filed-1 out | ***, password=x as filed-1\n") {
		t.Errorf("the file of filed-1: %q, %v", text, err)
	}
	for l := range d.lines {
		if strings.Contains(l, "hunter2") || strings.Contains(l, "12345678") || strings.Contains(l, "filed-1") {
			t.Errorf("on standard output: %s", l)
		}
	}
}

// logs --follow and events continue until the launcher exits.
func TestLogs_FollowContinuesUntilLauncherExits(t *testing.T) {
	s := newSite(t, web+"    logs: {max_line: 64}\n")
	s.write(strings.Replace(web, "1ms]", "1ms, -v]", 1))
	d := s.startReady()
	logsBegun, logs := s.follow("logs", "--follow", "web")
	eventsBegun, events := s.follow("events")
	restarts := 0
	for _, begun := range []<-chan struct{}{logsBegun, eventsBegun} {
		for received := false; !received; { // until the command logs or events has printed a line
			s.mustRun("restart", "web", "--wait")
			restarts++
			select {
			case <-begun:
				received = true
			default:
			}
		}
	}
	d.stop()
	if out := <-logs; !strings.Contains(out, fmt.Sprintf("web-%d err | ", restarts+1)) {
		t.Errorf("the last process is missing:\n%s", out)
	}
	if out := <-events; !strings.Contains(out, "COMPLETE") {
		t.Errorf("the last event is missing:\n%s", out)
	}
}

// follow starts a command that continues until the launcher exits. begun is closed when the command
// has printed a line, or has ended without one. When the command has ended, output receives all
// that it has printed.
func (s *site) follow(args ...string) (begun <-chan struct{}, output <-chan string) {
	s.t.Helper()
	cmd := exec.Command(command, append(args, "-f", s.file())...)
	cmd.Env = s.environment()
	out, err := cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	first, all := make(chan struct{}), make(chan string, 1)
	go func() {
		lines := bufio.NewReader(out)
		text, _ := lines.ReadString('\n')
		close(first)
		rest, _ := io.ReadAll(lines)
		cmd.Wait()
		all <- text + string(rest)
	}()
	return first, all
}

// ^C ends a command that would continue for ever, with exit code 0.
func TestWatch_ExitsWith0OnInterrupt(t *testing.T) {
	s := newSite(t, strings.Replace(web, "1ms]", "1ms, -v]", 1))
	s.startReady()
	for _, args := range [][]string{{"events"}, {"logs", "--follow"}, {"status", "--watch"}} {
		cmd := exec.Command(command, append(args, "-f", s.file())...)
		cmd.Env = s.environment()
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		seen := make(chan bool, 1)
		rest := make(chan struct{})
		go func() {
			defer close(rest)
			lines := bufio.NewScanner(out)
			seen <- lines.Scan()
			for lines.Scan() {
			}
		}()
		// Restart the group until the command receives an event: it may not watch events yet during
		// the first restart.
		for received := false; !received; {
			s.mustRun("restart", "web", "--wait")
			select {
			case received = <-seen:
				if !received {
					t.Fatalf("%q has ended: %s", args, &stderr)
				}
			default:
			}
		}
		cmd.Process.Signal(syscall.SIGINT)
		<-rest
		if err := cmd.Wait(); err != nil {
			t.Errorf("%q: %v, %s", args, err, &stderr)
		}
	}
}

// Shells complete the names of groups and processes.
func TestShellCompletion_OffersNamesOfGroupsAndProcesses(t *testing.T) {
	s := newSite(t, web)
	s.startReady()
	for _, shell := range []string{"bash", "zsh", "fish"} {
		out, _, code := s.run("completion", shell)
		if code != 0 || !strings.Contains(out, "__complete") {
			t.Errorf("%s: exit code %d, %.100q", shell, code, out)
		}
	}
	s.mustRun("restart", "web", "--wait")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"restart", ""}, "web"},
		{[]string{"stop", ""}, "web web-2"}, // names of processes that have ended are not offered
		{[]string{"logs", ""}, "web web-2"},
		{[]string{"restart", "web", ""}, ""},
		{[]string{"run", "--protocol", ""}, "auto grpc notify signals"},
	} {
		out, _, code := s.run(append([]string{"__complete", "-f", s.file()}, c.args...)...)
		testkit.Equal(t, fmt.Sprintf("completions of %q", c.args), strings.Join(strings.Fields(out), " "), strings.TrimSpace(c.want+" :4")) // the directive 4 tells the shell not to offer file names
		testkit.Equal(t, "exit code", code, 0)
	}
}

// Export writes the files of a group, and says on standard error what it cannot export.
func TestExport_WritesFilesAndNamesGaps(t *testing.T) {
	s := newSite(t, web)
	for _, target := range []string{"kubernetes", "nomad", "systemd"} {
		to := filepath.Join(s.dir, target)
		_, stderr, code := s.run("export", target, "-f", s.file(), "-o", to)
		files, _ := filepath.Glob(filepath.Join(to, "web*"))
		if code != 0 || len(files) == 0 || !strings.Contains(stderr, "web: ") {
			t.Errorf("%s: exit code %d, files %q, gaps %q", target, code, files, stderr)
		}
	}
	out, _, code := s.run("export", "nomad", "-f", s.file())
	testkit.Equal(t, "a Nomad job on standard output", []any{json.Valid([]byte(out)), code}, []any{true, 0})
}

// The status of a process that was stopped because a check had failed says which check it was.
func TestStatus_SaysWhyUnhealthyProcessWasStopped(t *testing.T) {
	s := newSite(t, `
state_dir: STATE
process_groups:
  - name: web
    command: sleep
    args: ['1000']
    protocol: signals
    restart_policy: never
    livenessProbe: {exec: {command: [test, -e, DIR/alive]}, periodSeconds: 0.05, failureThreshold: 1, timeoutSeconds: 60}
`)
	alive := filepath.Join(s.dir, "alive")
	if err := os.WriteFile(alive, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d := s.startReady()
	if err := os.Remove(alive); err != nil {
		t.Fatal(err)
	}
	d.waitForLog("to=COMPLETE")
	if out := s.mustRun("status", "--json=false"); !strings.Contains(out, "CLEAN; signal: terminated; unhealthy: the liveness probe, exec test, has failed") {
		t.Error(out)
	}
}

// An export says by line what the platform cannot express. If the file does not have the key, the
// line is that of the group.
func TestExport_NamesLinesThatPlatformCannotExpress(t *testing.T) {
	s := newSite(t, "process_groups:\n  - name: other\n    command: a\n  - name: web\n    command: b\n    rlimits:\n      core: 0\n")
	_, stderr, code := s.run("export", "kubernetes", "-f", s.file())
	testkit.Equal(t, "exit code", code, 0)
	for _, want := range []string{":6:5: web: rlimits: are not exported", ":4:5: web: on_failure: ", ":2:5: other: on_failure: "} {
		if !strings.Contains(stderr, s.file()+want) {
			t.Errorf("no line %s%s… in\n%s", s.file(), want, stderr)
		}
	}
	stdout, _, _ := s.run("export", "kubernetes", "-f", s.file(), "--json")
	if want := `{"line":6,"column":5,"group":"web","key":"rlimits","what":"`; !strings.Contains(stdout, want) {
		t.Errorf("no %s… in\n%s", want, stdout)
	}
}

// validate lists all errors of a file by line, and creates nothing. It prints a valid file without
// secrets.
func TestValidate_ListsAllErrorsAndCreatesNothing(t *testing.T) {
	s := newSite(t, web+"    env: {API_TOKEN: hunter2}\n")
	out, stderr, code := s.run("validate", s.file())
	testkit.Equal(t, "result for a valid file", []any{out, stderr, code}, []any{s.file() + " is valid: 1 group\n", "", 0})
	out, _, code = s.run("validate", "--print", s.file())
	if code != 0 || !strings.Contains(out, "max_surge: 1") || strings.Contains(out, "hunter2") {
		t.Errorf("printed, exit code %d:\n%s", code, out)
	}
	s.write(web + "    max_serge: 1\n    desired_instances: many\n")
	out, stderr, code = s.run("validate", s.file())
	for _, want := range []string{":6:5: process_groups[0].max_serge: ", ":7:24: process_groups[0].desired_instances: "} {
		if !strings.Contains(stderr, s.file()+want) {
			t.Errorf("validate does not report %s%s…:\n%s", s.file(), want, stderr)
		}
	}
	testkit.Equal(t, "result for an invalid file", []any{out, code}, []any{"", 1})
	if _, err := os.Stat(filepath.Join(s.dir, "s")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("validate has created the state_dir: %v", err)
	}
}

// SIGHUP without a file drains the launcher, and a second SIGHUP does not cut the drain short. With
// a file, SIGHUP never ends the launcher, not even during the drain.
func TestRun_HangupStopsLauncherOnlyWithoutConfigurationFile(t *testing.T) {
	s := newSite(t, strings.Replace(web, "1ms]", "1ms, --behavior, slow-drain, --drain-duration, 1h]", 1)+
		"    protocol: grpc\n    shutdown: {grace_period: 1h, max_duration: 1h}\n")
	flags := []string{"--dir", filepath.Join(s.dir, "s"), "--name", "web", "--protocol", "grpc", "--grace", "1h", "--max", "1h", "--",
		testrunner, "--process-id", "{id}", "--behavior", "slow-drain", "--drain-duration", "1h"}
	for name, c := range map[string]struct {
		args []string
		stop syscall.Signal
	}{
		"without a file": {flags, syscall.SIGHUP},
		"with a file":    {nil, syscall.SIGTERM},
	} {
		d := s.startReady(c.args...)
		d.cmd.Process.Signal(c.stop)
		s.waitUntil("the launcher is stopping", func(h health) bool { return h.Groups[0].Message == "stopping" })
		d.cmd.Process.Signal(syscall.SIGHUP)
		s.mustRun("status")
		d.cmd.Process.Signal(os.Interrupt)
		testkit.Equal(t, "exit code "+name, d.ends(), 2)
	}
}

// A stop uses the limits of the last reload, not those that the launcher was started with.
func TestStop_UsesTimeLimitsOfLastReload(t *testing.T) {
	slow := strings.Replace(web, "1ms]", "1ms, --behavior, slow-drain, --drain-duration, 1200ms]", 1)
	s := newSite(t, "total_deadline: 10ms\n"+slow)
	d := s.startReady()
	s.write("total_deadline: 10m\n" + slow + "    shutdown: {grace_period: 1m, max_duration: 2m}\n")
	s.mustRun("reload", "--wait")
	testkit.Equal(t, "exit code", d.stop(), 0)
	if strings.Contains(d.log(), "SIGKILL") || strings.Contains(d.log(), "not drained") {
		t.Errorf("the drain was cut short:\n%s", d.log())
	}
}

// drain --dry-run shows all processes, those of a group, or one process. If a group and a process
// have the name, it shows both.
func TestDrain_DryRunShowsProcessesOfGivenNames(t *testing.T) {
	s := newSite(t, web+"    desired_instances: 2\n  - {name: web-1, command: RUNNER, args: [--process-id, '{id}']}\n")
	s.startReady()
	for name, want := range map[string][]string{
		"":      {"web-1", "web-1-1", "web-2"},
		"web":   {"web-1", "web-2"},
		"web-1": {"web-1", "web-1-1"},
		"web-2": {"web-2"},
	} {
		args := []string{"drain", "--dry-run"}
		if name != "" {
			args = append(args, name)
		}
		var got []string
		for l := range strings.Lines(s.mustRun(args...)) {
			got = append(got, strings.Fields(l)[0])
		}
		slices.Sort(got)
		testkit.Equal(t, "processes of "+name, got, want)
	}
	_, stderr, code := s.run("drain", "--dry-run", "-f", s.file(), "unknown")
	if code != 1 || !strings.Contains(stderr, `neither a group nor a process has the name "unknown"`) {
		t.Errorf("unknown name: exit code %d, %s", code, stderr)
	}
	s.mustRun("stop", "--wait", "web")
	testkit.Equal(t, "a stopped group", s.mustRun("drain", "--dry-run", "web"), "no process is running, so a shutdown would wait for nothing\n")
}

// If one group cannot be started, the log says why the others stop.
func TestRun_LogsWhyGroupCannotBeStarted(t *testing.T) {
	s := newSite(t, web+"  - {name: broken, command: sh, args: [-c, 'until [ -e DIR/s/web-1.sock ]; do sleep 0.1; done; exit 3'], restart_policy: never}\n")
	d := s.start()
	testkit.Equal(t, "exit code", d.ends(), 1)
	if log := d.log(); !strings.Contains(log, `message="launcher: group \"broken\"`) {
		t.Errorf("the log:\n%s", log)
	}
}

// An explicit 0 in a file is 0, not the default: a process that does not stop is killed at once,
// and one that fails is restarted without a pause.
func TestRun_ExplicitZeroReplacesDefault(t *testing.T) {
	s := newSite(t, `state_dir: STATE
process_groups:
  - name: web
    command: RUNNER
    args: [--process-id, "{id}", --behavior, hang]
    protocol: grpc
    liveness: {interval: 0s}
    shutdown: {grace_period: 0s, sigterm_timeout: 0s, max_duration: 1h}
`)
	d := s.startReady()
	// If the launcher waited for max_duration, which is an hour, stop would fail the test after the
	// time tooLong.
	d.stop()
	for _, signal := range []string{"SIGTERM", "SIGKILL"} {
		if !strings.Contains(d.log(), signal) {
			t.Errorf("the log has no %s:\n%s", signal, d.log())
		}
	}

	s.write("state_dir: STATE\nprocess_groups:\n  - name: web\n    command: \"false\"\n" +
		"    restart_policy: {initial_backoff: 0s, max_backoff: 0s, reset_after: 0s, crash_loop_limit: 3}\n")
	_, stderr, code := s.run("run", "-f", s.file())
	if code != 1 || strings.Count(stderr, "started in 0s") != 2 {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}
