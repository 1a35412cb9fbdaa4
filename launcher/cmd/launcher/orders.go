package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/swansong-go/swansong/launcher/internal/spec"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// A result is what has become of an order for one name, and the JSON output for it. An order that
// was refused has an Error and no Message.
type result struct {
	Name    string `json:"name"`
	Message string `json:"message,omitempty"`
	Error   string `json:"error,omitempty"`
}

// orders describes a command that gives an order for each of several names. Cobra sets the fields
// by the flags, before the command runs.
type orders struct {
	json, wait bool
	reason     string
}

// flags adds the flags that all commands with orders have. The help text of the flag --wait is
// "wait until", followed by the condition. If condition is empty, there is no flag --wait, because
// the order is done when the launcher has answered.
func (o *orders) flags(cmd *cobra.Command, condition string) {
	cmd.Flags().BoolVar(&o.json, "json", false, "print a JSON object for each name, each on a line of its own")
	if condition != "" {
		cmd.Flags().BoolVar(&o.wait, "wait", false, "wait until "+condition)
	}
	cmd.Flags().StringVar(&o.reason, "reason", "", "reason, for the log")
}

// give gives the order for all names at the same time, and prints the results in the order of the
// names. An order that the launcher refuses does not keep the others from being given.
//
// The function prepare, unless nil, is called once before; if it returns an error, no order is
// given. The function order is called on several goroutines at once, and returns the message of the
// launcher. The orders go out together because each can wait, with --wait, for minutes.
func (o *orders) give(cmd *cobra.Command, at *place, names []string, prepare func(context.Context, pb.LauncherAdminInterfaceClient) error,
	order func(ctx context.Context, to pb.LauncherAdminInterfaceClient, name string) (string, error)) error {
	var results []result
	var errs []error
	err := ask(cmd, at, o.wait, func(ctx context.Context, to pb.LauncherAdminInterfaceClient) error {
		if prepare != nil {
			if err := prepare(ctx, to); err != nil {
				return err
			}
		}
		results, errs = make([]result, len(names)), make([]error, len(names))
		var all sync.WaitGroup
		for i, name := range names {
			all.Go(func() {
				message, err := order(ctx, to, name)
				if results[i], errs[i] = (result{Name: name, Message: message}), err; err != nil {
					results[i].Error = status.Convert(err).Message()
				}
			})
		}
		all.Wait()
		return joined(results, errs)
	})
	for i := range results {
		if isUnanswered(errs[i]) {
			results[i].Error = err.Error() // the message that stderr gets, too
		}
	}
	o.print(cmd.OutOrStdout(), results)
	return err
}

// orderGroup gives an order to a group, and returns what the launcher says. After an error that is
// the empty string.
func (o *orders) orderGroup(ctx context.Context, to pb.LauncherAdminInterfaceClient, in *pb.OrderGroupRequest) (string, error) {
	in.Reason, in.Wait = o.reason, o.wait
	out, err := to.OrderGroup(ctx, in)
	return out.GetMessage(), err
}

// print prints results. Without --json, it leaves out the errors, which execute prints later.
func (o *orders) print(w io.Writer, results []result) {
	for _, r := range results {
		switch {
		case o.json:
			printLine(w, r)
		// If the user has given only one name, the message is clear without it.
		case r.Error == "" && len(results) > 1:
			fmt.Fprintf(w, "%s: %s\n", r.Name, r.Message)
		case r.Error == "":
			fmt.Fprintln(w, r.Message)
		}
	}
}

// isUnanswered reports whether an error means that the launcher could not be reached, or has not
// answered.
func isUnanswered(err error) bool {
	code := status.Code(err)
	return code == codes.Unavailable || code == codes.DeadlineExceeded || code == codes.Canceled
}

// joined returns the errors of all names as one. If the launcher could not be reached, or has not
// answered, joined returns only that error, because it is the same for all names. It returns it
// unchanged, because the function ask chooses its message by the gRPC code of the error.
func joined(results []result, errs []error) error {
	if i := slices.IndexFunc(errs, isUnanswered); i >= 0 {
		return errs[i]
	}
	var refused []string
	for _, r := range results {
		// Print an error only once: one about a wrong argument, such as a signal that does not
		// exist, is in the results of all names.
		if r.Error != "" && !slices.Contains(refused, r.Error) {
			refused = append(refused, r.Error)
		}
	}
	if len(refused) > 0 {
		return errors.New(strings.Join(refused, "\n"))
	}
	return nil
}

// stopCommand returns the command stop. The names can be groups and processes, so the command asks
// the launcher first which are which. It refuses a name that is both, and flags that are only for
// processes, before anything is stopped.
//
// A name that is both would be ambiguous: a stop of the group ends more than a stop of the process.
// If a group or process is gone when the order arrives, the launcher refuses the order.
func stopCommand(at *place) *cobra.Command {
	o := &orders{}
	in := &pb.StopProcessRequest{}
	var grace time.Duration
	cmd := &cobra.Command{
		Use:   "stop process|group ...",
		Short: "Stop processes, which their groups replace, or whole groups",
		Long: "Stop processes or groups. The group of a process replaces it, unless --no-replacement says otherwise. A group stays stopped until " +
			"start: a reload or the restart of another group does not start it, nor does the next launcher if this one is killed.",
		Args:              takes(1, many, "which process or group? Run launcher status to list them"),
		ValidArgsFunction: at.complete(groupsAndProcesses),
		RunE: func(cmd *cobra.Command, args []string) error {
			// Without the flag the field stays nil, and the launcher uses the configured grace
			// period.
			if cmd.Flags().Changed("grace") {
				if err := checkDurations(cmd); err != nil {
					return err
				}
				in.GracePeriod = durationpb.New(grace)
			}
			isGroup := map[string]bool{}
			prepare := func(ctx context.Context, to pb.LauncherAdminInterfaceClient) error {
				out, err := to.GetGroupHealth(ctx, &pb.GetGroupHealthRequest{})
				if err != nil {
					return err
				}
				for _, name := range args {
					isGroup[name] = slices.Contains(groups(out), name)
					switch {
					case isGroup[name] && slices.Contains(processes(out), name):
						return fmt.Errorf("launcher: %q is the name of a group and of a process; to stop the group, scale it: launcher scale %s=0", name, name)
					case isGroup[name] && (in.NoReplacement || in.GracePeriod != nil):
						return fmt.Errorf("launcher: --no-replacement and --grace are for processes, but %q is a group", name)
					}
				}
				return nil
			}
			return o.give(cmd, at, args, prepare, func(ctx context.Context, to pb.LauncherAdminInterfaceClient, name string) (string, error) {
				if isGroup[name] {
					return o.orderGroup(ctx, to, &pb.OrderGroupRequest{Group: name, Order: pb.GroupOrder_STOP})
				}
				out, err := to.StopProcess(ctx, &pb.StopProcessRequest{ProcessId: name, Reason: o.reason, Wait: o.wait,
					NoReplacement: in.NoReplacement, GracePeriod: in.GracePeriod})
				return out.GetMessage(), err
			})
		},
	}
	o.flags(cmd, "the processes have exited")
	cmd.Flags().BoolVar(&in.NoReplacement, "no-replacement", false, "do not replace the process: scale the group down by one")
	cmd.Flags().DurationVar(&grace, "grace", 0, "time in which the process must drain, unless it asks for more (default: as configured)")
	return cmd
}

// startCommand returns the command start, the inverse of stop for groups. It also starts a group
// again that was given up after too many failures.
func startCommand(at *place) *cobra.Command {
	o := &orders{}
	cmd := &cobra.Command{
		Use:               "start group ...",
		Short:             "Start groups that were stopped or given up",
		Args:              takes(1, many, "which group? Run launcher status to list them"),
		ValidArgsFunction: at.complete(groups),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.give(cmd, at, args, nil, func(ctx context.Context, to pb.LauncherAdminInterfaceClient, name string) (string, error) {
				return o.orderGroup(ctx, to, &pb.OrderGroupRequest{Group: name, Order: pb.GroupOrder_START})
			})
		},
	}
	o.flags(cmd, "the groups are healthy")
	return cmd
}

// scaleCommand returns the command scale. All arguments are checked before the first order is
// given: an error in the last one should not leave half of the groups scaled.
func scaleCommand(at *place) *cobra.Command {
	o := &orders{}
	cmd := &cobra.Command{
		Use:   "scale group=processes ...",
		Short: "Change the number of processes of groups",
		Long: "Change the number of processes of groups, as in scale web=5. That holds until a reload of a file with another number of " +
			"desired_instances, or until the launcher ends; a launcher that adopts processes of the group keeps the number.",
		Args: takes(1, many, "which group, and to how many? As in scale web=5"),
		ValidArgsFunction: at.complete(func(out *pb.GetGroupHealthResponse) (names []string) {
			for _, name := range groups(out) {
				names = append(names, name+"=")
			}
			return names
		}),
		RunE: func(cmd *cobra.Command, args []string) error {
			names, numbers := make([]string, len(args)), map[string]int32{}
			for i, arg := range args {
				name, text, ok := strings.Cut(arg, "=")
				n, err := strconv.ParseInt(text, 10, 32)
				if !ok || err != nil || n < 0 {
					return fmt.Errorf("launcher: scale needs group=processes, as in web=5, not %q", arg)
				}
				if n > spec.MaxProcesses {
					return fmt.Errorf("launcher: %s is too many processes for a group; the most are %d", arg, spec.MaxProcesses)
				}
				// Refuse two numbers of processes for one group: both commands would be sent at the
				// same time, and either could take effect last.
				if _, twice := numbers[name]; twice {
					return fmt.Errorf("launcher: scale has two numbers for %q", name)
				}
				names[i], numbers[name] = name, int32(n)
			}
			return o.give(cmd, at, names, nil, func(ctx context.Context, to pb.LauncherAdminInterfaceClient, name string) (string, error) {
				return o.orderGroup(ctx, to, &pb.OrderGroupRequest{Group: name, Order: pb.GroupOrder_SCALE, Processes: numbers[name]})
			})
		},
	}
	o.flags(cmd, "the groups have the number of processes, and all are ready")
	return cmd
}

// signalCommand returns the command signal. It has no --wait, since a signal is sent when the
// launcher has answered, and nothing says when a process has handled it.
func signalCommand(at *place) *cobra.Command {
	o := &orders{}
	cmd := &cobra.Command{
		Use:   "signal process|group ... signal",
		Short: "Send a signal to processes, such as HUP",
		Long: "Send a signal to processes, or to all processes of groups, but not to their descendants. The name of the signal comes last, as in " +
			"signal web HUP. A process that ends because of the signal has ended by itself, for the restart policy; to stop it, use stop.",
		Args:              takes(2, many, "which process or group, and which signal? As in signal web HUP"),
		ValidArgsFunction: at.complete(groupsAndProcesses),
		RunE: func(cmd *cobra.Command, args []string) error {
			last := len(args) - 1
			return o.give(cmd, at, args[:last], nil, func(ctx context.Context, to pb.LauncherAdminInterfaceClient, name string) (string, error) {
				out, err := to.SignalProcesses(ctx, &pb.SignalProcessesRequest{Name: name, Signal: args[last], Reason: o.reason})
				if err != nil {
					return "", err
				}
				return "sent to " + strings.Join(out.GetProcessIds(), ", "), nil
			})
		},
	}
	o.flags(cmd, "")
	return cmd
}

// restartCommand returns the command restart. Its flags --resume and --rollback are not commands of
// their own, because all three decide about the same thing: the roll of the group.
func restartCommand(at *place) *cobra.Command {
	o := &orders{}
	var resume, rollback bool
	cmd := &cobra.Command{
		Use:   "restart group ...",
		Short: "Replace all processes of groups, without a gap",
		Long: "Replace all processes of groups, by the rules of their configuration. --resume continues a paused roll. --rollback undoes a paused or " +
			"running roll. Without these flags a new roll begins, with the configuration that the group has. A paused roll is " +
			"abandoned; to roll to its configuration, reload.",
		Args:              takes(1, many, "which group? Run launcher status to list them"),
		ValidArgsFunction: at.complete(groups),
		RunE: func(cmd *cobra.Command, args []string) error {
			kind := pb.RollOrder_BEGIN
			switch {
			case resume:
				kind = pb.RollOrder_RESUME
			case rollback:
				kind = pb.RollOrder_ROLLBACK
			}
			return o.give(cmd, at, args, nil, func(ctx context.Context, to pb.LauncherAdminInterfaceClient, name string) (string, error) {
				out, err := to.RestartGroup(ctx, &pb.RestartGroupRequest{Group: name, Order: kind, Reason: o.reason, Wait: o.wait})
				return out.GetMessage(), err
			})
		},
	}
	cmd.Flags().BoolVar(&resume, "resume", false, "continue the paused roll")
	cmd.Flags().BoolVar(&rollback, "rollback", false, "undo the paused or running roll")
	cmd.MarkFlagsMutuallyExclusive("resume", "rollback")
	o.flags(cmd, "the last process has been replaced, or the roll has failed")
	return cmd
}
