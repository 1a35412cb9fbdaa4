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

// answerTimeout bounds a call to the launcher, unless the user asked to wait.
const answerTimeout = 5 * time.Second

// ask calls the launcher. If wait is true, the call can take until the user interrupts it by ^C;
// otherwise it ends after answerTimeout.
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
		ctx, cancel = context.WithTimeout(ctx, answerTimeout)
		defer cancel()
	}
	err = f(ctx, to)
	switch {
	case err == nil:
		return nil
	case status.Code(err) == codes.Unavailable:
		return unreachable(at, where, status.Convert(err).Message())
	case status.Code(err) == codes.DeadlineExceeded && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("launcher: no answer from %s within %v: the launcher hangs or is suspended, and may or may not have done what was asked. "+
			"Check its process; SIGCONT resumes a suspended one (%s)", where, answerTimeout, status.Convert(err).Message())
	case status.Code(err) == codes.Canceled && ctx.Err() != nil:
		return errors.New("launcher: the command was interrupted; the launcher still carries out what was requested")
	}
	if st, ok := status.FromError(err); ok {
		return errors.New(st.Message())
	}
	return err
}

// unreachable returns the error for a launcher that does not answer. The error says what to do
// about that.
func unreachable(at *place, where, why string) error {
	const handshake = "authentication handshake failed: "
	switch _, refused, found := strings.Cut(strings.TrimSuffix(why, `"`), handshake); {
	case found && at.remote != "":
		return fmt.Errorf("launcher: TLS with %s failed: %s; check --cert, --key, --ca, and the host in --remote", where, refused)
	case at.remote == "" && ofAnother(where):
		return fmt.Errorf("launcher: the launcher at %s belongs to another user; run the command as that user, or as root (%s)", where, why)
	case at.remote == "" && !strings.Contains(why, "while dialing"): // the connection existed, so the launcher ended during the call
		return fmt.Errorf("launcher: the launcher at %s exited before it answered, and may or may not have done what was asked; check whether it runs again (%s)", where, why)
	case at.remote != "":
		return fmt.Errorf("launcher: cannot connect to %s; is a launcher running there, with this admin.address? (%s)", where, why)
	}
	return fmt.Errorf("launcher: cannot connect to %s; is a launcher running there? Name its directory by --dir, or its file by -f (%s)", where, why)
}

// ofAnother reports whether the launcher that listens on the socket belongs to another user. Such a
// launcher answers only its own user and root.
func ofAnother(socket string) bool {
	info, err := os.Stat(socket)
	return errors.Is(err, fs.ErrPermission) || err == nil && os.Geteuid() != 0 && peer.OfAnother(info)
}

// watch calls the launcher for a command that can run until the user interrupts it by ^C. If goesOn
// is true, the command would run for ever, and ^C is not an error.
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
		Args:              takes(1, 1, "which process? status lists them"),
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
	cmd.Flags().BoolVar(&in.Wait, "wait", false, "wait until the process has exited")
	cmd.Flags().BoolVar(&in.NoReplacement, "no-replacement", false, "do not replace the process: scale the group down by one")
	cmd.Flags().DurationVar(&grace, "grace", 0, "time in which the process must drain, unless it asks for more (default: as configured)")
	cmd.Flags().StringVar(&in.Reason, "reason", "", "reason, for the log")
	return cmd
}

func restartCommand(at *place) *cobra.Command {
	in := &pb.RestartGroupRequest{}
	var resume, rollback bool
	cmd := &cobra.Command{
		Use:   "restart group",
		Short: "Replace all processes of a group, without a gap",
		Long: "Replace all processes of a group, by the rules of its configuration. --resume continues a paused roll. --rollback undoes a paused or " +
			"running roll. Without these flags a new roll begins, with the configuration that the group has. A paused roll is " +
			"abandoned; to roll to its configuration, reload.",
		Args:              takes(1, 1, "which group? status lists them"),
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
	cmd.Flags().BoolVar(&resume, "resume", false, "continue the paused roll")
	cmd.Flags().BoolVar(&rollback, "rollback", false, "undo the paused or running roll")
	cmd.MarkFlagsMutuallyExclusive("resume", "rollback")
	cmd.Flags().BoolVar(&in.Wait, "wait", false, "wait until the last process has been replaced, or the roll has failed")
	cmd.Flags().StringVar(&in.Reason, "reason", "", "reason, for the log")
	return cmd
}

func drainCommand(at *place) *cobra.Command {
	var dry bool
	cmd := &cobra.Command{
		Use:               "drain --dry-run [group|process]",
		Short:             "Show what a shutdown would have to wait for, without stopping anything",
		Long:              "Show what a shutdown would have to wait for, without stopping anything: for all groups, for one group, or for one process. If a group and a process have the name, both are shown.",
		Args:              takes(0, 1, ""),
		ValidArgsFunction: at.complete(groupsAndProcesses),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !dry {
				return errors.New("launcher: drain needs --dry-run; to stop all groups, send SIGTERM to the launcher")
			}
			name := ""
			if len(args) > 0 {
				name = args[0]
			}
			return ask(cmd, at, false, func(ctx context.Context, to pb.LauncherAdminInterfaceClient) error {
				requests := []*pb.DryRunShutdownRequest{{Group: name}}
				if name != "" {
					requests = append(requests, &pb.DryRunShutdownRequest{ProcessId: name})
				}
				var all []*pb.DryRun
				unknown := 0
				for _, in := range requests {
					out, err := to.DryRunShutdown(ctx, in)
					switch {
					case status.Code(err) == codes.NotFound:
						unknown++
					case err != nil:
						return err
					}
					all = append(all, out.GetProcesses()...)
				}
				if unknown == len(requests) {
					return fmt.Errorf("launcher: neither a group nor a process has the name %q; status lists them", name)
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
	cmd.Flags().BoolVar(&dry, "dry-run", false, "required: drain never stops anything")
	return cmd
}

func eventsCommand(at *place) *cobra.Command {
	return &cobra.Command{
		Use:               "events [group]",
		Short:             "Show events as they happen, until ^C",
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
					line := fmt.Sprintf("%s %s %s %s", clock(e.GetTime()), clean(cmp.Or(e.GetProcessId(), e.GetGroup())), what, clean(e.GetMessage()))
					for more := range strings.Lines(e.GetStack()) {
						line += "\n    " + strings.TrimRight(clean(strings.ReplaceAll(more, "\t", "    ")), " ")
					}
					return line
				})
			})
		},
	}
}

// printAll prints a line for each message of a stream until the stream ends. Where messages were
// lost, it prints how many.
func printAll[T interface{ GetMissed() int32 }](w io.Writer, stream interface{ Recv() (T, error) }, line func(T) string) error {
	for {
		next, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if next.GetMissed() > 0 {
			fmt.Fprintf(w, "(%d lost)\n", next.GetMissed())
		}
		fmt.Fprintln(w, line(next))
	}
}

func clock(at *timestamppb.Timestamp) string { return at.AsTime().Local().Format("15:04:05.000") }
