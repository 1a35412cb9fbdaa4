package process

import (
	"fmt"
	"os"
	"time"

	"github.com/swansong-go/swansong/internal/proc"
	"github.com/swansong-go/swansong/launcher/internal/events"
	"github.com/swansong-go/swansong/launcher/internal/lifecycle"
	"github.com/swansong-go/swansong/launcher/internal/output"
	"github.com/swansong-go/swansong/launcher/internal/spec"
	"github.com/swansong-go/swansong/launcher/internal/statefile"
)

// Restore fills p from the record of the process that was found in the state file. It also writes
// that record to the state file again, at once and without waiting until the process answers,
// because the launcher can be killed at any time.
//
// It is called before the goroutine of run starts, so it needs no lock.
func (p *Process) Restore(found *statefile.Process, now time.Time) {
	p.adopted, p.digest, p.adoptable, p.grace = found, found.Digest, found.Adoptable, found.Grace
	p.unkept.Store(!found.IsKept())
	p.conn.RestorePort(found.Port)
	p.port, p.uses, p.reported = found.ServicePort, found.Uses, found.Reported
	p.group.Ports.Add(p.port)
	st := &p.status
	if p.earlier = (earlier{found.State, statefile.FromMillis(found.Since)}); found.State == st.State {
		st.Since = p.earlier.since
	}
	st.Started = statefile.StartTime(found.Adoptable, now)
	st.ReadyAt, st.Asked, st.Reason = statefile.FromMillis(found.ReadyAt), statefile.FromMillis(found.StopAt), found.Reason
	p.stopTimes = stopTimes{statefile.FromMillis(found.AskedAt), statefile.FromMillis(found.GrantedUntil), found.Signals}
}

// Record returns what the state file has about the process.
func (p *Process) Record() *statefile.Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	st := &p.status
	r := &statefile.Process{ID: p.id, Revision: p.revision, Digest: p.digest, Config: statefile.WithoutSecrets(*p.Config()), Adoptable: p.adoptable,
		Signals: p.stopTimes.signals, Reason: st.Reason, Grace: p.grace, Port: p.conn.Port(), ServicePort: p.port, Uses: p.uses, Reported: p.reported, Warming: st.State == lifecycle.Warming && !st.ReadyAt.IsZero()}
	if r.State, r.Since = st.State, statefile.ToMillis(st.Since); p.earlier.state != 0 {
		r.State, r.Since = p.earlier.state, statefile.ToMillis(p.earlier.since)
	}
	if !p.isKept() {
		r.Config.OnLauncherDeath = spec.Kill
	}
	r.ReadyAt, r.StopAt = statefile.ToMillis(st.ReadyAt), statefile.ToMillis(st.Asked)
	r.AskedAt, r.GrantedUntil = statefile.ToMillis(p.stopTimes.asked), statefile.ToMillis(p.stopTimes.grantedUntil)
	return r
}

// adopt opens the outputs of a process that an earlier launcher started, and watches it.
//
// If an output cannot be opened, an alarm says that it is lost, and the process is adopted
// nevertheless, because its work matters more than its log.
func (p *Process) adopt() error {
	files := p.adopted.Outputs
	p.adopted.Outputs = [2]*os.File{}
	for i, stream := range output.Streams {
		if files[i] != nil {
			continue
		}
		var err error
		if files[i], err = output.OpenFIFO(statefile.FileOf(p.group.Dir, p.id, stream)); err != nil && !p.adopted.OutputRemoved(err) {
			p.publish(events.Event{Kind: events.Alarm, Message: "the output of the process is lost: " + err.Error()})
		}
	}
	running, err := proc.Adopt(p.adopted.Adoptable, proc.Spec{Args: []string{p.id}, ReadStdout: files[0], ReadStderr: files[1],
		BeforeReap: p.group.Gate.Enter, Child: true})
	if err != nil {
		return fmt.Errorf("launcher: process %q is not adopted: %w", p.id, err)
	}
	p.onStarted(running)
	return nil
}

// LearnAdoptedSecrets makes the launcher mask the secrets of a process that is to be adopted.
func (p *Process) LearnAdoptedSecrets() { p.learnSecrets(p.adopted.Args, p.adopted.Env) }

// isKept reports whether the process goes on running if the launcher is killed.
func (p *Process) isKept() bool { return p.cfg.OnLauncherDeath == spec.Keep && !p.unkept.Load() }

// IsUnrecorded reports whether the process runs and is to outlive the launcher, but is missing from
// the state file.
func (p *Process) IsUnrecorded() bool {
	return p.isKept() && !p.Status().State.Ended() && !p.group.StateFile.Has(p.id)
}

// IsWithoutPipes reports whether the process runs and ends with the launcher, although the
// processes of its group are to outlive it (Keep), because the pipes for its output could not be
// made.
func (p *Process) IsWithoutPipes() bool {
	return p.cfg.OnLauncherDeath == spec.Keep && p.unkept.Load() && !p.Status().State.Ended()
}

// AwaitRouted waits, for a process that was adopted as ready, until the router has been called. If
// that has succeeded, the process counts as available. For any other process it returns at once.
func (p *Process) AwaitRouted() {
	if p.adopted != nil && p.adopted.ReadyAt != 0 && p.adopted.StopAt == 0 && !(p.adopted.Warming && p.cfg.ReadinessProbe.IsSet()) {
		<-p.routeTried
	}
}

// Containment returns what holds together a process to be kept and all that it has started: a
// cgroup, or a mark in their environment.
func (p *Process) Containment() proc.Containment {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.adoptable.Containment
}
