package launcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/swansong-go/swansong/internal/proc"
	"github.com/swansong-go/swansong/launcher/internal/confine"
	"github.com/swansong-go/swansong/launcher/internal/lifecycle"
	"github.com/swansong-go/swansong/launcher/internal/notify"
	"github.com/swansong-go/swansong/launcher/internal/output"
	"github.com/swansong-go/swansong/launcher/internal/probe"
	"github.com/swansong-go/swansong/launcher/internal/spawn"
	"github.com/swansong-go/swansong/launcher/internal/spec"
	"github.com/swansong-go/swansong/launcher/internal/statefile"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
)

// cleanUp removes the files, the port and the containment of a process that has been reaped. The process
// stays in the state file until then, so that the next launcher cleans up if this one is killed.
func (p *process) cleanUp() {
	statefile.RemoveFilesOf(p.manager.dir, p.id)
	p.manager.ports.Release(p.port)
	if p.cfg.OnLauncherDeath == Keep {
		p.adoptable.Empty(time.Now()) // the containment is empty now, except for survivors, which an alarm has named
	}
}

func (p *process) lifecycleSocket() string {
	return statefile.FileOf(p.manager.dir, p.id, statefile.LifecycleSocket)
}
func (p *process) serviceSocket() string {
	return statefile.FileOf(p.manager.dir, p.id, statefile.ServiceSocket)
}

// placeholders returns what the placeholders in the commands of this process stand for.
func (p *process) placeholders() spawn.Placeholders {
	return spawn.Placeholders{ID: p.id, Group: p.group, Dir: p.manager.dir, Socket: p.serviceSocket(), Port: p.port}
}

// start starts or adopts the subprocess, and the goroutines that copy its output.
func (p *process) start() error {
	if p.cfg.UsesPort() && p.adopted == nil {
		port, err := p.manager.ports.Take()
		if err != nil {
			return fmt.Errorf("launcher: process %q: %w", p.id, err)
		}
		p.mu.Lock() // the state file has the port
		p.port = port
		p.mu.Unlock()
	}
	args, env := p.placeholders().Command(p.cfg, spawn.Inherited(p.cfg, os.Environ()))
	if p.cfg.Protocol.CallsProcess() {
		env = append(env, p.conn.Env(SocketIn(p.manager.dir))...)
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
	inherited := p.manager.listenersOf(p.group)
	files, names := inherited.Files(), inherited.Names()
	if len(files) > 0 {
		env = append(env, fmt.Sprintf("LISTEN_FDS=%d", len(files)), "LISTEN_FDNAMES="+strings.Join(names, ":"))
	}
	rlimits, haveRlimits := confine.Env(p.cfg.Rlimits)
	if haveRlimits {
		env = append(env, rlimits)
	}
	if helper := p.manager.cfg.Helper; len(helper) > 0 && (len(files) > 0 || haveRlimits) {
		args = append(append([]string{}, helper...), spawn.Resolve(args)...)
	}
	as, _, _, err := confine.LookUp(p.cfg)
	if err != nil {
		return fmt.Errorf("launcher: process %q: %w", p.id, err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return fmt.Errorf("launcher: %w", err)
	}
	defer null.Close()
	spec := proc.Spec{User: as, Limits: p.limits(), Dir: p.cfg.WorkDir, Env: env, Stdin: null, ExtraFiles: files, In: p.manager.containment, ParentDeath: spawn.ParentDeath,
		OnLeaderExit: p.drainNotify, BeforeReap: p.manager.gate.Enter}
	if p.cfg.OnLauncherDeath == Keep {
		done, err := p.prepareToKeep(&spec)
		defer done()
		if err != nil {
			p.notStarted = true
			return fmt.Errorf("launcher: process %q: %w", p.id, err)
		}
	}
	// The launcher does not become a subreaper. Orphans are found by the mark in their environment,
	// and the launcher could not tell an orphan that it would have to reap from a child that the
	// embedding program waits for.
	spec.Args = args
	// A socket of this name is a leftover, because ids are not reused and the directory belongs to
	// this launcher.
	os.Remove(p.lifecycleSocket())
	started, err := proc.Start(spec)
	if err != nil {
		return fmt.Errorf("launcher: process %q: %w", p.id, err)
	}
	p.onStarted(started)
	return nil
}

// limits returns the limits of the process. If they cannot be kept, and need not be, an alarm says so.
func (p *process) limits() proc.Limits {
	limits := confine.Limits(p.cfg.Limits)
	if p.cfg.Limits.IfUnavailable == Warn {
		if err := proc.CheckLimits(limits); err != nil {
			p.publish(Event{Kind: Alarm, Message: "runs without its limits: " + err.Error()})
			return proc.Limits{}
		}
	}
	return limits
}

// learnSecrets makes the launcher mask the secrets of the process, before it can print them.
func (p *process) learnSecrets(args, env []string) {
	if err := p.manager.secrets.Learn(p.ended, p.cfg, args, env); err != nil {
		p.publish(Event{Kind: Alarm, Message: err.Error()})
	}
}

// prepareToKeep makes the process that is about to be started independent of this launcher, and
// records it for the next one, if the state file can be written. The caller calls done when the
// process has been started.
func (p *process) prepareToKeep(spec *proc.Spec) (done func(), err error) {
	done = func() {
		spec.Stdout.Close()
		spec.Stderr.Close()
	}
	defer func() {
		if err != nil {
			spec.ReadStdout.Close()
			spec.ReadStderr.Close()
		}
	}()
	if spec.ReadStdout, spec.Stdout, err = output.MakeFIFO(statefile.FileOf(p.manager.dir, p.id, output.Streams[0])); err != nil {
		return done, err
	}
	if spec.ReadStderr, spec.Stderr, err = output.MakeFIFO(statefile.FileOf(p.manager.dir, p.id, output.Streams[1])); err != nil {
		return done, err
	}
	spec.In, spec.ParentDeath = proc.NewContainment(), 0
	p.mu.Lock()
	p.adoptable = proc.Adoptable{Containment: spec.In}
	p.mu.Unlock()
	if err := p.manager.stateFile.Flush(p.owner.scope.Done()); err != nil {
		if p.owner.scope.Err() != nil {
			return done, fmt.Errorf("it was not started, because its group is stopping: %w", context.Cause(p.owner.scope))
		}
		// Without the file, the next launcher would not find the process, and start another one
		// beside it. So the guardian ends the process with the launcher until it is in the file.
		p.manager.guardian.Tell()
		p.publish(Event{Kind: Alarm, Message: "started although the state file cannot be written: until it can be, this process ends with the launcher, " +
			"and the next launcher cannot adopt it: " + err.Error()})
	}
	spec.In.Make()
	return done, nil
}

// onStarted records a process that runs, and copies its output.
func (p *process) onStarted(started *proc.Process) {
	p.mu.Lock()
	p.proc = started
	p.adoptable = started.Adoptable(p.adoptable.Containment)
	p.status.PID, p.status.Contained = started.Pid(), started.Containment()
	p.mu.Unlock()
	close(p.begun)
	p.manager.stateFile.Changed()
	p.manager.wakeDependents(p.group)
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
func (p *process) startProbes() {
	g := p.placeholders().Probed(p.cfg)
	if p.adopted != nil && p.adopted.ReadyAt != 0 {
		g.StartupProbe = spec.Probe{} // it has succeeded under the earlier launcher
	}
	check := probe.NewCheck(func(ctx context.Context, args []string) error {
		exit, last, err := spawn.Run(ctx, p.manager.containment, p.cfg.WorkDir, args, p.placeholders().ProbeEnv(p.cfg, p.proc.Pid(), spawn.Inherited(p.cfg, os.Environ())))
		if err == nil && (exit.Code != 0 || exit.Signal != 0) {
			err = errors.New(strings.TrimSuffix(exit.String()+": "+last, ": "))
		}
		return err
	})
	ctx, cancel := context.WithCancel(context.Background())
	p.stopProbes = cancel
	p.calls.Go(func() {
		probe.Watch(ctx, g, p.snapshot().Started, check, func(r probe.Role, err error) {
			e := lifecycle.Event{Kind: lifecycle.OnProbe, Probe: r}
			if err != nil {
				e.Err = err.Error()
			}
			p.drainNotify() // what the process has said before counts first
			p.send(e)
		})
	})
}

// listenNotify makes the socket for messages as for sd_notify(3), and returns the variables that tell
// the process of it. Without the socket, a process that needs it does not become ready.
func (p *process) listenNotify() (env []string) {
	if !p.cfg.Protocol.HearsProcess() {
		return nil
	}
	path := statefile.FileOf(p.manager.dir, p.id, statefile.NotifySocket)
	var err error
	if p.notify, err = notify.Listen(path, p.adopted.TakeNotify(), &p.manager.gate, p.HasPID, p.notified); err != nil {
		if p.cfg.Protocol == spec.Notify {
			p.publish(Event{Kind: Alarm, Message: err.Error()})
		}
		return nil
	}
	env = append(env, "NOTIFY_SOCKET="+path)
	if w := p.cfg.Watchdog; w > 0 {
		env = append(env, fmt.Sprintf("WATCHDOG_USEC=%d", w.Microseconds()))
	}
	return env
}

// drainNotify handles the messages that have arrived: before a verdict of a probe, which takes a process
// that has said nothing for a program that does not, and before the process has exited, because they may
// name another one that takes its place.
func (p *process) drainNotify() {
	<-p.begun
	if p.notify != nil {
		p.notify.Drain()
	}
}

// notified handles a message of the process.
func (p *process) notified(m notify.Message) {
	if m.MainPID != 0 && m.MainPID != p.proc.Pid() && p.proc.Follow(m.MainPID) {
		p.mu.Lock()
		p.status.PID, p.adoptable = m.MainPID, p.proc.Adoptable(p.adoptable.Containment)
		p.mu.Unlock()
		p.publish(Event{Kind: MainProcess, Message: fmt.Sprintf("pid %d takes the place of the process that was started", m.MainPID)})
		p.manager.stateFile.Changed()
	}
	p.send(lifecycle.Event{Kind: lifecycle.OnNotified, Notification: m})
}

// runHooks runs the pre-stop hooks one after the other.
func (p *process) runHooks() {
	for _, h := range p.config().PreStop {
		if p.hooksOver() {
			return
		}
		message := h.Command[0]
		if err := p.runHook(h); err != nil {
			message += ": " + err.Error()
		}
		p.publish(Event{Kind: HookRun, Message: message})
	}
}

func (p *process) runHook(h spec.Hook) error {
	ctx, cancel := context.WithTimeoutCause(p.scope.Work(), h.Timeout, fmt.Errorf("killed after %v", h.Timeout))
	defer cancel()
	go func() {
		select {
		case <-p.hooksCut:
		case <-p.proc.Done():
		case <-ctx.Done():
		}
		cancel()
	}()
	args, env := p.placeholders().HookCommand(h, p.proc.Pid(), spawn.Inherited(p.cfg, os.Environ()))
	exit, _, err := spawn.Run(ctx, p.manager.containment, "", args, env)
	switch {
	case err != nil && ctx.Err() != nil && p.hooksOver():
		return errors.New("killed because the process has ended or is being killed")
	case err == nil && (exit.Code != 0 || exit.Signal != 0):
		return errors.New(exit.String())
	}
	return err
}

// hooksOver reports whether no hook may run any more, even before its timeout.
func (p *process) hooksOver() bool {
	select {
	case <-p.hooksCut:
		return true
	case <-p.scope.Work().Done():
		return true
	case <-p.proc.Done(): // the pid of an ended process may belong to another process by now
		return true
	default:
		return false
	}
}

// Exec replaces the current process by the command, with the limits of the kernel that the group has
// in Rlimits, and with LISTEN_PID set to the process id, as sd_listen_fds(3) requires. A [Config].Helper calls it: the launcher does not know the id before
// the process exists. It returns only if it fails.
func Exec(args []string) error {
	if len(args) == 0 {
		return errors.New("launcher: Exec: no command")
	}
	path, err := exec.LookPath(args[0])
	if err != nil {
		return fmt.Errorf("launcher: %w", err)
	}
	if err := confine.Apply(); err != nil {
		return err
	}
	if os.Getenv("LISTEN_FDS") != "" {
		os.Setenv("LISTEN_PID", strconv.Itoa(os.Getpid()))
	}
	return fmt.Errorf("launcher: cannot execute %q: %w", args[0], syscall.Exec(path, args, os.Environ()))
}
