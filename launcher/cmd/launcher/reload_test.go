//go:build linux

package main_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

const (
	breaks = `state_dir: STATE
process_groups:
  - name: web
    command: sh
    args: [-c, 'test $REV = 1 -o ! -e DIR/bad || exit 3; exec RUNNER --process-id {id} --work-duration 1ms']
    env: {REV: "1"}
    on_failure: rollback
  - {name: other, command: RUNNER, args: [--process-id, '{id}']}
`
	rolls   = "~ web: env.REV: \"1\" → \"2\" (rolls the group)\n"
	nothing = "nothing has changed\n"
	shown   = "nothing was taken over\n"
)

// breaks has a file loaded whose web does not start, until that is mended.
func (s *site) breaks(yaml string) (mend func()) {
	s.t.Helper()
	bad := filepath.Join(s.dir, "bad")
	if err := os.WriteFile(bad, nil, 0o600); err != nil {
		s.t.Fatal(err)
	}
	s.write(yaml)
	_, stderr, code := s.says("reload", "-f", s.file(), "--wait")
	if code != 1 || !strings.Contains(stderr, "the roll has failed") {
		s.t.Errorf("exit code %d, %s", code, stderr)
	}
	return func() {
		if err := os.Remove(bad); err != nil {
			s.t.Fatal(err)
		}
	}
}

// After a roll that has gone back, a reload shows what differs from what runs, and not from what was loaded.
func TestReload_AfterARollback(t *testing.T) {
	s := newSite(t, breaks)
	s.runs()
	next := strings.Replace(breaks, `"1"`, `"2"`, 1)
	mend := s.breaks(next)
	equal(t, "what the same file does", s.must("reload", "--dry-run"), rolls+shown)
	s.write(breaks)
	equal(t, "what the file does that was loaded before", s.must("reload", "--wait"), nothing)

	limits := "~ other: health_check_timeout: 30s → 1m0s (at once)\n"
	next = strings.Replace(next, "'{id}']", "'{id}'], health_check_timeout: 1m", 1)
	s.write(next)
	equal(t, "what a file does that differs elsewhere, too", s.must("reload", "--dry-run"), rolls+limits+shown)
	mend()
	equal(t, "what it does", s.must("reload", "--wait"), rolls+limits+"taken over\n")
	equal(t, "revision", s.health().Groups[0].Revision, "3")
	equal(t, "after that", s.must("reload"), nothing)
}

// So does one of a group whose roll is paused, which a restart leaves behind: it leads to what was there before.
func TestReload_AfterAPause(t *testing.T) {
	s := newSite(t, strings.Replace(breaks, "rollback", "pause", 1))
	s.runs()
	next := strings.NewReplacer(`"1"`, `"2"`, "rollback", "pause").Replace(breaks)
	mend := s.breaks(next)
	given := "~ web: the roll to revision 2 is paused, and given up for another one (rolls the group)\n"
	equal(t, "what the same file does", s.must("reload", "--dry-run"), rolls+given+shown)
	equal(t, "a restart", s.must("restart", "web", "--wait"), "all processes have been replaced\n")
	equal(t, "what the same file does now", s.must("reload", "--dry-run"), rolls+shown)
	mend()
	equal(t, "what it does", s.must("reload", "--wait"), rolls+"taken over\n")
	equal(t, "after that", s.must("reload"), nothing)
}

// A group that outlives its launcher is reloaded as any other one is.
func TestReload_OfAKeptGroup(t *testing.T) {
	kept := "state_dir: STATE\nprocess_groups:\n  - {name: web, command: RUNNER, args: [--process-id, '{id}'], env: {REV: '1'}, on_launcher_death: keep}\n"
	s := newSite(t, kept)
	d := s.runs()
	next := strings.Replace(kept, "'1'", "'2'", 1)
	s.write(next)
	equal(t, "what it does", s.must("reload", "--wait"), rolls+"taken over\n")
	equal(t, "revision", s.health().Groups[0].Revision, "2")
	s.write(next + "  - {name: other, command: RUNNER, args: [--process-id, '{id}'], on_launcher_death: keep}\n")
	d.cmd.Process.Signal(syscall.SIGHUP)
	s.until("there is another group", func(h health) bool { return len(h.Groups) == 2 && h.Groups[1].Ready == 1 })
}

// A group that was removed cannot be had again before it is gone, and the preview says so.
func TestReload_OfAGroupThatIsLeaving(t *testing.T) {
	other := "state_dir: STATE\ntotal_deadline: 2h\nprocess_groups:\n  - {name: other, command: RUNNER, args: [--process-id, '{id}']}\n"
	both := other + "  - {name: web, command: RUNNER, args: [--process-id, '{id}', --behavior, hang], shutdown: {grace: advisory, max_duration: 1h}}\n"
	s := newSite(t, both)
	s.runs()
	s.write(other)
	equal(t, "without --wait", s.must("reload"), "- web (stops the group)\nbeing taken over\n")
	s.write(both)
	refused := "a group of this name was removed, and has not come to its end; add it again when that is gone, which the reload that has removed it can wait for"
	equal(t, "what is shown", s.must("reload", "--dry-run"), "+ web (starts the group)\n! web: "+refused+" (refused)\n"+shown)
	_, stderr, code := s.says("reload", "-f", s.file())
	if code != 1 || stderr != s.file()+":5:6: process_groups[1].name: "+refused+"\n" {
		t.Errorf("exit code %d, %s", code, stderr)
	}
	s.killsAll(1)
	s.until("it is gone", func(h health) bool { return len(h.Groups) == 1 })
	equal(t, "after that", s.must("reload", "--wait"), "+ web (starts the group)\ntaken over\n")
	s.write(other)
	s.must("reload")
	s.killsAll(1)
}

// What is found fault with when a file is taken over is said with file, line and key, as at a start, and nothing has changed.
func TestReload_ThatIsRefused(t *testing.T) {
	s := newSite(t, web)
	d := s.runs()
	s.write(web + "    logs: {dir: /dev/null/logs}\n")
	_, stderr, code := s.says("reload", "-f", s.file())
	want := s.file() + ":6:12: process_groups[0].logs.dir: mkdir /dev/null"
	if code != 1 || !strings.HasPrefix(stderr, want) {
		t.Fatalf("exit code %d, %swant %s…", code, stderr, want)
	}
	d.cmd.Process.Signal(syscall.SIGHUP)
	d.logs(`msg=reload error="` + want)
	equal(t, "revision", s.health().Groups[0].Revision, "1")
}

// Who names another file than the launcher reads is told so, and nothing is taken over. By another name it is the same one.
func TestReload_OfAnotherFile(t *testing.T) {
	s := newSite(t, web)
	s.runs()
	was := s.file()
	other := filepath.Join(s.dir, "other.yaml")
	s.write(web + "    health_check_timeout: 2m\n")
	text, err := os.ReadFile(was)
	if err == nil {
		err = errors.Join(os.WriteFile(other, text, 0o600), os.Symlink(was, filepath.Join(s.dir, "link.yaml")))
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, dry := range []string{"--dry-run", "--wait"} {
		out, stderr, code := s.says("reload", "-f", other, dry)
		if want := "launcher: the launcher reads " + was + ", with which it was started, and not " + other + "; "; code != 1 || !strings.HasPrefix(stderr, want) {
			t.Errorf("exit code %d, %s\nwant %s…", code, stderr, want)
		}
		equal(t, "what it shows", out, "")
	}
	out, stderr, _ := s.says("reload", "-f", "link.yaml")
	equal(t, "by another name, with "+stderr, out, "~ web: health_check_timeout: 30s → 2m0s (at once)\nbeing taken over\n")
}

// A SIGHUP is not put off until what the one before has begun is over, and what was taken over is in the log, once.
func TestReload_ByTwoSignals(t *testing.T) {
	other := "state_dir: STATE\ntotal_deadline: 2h\nprocess_groups:\n  - {name: other, command: RUNNER, args: [--process-id, '{id}']}\n"
	s := newSite(t, other+"  - {name: web, command: RUNNER, args: [--process-id, '{id}', --behavior, hang], shutdown: {grace: advisory, max_duration: 20s}}\n")
	d := s.runs()
	s.write(other)
	d.cmd.Process.Signal(syscall.SIGHUP)
	s.until("web is leaving", func(h health) bool { return h.Groups[1].Message == "stopping" })
	s.write(strings.Replace(other, "name: other,", "name: other, desired_instances: 2,", 1))
	d.cmd.Process.Signal(syscall.SIGHUP)
	s.until("there is another one", func(h health) bool { return h.Groups[0].Ready == 2 })
	if len(s.health().Groups) != 2 {
		t.Fatal("web has been waited for")
	}
	s.killsAll(1)
	s.until("it is gone", func(h health) bool { return len(h.Groups) == 1 })
	d.stops()
	for _, change := range []string{"SIGHUP: - web (stops the group)", "SIGHUP: ~ other: desired_instances: 1 → 2 (starts or stops some)"} {
		if n := strings.Count(d.log(), change); n != 1 {
			t.Errorf("%q is in the log %d times:\n%s", change, n, d.log())
		}
	}
}

// Where nobody looks on, the log says what a SIGHUP was to change: as the launcher's word where it has changed that, also if it has not
// turned out well, and else, with what is wrong.
func TestReload_BySignalThatFails(t *testing.T) {
	s := newSite(t, breaks)
	d := s.runs()
	s.write(strings.Replace(breaks, "STATE", "STATEx", 1))
	d.cmd.Process.Signal(syscall.SIGHUP)
	d.logs("msg=reload error=\"launcher: nothing of ")
	refused := `msg=reload change="~ state_dir: `
	equal(t, "what was refused, in the log", strings.Count(d.log(), refused), 1)

	if err := os.WriteFile(filepath.Join(s.dir, "bad"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.write(strings.Replace(breaks, `"1"`, `"2"`, 1))
	d.cmd.Process.Signal(syscall.SIGHUP)
	d.logs("msg=reload error=\"launcher: group \\\"web\\\": the roll has failed")
	begun := "SIGHUP: ~ web: env.REV"
	d.logs(begun) // by the launcher, whose log waits for nobody, nor does this one for it
	equal(t, "what was begun, in the log", strings.Count(d.log(), begun), 1)
	equal(t, "what was refused", strings.Count(d.log(), "msg=reload change="), strings.Count(d.log(), refused))
}

// What a stop of the launcher cuts off is in the log, and not as an error, beside what has failed before.
func TestReload_CutOffByAStop(t *testing.T) {
	both := breaks + "  - {name: slow, command: RUNNER, args: [--process-id, '{id}']}\n"
	s := newSite(t, both)
	d := s.runs()
	if err := os.WriteFile(filepath.Join(s.dir, "bad"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	slow := "name: slow, command: RUNNER, args: ["
	s.write(strings.NewReplacer(`"1"`, `"2"`, slow, slow+"--ready-after, '-1s', ").Replace(both))
	d.cmd.Process.Signal(syscall.SIGHUP)
	d.logs("it has been rolled back")
	s.until("slow is being rolled", func(h health) bool { return len(h.Groups[2].Processes) == 2 })
	d.stops()
	var lines []string
	for l := range strings.Lines(d.log()) {
		if _, says, ok := strings.Cut(l, "msg=reload "); ok {
			lines = append(lines, says)
		}
	}
	if len(lines) != 2 || !strings.HasPrefix(lines[0], `error="launcher: group \"web\": the roll has failed`) ||
		lines[1] != `cut="launcher: group \"slow\": the roll was cut off, since the group is stopping"`+"\n" {
		t.Errorf("the log has of the reload\n%s", strings.Join(lines, ""))
	}
}

// Who writes the file between what is shown and what is taken over is told what that was, and so is the log.
func TestReload_OfAFileThatChanges(t *testing.T) {
	for name, c := range map[string]struct{ then, says, taken string }{
		"again":      {web + "    health_check_timeout: 3m\n", "meanwhile that has changed, to:\n~ web: health_check_timeout: 30s → 3m0s (at once)\nbeing taken over\n", "30s → 3m0s"},
		"back again": {web, "meanwhile that was undone, or somebody else has had it taken over:\nnothing has changed\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, web)
			d := s.runs()
			first, second := filepath.Join(s.dir, "first"), filepath.Join(s.dir, "second")
			s.write(web + "    health_check_timeout: 2m\n")
			shows, err := os.ReadFile(s.file())
			if err != nil {
				t.Fatal(err)
			}
			s.write(c.then)
			if err := errors.Join(os.Rename(s.file(), second), syscall.Mkfifo(first, 0o600), os.Rename(first, s.file())); err != nil {
				t.Fatal(err)
			}
			wrote := make(chan error, 1)
			go func() {
				f, err := os.OpenFile(s.file(), os.O_WRONLY, 0) // when the launcher reads it for the first time
				if err == nil {
					_, failed := f.Write(shows)
					err = errors.Join(os.Rename(second, s.file()), failed, f.Close())
				}
				wrote <- err
			}()
			out, stderr, code := s.says("reload", "--dir", filepath.Join(s.dir, "s"))
			equal(t, "exit code, with "+stderr, code, 0)
			if err := <-wrote; err != nil {
				t.Fatal(err)
			}
			equal(t, "what it says", out, "~ web: health_check_timeout: 30s → 2m0s (at once)\n"+c.says)
			d.stops()
			if strings.Contains(d.log(), "2m0s") || !strings.Contains(d.log(), c.taken) {
				t.Errorf("the log:\n%s", d.log())
			}
		})
	}
}

// killsAll kills the processes of the n-th group that run.
func (s *site) killsAll(n int) {
	s.t.Helper()
	for _, p := range s.health().Groups[n].Processes {
		pid, err := strconv.Atoi(p.PID)
		if err == nil && p.State != "FORCED" && p.State != "CRASHED" {
			err = syscall.Kill(pid, syscall.SIGKILL)
		}
		if err != nil {
			s.t.Fatal(err)
		}
	}
}

// A group that is to listen where another one does is refused until that is gone, and the preview says so.
func TestReload_OfARenamedGroup(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := ln.Addr().String()
	ln.Close()
	other := "state_dir: STATE\nprocess_groups:\n  - {name: other, command: RUNNER, args: [--process-id, '{id}']}\n"
	listens := func(name string) string {
		return other + fmt.Sprintf("  - {name: %s, command: RUNNER, args: [--process-id, '{id}'], listeners: [{name: http, address: '%s'}]}\n", name, address)
	}
	s := newSite(t, listens("web"))
	s.runs()
	s.write(listens("web2"))
	refused := fmt.Sprintf("group \"web\" has tcp %s until it is gone; take that out first, and add \"web2\" by another reload", address)
	equal(t, "what is shown", s.must("reload", "--dry-run"), "- web (stops the group)\n+ web2 (starts the group)\n! web2: "+refused+" (refused)\n"+shown)
	_, stderr, code := s.says("reload", "-f", s.file())
	if code != 1 || !strings.Contains(stderr, refused) {
		t.Errorf("exit code %d, %s", code, stderr)
	}
	equal(t, "groups after that", len(s.health().Groups), 2)

	s.write(other)
	s.must("reload", "--wait")
	_, port, _ := net.SplitHostPort(address)
	two := listens("web") + strings.TrimPrefix(strings.ReplaceAll(listens("web2"), "127.0.0.1:", "localhost:"), other)
	s.write(two)
	another := fmt.Sprintf("group \"web\" has tcp %s, and with it tcp localhost:%s, already; choose another address", address, port)
	equal(t, "what is shown of two that are new", s.must("reload", "--dry-run"), "+ web (starts the group)\n+ web2 (starts the group)\n! web2: "+another+" (refused)\n"+shown)
	_, stderr, code = s.says("reload", "-f", s.file())
	if code != 1 || !strings.Contains(stderr, another) {
		t.Errorf("exit code %d, %s", code, stderr)
	}

	s.write(other)
	s.must("reload", "--wait")
	s.write(listens("web2"))
	equal(t, "in two steps", s.must("reload", "--wait"), "+ web2 (starts the group)\ntaken over\n")
}
