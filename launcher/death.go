package launcher

import "runtime"

// LauncherDeath says what becomes of the processes of a launcher that dies, of SIGKILL for one, without stopping them.
//
// With Kill, all that the launcher has started ends with it, in three ways, each of which is enough where it works:
//
//   - The kernel kills each process as the launcher dies (PR_SET_PDEATHSIG), but not what that has started.
//   - The [Config].Guardian, if there is one, kills all there is: by its cgroup, where one of version 2 could be made, or by
//     the mark that each process carries in its environment and hands on.
//   - The next launcher with the same directory does the same, before it starts anything.
//
// Without a cgroup, what gets rid of its environment escapes the latter two (env -i, a daemon that cleans up after its
// forks, a program of another user). Anywhere but on Linux a launcher that is killed leaves its processes.
//
// With Keep, the processes run on, and the next launcher with the same directory adopts each of them, once: it is known by
// its pid and the tick in which it was started. It is watched, stopped and replaced as before, but its exit status is not
// for the launcher to see, so that its end is [Gone], with the outcome [Unknown]. One that was being stopped goes on being
// stopped, and its pre-stop hooks are run again. What the configuration does not have any more is replaced, or stopped.
// Linux only.
type LauncherDeath string

const (
	Kill LauncherDeath = "kill" // the default
	Keep LauncherDeath = "keep"
)

// checkDeath says why a group cannot be as it is to be when the launcher dies, and nothing if it can.
func (c *Config) checkDeath(g GroupConfig) []error {
	switch {
	case g.OnLauncherDeath != Keep:
		return nil
	case runtime.GOOS != "linux":
		return []error{&ConfigError{g.Name, "OnLauncherDeath", "keep is for Linux only, where a process can be told from another one with its number; use kill"}}
	case len(c.Guardian) == 0:
		return []error{&ConfigError{g.Name, "OnLauncherDeath", "keep needs Config.Guardian: while there is no launcher, somebody has to read what the processes print, or they block"}}
	}
	return nil
}
