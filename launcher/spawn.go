package launcher

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/swansong-go/swansong/internal/proc"
	"github.com/swansong-go/swansong/launcher/client"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
)

// clear removes what a process leaves that has been reaped. It is remembered until then, so that what a launcher does not come
// to, because it dies, the next one does.
func (p *process) clear() {
	removeFilesOf(p.manager.dir, p.id)
	if p.cfg.OnLauncherDeath == Keep {
		p.kept.Empty(time.Now()) // it is empty, unless somebody could not be ended; of that has been told
	}
}

func (p *process) lifecycleSocket() string { return filepath.Join(p.manager.dir, p.id+".sock") }
func (p *process) serviceSocket() string   { return filepath.Join(p.manager.dir, p.id+".app") }

// placeholders puts what is the process's own in the place of {id}, {dir} and {socket}.
func (p *process) placeholders() *strings.Replacer {
	return strings.NewReplacer("{id}", p.id, "{dir}", p.manager.dir, "{socket}", p.serviceSocket())
}

// start starts the subprocess and the copying of what it prints.
func (p *process) start() error {
	expand := p.placeholders()
	args := make([]string, len(p.cfg.Command))
	for i, a := range p.cfg.Command {
		args[i] = expand.Replace(a)
	}
	env := withoutOurs(os.Environ())
	for _, v := range p.cfg.Env {
		name, value, _ := strings.Cut(v, "=")
		env = append(env, name+"="+expand.Replace(value))
	}
	env = append(env, client.EnvID+"="+p.id)
	if p.cfg.Protocol == GRPC {
		env = append(env, p.lifecycleEnv()...)
		conn, err := p.connect()
		if err != nil {
			return err
		}
		p.mu.Lock()
		p.conn, p.child = conn, pb.NewProcessLifecycleInterfaceClient(conn)
		p.mu.Unlock()
	}
	if p.found != nil {
		return p.adopt()
	}
	files, names := p.manager.inherited(p.group)
	if len(files) > 0 {
		env = append(env, fmt.Sprintf("LISTEN_FDS=%d", len(files)), "LISTEN_FDNAMES="+strings.Join(names, ":"))
		if len(p.manager.cfg.Helper) > 0 {
			args = append(append([]string{}, p.manager.cfg.Helper...), args...)
		}
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return fmt.Errorf("launcher: %w", err)
	}
	defer null.Close()
	spec := proc.Spec{Dir: p.cfg.WorkDir, Env: env, Stdin: null, ExtraFiles: files, In: p.manager.pen, ParentDeath: parentDeath}
	if p.cfg.OnLauncherDeath == Keep {
		done, err := p.prepareToKeep(&spec)
		defer done()
		if err != nil {
			p.withheld = true
			return fmt.Errorf("launcher: process %q: %w", p.id, err)
		}
	}
	// Not a subreaper: orphans are found by their mark, and a zombie that was adopted could not be told from a child that
	// the program, whose package this is, waits for itself. So nobody would reap it.
	spec.Args = args
	// Whatever has this name is left over: names are given once, and the directory is ours alone.
	os.Remove(p.lifecycleSocket())
	started, err := proc.Start(spec)
	if err != nil {
		return fmt.Errorf("launcher: process %q: %w", p.id, err)
	}
	p.started(started)
	return nil
}

// prepareToKeep has the process that is about to be started live on without this launcher, and be found by the next one.
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
	if spec.ReadStdout, spec.Stdout, err = makeFIFO(fifo(p.manager.dir, p.id, streams[0])); err != nil {
		return done, err
	}
	if spec.ReadStderr, spec.Stderr, err = makeFIFO(fifo(p.manager.dir, p.id, streams[1])); err != nil {
		return done, err
	}
	spec.In, spec.ParentDeath = proc.NewPen(), 0
	p.mu.Lock()
	p.kept = proc.Kept{Pen: spec.In}
	p.mu.Unlock()
	if err = p.manager.memory.written(p.owner.scope.Done()); err != nil {
		return done, fmt.Errorf("it was not started, since the next launcher would not know of it: %w", err)
	}
	spec.In.Make()
	return done, nil
}

// started takes note of a process that runs.
func (p *process) started(started *proc.Process) {
	p.mu.Lock()
	p.proc = started
	p.kept = started.Kept(p.kept.Pen)
	p.status.PID, p.status.Contained = started.Pid(), started.Containment()
	p.mu.Unlock()
	p.manager.memory.note()
	for i, o := range []*proc.Output{started.Stdout(), started.Stderr()} {
		if o != nil {
			p.logs.Go(func() { p.copyOutput(streams[i], o) })
		}
	}
}

// withoutOurs removes what a launcher or a service manager that started us has told us, and not our children.
func withoutOurs(env []string) []string {
	var kept []string
	for _, v := range env {
		switch name, _, _ := strings.Cut(v, "="); name {
		case client.EnvID, client.EnvAddress, client.EnvLauncher, client.EnvCert, client.EnvKey, client.EnvCA, client.EnvHealth,
			"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "NOTIFY_SOCKET", client.EnvGrace,
			"WATCHDOG_USEC", "WATCHDOG_PID", "MAINPID":
		default:
			kept = append(kept, v)
		}
	}
	return kept
}

// lookUp says early, and by name, what would fail later.
func lookUp(command, dir string) error {
	if dir != "" && strings.ContainsRune(command, filepath.Separator) && !filepath.IsAbs(command) {
		command = filepath.Join(dir, command)
	}
	_, err := exec.LookPath(command)
	return err
}

// parentDeath is what a launcher that is killed leaves to its processes.
const parentDeath = syscall.SIGKILL
