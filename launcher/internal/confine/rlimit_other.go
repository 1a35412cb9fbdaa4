//go:build !linux

package confine

import (
	"errors"
	"os"

	"github.com/swansong-go/swansong/launcher/internal/spec"
)

// errNoRlimits is the rule that the field Rlimits breaks: the error of the configuration reads
// "Rlimits work on Linux only".
var errNoRlimits = errors.New("work on Linux only")

func checkRlimit(spec.Rlimit) error { return errNoRlimits }
func setRlimit(spec.Rlimit) error   { return errNoRlimits }

// isPrivileged reports whether this program can start processes as another user.
func isPrivileged() bool { return os.Geteuid() == 0 }
