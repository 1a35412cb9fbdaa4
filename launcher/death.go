package launcher

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/swansong-go/swansong/launcher/internal/guardian"
	"github.com/swansong-go/swansong/launcher/internal/spec"
)

// LauncherDeath says what becomes of the processes if the launcher dies without stopping them, for
// instance by SIGKILL.
//
// With Kill, all processes that the launcher has started, directly or indirectly, end with it.
// Three mechanisms do that:
//
//   - The kernel kills each process when the launcher dies (PR_SET_PDEATHSIG), but not the
//     processes that it has started.
//   - The [Config].Guardian, if there is one, kills them all: by their cgroup of version 2, if one
//     could be made, or else by a mark in the environment of each process, which its children
//     inherit.
//   - The next launcher with the same directory does the same before it starts anything.
//
// Without a cgroup, a process that removes the mark from its environment escapes the guardian and
// the next launcher (env -i, some daemons, a program of another user). On other systems than Linux,
// processes survive a launcher that is killed.
//
// With Keep, which is for Linux only, the processes go on running, and the next launcher with the
// same directory adopts them. It recognizes a process by its pid and its start time.
// An adopted process is watched, stopped and replaced like any other, but its exit status cannot be
// known: it ends in the state [Gone], with the outcome [Unknown]. The stop of a process is
// continued, and its pre-stop hooks are run again. A process that differs from the configuration is
// replaced or stopped.
//
// A process that is started while the state file cannot be written ends with the launcher, as with
// Kill, until the file has been written. If no pipes can be made for the output of a process, for
// example because the disk has no inode left, the process ends with the launcher, too, until it is
// replaced. An [Alarm] and Health.Unrecorded name such processes.
type LauncherDeath = spec.LauncherDeath

const (
	Kill LauncherDeath = spec.Kill // the processes end with the launcher; the default
	Keep LauncherDeath = spec.Keep
)

// checkDeath checks OnLauncherDeath of a group.
func (c *Config) checkDeath(g GroupConfig) []error {
	switch {
	case g.OnLauncherDeath != Keep:
		return nil
	case runtime.GOOS != "linux":
		return []error{&ConfigError{g.Name, "OnLauncherDeath", "keep works on Linux only: on other systems, a later process with the same pid could be taken for the kept one; use kill"}}
	case len(c.Guardian) == 0:
		return []error{&ConfigError{g.Name, "OnLauncherDeath", "keep needs Config.Guardian: while no launcher runs, the guardian reads what the processes print, because the processes would block otherwise"}}
	}
	return nil
}

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
// What only the damaged file had is lost: how far a stop has come, orders to scale a group down,
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
