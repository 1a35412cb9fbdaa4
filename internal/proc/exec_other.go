//go:build !linux

package proc

import (
	"errors"
	"os"
)

// ServeForks always fails on this system.
func ServeForks(func()) error { return errors.ErrUnsupported }

// Exec always fails on this system.
func Exec(string, []string, func() []string, []*os.File) error { return errors.ErrUnsupported }
