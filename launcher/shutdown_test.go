//go:build unix

package launcher_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

func TestGracefulShutdownClean(t *testing.T) {
	h := launch(t, runners("web", 1)).ready()
	st := h.stopAndWait("web-1")
	testkit.Equal(t, "outcome", st.Outcome, launcher.Clean)
	testkit.Equal(t, "state", st.State, launcher.Complete)
	testkit.Equal(t, "exit", st.Exit, "exit status 0")
}

// A test runner with the flag for a port answers health checks at that port.
func TestGracefulShutdown_OfProcessReachedOverTCP(t *testing.T) {
	address := freeAddress(t)
	_, port, _ := net.SplitHostPort(address)
	h := launch(t, runners("web", 1, "--port", port, "--behavior", "clean", "--drain-duration", "2s", "--work-duration", "100ms", "--initial-work", "5")).ready()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	answer, err := healthpb.NewHealthClient(conn).Check(soon(t), &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	testkit.Equal(t, "status", answer.GetStatus(), healthpb.HealthCheckResponse_SERVING)
	testkit.Equal(t, "outcome", h.stopAndWait("web-1").Outcome, launcher.Clean)
}

func TestGracefulShutdownSlowDrain(t *testing.T) {
	h := launch(t, runners("web", 1, "--behavior", "slow-drain", "--drain-duration", "500ms")).ready()
	st := h.stopAndWait("web-1")
	testkit.Equal(t, "outcome", st.Outcome, launcher.Clean)
	if st.Took() < 500*time.Millisecond {
		t.Errorf("the stop took %v, less than the drain of 500 ms", st.Took())
	}
}

func TestGracefulShutdownHang(t *testing.T) {
	g := runners("web", 1, "--behavior", "hang")
	g.Shutdown.Grace, g.Shutdown.GraceEnforced, g.Shutdown.SIGTERMTimeout = 300*time.Millisecond, true, 200*time.Millisecond
	h := launch(t, g).ready()
	st := h.stopAndWait("web-1")
	testkit.Equal(t, "outcome", st.Outcome, launcher.Killed)
	testkit.Equal(t, "state", st.State, launcher.Forced)
	testkit.Equal(t, "exit", st.Exit, "signal: killed")
	t.Logf("reaped %v after the bound of 500 ms", st.Took()-500*time.Millisecond)
	if st.Took() < 500*time.Millisecond {
		t.Errorf("killed after %v, before the grace period and the SIGTERM timeout", st.Took())
	}
}

func TestGracefulShutdownRequestMore(t *testing.T) {
	g := runners("web", 1, "--behavior", "request-more", "--drain-duration", "4s", "--more", "15s")
	g.Shutdown.Grace = 3 * time.Second
	h := launch(t, g).ready()
	st := h.stopAndWait("web-1")
	testkit.Equal(t, "outcome", st.Outcome, launcher.Clean)
	testkit.Equal(t, "requests for more time", st.Extension, 1)
}

func TestGracefulShutdownCrash(t *testing.T) {
	h := launch(t, runners("web", 1, "--behavior", "crash")).ready()
	st := h.stopAndWait("web-1")
	testkit.Equal(t, "outcome", st.Outcome, launcher.Crash)
	testkit.Equal(t, "state", st.State, launcher.Crashed)
	testkit.Equal(t, "exit", st.Exit, "exit status 2")
}

func TestProcessGroupShutdown(t *testing.T) {
	h := launch(t, runners("web", 3, "--behavior", "slow-drain", "--drain-duration", "2s")).ready()
	// The drain of each process takes longer than the launcher needs to order the stop of all
	// three.
	h.Shutdown()
	draining := map[string]bool{}
	h.readUntil("all three drain concurrently", func(e launcher.Event) bool {
		switch {
		case e.To == launcher.ShutdownRequested:
			draining[e.Process] = true
		case e.To.Ended():
			delete(draining, e.Process)
		}
		return len(draining) == 3
	})
	for _, id := range []string{"web-1", "web-2", "web-3"} {
		testkit.Equal(t, "outcome of "+id, h.waitForEnd(id).Outcome, launcher.Clean)
	}
}

func TestRollingReplacement(t *testing.T) {
	g := runners("web", 2)
	g.MinHealthy = launcher.Int(1)
	h := launch(t, g).ready()
	ready, total := map[string]bool{}, map[string]bool{}
	for _, st := range h.running("web") {
		ready[st.ID], total[st.ID] = true, true
	}
	h.drainEvents()
	h.events = nil
	ctx, cancel := context.WithTimeout(context.Background(), tooLong)
	defer cancel()
	if err := h.Restart(ctx, "web", "a new build"); err != nil {
		t.Fatalf("%v\n%s", err, h.story())
	}
	var now []string
	for _, st := range h.running("web") {
		if st.Revision == 2 {
			now = append(now, st.ID)
		}
	}
	testkit.Equal(t, "processes of the new revision", len(now), 2)

	// The events show that at any time at least one process was ready and at most three existed.
	h.drainEvents()
	for _, e := range h.events {
		if e.Kind != launcher.Transition {
			continue
		}
		total[e.Process], ready[e.Process] = true, e.To == launcher.Ready
		if e.To.Ended() {
			delete(total, e.Process)
		}
		if !ready[e.Process] {
			delete(ready, e.Process)
		}
		if len(ready) < 1 {
			t.Errorf("when %s is %v, no process is ready\n%s", e.Process, e.To, h.story())
		}
		if len(total) > 3 {
			t.Errorf("when %s is %v, %d processes exist\n%s", e.Process, e.To, len(total), h.story())
		}
	}
}
