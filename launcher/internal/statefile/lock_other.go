//go:build !unix

package statefile

import (
	"errors"
	"os"
)

func tryLock(*os.File) error { return errors.New("launchers run on Linux and macOS only") }

func isLocked(error) bool { return false }
