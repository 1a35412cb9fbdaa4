package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

// takes checks how many arguments there are, at least and at most. Which is the question that somebody who has left one out has
// not answered, and says where to look.
func takes(least, most int, which string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return fmt.Errorf("launcher: %s %s", cmd.Name(), which)
		case len(args) <= most:
			return nil
		case most == 0:
			return fmt.Errorf("launcher: %s takes no argument, and there is %q", cmd.Name(), args[0])
		}
		return fmt.Errorf("launcher: %s takes one argument, and after %q there is %q; call it once for each", cmd.Name(), args[0], args[1])
	}
}

// wrongFlag says of which command a flag is not.
func wrongFlag(cmd *cobra.Command, err error) error {
	return fmt.Errorf("launcher: %s: %w; %s --help lists those that there are", cmd.Name(), err, cmd.CommandPath())
}
