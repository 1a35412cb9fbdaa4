package controller_test

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher/internal/canary"
	"github.com/swansong-go/swansong/launcher/internal/controller"
	"github.com/swansong-go/swansong/launcher/internal/events"
	"github.com/swansong-go/swansong/launcher/internal/lifecycle"
	"github.com/swansong-go/swansong/launcher/internal/process"
	"github.com/swansong-go/swansong/launcher/internal/spec"
	"github.com/swansong-go/swansong/launcher/internal/statefile"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A host is a Host without real processes: a test sets the status of each process.
type host struct {
	*controller.Controller
	starts    int
	processes []*fake // the processes that exist, oldest first
}

type fake struct {
	status process.Status
	cfg    spec.Group
}

func (f *fake) ID() string                     { return f.status.ID }
func (f *fake) Revision() int                  { return f.status.Revision }
func (f *fake) Started() time.Time             { return f.status.Started }
func (f *fake) Status() process.Status         { return f.status }
func (f *fake) Config() *spec.Group            { return &f.cfg }
func (f *fake) IsUnrecorded() bool             { return false }
func (f *fake) IsWithoutPipes() bool           { return false }
func (f *fake) AddIdentity(*statefile.Process) {}
func (f *fake) Apply(cfg spec.Group)           { f.cfg = cfg }
func (f *fake) Record() *statefile.Process {
	return &statefile.Process{ID: f.ID(), Revision: f.Revision(), StopAt: statefile.ToMillis(f.status.Asked)}
}

func (h *host) Start(id string, revision int, cfg spec.Group) (controller.Process, bool) {
	h.starts++
	started := time.Now().Add(time.Duration(h.starts)) // each process has started later than the one before
	p := &fake{process.Status{ID: id, Revision: revision, State: lifecycle.Spawning, Started: started, PID: 1}, cfg}
	h.processes = append(h.processes, p)
	return p, true
}

func (h *host) Adopt(*statefile.Process, spec.Group) (controller.Process, bool) { panic("not used") }
func (h *host) Check(canary.Check, func(string, error)) func()                  { panic("not used") }

func (h *host) Stop(p controller.Process, reason string) {
	p.(*fake).status.State, p.(*fake).status.Asked = lifecycle.Draining, time.Now()
}

func (h *host) Publish(events.Event) {}
func (h *host) Forget(string)        {}
func (h *host) Record()              {}

// set changes the status of a process, and tells the controller.
func (h *host) set(p *fake, state lifecycle.State, outcome lifecycle.Outcome) {
	p.status.State, p.status.Outcome = state, outcome
	if state == lifecycle.Ready {
		p.status.Routed, p.status.ReadyAt = true, time.Now()
	}
	h.OnChange(p, p.status)
	if state.Ended() {
		h.processes = slices.DeleteFunc(h.processes, func(other *fake) bool { return other == p })
	}
}

// step makes the controller start and stop processes, and then completes these starts and stops;
// see follow.
func (h *host) step(took time.Duration) {
	h.Reconcile(time.Now())
	h.follow(took)
}

// follow waits for the time took. Then processes that were started become ready, and processes that
// were stopped end.
func (h *host) follow(took time.Duration) {
	time.Sleep(took)
	for _, p := range slices.Clone(h.processes) {
		switch p.status.State {
		case lifecycle.Draining:
			h.set(p, lifecycle.Complete, lifecycle.Clean)
		case lifecycle.Spawning:
			h.set(p, lifecycle.Ready, lifecycle.NotEnded)
		}
	}
}

// count returns how many processes of a revision exist.
func (h *host) count(revision int) (n int) {
	for _, p := range h.processes {
		if p.Revision() == revision {
			n++
		}
	}
	return n
}

// group returns the configuration of a group.
func group(name string, desired int) spec.Group {
	g := spec.Group{Name: name, Command: []string{name}, Desired: desired, MinHealthy: desired, MaxSurge: 1}
	g.FillIn()
	return g
}

// begin returns a host whose controller has started the processes of the group cfg.
func begin(cfg spec.Group) *host {
	h := &host{}
	h.Controller = controller.New(cfg, nil, h)
	h.BeginIfDependingOn(cfg)
	h.Reconcile(time.Now())
	return h
}

// The progress deadline of a rollback begins with the rollback. Replacing a process counts as
// progress, even if the process has neither the old nor the new revision of the roll.
func TestRollback_EachReplacementRestartsProgressDeadline(t *testing.T) {
	const took = 2 * time.Second
	synctest.Test(t, func(t *testing.T) {
		cfg := group("web", 6)
		cfg.Roll.OnFailure, cfg.Roll.ProgressDeadline = spec.Rollback, 5*time.Second
		h := begin(cfg)
		h.step(took)

		cfg.Command = []string{"second"}
		h.StartRoll(cfg, nil, "test")
		for h.count(2) < 5 {
			h.step(took)
		}
		cfg.Command = []string{"third"}
		result := h.StartRoll(cfg, nil, "test")
		for h.Reconcile(time.Now()); h.count(3) == 0; h.Reconcile(time.Now()) {
			h.follow(0)
		}
		h.set(h.processes[len(h.processes)-1], lifecycle.Crashed, lifecycle.Crash)
		for !testkit.IsClosed(result.Done()) {
			h.step(took)
		}
		var failure *controller.RollError
		if err := result.Err(); !errors.As(err, &failure) || !failure.RolledBack {
			t.Errorf("the roll is not rolled back: %v", err)
		}
		testkit.Equal(t, "processes of the first revision", h.count(1), 6)
	})
}

// A process has ended, and the group has not decided yet whether to replace it. Until then, the
// group must not start another process in its place.
func TestController_StartsNoReplacementBeforeExitIsHandled(t *testing.T) {
	cfg := group("web", 2)
	cfg.Restart.Policy = spec.Never
	h := begin(cfg)
	h.set(h.processes[1], lifecycle.Ready, lifecycle.NotEnded)
	h.processes[0].status.State = lifecycle.Complete
	h.Reconcile(time.Now())
	testkit.Equal(t, "started processes", h.starts, 2)
}

// An unhealthy process of a job counts as finished exactly once. The state file counts it as soon
// as the process has been asked to stop. If the launcher dies before that, the next launcher counts
// it.
func TestState_UnhealthyJobCountsAsFinishedOnceAcrossLaunchers(t *testing.T) {
	job := group("job", 2)
	job.Job, job.Restart.Policy = true, spec.Never
	h := begin(job)
	p := h.processes[0]
	h.set(p, lifecycle.Ready, lifecycle.NotEnded)
	h.set(p, lifecycle.Unhealthy, lifecycle.NotEnded)
	testkit.Equal(t, "finished, while it is not asked to stop", h.State(nil).Finished, 0)
	p.status.Asked = time.Now()
	testkit.Equal(t, "finished, once it is asked to stop", h.State(nil).Finished, 1)
}

// A program that is asked whether it could take over gets the group as it was at one moment, while
// this launcher goes on.
func TestHandoff_IsSnapshotThatLaterRollbackDoesNotChange(t *testing.T) {
	cfg := group("web", 2)
	h := begin(cfg)
	cfg.Command = []string{"second"}
	h.StartRoll(cfg, nil, "test")
	text, err := h.Handoff(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Rollback("test"); err != nil {
		t.Fatal(err)
	}
	var handed controller.Handoff
	if err := json.Unmarshal(text, &handed); err != nil {
		t.Fatal(err)
	}
	testkit.Equal(t, "wanted revision", handed.Revisions.Current, 2)
	testkit.Equal(t, "the roll goes forward", handed.Roll.Forward(), true)
}
