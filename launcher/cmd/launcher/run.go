package main

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/swansong-go/swansong/launcher/metrics"
)

func runCommand(at *place) *cobra.Command {
	g := launcher.GroupConfig{}
	var minHealthy, maxSurge int
	var protocol, restart, death, metricsAt string
	var listen []string
	cmd := &cobra.Command{
		Use:   "run -f file | run [flags] -- command [argument ...]",
		Short: "Start groups of processes, and keep them running until ^C or SIGTERM",
		Long: "Start what a file says, or a group by flags, and keep it running until ^C or SIGTERM; all is then drained. A second signal " +
			"kills what is left. SIGHUP has the file read again, as the command reload does; without a file, it is a SIGTERM. Nobody has to read what it prints.\n\nIn the command, {id} is the name of " +
			"the process, {dir} the launcher's directory, and {socket} a path that the process can listen on.\n\nThe exit code is 0 " +
			"when all has been drained, 1 when something has failed, 2 when processes were killed by a second signal, and 3 when some are left.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if at.file != "" {
				if err := onlyFile(cmd, args); err != nil {
					return err
				}
				return runFile(cmd, at)
			}
			if len(args) == 0 {
				return errors.New("launcher: run what? name a file by -f, or a command after --")
			}
			if err := checkDurations(cmd, "min-ready", "deregister-delay"); err != nil {
				return err
			}
			g.Command = args
			g.Protocol, g.Restart.Policy = launcher.Protocol(protocol), launcher.RestartPolicy(restart)
			g.OnLauncherDeath = launcher.LauncherDeath(death)
			if cmd.Flags().Changed("min-healthy") {
				g.MinHealthy = &minHealthy
			}
			if cmd.Flags().Changed("max-surge") {
				g.MaxSurge = &maxSurge
			}
			for _, address := range listen {
				g.Listen = append(g.Listen, launcher.Listen{Address: address})
			}
			dir, err := at.directory()
			if err != nil {
				return err
			}
			cfg := launcher.Config{Dir: dir, Groups: []launcher.GroupConfig{g}, Redact: config.NewRedactor().Text}
			return run(cmd, cfg, metricsAt, g.Bound()+time.Second)
		},
	}
	f := cmd.Flags()
	f.StringVar(&g.Name, "name", "main", "`name` of the group")
	f.IntVar(&g.Desired, "desired", 1, "how many processes there should be")
	f.IntVar(&minHealthy, "min-healthy", 0, "how many have to be ready while they are replaced (default: all of them)")
	f.IntVar(&maxSurge, "max-surge", 1, "how many there may be above --desired while they are replaced")
	f.StringVar(&protocol, "protocol", string(launcher.GRPC), "grpc, or signals for programs that do not speak the protocol")
	f.StringVar(&death, "on-launcher-death", string(launcher.Kill), "kill the processes, or keep them for the next launcher with this directory")
	f.StringVar(&restart, "restart", string(launcher.OnFailure), "which processes that end are replaced: on-failure, always, never")
	f.DurationVar(&g.HealthCheckTimeout, "health-check-timeout", 30*time.Second, "for a process to become ready")
	f.DurationVar(&g.MinReady, "min-ready", 0, "for a process to be ready before it is counted on")
	f.DurationVar(&g.Shutdown.Grace, "grace", 3*time.Second, "for a process to drain, unless it asks for more time")
	f.DurationVar(&g.Shutdown.Max, "max", 10*time.Second, "for a process to drain, whatever it asks for")
	f.DurationVar(&g.Shutdown.DeregisterDelay, "deregister-delay", 0, "between leaving routing and draining")
	f.StringVar(&g.Log.Path, "log", "", "`file` for what the processes print, rotated (default: standard output)")
	f.StringVar(&metricsAt, "metrics", "", "`address` where Prometheus finds the metrics, such as "+metrics.DefaultAddress+" (default: nowhere)")
	choice(cmd, "protocol", string(launcher.GRPC), string(launcher.Signals))
	choice(cmd, "on-launcher-death", string(launcher.Kill), string(launcher.Keep))
	choice(cmd, "restart", string(launcher.OnFailure), string(launcher.Always), string(launcher.Never))
	f.StringArrayVar(&listen, "listen", nil, "`address` that the processes inherit a listener of (LISTEN_FDS)")
	return cmd
}

// checkDurations refuses flags that are no time to wait for, by their names. A 0 would be taken for the default, unless the flag
// may be 0.
func checkDurations(cmd *cobra.Command, mayBeZero ...string) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		d, other := cmd.Flags().GetDuration(f.Name)
		least, rule := time.Duration(1), "more than 0"
		if slices.Contains(mayBeZero, f.Name) {
			least, rule = 0, "0 or more"
		}
		if other == nil && (d < least || d > longest) {
			err = errors.Join(err, fmt.Errorf("launcher: --%s has to be %s and at most %v, and not %v; leave it out for what is configured, or the default",
				f.Name, rule, longest, d))
		}
	})
	return err
}

// onlyFile refuses what a file says as well.
func onlyFile(cmd *cobra.Command, args []string) (err error) {
	if len(args) > 0 {
		return fmt.Errorf("launcher: run -f takes no command, and there is %q; what to run is in the file", args[0])
	}
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		if f.Changed {
			err = errors.Join(err, fmt.Errorf("launcher: --%s is for a group without a file; with -f, it is in the file", f.Name))
		}
	})
	return err
}

// runFile runs what a file says.
func runFile(cmd *cobra.Command, at *place) error {
	c, source, err := config.LoadSource(at.file)
	if err != nil {
		return err
	}
	cfg := c.Launcher()
	if at.dir != "" {
		cfg.Dir = at.dir
	}
	cfg.Source = c
	cfg.Reread = func(_ context.Context, now any) (launcher.Config, []string, error) {
		return reread(at, now.(*config.Config))
	}
	// What is found fault with later is in the file of the beginning, unless another one was taken over.
	// The bound of a stop is the file's total_deadline, which the launcher keeps itself: a reload can make it longer.
	return source.Locate(run(cmd, cfg, c.Metrics.Address, longest))
}

// longest is the most that the soft rung of a ladder can be, and any time that somebody orders.
const longest = 24 * time.Hour

// run runs a launcher. Its ladder is longer than the longest shutdown, so that it is the rules of the groups that decide when
// a process is killed, and not the ladder.
func run(cmd *cobra.Command, cfg launcher.Config, metricsAt string, bound time.Duration) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("launcher: %w", err)
	}
	cfg.Logger = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
	cfg.Output = cmd.OutOrStdout()
	out := printed().out // for what is not printed by the launcher, which waits for nobody
	cfg.Helper = []string{self, "exec", "--"}
	cfg.Guardian = []string{self, "guard"}
	if c, ok := cfg.Source.(*config.Config); ok {
		for _, pattern := range c.Redact {
			cfg.Guardian = append(cfg.Guardian, "--redact="+pattern)
		}
	}
	// Caught to the end: the default would end the launcher, at its start and in its drain too, and drain nobody.
	outlivePipes()
	hangup := make(chan os.Signal, 1)
	if cfg.Reread != nil || !signal.Ignored(syscall.SIGHUP) { // as by nohup
		signal.Notify(hangup, syscall.SIGHUP)
	}
	return graceful.Run(cmd.Context(), func(s *ctxshutdown.Swansong) error {
		if cfg.Reread == nil {
			s.Go(func(context.Context) { stopOnHangup(s, hangup) })
		}
		m, err := launcher.Start(s, cfg)
		if err != nil {
			return err
		}
		if metricsAt != "" {
			addr, err := metrics.Serve(m, metricsAt)
			if err != nil {
				return &launcher.ConfigError{Field: "Metrics.Address", Rule: strings.TrimPrefix(err.Error(), "metrics: ")}
			}
			fmt.Fprintf(out, "metrics at http://%v/metrics\n", addr)
		}
		if addr := m.AdminAddr(); addr != nil {
			fmt.Fprintln(out, "operators at", addr)
		}
		if cfg.Reread != nil {
			logger := slog.New(slog.NewTextHandler(printed().errs, nil))
			s.Go(func(context.Context) { rereadOnHangup(s, m, logger, hangup) })
		}
		for _, g := range cfg.Groups {
			for _, addr := range m.Addrs(g.Name) {
				fmt.Fprintln(out, "listening on", addr)
			}
		}
		if err := m.Ready(s); err != nil {
			if s.Err() != nil {
				return nil
			}
			return err
		}
		fmt.Fprintln(out, "ready")
		graceful.Ready(s)
		<-s.Done()
		return nil
	}, graceful.WithSoft(min(bound, longest)), graceful.WithOutput(cmd.ErrOrStderr()))
}

// outlivePipes has writes to an output that nobody reads any more fail, where Go would have the first one to stdout or stderr
// end the launcher, and with it its processes. Caught, and not ignored, which they would inherit.
func outlivePipes() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// stopOnHangup makes a SIGTERM of the first SIGHUP. Of a terminal that ends, more than one can come, and the second one must
// not cut the drain short, as a second SIGTERM does.
func stopOnHangup(s *ctxshutdown.Swansong, hangup <-chan os.Signal) {
	select {
	case <-hangup:
		if self, err := os.FindProcess(os.Getpid()); err == nil {
			self.Signal(syscall.SIGTERM)
		}
	case <-s.Done():
	}
}

// rereadOnHangup has the file taken over at each SIGHUP.
func rereadOnHangup(s *ctxshutdown.Swansong, m *launcher.Manager, logger *slog.Logger, hangup <-chan os.Signal) {
	for {
		select {
		case <-hangup:
		case <-s.Done():
			return
		}
		s.Go(func(ctx context.Context) { rereadNow(ctx, m, logger) }) // which may wait for long, and the next one need not
	}
}

// rereadNow has the file read once: what is told to be taken over is what was. The launcher tells that itself, and here is told what
// was not.
func rereadNow(ctx context.Context, m *launcher.Manager, logger *slog.Logger) {
	changes, err := m.Reread(ctx, false, "SIGHUP")
	for errors.Is(err, launcher.ErrReloading) { // by who may have read the file before it was what it is now
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
	// What a stop has cut off, of the launcher or of a group that a later reload removes, is no failure of this one, and nothing that who
	// looks for errors in the log could mend. It is said nevertheless, so that nobody takes for done what was begun.
	failed, cut := cutOff(err, ctxshutdown.ErrShutdown, context.Cause(m.Scope()), context.Cause(ctx))
	if failed != nil {
		logger.Error("reload", "error", failed.Error())
	}
	if cut != nil {
		logger.Info("reload", "cut", cut.Error())
	}
}

// cutOff tells what has failed of a reload from what a stop has cut off, for one of these causes, some of which may be nil. Of a reload
// there is one error, or there are those of several groups, joined: nothing else in it has more than one cause.
func cutOff(err error, causes ...error) (failed, cut error) {
	all := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	}
	for _, e := range all {
		if slices.ContainsFunc(causes, func(cause error) bool { return errors.Is(e, cause) }) {
			cut = errors.Join(cut, e)
		} else {
			failed = errors.Join(failed, e)
		}
	}
	return failed, cut
}

func guardCommand() *cobra.Command {
	var redact []string
	cmd := &cobra.Command{
		Use:    "guard",
		Short:  "Outlive the launcher, and see to what becomes of its processes",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE:   func(*cobra.Command, []string) error { return launcher.Guard(config.NewRedactor(redact...).Text) },
	}
	cmd.Flags().StringArrayVar(&redact, "redact", nil, "what a file says is to be taken out of logs")
	return cmd
}

func execCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "exec -- command [argument ...]",
		Short:  "Become a command, with LISTEN_PID set to its process id",
		Hidden: true,
		Args:   cobra.MinimumNArgs(1),
		RunE:   func(_ *cobra.Command, args []string) error { return launcher.Exec(args) },
	}
}
