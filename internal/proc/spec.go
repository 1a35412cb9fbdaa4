package proc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// A Spec says what to start. Only Args is needed.
type Spec struct {
	Args []string // Args[0] is looked up in PATH as os/exec does
	Dir  string   // empty: that of this process
	Env  []string // nil: that of this process

	// Where one of these is nil, a pipe is made, and the Process has its other end. Those given are the caller's to close.
	Stdin, Stdout, Stderr *os.File
	ExtraFiles            []*os.File // file descriptors from 3 on, not on Windows

	// Where Stdout or Stderr is one end of something, these may be the other one. They become the Process's Stdout and
	// Stderr, and are its to close, even if it cannot be started.
	ReadStdout, ReadStderr *os.File

	// In is the pen that the process is put into, if any.
	In Pen

	// Linger is how long what the process leaves behind when it ends has to follow, after a SIGTERM; then it is killed.
	// Zero means one second, negative none at all.
	Linger time.Duration

	// NoCgroup contains by process group and by walks through /proc even where a cgroup could be made.
	NoCgroup bool

	// Subreaper makes this process, from now on, the one that adopts orphans below it (PR_SET_CHILD_SUBREAPER), so that
	// those of the process are waited for in person. It is a property of the whole program, and stays. Linux only.
	Subreaper bool

	// ParentDeath is sent to the process when this one dies. Zero: none. Linux only, elsewhere ignored. It costs an OS thread
	// for as long as the process lives: the kernel takes the thread that forked for the parent (go.dev/issue/27505).
	ParentDeath syscall.Signal
}

const defaultLinger = time.Second

func (s Spec) linger() time.Duration {
	if s.Linger == 0 {
		return defaultLinger
	}
	return max(0, s.Linger)
}

// command checks what can be checked, because what the kernel says of it names the wrong file or none.
func (s Spec) command() (*exec.Cmd, error) {
	if len(s.Args) == 0 || s.Args[0] == "" {
		return nil, errors.New("proc: no command: Args[0] has to name one")
	}
	cmd := exec.Command(s.Args[0], s.Args[1:]...)
	if s.Dir != "" {
		switch info, err := os.Stat(s.Dir); {
		case err != nil:
			return nil, fmt.Errorf("proc: cannot start %q in its directory: %w", s.Args[0], err)
		case !info.IsDir():
			return nil, fmt.Errorf("proc: cannot start %q in %q: %w", s.Args[0], s.Dir, syscall.ENOTDIR)
		}
	}
	if cmd.Err != nil {
		if errors.Is(cmd.Err, fs.ErrPermission) {
			return nil, fmt.Errorf("proc: %q may not be executed: %w", s.Args[0], cmd.Err)
		}
		return nil, fmt.Errorf("proc: cannot start %q: %w", s.Args[0], cmd.Err)
	}
	cmd.Dir, cmd.Env, cmd.ExtraFiles = s.Dir, s.Env, s.ExtraFiles
	return cmd, nil
}
