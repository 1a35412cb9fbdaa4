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

	// Leaving routing takes 4 s at most, so 13 s ago it had 14 s, and there is 1 s left, whatever it asks for.
	m, todo = launcher.AdoptedMachine(cfg, time.Minute, 13*time.Second)
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
