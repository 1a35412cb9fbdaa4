//go:build unix

package launcher_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher"
	"github.com/swansong-go/swansong/launcher/internal/peer"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// notifications returns a client of the launcher's notification service.
func (h *harness) notifications() pb.LauncherNotificationInterfaceClient {
	h.t.Helper()
	conn, err := grpc.NewClient("unix:"+launcher.SocketIn(h.dir), grpc.WithTransportCredentials(peer.Credentials()))
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { conn.Close() })
	return pb.NewLauncherNotificationInterfaceClient(conn)
}

// A program that is not a process of the launcher cannot send notifications for a process, even if
// it runs as the same user.
func TestNotifyReady_RefusesProgramThatLauncherDidNotStart(t *testing.T) {
	h := launch(t, runners("web", 1, "--ready-after", "-1s"))
	h.waitForState("web-1", launcher.Starting)
	_, err := h.notifications().NotifyReady(soon(t), &pb.ReadyNotification{ProcessId: "web-1"})
	testkit.Equal(t, "code of NotifyReady", status.Code(err), codes.PermissionDenied)
	_, err = h.notifications().NotifyShutdownComplete(soon(t), &pb.ShutdownComplete{ProcessId: "web-1", DrainError: "boom"})
	testkit.Equal(t, "code of NotifyShutdownComplete", status.Code(err), codes.PermissionDenied)
	testkit.Equal(t, "state", stateOf(h, "web-1"), launcher.Starting)
	kill(t, h.running("web")[0].PID)
}

// Messages beyond the size limit are refused with an error that says so, and no process ends
// because of them.
func TestMessages_BeyondSizeLimitAreRefused(t *testing.T) {
	h := launch(t, runners("web", 1)).ready()
	_, err := h.admin().StopProcess(soon(t), &pb.StopProcessRequest{ProcessId: "web-1", Reason: strings.Repeat("x", 1<<20)})
	testkit.Equal(t, "code of a reason of 1 MiB", status.Code(err), codes.ResourceExhausted)
	_, err = h.notifications().NotifyReady(soon(t), &pb.ReadyNotification{ProcessId: "web-1", Message: strings.Repeat("x", 1<<20)})
	testkit.Equal(t, "code of a message of 1 MiB", status.Code(err), codes.ResourceExhausted)
	testkit.Equal(t, "state", stateOf(h, "web-1"), launcher.Ready)

	bad := group("bad", 1, "verbose")
	bad.Restart.Policy = launcher.Never
	e := launch(t, bad).waitForState("bad-1", launcher.Unhealthy)
	if !strings.Contains(e.Message, "larger than max") {
		t.Errorf("reason is %q, want one about the size", e.Message)
	}
}

// A line of 10 MiB needs no more memory than the log's buffer. It is split, and each part is
// written or counted as dropped.
func TestOutput_SplitsLineLongerThanBuffer(t *testing.T) {
	const length = 10 << 20
	log := filepath.Join(t.TempDir(), "log")
	g := group("long", 1, "long line")
	g.Protocol, g.Restart.Policy, g.Log.Path, g.Log.MaxSize, g.Log.MaxLine = launcher.Signals, launcher.Never, log, 1<<30, 16<<10
	h := launch(t, g)
	h.waitForEnd("long-1")
	h.close()
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	longest := 0
	for line := range bytes.Lines(text) {
		longest = max(longest, len(line))
	}
	if longest > 17<<10 {
		t.Errorf("a line of the log has %d bytes", longest)
	}
	c := h.Stats().Groups["long"].Log
	testkit.Equal(t, "lines, written and dropped", c.Lines+c.DroppedLines, uint64(length/(16<<10)))
	if c.Bytes+c.DroppedBytes < length {
		t.Errorf("%d bytes written, %d dropped, of %d", c.Bytes, c.DroppedBytes, length)
	}
}

// Arguments and environment reach the process unchanged; no shell interprets them.
func TestProcess_ReceivesArgumentsOfCommandUnchanged(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	args := []string{"$(touch " + filepath.Join(dir, "substituted") + ")", "`touch " + filepath.Join(dir, "quoted") + "`",
		"; touch " + filepath.Join(dir, "second"), "two\nlines", "", " ", "*", "~", "$HOME", "a'b\"c\\", "--", "{not a placeholder}", "%s"}
	g := group("odd", 1, "arguments", append([]string{out}, args...)...)
	g.Protocol, g.Restart.Policy = launcher.Signals, launcher.Never
	g.Env = append(g.Env, "ODD=$(id);`id`\n${HOME}")
	h := launch(t, g)
	testkit.Equal(t, "outcome", h.waitForEnd("odd-1").Outcome, launcher.Clean)
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	testkit.Equal(t, "arguments of the process", got, append(args, "ODD=$(id);`id`\n${HOME}"))
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	testkit.Equal(t, "files", len(files), 1)
}

// Group names cannot contain path elements.
func TestGroupNames_CannotContainPathElements(t *testing.T) {
	dir := filepath.Join(shortDir(t), "run")
	for _, name := range []string{"../web", "..", ".", "", "a/b", "/etc/x", "a\x00b", "a b", "-rf", "a\nb", strings.Repeat("x", 64)} {
		_, err := launcher.Start(context.Background(), launcher.Config{Dir: dir, Groups: []launcher.GroupConfig{runners(name, 1)}})
		if !strings.Contains(testkit.ErrorText(err), "must be up to 63 letters") {
			t.Errorf("group %q: %v", name, err)
		}
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("files were made for refused names: %v", err)
	}
	h := launch(t, runners("web", 1)).ready()
	for _, id := range []string{"../launcher", "web-1/../web-1", "web-1.sock", "/etc/passwd"} {
		_, err := h.admin().GetProcessStatus(soon(t), &pb.GetProcessStatusRequest{ProcessId: id})
		testkit.Equal(t, "process "+id, status.Code(err), codes.NotFound)
	}
}
