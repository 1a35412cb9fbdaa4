//go:build linux

package main_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/swansong-go/swansong/internal/testkit"
)

const web = `state_dir: STATE
process_groups:
  - name: web
    command: RUNNER
    args: [--process-id, "{id}", --work-duration, 1ms]
`

// An error in a file is reported with file, line, key and rule, and no process is left running,
// even if the error was found after some had started.
func TestRun_ReportsInvalidFileByLineAndKey(t *testing.T) {
	for _, c := range []struct {
		name, yaml string
		want       string // the error message after the name of the file
	}{
		{"an empty file", "", ":1:1: is empty; it needs process_groups"},
		{"a second document", web + "---\n", ":6:1: a second document begins here (---)"},
		{"an unknown key", web + "    max_serge: 1\n", ":6:5: process_groups[0].max_serge: unknown key; did you mean max_surge?"},
		{"a wrong type", web + "    desired_instances: many\n", ":6:24: process_groups[0].desired_instances: must be a whole number, not a string"},
		{"a duration without a unit", web + "    health_check_timeout: 30\n", ":6:27: process_groups[0].health_check_timeout: needs a unit"},
		{"a negative count", web + "    desired_instances: -1\n", ":6:5: process_groups[0].desired_instances: must be 0 to 10000, not -1"},
		{"a count out of range", web + "    desired_instances: 99999999999999999999\n", ":6:24: process_groups[0].desired_instances: 99999999999999999999 is out of range"},
		{"min_healthy_instances above desired_instances", web + "    min_healthy_instances: 2\n", ":6:5: process_groups[0].min_healthy_instances: must be 0 to desired_instances, which is 1, not 2"},
		{"no instance can be replaced", web + "    min_healthy_instances: 1\n    max_surge: 0\n", ":7:5: process_groups[0].max_surge: 0 with min_healthy_instances = desired_instances (1) leaves no way"},
		{"a duplicate name", web + "  - name: web\n    command: RUNNER\n", `:6:5: process_groups[1].name: "web" is already the name of a group, in line 3`},
		{"a missing program", web + "  - name: other\n    command: /no/such/program\n", `:7:5: process_groups[1].command: there is no executable program "/no/such/program"`},
		{"a missing directory", web + "    working_dir: /no/such\n", `:6:5: process_groups[0].working_dir: "/no/such" is not a directory`},
		{"a name with a path", web + "  - name: ../web\n    command: RUNNER\n", ":6:5: process_groups[1].name: must be up to 63"},
		{"a missing user", web + "    protocol: signals\n    user: no-such-user\n", `:7:5: process_groups[0].user: there is no user "no-such-user" on this machine`},
		{"a missing group", web + "    protocol: signals\n    group: no-such-group\n", `:7:5: process_groups[0].group: there is no group "no-such-group" on this machine`},
		{"a missing variable", web + "    working_dir: /${NO_SUCH_VARIABLE}\n", ":6:18: process_groups[0].working_dir: the variable NO_SUCH_VARIABLE is not set in the launcher's environment; set it, or write"},
		{"a missing env_file", web + "    env_file: [/no/such.env]\n", ":6:16: process_groups[0].env_file[0]: /no/such.env cannot be read: no such file"},
		{"a limit above the launcher's", web + "    rlimits: {nofile: 18446744073709551614}\n", ":6:5: process_groups[0].rlimits: nofile cannot be raised to 18446744073709551614"},
		{"a service that is to complete", web + "  - {name: other, depends_on: {web: completed}, command: RUNNER}\n", `:6:32: process_groups[1].depends_on[0]: "web" is a service, which is not meant to complete`},
		{"an address that cannot be listened on", web + "    listeners: [{name: a, network: unix, address: /no/such/socket}]\n", ":6:5: process_groups[0].listeners: listen unix /no/such/socket"},
		{"a log directory that cannot be created", web + "    logs: {dir: /dev/null/logs}\n", ":6:12: process_groups[0].logs.dir: mkdir /dev/null"},

		{"a script without an interpreter", web + "  - name: script\n    command: DIR/script\n    restart_policy: {initial_backoff: 1ms, crash_loop_limit: 1}\n",
			":7:5: process_groups[1].command: given up after a failure; the last: script-1: "},

		// The following errors are found only after processes have started.
		{"a process that is never ready", web + `  - name: late
    protocol: grpc
    command: RUNNER
    args: [--process-id, "{id}", --ready-after, -1s]
    health_check_timeout: 100ms
    shutdown: {sigterm_timeout: 5s}
    restart_policy: {initial_backoff: 1ms, crash_loop_limit: 2}
`, ":6:5: process_groups[1].name: given up after 2 failures in a row; the last: late-2: not ready within 100ms"},
		{"a process without the protocol", web + `  - name: mute
    protocol: grpc
    command: sleep
    args: ["1000"]
    health_check_timeout: 1s
    restart_policy: {initial_backoff: 1ms, crash_loop_limit: 1}
`, ":6:5: process_groups[1].name: given up after a failure; the last: mute-1: not ready within 1s (the process has never answered: "},
		{"a process without the protocol, never restarted", web + `  - name: mute
    protocol: grpc
    command: sleep
    args: ["1000"]
    health_check_timeout: 1s
    restart_policy: never
`, ":6:5: process_groups[1].name: given up after a failure; the last: mute-1: not ready within 1s (the process has never answered: "},
		{"a process that exits, never restarted", web + `  - name: gone
    command: "false"
    protocol: grpc
    restart_policy: never
`, ":6:5: process_groups[1].name: given up after a failure; the last: gone-1: CRASHED: exit status 1"},
		{"a process that exits", web + `  - name: gone
    command: "false"
    protocol: grpc
    restart_policy: {initial_backoff: 1ms, crash_loop_limit: 3}
`, ":6:5: process_groups[1].name: given up after 3 failures in a row; the last: gone-3: CRASHED: exit status 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSite(t, c.yaml)
			if err := os.WriteFile(filepath.Join(s.dir, "script"), []byte("exit 0\n"), 0o700); err != nil {
				t.Fatal(err)
			}
			stdout, stderr, code := s.run("run", "-f", s.file())
			testkit.Equal(t, "exit code", code, 1)
			lines := strings.Split(strings.TrimSpace(stderr), "\n")
			if last := lines[len(lines)-1]; !strings.HasPrefix(last, s.file()+c.want) {
				t.Errorf("got  %s\nwant %s%s…", last, s.file(), c.want)
			}
			if strings.Contains(stdout, "ready\n") {
				t.Errorf("the launcher has printed that it is ready:\n%s", stdout)
			}
		})
	}
}

// The file is changed and loaded again while the launcher runs. A later error names the line in the
// changed file.
func TestRun_ErrorNamesLineInFileThatWasChangedMeanwhile(t *testing.T) {
	const file = "state_dir: STATE\nprocess_groups:\n  - {name: web, protocol: grpc, restart_policy: never, command: sh, args: [-c, 'echo up; until [ -e DIR/go ]; do sleep 0.1; done; exit 3']}\n"
	s := newSite(t, file)
	d := s.start("-f", s.file())
	d.waitForLine("up")
	s.write("# This line moves the others.\n" + file)
	testkit.Equal(t, "reload", s.mustRun("reload"), nothing)
	s.touch("go")
	testkit.Equal(t, "exit code", d.ends(), 1)
	want := "\n" + s.file() + ":4:6: process_groups[0].name: given up after a failure; the last: web-1: CRASHED: exit status 3"
	if !strings.Contains(d.log(), want) {
		t.Errorf("the log does not contain %s:\n%s", want, d.log())
	}
}

// An address in use is reported at its position in the file, and processes that have started are
// stopped.
func TestRun_ErrorForAddressInUseNamesItsLineInFile(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	s := newSite(t, web+"metrics: {address: "+ln.Addr().String()+"}\n")
	_, stderr, code := s.run("run", "-f", s.file())
	testkit.Equal(t, "exit code", code, 1)
	lines := strings.Split(strings.TrimSpace(stderr), "\n")
	if last, want := lines[len(lines)-1], s.file()+":6:11: metrics.address: listen tcp "+ln.Addr().String()+": "; !strings.HasPrefix(last, want) {
		t.Errorf("got  %s\nwant %s…", last, want)
	}
}

// A second launcher cannot use the same directory. It says so, and does not disturb the first.
func TestRun_RefusesDirectoryOfRunningLauncher(t *testing.T) {
	s := newSite(t, web)
	first := s.startReady()
	_, stderr, code := s.run("run", "-f", s.file())
	testkit.Equal(t, "exit code", code, 1)
	testkit.Equal(t, "stderr", stderr, fmt.Sprintf("%s:1:1: state_dir: another launcher has this directory: %s (pid %d); stop the other launcher first, or give this launcher a directory of its own\n",
		s.file(), filepath.Join(s.dir, "s"), first.cmd.Process.Pid))
	if out := s.mustRun("status", "--json=false"); !strings.Contains(out, "web  healthy, 1 of 1 ready") {
		t.Errorf("status of the first launcher:\n%s", out)
	}
}

// Flags and arguments that do not fit together are refused.
func TestCommandLine_RefusesConflictingFlags(t *testing.T) {
	s := newSite(t, web)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"run"}, "launcher: nothing to run"},
		{[]string{"run", "-f", s.file(), "--desired", "2"}, "launcher: --desired cannot be combined with -f; set it in the configuration file"},
		{[]string{"run", "-f", s.file(), "--", "sleep"}, "launcher: run -f takes no command"},
		{[]string{"run", "-f", "no.yaml"}, "no.yaml: cannot be read: no such file"},
		{[]string{"restart", "-f", s.file(), "--resume", "--rollback", "web"}, "if any flags in the group [resume rollback] are set none of the others can be"},
		{[]string{"export", "docker", "-f", s.file()}, `export: unknown target "docker"; the targets are kubernetes, nomad, systemd`},
		{[]string{"export", "nomad"}, "launcher: no configuration file"},
		{[]string{"status", "-f", s.file()}, "launcher: cannot connect to " + filepath.Join(s.dir, "s", "launcher.sock")},
		{[]string{"drain"}, "launcher: drain needs --dry-run"},
		{[]string{"stop", "web-1", "--grace", "-5s"}, "launcher: --grace must be more than 0 and at most 24h0m0s, not -5s; leave it out to use the configured value"},
		{[]string{"stop", "web-1", "--grace", "0s"}, "launcher: --grace must be more than 0"},
		{[]string{"stop", "web-1", "--grace", "25h"}, "launcher: --grace must be more than 0 and at most 24h0m0s, not 25h0m0s"},
		{[]string{"run", "--kind", "batch", "--", "true"}, `launcher: --kind must be service or job, not "batch"`},
		{[]string{"run", "--max", "0s", "--", "true"}, "launcher: --max must be more than 0 and at most 24h0m0s, not 0s"},
		{[]string{"logs", "-n", "-5"}, "launcher: --lines must be 0 or more, not -5"},
		{[]string{"status", "--cert", "a.pem"}, "launcher: --cert is only for --remote; name the host:port"},
		{[]string{"status", "--remote", "127.0.0.1:1", "--cert", "a.pem"}, "launcher: --remote needs --key: over TCP"},
	} {
		_, stderr, code := s.run(c.args...)
		if code != 1 || !strings.HasPrefix(stderr, c.want) {
			t.Errorf("%q: exit code %d, %s\nwant %s…", c.args, code, stderr, c.want)
		}
	}
}

// Another user can create the default directory if it is in /tmp. The command run then refuses to
// use it, and the other commands do not connect to a launcher in it unless --dir names it. All this
// also holds for root.
func TestDefaultDirectory_IsRefusedWhenOwnedByOtherUser(t *testing.T) {
	s := newSite(t, web)
	theirs := filepath.Join(s.dir, "theirs")
	belongs := theirs + " belongs to another user"
	if os.Geteuid() == 0 {
		if err := errors.Join(os.Mkdir(theirs, 0o700), os.Chown(theirs, 65534, 65534)); err != nil {
			t.Fatal(err)
		}
	} else {
		if err := os.Symlink("/", theirs); err != nil { // a link to the directory /, which belongs to root
			t.Fatal(err)
		}
		belongs = theirs + " is not a directory; a symbolic link is not accepted either"
	}
	t.Setenv("RUNTIME_DIRECTORY", theirs)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"status"}, "launcher: the default directory " + theirs + " belongs to another user; to connect to the launcher of that user, name it by --dir"},
		{[]string{"status", "--dir", theirs}, "launcher: cannot connect to " + filepath.Join(theirs, "launcher.sock")},
		{[]string{"run", "--", "true"}, "launcher: Dir: " + belongs},
	} {
		_, stderr, code := s.run(c.args...)
		if code != 1 || !strings.HasPrefix(stderr, c.want) {
			t.Errorf("%q: exit code %d, %s\nwant %s…", c.args, code, stderr, c.want)
		}
	}
}

// A launcher that does not answer is not reported as belonging to another user. The error says why
// there is no answer.
func TestAdminCommands_ReportWhyLauncherDoesNotAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		serve func(ln net.Listener)
		want  string
	}{
		"it exits before it answers": {func(ln net.Listener) {
			for {
				conn, err := ln.Accept()
				if err != nil {
					return
				}
				conn.Close()
			}
		}, "launcher: the launcher at SOCKET exited before it answered, "},
		"it hangs": {func(net.Listener) {}, "launcher: no answer from SOCKET within 5s: the launcher hangs or is suspended, "},
	} {
		t.Run(name, func(t *testing.T) {
			dir := newSite(t, web).dir
			socket := filepath.Join(dir, "launcher.sock")
			ln, err := net.Listen("unix", socket)
			if err != nil {
				t.Fatal(err)
			}
			served := make(chan struct{})
			go func() { defer close(served); c.serve(ln) }()
			_, stderr, code := (&site{t, dir}).run("status", "--dir", dir)
			ln.Close()
			<-served
			if want := strings.Replace(c.want, "SOCKET", socket, 1); code != 1 || !strings.HasPrefix(stderr, want) {
				t.Errorf("exit code %d, %s\nwant %s…", code, stderr, want)
			}
		})
	}
}

// An error of the command line says what to do instead, and needs no running launcher.
func TestCommandLine_ErrorMessagesSayWhatUserCanDo(t *testing.T) {
	s := newSite(t, web)
	for args, want := range map[string]string{
		"stop":                "launcher: stop which process or group? Run launcher status to list them\n",
		"restart":             "launcher: restart which group? Run launcher status to list them\n",
		"export":              "launcher: export to which platform? The platforms are kubernetes, nomad, systemd\n",
		"export nomad web":    "launcher: export takes one argument, but got \"nomad\" and \"web\"; run it once for each\n",
		"reload web":          "launcher: reload takes no argument, but got \"web\"\n",
		"status --output":     "launcher: status: unknown flag: --output; launcher status --help lists the flags\n",
		"stop web-1 --grace":  "launcher: stop: flag needs an argument: --grace; launcher stop --help lists the flags\n",
		"restart web --wait=": "launcher: restart: invalid argument \"\" for \"--wait\" flag: strconv.ParseBool: parsing \"\": invalid syntax; launcher restart --help lists the flags\n",
	} {
		stdout, stderr, code := s.run(strings.Fields(args)...)
		testkit.Equal(t, args, stderr, want)
		testkit.Equal(t, args+": exit code", code, 1)
		testkit.Equal(t, args+": standard output", stdout, "")
	}
}

// A configuration can come from a pipe, which can be read only once. An error at the start names
// the line, and the launcher does not wait for the pipe again.
func TestRun_DoesNotReadPipeAgainAfterError(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	s := newSite(t, "state_dir: STATE\nprocess_groups:\n  - {name: web, command: RUNNER, listeners: [{name: app, address: '"+taken.Addr().String()+"'}]}\n")
	text, err := os.ReadFile(s.file())
	if err != nil {
		t.Fatal(err)
	}
	pipe := filepath.Join(s.dir, "pipe")
	var reads atomic.Int64
	done := make(chan struct{})
	testkit.Equal(t, "error of Mkfifo", syscall.Mkfifo(pipe, 0o600), nil)
	go func() {
		defer close(done)
		for range 2 {
			// blocks until another program opens the pipe for reading
			f, err := os.OpenFile(pipe, os.O_WRONLY, 0)
			if err != nil {
				t.Error(err)
				return
			}
			reads.Add(1)
			os.Remove(pipe) // a second read of the path must open another pipe, and is counted
			syscall.Mkfifo(pipe, 0o600)
			f.Write(text)
			f.Close()
		}
	}()
	_, stderr, code := s.run("run", "-f", pipe)
	testkit.Equal(t, "exit code", code, 1)
	testkit.Equal(t, "how often the pipe was read", reads.Load(), int64(1))
	if want := pipe + ":3:"; !strings.Contains(stderr, want) {
		t.Errorf("standard error does not contain %s:\n%s", want, stderr)
	}
	// The goroutine above waits for a second reader of the pipe. Give it one, so that it ends.
	if f, err := os.OpenFile(pipe, os.O_RDWR, 0); err == nil {
		defer f.Close()
	}
	<-done
}

// The command validate refuses a file in which a group has a user that could not reach the sockets
// of its processes. The launcher would refuse that file at its start.
func TestValidate_RefusesUserThatCannotReachSockets(t *testing.T) {
	for what, keys := range map[string]string{
		"the protocol": "",
		"a hook":       "    protocol: signals\n    pre_stop: [{command: 'true', args: ['{socket}']}]\n",
		"a variable":   "    protocol: signals\n    env_file: [DIR/env]\n",
		"a probe":      "    protocol: signals\n    readinessProbe: {exec: {command: ['true', '{socket}']}}\n",
	} {
		s := newSite(t, "state_dir: STATE\nprocess_groups:\n  - name: web\n    command: RUNNER\n    user: nobody\n"+keys)
		if err := os.WriteFile(filepath.Join(s.dir, "env"), []byte("ADDRESS={socket}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		want := "with the uid 65534 need a directory in " + s.dir + ", but these processes have no permission to enter " + s.dir
		if os.Geteuid() != 0 {
			want = "only root"
		}
		_, stderr, code := s.run("validate", s.file())
		if code == 0 || !strings.Contains(stderr, "process_groups[0].user: ") || !strings.Contains(stderr, want) {
			t.Errorf("sockets for %s: exit code %d: %s, want %q", what, code, stderr, want)
		}
	}
}
