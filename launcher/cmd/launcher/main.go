// Launcher starts subprocesses, keeps them running, and stops and replaces them without loss.
//
//	launcher run -f launcher.yaml                    run the groups of a file, until ^C
//	launcher run --name web --desired 2 -- ./web     run one group, without a file
//	launcher status [--watch]                        show the state of all processes, and what is waited for
//	launcher logs web [--follow]                     show the output of a group
//	launcher events                                  show events as they happen
//	launcher restart web                             replace all processes of a group
//	launcher restart web --resume|--rollback         continue a paused roll, or undo it
//	launcher stop web-3                              stop one process; its group replaces it
//	launcher stop web; launcher start web            stop a group; start it again
//	launcher scale web=5                             change the number of processes of a group
//	launcher signal web HUP                          send a signal to the processes of a group
//	launcher drain --dry-run                         show what a shutdown would have to wait for
//	launcher reload [--dry-run]                      apply the changes of the file
//	launcher upgrade [program]                       have another version take over, with all processes
//	launcher recover -f launcher.yaml                replace a damaged state file, so that what runs can be adopted
//	launcher validate launcher.yaml                  check a file
//	launcher export kubernetes -f launcher.yaml      write the files for another platform
//
// The commands that need a running launcher connect to the socket in its directory. The directory
// is that of --dir, or the state_dir of the file of -f, or the default one.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/swansong-go/swansong/graceful"
	"github.com/swansong-go/swansong/launcher"
	"github.com/swansong-go/swansong/launcher/config"
	"github.com/swansong-go/swansong/launcher/internal/peer"
	"github.com/swansong-go/swansong/launcher/internal/upgrade"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
	"google.golang.org/grpc"
)

// main has the command run start all processes from the main thread: an upgrade would lose
// processes that another thread has started. The other commands start none that an upgrade has to
// keep.
func main() {
	beInit()
	cmd := root()
	if c, _, err := cmd.Find(os.Args[1:]); err == nil && c.Name() == "run" {
		// ServeUpgrades returns only on systems without upgrades.
		launcher.ServeUpgrades(func() { execute(cmd) })
	}
	execute(cmd)
}

// execute executes the command, and ends the program.
//
// It ends the program by [os.Exit], which runs no deferred functions of the callers, so the output
// that is still queued is written here. Cobra itself prints no errors (SilenceErrors): its writes
// to a terminal that does not read would block.
func execute(cmd *cobra.Command) {
	err := cmd.ExecuteContext(context.Background())
	if err != nil {
		// If this program has taken over in an upgrade, and failed before it called launcher.Start,
		// GoBack executes the earlier program again.
		err = upgrade.GoBack(err)
	}
	printed().end(err)
	os.Exit(exitCode(err))
}

// exitCode returns 0 if err is nil. If the drain was cut short or abandoned, it returns the exit
// codes of package graceful for that, 2 and 3. A drain is cut short by a second signal, and by the
// deadline of a process. For any other error it returns 1.
func exitCode(err error) int {
	var forced *graceful.ForcedError
	var abandoned *graceful.AbandonedError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &forced), errors.As(err, &abandoned):
		return graceful.ExitCode(err)
	case errors.Is(err, errKilled):
		return 2
	}
	return 1
}

// errKilled matches the error of a launcher that killed processes when it was stopped.
var errKilled = errors.New("processes were killed, because they had not ended in time")

// checkStop returns an error if the launcher killed processes when it was stopped. A drain that was
// cut short should be visible to the caller of the launcher, such as systemd or a pipeline, as it
// is for a program that uses package graceful itself. The manager is nil if a signal arrived before
// the launcher was started.
//
// Processes that failed are only named, in a line that is written to w. They are no error: they
// have ended in time, and many programs end with a code other than 0 when they are told to stop.
func checkStop(m *launcher.Manager, w io.Writer) error {
	if m == nil {
		return nil
	}
	var killed, failed []string
	groups := m.Stats().Groups
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		if n := groups[name].ForcedAtStop; n > 0 {
			killed = append(killed, fmt.Sprintf("%d of group %s", n, name))
		}
		failed = append(failed, groups[name].FailedAtStop...)
	}
	const most = 20
	if more := len(failed) - most; more > 0 {
		failed = append(failed[:most], fmt.Sprintf("and %d more, which the log names", more))
	}
	if failed != nil {
		fmt.Fprintln(w, "launcher: processes failed while the launcher was stopped:", clean(strings.Join(failed, ", ")))
	}
	if killed == nil {
		return nil
	}
	return fmt.Errorf("launcher: %w: %s; the log names each process and its deadline", errKilled, strings.Join(killed, ", "))
}

// root returns a new tree of commands, with flags that have their defaults. Nothing in it is
// global, because upgrade-check parses the arguments of another launcher with a tree of its own.
func root() *cobra.Command {
	at := &place{}
	cmd := &cobra.Command{
		Use:           "launcher",
		Short:         "Start subprocesses, and stop and replace them without loss",
		Version:       version(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.SetFlagErrorFunc(wrongFlag)
	cmd.PersistentFlags().StringVar(&at.dir, "dir", "", "`directory` of the launcher, with its socket (default: the state_dir of --file, or "+config.DefaultDir()+")")
	cmd.PersistentFlags().StringVarP(&at.file, "file", "f", "", "YAML `file` with the configuration of the launcher")
	cmd.PersistentFlags().StringVar(&at.remote, "remote", "", "`host:port` of the admin service of a launcher, instead of the socket in --dir; needs --cert, --key and --ca")
	cmd.PersistentFlags().StringVar(&at.tls.Cert, "cert", "", "PEM `file` with the certificate for --remote")
	cmd.PersistentFlags().StringVar(&at.tls.Key, "key", "", "PEM `file` with the key of --cert")
	cmd.PersistentFlags().StringVar(&at.tls.CA, "ca", "", "PEM `file` with the certificate authority of the launcher at --remote")
	for _, name := range []string{"cert", "key", "ca"} {
		cmd.MarkPersistentFlagFilename(name, "pem", "crt", "key")
	}
	cmd.MarkPersistentFlagFilename("file", "yaml", "yml")
	cmd.MarkPersistentFlagDirname("dir")
	cmd.AddCommand(runCommand(at), execCommand(), guardCommand(), statusCommand(at), startCommand(at), stopCommand(at), restartCommand(at), scaleCommand(at), signalCommand(at), drainCommand(at),
		eventsCommand(at), logsCommand(at), reloadCommand(at), recoverCommand(at), upgradeCommand(at), upgradeCheckCommand(), validateCommand(at), exportCommand(at))
	for _, c := range cmd.Commands() {
		printErrorsAsJSON(c)
	}
	return cmd
}

// version returns the version of the module, or "unknown" if the build does not contain the
// version.
func version() string {
	b, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return fmt.Sprintf("%s (%s)", cmp.Or(b.Main.Version, "unknown"), b.GoVersion)
}

// A place identifies the launcher that a command talks to.
//
// All commands of a tree share one place. Cobra sets its fields when it parses the flags, so a
// command reads them in its RunE and not when the command is made.
type place struct {
	dir, file string
	remote    string // host:port of the launcher's admin service; if empty, the socket in the directory is used
	tls       launcher.TLS
}

// dial returns a client of the launcher, which connects at the first call. The result where is the
// address of the launcher, for error messages. The caller closes conn, which is nil after an error.
//
// The flags of TLS are checked here and not by cobra's groups of flags, because the message says
// why they belong together. Without --remote they are refused, not ignored: the user would believe
// that a certificate protects the connection.
func (p *place) dial() (to pb.LauncherAdminInterfaceClient, conn *grpc.ClientConn, where string, err error) {
	files := [][2]string{{"--cert", p.tls.Cert}, {"--key", p.tls.Key}, {"--ca", p.tls.CA}}
	for _, f := range files {
		switch {
		case p.remote == "" && f[1] != "":
			return nil, nil, "", fmt.Errorf("launcher: %s is only for --remote; name the host:port of the launcher by --remote", f[0])
		case p.remote != "" && f[1] == "":
			return nil, nil, "", fmt.Errorf("launcher: --remote needs %s: over TCP, both sides show a certificate", f[0])
		}
	}
	if p.remote != "" {
		to, conn, err = launcher.DialTLS(p.remote, p.tls)
		return to, conn, p.remote, err
	}
	dir, err := p.directory()
	if err != nil {
		return nil, nil, "", err
	}
	if info, err := os.Stat(dir); err == nil && p.dir == "" && dir == config.DefaultDir() {
		if peer.OfAnother(info) { // the default directory can be in /tmp, where any user can create it
			return nil, nil, "", fmt.Errorf("launcher: the default directory %s belongs to another user; to connect to the launcher of that user, name it by --dir", dir)
		}
	}
	to, conn, err = launcher.Dial(dir)
	return to, conn, launcher.SocketIn(dir), err
}

// directory returns the launcher's directory. The flag --dir overrides the directory in the file,
// as it does in the command run. So every command with the same flags finds the same launcher.
func (p *place) directory() (string, error) {
	switch {
	case p.dir != "":
		return p.dir, nil
	case p.file == "":
		return config.DefaultDir(), nil
	}
	return config.DirOf(p.file)
}

// read reads the configuration file, without checks that depend on this machine: files are often
// exported on a machine that has neither the programs nor the users of the configuration.
func (p *place) read() (*config.Config, *config.Source, error) {
	if p.file == "" {
		return nil, nil, errors.New("launcher: no configuration file; name one with -f")
	}
	text, err := config.ReadFile(p.file)
	if err != nil {
		return nil, nil, err
	}
	return config.ParseSource(p.file, text)
}

// interruptible returns a context that is cancelled by ^C or SIGTERM, for commands that wait. Until
// the function that it returns is called, further signals of these kinds have no effect.
func interruptible(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
}
