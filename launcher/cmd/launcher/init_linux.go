package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// beInit, where the launcher is the first process of its PID namespace, as in most containers, has another process be it, and ends with that
// one's exit code. What is left over by somebody's end becomes a child of the first process, and a zombie unless it waits for that.
// Whoever waits for any child takes the launcher's own from it, so it is not the launcher that can. Elsewhere beInit does nothing.
func beInit() {
	if os.Getpid() != 1 {
		return
	}
	signals := make(chan os.Signal, 100)
	signal.Notify(signals) // before there is somebody to pass them on to: the kernel drops what the first process has no handler for
	self, err := os.Executable()
	if err != nil {
		printed().end(fmt.Errorf("launcher: %w", err))
		os.Exit(1)
	}
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	// What a terminal sends, it sends to a group of processes, and what is sent to this one is passed on: nothing is to come twice.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Foreground: hasTerminal()}
	if err := cmd.Start(); err != nil {
		printed().end(fmt.Errorf("launcher: %w", err))
		os.Exit(1)
	}
	go func() {
		for sig := range signals {
			switch sig {
			case syscall.SIGCHLD, syscall.SIGURG, syscall.SIGPIPE: // of the first process itself
			default:
				cmd.Process.Signal(sig)
			}
		}
	}()
	for {
		var how syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &how, syscall.WUNTRACED, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			printed().end(fmt.Errorf("launcher: waiting for its end: %w", err))
			os.Exit(1)
		case pid != cmd.Process.Pid:
		case how.Signaled():
			os.Exit(128 + int(how.Signal())) // as shells have it
		case how.Exited():
			os.Exit(how.ExitStatus())
		case how.Stopped() && how.StopSignal() == syscall.SIGTSTP: // by ^Z, and there is no shell to have it go on
			syscall.Kill(-pid, syscall.SIGCONT)
		}
	}
}

// hasTerminal reports whether stdin is a terminal, whose foreground this process is in.
func hasTerminal() bool {
	group, err := unix.IoctlGetInt(0, unix.TIOCGPGRP)
	return err == nil && group == syscall.Getpgrp()
}
