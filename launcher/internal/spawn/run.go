package spawn

import (
	"context"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/swansong-go/swansong/internal/proc"
	"github.com/swansong-go/swansong/launcher/internal/spec"
)

// ParentDeath is the signal that commands and processes, except those that are to be kept, get from
// the kernel when their launcher dies. It is SIGKILL. SIGTERM would let them drain, but a process
// that does not drain would run on, because no launcher is left to kill it.
const ParentDeath = syscall.SIGKILL

// Run runs a command of the launcher's own, such as a hook or a probe. When ctx ends, Run kills the
// command and every process that the command has started, and the error is the cause of ctx. It
// returns how the command has exited, and the last line that it has printed. An exit code other
// than 0 is no error here.
//
// Processes that the command has started and that still run when it exits are killed, too, even if
// ctx has not ended: nothing of a hook runs when Run returns.
func Run(ctx context.Context, in proc.Containment, dir string, args, env []string) (exit proc.Exit, last string, err error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return exit, "", err
	}
	defer null.Close()
	r, w, err := os.Pipe() // one pipe for stdout and stderr, so that their lines keep their order
	if err != nil {
		return exit, "", err
	}
	p, err := proc.Start(proc.Spec{Args: args, Dir: dir, Env: env, Stdin: null, Stdout: w, Stderr: w, ReadStdout: r, In: in, ParentDeath: ParentDeath})
	w.Close()
	if err != nil {
		return exit, "", err
	}
	defer p.Close()
	said := proc.NewTail(4 << 10)
	var reading sync.WaitGroup
	reading.Go(func() { io.Copy(said, p.Stdout()) })
	select {
	case <-p.Done():
	case <-ctx.Done():
	}
	now := time.Now()
	exit, err = p.End(proc.Deadlines{Terminate: now, Kill: now, GiveUp: now.Add(spec.ReapTimeout)})
	if err == nil && (exit.Terminated || exit.Killed) {
		err = context.Cause(ctx)
	}
	if err != nil {
		return exit, "", err
	}
	reading.Wait()
	text := strings.TrimSpace(said.String())
	return exit, text[strings.LastIndexByte(text, '\n')+1:], nil
}
