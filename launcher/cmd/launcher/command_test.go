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
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// health is what status says to programs.
type health struct {
	Groups []struct {
		Group, Message, Revision string
		Ready                    int
		Roll                     *struct {
			Phase, Why string
			Paused     bool
		}
		Processes []struct {
			ProcessID, State, PID string
			Metrics               struct{ BlockingOperations []string }
		}
	}
}

func (s *site) health() (h health) {
	s.t.Helper()
	if err := json.Unmarshal([]byte(s.must("status")), &h); err != nil {
		s.t.Fatal(err)
	}
	return h
}

// until watches the launcher until it is as it should be.
func (s *site) until(what string, is func(h health) bool) {
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
		if is(h) {
			return
		}
	}
	s.t.Fatalf("it does not come to this: %s", what)
}

// A file that has changed is shown and taken over: counts at once, other processes by a roll.
func TestReload(t *testing.T) {
	s := newSite(t, web+"    env: {API_TOKEN: hunter2}\n")
	d := s.runs()
	equal(t, "without a change", s.must("reload"), "nothing has changed\n")

	s.write(web + "    env: {API_TOKEN: hunter2}\n    desired_instances: 2\n    max_surge: 2\n")
	diff := "~ web: desired_instances: 1 → 2 (starts or stops some)\n~ web: min_healthy_instances: 1 → 2 (at once)\n~ web: max_surge: 1 → 2 (at once)\n"
	equal(t, "what is only shown", s.must("reload", "--dry-run"), diff+"nothing was taken over\n")
	equal(t, "processes after that", len(s.health().Groups[0].Processes), 1)
	equal(t, "what is taken over", s.must("reload", "--wait"), diff+"taken over\n")
	equal(t, "processes after that", len(s.health().Groups[0].Processes), 2)

	s.write(web + "    env: {API_TOKEN: hunter3}\n    desired_instances: 2\n    max_surge: 2\n  - name: other\n    command: RUNNER\n")
	equal(t, "a secret and a group", s.must("reload", "--wait"),
		"~ web: env.API_TOKEN: \"[redacted]\" → \"[redacted]\", changed (rolls the group)\n+ other (starts the group)\ntaken over\n")
	h := s.health()
	equal(t, "groups", len(h.Groups), 2)
	equal(t, "revision", h.Groups[0].Revision, "2")

	// By the signal, as daemons do.
	s.write(web + "    desired_instances: 0\n")
	d.cmd.Process.Signal(syscall.SIGHUP)
	s.until("nobody is left", func(h health) bool { return len(h.Groups) == 1 && h.Groups[0].Ready == 0 })

	for name, c := range map[string]struct{ yaml, want string }{
		"another directory": {strings.Replace(web, "STATE", "STATEx", 1), "needs another launcher"},
		"another listener":  {web + "    listeners: [{name: a, address: '127.0.0.1:0'}]\n", "needs another launcher"},
		"a kept listener":   {web + "  - {name: fresh, command: sleep, on_launcher_death: keep, listeners: [{name: a, address: '127.0.0.1:0'}]}\n", "+ fresh (with the next launcher)"},
		"not YAML":          {"process_groups: [", "launcher.yaml:"},
		"no such program":   {web + "  - {name: fresh, command: /no/such}\n", "launcher.yaml:6:19: process_groups[1].command"},
	} {
		s.write(c.yaml)
		_, stderr, code := s.says("reload", "--dir", filepath.Join(s.dir, "s"))
		if code != 1 || !strings.Contains(stderr, c.want) {
			t.Errorf("%s: exit code %d, %s", name, code, stderr)
		}
	}
	s.write(web)
	equal(t, "groups after what was refused", len(s.health().Groups), 1)
	if strings.Contains(d.log(), "hunter") {
		t.Errorf("there is a secret in the log:\n%s", d.log())
	}
}

// An operator sees that a roll is paused, and has it go on or turn back.
func TestPausedRoll(t *testing.T) {
	const yaml = `state_dir: STATE
process_groups:
  - name: web
    command: sh
    args: [-c, 'test ! -e DIR/bad || exit 3; exec RUNNER --process-id {id} --work-duration 1ms']
`
	s := newSite(t, yaml)
	s.runs()
	bad := filepath.Join(s.dir, "bad")
	for _, c := range []struct{ order, says, revision string }{
		{"--resume", "all processes have been replaced\n", "2"},
		{"--rollback", "all processes have been put back\n", "2"},
	} {
		if err := os.WriteFile(bad, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		_, stderr, code := s.says("restart", "-f", s.file(), "--wait", "web")
		if code != 1 || !strings.Contains(stderr, "the roll has failed") {
			t.Errorf("exit code %d, %s", code, stderr)
		}
		if r := s.health().Groups[0].Roll; r == nil || !r.Paused || !strings.Contains(r.Why, "exit status 3") {
			t.Errorf("the pause is not shown: %+v", r)
		}
		if out := s.must("status", "--json=false"); !strings.Contains(out, "who blocks\n  web: the roll to revision ") || !strings.Contains(out, "; launcher restart web --resume, or --rollback\n") {
			t.Errorf("the view does not say what to do:\n%s", out)
		}
		if err := os.Remove(bad); err != nil {
			t.Fatal(err)
		}
		equal(t, c.order, s.must("restart", "web", "--wait", c.order), c.says)
		equal(t, "revision", s.health().Groups[0].Revision, c.revision)
	}
}

// status says who blocks, in colour where that can be seen, and without where nobody wants it.
func TestStatusSaysWhoBlocks(t *testing.T) {
	s := newSite(t, strings.Replace(web, "1ms]", "1ms, --behavior, slow-drain, --drain-duration, 1h]", 1)+
		"    shutdown: {grace_period: 1h, max_duration: 1h, sigterm_timeout: 1s}\n")
	d := s.runs()
	if out := s.must("status", "--json=false"); !strings.Contains(out, "nobody blocks") || strings.Contains(out, "\x1b") {
		t.Errorf("before: %q", out)
	}
	s.must("stop", "web-1", "--no-replacement")
	s.until("web-1 is blocked", func(h health) bool {
		p := h.Groups[0].Processes[0]
		return p.State == "BLOCKED" && slices.Contains(p.Metrics.BlockingOperations, "a slow disk")
	})
	out := s.must("status", "--json=false")
	if !strings.Contains(out, "who blocks\n  web-1: stopping for ") || !strings.Contains(out, "blocked by a slow disk\n") || !strings.Contains(out, "[----------]") {
		t.Errorf("it says\n%s", out)
	}
	// Nothing waits for an hour: the second signal kills.
	d.cmd.Process.Signal(syscall.SIGTERM)
	s.until("the launcher is stopping", func(h health) bool { return h.Groups[0].Message == "stopping" })
	d.cmd.Process.Signal(syscall.SIGTERM)
	equal(t, "exit code", d.ends(), 2)
}

// In a stop, who is over blocks nobody, and nor does a group that has nobody left, or some, and waits for those who need it, which it says.
func TestStatusSaysWhoBlocksAStop(t *testing.T) {
	s := newSite(t, `state_dir: STATE
process_groups:
  - {name: kv, command: RUNNER, args: [--process-id, '{id}'], desired_instances: 2}
  - {name: over, command: RUNNER, args: [--process-id, '{id}']}
  - name: web
    command: RUNNER
    args: [--process-id, '{id}', --behavior, hang]
    depends_on: [kv]
    shutdown: {grace: advisory, max_duration: 1h}
`)
	d := s.runs()
	d.cmd.Process.Signal(syscall.SIGTERM)
	s.until("over is over", func(h health) bool {
		return h.Groups[1].Message == "stopping" && h.Groups[1].Processes[0].State == "COMPLETE"
	})
	s.until("kv waits", func(h health) bool { return h.Groups[0].Message == "stopping, after web" })
	for left := 1; left >= 0; left-- {
		pid, err := strconv.Atoi(s.health().Groups[0].Processes[0].PID) // of the oldest that runs
		if err == nil {
			err = syscall.Kill(pid, syscall.SIGKILL)
		}
		if err != nil {
			t.Fatal(err)
		}
		s.until(fmt.Sprintf("kv has %d left", left), func(h health) bool { return h.Groups[0].Ready == left })
		out := s.must("status", "--json=false")
		_, who, _ := strings.Cut(out, "who blocks\n")
		if !strings.HasPrefix(who, "  web-1: stopping for ") || strings.Count(who, "\n") != 1 || !strings.Contains(out, "stopping, after web\n") {
			t.Errorf("it says\n%s", out)
		}
	}
	s.killsAll(2)
	d.ends()
}

// On a terminal it is the view for people, in colours, unless nobody wants these; elsewhere JSON.
func TestStatusOnATerminal(t *testing.T) {
	s := newSite(t, web)
	s.runs()
	for _, test := range []struct {
		name     string
		env      []string
		terminal bool
		colours  bool
	}{
		{"a terminal", []string{"TERM=xterm-256color"}, true, true},
		{"NO_COLOR", []string{"TERM=xterm-256color", "NO_COLOR=1"}, true, false},
		{"one without colours", []string{"TERM=dumb"}, true, false},
		{"a pipe", []string{"TERM=xterm-256color"}, false, false},
	} {
		cmd := exec.Command(command, "status", "--dir", filepath.Join(s.dir, "s"))
		cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, test.env...)
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
		if view := strings.Contains(out, "nobody blocks") && !strings.Contains(out, "{"); view != test.terminal {
			t.Errorf("%s: for people: %v, want %v:\n%s", test.name, view, test.terminal, out)
		}
	}
}

// onTerminal runs a command on a pseudo-terminal, and returns what is then to be seen there.
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
	text, _ := io.ReadAll(master) // until EIO: nobody has the other end open
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %v\n%s", cmd.Args, err, text)
	}
	return string(text)
}

// While a launcher starts, status says who keeps it from being ready, also when nobody runs who could be named.
func TestStatusSaysWhoIsWaitedFor(t *testing.T) {
	s := newSite(t, `state_dir: STATE
process_groups:
  - name: kv
    command: "false"
    max_surge: 0
    listeners: [{name: kv, address: "127.0.0.1:0"}]
    restart_policy: {initial_backoff: 1h, max_backoff: 1h}
  - name: web
    command: RUNNER
    depends_on: [kv]
`)
	d := s.starts()
	d.prints("listening on")
	s.until("kv has failed", func(h health) bool { return strings.HasPrefix(h.Groups[0].Message, "a failure; the next start is in ") })
	out := s.must("status", "--json=false")
	for _, want := range []string{"exit status 1\n", "who blocks\n  kv: 0 of 1 ready: a failure; the next start is in ", "\n  web: 0 of 1 ready: waits for kv\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not say %q:\n%s", want, out)
		}
	}
}

// What processes print goes on to the launcher's standard output, and is kept for who asks, each time without secrets.
func TestLogs(t *testing.T) {
	s := newSite(t, `state_dir: STATE
redact: ["*_PIN"]
process_groups:
  - name: web
    command: sh
    args: [-c, 'echo card_pin=1234 as {id}; echo DB=postgres://kv:hunter2@db/kv >&2; exec RUNNER --process-id {id}']
  - name: filed
    command: sh
    args: [-c, 'echo password=hunter2 as {id}; exec RUNNER --process-id {id}']
    logs: {dir: DIR/logs}
`)
	d := s.runs()
	out := s.must("logs", "web")
	for _, want := range []string{"web-1 out | card_pin=[redacted] as web-1\n", "web-1 err | DB=postgres://kv:[redacted]@db/kv\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("it has no %q:\n%s", want, out)
		}
	}
	out = s.must("logs", "filed-1", "-n", "1")
	if !strings.HasSuffix(out, "filed-1 out | password=[redacted] as filed-1\n") || strings.Count(out, "\n") != 1 {
		t.Errorf("of one process, the last line: %q", out)
	}
	_, stderr, code := s.says("logs", "-f", s.file(), "nobody")
	if code != 1 || !strings.Contains(stderr, `neither a group nor a process has the name "nobody"`) {
		t.Errorf("of nobody: exit code %d, %s", code, stderr)
	}
	equal(t, "exit code", d.stops(), 0)
	text, err := os.ReadFile(filepath.Join(s.dir, "logs", "filed-1.log"))
	if err != nil || !strings.HasSuffix(string(text), "filed-1 out | password=[redacted] as filed-1\n") {
		t.Errorf("the file of filed-1: %q, %v", text, err)
	}
	for l := range d.lines {
		if strings.Contains(l, "hunter2") || strings.Contains(l, "1234") || strings.Contains(l, "filed-1") {
			t.Errorf("on standard output: %s", l)
		}
	}
}

// logs --follow goes on to the end of the launcher.
func TestFollow(t *testing.T) {
	s := newSite(t, web+"    logs: {max_line: 64}\n")
	s.write(strings.Replace(web, "1ms]", "1ms, -v]", 1))
	d := s.runs()
	followed := make(chan string, 1)
	go func() {
		out, _, _ := s.says("logs", "-f", s.file(), "--follow", "web")
		followed <- out
	}()
	events := make(chan string, 1)
	go func() {
		out, _, _ := s.says("events", "-f", s.file())
		events <- out
	}()
	s.must("restart", "web", "--wait")
	s.must("restart", "web", "--wait")
	d.stops()
	if out := <-followed; !strings.Contains(out, "web-3 err | ") {
		t.Errorf("it misses the last process:\n%s", out)
	}
	if out := <-events; !strings.Contains(out, "COMPLETE") {
		t.Errorf("events has no end:\n%s", out)
	}
}

// ^C is how one leaves what goes on, and no failure.
func TestInterruptedWatching(t *testing.T) {
	s := newSite(t, strings.Replace(web, "1ms]", "1ms, -v]", 1))
	s.runs()
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
		for there := false; !there; { // until it listens
			s.must("restart", "web", "--wait")
			select {
			case there = <-seen:
				if !there {
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

// Files and names for others: shells, and those who run the groups elsewhere.
func TestCompletionAndExport(t *testing.T) {
	s := newSite(t, web)
	s.runs()
	for _, shell := range []string{"bash", "zsh", "fish"} {
		out, _, code := s.says("completion", shell)
		if code != 0 || !strings.Contains(out, "__complete") {
			t.Errorf("%s: exit code %d, %.100q", shell, code, out)
		}
	}
	s.must("restart", "web", "--wait")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"restart", ""}, "web"},
		{[]string{"stop", ""}, "web-2"}, // and not one that has ended
		{[]string{"logs", ""}, "web web-2"},
		{[]string{"restart", "web", ""}, ""},
		{[]string{"run", "--protocol", ""}, "grpc signals"},
	} {
		out, _, code := s.says(append([]string{"__complete", "-f", s.file()}, c.args...)...)
		equal(t, fmt.Sprintf("what %q is completed to", c.args), strings.Join(strings.Fields(out), " "), strings.TrimSpace(c.want+" :4")) // and no files
		equal(t, "exit code", code, 0)
	}

	for _, target := range []string{"kubernetes", "nomad", "systemd"} {
		to := filepath.Join(s.dir, target)
		_, stderr, code := s.says("export", target, "-f", s.file(), "-o", to)
		files, _ := filepath.Glob(filepath.Join(to, "web*"))
		if code != 0 || len(files) == 0 || !strings.Contains(stderr, "web: ") {
			t.Errorf("%s: exit code %d, files %q, gaps %q", target, code, files, stderr)
		}
	}
	out, _, code := s.says("export", "nomad", "-f", s.file())
	equal(t, "a job on standard output", []any{json.Valid([]byte(out)), code}, []any{true, 0})
}

// validate says all that is wrong with a file, by line, and touches nothing; what is right it shows without secrets.
func TestValidate(t *testing.T) {
	s := newSite(t, web+"    env: {API_TOKEN: hunter2}\n")
	out, stderr, code := s.says("validate", s.file())
	equal(t, "of a file that is valid", []any{out, stderr, code}, []any{s.file() + " is valid: 1 groups\n", "", 0})
	out, _, code = s.says("validate", "--print", s.file())
	if code != 0 || !strings.Contains(out, "max_surge: 1") || strings.Contains(out, "hunter2") {
		t.Errorf("printed, exit code %d:\n%s", code, out)
	}
	s.write(web + "    max_serge: 1\n    desired_instances: many\n")
	out, stderr, code = s.says("validate", s.file())
	for _, want := range []string{":6:5: process_groups[0].max_serge: ", ":7:24: process_groups[0].desired_instances: "} {
		if !strings.Contains(stderr, s.file()+want) {
			t.Errorf("it does not say %s%s…:\n%s", s.file(), want, stderr)
		}
	}
	equal(t, "of one that is not", []any{out, code}, []any{"", 1})
	if _, err := os.Stat(filepath.Join(s.dir, "s")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the state_dir: %v", err)
	}
}

// The end of a terminal drains what runs there, as SIGTERM does, and a second SIGHUP does not cut that short; with a file, it
// ends nobody, not even in the drain.
func TestHangup(t *testing.T) {
	s := newSite(t, strings.Replace(web, "1ms]", "1ms, --behavior, slow-drain, --drain-duration, 1h]", 1)+
		"    shutdown: {grace_period: 1h, max_duration: 1h}\n")
	flags := []string{"--dir", filepath.Join(s.dir, "s"), "--name", "web", "--grace", "1h", "--max", "1h", "--",
		testrunner, "--process-id", "{id}", "--behavior", "slow-drain", "--drain-duration", "1h"}
	for name, c := range map[string]struct {
		args []string
		stop syscall.Signal
	}{
		"without a file": {flags, syscall.SIGHUP},
		"with a file":    {nil, syscall.SIGTERM},
	} {
		d := s.runs(c.args...)
		d.cmd.Process.Signal(c.stop)
		s.until("the launcher is stopping", func(h health) bool { return h.Groups[0].Message == "stopping" })
		d.cmd.Process.Signal(syscall.SIGHUP)
		s.must("status")
		d.cmd.Process.Signal(syscall.SIGTERM)
		equal(t, "exit code "+name, d.ends(), 2)
	}
}

// The limits that hold when the launcher stops are those of the last reload, and not those that it was started with.
func TestReloadedLimitsHoldInTheStop(t *testing.T) {
	slow := strings.Replace(web, "1ms]", "1ms, --behavior, slow-drain, --drain-duration, 1200ms]", 1)
	s := newSite(t, "total_deadline: 10ms\n"+slow)
	d := s.runs()
	s.write("total_deadline: 10m\n" + slow + "    shutdown: {grace_period: 1m, max_duration: 2m}\n")
	s.must("reload", "--wait")
	equal(t, "exit code", d.stops(), 0)
	if strings.Contains(d.log(), "SIGKILL") || strings.Contains(d.log(), "not drained") {
		t.Errorf("the drain was cut short:\n%s", d.log())
	}
}

// What a shutdown would have to drain is shown of all, of a group, or of a process, and of both where they have the same name.
func TestDryRun(t *testing.T) {
	s := newSite(t, web+"    desired_instances: 2\n  - {name: web-1, command: RUNNER, args: [--process-id, '{id}']}\n")
	s.runs()
	for whom, want := range map[string][]string{
		"":      {"web-1", "web-1-1", "web-2"},
		"web":   {"web-1", "web-2"},
		"web-1": {"web-1", "web-1-1"},
		"web-2": {"web-2"},
	} {
		args := []string{"drain", "--dry-run"}
		if whom != "" {
			args = append(args, whom)
		}
		var got []string
		for l := range strings.Lines(s.must(args...)) {
			got = append(got, strings.Fields(l)[0])
		}
		slices.Sort(got)
		equal(t, "of "+whom, got, want)
	}
	_, stderr, code := s.says("drain", "--dry-run", "-f", s.file(), "nobody")
	if code != 1 || !strings.Contains(stderr, `neither a group nor a process has the name "nobody"`) {
		t.Errorf("of nobody: exit code %d, %s", code, stderr)
	}
}

// Where one group cannot be started, the others are told why they are to stop, in words that are said once.
func TestFailedStart(t *testing.T) {
	s := newSite(t, web+"  - {name: broken, command: sh, args: [-c, exit 3], restart_policy: never}\n")
	d := s.starts()
	equal(t, "exit code", d.ends(), 1)
	if log := d.log(); !strings.Contains(log, `message="launcher: group \"broken\"`) {
		t.Errorf("the log:\n%s", log)
	}
}
