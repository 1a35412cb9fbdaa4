package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
	"google.golang.org/grpc"
)

// logsCommand returns the command logs. With --follow, the lines of several names are shown as they
// arrive, because a stream without an end cannot be sorted. Otherwise they are sorted by their
// times.
func logsCommand(at *place) *cobra.Command {
	in := &pb.ReadLogsRequest{}
	var lines int
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "logs [group|process ...]",
		Short: "Show the output of processes",
		Long: "Show the latest output of processes, without secrets. The launcher keeps up to 1,000 lines and 64 KiB of each process. " +
			"The complete output is in the files that the key logs of a group names; without that key, it is on the launcher's standard output.",
		Args:              takes(0, many, ""),
		ValidArgsFunction: at.complete(groupsAndProcesses),
		RunE: func(cmd *cobra.Command, args []string) error {
			if lines < 0 {
				return fmt.Errorf("launcher: --lines must be 0 or more, not %d", lines)
			}
			// The limit 1<<20 is for the conversion to int32, which could overflow. It cuts off no
			// line: the launcher keeps at most 1,000 lines of a process.
			in.Lines = int32(min(lines, 1<<20))
			return watch(cmd, at, in.Follow, func(ctx context.Context, to pb.LauncherAdminInterfaceClient) error {
				out := &streamPrinter{cmd.OutOrStdout(), asJSON}
				show := func(l *pb.LogLine) error {
					return out.print(l, l.GetMissed(), func() string {
						return fmt.Sprintf("%s %s %s | %s", clock(l.GetTime()), clean(l.GetProcessId()), l.GetStream(), clean(l.GetText()))
					})
				}
				// Each stream has a request of its own, because receiveAll opens them at the same
				// time.
				open := func(ctx context.Context, name string) (grpc.ServerStreamingClient[pb.LogLine], error) {
					return to.ReadLogs(ctx, &pb.ReadLogsRequest{Name: name, Lines: in.Lines, Follow: in.Follow})
				}
				if in.Follow || len(args) < 2 {
					return receiveAll(ctx, orAll(args), open, show)
				}
				return showLatest(ctx, args, lines, open, show)
			})
		},
	}
	cmd.Flags().IntVarP(&lines, "lines", "n", 100, "number of lines")
	cmd.Flags().BoolVar(&in.Follow, "follow", false, "continue with new lines, until ^C")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print each line of output as a JSON object on a line of its own")
	return cmd
}

// showLatest shows the latest lines of several groups and processes, in the order of their times.
//
// The launcher sends up to the given number of lines for each name. Which of them are the latest of
// all is known only when all have been read.
func showLatest(ctx context.Context, names []string, lines int, open func(context.Context, string) (grpc.ServerStreamingClient[pb.LogLine], error), show func(*pb.LogLine) error) error {
	var all []*pb.LogLine
	err := receiveAll(ctx, names, open, func(l *pb.LogLine) error { all = append(all, l); return nil })
	if err != nil {
		return err
	}
	slices.SortStableFunc(all, func(a, b *pb.LogLine) int { return a.GetTime().AsTime().Compare(b.GetTime().AsTime()) })
	for _, l := range all[max(0, len(all)-lines):] {
		if err := show(l); err != nil {
			return err
		}
	}
	return nil
}
