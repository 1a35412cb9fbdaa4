package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

// many, as the largest number of arguments, means that there is no limit.
const many = -1

// takes returns a check for cobra: a command accepts at least the number of arguments in least, and
// at most the number in most. If an argument is missing, the error ends with question, a text that
// asks for the argument and says where to find it. The question is not used if least is 0. Cobra's
// own checks would only print the numbers that were expected and found.
//
// The message for too many arguments assumes that most is 0, 1 or many; no command has another
// limit.
func takes(least, most int, question string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return fmt.Errorf("launcher: %s %s", cmd.Name(), question)
		case most == many || len(args) <= most:
			return nil
		case most == 0:
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
