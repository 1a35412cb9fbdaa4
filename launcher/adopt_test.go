//go:build unix

package launcher_test

import (
	"testing"
	"time"

	"github.com/swansong-go/swansong/internal/proc"
	"github.com/swansong-go/swansong/launcher"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
)

// A process that was adopted is where it was: ready, or stopping. Of the time that it had to stop, what has passed has passed.
func TestAdopted(t *testing.T) {
	cfg := launcher.GroupConfig{}
	cfg.Shutdown = launcher.ShutdownConfig{Grace: 3 * time.Second, Max: 10 * time.Second, SIGTERMTimeout: 2 * time.Second}

	m, todo := launcher.AdoptedMachine(cfg, time.Minute, 0)
	equal(t, "of one that was ready: what is done", todo, []string{"join"})
	equal(t, "state", m.State(), launcher.Ready)
	equal(t, "at once it is asked whether it still is", m.Pass(0), []string{"ask readiness"})

	quiet := cfg
	quiet.LivenessInterval = -1
	m, _ = launcher.AdoptedMachine(quiet, time.Minute, 0)
	equal(t, "without liveness, at once", m.Pass(0), []string{"ask readiness"})
	equal(t, "and by the answer", m.Readiness(pb.ReadinessResponse_READY), []string(nil))
	equal(t, "it is never asked again", m.Next(), time.Duration(-1))

	m, todo = launcher.AdoptedMachine(cfg, 0, 0)
	equal(t, "of one that was not: what is done", todo, []string{"ask readiness"})
	equal(t, "state", m.State(), launcher.Spawning)

	// There is no router to leave, so 9 s ago it had 10 s, and there is 1 s left, whatever it asks for.
	m, todo = launcher.AdoptedMachine(cfg, time.Minute, 9*time.Second)
	equal(t, "of one that was stopping: what is done", todo, []string{"shutdown"})
	equal(t, "state", m.State(), launcher.ShutdownRequested)
	m.Ack(true)
	before := more(0)
	before.NeedMoreTime, before.MoreTimeRequests = false, 3
	m.Status(before)
	equal(t, "requests that another launcher has counted", m.Extensions(), 0)
	m.Status(more(5 * time.Second))
	equal(t, "requests", m.Extensions(), 1)
	m.Pass(time.Second - 1)
	equal(t, "when its time is over", m.Pass(1), []string{"terminate"})
	equal(t, "and", m.Pass(2*time.Second), []string{"kill"})

	m, _ = launcher.AdoptedMachine(cfg, time.Minute, time.Hour)
	equal(t, "of one whose time is long over", m.Pass(0), []string{"signal SIGTERM"})
	m.Pass(2*time.Second - 1)
	equal(t, "and", m.Pass(1), []string{"kill"})
}

// The times of a process that was asked to stop go on under the next launcher: they count from when it was asked.
func TestAdopted_TimesGoOn(t *testing.T) {
	cfg := launcher.GroupConfig{PreStop: []launcher.Hook{{Command: []string{"hook"}, Timeout: time.Hour}}} // which have been run
	cfg.Shutdown = launcher.ShutdownConfig{Grace: 3 * time.Second, Max: 10 * time.Second, SIGTERMTimeout: 2 * time.Second, Poll: 500 * time.Millisecond}
	for _, c := range []struct {
		name           string
		asked, granted time.Duration
		asks           bool // for an hour
		ends           time.Duration
		why            string
	}{
		{"in the grace period", 2 * time.Second, 0, false, time.Second, "its grace period is over, after 3s"},
		{"with more time", 4 * time.Second, 2 * time.Second, false, 2 * time.Second, "its grace period is over, after 6s"},
		{"in the grace period, and it asks", 2 * time.Second, 0, true, 8 * time.Second, "its maximum is over, after 10s"},
		{"past the grace period, so it can ask once", 5 * time.Second, 0, true, 5 * time.Second, "its maximum is over, after 10s"},
		{"past the grace period", 5 * time.Second, 0, false, time.Second, "its grace period is over, after 6s"},
		{"with more time than there is", 9 * time.Second, time.Hour, false, time.Second, "its maximum is over, after 10s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, todo := launcher.AskedMachine(cfg, c.asked, c.granted)
			equal(t, "at first", todo, []string{"shutdown"})
			m.Ack(true)
			said := &pb.ShutdownStatus{}
			if c.asks {
				said = more(time.Hour)
			}
			m.Status(said)
			m.Pass(c.ends - 1)
			equal(t, "a moment before", m.Why(), "")
			equal(t, "when its time is over", m.Pass(1), []string{"terminate"})
			equal(t, "why", m.Why(), c.why)
		})
	}

	m, todo := launcher.AskedMachine(cfg, 11*time.Second, 0)
	equal(t, "past its maximum", todo, []string{"shutdown"})
	equal(t, "at once", m.Pass(0), []string{"signal SIGTERM"})

	cfg.Protocol = launcher.Signals
	m, todo = launcher.AskedMachine(cfg, 7*time.Second, 0)
	equal(t, "without the protocol", todo, []string{"signal SIGTERM"})
	m.Pass(3*time.Second - 1)
	equal(t, "when its maximum is over", m.Pass(1), []string{"kill"})
	equal(t, "why", m.Why(), "it did not end within 10s of SIGTERM")
}

// What is left over and cannot be known any more is killed at once, and not when the time for that is over: here an hour.
func TestEndNow(t *testing.T) {
	p, err := proc.Start(proc.Spec{Args: []string{"cat"}}) // which ends with this test, whatever becomes of it
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := launcher.EndNow(p.Kept(proc.Pen{}), time.Now().Add(time.Hour)); err != nil {
		t.Error(err)
	}
	<-p.Done()
	equal(t, "it was killed", p.Exit().Signal != 0, true)
}
