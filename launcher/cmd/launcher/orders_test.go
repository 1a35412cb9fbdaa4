//go:build linux

package main_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/swansong-go/swansong/internal/testkit"
)

const two = `state_dir: STATE
process_groups:
  - {name: a, protocol: signals, command: sh, args: [-c, "trap 'touch DIR/got-{id}' HUP; echo begun {id}; while :; do sleep 0.1; done"]}
  - {name: b, protocol: signals, command: sleep, args: ["1000"]}
`

// Groups are stopped, started and scaled by their names, several at once. A stopped group is shown
// as stopped. The results are printed in the sequence of the names. If the order for one group is
// refused, the orders for the others are carried out nevertheless.
func TestOrders_RefusalForOneNameDoesNotPreventOrdersForOthers(t *testing.T) {
	s := newSite(t, two)
	s.startReady()
	testkit.Equal(t, "stop", s.mustRun("stop", "b", "a", "--wait"), "b: stopped\na: stopped\n")
	if out := s.mustRun("status", "a", "--json=false"); out != "a  stopped, 0 of 0 ready, revision 1, stopped by an operator; launcher start a starts it\n"+
		out[strings.Index(out, "\n")+1:] || !strings.Contains(out, "waiting for nothing") {
		t.Errorf("status of a stopped group:\n%s", out)
	}
	testkit.Equal(t, "scale of a stopped group", s.mustRun("scale", "a=3", "--wait"), "the group is stopped; launcher start a starts it with 3 processes\n")
	testkit.Equal(t, "start", s.mustRun("start", "a", "b", "--wait"), "a: started\nb: started\n")
	testkit.Equal(t, "processes of a", s.health().Groups[0].Ready, 3) // start waits until the group is healthy, for which by default all processes must be ready
	testkit.Equal(t, "scale", s.mustRun("scale", "a=2", "b=0", "--wait"), "a: scaled\nb: scaled\n")
	h := s.health()
	testkit.Equal(t, "ready of a", h.Groups[0].Ready, 2)
	testkit.Equal(t, "ready of b", h.Groups[1].Ready, 0)
	testkit.Equal(t, "restart", s.mustRun("restart", "a", "b", "--wait"), "a: all processes have been replaced\nb: all processes have been replaced\n")

	stdout, stderr, code := s.run("scale", "-f", s.file(), "mail=1", "b=1", "--json")
	testkit.Equal(t, "exit code", code, 1)
	testkit.Equal(t, "error", stderr, "launcher: not found: group \"mail\"; the groups are [\"a\" \"b\"]\n")
	testkit.Equal(t, "JSON", stdout, `{"name":"mail","error":"launcher: not found: group \"mail\"; the groups are [\"a\" \"b\"]"}`+"\n"+`{"name":"b","message":"scaling"}`+"\n")
	s.waitUntil("b has one process", func(h health) bool { return h.Groups[1].Ready == 1 })
}

// Wrong arguments are refused with an error that says what is wrong, once for all names.
func TestOrders_RefuseWrongArguments(t *testing.T) {
	s := newSite(t, two)
	s.startReady()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"scale", "a"}, `launcher: scale needs group=processes, as in web=5, not "a"`},
		{[]string{"scale", "a=many"}, `launcher: scale needs group=processes, as in web=5, not "a=many"`},
		{[]string{"scale", "a=1", "a=2"}, `launcher: scale has two numbers for "a"`},
		{[]string{"scale", "a=-1"}, `launcher: scale needs group=processes, as in web=5, not "a=-1"`},
		{[]string{"scale", "a=10001"}, `launcher: a=10001 is too many processes for a group; the most are 10000`},
		{[]string{"stop"}, "launcher: stop which process or group? Run launcher status to list them"},
		{[]string{"stop", "a", "--no-replacement"}, `launcher: --no-replacement and --grace are for processes, but "a" is a group`},
		{[]string{"signal", "a", "b", "SIGNONE"}, `launcher: there is no signal "SIGNONE"; name one such as HUP, USR1 or QUIT`},
		{[]string{"signal", "a"}, "launcher: signal which process or group, and which signal? As in signal web HUP"},
		{[]string{"status", "a", "mail"}, `launcher: not found: group "mail"; the groups are ["a" "b"]`},
	} {
		_, stderr, code := s.run(append(c.args, "-f", s.file())...)
		testkit.Equal(t, "exit code", code, 1)
		testkit.Equal(t, "error", stderr, c.want+"\n")
	}
}

// The command signal accepts the name of a signal in any form, and sends the signal to the
// processes of a group.
func TestSignal_SendsNamedSignal(t *testing.T) {
	s := newSite(t, two)
	d := s.start()
	d.waitForLine("begun a-1")
	testkit.Equal(t, "signal", s.mustRun("signal", "a", "hup"), "sent to a-1\n")
	stdout, _, _ := s.run("signal", "mail", "hup", "--json", "-f", s.file())
	testkit.Equal(t, "JSON of a signal to no process", stdout,
		`{"name":"mail","error":"launcher: not found: neither a group nor a process has the name \"mail\"; run launcher status to list them"}`+"\n")
	d.waitForLog("SIGHUP: admin request")
	for _, err := os.Stat(filepath.Join(s.dir, "got-a-1")); err != nil; {
		_, err = os.Stat(filepath.Join(s.dir, "got-a-1"))
	}
}

// Every command that prints can print JSON.
func TestCommands_PrintJSON(t *testing.T) {
	s := newSite(t, two)
	d := s.start()
	d.waitForLine("begun a-1")
	for _, args := range [][]string{
		{"status", "a", "--json"}, {"drain", "--dry-run", "a", "b-1", "--json"}, {"logs", "a", "b", "--json"}, {"reload", "--json"}, {"reload", "--dry-run", "--json"},
		{"validate", "--json"}, {"validate", "--json", "--print"}, {"export", "kubernetes", "--json"}, {"restart", "a", "--wait", "--json"},
		{"stop", "a-2", "b", "--wait", "--json"}, {"start", "b", "--json"}, {"scale", "b=2", "--json"}, {"signal", "b", "CONT", "--json"},
	} {
		out := s.mustRun(args...)
		for documents := json.NewDecoder(strings.NewReader(out)); documents.More(); {
			var document map[string]any
			if err := documents.Decode(&document); err != nil || len(document) == 0 {
				t.Fatalf("%q prints %v %v:\n%s", args, document, err, out)
			}
		}
	}
	stdout, _, code := s.run("recover", "--dry-run", "--json", "--dir", s.dir)
	if code != 0 || !strings.Contains(stdout, `"adopted":[]`) {
		t.Errorf("recover: exit code %d, %s", code, stdout)
	}
	s.write("process_groups: [{name: a, command: sleep, max_serge: 1}]\n")
	stdout, _, code = s.run("validate", "--json", s.file())
	testkit.Equal(t, "exit code of an invalid file", code, 1)
	want := `,"valid":false,"groups":0,"errors":[{"line":1,"column":44,"key":"process_groups[0].max_serge","rule":"unknown key; did you mean max_surge?"}]}`
	if !strings.Contains(stdout, want) {
		t.Errorf("got  %s\nwant …%s…", stdout, want)
	}
}

// If an order does not reach the launcher, its JSON has the same error text as stderr.
func TestOrders_PrintErrorAsJSONIfLauncherDoesNotRun(t *testing.T) {
	s := newSite(t, two)
	for _, args := range [][]string{{"signal", "a", "HUP"}, {"start", "a"}, {"restart", "a"}} {
		stdout, stderr, code := s.run(append(args, "--json", "-f", s.file())...)
		testkit.Equal(t, "exit code", code, 1)
		var got struct{ Name, Error string }
		if err := json.Unmarshal([]byte(stdout), &got); err != nil {
			t.Fatalf("%q prints %s", args, stdout)
		}
		testkit.Equal(t, "name", got.Name, "a")
		testkit.Equal(t, "error", got.Error+"\n", stderr)
		if !strings.HasPrefix(got.Error, "launcher: cannot connect to ") {
			t.Error(got.Error)
		}
	}
}

// A command with --json that fails before it has printed anything prints its error as JSON to
// stdout, in the same words as to stderr. That is also so if the launcher refuses the order. The
// command status does this even without --json if stdout is not a terminal, because it would then
// print JSON.
func TestCommands_PrintErrorsAsJSON(t *testing.T) {
	s := newSite(t, two)
	fails := func(args ...string) (failure string) {
		t.Helper()
		stdout, stderr, code := s.run(append(args, "-f", s.file(), "--dir", filepath.Join(s.dir, "s"))...)
		testkit.Equal(t, "exit code", code, 1)
		var got map[string]string
		if err := json.Unmarshal([]byte(stdout), &got); err != nil || len(got) != 1 || got["error"]+"\n" != stderr {
			t.Errorf("%q prints %s%s", args, stdout, stderr)
		}
		return got["error"]
	}
	stdout, _, _ := s.run("status", "-f", s.file(), "--json=false")
	testkit.Equal(t, "output of status --json=false", stdout, "")
	for _, args := range [][]string{{"status"}, {"drain", "--dry-run"}, {"events"}, {"logs", "a"}, {"reload"}, {"upgrade"}, {"stop", "a"}, {"scale", "a=x"}, {"stop"}, {"upgrade", "x", "y"}} {
		fails(append(args, "--json")...)
	}
	fails("status")
	s.start().waitForLine("begun a-1")
	s.write(strings.Replace(two, "process_groups:", "metrics: {address: 'localhost:0'}\nprocess_groups:", 1))
	if got := fails("reload", "--json"); !strings.Contains(got, "some need an upgrade") {
		t.Error(got)
	}
	s.write("process_groups: 1\n")
	if got := fails("upgrade", "--json"); !strings.HasPrefix(got, "launcher: not upgraded to ") {
		t.Error(got)
	}
	if got := fails("recover", "--dry-run", "--json"); !strings.Contains(got, "process_groups") {
		t.Error(got)
	}
}

// The command logs sorts the lines of several processes by time. The number of lines that the user
// has asked for holds for all processes together.
func TestLogs_SortsLinesOfSeveralNamesByTime(t *testing.T) {
	s := newSite(t, `state_dir: STATE
process_groups:
  - {name: a, protocol: signals, command: sh, args: [-c, 'echo one; until [ -e DIR/go ]; do sleep 0.1; done; echo three; exec sleep 1000']}
  - {name: b, protocol: signals, command: sh, args: [-c, 'until [ -e DIR/go1 ]; do sleep 0.1; done; echo two; exec sleep 1000']}
`)
	d := s.start()
	for i, line := range []string{"one", "two", "three"} {
		d.waitForLine(line)
		s.touch([]string{"go1", "go", "done"}[i])
	}
	out := s.mustRun("logs", "a", "b", "-n", "2")
	if lines := strings.Split(out, "\n"); len(lines) != 3 || !strings.HasSuffix(lines[0], "out | two") || !strings.HasSuffix(lines[1], "out | three") {
		t.Errorf("logs prints\n%s", out)
	}
}

// touch creates a file in the directory of the site.
func (s *site) touch(name string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), nil, 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// A group that waits for another one runs no process that a restart could replace. The answer says
// so, also with --wait, and for what the group waits.
func TestRestart_SaysThatGroupStillWaitsForOthers(t *testing.T) {
	s := newSite(t, `state_dir: STATE
process_groups:
  - {name: db, command: sh, args: [-c, 'echo begun; exec RUNNER --process-id {id} --ready-after -1s'], protocol: grpc, health_check_timeout: 1h}
  - {name: web, command: RUNNER, args: [--process-id, '{id}'], depends_on: [db]}
  - {name: load, kind: job, protocol: signals, command: 'true', depends_on: {db: healthy, web: started}}
`)
	d := s.start()
	d.waitForLine("begun")
	s.waitUntil("the groups wait", func(h health) bool {
		return h.Groups[1].Message == "waits for db" && h.Groups[2].Message == "waits for db, web (started)"
	})
	const nothing = "nothing is replaced, because no process of the group runs yet: it waits for db"
	const waits = nothing + "; launcher start web --wait waits until it is healthy\n"
	testkit.Equal(t, "restart of a service", s.mustRun("restart", "web"), waits)
	testkit.Equal(t, "restart of a service with --wait", s.mustRun("restart", "web", "--wait"), waits)
	testkit.Equal(t, "restart of a job", s.mustRun("restart", "load", "--wait"), nothing+", web (started)\n")
	testkit.Equal(t, "processes of the groups that wait", len(s.health().Groups[1].Processes)+len(s.health().Groups[2].Processes), 0)
}
