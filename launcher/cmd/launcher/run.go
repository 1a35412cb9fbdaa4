package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
	"github.com/swansong-go/swansong/launcher"
	"github.com/swansong-go/swansong/launcher/config"
	"github.com/swansong-go/swansong/launcher/internal/upgrade"
	"github.com/swansong-go/swansong/launcher/metrics"
)

// runCommand returns the command run. Without a file it runs one group, and accepts flags for the
// settings that are used most.
//
// The soft phase of graceful is a second longer than the longest time that a stop of the group can
// take. So the launcher kills a process whose time is over before graceful would cut the drain
// short, and reports which process it was.
func runCommand(at *place) *cobra.Command {
	g := launcher.GroupConfig{}
	var protocol, kind, restart, metricsAt string
	var listen []string
	var whenDone bool
	cmd := &cobra.Command{
		Use:   "run -f file | run [flags] -- command [argument ...]",
		Short: "Run groups of processes until ^C or SIGTERM",
		Long: "Run the groups of a file, or one group that is described by flags, until ^C or SIGTERM. Then all processes are drained; a second " +
			"signal kills those that remain. SIGHUP reloads the file, as the command reload does; without a file, SIGHUP is like SIGTERM. A group that needs more than the flags have is written in a file. SIGUSR2 is like the command upgrade. " +
			"The launcher does not block if its output is not read.\n\nIn the command, {id} stands for the id of " +
			"the process, {dir} for the launcher's directory, and {socket} for a path and {port} for a port that the process can listen on.\n\nThe exit code is 0 " +
			"if all processes have ended in time, 1 after an error or, at the end of jobs, if one has failed, 2 if processes were killed at the stop, at their own deadline or by a second signal, and 3 if some could not be ended.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if at.file != "" {
				if err := onlyFile(cmd, args); err != nil {
					return err
				}
				return runFile(cmd, at, whenDone)
			}
			if len(args) == 0 {
				return errors.New("launcher: nothing to run; name a file by -f, or a command after --")
			}
			if err := checkDurations(cmd); err != nil {
				return err
			}
			g.Command = args
			g.Protocol, g.Restart.Policy = launcher.Protocol(protocol), launcher.RestartPolicy(restart)
			if g.Job = kind == "job"; !g.Job && kind != "service" {
				return fmt.Errorf("launcher: --kind must be service or job, not %q", kind)
			}
			for _, address := range listen {
				g.Listen = append(g.Listen, launcher.Listen{Address: address})
			}
			dir, err := at.directory()
			if err != nil {
				return err
			}
			cfg := launcher.Config{Dir: dir, Groups: []launcher.GroupConfig{g}}
			return run(cmd, cfg, metricsAt, g.Bound()+time.Second, whenDone)
		},
	}
	f := cmd.Flags()
	f.StringVar(&g.Name, "name", "main", "`name` of the group")
	f.BoolVar(&whenDone, "exit-when-done", false, "exit when no process is left, and none will be started unless it is ordered (default if all groups are jobs)")
	f.StringVar(&kind, "kind", "service", "service, or job for processes that run to completion")
	f.IntVar(&g.Desired, "desired", 1, "number of processes")
	f.StringVar(&protocol, "protocol", string(launcher.Auto), "protocol of the processes: grpc, notify (for sd_notify), signals, or auto for whatever they use")
	f.StringVar(&restart, "restart", string(launcher.OnFailure), "which processes are restarted when they exit: on-failure, always, never")
	f.DurationVar(&g.Shutdown.Grace, "grace", 3*time.Second, "time in which a process should drain; what still drains then is reported")
	f.DurationVar(&g.Shutdown.Max, "max", 10*time.Second, "time in which a process must drain, whatever it asks for")
	f.StringVar(&g.Log.Path, "log", "", "`file` for the output of the processes, rotated (default: standard output)")
	f.StringVar(&metricsAt, "metrics", "", "`address` for Prometheus, such as "+metrics.DefaultAddress+" (default: no metrics)")
	choice(cmd, "kind", "service", "job")
	choice(cmd, "protocol", string(launcher.Auto), string(launcher.GRPC), string(launcher.Notify), string(launcher.Signals))
	choice(cmd, "restart", string(launcher.OnFailure), string(launcher.Always), string(launcher.Never))
	f.StringArrayVar(&listen, "listen", nil, "`address` to listen on; the processes inherit the listener (LISTEN_FDS)")
	return cmd
}

// checkDurations returns an error if a duration flag is not positive or too long: 0 would mean the
// default. It looks only at flags that the user has given, and reports all that are wrong.
func checkDurations(cmd *cobra.Command) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if d, other := cmd.Flags().GetDuration(f.Name); other == nil && (d <= 0 || d > longest) {
			err = errors.Join(err, fmt.Errorf("launcher: --%s must be more than 0 and at most %v, not %v; leave it out to use the configured value, or the default",
				f.Name, longest, d))
		}
	})
	return err
}

// onlyFile returns an error for arguments and flags of the command run that cannot be combined with
// a configuration file, which the flag -f names. These are all flags of run but --exit-when-done,
// which has no key in the file. An ignored flag would be worse than an error: a user would see only
// later that the group runs with other settings.
func onlyFile(cmd *cobra.Command, args []string) (err error) {
	if len(args) > 0 {
		return fmt.Errorf("launcher: run -f takes no command, but got %q; the commands are in the file", args[0])
	}
	// LocalNonPersistentFlags leaves out the flags that every command has, such as --dir. These can
	// be combined with -f.
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		if f.Changed && f.Name != "exit-when-done" {
			err = errors.Join(err, fmt.Errorf("launcher: --%s cannot be combined with -f; set it in the configuration file", f.Name))
		}
	})
	return err
}

// runFile runs the groups of a file. --dir overrides the directory in the file, here and in each
// reload.
func runFile(cmd *cobra.Command, at *place, whenDone bool) error {
	load := loadAtStart
	// An upgrade check reads a file that the running launcher has read before, perhaps from a pipe.
	// It must not wait for another program to write to that pipe again.
	if cmd.Context().Value(checkOnly{}) != nil {
		load = config.LoadAgain
	}
	c, source, err := load(at.file)
	if err != nil {
		return err
	}
	cfg := c.Launcher()
	if at.dir != "" {
		cfg.Dir = at.dir
	}
	cfg.Source = c
	// The launcher passes the configuration that was loaded last, but with the earlier
	// configuration of each group whose roll was rolled back.
	cfg.Reread = func(_ context.Context, now any) (launcher.Config, []string, error) {
		return reread(at, now.(*config.Config))
	}
	// The total_deadline is not passed to run, because a reload can change it: the launcher itself
	// enforces it.
	err = run(cmd, cfg, c.Metrics.Address, longest, whenDone)
	if err == nil {
		return nil
	}
	// The lines in the file may have moved since the start, and a user looks for the error in the
	// file as it is now.
	if _, now, err := config.LoadAgain(at.file); err == nil {
		source = now
	}
	return source.Locate(err)
}

// longest is the length of the soft phase of graceful, and the longest duration that a flag
// accepts.
const longest = 24 * time.Hour

// run starts a launcher and returns when the launcher has ended. The soft phase of [graceful.Run]
// lasts longer than the longest shutdown that a group may take. So the launcher always stops its
// processes as their groups are configured, and graceful never cuts that short.
//
// Services run until they are stopped. Jobs end by themselves, and the launcher with the last one,
// so that a script can wait for it and use its exit code: that is the default of --exit-when-done.
//
// The order matters at the beginning: descriptors are kept before anything is started that could
// inherit them, and signals are caught before the launcher starts, because their default actions
// would end this program without a drain.
func run(cmd *cobra.Command, cfg launcher.Config, metricsAt string, bound time.Duration, whenDone bool) error {
	keepDescriptors()
	if !cmd.Flags().Changed("exit-when-done") {
		whenDone = !slices.ContainsFunc(cfg.Groups, func(g launcher.GroupConfig) bool { return !g.Job })
	}
	self, err := thisProgram()
	if err != nil {
		return fmt.Errorf("launcher: %w", err)
	}
	// Logger and Output may block: the launcher writes to both from goroutines of their own, behind
	// queues that are bounded.
	cfg.Logger = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
	cfg.Output = cmd.OutOrStdout()
	out := printed().out // gets the output of the launcher itself; writing to it never blocks
	// The launcher's own program is its helper and its guardian, so only one file has to be
	// installed.
	cfg.Helper = []string{self, "exec", "--"}
	cfg.Guardian = []string{self, "guard"}
	// The check of an upgrade gets the arguments with which the upgrade executes the new program.
	cfg.UpgradeCheck = append([]string{"upgrade-check", "--metrics-now=" + metricsAt, "--"}, os.Args[1:]...)
	// Up to here, an upgrade check runs the same code as a start, so both read the configuration in
	// the same way.
	if now, ok := cmd.Context().Value(checkOnly{}).(string); ok {
		if err := tryMetrics(metricsAt, now); err != nil {
			return err
		}
		return launcher.AnswerUpgradeCheck(cfg, os.Stdin, os.Stdout)
	}
	upgrades := notifyUpgrade()
	// By default, SIGHUP would end the launcher without stopping its processes. So the launcher
	// handles SIGHUP until it ends, also while it starts and while it drains.
	outlivePipes()
	hangup := make(chan os.Signal, 1)
	// Without a file to reload, a launcher that runs under nohup goes on ignoring SIGHUP.
	if cfg.Reread != nil || !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(hangup, syscall.SIGHUP)
	}
	var m *launcher.Manager
	err = graceful.Run(cmd.Context(), func(s *ctxshutdown.Swansong) (err error) {
		if cfg.Reread == nil {
			s.Go(func(context.Context) { stopOnHangup(s, hangup) })
		}
		if m, err = launcher.Start(s, cfg); err != nil {
			return err
		}
		if metricsAt != "" {
			addr, err := metrics.Serve(m, metricsAt)
			switch {
			case err == nil:
				fmt.Fprintf(out, "metrics at http://%v/metrics\n", addr)
			case upgrade.TookOver(): // after an upgrade, a failure to serve metrics must not stop the running processes
				cfg.Logger.Error("metrics are not served; correct their address, and upgrade again", "error", err)
			default:
				return &launcher.ConfigError{Field: "Metrics.Address", Rule: strings.TrimPrefix(err.Error(), "metrics: ")}
			}
		}
		s.Go(func(context.Context) { upgradeOnSignal(s, m, printed().errs, upgrades) })
		if cfg.Reread != nil {
			// cfg.Logger may block, and this logger never does. The goroutine that handles signals
			// must not be blocked by its log.
			logger := slog.New(slog.NewTextHandler(printed().errs, nil))
			s.Go(func(context.Context) { reloadOnHangup(s, m, logger, hangup) })
		}
		printAddresses(out, m, cfg.Groups)
		// Once the launcher is being stopped, the error of serve says only that, and is no failure.
		if err := serve(s, m, out, whenDone); err != nil && s.Err() == nil {
			return err
		}
		return nil
	}, graceful.WithSignals(os.Interrupt, syscall.SIGTERM), // SIGHUP and SIGPIPE are handled above
		graceful.WithSoft(min(bound, longest)), graceful.WithOutput(cmd.ErrOrStderr()))
	if err != nil {
		return err // do not use m, because the function of an abandoned run may still be setting it
	}
	return checkStop(m, printed().errs)
}

// thisProgram returns a path by which exactly this program can be executed again. On Linux that
// holds also after its file has been replaced, as before an upgrade. The guardian and the helper
// thus have the version of the launcher that starts them.
func thisProgram() (string, error) {
	const exe = "/proc/self/exe"
	if _, err := os.Stat(exe); err == nil {
		return exe, nil
	}
	return os.Executable()
}

// serve says when the groups are ready. It returns when the launcher is to end: when it is stopped,
// when the groups cannot become ready, or, with whenDone, when all groups are finished. Its return
// stops whatever still runs.
//
// With whenDone, a group that is given up does not end the launcher at once: the other groups go on
// until they have finished, and then Finished returns what has failed.
func serve(s *ctxshutdown.Swansong, m *launcher.Manager, out io.Writer, whenDone bool) error {
	becomeReady := func() error {
		if err := m.Ready(s); err != nil {
			return err
		}
		fmt.Fprintln(out, "ready")
		graceful.Ready(s)
		return nil
	}
	if whenDone {
		// If a group is given up, Finished returns its error, so the result of becomeReady is not
		// needed.
		s.Go(func(context.Context) { becomeReady() })
		return m.Finished(s)
	}
	if err := becomeReady(); err != nil {
		if !upgrade.TookOver() {
			return err
		}
		// The error is that of a group that was given up before the upgrade. An operator has to
		// mend the group; the launcher must not end because of it.
		graceful.Ready(s)
	}
	<-s.Done()
	return nil
}

// outlivePipes makes a write to a broken stdout or stderr fail. By default, SIGPIPE would end the
// launcher and so its processes. The signal is caught, not ignored, because processes inherit
// ignored signals. Nothing reads the channel, and signals that do not fit are dropped.
func outlivePipes() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// stopOnHangup sends SIGTERM to the launcher on the first SIGHUP. A terminal that closes can send
// several, and a second SIGTERM would cut the drain short. A signal is sent, instead of a call of
// Shutdown, so that package graceful treats it like any other SIGTERM.
func stopOnHangup(s *ctxshutdown.Swansong, hangup <-chan os.Signal) {
	select {
	case <-hangup:
		if self, err := os.FindProcess(os.Getpid()); err == nil {
			self.Signal(syscall.SIGTERM)
		}
	case <-s.Done():
	}
}

// reloadOnHangup reloads the file on each SIGHUP, until the launcher is stopped. The channel holds
// one signal. A SIGHUP that arrives while a signal waits in the channel needs no reload of its own,
// because the reload for the waiting signal reads the file later.
func reloadOnHangup(s *ctxshutdown.Swansong, m *launcher.Manager, logger *slog.Logger, hangup <-chan os.Signal) {
	for {
		select {
		case <-hangup:
		case <-s.Done():
			return
		}
		// A reload can take long. So each SIGHUP is handled on a goroutine of its own, and does not
		// wait for the reload of an earlier one.
		s.Go(func(ctx context.Context) { reloadFile(ctx, m, logger) })
	}
}

// reloadFile reloads the file once. The Manager logs the changes that it applies; reloadFile logs
// the changes that were not applied, and errors. Since a signal has no sender to answer to, the log
// is the only place in which a user learns of them.
func reloadFile(ctx context.Context, m *launcher.Manager, logger *slog.Logger) {
	changes, err := m.Reread(ctx, false, "SIGHUP")
	// The other reload can have read an older version of the file, so this one is repeated.
	for errors.Is(err, launcher.ErrReloading) {
		if !ctxshutdown.Sleep(ctx, 10*time.Millisecond) {
			return
		}
		changes, err = m.Reread(ctx, false, "SIGHUP")
	}
	if err == nil {
		return
	}
	if errors.Is(err, launcher.ErrNotReloaded) {
		for _, c := range changes {
			logger.Info("reload", "change", c)
		}
	}
	// A stop of the launcher, or of a removed group, can interrupt the reload. That is logged, but
	// not as an error, because the user has nothing to fix.
	failed, interrupted := splitErrors(err, ctxshutdown.ErrShutdown, context.Cause(m.Scope()), context.Cause(ctx))
	if failed != nil {
		logger.Error("reload", "error", failed.Error())
	}
	if interrupted != nil {
		logger.Info("reload", "cut", interrupted.Error())
	}
}

// splitErrors splits the errors of a reload into failures and interruptions. err is the error of
// one group, or the joined errors of several groups. An error that matches one of the causes, each
// the cause of a stop, says only that the stop has interrupted the reload. A cause can be nil.
func splitErrors(err error, causes ...error) (failed, interrupted error) {
	all := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	}
	for _, e := range all {
		if slices.ContainsFunc(causes, func(cause error) bool { return errors.Is(e, cause) }) {
			interrupted = errors.Join(interrupted, e)
		} else {
			failed = errors.Join(failed, e)
		}
	}
	return failed, interrupted
}

// guardCommand returns the hidden command guard, which the launcher runs beside itself; see
// Config.Guardian. Users have no reason to call it: without orders on stdin it fails.
func guardCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "guard",
		Short:  "Handle the processes of a launcher that dies",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE:   func(*cobra.Command, []string) error { return launcher.Guard() },
	}
}

// execCommand returns the hidden command exec, with which the launcher starts processes that
// inherit listeners or have rlimits; see Config.Helper. If it succeeds it does not return: the
// command takes the place of this program in the same process.
func execCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "exec -- command [argument ...]",
		Short:  "Become a command, with LISTEN_PID set to its process id",
		Hidden: true,
		Args:   cobra.MinimumNArgs(1),
		RunE:   func(_ *cobra.Command, args []string) error { return launcher.Exec(args) },
	}
}
