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

// A Spec describes the process to start. Only Args is required.
type Spec struct {
	Args []string // Args[0] is looked up in PATH as os/exec does
	Dir  string   // the working directory; empty means that of this process
	Env  []string // the environment; nil means that of this process

	// Stdin, Stdout and Stderr are what the process gets as its standard files. For each that is
	// nil, Start creates a pipe whose other end is Process.Stdin, Stdout or Stderr. The caller
	// closes the files that it has set.
	Stdin, Stdout, Stderr *os.File
	ExtraFiles            []*os.File // the process's file descriptors from 3 on; not supported on Windows

	// If Stdout or Stderr is the end of a pipe into which the process writes, ReadStdout or
	// ReadStderr may be the end from which this program reads. They become Process.Stdout and
	// Process.Stderr, which close them. Start closes them if the process cannot be started.
	ReadStdout, ReadStderr *os.File

	User   *User  // nil means the user of this program; ignored where there are no Unix users
	Limits Limits // Start returns an error if these limits cannot be enforced

	// In is the containment in which to start the process, if not empty.
	In Containment

	// Linger is how long processes that are left behind by the leader may run after SIGTERM before
	// they are killed. Zero means one second; a negative value means no time at all.
	Linger time.Duration

	// NoCgroup makes the container use the process group and walks through /proc even if a cgroup
	// is available.
	NoCgroup bool

	// OnLeaderExit, unless nil, is called when the leader has exited, before the processes that it
	// has left behind are ended. It can call [Process.Follow].
	OnLeaderExit func()

	// ParentDeath is the signal that the kernel sends to the process when this program dies. Zero
	// means none. Linux and FreeBSD only; ignored elsewhere. All processes with such a signal are
	// started by one OS thread, which lives as long as these processes, because the kernel sends
	// the signal when the forking thread ends (go.dev/issue/27505). See ServeForks.
	ParentDeath syscall.Signal

	// BeforeReap, if not nil, is called when the leader has exited and the processes that it has
	// left behind have been ended, before the leader is reaped. Until BeforeReap returns, the
	// leader stays a zombie.
	BeforeReap func()

	// Child says that an adopted process may be a child of this program, because this program has
	// executed itself anew since it started the process. Then the exit status is known. Adopt
	// checks the parent of the process, so Child does no harm if the process is not a child of this
	// program. Only Adopt uses it.
	Child bool
}

const defaultLinger = time.Second

func (s Spec) linger() time.Duration {
	if s.Linger == 0 {
		return defaultLinger
	}
	return max(0, s.Linger)
}

// command returns the command to start. It checks the directory and the executable itself, because
// the kernel's errors name the wrong file or none.
func (s Spec) command() (*exec.Cmd, error) {
	if len(s.Args) == 0 || s.Args[0] == "" {
		return nil, errors.New("no command: Args[0] has to name one")
	}
	cmd := exec.Command(s.Args[0], s.Args[1:]...)
	if s.Dir != "" {
		switch info, err := os.Stat(s.Dir); {
		case err != nil:
			return nil, fmt.Errorf("cannot start %q in its directory: %w", s.Args[0], err)
		case !info.IsDir():
			return nil, fmt.Errorf("cannot start %q in %q: %w", s.Args[0], s.Dir, syscall.ENOTDIR)
		}
	}
	if cmd.Err != nil {
		return nil, startError(s.Args[0], cmd.Err)
	}
	cmd.Dir, cmd.Env, cmd.ExtraFiles = s.Dir, s.Env, s.ExtraFiles
	return cmd, nil
}

// startError returns the error for a command that cannot be started. It wraps err, but does not
// repeat the name of the command, which os/exec and package os put into their errors.
func startError(command string, err error) error {
	reason := err
	var lookup *exec.Error
	var path *fs.PathError
	switch {
	case errors.As(err, &lookup):
		reason = lookup.Err
	case errors.As(err, &path) && path.Path == command:
		reason = path.Err
	}
	return &commandError{fmt.Sprintf("cannot start %q: %v", command, reason), err}
}

type commandError struct {
	text string
	err  error
}

func (e *commandError) Error() string { return e.text }
func (e *commandError) Unwrap() error { return e.err }
