package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// beInit does nothing unless the launcher is the first process of its PID namespace, as in most
// containers. Then it starts the command again as a child, passes on signals, reaps processes, and
// exits with the exit code of the child.
//
// Orphaned processes become children of the first process, and stay zombies until it waits for
// them. The launcher cannot do that itself: to wait for any child would take the exit codes of its
// own children.
//
// It does not return in the first process. The child is the same program with the same arguments,
// but another pid, and so goes on with main.
func beInit() {
	if os.Getpid() != 1 {
		return
	}
	signals := make(chan os.Signal, 100)
	signal.Notify(signals) // called before the child is started, because the kernel drops signals that the first process does not handle
	self, err := os.Executable()
	if err != nil {
		printed().end(fmt.Errorf("launcher: %w", err))
		os.Exit(1)
	}
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	// The child gets a process group of its own: a signal of the terminal goes to the whole group
	// of this process, and would reach the child twice.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Foreground: hasTerminal()}
	if err := cmd.Start(); err != nil {
		printed().end(fmt.Errorf("launcher: %w", err))
		os.Exit(1)
	}
	go func() {
		for sig := range signals {
			switch sig {
			case syscall.SIGCHLD, syscall.SIGURG, syscall.SIGPIPE: // signals for this process itself, which the child must not get
			default:
				cmd.Process.Signal(sig)
			}
		}
	}()
	// The loop reaps all children, and the child itself as well, so cmd.Wait is not called: it
	// would wait for a process that is gone. A pid that is not that of the child is an orphan. With
	// WUNTRACED, the kernel also reports a child that was stopped.
	for {
		var how syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &how, syscall.WUNTRACED, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			printed().end(fmt.Errorf("launcher: cannot wait for the child process: %w", err))
			os.Exit(1)
		case pid != cmd.Process.Pid:
		case how.Signaled():
			os.Exit(128 + int(how.Signal())) // shells use the same exit code for a command that a signal has killed
		case how.Exited():
			os.Exit(how.ExitStatus())
		// ^Z has stopped the child; no shell could continue it, so it is continued here
		case how.Stopped() && how.StopSignal() == syscall.SIGTSTP:
			syscall.Kill(-pid, syscall.SIGCONT)
		}
	}
}

// hasTerminal reports whether stdin is a terminal and this process is in its foreground.
func hasTerminal() bool {
	group, err := unix.IoctlGetInt(0, unix.TIOCGPGRP)
	return err == nil && group == syscall.Getpgrp()
}
