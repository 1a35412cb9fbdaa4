package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/swansong-go/swansong/internal/proc"
	"github.com/swansong-go/swansong/launcher/internal/confine"
	"github.com/swansong-go/swansong/launcher/internal/events"
	"github.com/swansong-go/swansong/launcher/internal/lifecycle"
	"github.com/swansong-go/swansong/launcher/internal/output"
	"github.com/swansong-go/swansong/launcher/internal/probe"
	"github.com/swansong-go/swansong/launcher/internal/spawn"
	"github.com/swansong-go/swansong/launcher/internal/spec"
	"github.com/swansong-go/swansong/launcher/internal/statefile"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
)

// cleanUp removes the files, the port and the containment (a cgroup, if there is one) of a process
// that has been reaped. The process stays in the state file until then, so that the next launcher
// cleans up if this one is killed.
func (p *Process) cleanUp() {
	statefile.RemoveFilesOf(p.group.Dir, p.id)
	p.group.Ports.Release(p.port)
	if p.isKept() {
		// All processes of this containment (a cgroup, or a mark in their environment) have ended,
		// except for survivors, which an alarm has named. So this call only removes the cgroup.
		p.adoptable.Empty(time.Now())
	}
}

// placeholders returns what the placeholders in the commands of this process stand for.
func (p *Process) placeholders() spawn.Placeholders {
	return spawn.Placeholders{ID: p.id, Group: p.group.Name, Dir: p.group.Dir, Socket: p.sockets.service, Port: p.port}
}

// start starts or adopts the subprocess, and the goroutines that copy its output.
//
// The order matters. The socket for messages, the masking of secrets and, for a process to be kept,
// the entry in the state file must be there before the process runs: it may print, report or
// outlive this launcher at once. If start fails, run cleans up what was created.
func (p *Process) start() error {
	if p.cfg.UsesPort() && p.adopted == nil {
		port, err := p.group.Ports.Take()
		if err != nil {
			return fmt.Errorf("launcher: cannot start process %q: %w", p.id, err)
		}
		p.mu.Lock() // mu is held because the writer of the state file reads the port
		p.port = port
		p.mu.Unlock()
	}
	if err := p.findUser(); err != nil {
		return fmt.Errorf("launcher: cannot start process %q: %w", p.id, err)
	}
	args, env := p.placeholders().Command(p.cfg, spawn.Inherited(p.cfg, os.Environ()))
	if p.cfg.Protocol.CallsProcess() {
		env = append(env, p.conn.Env(p.sockets.launcher)...)
		conn, err := p.conn.Open(p.adopted != nil)
		if err != nil {
			return err
		}
		p.mu.Lock()
		p.child = pb.NewProcessLifecycleInterfaceClient(conn)
		p.mu.Unlock()
	}
	env = append(env, p.listenNotify()...)
	if p.adopted != nil {
		return p.adopt()
	}
	p.learnSecrets(args, env)
	inherited := p.group.Listeners()
	files, names := inherited.Files(), inherited.Names()
	if len(files) > 0 {
		env = append(env, fmt.Sprintf("LISTEN_FDS=%d", len(files)), "LISTEN_FDNAMES="+strings.Join(names, ":"))
	}
	rlimits, haveRlimits := confine.Env(p.cfg.Rlimits)
	if haveRlimits {
		env = append(env, rlimits)
	}
	if helper := p.group.Helper; len(helper) > 0 && (len(files) > 0 || haveRlimits) {
		args = append(append([]string{}, helper...), spawn.Resolve(args)...)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return fmt.Errorf("launcher: %w", err)
	}
	defer null.Close()
	child := proc.Spec{User: p.user, Limits: p.limits(), Dir: p.cfg.WorkDir, Env: env, Stdin: null, ExtraFiles: files, In: p.group.Containment, ParentDeath: spawn.ParentDeath,
		OnLeaderExit: p.drainNotify, BeforeReap: p.group.Gate.Enter}
	if p.isKept() {
		done, err := p.prepareToKeep(&child)
		defer done()
		if err != nil {
			return fmt.Errorf("launcher: cannot start process %q: %w", p.id, err)
		}
	}
	// The launcher does not become a subreaper, to which the kernel gives the orphans of processes
	// as children. It need not, because it finds orphans by the mark in their environment. And it
	// should not: a subreaper must reap the orphans, and the launcher could not tell an orphan from
	// a child that the embedding program waits for.
	child.Args = args
	// A socket of this name is a leftover, because ids are not reused and the directory belongs to
	// this launcher.
	os.Remove(p.sockets.lifecycle)
	started, err := proc.Start(child)
	if err != nil {
		return fmt.Errorf("launcher: cannot start process %q: %w", p.id, err)
	}
	p.onStarted(started)
	return nil
}

// limits returns the limits of the process. If they cannot be enforced on this machine and the
// configuration permits that, limits publishes an alarm and returns no limits.
func (p *Process) limits() proc.Limits {
	limits := confine.Limits(p.cfg.Limits)
	if p.cfg.Limits.IfUnavailable == spec.Warn {
		if err := proc.CheckLimits(limits); err != nil {
			p.publish(events.Event{Kind: events.Alarm, Message: "runs without its limits: " + err.Error()})
			return proc.Limits{}
		}
	}
	return limits
}

// learnSecrets makes the launcher mask the secrets of the process. It is called before the process
// runs and can print them.
func (p *Process) learnSecrets(args, env []string) {
	if err := p.group.Secrets.Learn(p.ended, p.cfg, args, env); err != nil {
		p.publish(events.Event{Kind: events.Alarm, Message: err.Error()})
	}
}

// prepareToKeep makes the process that is about to be started independent of this launcher, and
// records it for the next one, if the state file can be written. The caller calls the function done
// when the process has been started.
//
// A process to be kept writes its output to named pipes. With ordinary ones, their only reader
// would be gone when this launcher dies, and the process would die of SIGPIPE. It also has a
// containment (a cgroup, or a mark in its environment) of its own instead of the launcher's, and
// gets no signal when its parent dies. If the named pipes cannot be made, for example because the
// disk has no inode left, the process is started as one that is not kept: it runs, and only the
// promise is lost.
func (p *Process) prepareToKeep(child *proc.Spec) (done func(), err error) {
	if err := p.makePipes(child); err != nil {
		p.unkept.Store(true)
		child.Env = slices.DeleteFunc(child.Env, func(v string) bool { return strings.HasPrefix(v, spawn.EnvKeep+"=") })
		p.publish(events.Event{Kind: events.Alarm, Message: "started although the pipes for its output cannot be made: this process ends with the launcher, " +
			"and the next launcher cannot adopt it: " + err.Error()})
		return func() {}, nil
	}
	done = func() {
		child.Stdout.Close()
		child.Stderr.Close()
	}
	defer func() {
		if err != nil {
			child.ReadStdout.Close()
			child.ReadStderr.Close()
		}
	}()
	child.In, child.ParentDeath = proc.NewContainment(), 0
	p.mu.Lock()
	p.adoptable = proc.Adoptable{Containment: child.In}
	p.mu.Unlock()
	if err := p.group.StateFile.Flush(p.group.Scope.Done()); err != nil {
		if p.group.Scope.Err() != nil {
			return done, fmt.Errorf("the process was not started, because its group is stopping: %w", context.Cause(p.group.Scope))
		}
		// The state file does not contain the process. If the launcher died now, the next launcher
		// would not find the process, and would start another one beside it. So as long as the file
		// lacks the process, the guardian kills the process if the launcher dies.
		p.group.Guardian.Update()
		p.publish(events.Event{Kind: events.Alarm, Message: "started although the state file cannot be written: until it can be written, this process ends with the launcher, " +
			"and the next launcher cannot adopt it: " + err.Error()})
	}
	child.In.Make()
	return done, nil
}

// makePipes makes two named pipes, for the standard output and standard error of a process that is
// to outlive the launcher (Keep). If one cannot be made, makePipes makes none.
func (p *Process) makePipes(child *proc.Spec) (err error) {
	path := statefile.FileOf(p.group.Dir, p.id, output.Streams[0])
	if child.ReadStdout, child.Stdout, err = output.MakeFIFO(path); err != nil {
		return err
	}
	if child.ReadStderr, child.Stderr, err = output.MakeFIFO(statefile.FileOf(p.group.Dir, p.id, output.Streams[1])); err != nil {
		child.ReadStdout.Close()
		child.Stdout.Close()
		os.Remove(path)
		child.ReadStdout, child.Stdout = nil, nil
	}
	return err
}

// onStarted records a process that runs, and copies its output.
//
// The goroutine of run calls it before it reads any event. Closing the channel begun publishes proc
// to the goroutines that wait for it.
func (p *Process) onStarted(started *proc.Process) {
	p.mu.Lock()
	p.proc = started
	p.adoptable = started.Adoptable(p.adoptable.Containment)
	p.status.PID, p.status.Contained = started.Pid(), started.Containment()
	p.mu.Unlock()
	close(p.begun)
	p.group.StateFile.Changed()
	p.group.Started()
	if p.notify != nil {
		p.calls.Go(p.notify.Serve)
	}
	p.startProbes()
	for i, o := range []*proc.Output{started.Stdout(), started.Stderr()} {
		if o == nil {
			continue
		}
		r := io.Reader(o)
		if p.adopted != nil {
			r = output.Resume(p.adopted.Kept[i], o)
		}
		p.logs.Go(func() { p.copyOutput(output.Streams[i], r) })
	}
}

// startProbes starts the probes of the process. They end when the process is being stopped.
//
// Probes report through the inbox, like everything about the process, so a verdict has its place
// among the messages that the process sends.
func (p *Process) startProbes() {
	g := p.placeholders().Probed(p.cfg)
	if p.adopted != nil && p.adopted.ReadyAt != 0 {
		// No startup probe any more: it has already succeeded under the earlier launcher.
		g.StartupProbe = spec.Probe{}
	}
	check := probe.NewCheck(func(ctx context.Context, args []string) error {
		exit, last, err := spawn.Run(ctx, p.group.Containment, p.cfg.WorkDir, args, p.placeholders().ProbeEnv(p.cfg, p.proc.Pid(), spawn.Inherited(p.cfg, os.Environ())))
		if err == nil && (exit.Code != 0 || exit.Signal != 0) {
			err = errors.New(strings.TrimSuffix(exit.String()+": "+last, ": "))
		}
		return err
	})
	ctx, cancel := context.WithCancel(context.Background())
	p.stopProbes = cancel
	p.calls.Go(func() {
		probe.Watch(ctx, g, p.Status().Started, check, func(r probe.Role, err error) {
			e := lifecycle.Event{Kind: lifecycle.OnProbe, Probe: r}
			if err != nil {
				e.Err = err.Error()
			}
			p.drainNotify() // messages that the process sent before the verdict are handled first
			p.Send(e)
		})
	})
}
