package confine

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/swansong-go/swansong/launcher/internal/spec"
	"golang.org/x/sys/unix"
)

// resources are the limits by the names of spec.RlimitNames, against which a configuration is
// checked. A name that is missing here would be taken for 0, which is RLIMIT_CPU.
var resources = map[string]int{
	"as": unix.RLIMIT_AS, "core": unix.RLIMIT_CORE, "cpu": unix.RLIMIT_CPU, "data": unix.RLIMIT_DATA, "fsize": unix.RLIMIT_FSIZE,
	"memlock": unix.RLIMIT_MEMLOCK, "nofile": unix.RLIMIT_NOFILE, "nproc": unix.RLIMIT_NPROC, "stack": unix.RLIMIT_STACK,
}

// checkRlimit returns an error if a process cannot have the limit, because the launcher's own is
// lower. Root can raise a limit, but a process that does not run as root cannot. The check of the
// configuration calls checkRlimit, so that the configuration is refused. Otherwise the processes
// would fail at each start.
//
// The limit is also refused if the launcher runs as root and could raise it. The limits are set
// later, in a process that may run as another user, and checkRlimit does not know that user.
func checkRlimit(r spec.Rlimit) error {
	var own unix.Rlimit
	if err := unix.Getrlimit(resources[r.Name], &own); err != nil {
		return fmt.Errorf("%s: %w", r.Name, err)
	}
	if r.Hard > own.Max {
		return fmt.Errorf("%s cannot be raised to %d, because the hard limit of the launcher is %d; raise that one, under systemd with Limit%s=", r.Name, r.Hard, own.Max, strings.ToUpper(r.Name))
	}
	return nil
}

// setRlimit sets a limit of this process, for all of its threads.
func setRlimit(r spec.Rlimit) error {
	return unix.Setrlimit(resources[r.Name], &unix.Rlimit{Cur: r.Soft, Max: r.Hard})
}

// isPrivileged reports whether this program can start processes as another user, and send them
// signals.
//
// It checks for the effective capabilities CAP_KILL, CAP_SETGID and CAP_SETUID and not for user id
// 0: systemd can give capabilities to any user (AmbientCapabilities), and root in a container can
// lack them. The constants are the numbers of their bits in linux/capability.h.
func isPrivileged() bool {
	const kill, setGID, setUID = 5, 6, 7
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return os.Geteuid() == 0
	}
	for line := range strings.Lines(string(text)) {
		if hex, ok := strings.CutPrefix(line, "CapEff:"); ok {
			set, _ := strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
			return set>>setUID&1 == 1 && set>>setGID&1 == 1 && set>>kill&1 == 1
		}
	}
	return false
}
