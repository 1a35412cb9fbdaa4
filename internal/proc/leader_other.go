//go:build !linux && !darwin && !windows

package proc

import "syscall"

func leaderAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
