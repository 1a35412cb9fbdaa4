//go:build unix

package launcher_test

import (
	"strings"
	"testing"
	"time"

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
)

// The event of a forced end, and the last status, have what the process waited for and where its
// goroutines were, without secrets. The events that operators watch have it, too.
func TestForcedReport_EventOfForcedProcessSaysWhatItWaitedFor(t *testing.T) {
	g := runners("web", 1, "--behavior", "hang")
	// The launcher asks for the report in the last two polls before the end of the grace period.
	g.Shutdown.Grace, g.Shutdown.Max, g.Shutdown.Poll, g.Shutdown.SIGTERMTimeout = 4*time.Second, 4*time.Second, time.Second, 0
	h := launchWith(t, launcher.Config{Groups: []launcher.GroupConfig{g}, Secrets: launcher.SecretConfig{Values: []string{"something that never"}}}).ready()
	stream, err := h.admin().WatchEvents(soon(t), &pb.WatchEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Header(); err != nil {
		t.Fatal(err)
	}
	st := h.stopAndWait("web-1")
	testkit.Equal(t, "state", st.State, launcher.Forced)
	if !strings.HasPrefix(st.Report, "waits for *** happens\n") || !strings.Contains(st.Report, "testrunner.(*runner).drainAll\n\t\t") {
		t.Errorf("the report is %q", st.Report)
	}
	if strings.Contains(st.Report, "google.golang.org/grpc/internal/transport.") {
		t.Errorf("the report has goroutines of the protocol:\n%s", st.Report)
	}
	var event launcher.Event
	for _, e := range h.events {
		if e.To == launcher.Forced {
			event = e
		}
	}
	testkit.Equal(t, "report of the event", event.Stack, st.Report)
	for {
		e, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if e.GetTo() == pb.ProcessState_FORCED {
			testkit.Equal(t, "report for operators", e.GetStack(), st.Report)
			break
		}
	}
	wire, err := h.admin().GetProcessStatus(soon(t), &pb.GetProcessStatusRequest{ProcessId: "web-1"})
	if err != nil {
		t.Fatal(err)
	}
	testkit.Equal(t, "report in the status", wire.GetReport(), st.Report)
	all, err := h.admin().GetGroupHealth(soon(t), &pb.GetGroupHealthRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all.GetGroups()[0].GetProcesses() {
		testkit.Equal(t, "report in the status of all processes", p.GetReport(), "")
	}
}

// A process that ends in time leaves no report, although it was asked for one.
func TestForcedReport_IsMissingIfProcessEndedInTime(t *testing.T) {
	g := runners("web", 1, "--behavior", "slow-drain", "--drain-duration", "500ms")
	g.Shutdown.Grace, g.Shutdown.Max, g.Shutdown.Poll = 20*time.Second, 20*time.Second, 10*time.Second
	h := launch(t, g).ready()
	st := h.stopAndWait("web-1")
	testkit.Equal(t, "outcome", st.Outcome, launcher.Clean)
	testkit.Equal(t, "report", st.Report, "")
}
