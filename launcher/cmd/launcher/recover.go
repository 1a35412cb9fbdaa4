package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"
	"github.com/swansong-go/swansong/launcher"
	"github.com/swansong-go/swansong/launcher/config"
)

// recoverCommand returns the command recover. It prints what was found even if a later step fails:
// the processes exist in any case.
//
// It does not talk to a launcher, and works only while none runs: launcher.Recover takes the lock
// of the directory. The configuration file is checked in the same way as by "launcher run", because
// the next launcher will use it. But a file that is a pipe is refused: what recover would read from
// it would be lost to the next launcher.
func recoverCommand(at *place) *cobra.Command {
	var dry, asJSON bool
	cmd := &cobra.Command{
		Use:   "recover [-f file]",
		Short: "Replace a damaged state file, so that the next launcher adopts what runs",
		Long: "Find the processes that a launcher has kept (on_launcher_death: keep) by the variables in their environment, and write a state file with " +
			"them, so that the next launcher with this directory adopts them. The damaged file is renamed. Processes that were to be killed " +
			"with their launcher, but still run, are killed now. No launcher may run with the directory.\n\n" +
			"With the file of -f, listeners are found, too, except for those on port 0. Only the damaged file said how far a stop had come, " +
			"which groups were scaled down, and which jobs had finished. The next launcher replaces the processes in a roll, because it does not know what they were started with.",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg := launcher.Config{Dir: config.DefaultDir()}
			if at.file != "" {
				c, _, err := config.LoadAgain(at.file)
				if err != nil {
					return err
				}
				cfg = c.Launcher()
			}
			cfg.Dir = cmp.Or(at.dir, cfg.Dir)
			found, err := launcher.Recover(cfg, dry)
			switch {
			case found != nil && asJSON:
				printLine(cmd.OutOrStdout(), newRecovery(found, dry, err))
			case found != nil:
				printRecovery(cmd, found, dry)
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only show what would be done")
	return cmd
}

// printRecovery prints what Recover has found, in the past tense if it was done and as a plan with
// --dry-run. The processes choose their ids and commands, so both are cleaned of control
// characters.
func printRecovery(cmd *cobra.Command, found *launcher.Recovery, dry bool) {
	out := cmd.OutOrStdout()
	what := func(done, planned string) string {
		if dry {
			return planned
		}
		return done
	}
	for _, p := range found.Ended {
		fmt.Fprintf(out, "%s: %s (pid %d), which was to be killed with its launcher\n", what("killed", "to be killed"), clean(p.ID+", "+p.Command), p.PID)
	}
	for _, p := range found.Processes {
		fmt.Fprintf(out, "the next launcher adopts %s (pid %d)\n", clean(p.ID+", "+p.Command), p.PID)
	}
	for _, group := range slices.Sorted(maps.Keys(found.Listeners)) {
		fmt.Fprintf(out, "the next launcher takes over the listeners of %s: %s\n", clean(group), found.Listeners[group])
	}
	switch {
	case found.Damage == nil && len(found.Processes)+len(found.Ended) == 0:
		fmt.Fprintf(out, "nothing to recover: %s is intact or missing, and no process was found that it lacks\n", found.StateFile)
	case found.Damage == nil:
		fmt.Fprintf(out, "%s %s\n", found.StateFile, what("was completed", "is intact, and would be completed"))
	case dry:
		fmt.Fprintf(out, "%s would be renamed and replaced: %v\n", found.StateFile, found.Damage)
	case found.SetAside != "":
		fmt.Fprintf(out, "%s was damaged (%v), and is now %s\n", found.StateFile, found.Damage, found.SetAside)
	}
}

// A recovery is the JSON output of the command recover. Lists that are empty are [] and not null,
// so a script can iterate over them. Damage is empty if the state file is intact or missing.
type recovery struct {
	StateFile string            `json:"stateFile"`
	DryRun    bool              `json:"dryRun"`
	Damage    string            `json:"damage,omitempty"`
	SetAside  string            `json:"setAside,omitempty"`
	Adopted   []recovered       `json:"adopted"` // processes that the next launcher adopts
	Ended     []recovered       `json:"ended"`
	Listeners map[string]string `json:"listeners"`       // addresses that the next launcher takes over, by group
	Error     string            `json:"error,omitempty"` // why the command failed, if it did so after it had found the above
}

// recovered is [launcher.Recovered] with keys for JSON. Its fields must have the same order,
// because newRecovery converts a launcher.Recovered to this type.
type recovered struct {
	ID      string `json:"processId"`
	PID     int    `json:"pid"`
	Command string `json:"command"`
}

// newRecovery converts the results of launcher.Recover into the output of the command recover.
func newRecovery(found *launcher.Recovery, dry bool, err error) recovery {
	out := recovery{StateFile: found.StateFile, DryRun: dry, SetAside: found.SetAside, Adopted: []recovered{}, Ended: []recovered{}, Listeners: found.Listeners}
	if found.Damage != nil {
		out.Damage = found.Damage.Error()
	}
	if err != nil {
		out.Error = err.Error()
	}
	for _, p := range found.Processes {
		out.Adopted = append(out.Adopted, recovered(p))
	}
	for _, p := range found.Ended {
		out.Ended = append(out.Ended, recovered(p))
	}
	return out
}
