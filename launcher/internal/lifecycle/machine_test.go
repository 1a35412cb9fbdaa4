package lifecycle_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher/internal/lifecycle"
	"github.com/swansong-go/swansong/launcher/internal/spec"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
	"google.golang.org/grpc/codes"
)

func TestMachine_GoesThroughStatesFromStartToReap(t *testing.T) {
	m := spawn(config(nil))
	step := func(what string, actions []string, want string, state lifecycle.State) {
		t.Helper()
		testkit.Equal(t, what+": actions", strings.Join(actions, ", "), want)
		testkit.Equal(t, what+": state", m.State, state)
	}
	step("spawned", m.pass(0), "", lifecycle.Spawning)
	step("it does not serve yet", m.readinessFails(codes.Unavailable), "", lifecycle.Spawning)
	step("time to ask again", m.pass(500*time.Millisecond), "ask readiness", lifecycle.Spawning)
	step("it answers", m.readiness(pb.ReadinessResponse_STARTING), "", lifecycle.Starting)
	m.pass(500 * time.Millisecond)
	step("it warms up", m.readiness(pb.ReadinessResponse_WARMING), "", lifecycle.Warming)
	step("it pushes that it is ready", m.pushReady(), "register", lifecycle.Ready)
	step("stop", m.stop(), "deregister", lifecycle.ShutdownRequested)
	step("second stop", m.stop(), "", lifecycle.ShutdownRequested)
	step("deregistered", m.deregistered(), "shutdown", lifecycle.ShutdownRequested)
	step("it acknowledges", m.ack(true), "ask status", lifecycle.ShutdownRequested)
	step("it reports that it drains", m.status(reports(pb.ShutdownStatus_SHUTDOWN_DRAINING)), "", lifecycle.Draining)
	m.pass(500 * time.Millisecond)
	step("it reports that it is blocked", m.status(reports(pb.ShutdownStatus_SHUTDOWN_BLOCKED)), "", lifecycle.Blocked)
	m.pass(500 * time.Millisecond)
	step("it reports that it drains again", m.status(reports(pb.ShutdownStatus_SHUTDOWN_DRAINING)), "", lifecycle.Draining)
	step("it pushes that its drain is complete", m.pushEnd(""), "", lifecycle.Draining)
	m.pass(500 * time.Millisecond)
	step("it reports that its drain is complete", m.status(reports(pb.ShutdownStatus_SHUTDOWN_COMPLETE)), "", lifecycle.Draining)
	step("it exits", m.exited(), "", lifecycle.Draining)
	step("it is reaped", m.reaped(0, 0, false, false), "", lifecycle.Complete)
	testkit.Equal(t, "outcome", m.Outcome, lifecycle.Clean)
}

// A process has reported that its drain is complete, or that its drain has failed, and does not
// exit. The reason for which the launcher then ends it says which of the two it has reported.
func TestShutdown_ForceReasonSaysWhetherProcessReportedFailedDrain(t *testing.T) {
	for failure, want := range map[string]string{
		"":          "the process reported that its drain is complete, but did not exit within 10s",
		"disk full": "the process reported that its drain has failed, and did not exit within 10s",
	} {
		m := draining(config(nil))
		m.pushEnd(failure)
		m.pass(10 * time.Second)
		testkit.Equal(t, "reason", m.ForceReason, want)
	}
}

// A process that does not end gets SIGTERM at its deadline, and SIGKILL after the SIGTERM timeout.
func TestShutdown_SendsSIGTERMThenSIGKILLAtDeadlines(t *testing.T) {
	for name, hang := range map[string]func() *simulation{
		"it never ends draining": func() *simulation { return draining(config(enforced)) },
		"the call Shutdown hangs": func() *simulation {
			m := ready(config(nil))
			m.stop()
			m.deregistered() // now the launcher calls Shutdown, and the process never answers
			return m
		},
		"the call GetShutdownStatus hangs": func() *simulation {
			m := draining(config(enforced))
			m.statusFails(codes.DeadlineExceeded)
			return m
		},
		"it reports that it is complete, and does not exit": func() *simulation {
			m := draining(config(enforced))
			m.status(reports(pb.ShutdownStatus_SHUTDOWN_COMPLETE))
			return m
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := hang()
			begin := m.elapsed()
			var acts []string
			for m.next() >= 0 {
				for _, a := range m.pass(m.next()) {
					switch a {
					case "terminate", "kill", "report unconfirmed":
						acts = append(acts, fmt.Sprintf("%s at %v", a, m.elapsed()-begin))
					case "ask status":
						m.statusFails(codes.Unavailable)
					}
				}
				if m.State.Ended() {
					t.Fatalf("state %v before the process was reaped", m.State)
				}
			}
			testkit.Equal(t, "actions", acts, []string{"terminate at 3s", "kill at 5s", "report unconfirmed at 7s"})
			testkit.Equal(t, "outcome before it is reaped", m.Outcome, lifecycle.Unconfirmed)
			m.reaped(-1, syscall.SIGKILL, true, true)
			testkit.Equal(t, "state", m.State, lifecycle.Forced)
			testkit.Equal(t, "outcome", m.Outcome, lifecycle.Killed)
		})
	}
}

// A process that requests more time gets it, up to the maximum.
func TestShutdown_ProcessThatAsksGetsMoreTimeUpToMaximum(t *testing.T) {
	for _, c := range []struct {
		name   string
		at     time.Duration // time at which the status arrives
		status *pb.ShutdownStatus
		until  time.Duration // time at which SIGTERM must be sent
		count  int
	}{
		{"no request", time.Second, reports(pb.ShutdownStatus_SHUTDOWN_DRAINING), 3 * time.Second, 0},
		{"before the deadline", 2 * time.Second, moreTime(4 * time.Second), 6 * time.Second, 1},
		{"less than is left", time.Second, moreTime(time.Second), 3 * time.Second, 1},
		{"a fraction of a second", 2900 * time.Millisecond, moreTime(300 * time.Millisecond), 3200 * time.Millisecond, 1},
		{"beyond the maximum", 2 * time.Second, moreTime(time.Hour), 10 * time.Second, 1},
		{"in whole seconds", 2 * time.Second, &pb.ShutdownStatus{NeedMoreTime: true, AdditionalSeconds: 2}, 4 * time.Second, 1},
		{"without an amount", 2 * time.Second, &pb.ShutdownStatus{NeedMoreTime: true}, 5 * time.Second, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := draining(config(enforced))
			m.pass(c.at)
			testkit.Equal(t, "is the request reported", slices.Contains(m.status(c.status), "report extension"), c.count > 0)
			testkit.Equal(t, "SIGTERM", terminatedAt(t, m), c.until)
			testkit.Equal(t, "requests", m.Extensions, c.count)
		})
	}

	t.Run("every second", func(t *testing.T) {
		m := draining(config(enforced))
		for range 9 {
			m.pass(time.Second)
			m.status(moreTime(5 * time.Second))
		}
		testkit.Equal(t, "SIGTERM", terminatedAt(t, m), 10*time.Second)
		testkit.Equal(t, "requests", m.Extensions, 9)
	})
	t.Run("one request, repeated in every status", func(t *testing.T) {
		m := draining(config(enforced))
		for left := 8 * time.Second; left > 3*time.Second; left -= time.Second {
			m.pass(time.Second)
			s := moreTime(left)
			s.MoreTimeRequests = 1
			m.status(s)
		}
		testkit.Equal(t, "SIGTERM", terminatedAt(t, m), 9*time.Second)
		testkit.Equal(t, "requests", m.Extensions, 1)
	})
	t.Run("several requests between two polls, over by now", func(t *testing.T) {
		m := draining(config(enforced))
		m.pass(time.Second)
		s := reports(pb.ShutdownStatus_SHUTDOWN_DRAINING)
		s.MoreTimeRequests = 3
		testkit.Equal(t, "reports", strings.Count(strings.Join(m.status(s), " "), "report extension"), 3)
		testkit.Equal(t, "reports for the same status again", strings.Count(strings.Join(m.status(s), " "), "report extension"), 0)
		testkit.Equal(t, "requests", m.Extensions, 3)
		testkit.Equal(t, "SIGTERM", terminatedAt(t, m), 3*time.Second)
	})
	t.Run("impossible numbers of requests", func(t *testing.T) {
		m := draining(config(nil))
		s := moreTime(time.Second)
		s.MoreTimeRequests = math.MaxInt32
		m.status(s)
		testkit.Equal(t, "requests", m.Extensions, 10)
		s.MoreTimeRequests = math.MinInt32
		m.status(s)
		testkit.Equal(t, "requests", m.Extensions, 11)
	})
}

// By default the launcher does not stop a process that still drains when its grace period ends. It
// asks the process for its state, and reports the answer once.
func TestGracePeriod_ByDefaultProcessThatExceedsItIsReportedNotStopped(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer func(m *simulation) []string
		report string // the expected report of the end of the grace period; "" if none is expected
	}{
		{"it drains", func(m *simulation) []string {
			s := reports(pb.ShutdownStatus_SHUTDOWN_DRAINING)
			s.Metrics = &pb.ShutdownMetrics{BlockingOperations: []string{"flush", "upload"}}
			return m.status(s)
		}, "the process still drains after its grace period of 3s; it has asked for more time: no; it must exit within 10s of the stop request; blocked by flush and 1 more"},
		{"it asks for more time", func(m *simulation) []string { return m.status(moreTime(time.Second)) },
			"the process still drains after its grace period of 3s; it has asked for more time: 1 time; it must exit within 10s of the stop request"},
		{"it does not answer", func(m *simulation) []string { return m.statusFails(codes.DeadlineExceeded) },
			"the process still drains after its grace period of 3s; it has asked for more time: no; it must exit within 10s of the stop request"},
		{"it has drained", func(m *simulation) []string { return m.status(reports(pb.ShutdownStatus_SHUTDOWN_COMPLETE)) }, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := draining(config(nil))
			m.status(reports(pb.ShutdownStatus_SHUTDOWN_DRAINING))
			m.pass(m.next()) // the next poll; the process does not answer it
			testkit.Equal(t, "actions at the end of the grace period, while a poll is pending", m.pass(3*time.Second-m.elapsed()), []string(nil))
			actions := c.answer(m)
			report := ""
			if slices.Contains(actions, "report grace") {
				report = m.GraceReport()
			}
			testkit.Equal(t, "report", report, c.report)
			testkit.Equal(t, "another report", slices.Contains(m.status(reports(pb.ShutdownStatus_SHUTDOWN_DRAINING)), "report grace"), false)
			testkit.Equal(t, "SIGTERM", terminatedAt(t, m), 10*time.Second)
		})
	}
}

// A grace period that comes with the order to stop is enforced.
func TestGracePeriod_GivenWithStopOrderIsEnforced(t *testing.T) {
	m := ready(config(nil))
	m.step(lifecycle.Event{Kind: lifecycle.OnStop, Grace: time.Second})
	m.deregistered()
	m.pass(0)
	m.ack(true)
	testkit.Equal(t, "SIGTERM", terminatedAt(t, m), time.Second)
}

// A process that drains when the launcher itself is stopped is asked again, if the launcher's total
// deadline leaves it less time than it was told.
func TestShorterDeadline_IsSentToDrainingProcessWhenLauncherStops(t *testing.T) {
	for _, c := range []struct {
		name string
		m    *simulation
		left time.Duration
		want []string
	}{
		{"less time than the process was told", draining(config(nil)), 4 * time.Second, []string{"shutdown"}},
		{"enough time", draining(config(nil)), 10 * time.Second, nil},
		{"it is not being stopped", ready(config(nil)), time.Second, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.m.status(reports(pb.ShutdownStatus_SHUTDOWN_DRAINING))
			got := c.m.step(lifecycle.Event{Kind: lifecycle.OnLessTime, Limit: c.m.now.Add(c.left)})
			testkit.Equal(t, "actions", got, c.want)
		})
	}
}

// The launcher is stopped while a process has not yet answered the first call of Shutdown. After
// the answer, the launcher calls Shutdown once more, with the shorter deadline.
func TestShorterDeadline_IsSentOnceFirstShutdownCallIsAnswered(t *testing.T) {
	m := ready(config(nil))
	m.stop()
	testkit.Equal(t, "the call", m.deregistered(), []string{"shutdown"})
	m.step(lifecycle.Event{Kind: lifecycle.OnLessTime, Limit: m.now.Add(time.Second)})
	testkit.Equal(t, "after the answer", m.ack(true), []string{"shutdown"})
	testkit.Equal(t, "after the second answer", m.ack(true), []string(nil))
	testkit.Equal(t, "at the next poll", m.pass(500*time.Millisecond), []string{"ask status"})
}

// enforced changes the configuration so that the grace period is enforced: its end ends the
// process.
func enforced(c *spec.Group) { c.Shutdown.GraceEnforced = true }

// terminatedAt advances the clock until SIGTERM is sent, and returns the elapsed time.
func terminatedAt(t *testing.T, m *simulation) time.Duration {
	t.Helper()
	for m.next() >= 0 {
		for _, a := range m.pass(m.next()) {
			switch a {
			case "terminate":
				return m.elapsed()
			case "ask status":
				m.statusFails(codes.DeadlineExceeded)
			}
		}
	}
	t.Fatal("SIGTERM is never sent")
	return 0
}

// A process that does not implement Shutdown, or declines the call, gets the stop signals. If a
// process is unreachable, the launcher first calls Shutdown again, and then sends the stop signals.
// In each case SIGKILL follows when the maximum has passed.
func TestShutdown_SendsSignalsToProcessWithoutProtocol(t *testing.T) {
	cfg := config(func(c *spec.Group) { c.Shutdown.StopSignals = []string{"SIGINT", "SIGTERM"} })
	for _, c := range []struct {
		name   string
		answer func(m *simulation) []string
		again  bool // whether the launcher calls Shutdown a second time before it sends signals
		want   []string
	}{
		{"it does not implement Shutdown", func(m *simulation) []string { return m.ackFails(codes.Unimplemented) }, false,
			[]string{"signal SIGINT at 0s", "signal SIGTERM at 2s", "kill at 10s"}},
		{"it declines", func(m *simulation) []string { return m.ack(false) }, false,
			[]string{"signal SIGINT at 0s", "signal SIGTERM at 2s", "kill at 10s"}},
		{"it is unreachable", func(m *simulation) []string { return m.ackFails(codes.Unavailable) }, true,
			[]string{"signal SIGINT at 3s", "signal SIGTERM at 5s", "kill at 10s"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := spawn(cfg) // the process has not answered yet
			m.stop()
			begin := m.elapsed()
			var acts []string
			again := false
			note := func(actions []string) {
				for _, a := range actions {
					if a == "shutdown" {
						again = true
						m.ackFails(codes.Unavailable)
						continue
					}
					acts = append(acts, fmt.Sprintf("%s at %v", a, m.elapsed()-begin))
				}
			}
			note(c.answer(m))
			for m.next() >= 0 && !strings.Contains(strings.Join(acts, " "), "kill") {
				note(m.pass(m.next()))
			}
			testkit.Equal(t, "actions", acts, c.want)
			testkit.Equal(t, "is Shutdown called again", again, c.again)
		})
	}

	t.Run("it ends by the stop signal", func(t *testing.T) {
		m := ready(cfg)
		m.stop()
		m.deregistered()
		m.ack(false)
		m.reaped(-1, syscall.SIGINT, false, false)
		testkit.Equal(t, "outcome", m.Outcome, lifecycle.Clean)
	})
	t.Run("it ends by another signal", func(t *testing.T) {
		m := ready(cfg)
		m.stop()
		m.deregistered()
		m.ack(false)
		m.reaped(-1, syscall.SIGSEGV, false, false)
		testkit.Equal(t, "outcome", m.Outcome, lifecycle.Crash)
	})
}

func TestMachine_OutcomeDependsOnExitStatusAndStop(t *testing.T) {
	for _, c := range []struct {
		name    string
		ends    func(m *simulation)
		state   lifecycle.State
		outcome lifecycle.Outcome
	}{
		{"drained", func(m *simulation) { m.reaped(0, 0, false, false) }, lifecycle.Complete, lifecycle.Clean},
		{"crashed", func(m *simulation) { m.reaped(2, 0, false, false) }, lifecycle.Crashed, lifecycle.Crash},
		{"died of a signal", func(m *simulation) { m.reaped(-1, syscall.SIGSEGV, false, false) }, lifecycle.Crashed, lifecycle.Crash},
		{"pushed that the drain failed", func(m *simulation) { m.pushEnd("disk full"); m.reaped(1, 0, false, false) }, lifecycle.Crashed, lifecycle.DrainFailed},
		{"reported that the drain failed", func(m *simulation) {
			m.status(&pb.ShutdownStatus{State: pb.ShutdownStatus_SHUTDOWN_BLOCKED, DrainError: "disk full"})
			m.reaped(1, 0, false, false)
		}, lifecycle.Crashed, lifecycle.DrainFailed},
		{"pushed that the drain is complete, and failed", func(m *simulation) { m.pushEnd(""); m.reaped(1, 0, false, false) }, lifecycle.Crashed, lifecycle.Crash},
		{"ended after SIGTERM", func(m *simulation) { m.reaped(0, 0, true, false) }, lifecycle.Forced, lifecycle.Killed},
		{"ended after SIGKILL", func(m *simulation) { m.reaped(-1, syscall.SIGKILL, true, true) }, lifecycle.Forced, lifecycle.Killed},
		{"exit status unknown", func(m *simulation) { m.reapedUnknown() }, lifecycle.Gone, lifecycle.Unknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := draining(config(nil))
			c.ends(m)
			testkit.Equal(t, "state", m.State, c.state)
			testkit.Equal(t, "outcome", m.Outcome, c.outcome)
		})
	}
}

// The last message of a process is not replaced by the error of a call that no longer reaches it.
func TestMachine_ErrorOfCallAfterExitDoesNotReplaceLastMessage(t *testing.T) {
	m := draining(config(nil))
	m.pushEnd("")
	m.statusFails(codes.Unavailable)
	m.reaped(0, 0, false, false)
	testkit.Equal(t, "message", m.Message, "drained")
}

// A total deadline reserves a fifth of itself for SIGTERM and SIGKILL, even if the router does not
// answer in time.
func TestTotalDeadline_LeavesOneFifthForSIGTERMAndSIGKILL(t *testing.T) {
	cfg := config(func(c *spec.Group) {
		c.Shutdown.Grace, c.Shutdown.Max = 20*time.Second, time.Minute
		c.Shutdown.SIGTERMTimeout, c.Shutdown.TotalDeadline = 5*time.Second, 10*time.Second
	})
	for name, m := range map[string]*simulation{
		"it drains": draining(cfg),
		"the deregister delay is long": func() *simulation {
			cfg := cfg
			cfg.Shutdown.DeregisterDelay = time.Minute
			m := ready(cfg)
			m.stop()
			return m
		}(),
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Equal(t, "SIGTERM", terminatedAt(t, m), 8*time.Second)
			m.pass(m.next())
			testkit.Equal(t, "SIGKILL", m.elapsed(), 9*time.Second)
		})
	}
}

// A ready process is shut down after too many failed checks in a row. A process that has never been
// ready is terminated.
func TestLiveness_StopsUnhealthyProcess(t *testing.T) {
	m := ready(config(nil))
	fail := func() []string {
		m.pass(m.next())
		return m.readinessFails(codes.DeadlineExceeded)
	}
	fail()
	fail()
	m.pass(m.next())
	m.readiness(pb.ReadinessResponse_READY)
	fail()
	fail()
	testkit.Equal(t, "state after two failures, twice", m.State, lifecycle.Ready)
	testkit.Equal(t, "actions for the third failure in a row", fail(), []string{"deregister"})
	testkit.Equal(t, "state until it has left routing", m.State, lifecycle.Unhealthy)
	testkit.Equal(t, "actions when it has", m.deregistered(), []string{"shutdown"})
	testkit.Equal(t, "state", m.State, lifecycle.ShutdownRequested)

	m = spawn(config(nil))
	m.pass(0)
	testkit.Equal(t, "actions for a process that is unhealthy at the start", m.readiness(pb.ReadinessResponse_UNHEALTHY), []string{"terminate"})
	testkit.Equal(t, "state", m.State, lifecycle.Unhealthy)

	m = spawn(config(nil))
	testkit.Equal(t, "when a process that never answers is terminated", terminatedUnanswered(m), 30*time.Second)
	if !strings.Contains(m.ForceReason, "not ready within 30s") || !strings.Contains(m.ForceReason, "protocol signals") {
		t.Errorf("the reason %q does not say what to do", m.ForceReason)
	}
}

// A readiness check is under way, and the process reports by itself that it is ready. If the check
// then ends with WARMING, UNHEALTHY or no answer, this does not count as a failed check, because
// the report is newer. DRAINING still counts.
func TestReadiness_OutdatedAnswerAfterReadyReportIsNoFailedCheck(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(m *simulation) []string
		want   lifecycle.State
	}{
		"warming":   {func(m *simulation) []string { return m.readiness(pb.ReadinessResponse_WARMING) }, lifecycle.Ready},
		"unhealthy": {func(m *simulation) []string { return m.readiness(pb.ReadinessResponse_UNHEALTHY) }, lifecycle.Ready},
		"no answer": {func(m *simulation) []string { return m.readinessFails(codes.Unavailable) }, lifecycle.Ready},
		"draining":  {func(m *simulation) []string { return m.readiness(pb.ReadinessResponse_DRAINING) }, lifecycle.ShutdownRequested},
	} {
		t.Run(name, func(t *testing.T) {
			m := spawn(config(func(c *spec.Group) { c.LivenessFailures = 1 }))
			m.pass(0)
			testkit.Equal(t, "actions for the report during the call", m.pushReady(), []string{"register"})
			c.answer(m)
			testkit.Equal(t, "state", m.State, c.want)
			if c.want == lifecycle.Ready {
				testkit.Equal(t, "actions for the next check", m.pass(m.next()), []string{"ask readiness"})
				m.readiness(pb.ReadinessResponse_WARMING)
				testkit.Equal(t, "state after the answer to that", m.State, lifecycle.Unhealthy)
			}
		})
	}
}

func terminatedUnanswered(m *simulation) time.Duration {
	for m.next() >= 0 {
		for _, a := range m.pass(m.next()) {
			if a == "terminate" {
				return m.elapsed()
			}
			m.readinessFails(codes.Unavailable)
		}
	}
	return -1
}

// For random sequences of events, all state transitions are valid, the state machine ends only when
// the process has been reaped, and it kills the process within the time that Bound returns.
func TestMachine_KillsProcessInTimeWhateverHappens(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	readiness := []pb.ReadinessResponse_ReadinessState{0, 1, 2, 3, 4}
	failures := []codes.Code{codes.Unavailable, codes.DeadlineExceeded, codes.Unimplemented, codes.Internal}
	for round := range 2_000 {
		cfg := config(func(c *spec.Group) {
			c.Shutdown.Grace, c.Shutdown.Max = time.Duration(1+r.IntN(5))*time.Second, time.Duration(5+r.IntN(10))*time.Second
			c.Shutdown.GraceEnforced, c.Shutdown.DeregisterDelay = r.IntN(4) == 0, time.Duration(r.IntN(2))*time.Second
		})
		if r.IntN(4) == 0 {
			cfg.Protocol = spec.Signals
		}
		if r.IntN(4) == 0 {
			cfg.Shutdown.TotalDeadline = time.Duration(2+r.IntN(20)) * time.Second
		}
		m := spawn(cfg)
		var stopped, killed time.Duration = -1, -1
		history := []string{}
		for range 200 {
			before := m.State
			var actions []string
			what := r.IntN(14)
			if m.next() == 0 || stopped >= 0 && r.IntN(2) == 0 {
				what = 0
			}
			switch what {
			case 0, 1:
				if m.next() < 0 {
					break
				}
				actions = m.pass(m.next())
			case 2:
				d := time.Duration(r.IntN(1000)) * time.Millisecond
				if m.next() >= 0 {
					d = min(d, m.next())
				}
				actions = m.pass(d)
			case 3:
				actions = m.readiness(readiness[r.IntN(len(readiness))])
			case 4:
				actions = m.readinessFails(failures[r.IntN(len(failures))])
			case 5:
				actions = m.pushReady()
			case 6:
				actions = m.stop()
			case 7:
				actions = m.deregistered()
			case 8:
				actions = m.ack(r.IntN(4) != 0)
			case 9:
				actions = m.ackFails(failures[r.IntN(len(failures))])
			case 10:
				actions = m.status(&pb.ShutdownStatus{State: pb.ShutdownStatus_State(r.IntN(6)), NeedMoreTime: r.IntN(2) == 0, AdditionalSeconds: int32(r.IntN(30))})
			case 11:
				actions = m.statusFails(failures[r.IntN(len(failures))])
			case 12:
				actions = m.pushEnd("")
			case 13:
				if r.IntN(40) == 0 {
					actions = m.force()
				}
			}
			history = append(history, fmt.Sprintf("%d at %v: %v → %v %q", what, m.elapsed(), before, m.State, actions))
			if before != m.State && !before.CanBecome(m.State) || m.State.Ended() {
				t.Fatalf("seed %d, round %d: %v → %v\n%s", seed, round, before, m.State, strings.Join(history, "\n"))
			}
			if stopped < 0 && m.State.Stopping() {
				stopped = m.elapsed()
			}
			for _, a := range actions {
				if a == "kill" && killed < 0 {
					killed = m.elapsed()
				}
			}
		}
		for stopped >= 0 && killed < 0 {
			next := m.next()
			if next < 0 {
				t.Fatalf("seed %d, round %d: the process is never killed\n%s", seed, round, strings.Join(history, "\n"))
			}
			for _, a := range m.pass(next) {
				if a == "kill" {
					killed = m.elapsed()
				}
			}
		}
		if bound := cfg.Bound(true); stopped >= 0 && killed-stopped > bound {
			t.Fatalf("seed %d, round %d: killed %v after the stop, but the bound is %v\n%s", seed, round, killed-stopped, bound, strings.Join(history, "\n"))
		}
	}
}

// The state of a process only moves forward, except from BLOCKED back to DRAINING and from READY
// back to WARMING. An ended process keeps its state.
func TestState_OnlyMovesForwardExceptWarmingAndBlocked(t *testing.T) {
	for from := lifecycle.Spawning; from <= lifecycle.Gone; from++ {
		for to := lifecycle.Spawning; to <= lifecycle.Gone; to++ {
			want := to > from && !from.Ended() || from == lifecycle.Blocked && to == lifecycle.Draining || from == lifecycle.Ready && to == lifecycle.Warming
			if got := from.CanBecome(to); got != want {
				t.Errorf("%v → %v: %v, want %v", from, to, got, want)
			}
		}
	}
}

// A draining process is asked for a report of what it waits for in the last two polls before its
// deadline: before the maximum duration of its shutdown, before the end of an enforced grace
// period, or before the total deadline of the launcher. The last report is kept.
func TestShutdown_AsksWhatDrainWaitsForShortlyBeforeDeadline(t *testing.T) {
	for name, test := range map[string]struct {
		cfg   spec.Group
		limit time.Duration // the total deadline of a launcher that is stopped itself; 0 if the launcher goes on
		end   time.Duration // when the process is to be sent SIGTERM, as time since its stop began
	}{
		"maximum":             {config(nil), 0, 10 * time.Second},
		"enforced grace":      {config(enforced), 0, 3 * time.Second},
		"total deadline":      {config(nil), 4 * time.Second, 4 * time.Second},
		"late total deadline": {config(nil), time.Hour, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			m := ready(test.cfg)
			if test.limit > 0 {
				m.step(lifecycle.Event{Kind: lifecycle.OnLessTime, Limit: m.begin.Add(test.limit)})
			}
			m.stop()
			m.deregistered()
			m.pass(0)
			m.ack(true)
			for polls := 0; m.elapsed() < test.end-time.Millisecond; polls++ {
				st := reports(pb.ShutdownStatus_SHUTDOWN_DRAINING)
				if len(m.reports) > 0 {
					st.Report = fmt.Sprintf("report %d", len(m.reports))
				}
				m.status(st)
				m.pass(min(m.next(), test.end-time.Millisecond-m.elapsed()))
			}
			testkit.Equal(t, "when it was asked", m.reports, []time.Duration{test.end - time.Second, test.end - time.Second/2})
			// an answer without a report, as that of a process with an older version of the
			// protocol
			m.status(reports(pb.ShutdownStatus_SHUTDOWN_DRAINING))
			testkit.Equal(t, "report", m.Report, "report 2")
		})
	}
}
