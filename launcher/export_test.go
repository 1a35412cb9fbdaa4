package launcher

import (
	"context"
	"errors"
	"time"

	"github.com/swansong-go/swansong/launcher/internal/guardian"
	"github.com/swansong-go/swansong/launcher/internal/process"
	"github.com/swansong-go/swansong/launcher/internal/revision"
	"github.com/swansong-go/swansong/launcher/internal/roll"
	"github.com/swansong-go/swansong/launcher/internal/spec"
	"github.com/swansong-go/swansong/launcher/internal/statefile"
)

// SetHoldTime changes how long guardians of this program hold listeners open.
func SetHoldTime(d time.Duration) { guardian.HoldTime = d }

// SetLockTimeout changes how long a launcher waits for the lock of a directory.
func SetLockTimeout(d time.Duration) { statefile.LockTimeout = d }

// StartWatched calls Start and then Watch, so that the channel contains all events since the start.
func StartWatched(ctx context.Context, cfg Config) (*Manager, <-chan Event, error) {
	m, begin, err := prepare(ctx, cfg)
	if err != nil {
		return nil, nil, err
	}
	events, _ := m.Watch()
	begin()
	return m, events, nil
}

// StartStopped starts a manager that is stopped before it starts its groups.
func StartStopped(ctx context.Context, cfg Config) (*Manager, error) {
	m, begin, err := prepare(ctx, cfg)
	if err != nil {
		return nil, err
	}
	m.Shutdown()
	begin()
	return m, nil
}

// AwaitStateFile returns when the state file is up to date and no further write is due.
func AwaitStateFile(m *Manager) {
	for again := true; again; again = !m.host.StateFile.Idle() {
		m.host.StateFile.Flush(nil)
	}
}

// RollBack simulates a roll from revision 1 to 3 of processes of these revisions. A failure turns
// it back, and RollBack returns its result. There are no real processes and no time passes: each
// new process is ready after took.
func RollBack(cfg GroupConfig, took time.Duration, revisions ...int) error {
	c := newController(cfg.resolve(), nil, func(Event) {})
	now := c.epoch
	start := func(revision int) { c.addFake(revision, now) }
	wait := func() {
		now = now.Add(took)
		for _, i := range c.instances {
			if st := &i.instanceProcess.(*fake).status; st.State == Spawning {
				st.State, st.Routed, st.ReadyAt = Ready, true, now
			}
		}
	}
	for _, revision := range revisions {
		start(revision)
	}
	wait()
	c.revisions.ByNumber[3] = &revision.Revision{Config: *c.config()}
	c.beginRoll(&roll.Roll{From: 1, To: 3})
	result := c.rollResult
	c.roll.CountFailure(3, roll.Failure{Cause: errors.New("a replacement failed")})
	for {
		switch a := c.next(now); a.Do {
		case roll.Start:
			start(c.revisionToStart(a.Version))
		case roll.Stop:
			delete(c.instances, a.ID)
		default:
			select {
			case <-result.done:
				return result.err
			default:
				wait()
			}
		}
	}
}

// A fake is a process that does not run.
type fake struct {
	*process.Process
	status Status
}

func (f *fake) ID() string         { return f.status.ID }
func (f *fake) Revision() int      { return f.status.Revision }
func (f *fake) Started() time.Time { return f.status.Started }
func (f *fake) Status() Status     { return f.status }

// addFake adds a process without running it.
func (c *controller) addFake(revision int, now time.Time) *fake {
	p := &fake{status: Status{ID: c.newID(), Group: c.name, Revision: revision, State: Spawning, Started: now.Add(time.Duration(c.lastNumber))}}
	c.instances.add(p)
	return p
}

// StartsBeforeExitIsHandled reports whether a group of two starts another process when one has
// ended and the group has not handled that yet.
func StartsBeforeExitIsHandled(cfg GroupConfig) bool {
	c := newController(cfg.resolve(), nil, func(Event) {})
	for _, state := range []State{Complete, Ready} {
		p := c.addFake(1, c.epoch)
		p.status.State, p.status.Routed = state, true
	}
	return c.next(time.Now()).Do == roll.Start
}

// ConfigOf returns the configuration that a group wants.
func ConfigOf(m *Manager, group string) spec.Group {
	g, err := m.group(group)
	if err != nil {
		panic(err)
	}
	return g.config()
}
