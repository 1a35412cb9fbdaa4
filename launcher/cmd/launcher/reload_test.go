//go:build linux

package main_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
	"google.golang.org/grpc"
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
	shown   = "nothing was applied\n"
)

// breakConfig writes and reloads a file with which the group web cannot start, because a file named
// bad exists. It checks that the roll fails.
func (s *site) breakConfig(yaml string) (mend func()) {
	s.t.Helper()
	bad := filepath.Join(s.dir, "bad")
	if err := os.WriteFile(bad, nil, 0o600); err != nil {
		s.t.Fatal(err)
	}
	s.write(yaml)
	_, stderr, code := s.run("reload", "-f", s.file(), "--wait")
	if code != 1 || !strings.Contains(stderr, "the roll has failed") {
		s.t.Errorf("exit code %d, %s", code, stderr)
	}
	return func() {
		if err := os.Remove(bad); err != nil {
			s.t.Fatal(err)
		}
	}
}

// After a rollback, a reload shows the changes from the running configuration, not from the one
// that was loaded last.
func TestReload_ComparesWithRunningConfigurationAfterRollback(t *testing.T) {
	s := newSite(t, breaks)
	s.startReady()
	next := strings.Replace(breaks, `"1"`, `"2"`, 1)
	mend := s.breakConfig(next)
	testkit.Equal(t, "changes of the same file", s.mustRun("reload", "--dry-run"), rolls+shown)
	s.write(breaks)
	testkit.Equal(t, "changes of the previous file", s.mustRun("reload", "--wait"), nothing)

	limits := "~ other: health_check_timeout: 30s → 1m0s (at once)\n"
	next = strings.Replace(next, "'{id}']", "'{id}'], health_check_timeout: 1m", 1)
	s.write(next)
	testkit.Equal(t, "changes of a third file", s.mustRun("reload", "--dry-run"), rolls+limits+shown)
	mend()
	testkit.Equal(t, "applied changes", s.mustRun("reload", "--wait"), rolls+limits+"applied\n")
	testkit.Equal(t, "revision", s.health().Groups[0].Revision, 3)
	testkit.Equal(t, "second reload", s.mustRun("reload"), nothing)
}

// If a roll was paused and then abandoned by a restart, a reload shows the changes from the
// configuration that the group has returned to.
func TestReload_ComparesWithRunningConfigurationAfterAbandonedRoll(t *testing.T) {
	s := newSite(t, strings.Replace(breaks, "rollback", "pause", 1))
	s.startReady()
	next := strings.NewReplacer(`"1"`, `"2"`, "rollback", "pause").Replace(breaks)
	mend := s.breakConfig(next)
	given := "~ web: the roll to revision 2 is paused, and given up for another one (rolls the group)\n"
	testkit.Equal(t, "changes of the same file", s.mustRun("reload", "--dry-run"), rolls+given+shown)
	testkit.Equal(t, "output of restart", s.mustRun("restart", "web", "--wait"), "all processes have been replaced\n")
	testkit.Equal(t, "changes of the same file after the restart", s.mustRun("reload", "--dry-run"), rolls+shown)
	mend()
	testkit.Equal(t, "applied changes", s.mustRun("reload", "--wait"), rolls+"applied\n")
	testkit.Equal(t, "second reload", s.mustRun("reload"), nothing)
}

// A group that was adopted from an earlier launcher is reloaded as any other group.
func TestReload_ChangesAdoptedGroup(t *testing.T) {
	kept := "state_dir: STATE\nprocess_groups:\n  - {name: web, command: RUNNER, args: [--process-id, '{id}'], env: {REV: '1'}, on_launcher_death: keep}\n"
	s := newSite(t, kept)
	d := s.startReady()
	next := strings.Replace(kept, "'1'", "'2'", 1)
	s.write(next)
	testkit.Equal(t, "applied changes", s.mustRun("reload", "--wait"), rolls+"applied\n")
	testkit.Equal(t, "revision", s.health().Groups[0].Revision, 2)
	s.write(next + "  - {name: other, command: RUNNER, args: [--process-id, '{id}'], on_launcher_death: keep}\n")
	d.cmd.Process.Signal(syscall.SIGHUP)
	s.waitUntil("there are two groups", func(h health) bool { return len(h.Groups) == 2 && h.Groups[1].Ready == 1 })
}

// A removed group cannot be added again before it has stopped; the preview says so.
func TestReload_RefusesToAddGroupThatIsStillStopping(t *testing.T) {
	other := "state_dir: STATE\ntotal_deadline: 2h\nprocess_groups:\n  - {name: other, command: RUNNER, args: [--process-id, '{id}']}\n"
	both := other + "  - {name: web, command: RUNNER, args: [--process-id, '{id}', --behavior, hang], shutdown: {max_duration: 1h}}\n"
	s := newSite(t, both)
	s.startReady()
	s.write(other)
	testkit.Equal(t, "reload without --wait", s.mustRun("reload"), "- web (stops the group)\nbeing applied\n")
	s.write(both)
	refused := "a group of this name was removed and has not ended yet; wait until it has ended, as the reload that removed it does, and add it again"
	testkit.Equal(t, "preview", s.mustRun("reload", "--dry-run"), "+ web (starts the group)\n! web: "+refused+" (refused)\n"+shown)
	_, stderr, code := s.run("reload", "-f", s.file())
	if code != 1 || stderr != s.file()+":5:6: process_groups[1].name: "+refused+"\n" {
		t.Errorf("exit code %d, %s", code, stderr)
	}
	s.killsAll(1)
	s.waitUntil("the group is removed", func(h health) bool { return len(h.Groups) == 1 })
	testkit.Equal(t, "reload after the group has stopped", s.mustRun("reload", "--wait"), "+ web (starts the group)\napplied\n")
	s.write(other)
	s.mustRun("reload")
	s.killsAll(1)
}

// An error of a reload is reported with file, line and key, as at the start, and nothing is
// changed.
func TestReload_ReportsErrorByLineAndChangesNothing(t *testing.T) {
	s := newSite(t, web)
	d := s.startReady()
	s.write(web + "    logs: {dir: /dev/null/logs}\n")
	_, stderr, code := s.run("reload", "-f", s.file())
	want := s.file() + ":6:12: process_groups[0].logs.dir: mkdir /dev/null"
	if code != 1 || !strings.HasPrefix(stderr, want) {
		t.Fatalf("exit code %d, %swant %s…", code, stderr, want)
	}
	d.cmd.Process.Signal(syscall.SIGHUP)
	d.waitForLog(`msg=reload error="` + want)
	testkit.Equal(t, "revision", s.health().Groups[0].Revision, 1)
}

// If the user names another file than the launcher was started with, reload refuses. Another path
// of the same file is accepted.
func TestReload_RefusesOtherFileThanLauncherWasStartedWith(t *testing.T) {
	s := newSite(t, web)
	s.startReady()
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
		out, stderr, code := s.run("reload", "-f", other, dry)
		if want := "launcher: the launcher was started with " + was + ", not with " + other + "; "; code != 1 || !strings.HasPrefix(stderr, want) {
			t.Errorf("exit code %d, %s\nwant %s…", code, stderr, want)
		}
		testkit.Equal(t, "output", out, "")
	}
	out, stderr, _ := s.run("reload", "-f", "link.yaml")
	testkit.Equal(t, "reload by a symbolic link, with "+stderr, out, "~ web: health_check_timeout: 30s → 2m0s (at once)\nbeing applied\n")
}

// A second SIGHUP does not wait until the reload of the first has finished. Each applied change is
// logged once.
func TestReload_BySecondSIGHUPDoesNotWaitForFirst(t *testing.T) {
	other := "state_dir: STATE\ntotal_deadline: 2h\nprocess_groups:\n  - {name: other, command: RUNNER, args: [--process-id, '{id}']}\n"
	s := newSite(t, other+"  - {name: web, command: RUNNER, args: [--process-id, '{id}', --behavior, hang], shutdown: {max_duration: 20s}}\n")
	d := s.startReady()
	s.write(other)
	d.cmd.Process.Signal(syscall.SIGHUP)
	s.waitUntil("web is stopping", func(h health) bool { return h.Groups[1].Message == "stopping" })
	s.write(strings.Replace(other, "name: other,", "name: other, desired_instances: 2,", 1))
	d.cmd.Process.Signal(syscall.SIGHUP)
	s.waitUntil("other has two processes", func(h health) bool { return h.Groups[0].Ready == 2 })
	if len(s.health().Groups) != 2 {
		t.Fatal("the second reload has waited for web")
	}
	s.killsAll(1)
	s.waitUntil("the group is removed", func(h health) bool { return len(h.Groups) == 1 })
	d.stop()
	for _, change := range []string{"SIGHUP: - web (stops the group)", "SIGHUP: ~ other: desired_instances: 1 → 2 (starts or stops some)"} {
		if n := strings.Count(d.log(), change); n != 1 {
			t.Errorf("%q is in the log %d times:\n%s", change, n, d.log())
		}
	}
}

// A reload by SIGHUP logs its changes once. If they were applied, the launcher logs them, even if a
// roll fails afterwards. If the reload was refused, the command logs them next to the error.
func TestReload_BySIGHUPLogsItsChangesOnceEvenIfItFails(t *testing.T) {
	s := newSite(t, breaks)
	d := s.startReady()
	s.write(strings.Replace(breaks, "STATE", "STATEx", 1))
	d.cmd.Process.Signal(syscall.SIGHUP)
	d.waitForLog("msg=reload error=\"launcher: the changes in ")
	refused := `msg=reload change="~ state_dir: `
	testkit.Equal(t, "refused changes in the log", strings.Count(d.log(), refused), 1)

	if err := os.WriteFile(filepath.Join(s.dir, "bad"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.write(strings.Replace(breaks, `"1"`, `"2"`, 1))
	d.cmd.Process.Signal(syscall.SIGHUP)
	d.waitForLog("msg=reload error=\"launcher: group \\\"web\\\": the roll has failed")
	begun := "SIGHUP: ~ web: env.REV"
	d.waitForLog(begun) // the two lines may be written in either order, so wait for both
	testkit.Equal(t, "applied changes in the log", strings.Count(d.log(), begun), 1)
	testkit.Equal(t, "changes logged by the command", strings.Count(d.log(), "msg=reload change="), strings.Count(d.log(), refused))
}

// If a stop of the launcher interrupts a reload, the log says so, but not as an error. If the
// reload of another group has failed, the log contains that error all the same.
func TestReload_InterruptedByStopIsNotLoggedAsError(t *testing.T) {
	both := breaks + "  - {name: slow, command: RUNNER, args: [--process-id, '{id}']}\n"
	s := newSite(t, both)
	d := s.startReady()
	if err := os.WriteFile(filepath.Join(s.dir, "bad"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	slow := "name: slow, command: RUNNER, args: ["
	s.write(strings.NewReplacer(`"1"`, `"2"`, slow, slow+"--ready-after, '-1s', ").Replace(both))
	d.cmd.Process.Signal(syscall.SIGHUP)
	d.waitForLog("it has been rolled back")
	s.waitUntil("slow is being rolled", func(h health) bool { return len(h.Groups[2].Processes) == 2 })
	d.stop()
	var lines []string
	for l := range strings.Lines(d.log()) {
		if _, says, ok := strings.Cut(l, "msg=reload "); ok {
			lines = append(lines, says)
		}
	}
	if len(lines) != 2 || !strings.HasPrefix(lines[0], `error="launcher: group \"web\": the roll has failed`) ||
		lines[1] != `cut="launcher: group \"slow\": the roll was interrupted because the group is stopping"`+"\n" {
		t.Errorf("the log of the reload is\n%s", strings.Join(lines, ""))
	}
}

// If the file changes between the preview and the reload, the command and the log show what was
// applied.
func TestReload_ReportsWhatWasAppliedWhenFileChangesAfterPreview(t *testing.T) {
	for name, c := range map[string]struct{ then, says, taken string }{
		"the file is changed again": {web + "    health_check_timeout: 3m\n", "meanwhile the file has changed; the changes are now:\n~ web: health_check_timeout: 30s → 3m0s (at once)\nbeing applied\n", "30s → 3m0s"},
		"the change is undone":      {web, "meanwhile the changes were undone, or applied by another reload:\nnothing has changed\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, web)
			d := s.startReady()
			second := filepath.Join(s.dir, "second")
			s.write(c.then)
			if err := os.Rename(s.file(), second); err != nil {
				t.Fatal(err)
			}
			s.write(web + "    health_check_timeout: 2m\n")
			dir := s.afterPreview(func() error { return os.Rename(second, s.file()) })
			out, stderr, code := s.run("reload", "--dir", dir)
			testkit.Equal(t, "exit code, with "+stderr, code, 0)
			testkit.Equal(t, "output", out, "~ web: health_check_timeout: 30s → 2m0s (at once)\n"+c.says)
			d.stop()
			if strings.Contains(d.log(), "2m0s") || !strings.Contains(d.log(), c.taken) {
				t.Errorf("the log:\n%s", d.log())
			}
		})
	}
}

// A relay passes the calls of the command reload on to a launcher.
type relay struct {
	pb.UnimplementedLauncherAdminInterfaceServer
	to           pb.LauncherAdminInterfaceClient
	afterPreview func() error
}

func (r *relay) Reload(ctx context.Context, in *pb.ReloadRequest) (*pb.ReloadResponse, error) {
	out, err := r.to.Reload(ctx, in)
	if err == nil && in.GetDryRun() {
		err = r.afterPreview()
	}
	return out, err
}

// afterPreview starts a relay that passes calls on to the launcher. The relay calls f before it
// answers a dry run. afterPreview returns the directory with the socket of the relay.
func (s *site) afterPreview(f func() error) (dir string) {
	s.t.Helper()
	to, conn, err := launcher.Dial(filepath.Join(s.dir, "s"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	dir = filepath.Join(s.dir, "relay")
	if err := os.Mkdir(dir, 0o700); err != nil {
		s.t.Fatal(err)
	}
	ln, err := net.Listen("unix", launcher.SocketIn(dir))
	if err != nil {
		s.t.Fatal(err)
	}
	server := grpc.NewServer()
	pb.RegisterLauncherAdminInterfaceServer(server, &relay{to: to, afterPreview: f})
	var serving sync.WaitGroup
	serving.Go(func() { server.Serve(ln) })
	s.t.Cleanup(func() { server.Stop(); serving.Wait() })
	return dir
}

// killsAll kills the running processes of the n-th group.
func (s *site) killsAll(n int) {
	s.t.Helper()
	for _, p := range s.health().Groups[n].Processes {
		if p.State == "FORCED" || p.State == "CRASHED" {
			continue
		}
		if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil {
			s.t.Fatal(err)
		}
	}
}

// A group that listens on the address of another group is refused until that group has stopped; the
// preview says so.
func TestReload_RefusesGroupWithAddressOfGroupThatStillRuns(t *testing.T) {
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
	s.startReady()
	s.write(listens("web2"))
	refused := fmt.Sprintf("group \"web\" listens on tcp %s until its last process has ended; remove \"web\" by one reload, and add \"web2\" by a later one", address)
	testkit.Equal(t, "preview", s.mustRun("reload", "--dry-run"), "- web (stops the group)\n+ web2 (starts the group)\n! web2: "+refused+" (refused)\n"+shown)
	_, stderr, code := s.run("reload", "-f", s.file())
	if code != 1 || !strings.Contains(stderr, refused) {
		t.Errorf("exit code %d, %s", code, stderr)
	}
	testkit.Equal(t, "number of groups after the refused reload", len(s.health().Groups), 2)

	s.write(other)
	s.mustRun("reload", "--wait")
	_, port, _ := net.SplitHostPort(address)
	two := listens("web") + strings.TrimPrefix(strings.ReplaceAll(listens("web2"), "127.0.0.1:", "localhost:"), other)
	s.write(two)
	another := fmt.Sprintf("group \"web\" already listens on tcp %s, which conflicts with tcp localhost:%s; choose another address", address, port)
	testkit.Equal(t, "preview of two new groups", s.mustRun("reload", "--dry-run"), "+ web (starts the group)\n+ web2 (starts the group)\n! web2: "+another+" (refused)\n"+shown)
	_, stderr, code = s.run("reload", "-f", s.file())
	if code != 1 || !strings.Contains(stderr, another) {
		t.Errorf("exit code %d, %s", code, stderr)
	}

	s.write(other)
	s.mustRun("reload", "--wait")
	s.write(listens("web2"))
	testkit.Equal(t, "reload in two steps", s.mustRun("reload", "--wait"), "+ web2 (starts the group)\napplied\n")
}
