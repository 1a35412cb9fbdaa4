// Launcher starts subprocesses, keeps them running, and stops and replaces them without loss.
//
//	launcher run -f launcher.yaml                    start what the file says, until ^C
//	launcher run --name web --desired 2 -- ./web     start one group, by flags
//	launcher status [--watch]                        who runs, who drains, and who blocks
//	launcher logs web [--follow]                     what it prints
//	launcher events                                  what happens, from now on
//	launcher restart web                             replace all processes of a group
//	launcher restart web --resume|--rollback         have a roll that is paused go on, or turn back
//	launcher stop web-3                              stop one process
//	launcher drain --dry-run                         what a shutdown would have to drain
//	launcher reload [--dry-run]                      have the file taken over that has changed
//	launcher validate launcher.yaml                  what is wrong with a file
//	launcher export kubernetes -f launcher.yaml      the same for somebody else to run
//
// Those that ask a launcher that runs do it through the socket in its directory: that of --dir, else the state_dir of the
// file of -f, else the default one.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/swansong-go/swansong/graceful"
	"github.com/swansong-go/swansong/launcher"
	"github.com/swansong-go/swansong/launcher/config"
	"github.com/swansong-go/swansong/launcher/internal/peer"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
	"google.golang.org/grpc"
)

func main() {
	beInit()
	err := root().ExecuteContext(context.Background())
	printed().end(err)
	os.Exit(exitCode(err))
}

// exitCode is that of package graceful for run (2: cut short, 3: abandoned), and 1 for whatever else has failed.
func exitCode(err error) int {
	var forced *graceful.ForcedError
	var abandoned *graceful.AbandonedError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &forced), errors.As(err, &abandoned):
		return graceful.ExitCode(err)
	}
	return 1
}

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
	cmd.PersistentFlags().StringVar(&at.dir, "dir", "", "the launcher's `directory`, where its socket is (default: the state_dir of --file, else "+config.DefaultDir()+")")
	cmd.PersistentFlags().StringVarP(&at.file, "file", "f", "", "the launcher's configuration, a YAML `file`")
	cmd.PersistentFlags().StringVar(&at.remote, "remote", "", "`host:port` of a launcher's admin service, instead of the socket in --dir; needs --cert, --key and --ca")
	cmd.PersistentFlags().StringVar(&at.tls.Cert, "cert", "", "PEM `file` with the certificate to show to --remote")
	cmd.PersistentFlags().StringVar(&at.tls.Key, "key", "", "PEM `file` with its key")
	cmd.PersistentFlags().StringVar(&at.tls.CA, "ca", "", "PEM `file` with the authority of the launcher's certificate")
	for _, name := range []string{"cert", "key", "ca"} {
		cmd.MarkPersistentFlagFilename(name, "pem", "crt", "key")
	}
	cmd.MarkPersistentFlagFilename("file", "yaml", "yml")
	cmd.MarkPersistentFlagDirname("dir")
	cmd.AddCommand(runCommand(at), execCommand(), guardCommand(), statusCommand(at), stopCommand(at), restartCommand(at), drainCommand(at),
		eventsCommand(at), logsCommand(at), reloadCommand(at), validateCommand(at), exportCommand(at))
	return cmd
}

// version is that of the module, as far as whoever has built the command knows it.
func version() string {
	b, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return fmt.Sprintf("%s (%s)", cmp.Or(b.Main.Version, "unknown"), b.GoVersion)
}

// A place is where a launcher is.
type place struct {
	dir, file string
	remote    string // host:port of its admin service, instead
	tls       launcher.TLS
}

// dial returns a client of the launcher, which says where it is.
func (p *place) dial() (to pb.LauncherAdminInterfaceClient, conn *grpc.ClientConn, where string, err error) {
	files := [][2]string{{"--cert", p.tls.Cert}, {"--key", p.tls.Key}, {"--ca", p.tls.CA}}
	for _, f := range files {
		switch {
		case p.remote == "" && f[1] != "":
			return nil, nil, "", fmt.Errorf("launcher: %s is for a launcher elsewhere; name its host:port by --remote", f[0])
		case p.remote != "" && f[1] == "":
			return nil, nil, "", fmt.Errorf("launcher: --remote needs %s, too: over TCP, both ends show a certificate", f[0])
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
		if peer.OfAnother(info) { // in /tmp anybody can make one of that name
			return nil, nil, "", fmt.Errorf("launcher: %s, the default, belongs to another user; if it is that user's launcher that you want to ask, name it by --dir", dir)
		}
	}
	to, conn, err = launcher.Dial(dir)
	return to, conn, launcher.SocketIn(dir), err
}

// directory returns the launcher's directory.
func (p *place) directory() (string, error) {
	switch {
	case p.dir != "":
		return p.dir, nil
	case p.file == "":
		return config.DefaultDir(), nil
	}
	c, err := p.read()
	if err != nil {
		return "", err
	}
	return c.Dir(), nil
}

// read reads the file without a look at this machine.
func (p *place) read() (*config.Config, error) {
	if p.file == "" {
		return nil, errors.New("launcher: which file? name it by -f")
	}
	text, err := config.ReadFile(p.file)
	if err != nil {
		return nil, err
	}
	return config.Parse(p.file, text)
}

// interruptible is for commands that wait.
func interruptible(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
}
