package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/swansong-go/swansong/launcher/internal/peer"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// patience is for answers of a launcher that are not waited for on purpose.
const patience = 5 * time.Second

// ask calls the launcher of a directory. With wait true it does so until ^C, otherwise not for long.
func ask(cmd *cobra.Command, at *place, wait bool, f func(ctx context.Context, to pb.LauncherAdminInterfaceClient) error) error {
	to, conn, where, err := at.dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, stop := interruptible(cmd.Context())
	defer stop()
	if !wait {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	err = f(ctx, to)
	switch {
	case err == nil:
		return nil
	case status.Code(err) == codes.Unavailable:
		return unreachable(at, where, status.Convert(err).Message())
	case status.Code(err) == codes.DeadlineExceeded && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("launcher: nothing has come from %s within %v: the launcher hangs, or is stopped, and has perhaps done what it was told. "+
			"See what its process waits for; SIGCONT has one go on that is stopped (%s)", where, patience, status.Convert(err).Message())
	case status.Code(err) == codes.Canceled && ctx.Err() != nil:
		return errors.New("launcher: interrupted; what was begun goes on")
	}
	if st, ok := status.FromError(err); ok {
		return errors.New(st.Message())
	}
	return err
}

// unreachable says what to do about a launcher that cannot be asked.
func unreachable(at *place, where, why string) error {
	const handshake = "authentication handshake failed: "
	switch _, refused, found := strings.Cut(strings.TrimSuffix(why, `"`), handshake); {
	case found && at.remote != "":
		return fmt.Errorf("launcher: no TLS with %s: %s; see --cert, --key, --ca, and the host in --remote", where, refused)
	case at.remote == "" && ofAnother(where):
		return fmt.Errorf("launcher: the launcher at %s belongs to another user; ask as that user, or as root (%s)", where, why)
	case at.remote == "" && !strings.Contains(why, "while dialing"): // there was somebody
		return fmt.Errorf("launcher: the launcher at %s has ended while it was asked; is another one running by now? What it had begun may have been done (%s)", where, why)
	case at.remote != "":
		return fmt.Errorf("launcher: nobody answers at %s; is a launcher running there, with this admin.address? (%s)", where, why)
	}
	return fmt.Errorf("launcher: nobody answers at %s; is a launcher running there? Name its directory by --dir, or its file by -f (%s)", where, why)
}

// ofAnother reports whether a launcher is that of another user, whom the kernel, or the launcher, has it not answer. It answers root.
func ofAnother(socket string) bool {
	info, err := os.Stat(socket)
	return errors.Is(err, fs.ErrPermission) || err == nil && os.Geteuid() != 0 && peer.OfAnother(info)
}

// watch is ask for what may go on until ^C, which is no failure then.
func watch(cmd *cobra.Command, at *place, goesOn bool, f func(ctx context.Context, to pb.LauncherAdminInterfaceClient) error) error {
	return ask(cmd, at, goesOn, func(ctx context.Context, to pb.LauncherAdminInterfaceClient) error {
		err := f(ctx, to)
		if goesOn && ctx.Err() != nil {
			return nil
		}
		return err
	})
}

func stopCommand(at *place) *cobra.Command {
	in := &pb.StopProcessRequest{}
	var grace time.Duration
	cmd := &cobra.Command{
		Use:               "stop process",
		Short:             "Stop one process; its group replaces it",
		Args:              takes(1, 1, "which process? status lists those that there are"),
		ValidArgsFunction: at.complete(processes),
		RunE: func(cmd *cobra.Command, args []string) error {
			in.ProcessId = args[0]
			if cmd.Flags().Changed("grace") {
				if err := checkDurations(cmd); err != nil {
					return err
				}
				in.GracePeriod = durationpb.New(grace)
			}
			return ask(cmd, at, in.Wait, func(ctx context.Context, to pb.LauncherAdminInterfaceClient) error {
				out, err := to.StopProcess(ctx, in)
				if err == nil {
					fmt.Fprintln(cmd.OutOrStdout(), out.GetMessage())
				}
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&in.Wait, "wait", false, "until it has ended")
	cmd.Flags().BoolVar(&in.NoReplacement, "no-replacement", false, "have one process less from now on")
	cmd.Flags().DurationVar(&grace, "grace", 0, "for it to drain, instead of the configured time")
	cmd.Flags().StringVar(&in.Reason, "reason", "", "for the log")
	return cmd
}

func restartCommand(at *place) *cobra.Command {
	in := &pb.RestartGroupRequest{}
	var resume, rollback bool
	cmd := &cobra.Command{
		Use:   "restart group",
		Short: "Replace all processes of a group, without a gap",
		Long: "Replace all processes of a group, by its rules. Where a roll is paused, --resume has it go on, and --rollback has it put " +
			"back what there was; the latter also turns back one that is under way. Without either, a new roll begins, to what the group has: one that is paused is given up for it, and " +
			"what that was to lead to comes by a reload.",
		Args:              takes(1, 1, "which group? status lists those that there are"),
		ValidArgsFunction: at.complete(groups),
		RunE: func(cmd *cobra.Command, args []string) error {
			in.Group = args[0]
			switch {
			case resume:
				in.Order = pb.RollOrder_RESUME
			case rollback:
				in.Order = pb.RollOrder_ROLLBACK
			}
			return ask(cmd, at, in.Wait, func(ctx context.Context, to pb.LauncherAdminInterfaceClient) error {
				out, err := to.RestartGroup(ctx, in)
				if err == nil {
					fmt.Fprintln(cmd.OutOrStdout(), out.GetMessage())
				}
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&resume, "resume", false, "have the roll that is paused go on")
	cmd.Flags().BoolVar(&rollback, "rollback", false, "have the roll that is paused or under way turn back")
	cmd.MarkFlagsMutuallyExclusive("resume", "rollback")
	cmd.Flags().BoolVar(&in.Wait, "wait", false, "until the last process has been replaced, or that has failed")
	cmd.Flags().StringVar(&in.Reason, "reason", "", "for the log")
	return cmd
}

func drainCommand(at *place) *cobra.Command {
	var dry bool
	cmd := &cobra.Command{
		Use:               "drain --dry-run [group|process]",
		Short:             "Show what a shutdown would have to drain, and stop nothing",
		Long:              "Show what a shutdown would have to drain, of all, or of a group, or a process, or both where they have the same name, and stop nothing.",
		Args:              takes(0, 1, ""),
		ValidArgsFunction: at.complete(groupsAndProcesses),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !dry {
				return errors.New("launcher: drain is for --dry-run; to drain all for good, send the launcher a SIGTERM")
			}
			name := ""
			if len(args) > 0 {
				name = args[0]
			}
			return ask(cmd, at, false, func(ctx context.Context, to pb.LauncherAdminInterfaceClient) error {
				whom := []*pb.DryRunShutdownRequest{{Group: name}}
				if name != "" {
					whom = append(whom, &pb.DryRunShutdownRequest{ProcessId: name})
				}
				var all []*pb.DryRun
				unknown := 0
				for _, in := range whom {
					out, err := to.DryRunShutdown(ctx, in)
					switch {
					case status.Code(err) == codes.NotFound:
						unknown++
					case err != nil:
						return err
					}
					all = append(all, out.GetProcesses()...)
				}
				if unknown == len(whom) {
					return fmt.Errorf("launcher: neither a group nor a process has the name %q; status lists those that there are", name)
				}
				table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
				for _, p := range all {
					m := p.GetMetrics()
					fmt.Fprintf(table, "%s\t%s\t%d in flight\t%d connections\t%d bytes\tat most %v\t%s\n", clean(p.GetProcessId()), p.GetState(),
						m.GetInFlightRequests(), m.GetOpenConnections(), m.GetBufferedBytes(), p.GetBound().AsDuration(),
						clean(cmp.Or(strings.Join(m.GetBlockingOperations(), ", "), p.GetMessage())))
				}
				return table.Flush()
			})
		},
	}
	cmd.Flags().BoolVar(&dry, "dry-run", false, "the only thing that it does")
	return cmd
}

func eventsCommand(at *place) *cobra.Command {
	return &cobra.Command{
		Use:               "events [group]",
		Short:             "Show what happens, from now on until ^C",
		Args:              takes(0, 1, ""),
		ValidArgsFunction: at.complete(groups),
		RunE: func(cmd *cobra.Command, args []string) error {
			in := &pb.WatchEventsRequest{}
			if len(args) > 0 {
				in.Group = args[0]
			}
			return watch(cmd, at, true, func(ctx context.Context, to pb.LauncherAdminInterfaceClient) error {
				events, err := to.WatchEvents(ctx, in)
				if err != nil {
					return err
				}
				return printAll(cmd.OutOrStdout(), events, func(e *pb.Event) string {
					what := e.GetKind()
					if e.GetTo() != 0 {
						what = e.GetTo().String()
					}
					return fmt.Sprintf("%s %s %s %s", clock(e.GetTime()), clean(cmp.Or(e.GetProcessId(), e.GetGroup())), what, clean(e.GetMessage()))
				})
			})
		},
	}
}

// printAll prints a line for each of what a launcher sends, to the end of that, and how many were missed.
func printAll[T interface{ GetMissed() int64 }](w io.Writer, stream interface{ Recv() (T, error) }, line func(T) string) error {
	for {
		next, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if next.GetMissed() > 0 {
			fmt.Fprintf(w, "(%d missed)\n", next.GetMissed())
		}
		fmt.Fprintln(w, line(next))
	}
}

func clock(at *timestamppb.Timestamp) string { return at.AsTime().Local().Format("15:04:05.000") }
