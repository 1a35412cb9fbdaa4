package launcher

import (
	"runtime"

	"github.com/swansong-go/swansong/launcher/internal/guardian"
	"github.com/swansong-go/swansong/launcher/internal/spec"
)

// LauncherDeath says what becomes of the processes if the launcher dies without stopping them, for
// instance by SIGKILL.
//
// With Kill, all processes that the launcher has started end with it, directly or indirectly, by
// three mechanisms:
//
//   - The kernel kills each process when the launcher dies (PR_SET_PDEATHSIG), but not the
//     processes that it has started.
//   - The [Config].Guardian, if there is one, kills them all: by their cgroup of version 2, if one
//     could be made, or by a mark that each process has in its environment, and its children
//     inherit.
//   - The next launcher with the same directory does the same before it starts anything.
//
// Without a cgroup, a process that removes the mark from its environment escapes the guardian and
// the next launcher (env -i, some daemons, a program of another user). On other systems than Linux,
// processes survive a launcher that is killed.
//
// With Keep, which is for Linux only, the processes go on running, and the next launcher with the
// same directory adopts each of them once. It recognizes a process by its pid and its start time.
// An adopted process is watched, stopped and replaced like any other, but its exit status cannot be
// known: it ends in the state [Gone], with the outcome [Unknown]. The stop of a process is
// continued, and its pre-stop hooks are run again. A process that differs from the configuration is
// replaced or stopped.
//
// A process that is started while the state file cannot be written ends with the launcher, as with
// Kill, until it is in the file. An [Alarm] and Health.Unrecorded name it.
type LauncherDeath = spec.LauncherDeath

const (
	Kill LauncherDeath = spec.Kill // the processes are killed, too; the default
	Keep LauncherDeath = spec.Keep
)

// checkDeath checks OnLauncherDeath of a group.
func (c *Config) checkDeath(g GroupConfig) []error {
	switch {
	case g.OnLauncherDeath != Keep:
		return nil
	case runtime.GOOS != "linux":
		return []error{&ConfigError{g.Name, "OnLauncherDeath", "keep works on Linux only, where a process cannot be confused with a later one of the same pid; use kill"}}
	case len(c.Guardian) == 0:
		return []error{&ConfigError{g.Name, "OnLauncherDeath", "keep needs Config.Guardian: while no launcher runs, the guardian reads what the processes print; otherwise they would block"}}
	}
	return nil
}

// Guard is the main function of a guardian; see [Config].Guardian. It reads its orders from stdin,
// and returns when the launcher has ended and no process is left that the guardian looks after.
// While the launcher lives, it ignores SIGTERM, SIGINT and SIGHUP.
//
// While no launcher runs, the guardian writes the output of kept processes to their logs, without
// the secrets that the launcher knew.
//
// Problems are printed on stderr, and reported as an [Alarm] by the next launcher.
func Guard() error { return guardian.Guard() }
