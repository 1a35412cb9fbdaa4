package main

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
)

// completionTimeout bounds how long a shell waits for the launcher to list names.
const completionTimeout = time.Second

// A completion has the type of cobra's ValidArgsFunction. It may ignore toComplete, because the
// script in the shell leaves out the names that do not begin with it.
type completion func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective)

// complete returns a function with which the shell completes the arguments. The names come from the
// running launcher, without those that the command line already has.
//
// It returns no names after an error, and reports none: the output of a completion goes to the
// shell, and the command itself reports the error when it is run.
func (p *place) complete(names func(*pb.GetGroupHealthResponse) []string) completion {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		const no = cobra.ShellCompDirectiveNoFileComp
		to, conn, _, err := p.dial()
		if err != nil {
			return nil, no
		}
		defer conn.Close()
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		out, err := to.GetGroupHealth(ctx, &pb.GetGroupHealthRequest{})
		if err != nil {
			return nil, no
		}
		return slices.DeleteFunc(names(out), func(name string) bool { return slices.Contains(args, name) }), no
	}
}

// groups returns the names of all groups, also of those that are stopped.
func groups(out *pb.GetGroupHealthResponse) (names []string) {
	for _, g := range out.GetGroups() {
		names = append(names, g.GetGroup())
	}
	return names
}

// processes returns the ids of the processes that have not ended. Those that have ended stay in a
// status for some time, but an order to one of them has no effect.
func processes(out *pb.GetGroupHealthResponse) (names []string) {
	for _, g := range out.GetGroups() {
		for _, p := range g.GetProcesses() {
			if p.GetOutcome() == pb.Outcome_NOT_ENDED {
				names = append(names, p.GetProcessId())
			}
		}
	}
	return names
}

func groupsAndProcesses(out *pb.GetGroupHealthResponse) []string {
	return append(groups(out), processes(out)...)
}

// choice lets the shell complete the value of a flag. It does not restrict the value, which is
// checked when the command runs.
func choice(cmd *cobra.Command, flag string, values ...string) {
	cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// yamlFile lets the shell complete the first argument with YAML files.
func yamlFile(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return []string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt
}
