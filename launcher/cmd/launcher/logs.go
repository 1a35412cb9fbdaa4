package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
)

func logsCommand(at *place) *cobra.Command {
	in := &pb.ReadLogsRequest{}
	var lines int
	cmd := &cobra.Command{
		Use:   "logs [group|process]",
		Short: "Show the output of processes",
		Long: "Show the latest output of processes, without secrets. The launcher keeps up to 1,000 lines and 64 KiB of each process. " +
			"The complete output is where the configuration says.",
		Args:              takes(0, 1, ""),
		ValidArgsFunction: at.complete(groupsAndProcesses),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				in.Name = args[0]
			}
			if lines < 0 {
				return fmt.Errorf("launcher: --lines must be 0 or more, not %d", lines)
			}
			in.Lines = int32(min(lines, 1<<20))
			return watch(cmd, at, in.Follow, func(ctx context.Context, to pb.LauncherAdminInterfaceClient) error {
				stream, err := to.ReadLogs(ctx, in)
				if err != nil {
					return err
				}
				return printAll(cmd.OutOrStdout(), stream, func(l *pb.LogLine) string {
					return fmt.Sprintf("%s %s %s | %s", clock(l.GetTime()), clean(l.GetProcessId()), l.GetStream(), clean(l.GetText()))
				})
			})
		},
	}
	cmd.Flags().IntVarP(&lines, "lines", "n", 100, "number of lines")
	cmd.Flags().BoolVar(&in.Follow, "follow", false, "continue with new lines, until ^C")
	return cmd
}
