//go:build unix

package launcher_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/swansong-go/swansong/launcher"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
	"google.golang.org/grpc/codes"
)

// ready returns a machine whose process is ready.
func ready(cfg launcher.GroupConfig) *launcher.Machine {
	m := launcher.NewMachine(cfg)
	m.Pass(0)
	m.Readiness(pb.ReadinessResponse_READY)
	return m
}

// draining returns one whose process has been asked to stop, just now, and has said that it will.
func draining(cfg launcher.GroupConfig) *launcher.Machine {
	m := ready(cfg)
	m.Stop()
	m.Left()
	m.Pass(0)
	m.Ack(true)
	return m
}

func reports(s pb.ShutdownStatus_State) *pb.ShutdownStatus { return &pb.ShutdownStatus{State: s} }

func more(d time.Duration) *pb.ShutdownStatus {
	return &pb.ShutdownStatus{State: pb.ShutdownStatus_SHUTDOWN_DRAINING, NeedMoreTime: true, AdditionalMs: d.Milliseconds()}
}

// RUNNING → REQUESTED → DRAINING → COMPLETE
func TestShutdownStateMachine(t *testing.T) {
	m := launcher.NewMachine(launcher.GroupConfig{})
	step := func(what string, todo []string, want string, state launcher.State) {
		t.Helper()
		equal(t, what+": what is done", strings.Join(todo, ", "), want)
		equal(t, what+": state", m.State(), state)
	}
	step("it runs", m.Pass(0), "", launcher.Spawning)
	step("nobody is there", m.ReadinessFails(codes.Unavailable), "", launcher.Spawning)
	step("and is asked again", m.Pass(500*time.Millisecond), "ask readiness", launcher.Spawning)
	step("somebody is", m.Readiness(pb.ReadinessResponse_STARTING), "", launcher.Starting)
	m.Pass(500 * time.Millisecond)
	step("it connects", m.Readiness(pb.ReadinessResponse_WARMING), "", launcher.Warming)
	step("it says so by itself", m.PushReady(), "join", launcher.Ready)
	step("it is to stop", m.Stop(), "leave", launcher.ShutdownRequested)
	step("again", m.Stop(), "", launcher.ShutdownRequested)
	step("routing is left", m.Left(), "shutdown", launcher.ShutdownRequested)
	step("it will", m.Ack(true), "ask status", launcher.ShutdownRequested)
	step("it drains", m.Status(reports(pb.ShutdownStatus_SHUTDOWN_DRAINING)), "", launcher.Draining)
	m.Pass(500 * time.Millisecond)
	step("it waits for something", m.Status(reports(pb.ShutdownStatus_SHUTDOWN_BLOCKED)), "", launcher.Blocked)
	m.Pass(500 * time.Millisecond)
	step("it goes on", m.Status(reports(pb.ShutdownStatus_SHUTDOWN_DRAINING)), "", launcher.Draining)
	step("it says that it is done", m.PushEnd(""), "", launcher.Draining)
	m.Pass(500 * time.Millisecond)
	step("and once more", m.Status(reports(pb.ShutdownStatus_SHUTDOWN_COMPLETE)), "", launcher.Draining)
	step("it has ended", m.Exited(), "", launcher.Draining)
	step("it has been reaped", m.Reaped(0, 0, false, false), "", launcher.Complete)
	equal(t, "outcome", m.Outcome(), launcher.Clean)
}

// The process does not complete: SIGTERM, and SIGKILL, each at its time.
func TestShutdownTimeoutForceKill(t *testing.T) {
	for name, hang := range map[string]func() *launcher.Machine{
		"it drains and drains": func() *launcher.Machine { return draining(launcher.GroupConfig{}) },
		"the call of Shutdown hangs": func() *launcher.Machine {
			m := ready(launcher.GroupConfig{})
			m.Stop()
			m.Left() // and no answer ever
			return m
		},
		"the status is not answered": func() *launcher.Machine {
			m := draining(launcher.GroupConfig{})
			m.StatusFails(codes.DeadlineExceeded)
			return m
		},
		"it says that it is complete, and stays": func() *launcher.Machine {
			m := draining(launcher.GroupConfig{})
			m.Status(reports(pb.ShutdownStatus_SHUTDOWN_COMPLETE))
			return m
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := hang()
			begun := m.Since()
			var acts []string
			for m.Next() >= 0 {
				for _, a := range m.Pass(m.Next()) {
					switch a {
					case "terminate", "kill", "unconfirmed":
						acts = append(acts, fmt.Sprintf("%s at %v", a, m.Since()-begun))
					case "ask status":
						m.StatusFails(codes.Unavailable)
					}
				}
				if m.State().Ended() {
					t.Fatalf("%v, and nobody has reaped it", m.State())
				}
			}
			equal(t, "acts", acts, []string{"terminate at 3s", "kill at 5s", "unconfirmed at 7s"})
			equal(t, "outcome while nobody knows", m.Outcome(), launcher.Unconfirmed)
			m.Reaped(-1, syscall.SIGKILL, true, true)
			equal(t, "state", m.State(), launcher.Forced)
			equal(t, "outcome", m.Outcome(), launcher.Killed)
		})
	}
}

// The process asks for more time, and gets it, up to the maximum.
func TestShutdownExtensionRequest(t *testing.T) {
	for _, c := range []struct {
		name  string
		at    time.Duration // of the request
		asks  *pb.ShutdownStatus
		until time.Duration // when SIGTERM is sent
		count int
	}{
		{"none", time.Second, reports(pb.ShutdownStatus_SHUTDOWN_DRAINING), 3 * time.Second, 0},
		{"some", 2 * time.Second, more(4 * time.Second), 6 * time.Second, 1},
		{"less than there is", time.Second, more(time.Second), 3 * time.Second, 1},
		{"less than a second more", 2900 * time.Millisecond, more(300 * time.Millisecond), 3200 * time.Millisecond, 1},
		{"too much", 2 * time.Second, more(time.Hour), 10 * time.Second, 1},
		{"in whole seconds", 2 * time.Second, &pb.ShutdownStatus{NeedMoreTime: true, AdditionalSeconds: 2}, 4 * time.Second, 1},
		{"without saying how much", 2 * time.Second, &pb.ShutdownStatus{NeedMoreTime: true}, 5 * time.Second, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := draining(launcher.GroupConfig{})
			m.Pass(c.at)
			equal(t, "it is told", slices.Contains(m.Status(c.asks), "extended"), c.count > 0)
			equal(t, "SIGTERM", terminated(t, m), c.until)
			equal(t, "requests", m.Extensions(), c.count)
		})
	}

	t.Run("again and again", func(t *testing.T) {
		m := draining(launcher.GroupConfig{})
		for range 9 {
			m.Pass(time.Second)
			m.Status(more(5 * time.Second))
		}
		equal(t, "SIGTERM", terminated(t, m), 10*time.Second)
		equal(t, "requests", m.Extensions(), 9)
	})
	t.Run("one, told at every poll", func(t *testing.T) {
		m := draining(launcher.GroupConfig{})
		for left := 8 * time.Second; left > 3*time.Second; left -= time.Second {
			m.Pass(time.Second)
			s := more(left)
			s.MoreTimeRequests = 1
			m.Status(s)
		}
		equal(t, "SIGTERM", terminated(t, m), 9*time.Second)
		equal(t, "requests", m.Extensions(), 1)
	})
	t.Run("several, between two polls, and over by now", func(t *testing.T) {
		m := draining(launcher.GroupConfig{})
		m.Pass(time.Second)
		s := reports(pb.ShutdownStatus_SHUTDOWN_DRAINING)
		s.MoreTimeRequests = 3
		equal(t, "what is told", strings.Count(strings.Join(m.Status(s), " "), "extended"), 3)
		equal(t, "and not again", strings.Count(strings.Join(m.Status(s), " "), "extended"), 0)
		equal(t, "requests", m.Extensions(), 3)
		equal(t, "SIGTERM", terminated(t, m), 3*time.Second)
	})
	t.Run("more than anybody makes", func(t *testing.T) {
		m := draining(launcher.GroupConfig{})
		s := more(time.Second)
		s.MoreTimeRequests = math.MaxInt32
		m.Status(s)
		equal(t, "requests", m.Extensions(), 10)
		s.MoreTimeRequests = math.MinInt32 // it makes no sense, and does no harm
		m.Status(s)
		equal(t, "requests", m.Extensions(), 11)
	})
	t.Run("the grace period is advisory", func(t *testing.T) {
		m := draining(launcher.GroupConfig{Shutdown: launcher.ShutdownConfig{GraceAdvisory: true}})
		equal(t, "SIGTERM", terminated(t, m), 10*time.Second)
	})
}

// terminated lets time pass until SIGTERM is sent, and returns when that is, as the machine counts.
func terminated(t *testing.T, m *launcher.Machine) time.Duration {
	t.Helper()
	for m.Next() >= 0 {
		for _, a := range m.Pass(m.Next()) {
			switch a {
			case "terminate":
				return m.Since()
			case "ask status":
				m.StatusFails(codes.DeadlineExceeded)
			}
		}
	}
	t.Fatal("SIGTERM is never sent")
	return 0
}

// Who does not take part gets a signal and all of the maximum; the ways of not taking part are told apart.
func TestNonParticipants(t *testing.T) {
	cfg := launcher.GroupConfig{Shutdown: launcher.ShutdownConfig{StopSignals: []string{"SIGINT", "SIGTERM"}}}
	for _, c := range []struct {
		name   string
		answer func(m *launcher.Machine) []string
		again  bool // it is asked again first
		acts   []string
	}{
		{"does not know the call", func(m *launcher.Machine) []string { return m.AckFails(codes.Unimplemented) }, false,
			[]string{"signal SIGINT at 0s", "signal SIGTERM at 2s", "kill at 10s"}},
		{"declines", func(m *launcher.Machine) []string { return m.Ack(false) }, false,
			[]string{"signal SIGINT at 0s", "signal SIGTERM at 2s", "kill at 10s"}},
		{"is not there", func(m *launcher.Machine) []string { return m.AckFails(codes.Unavailable) }, true,
			[]string{"signal SIGINT at 3s", "signal SIGTERM at 5s", "kill at 10s"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := launcher.NewMachine(cfg) // which has not been heard of yet
			m.Stop()
			begun := m.Since()
			var acts []string
			asked := false
			note := func(todo []string) {
				for _, a := range todo {
					if a == "shutdown" {
						asked = true
						m.AckFails(codes.Unavailable)
						continue
					}
					acts = append(acts, fmt.Sprintf("%s at %v", a, m.Since()-begun))
				}
			}
			note(c.answer(m))
			for m.Next() >= 0 && !strings.Contains(strings.Join(acts, " "), "kill") {
				note(m.Pass(m.Next()))
			}
			equal(t, "acts", acts, c.acts)
			equal(t, "asked again", asked, c.again)
		})
	}

	t.Run("it ends by the signal that it got", func(t *testing.T) {
		m := ready(cfg)
		m.Stop()
		m.Left()
		m.Ack(false)
		m.Reaped(-1, syscall.SIGINT, false, false)
		equal(t, "outcome", m.Outcome(), launcher.Clean)
	})
	t.Run("it ends by another one", func(t *testing.T) {
		m := ready(cfg)
		m.Stop()
		m.Left()
		m.Ack(false)
		m.Reaped(-1, syscall.SIGSEGV, false, false)
		equal(t, "outcome", m.Outcome(), launcher.Crash)
	})
}

// Each end is called what it was, and what cannot be known is called unknown.
func TestOutcomes(t *testing.T) {
	for _, c := range []struct {
		name    string
		ends    func(m *launcher.Machine)
		state   launcher.State
		outcome launcher.Outcome
	}{
		{"drained", func(m *launcher.Machine) { m.Reaped(0, 0, false, false) }, launcher.Complete, launcher.Clean},
		{"crashed", func(m *launcher.Machine) { m.Reaped(2, 0, false, false) }, launcher.Crashed, launcher.Crash},
		{"by a signal of its own", func(m *launcher.Machine) { m.Reaped(-1, syscall.SIGSEGV, false, false) }, launcher.Crashed, launcher.Crash},
		{"the drain failed, it was pushed", func(m *launcher.Machine) { m.PushEnd("disk full"); m.Reaped(1, 0, false, false) }, launcher.Crashed, launcher.DrainFailed},
		{"the drain failed, it was asked", func(m *launcher.Machine) {
			m.Status(&pb.ShutdownStatus{State: pb.ShutdownStatus_SHUTDOWN_BLOCKED, DrainError: "disk full"})
			m.Reaped(1, 0, false, false)
		}, launcher.Crashed, launcher.DrainFailed},
		{"it said that it was complete, and failed", func(m *launcher.Machine) { m.PushEnd(""); m.Reaped(1, 0, false, false) }, launcher.Crashed, launcher.Crash},
		{"at SIGTERM", func(m *launcher.Machine) { m.Reaped(0, 0, true, false) }, launcher.Forced, launcher.Killed},
		{"at SIGKILL", func(m *launcher.Machine) { m.Reaped(-1, syscall.SIGKILL, true, true) }, launcher.Forced, launcher.Killed},
		{"nobody knows", func(m *launcher.Machine) { m.ReapedUnknown() }, launcher.Gone, launcher.Unknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := draining(launcher.GroupConfig{})
			c.ends(m)
			equal(t, "state", m.State(), c.state)
			equal(t, "outcome", m.Outcome(), c.outcome)
		})
	}
}

// What a process has said at its end is not covered up by a call that finds nobody there any more.
func TestLastWordsStay(t *testing.T) {
	m := draining(launcher.GroupConfig{})
	m.PushEnd("")
	m.StatusFails(codes.Unavailable)
	m.Reaped(0, 0, false, false)
	equal(t, "message", m.Message(), "over")
}

// A total deadline keeps a fifth of itself for the escalation, also where nobody lets go of the process in time.
func TestTotalDeadline(t *testing.T) {
	cfg := launcher.GroupConfig{Shutdown: launcher.ShutdownConfig{
		Grace: 20 * time.Second, Max: time.Minute, SIGTERMTimeout: 5 * time.Second, TotalDeadline: 10 * time.Second}}
	for name, m := range map[string]*launcher.Machine{
		"it drains": draining(cfg),
		"the router takes its time": func() *launcher.Machine {
			cfg := cfg
			cfg.Shutdown.DeregisterDelay = time.Minute
			m := ready(cfg)
			m.Stop()
			return m
		}(),
	} {
		t.Run(name, func(t *testing.T) {
			equal(t, "SIGTERM", terminated(t, m), 8*time.Second)
			m.Pass(m.Next())
			equal(t, "SIGKILL", m.Since(), 9*time.Second)
		})
	}
}

// A process that was ready is given up on after so many failures in a row, and with a shutdown; one that never was, by force.
func TestLiveness(t *testing.T) {
	m := ready(launcher.GroupConfig{})
	fail := func() []string {
		m.Pass(m.Next())
		return m.ReadinessFails(codes.DeadlineExceeded)
	}
	fail()
	fail()
	m.Pass(m.Next())
	m.Readiness(pb.ReadinessResponse_READY)
	fail()
	fail()
	equal(t, "state after two failures, twice", m.State(), launcher.Ready)
	equal(t, "what the third leads to", fail(), []string{"leave"})
	equal(t, "state while it leaves", m.State(), launcher.Unhealthy)
	equal(t, "what follows", m.Left(), []string{"shutdown"})
	equal(t, "state", m.State(), launcher.ShutdownRequested)

	m = launcher.NewMachine(launcher.GroupConfig{})
	m.Pass(0)
	equal(t, "one that is unhealthy before it was ready", m.Readiness(pb.ReadinessResponse_UNHEALTHY), []string{"terminate"})
	equal(t, "state", m.State(), launcher.Unhealthy)

	m = launcher.NewMachine(launcher.GroupConfig{})
	equal(t, "one that is never there", terminatedAsking(m), 30*time.Second)
	if !strings.Contains(m.Why(), "not ready within 30s") || !strings.Contains(m.Why(), "protocol signals") {
		t.Errorf("it says %q, and not what to do", m.Why())
	}
}

// What a process answers to a call from before it said that it is ready does not count against it, unless it is that it drains.
func TestStaleReadiness(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(m *launcher.Machine) []string
		want   launcher.State
	}{
		"warming":   {func(m *launcher.Machine) []string { return m.Readiness(pb.ReadinessResponse_WARMING) }, launcher.Ready},
		"unhealthy": {func(m *launcher.Machine) []string { return m.Readiness(pb.ReadinessResponse_UNHEALTHY) }, launcher.Ready},
		"none":      {func(m *launcher.Machine) []string { return m.ReadinessFails(codes.Unavailable) }, launcher.Ready},
		"draining":  {func(m *launcher.Machine) []string { return m.Readiness(pb.ReadinessResponse_DRAINING) }, launcher.ShutdownRequested},
	} {
		t.Run(name, func(t *testing.T) {
			m := launcher.NewMachine(launcher.GroupConfig{LivenessFailures: 1})
			m.Pass(0)
			equal(t, "it says so while it is asked", m.PushReady(), []string{"join"})
			c.answer(m)
			equal(t, "state", m.State(), c.want)
			if c.want == launcher.Ready {
				equal(t, "it is asked anew", m.Pass(m.Next()), []string{"ask readiness"})
				m.Readiness(pb.ReadinessResponse_WARMING)
				equal(t, "state, by an answer of now", m.State(), launcher.Unhealthy)
			}
		})
	}
}

func terminatedAsking(m *launcher.Machine) time.Duration {
	for m.Next() >= 0 {
		for _, a := range m.Pass(m.Next()) {
			if a == "terminate" {
				return m.Since()
			}
			m.ReadinessFails(codes.Unavailable)
		}
	}
	return -1
}

// Whatever happens in whatever order: states only follow as they may, an end is only reached by the reap, and the process is
// killed within the bound that the configuration promises.
func TestMachineKeepsItsPromises(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	readiness := []pb.ReadinessResponse_ReadinessState{0, 1, 2, 3, 4}
	failures := []codes.Code{codes.Unavailable, codes.DeadlineExceeded, codes.Unimplemented, codes.Internal}
	for round := range 2_000 {
		cfg := launcher.GroupConfig{Shutdown: launcher.ShutdownConfig{
			Grace: time.Duration(1+r.IntN(5)) * time.Second, Max: time.Duration(5+r.IntN(10)) * time.Second,
			GraceAdvisory: r.IntN(4) == 0, DeregisterDelay: time.Duration(r.IntN(2)) * time.Second}}
		if r.IntN(4) == 0 {
			cfg.Protocol = launcher.Signals
		}
		if r.IntN(4) == 0 {
			cfg.Shutdown.TotalDeadline = time.Duration(2+r.IntN(20)) * time.Second
		}
		m := launcher.NewMachine(cfg)
		var asked, killed time.Duration = -1, -1
		story := []string{}
		for range 200 {
			before := m.State()
			var todo []string
			what := r.IntN(14)
			if m.Next() == 0 || asked >= 0 && r.IntN(2) == 0 {
				what = 0
			}
			switch what {
			case 0, 1:
				if m.Next() < 0 {
					break
				}
				todo = m.Pass(m.Next())
			case 2:
				d := time.Duration(r.IntN(1000)) * time.Millisecond
				if m.Next() >= 0 {
					d = min(d, m.Next())
				}
				todo = m.Pass(d)
			case 3:
				todo = m.Readiness(readiness[r.IntN(len(readiness))])
			case 4:
				todo = m.ReadinessFails(failures[r.IntN(len(failures))])
			case 5:
				todo = m.PushReady()
			case 6:
				todo = m.Stop()
			case 7:
				todo = m.Left()
			case 8:
				todo = m.Ack(r.IntN(4) != 0)
			case 9:
				todo = m.AckFails(failures[r.IntN(len(failures))])
			case 10:
				todo = m.Status(&pb.ShutdownStatus{State: pb.ShutdownStatus_State(r.IntN(6)), NeedMoreTime: r.IntN(2) == 0, AdditionalSeconds: int32(r.IntN(30))})
			case 11:
				todo = m.StatusFails(failures[r.IntN(len(failures))])
			case 12:
				todo = m.PushEnd("")
			case 13:
				if r.IntN(40) == 0 {
					todo = m.Force()
				}
			}
			story = append(story, fmt.Sprintf("%d at %v: %v → %v %q", what, m.Since(), before, m.State(), todo))
			if before != m.State() && !launcher.Follows(before, m.State()) || m.State().Ended() {
				t.Fatalf("seed %d, round %d: %v → %v\n%s", seed, round, before, m.State(), strings.Join(story, "\n"))
			}
			if asked < 0 && m.State().Stopping() {
				asked = m.Since()
			}
			for _, a := range todo {
				if a == "kill" && killed < 0 {
					killed = m.Since()
				}
			}
		}
		for asked >= 0 && killed < 0 {
			next := m.Next()
			if next < 0 {
				t.Fatalf("seed %d, round %d: it is never killed\n%s", seed, round, strings.Join(story, "\n"))
			}
			for _, a := range m.Pass(next) {
				if a == "kill" {
					killed = m.Since()
				}
			}
		}
		if bound := cfg.Bound(); asked >= 0 && killed-asked > bound {
			t.Fatalf("seed %d, round %d: killed %v after the stop, and the bound is %v\n%s", seed, round, killed-asked, bound, strings.Join(story, "\n"))
		}
	}
}

// Only DRAINING and BLOCKED alternate, and nothing follows an end.
func TestStatesOnlyGoForward(t *testing.T) {
	for from := launcher.Spawning; from <= launcher.Gone; from++ {
		for to := launcher.Spawning; to <= launcher.Gone; to++ {
			want := to > from && !from.Ended() || from == launcher.Blocked && to == launcher.Draining
			if got := launcher.Follows(from, to); got != want {
				t.Errorf("%v → %v: %v, want %v", from, to, got, want)
			}
		}
	}
}
