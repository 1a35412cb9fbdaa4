//go:build linux

package main_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const web = `state_dir: STATE
process_groups:
  - name: web
    command: RUNNER
    args: [--process-id, "{id}", --work-duration, 1ms]
`

// Whatever is wrong with a file is said with file, line, key and rule, and nobody is left who was started before that was
// known.
func TestBadInput(t *testing.T) {
	for _, c := range []struct {
		name, yaml string
		want       string // after the name of the file
	}{
		{"an empty file", "", ":1:1: has nothing in it; it needs process_groups"},
		{"a second file in it", web + "---\n", ":6:1: a second document begins here (---)"},
		{"an unknown key", web + "    max_serge: 1\n", ":6:5: process_groups[0].max_serge: there is no such key; did you mean max_surge?"},
		{"a wrong type", web + "    desired_instances: many\n", ":6:24: process_groups[0].desired_instances: must be a whole number, not a string"},
		{"a duration without its unit", web + "    health_check_timeout: 30\n", ":6:27: process_groups[0].health_check_timeout: needs a unit"},
		{"a negative count", web + "    desired_instances: -1\n", ":6:5: process_groups[0].desired_instances: must be 0 to 1000, not -1"},
		{"a count that no number holds", web + "    desired_instances: 99999999999999999999\n", ":6:5: process_groups[0].desired_instances: must be 0 to 1000, not 99999999999999999999"},
		{"more healthy than there are", web + "    min_healthy_instances: 2\n", ":6:5: process_groups[0].min_healthy_instances: must be 0 to desired_instances, which is 1, not 2"},
		{"no way to replace", web + "    min_healthy_instances: 1\n    max_surge: 0\n", ":7:5: process_groups[0].max_surge: 0 with min_healthy_instances = desired_instances (1) leaves no way"},
		{"a name twice", web + "  - name: web\n    command: RUNNER\n", `:6:5: process_groups[1].name: "web" is the name of a group already, in line 3`},
		{"a program that is not there", web + "  - name: other\n    command: /no/such/program\n", `:7:5: process_groups[1].command: there is no program "/no/such/program"`},
		{"a directory that is not there", web + "    working_dir: /no/such\n", `:6:5: process_groups[0].working_dir: "/no/such" is no directory`},
		{"a name that leads elsewhere", web + "  - name: ../web\n    command: RUNNER\n", ":6:5: process_groups[1].name: must be up to 63"},
		{"an address that cannot be had", web + "    listeners: [{name: a, network: unix, address: /no/such/socket}]\n", ":6:5: process_groups[0].listeners: listen unix /no/such/socket"},
		{"logs that cannot be", web + "    logs: {dir: /dev/null/logs}\n", ":6:12: process_groups[0].logs.dir: mkdir /dev/null"},

		{"a script that does not say of what", web + "  - name: script\n    command: DIR/script\n    restart_policy: {initial_backoff: 1ms, crash_loop_limit: 1}\n",
			":7:5: process_groups[1].command: given up after a failure; the last: script-1: "},

		// These are only known when something runs already.
		{"a child that is never ready", web + `  - name: late
    command: RUNNER
    args: [--process-id, "{id}", --ready-after, -1s]
    health_check_timeout: 100ms
    shutdown: {sigterm_timeout: 5s}
    restart_policy: {initial_backoff: 1ms, crash_loop_limit: 2}
`, ":6:5: process_groups[1].name: given up after 2 failures in a row; the last: late-2: not ready within 100ms"},
		{"a child without the protocol", web + `  - name: mute
    command: sleep
    args: ["1000"]
    health_check_timeout: 100ms
    restart_policy: {initial_backoff: 1ms, crash_loop_limit: 1}
`, ":6:5: process_groups[1].name: given up after a failure; the last: mute-1: not ready within 100ms (it has never answered: "},
		{"a child without the protocol, once", web + `  - name: mute
    command: sleep
    args: ["1000"]
    health_check_timeout: 100ms
    restart_policy: never
`, ":6:5: process_groups[1].name: given up after a failure; the last: mute-1: not ready within 100ms (it has never answered: "},
		{"a child that ends, once", web + `  - name: gone
    command: "false"
    restart_policy: never
`, ":6:5: process_groups[1].name: given up after a failure; the last: gone-1: CRASHED: exit status 1"},
		{"a child that ends", web + `  - name: gone
    command: "false"
    restart_policy: {initial_backoff: 1ms, crash_loop_limit: 3}
`, ":6:5: process_groups[1].name: given up after 3 failures in a row; the last: gone-3: CRASHED: exit status 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSite(t, c.yaml)
			if err := os.WriteFile(filepath.Join(s.dir, "script"), []byte("exit 0\n"), 0o700); err != nil {
				t.Fatal(err)
			}
			stdout, stderr, code := s.says("run", "-f", s.file())
			equal(t, "exit code", code, 1)
			lines := strings.Split(strings.TrimSpace(stderr), "\n")
			if last := lines[len(lines)-1]; !strings.HasPrefix(last, s.file()+c.want) {
				t.Errorf("got  %s\nwant %s%s…", last, s.file(), c.want)
			}
			if strings.Contains(stdout, "ready\n") {
				t.Errorf("it says that it is ready:\n%s", stdout)
			}
		})
	}
}

// An address that somebody else has is the file's fault, too, and ends what has been started.
func TestAddressInUse(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	s := newSite(t, web+"metrics: {address: "+ln.Addr().String()+"}\n")
	_, stderr, code := s.says("run", "-f", s.file())
	equal(t, "exit code", code, 1)
	lines := strings.Split(strings.TrimSpace(stderr), "\n")
	if last, want := lines[len(lines)-1], s.file()+":6:11: metrics.address: listen tcp "+ln.Addr().String()+": "; !strings.HasPrefix(last, want) {
		t.Errorf("got  %s\nwant %s…", last, want)
	}
}

// Two launchers cannot have one directory: the second one says so, and does not disturb the first.
func TestTwoLaunchers(t *testing.T) {
	s := newSite(t, web)
	first := s.runs()
	_, stderr, code := s.says("run", "-f", s.file())
	equal(t, "exit code", code, 1)
	equal(t, "what it says", stderr, fmt.Sprintf("%s:1:1: state_dir: another launcher has this directory: %s (pid %d); stop that one first, or give this one a directory of its own\n",
		s.file(), filepath.Join(s.dir, "s"), first.cmd.Process.Pid))
	if out := s.must("status", "--json=false"); !strings.Contains(out, "web  healthy, 1 of 1 ready") {
		t.Errorf("the first one is\n%s", out)
	}
}

// What does not fit together on the command line is refused, too.
func TestBadUsage(t *testing.T) {
	s := newSite(t, web)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"run"}, "launcher: run what?"},
		{[]string{"run", "-f", s.file(), "--desired", "2"}, "launcher: --desired is for a group without a file"},
		{[]string{"run", "-f", s.file(), "--", "sleep"}, "launcher: run -f takes no command"},
		{[]string{"run", "-f", "no.yaml"}, "no.yaml: cannot be read: no such file"},
		{[]string{"restart", "-f", s.file(), "--resume", "--rollback", "web"}, "if any flags in the group [resume rollback] are set none of the others can be"},
		{[]string{"export", "docker", "-f", s.file()}, `export: there is no target "docker"; there are kubernetes, nomad, systemd`},
		{[]string{"export", "nomad"}, "launcher: which file?"},
		{[]string{"status", "-f", s.file()}, "launcher: nobody answers at " + filepath.Join(s.dir, "s", "launcher.sock")},
		{[]string{"drain"}, "launcher: drain is for --dry-run"},
		{[]string{"stop", "web-1", "--grace", "-5s"}, "launcher: --grace has to be more than 0 and at most 24h0m0s, and not -5s; leave it out for what is configured"},
		{[]string{"stop", "web-1", "--grace", "0s"}, "launcher: --grace has to be more than 0"},
		{[]string{"stop", "web-1", "--grace", "25h"}, "launcher: --grace has to be more than 0 and at most 24h0m0s, and not 25h0m0s"},
		{[]string{"run", "--max", "0s", "--", "true"}, "launcher: --max has to be more than 0 and at most 24h0m0s, and not 0s"},
		{[]string{"run", "--min-ready", "-1s", "--", "true"}, "launcher: --min-ready has to be 0 or more and at most 24h0m0s, and not -1s"},
		{[]string{"logs", "-n", "-5"}, "launcher: --lines has to be 0 or more, and not -5"},
		{[]string{"status", "--cert", "a.pem"}, "launcher: --cert is for a launcher elsewhere; name its host:port by --remote"},
		{[]string{"status", "--remote", "127.0.0.1:1", "--cert", "a.pem"}, "launcher: --remote needs --key, too"},
	} {
		_, stderr, code := s.says(c.args...)
		if code != 1 || !strings.HasPrefix(stderr, c.want) {
			t.Errorf("%q: exit code %d, %s\nwant %s…", c.args, code, stderr, c.want)
		}
	}
}

// A default directory of another user, which anybody can make in /tmp, is neither asked nor used, not even by root. Whoever
// names it, means it.
func TestDefaultDirectoryOfAnotherUser(t *testing.T) {
	s := newSite(t, web)
	theirs := filepath.Join(s.dir, "theirs")
	belongs := theirs + " belongs to another user"
	if os.Geteuid() == 0 {
		if err := errors.Join(os.Mkdir(theirs, 0o700), os.Chown(theirs, 65534, 65534)); err != nil {
			t.Fatal(err)
		}
	} else {
		if err := os.Symlink("/", theirs); err != nil { // which is root's
			t.Fatal(err)
		}
		belongs = theirs + " is no directory; a symbolic link will not do"
	}
	t.Setenv("RUNTIME_DIRECTORY", theirs)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"status"}, "launcher: " + theirs + ", the default, belongs to another user; if it is that user's launcher that you want to ask, name it by --dir"},
		{[]string{"status", "--dir", theirs}, "launcher: nobody answers at " + filepath.Join(theirs, "launcher.sock")},
		{[]string{"run", "--", "true"}, "launcher: Dir: " + belongs},
	} {
		_, stderr, code := s.says(c.args...)
		if code != 1 || !strings.HasPrefix(stderr, c.want) {
			t.Errorf("%q: exit code %d, %s\nwant %s…", c.args, code, stderr, c.want)
		}
	}
}

// A launcher that does not answer is no launcher of another user: what becomes of the call says why.
func TestNoAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		serve func(ln net.Listener)
		want  string
	}{
		"it ends while it is asked": {func(ln net.Listener) {
			for {
				conn, err := ln.Accept()
				if err != nil {
					return
				}
				conn.Close()
			}
		}, "launcher: the launcher at SOCKET has ended while it was asked; "},
		"it hangs": {func(net.Listener) {}, "launcher: nothing has come from SOCKET within 5s: the launcher hangs, or is stopped, "},
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
			_, stderr, code := (&site{t, dir}).says("status", "--dir", dir)
			ln.Close()
			<-served
			if want := strings.Replace(c.want, "SOCKET", socket, 1); code != 1 || !strings.HasPrefix(stderr, want) {
				t.Errorf("exit code %d, %s\nwant %s…", code, stderr, want)
			}
		})
	}
}

// What is wrong with a command line is said with what to do instead, and without a launcher.
func TestBadArguments(t *testing.T) {
	s := newSite(t, web)
	for args, want := range map[string]string{
		"stop":                "launcher: stop which process? status lists those that there are\n",
		"restart":             "launcher: restart which group? status lists those that there are\n",
		"export":              "launcher: export to what? There are kubernetes, nomad, systemd\n",
		"stop web-1 web-2":    "launcher: stop takes one argument, and after \"web-1\" there is \"web-2\"; call it once for each\n",
		"logs web-1 web-2":    "launcher: logs takes one argument, and after \"web-1\" there is \"web-2\"; call it once for each\n",
		"reload web":          "launcher: reload takes no argument, and there is \"web\"\n",
		"status --output":     "launcher: status: unknown flag: --output; launcher status --help lists those that there are\n",
		"stop web-1 --grace":  "launcher: stop: flag needs an argument: --grace; launcher stop --help lists those that there are\n",
		"restart web --wait=": "launcher: restart: invalid argument \"\" for \"--wait\" flag: strconv.ParseBool: parsing \"\": invalid syntax; launcher restart --help lists those that there are\n",
	} {
		stdout, stderr, code := s.says(strings.Fields(args)...)
		equal(t, args, stderr, want)
		equal(t, args+": exit code", code, 1)
		equal(t, args+": standard output", stdout, "")
	}
}
