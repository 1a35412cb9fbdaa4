package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/launcher"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The main thread starts all processes, so that an upgrade does not lose them. It has to be locked
// in init: only there it is certain that the main goroutine runs on the main thread.
func init() { runtime.LockOSThread() }

// confirmTimeout bounds how long the command upgrade waits for the new program to answer. It begins
// when the earlier program has been replaced, so it covers only the start of the new one.
const confirmTimeout = 30 * time.Second

// upgradeCommand returns the command upgrade. The program is looked up here, in the PATH and the
// working directory of the user and not in those of the launcher. The id distinguishes this upgrade
// from others when confirm asks the new program.
//
// The command may wait without a limit: the launcher itself bounds each step of an upgrade.
func upgradeCommand(at *place) *cobra.Command {
	in := &pb.UpgradeRequest{}
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "upgrade [program]",
		Short: "Have another version of the launcher take over, with all processes",
		Long: "Have another version of the launcher take over in the same process, without stopping anything: processes, their output, " +
			"listeners and rolls go on. Without a program, it is the one at the path that the launcher was started with. The launcher's file is read " +
			"again, and its changes are applied, also those that a reload refuses, such as other addresses. If the new version cannot take " +
			"over, the launcher goes on as it is. SIGUSR2 does the same. Linux only.",
		Args: takes(0, 1, ""),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveDefault
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				path, err := exec.LookPath(args[0])
				if err == nil {
					path, err = filepath.Abs(path)
				}
				if err != nil {
					return fmt.Errorf("launcher: %w", err)
				}
				in.Program = path
			}
			in.Id = rand.Text()
			return ask(cmd, at, true, func(ctx context.Context, to pb.LauncherAdminInterfaceClient) error {
				out, err := to.Upgrade(ctx, in)
				// When the new program is executed, the connection ends, and the call fails with
				// Unavailable.
				//
				// If the error contains "while dialing", no connection was made, because no
				// launcher runs.
				if status.Code(err) == codes.Unavailable && !strings.Contains(status.Convert(err).Message(), "while dialing") {
					out, err = confirm(ctx, to, in.GetId())
				}
				switch {
				case err != nil:
					return err
				case asJSON:
					return printJSON(cmd.OutOrStdout(), out, true)
				}
				fmt.Fprintln(cmd.OutOrStdout(), out.GetMessage())
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&in.DryRun, "dry-run", false, "only ask the program whether it could take over")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().StringVar(&in.Reason, "reason", "", "reason, for the log")
	return cmd
}

// confirm asks the new program whether it has taken over.
//
// Until then the socket of the launcher does not answer, so calls wait for it, for confirmTimeout
// at most. The socket itself stays open all the time, so a connection is not refused but waits. If
// it is refused, the new program has ended. An error NotFound means that the program that answers
// knows nothing of this upgrade: for instance because the launcher was killed meanwhile and started
// again.
func confirm(ctx context.Context, to pb.LauncherAdminInterfaceClient, id string) (*pb.UpgradeResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, confirmTimeout)
	defer cancel()
	for {
		out, err := to.Upgrade(ctx, &pb.UpgradeRequest{Id: id, Confirm: true})
		why := status.Convert(err).Message()
		switch {
		case strings.Contains(why, "connect: no such file or directory"), strings.Contains(why, "connect: connection refused"):
			return nil, errors.New("launcher: the new program has ended before it has taken over, so the launcher does not run any more; " +
				"the log of the launcher may say why. Check whether it was started again, and start it otherwise")
		case errors.Is(ctx.Err(), context.DeadlineExceeded):
			return nil, fmt.Errorf("launcher: the new program has not answered for %v; launcher status says whether it has taken over", confirmTimeout)
		case status.Code(err) != codes.Unavailable:
			return out, err
		}
		ctxshutdown.Sleep(ctx, 10*time.Millisecond) // try again: the earlier program may have accepted the call just before it was replaced
	}
}

// upgradeCheckCommand answers a launcher that asks whether this program could take over from it.
//
// It parses the arguments of that launcher, and runs the command run with them, under a context
// that stops the command before it starts anything. So flags that this version does not have are
// found before the upgrade and not after it.
func upgradeCheckCommand() *cobra.Command {
	var metricsNow string
	cmd := &cobra.Command{
		Use:    "upgrade-check -- argument ...",
		Short:  "Say whether this program could take over from a launcher with these arguments",
		Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			asked := root()
			if c, _, err := asked.Find(args); err != nil || c.Name() != "run" {
				return fmt.Errorf("launcher: the new program was started with the arguments %q; only \"launcher run\" can take over from a running launcher", args)
			}
			asked.SetArgs(args)
			return asked.ExecuteContext(context.WithValue(cmd.Context(), checkOnly{}, metricsNow))
		},
	}
	cmd.Flags().StringVar(&metricsNow, "metrics-now", "", "`address` where the running launcher serves its metrics")
	return cmd
}

// In an upgrade, the launcher first executes the new program to ask whether that program could take
// over. checkOnly is the key of a context value that makes the command "run" only answer that. The
// value is the address where the launcher that asks serves its metrics.
type checkOnly struct{}

// tryMetrics returns an error if an address for metrics is in use. The port of the launcher that
// asks is not tried, because it is free only after the upgrade. Another program can take the port
// after the check; the new program then goes on without metrics, and logs that.
func tryMetrics(address, now string) error {
	host, port, err := net.SplitHostPort(address)
	if address == "" || err != nil { // the check of the configuration has already reported an invalid address
		return nil
	}
	if _, portNow, _ := net.SplitHostPort(now); port == portNow {
		return nil
	}
	ln, err := net.Listen("tcp", net.JoinHostPort(cmp.Or(host, "127.0.0.1"), port))
	if err != nil {
		return &launcher.ConfigError{Field: "Metrics.Address", Rule: err.Error()}
	}
	return ln.Close()
}

// upgradeOnSignal upgrades the launcher on each of the signals, to the program at the path that it
// was started with, until the launcher is stopped. An upgrade that succeeds does not return, so the
// loop goes on only after one that has failed.
func upgradeOnSignal(s *ctxshutdown.Swansong, m *launcher.Manager, errs io.Writer, signals <-chan os.Signal) {
	logger := slog.New(slog.NewTextHandler(errs, nil))
	for {
		select {
		case <-signals:
		case <-s.Done():
			return
		}
		if err := m.Upgrade(s, "", "SIGUSR2"); err != nil {
			logger.Error("upgrade", "error", err.Error())
		}
	}
}

// notifyUpgrade returns a channel of the signals that order an upgrade. Without such a signal on
// this system the channel stays empty: Notify with no signals would deliver all of them.
func notifyUpgrade() <-chan os.Signal {
	c := make(chan os.Signal, 1)
	if len(upgradeSignals) > 0 {
		signal.Notify(c, upgradeSignals...)
	}
	return c
}
