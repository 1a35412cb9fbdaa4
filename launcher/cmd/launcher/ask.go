package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/swansong-go/swansong/internal/worktext"
	"github.com/swansong-go/swansong/launcher/internal/peer"
	"github.com/swansong-go/swansong/launcher/internal/transport"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// answerTimeout bounds the calls of a command to the launcher, unless the user asked to wait: a
// launcher that hangs or is suspended never answers.
const answerTimeout = 5 * time.Second

// ask calls the launcher. If wait is true, the call can take until the user interrupts it by ^C;
// otherwise it ends after answerTimeout.
//
// It turns the codes of gRPC into messages that say whether the order may have been carried out:
// the launcher was never reached, it has ended during the call, it does not answer, or the user has
// interrupted the command.
//
// f may make several calls; answerTimeout bounds all of them together. An error of f without a code
// of gRPC, such as one that f itself has made, is returned as it is.
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
	// The launcher itself can answer with the code DeadlineExceeded, for instance for a deadline of
	// its own. Only if ctx has ended, too, the code means that answerTimeout has passed. Likewise,
	// Canceled means an interrupt only if ctx has ended.
	case status.Code(err) == codes.DeadlineExceeded && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("launcher: no answer from %s within %v: the launcher hangs or is suspended, and may or may not have done what was asked. "+
			"Check its process; SIGCONT resumes a suspended one", where, answerTimeout)
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
//
// The cases differ in what the user can do: other files for TLS, another user, a look at why the
// launcher has ended, or another directory.
//
// The cases are told apart by grpcMessage, the message of package grpc, because all have the code
// Unavailable. The message contains "while dialing" if no connection was made, and otherwise the
// connection was lost during the call. The text in parentheses is for the cases that no sentence
// here foresees.
func unreachable(at *place, where, grpcMessage string) error {
	plain := transport.ExplainUnavailable(grpcMessage)
	// This is the text of package grpc that stands before the error of TLS. That error says whether
	// the client or the launcher has refused, and what.
	const handshake = "authentication handshake failed: "
	switch _, refused, found := strings.Cut(strings.TrimSuffix(grpcMessage, `"`), handshake); {
	case found && at.remote != "":
		return fmt.Errorf("launcher: TLS with %s failed: %s; check --cert, --key, --ca, and the host in --remote", where, refused)
	case at.remote == "" && ofAnother(where):
		return fmt.Errorf("launcher: the launcher at %s belongs to another user; run the command as that user, or as root (%s)", where, plain)
	case at.remote == "" && !strings.Contains(grpcMessage, "while dialing"): // the command was connected, so the launcher ended during the call
		return fmt.Errorf("launcher: the launcher at %s exited before it answered, and may or may not have done what was asked; check whether it runs again (%s)", where, plain)
	case at.remote != "":
		return fmt.Errorf("launcher: cannot connect to %s; is a launcher running there, with this admin.address? (%s)", where, plain)
	}
	return fmt.Errorf("launcher: cannot connect to %s; is a launcher running there? Name its directory by --dir, or its file by -f (%s)", where, plain)
}

// ofAnother reports whether the launcher that listens on the socket belongs to another user. Such a
// launcher answers only its own user and root. The directory of a launcher has mode 0700. So if
// this user may not search the directory, the launcher belongs to another user.
func ofAnother(socket string) bool {
	info, err := os.Stat(socket)
	return errors.Is(err, fs.ErrPermission) || err == nil && os.Geteuid() != 0 && peer.OfAnother(info)
}

// watch calls the launcher for a command that can run until the user interrupts it by ^C. If goesOn
// is true, the command runs until ^C. Then ^C is no error, so the exit code is 0. Otherwise the
// call has the limit of answerTimeout.
func watch(cmd *cobra.Command, at *place, goesOn bool, f func(ctx context.Context, to pb.LauncherAdminInterfaceClient) error) error {
	return ask(cmd, at, goesOn, func(ctx context.Context, to pb.LauncherAdminInterfaceClient) error {
		err := f(ctx, to)
		// If goesOn is true, ctx has no deadline, so only ^C or SIGTERM can have ended it. That is
		// no error.
		if goesOn && ctx.Err() != nil {
			return nil
		}
		return err
	})
}

// drainCommand returns the command drain. It requires the flag --dry-run: a user who expects that
// drain stops something must not take its output for the result of a drain.
//
// The launcher asks the processes for their work in flight, so a row is what a process says now.
// The row of a process that does not answer has a message that says so.
func drainCommand(at *place) *cobra.Command {
	var dry, asJSON bool
	cmd := &cobra.Command{
		Use:               "drain --dry-run [group|process ...]",
		Short:             "Show what a shutdown would have to wait for, without stopping anything",
		Long:              "Show what a shutdown would have to wait for, without stopping anything: for all groups, or for these groups and processes. If a name is that of a group and of a process, both are shown.",
		Args:              takes(0, many, ""),
		ValidArgsFunction: at.complete(groupsAndProcesses),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !dry {
				return errors.New("launcher: drain needs --dry-run; to stop all groups, send SIGTERM to the launcher")
			}
			return ask(cmd, at, false, func(ctx context.Context, to pb.LauncherAdminInterfaceClient) error {
				all := &pb.DryRunShutdownResponse{}
				for _, name := range orAll(args) {
					found, err := dryRun(ctx, to, name)
					if err != nil {
						return err
					}
					all.Processes = append(all.Processes, found...)
				}
				if asJSON {
					return printJSON(cmd.OutOrStdout(), all, true)
				}
				if len(all.Processes) == 0 {
					fmt.Fprintln(cmd.OutOrStdout(), "no process is running, so a shutdown would wait for nothing")
				}
				table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
				for _, p := range all.Processes {
					m := p.GetMetrics()
					fmt.Fprintf(table, "%s\t%s\t%d in flight\t%s\t%s\tat most %v\t%s\n", clean(p.GetProcessId()), p.GetState(),
						m.GetInFlightRequests(), worktext.Pluralize(int(m.GetOpenConnections()), "connection"), worktext.Pluralize(int(m.GetBufferedBytes()), "byte"), p.GetBound().AsDuration(),
						clean(cmp.Or(strings.Join(m.GetBlockingOperations(), ", "), p.GetMessage())))
				}
				return table.Flush()
			})
		},
	}
	cmd.Flags().BoolVar(&dry, "dry-run", false, "required, as a reminder that this command stops nothing")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// dryRun asks what a shutdown would have to wait for: a shutdown of the group and of the process
// with this name, or of all groups if the name is empty. The user need not say whether the name is
// that of a group or of a process. A name that is neither is an error.
func dryRun(ctx context.Context, to pb.LauncherAdminInterfaceClient, name string) (all []*pb.DryRun, err error) {
	requests := []*pb.DryRunShutdownRequest{{Group: name}}
	if name != "" {
		requests = append(requests, &pb.DryRunShutdownRequest{ProcessId: name})
	}
	unknown := 0
	for _, in := range requests {
		out, err := to.DryRunShutdown(ctx, in)
		switch {
		case status.Code(err) == codes.NotFound:
			unknown++
		case err != nil:
			return nil, err
		}
		all = append(all, out.GetProcesses()...)
	}
	if unknown == len(requests) {
		return nil, fmt.Errorf("launcher: neither a group nor a process has the name %q; run launcher status to list them", name)
	}
	return all, nil
}

// orAll returns the names, or the empty name if there is none. In the protocol the empty name
// stands for everything, so one call shows all groups.
func orAll(names []string) []string {
	if len(names) == 0 {
		return []string{""}
	}
	return names
}

// eventsCommand returns the command events. It shows no events of the past, because the launcher
// keeps none: they are in its log.
func eventsCommand(at *place) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:               "events [group ...]",
		Short:             "Show events as they happen, until ^C",
		Args:              takes(0, many, ""),
		ValidArgsFunction: at.complete(groups),
		RunE: func(cmd *cobra.Command, args []string) error {
			return watch(cmd, at, true, func(ctx context.Context, to pb.LauncherAdminInterfaceClient) error {
				out := &streamPrinter{cmd.OutOrStdout(), asJSON}
				return receiveAll(ctx, orAll(args), func(ctx context.Context, name string) (grpc.ServerStreamingClient[pb.Event], error) {
					return to.WatchEvents(ctx, &pb.WatchEventsRequest{Group: name})
				}, func(e *pb.Event) error { return out.print(e, e.GetMissed(), func() string { return eventLine(e) }) })
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print each event as a JSON object on a line of its own")
	return cmd
}

// eventLine returns an event in a line, followed by its stack, indented, if it has one. An event
// that changes the state of a process is shown by the new state, and any other one by its kind.
func eventLine(e *pb.Event) string {
	what := e.GetKind()
	if e.GetTo() != 0 {
		what = e.GetTo().String()
	}
	line := fmt.Sprintf("%s %s %s %s", clock(e.GetTime()), clean(cmp.Or(e.GetProcessId(), e.GetGroup())), what, clean(e.GetMessage()))
	for more := range strings.Lines(e.GetStack()) {
		line += "\n    " + strings.TrimRight(clean(strings.ReplaceAll(more, "\t", "    ")), " ")
	}
	return line
}

// clock returns a time of day in the time zone of the user, so that the user can compare it with
// other logs. The output as JSON has the complete time in UTC.
func clock(at *timestamppb.Timestamp) string { return at.AsTime().Local().Format("15:04:05.000") }
