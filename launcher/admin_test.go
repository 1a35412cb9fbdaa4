//go:build unix

package launcher_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/swansong-go/swansong/launcher"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
)

func (h *harness) admin() pb.LauncherAdminInterfaceClient {
	h.t.Helper()
	to, conn, err := launcher.Dial(h.dir)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { conn.Close() })
	return to
}

func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), tooLong)
	t.Cleanup(cancel)
	return ctx
}

// An admin stops a process through the launcher, and sees it COMPLETE.
func TestAdminDelegatedShutdown(t *testing.T) {
	h := launch(t, runners("web", 2)).ready()
	to, ctx := h.admin(), soon(t)
	events, err := to.WatchEvents(ctx, &pb.WatchEventsRequest{Group: "web"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := events.Header(); err != nil {
		t.Fatal(err)
	}
	out, err := to.StopProcess(ctx, &pb.StopProcessRequest{ProcessId: "web-1", Wait: true})
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "outcome", out.GetStatus().GetOutcome(), pb.Outcome_CLEAN)
	st, err := to.GetProcessStatus(ctx, &pb.GetProcessStatusRequest{ProcessId: "web-1"})
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "state", st.GetState(), pb.ProcessState_COMPLETE)
	var seen []pb.ProcessState
	for len(seen) == 0 || seen[len(seen)-1] != pb.ProcessState_COMPLETE {
		e, err := events.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if e.GetProcessId() == "web-1" && e.GetKind() == string(launcher.Transition) && e.GetTo() != pb.ProcessState_DRAINING {
			seen = append(seen, e.GetTo())
		}
	}
	equal(t, "states", seen, []pb.ProcessState{pb.ProcessState_SHUTDOWN_REQUESTED, pb.ProcessState_COMPLETE})
	h.enters("web-3", launcher.Ready) // in its place
}

func TestAdminUnknownNames(t *testing.T) {
	h := launch(t, runners("web", 1)).ready()
	to, ctx := h.admin(), soon(t)
	for name, call := range map[string]func() error{
		"StopProcess":      func() error { _, err := to.StopProcess(ctx, &pb.StopProcessRequest{ProcessId: "x"}); return err },
		"GetProcessStatus": func() error { _, err := to.GetProcessStatus(ctx, &pb.GetProcessStatusRequest{}); return err },
		"RestartGroup":     func() error { _, err := to.RestartGroup(ctx, &pb.RestartGroupRequest{Group: "x"}); return err },
		"GetGroupHealth":   func() error { _, err := to.GetGroupHealth(ctx, &pb.GetGroupHealthRequest{Group: "x"}); return err },
		"DryRunShutdown":   func() error { _, err := to.DryRunShutdown(ctx, &pb.DryRunShutdownRequest{Group: "x"}); return err },
		"WatchEvents": func() error {
			events, err := to.WatchEvents(ctx, &pb.WatchEventsRequest{Group: "x"})
			if err != nil {
				return err
			}
			_, err = events.Recv()
			return err
		},
	} {
		equal(t, name, status.Code(call()), codes.NotFound)
	}
}

// A grace period that is none, or longer than any that can be configured, is refused, and nobody is stopped by it.
func TestAdminGracePeriods(t *testing.T) {
	h := launch(t, runners("web", 1)).ready()
	to, ctx := h.admin(), soon(t)
	for _, c := range []struct {
		grace *durationpb.Duration
		shown string
	}{
		{durationpb.New(-time.Second), "-1s"},
		{&durationpb.Duration{}, "0s"},
		{durationpb.New(24*time.Hour + 1), "24h0m0.000000001s"},
		{&durationpb.Duration{Seconds: 1 << 62}, time.Duration(math.MaxInt64).String()},
		{&durationpb.Duration{Seconds: 1, Nanos: -1}, "999.999999ms"}, // whose signs differ
	} {
		_, err := to.StopProcess(ctx, &pb.StopProcessRequest{ProcessId: "web-1", GracePeriod: c.grace})
		want := "launcher: grace_period has to be more than 0 and at most 24h0m0s, and not " + c.shown + "; leave it out for the configured time"
		equal(t, "code", status.Code(err), codes.InvalidArgument)
		equal(t, "message", status.Convert(err).Message(), want)
	}
	if err := h.StopProcess("web-1", launcher.Stop{Grace: -time.Second}); err == nil || !strings.Contains(err.Error(), "Grace is -1s") {
		t.Errorf("a negative grace, without the wire: %v", err)
	}
	equal(t, "state", stateOf(h, "web-1"), launcher.Ready)
	if _, err := to.StopProcess(ctx, &pb.StopProcessRequest{ProcessId: "web-1", GracePeriod: durationpb.New(24 * time.Hour)}); err != nil {
		t.Error(err)
	}
	equal(t, "outcome", h.ends("web-1").Outcome, launcher.Clean)
}

// A call that ends early changes nothing of what it has begun.
func TestAdminCallsAreDetached(t *testing.T) {
	h := launch(t, runners("web", 1, "--behavior", "slow-drain", "--drain-duration", "300ms")).ready()
	to := h.admin()
	ctx, cancel := context.WithCancel(soon(t))
	answered := make(chan error, 1)
	go func() {
		_, err := to.StopProcess(ctx, &pb.StopProcessRequest{ProcessId: "web-1", Wait: true})
		answered <- err
	}()
	h.enters("web-1", launcher.ShutdownRequested)
	cancel()
	equal(t, "code", status.Code(<-answered), codes.Canceled)
	equal(t, "outcome", h.ends("web-1").Outcome, launcher.Clean)
	h.ready()

	ctx, cancel = context.WithCancel(soon(t))
	go func() {
		_, err := to.RestartGroup(ctx, &pb.RestartGroupRequest{Group: "web", Wait: true})
		answered <- err
	}()
	h.until("the roll has begun", func(e launcher.Event) bool { return e.Kind == launcher.RollBegun })
	cancel()
	equal(t, "code", status.Code(<-answered), codes.Canceled)
	end := h.until("the roll is over", func(e launcher.Event) bool { return e.Kind == launcher.RollDone || e.Kind == launcher.RollFailed })
	equal(t, "how the roll has ended", end.Kind, launcher.RollDone)
}

// A dry run says what there is to drain, and stops nothing.
func TestDryRun(t *testing.T) {
	g := group("web", 1, "testrunner", "--process-id", "{id}", "--initial-work", "1000", "--work-duration", "50ms")
	g.Shutdown.Poll = 5 * time.Second // for an answer, on a machine that is slow
	h := launch(t, g).ready()
	out, err := h.admin().DryRunShutdown(soon(t), &pb.DryRunShutdownRequest{})
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "processes", len(out.GetProcesses()), 1)
	m := out.GetProcesses()[0].GetMetrics()
	if m.GetInFlightRequests() < 100 || !strings.Contains(strings.Join(m.GetBlockingOperations(), ","), "initial work") {
		t.Errorf("it says %v, and there is a lot of initial work", m)
	}
	equal(t, "state", stateOf(h, "web-1"), launcher.Ready)
	web := h.running("web")[0]
	equal(t, "bound", out.GetProcesses()[0].GetBound().AsDuration(), web.Bound)
	equal(t, "bound where there is no router", web.Bound, (20+10+2)*time.Second)
	kill(t, web.PID) // it would take too long
}

// What a process says that it is busy with has its secrets taken out like all else that it says, for whoever asks.
func TestMetricsAreRedacted(t *testing.T) {
	h := launchWith(t, launcher.Config{Groups: []launcher.GroupConfig{group("web", 1, "blocked")},
		Redact: func(s string) string { return strings.ReplaceAll(s, "hunter2", "***") }}).ready()
	want := []string{"COMMIT on postgres://app:***@db", "fine"}
	var said *pb.ShutdownMetrics
	for ctx := soon(t); said == nil; { // a slow machine may take longer to answer than it is asked
		runs, err := h.DryRun(ctx, "web-1", "")
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			t.Fatal(err)
		}
		said = runs[0].Metrics
	}
	equal(t, "a dry run says", said.GetBlockingOperations(), want)
	h.StopProcess("web-1", launcher.Stop{NoReplacement: true})
	h.enters("web-1", launcher.Blocked)
	reply, err := h.admin().GetProcessStatus(soon(t), &pb.GetProcessStatusRequest{ProcessId: "web-1"})
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "the status says", reply.GetMetrics().GetBlockingOperations(), want)
	equal(t, "and how much", reply.GetMetrics().GetInFlightRequests(), int32(2))
	kill(t, h.running("web")[0].PID)
}

// What a process says in a field that this launcher does not know, it cannot take secrets out of, and shows nobody.
func TestUnknownFieldsAreNotShown(t *testing.T) {
	h := launch(t, group("web", 1, "later version")).ready()
	to, ctx := h.admin(), soon(t)
	shown := func(answer proto.Message, m *pb.ShutdownMetrics) {
		t.Helper()
		equal(t, "what it is busy with", m.GetBlockingOperations(), []string{"work"})
		text, err := proto.Marshal(answer)
		if err != nil || bytes.Contains(text, []byte("hunter2")) {
			t.Errorf("%v, %q", err, text)
		}
	}
	var dry *pb.DryRunShutdownResponse
	for dry == nil || dry.GetProcesses()[0].GetMetrics() == nil { // a slow machine may take longer to answer than it is asked
		var err error
		if dry, err = to.DryRunShutdown(ctx, &pb.DryRunShutdownRequest{ProcessId: "web-1"}); err != nil {
			t.Fatal(err)
		}
	}
	shown(dry, dry.GetProcesses()[0].GetMetrics())
	h.StopProcess("web-1", launcher.Stop{NoReplacement: true})
	h.enters("web-1", launcher.Blocked)
	st, err := to.GetProcessStatus(ctx, &pb.GetProcessStatusRequest{ProcessId: "web-1"})
	if err != nil {
		t.Fatal(err)
	}
	shown(st, st.GetMetrics())
	kill(t, h.running("web")[0].PID)
}

// Sockets are their owner's alone, in a directory that is.
func TestSocketsArePrivate(t *testing.T) {
	dir := filepath.Join(shortDir(t), "run")
	h := launchWith(t, launcher.Config{Dir: dir, Groups: []launcher.GroupConfig{runners("web", 1)}}).ready()
	modes := map[string]string{}
	for _, name := range []string{"", "launcher.sock", "web-1.sock"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		modes[name] = info.Mode().String()
	}
	equal(t, "modes", modes, map[string]string{"": "drwx------", "launcher.sock": "Srw-------", "web-1.sock": "Srw-------"})

	_, err := launcher.Start(context.Background(), launcher.Config{Dir: dir, Groups: []launcher.GroupConfig{runners("web", 1)}})
	if !errors.Is(err, launcher.ErrInUse) {
		t.Errorf("a second launcher on the directory: %v", err)
	}
	equal(t, "what it says", errText(err), fmt.Sprintf(
		"launcher: another launcher has this directory: %s (pid %d); stop that one first, or give this one a directory of its own", dir, os.Getpid()))
	equal(t, "state, after that", stateOf(h, "web-1"), launcher.Ready)

	for _, name := range allFiles(t, dir) { // by somebody who tidies up
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) { // it has just been renamed
			t.Fatal(err)
		}
	}
	_, err = launcher.Start(context.Background(), launcher.Config{Dir: dir, Groups: []launcher.GroupConfig{runners("web", 1)}})
	if !errors.Is(err, launcher.ErrInUse) {
		t.Errorf("a second launcher on the directory without its files: %v", err)
	}

	open := filepath.Join(shortDir(t), "open")
	if err := os.Mkdir(open, 0o755); err != nil {
		t.Fatal(err)
	}
	_, err = launcher.Start(context.Background(), launcher.Config{Dir: open, Groups: []launcher.GroupConfig{runners("web", 1)}})
	if !strings.Contains(errText(err), "0700") {
		t.Errorf("a directory that others can look into: %v", err)
	}
	link := filepath.Join(shortDir(t), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	_, err = launcher.Start(context.Background(), launcher.Config{Dir: link, Groups: []launcher.GroupConfig{runners("web", 1)}})
	if !strings.Contains(errText(err), "symbolic link") {
		t.Errorf("a directory that is a link: %v", err)
	}
}

// allFiles returns the files of a directory that are no sockets.
func allFiles(t *testing.T, dir string) (files []string) {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		if e.Type().IsRegular() {
			files = append(files, filepath.Join(dir, e.Name()))
		}
	}
	return files
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// A process speaks for itself, and for nobody else.
func TestImpostor(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	victim := runners("victim", 1, "--ready-after", "-1s")
	victim.Restart.Policy = launcher.Never
	bad := group("impostor", 1, "impostor")
	bad.Log.Path, bad.Restart.Policy = log, launcher.Never
	h := launch(t, victim, bad)
	h.enters("impostor-1", launcher.Ready) // it may say so of itself
	equal(t, "state of the victim", stateOf(h, "victim-1") < launcher.Ready, true)
	h.ends("impostor-1")
	kill(t, h.running("victim")[0].PID)
	h.close() // by which the log is written
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "impostor-1 out") {
			said = append(said, strings.TrimSpace(line[strings.Index(line, "|")+1:]))
		}
	}
	equal(t, "what the launcher told it", said, []string{"PermissionDenied", "OK"})
}
