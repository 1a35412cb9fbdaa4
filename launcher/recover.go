package launcher

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/swansong-go/swansong/launcher/internal/guardian"
)

// A Recovery is the result of [Recover]. Its fields are
//
//	StateFile string // path of the state file
//	Damage    error  // what is wrong with it; nil if it is intact, or if there is none
//	SetAside  string // the new path of the damaged file; empty if nothing was changed
//
//	Processes []Recovered       // processes that the next launcher adopts
//	Listeners map[string]string // addresses that the next launcher takes over, by group
//	Ended     []Recovered       // processes that were to die with their launcher, and that were ended
type Recovery = guardian.Recovery

// Recovered is a process that [Recover] has found. Its fields are
//
//	ID      string
//	PID     int
//	Command string // name of the program
type Recovered = guardian.Recovered

// Recover writes a new state file after the old one was damaged, so that the next launcher can
// adopt the processes that an earlier one has kept. It finds them by the variables SWANSONG_DIR and
// SWANSONG_ON_LAUNCHER_DEATH in their environment. The damaged file is renamed. If the state file
// is intact, Recover adds processes that it lacks. With dryRun set, Recover only reports what it
// would do.
//
// What only the damaged file had is lost: how far a stop has come, orders to have fewer processes,
// the ports of processes over TCP, listeners on port 0, and finished jobs, which run again. What a
// process was started with is not known either, so the next launcher rolls the groups; jobs run to
// their end.
//
// Processes that were to die with their launcher, and are left because its guardian was killed as
// well, are ended. That takes up to 20 seconds.
//
// Recover reads Dir and Groups of the configuration. It fails with an error that matches [ErrInUse]
// if a launcher runs with the directory, and with a [*StateError] if the state file is intact but
// of another program or version. It finds nothing on systems other than Linux.
func Recover(cfg Config, dryRun bool) (*Recovery, error) {
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("launcher: %w", err)
	}
	if _, err := os.Lstat(dir); err != nil {
		return nil, &ConfigError{Field: "Dir", Rule: err.Error()}
	}
	lock, err := lockDirectory(dir)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	return guardian.Recover(dir, cfg.resolve().Groups, dryRun)
}
