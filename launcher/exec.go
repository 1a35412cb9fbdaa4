package launcher

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

// Exec becomes the command, with LISTEN_PID set to the process id that it has, as sd_listen_fds(3) wants it. It is what a
// [Config].Helper does: nobody else can know that id before the process is there. It returns only if it fails.
func Exec(args []string) error {
	if len(args) == 0 {
		return errors.New("launcher: Exec of no command")
	}
	path, err := exec.LookPath(args[0])
	if err != nil {
		return fmt.Errorf("launcher: %w", err)
	}
	if os.Getenv("LISTEN_FDS") != "" {
		os.Setenv("LISTEN_PID", strconv.Itoa(os.Getpid()))
	}
	return fmt.Errorf("launcher: cannot become %q: %w", args[0], syscall.Exec(path, args, os.Environ()))
}
