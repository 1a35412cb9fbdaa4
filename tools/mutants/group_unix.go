//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// inGroup makes cmd start its program in a process group of its own. killGroup then kills the
// processes that the program has left in the group. A mutant often makes a test leave some.
func inGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func killGroup(cmd *exec.Cmd) {
	if cmd.Process != nil {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // ignore the error, which says that no process is left
	}
}
