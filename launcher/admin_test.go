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

	"github.com/swansong-go/swansong/internal/testkit"
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

// StopProcess over the admin service stops a process, which becomes COMPLETE.
func TestAdmin_StopProcessReportsReasonOfCaller(t *testing.T) {
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
	testkit.Equal(t, "outcome", out.GetStatus().GetOutcome(), pb.Outcome_CLEAN)
	st, err := to.GetProcessStatus(ctx, &pb.GetProcessStatusRequest{ProcessId: "web-1"})
	if err != nil {
		t.Fatal(err)
	}
	testkit.Equal(t, "state", st.GetState(), pb.ProcessState_COMPLETE)
	var seen []pb.ProcessState
	var ends []string
	for len(seen) == 0 || seen[len(seen)-1] != pb.ProcessState_COMPLETE {
		e, err := events.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if e.Outcome != nil {
			ends = append(ends, e.GetProcessId()+" "+e.GetOutcome().String())
		}
		if e.GetProcessId() == "web-1" && e.GetKind() == string(launcher.Transition) && e.GetTo() != pb.ProcessState_DRAINING {
			seen = append(seen, e.GetTo())
		}
	}
	testkit.Equal(t, "states", seen, []pb.ProcessState{pb.ProcessState_SHUTDOWN_REQUESTED, pb.ProcessState_COMPLETE})
	testkit.Equal(t, "outcomes in events", ends, []string{"web-1 CLEAN"})
	h.waitForState("web-3", launcher.Ready) // web-3 replaces the stopped process
}

func TestAdmin_RefusesUnknownNames(t *testing.T) {
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
		testkit.Equal(t, name, status.Code(call()), codes.NotFound)
	}
}

// A grace period that is not positive, or longer than can be configured, is refused, and no process
// is stopped.
func TestAdmin_RefusesInvalidGracePeriods(t *testing.T) {
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
		{&durationpb.Duration{Seconds: 1, Nanos: -1}, "999.999999ms"}, // not valid, because seconds and nanoseconds have different signs
	} {
		_, err := to.StopProcess(ctx, &pb.StopProcessRequest{ProcessId: "web-1", GracePeriod: c.grace})
		want := "launcher: grace_period is " + c.shown + "; it must be more than 0 and at most 24h0m0s; omit it to use the configured one"
		testkit.Equal(t, "code", status.Code(err), codes.InvalidArgument)
		testkit.Equal(t, "message", status.Convert(err).Message(), want)
	}
	if err := h.StopProcess("web-1", launcher.Stop{Grace: -time.Second}); err == nil || !strings.Contains(err.Error(), "Grace is -1s") {
		t.Errorf("StopProcess with a negative grace: %v", err)
	}
	testkit.Equal(t, "state", stateOf(h, "web-1"), launcher.Ready)
	if _, err := to.StopProcess(ctx, &pb.StopProcessRequest{ProcessId: "web-1", GracePeriod: durationpb.New(24 * time.Hour)}); err != nil {
		t.Error(err)
	}
	testkit.Equal(t, "outcome", h.waitForEnd("web-1").Outcome, launcher.Clean)
}

// A call of a client can begin a stop. If the client then cancels the call, the stop continues.
func TestAdmin_StopContinuesWhenClientCancelsCall(t *testing.T) {
	h := launch(t, runners("web", 1, "--behavior", "slow-drain", "--drain-duration", "300ms")).ready()
	to := h.admin()
	ctx, cancel := context.WithCancel(soon(t))
	answered := make(chan error, 1)
	go func() {
		_, err := to.StopProcess(ctx, &pb.StopProcessRequest{ProcessId: "web-1", Wait: true})
		answered <- err
	}()
	h.waitForState("web-1", launcher.ShutdownRequested)
	cancel()
	testkit.Equal(t, "code", status.Code(<-answered), codes.Canceled)
	testkit.Equal(t, "outcome", h.waitForEnd("web-1").Outcome, launcher.Clean)
	h.ready()

	ctx, cancel = context.WithCancel(soon(t))
	go func() {
		_, err := to.RestartGroup(ctx, &pb.RestartGroupRequest{Group: "web", Wait: true})
		answered <- err
	}()
	h.readUntil("the roll has begun", func(e launcher.Event) bool { return e.Kind == launcher.RollBegun })
	cancel()
	testkit.Equal(t, "code", status.Code(<-answered), codes.Canceled)
	end := h.readUntil("the roll ends", func(e launcher.Event) bool { return e.Kind == launcher.RollDone || e.Kind == launcher.RollFailed })
	testkit.Equal(t, "kind of the last event", end.Kind, launcher.RollDone)
}

// A dry run reports what a process would have to drain, and stops nothing.
func TestDryRun_ReportsWorkWithoutStoppingProcess(t *testing.T) {
	g := group("web", 1, "testrunner", "--process-id", "{id}", "--initial-work", "1000", "--work-duration", "50ms")
	g.Shutdown.Poll = 5 * time.Second // gives a slow machine time to answer
	h := launch(t, g).ready()
	out, err := h.admin().DryRunShutdown(soon(t), &pb.DryRunShutdownRequest{})
	if err != nil {
		t.Fatal(err)
	}
	testkit.Equal(t, "processes", len(out.GetProcesses()), 1)
	m := out.GetProcesses()[0].GetMetrics()
	if m.GetInFlightRequests() < 100 || !strings.Contains(strings.Join(m.GetBlockingOperations(), ","), "initial work") {
		t.Errorf("metrics are %v, want the initial work", m)
	}
	testkit.Equal(t, "state", stateOf(h, "web-1"), launcher.Ready)
	web := h.running("web")[0]
	testkit.Equal(t, "bound", out.GetProcesses()[0].GetBound().AsDuration(), web.Bound)
	testkit.Equal(t, "bound without a router", web.Bound, (20+10+2)*time.Second)
	kill(t, web.PID) // the test kills the process, because its drain would take too long
}

// Blocking operations that a process reports are masked in every answer.
func TestDrainMetrics_AreShownWithoutSecrets(t *testing.T) {
	h := launchWith(t, launcher.Config{Groups: []launcher.GroupConfig{group("web", 1, "blocked")},
		Secrets: launcher.SecretConfig{Values: []string{"hunter2"}}}).ready()
	want := []string{"COMMIT on postgres://app:***@db", "fine"}
	var said *pb.ShutdownMetrics
	for ctx := soon(t); said == nil; { // retry, because a slow machine might miss the timeout
		runs, err := h.DryRun(ctx, "web-1", "")
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			t.Fatal(err)
		}
		said = runs[0].Metrics
	}
	testkit.Equal(t, "operations in the dry run", said.GetBlockingOperations(), want)
	h.StopProcess("web-1", launcher.Stop{NoReplacement: true})
	h.waitForState("web-1", launcher.Blocked)
	reply, err := h.admin().GetProcessStatus(soon(t), &pb.GetProcessStatusRequest{ProcessId: "web-1"})
	if err != nil {
		t.Fatal(err)
	}
	testkit.Equal(t, "operations in the status", reply.GetMetrics().GetBlockingOperations(), want)
	testkit.Equal(t, "requests in the status", reply.GetMetrics().GetInFlightRequests(), int32(2))
	kill(t, h.running("web")[0].PID)
}

// Fields that this launcher does not know cannot be masked, so they are not shown.
func TestDrainMetrics_UnknownFieldsAreNotShown(t *testing.T) {
	h := launch(t, group("web", 1, "later version")).ready()
	to, ctx := h.admin(), soon(t)
	shown := func(answer proto.Message, m *pb.ShutdownMetrics) {
		t.Helper()
		testkit.Equal(t, "blocking operations", m.GetBlockingOperations(), []string{"work"})
		text, err := proto.Marshal(answer)
		if err != nil || bytes.Contains(text, []byte("hunter2")) {
			t.Errorf("%v, %q", err, text)
		}
	}
	var dry *pb.DryRunShutdownResponse
	for dry == nil || dry.GetProcesses()[0].GetMetrics() == nil { // retry, because a slow machine might miss the timeout
		var err error
		if dry, err = to.DryRunShutdown(ctx, &pb.DryRunShutdownRequest{ProcessId: "web-1"}); err != nil {
			t.Fatal(err)
		}
	}
	shown(dry, dry.GetProcesses()[0].GetMetrics())
	h.StopProcess("web-1", launcher.Stop{NoReplacement: true})
	h.waitForState("web-1", launcher.Blocked)
	st, err := to.GetProcessStatus(ctx, &pb.GetProcessStatusRequest{ProcessId: "web-1"})
	if err != nil {
		t.Fatal(err)
	}
	shown(st, st.GetMetrics())
	kill(t, h.running("web")[0].PID)
}

// Sockets can be used only by their owner, in a directory that only the owner can read.
func TestSockets_CanBeUsedOnlyByOwner(t *testing.T) {
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
	testkit.Equal(t, "modes", modes, map[string]string{"": "drwx------", "launcher.sock": "Srw-------", "web-1.sock": "Srw-------"})

	_, err := launcher.Start(context.Background(), launcher.Config{Dir: dir, Groups: []launcher.GroupConfig{runners("web", 1)}})
	if !errors.Is(err, launcher.ErrInUse) {
		t.Errorf("second launcher with the directory: %v", err)
	}
	testkit.Equal(t, "error", testkit.ErrorText(err), fmt.Sprintf(
		"launcher: another launcher has this directory: %s (pid %d); stop the other launcher first, or give this launcher a directory of its own", dir, os.Getpid()))
	testkit.Equal(t, "state after the refusal", stateOf(h, "web-1"), launcher.Ready)

	for _, name := range allFiles(t, dir) { // removes the files, as a program that cleans up /tmp would do
		// The launcher may have renamed a file since allFiles has listed it.
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	_, err = launcher.Start(context.Background(), launcher.Config{Dir: dir, Groups: []launcher.GroupConfig{runners("web", 1)}})
	if !errors.Is(err, launcher.ErrInUse) {
		t.Errorf("second launcher with the directory after its files were removed: %v", err)
	}

	open := filepath.Join(shortDir(t), "open")
	if err := os.Mkdir(open, 0o755); err != nil {
		t.Fatal(err)
	}
	_, err = launcher.Start(context.Background(), launcher.Config{Dir: open, Groups: []launcher.GroupConfig{runners("web", 1)}})
	if !strings.Contains(testkit.ErrorText(err), "0700") {
		t.Errorf("launcher with a directory that others can read: %v", err)
	}
	link := filepath.Join(shortDir(t), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	_, err = launcher.Start(context.Background(), launcher.Config{Dir: link, Groups: []launcher.GroupConfig{runners("web", 1)}})
	if !strings.Contains(testkit.ErrorText(err), "symbolic link") {
		t.Errorf("launcher with a symbolic link as directory: %v", err)
	}
}

// allFiles returns the files of a directory that are not sockets.
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

// A process can send notifications about itself, but not about another process.
func TestNotifyReady_RefusesCallOfProcessAboutAnotherProcess(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	victim := runners("victim", 1, "--ready-after", "-1s")
	victim.Restart.Policy = launcher.Never
	bad := group("impostor", 1, "impostor")
	bad.Log.Path, bad.Restart.Policy = log, launcher.Never
	h := launch(t, victim, bad)
	// impostor-1 may report itself ready
	h.waitForState("impostor-1", launcher.Ready)
	testkit.Equal(t, "state of the victim", stateOf(h, "victim-1") < launcher.Ready, true)
	h.waitForEnd("impostor-1")
	kill(t, h.running("victim")[0].PID)
	h.close() // close waits until the log has been written
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
	testkit.Equal(t, "answers of the launcher", said, []string{"PermissionDenied", "OK"})
}

// The states and the outcomes have the same names in the protocol, and so in JSON, as in texts,
// metrics and the documentation.
func TestAdmin_StatesHaveSameNamesInProtocolAndTexts(t *testing.T) {
	for s := launcher.Spawning; s <= launcher.Gone; s++ {
		testkit.Equal(t, "name of a state", pb.ProcessState(s).String(), s.String())
	}
	for o := launcher.Clean; o <= launcher.Unconfirmed; o++ {
		testkit.Equal(t, "name of an outcome", pb.Outcome_Value(o).String(), o.String())
	}
}
