package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

// many, as the largest number of arguments, means that there is no limit.
const many = -1

// takes returns a check for cobra: a command accepts at least minArgs and at most maxArgs
// arguments. If an argument is missing, the error ends with question, a text that asks for the
// argument and says where to find it. The question is not used if minArgs is 0. Cobra's own checks
// would only print the numbers that were expected and found.
//
// The message for too many arguments assumes that maxArgs is 0, 1 or many; no command has another
// limit.
func takes(minArgs, maxArgs int, question string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < minArgs:
			return fmt.Errorf("launcher: %s %s", cmd.Name(), question)
		case maxArgs == many || len(args) <= maxArgs:
			return nil
		case maxArgs == 0:
			return fmt.Errorf("launcher: %s takes no argument, but got %q", cmd.Name(), args[0])
		}
		return fmt.Errorf("launcher: %s takes one argument, but got %q and %q; run it once for each", cmd.Name(), args[0], args[1])
	}
}

// wrongFlag completes the error for an unknown flag by the name of the command that does not have
// the flag, and by the command that lists those that it has.
func wrongFlag(cmd *cobra.Command, err error) error {
	return fmt.Errorf("launcher: %s: %w; %s --help lists the flags", cmd.Name(), err, cmd.CommandPath())
}
