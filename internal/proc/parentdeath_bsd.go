//go:build darwin || dragonfly || netbsd || openbsd

package proc

import "syscall"

// setParentDeath does nothing, because the system has no signal for the death of a parent.
func setParentDeath(*syscall.SysProcAttr, syscall.Signal) {}
