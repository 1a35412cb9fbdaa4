//go:build linux

package launcher_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher"
)

// A process that hangs in any way is stopped at its configured deadline, and not before.
func TestStop_KillsStuckProcessAtDeadline(t *testing.T) {
	const grace, sigterm = 200 * time.Millisecond, 200 * time.Millisecond
	short := func(g launcher.GroupConfig) launcher.GroupConfig {
		g.Shutdown.Grace, g.Shutdown.SIGTERMTimeout = grace, sigterm
		return g
	}
	t.Run("a call that hangs", func(t *testing.T) {
		h := launch(t, short(group("odd", 1, "hang"))).ready()
		st := h.stopAndWait("odd-1")
		testkit.Equal(t, "outcome", st.Outcome, launcher.Killed)
		t.Logf("reaped after %v; SIGTERM after %v, SIGKILL after %v", st.Took(), grace, grace+sigterm)
		if st.Took() < grace {
			t.Errorf("stopped too early, after %v\n%s", st.Took(), h.story())
		}
	})
	t.Run("a socket at which no process answers", func(t *testing.T) {
		g := short(group("odd", 1, "black hole"))
		g.HealthCheckTimeout = 300 * time.Millisecond
		g.Restart.Policy = launcher.Never
		h := launch(t, g)
		h.waitForState("odd-1", launcher.Unhealthy)
		testkit.Equal(t, "outcome", h.waitForEnd("odd-1").Outcome, launcher.Killed)
		testkit.Equal(t, "running processes", len(h.running("odd")), 0)
	})
	t.Run("a process that is stopped by SIGSTOP", func(t *testing.T) {
		g := short(runners("odd", 1, "--behavior", "hang"))
		g.LivenessFailures = 1000
		h := launch(t, g).ready()
		pid := h.running("odd")[0].PID
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		st := h.stopAndWait("odd-1")
		testkit.Equal(t, "outcome", st.Outcome, launcher.Killed)
		t.Logf("reaped after %v; SIGTERM after %v, SIGKILL after %v", st.Took(), grace, grace+sigterm)
		if st.Took() < grace+sigterm {
			t.Errorf("stopped too early, after %v\n%s", st.Took(), h.story())
		}
	})
	t.Run("a process that prints without end", func(t *testing.T) {
		h := launch(t, group("odd", 1, "noisy", "--process-id", "{id}", "--work-duration", "1ms")).ready()
		testkit.Equal(t, "outcome", h.stopAndWait("odd-1").Outcome, launcher.Clean)
	})
}

// A process that does not take part in the protocol gets SIGTERM at once, and its end by SIGTERM is
// clean.
func TestStop_SendsSIGTERMToProcessWithoutProtocol(t *testing.T) {
	for _, role := range []string{"unimplemented", "declines"} {
		t.Run(role, func(t *testing.T) {
			h := launch(t, group("odd", 1, role)).ready()
			st := h.stopAndWait("odd-1")
			testkit.Equal(t, "outcome", st.Outcome, launcher.Clean)
			testkit.Equal(t, "exit", st.Exit, "signal: terminated")
		})
	}
	t.Run("no protocol", func(t *testing.T) {
		g := group("odd", 1, "plain")
		g.Protocol = launcher.Signals
		h := launch(t, g).ready()
		testkit.Equal(t, "outcome", h.stopAndWait("odd-1").Outcome, launcher.Clean)
	})
}

// A Shutdown call states the time that remains for the process under all deadlines, and not only
// its grace period.
func TestStop_ShutdownCallStatesRemainingTime(t *testing.T) {
	const (
		once, again = "repeats what it is told", "repeats what it is told again"
		pollTimeout = 200 * time.Millisecond
	)
	for _, test := range []struct {
		name         string
		role         string
		group, total time.Duration // total deadlines of the group and of the launcher
		grace, most  time.Duration
	}{
		{"the grace period alone", once, 0, 0, 10 * time.Second, 20 * time.Second},
		{"a total deadline of the group", once, 15 * time.Second, 0, 10 * time.Second, 12 * time.Second},
		{"a short total deadline of the group", once, 10 * time.Second, 0, 8 * time.Second, 8 * time.Second},
		{"a total deadline of the launcher", once, 0, 15 * time.Second, 10 * time.Second, 12 * time.Second},
		{"a short total deadline of the launcher", once, 0, 10 * time.Second, 8 * time.Second, 8 * time.Second},
		{"the time left when the process is asked again", again, 0, 0, 10*time.Second - pollTimeout, 20*time.Second - pollTimeout},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := group("odd", 1, test.role)
			g.Shutdown.Poll = pollTimeout // not only the time between two calls to the process, but also the timeout of each
			g.Shutdown.TotalDeadline, g.Shutdown.GraceEnforced = test.group, true
			h := launchWith(t, launcher.Config{Groups: []launcher.GroupConfig{g}, TotalDeadline: test.total}).ready()
			h.Shutdown()
			e := h.readUntil("the answer of the process", func(e launcher.Event) bool { return e.Kind == launcher.Signalled })
			var grace, most int
			if _, err := fmt.Sscanf(e.Message, "SIGTERM: the process declined the shutdown request: %d ms, %d ms", &grace, &most); err != nil {
				t.Fatalf("%q: %v", e.Message, err)
			}
			for _, limit := range []struct {
				what      string
				got, want time.Duration
			}{{"grace", time.Duration(grace) * time.Millisecond, test.grace}, {"maximum", time.Duration(most) * time.Millisecond, test.most}} {
				// When the launcher asks the process to stop, part of the total deadline has
				// already passed.
				if limit.got > limit.want || limit.got < limit.want-5*time.Second {
					t.Errorf("the call states %v of %s, want %v", limit.got, limit.what, limit.want)
				}
			}
		})
	}
}

// When a process has ended, none of its descendants is left.
func TestStop_LeavesNoDescendant(t *testing.T) {
	h := launch(t, group("family", 1, "family", "--process-id", "{id}", "--work-duration", "1ms")).ready()
	leader := h.running("family")[0].PID
	testkit.Equal(t, "children of the running process", len(children(t, leader)), 50)
	pids := children(t, leader)
	st := h.stopAndWait("family-1")
	testkit.Equal(t, "outcome", st.Outcome, launcher.Clean)
	testkit.Equal(t, "survivors", st.Survivors, []string(nil))
	for _, p := range processes(t) {
		if slices.Contains(pids, p.pid) {
			t.Errorf("pid %d is left", p.pid)
		}
	}
}

// children returns the processes whose parent is pid.
func children(t *testing.T, pid int) (found []int) {
	t.Helper()
	for _, p := range processes(t) {
		if p.parent == pid {
			found = append(found, p.pid)
		}
	}
	return found
}

// Force kills all processes at once.
func TestForce_KillsAllProcessesAtOnce(t *testing.T) {
	h := launch(t, runners("web", 2, "--behavior", "hang")).ready()
	h.Shutdown()
	h.waitForState("web-1", launcher.ShutdownRequested)
	h.Force(os.ErrDeadlineExceeded)
	for _, id := range []string{"web-1", "web-2"} {
		st := h.waitForEnd(id)
		testkit.Equal(t, "outcome of "+id, st.Outcome, launcher.Killed)
		if !strings.Contains(st.Message, os.ErrDeadlineExceeded.Error()) {
			t.Errorf("%s was killed with message %q, want the cause", id, st.Message)
		}
	}
}

// A ready process that stops answering becomes unhealthy: liveness calls have a timeout.
func TestLiveness_SilentProcessIsReplaced(t *testing.T) {
	g := runners("odd", 1)
	g.LivenessInterval, g.LivenessFailures = time.Second, 2
	g.Shutdown.Grace, g.Shutdown.SIGTERMTimeout = 100*time.Millisecond, 100*time.Millisecond
	h := launch(t, g).ready()
	h.waitForAnswer("odd-1") // wait until the launcher is connected, so that only the later calls fail
	ill := unhealthy(h, "odd-1")
	if err := syscall.Kill(h.running("odd")[0].PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ill:
	case <-time.After(tooLong):
		kill(t, h.running("odd")[0].PID)
		t.Fatalf("the process does not become unhealthy\n%s", h.story())
	}
}

// The launcher has tried to connect to the process, which did not listen yet. When the process
// reports that it is ready, the launcher connects again at once.
func TestReadyReport_OfProcessMakesLauncherConnectToItAtOnce(t *testing.T) {
	g := runners("odd", 1)
	g.LivenessInterval, g.LivenessFailures = 500*time.Millisecond, 3
	g.Shutdown.Poll = 30 * time.Second // so gRPC by itself would try again only after 3 s, a tenth of Poll
	h := launch(t, g).ready()
	h.waitForAnswer("odd-1")
	h.drainEvents()
	for _, e := range h.events {
		if e.To == launcher.Unhealthy {
			t.Errorf("not connected in time: %s", e.Message)
		}
	}
	testkit.Equal(t, "state", stateOf(h, "odd-1"), launcher.Ready)
}

// unhealthy returns a channel that is closed when a process becomes unhealthy.
func unhealthy(h *harness, id string) <-chan struct{} {
	events, stop := h.Watch()
	done := make(chan struct{})
	go func() {
		defer stop()
		for e := range events {
			if e.Process == id && e.To == launcher.Unhealthy {
				close(done)
				return
			}
		}
	}()
	return done
}
