package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/swansong-go/swansong/launcher"
	"github.com/swansong-go/swansong/launcher/config"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
)

// reread reads the file anew, and says how it differs. What needs another launcher is refused.
func reread(at *place, now *config.Config) (launcher.Config, []string, error) {
	next, source, err := config.LoadSource(at.file)
	if err != nil {
		return launcher.Config{}, nil, err
	}
	var changes, refused []string
	for _, c := range config.Diff(now, next) {
		changes = append(changes, c.String())
		if c.Effect == config.Restarts {
			refused = append(refused, c.String())
		}
	}
	cfg := next.Launcher()
	if at.dir != "" {
		cfg.Dir = at.dir
	}
	cfg.Source, cfg.Locate = next, source.Locate
	cfg.File, _ = filepath.Abs(at.file)
	if len(refused) > 0 {
		err = fmt.Errorf("launcher: nothing of %s was taken over, since some of it needs another launcher; undo that, or stop this one and start it anew:\n%s",
			at.file, strings.Join(refused, "\n"))
	}
	return cfg, changes, err
}

// sameFile refuses to take over another file than the one that was named.
func sameFile(at *place, read string) error {
	if at.file == "" || read == "" || at.remote != "" {
		return nil
	}
	named, err := filepath.Abs(at.file)
	if err != nil || named == read {
		return err
	}
	a, failedA := os.Stat(named)
	b, failedB := os.Stat(read)
	if failedA == nil && failedB == nil && os.SameFile(a, b) {
		return nil
	}
	return fmt.Errorf("launcher: the launcher reads %s, with which it was started, and not %s; nothing was taken over. Write what is to hold into the former, or start a launcher with the latter", read, named)
}

func reloadCommand(at *place) *cobra.Command {
	var dry bool
	in := &pb.ReloadRequest{}
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Show how the launcher's file has changed, and have it taken over",
		Long: "Show how the launcher's file has changed, and have it taken over: groups are scaled at once, rolled where their processes " +
			"have to be others, started and drained. What needs another launcher is refused, and then nothing is taken over.",
		Args:              takes(0, 0, ""),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return ask(cmd, at, in.Wait, func(ctx context.Context, to pb.LauncherAdminInterfaceClient) error {
				seen, err := to.Reload(ctx, &pb.ReloadRequest{DryRun: true})
				if err != nil {
					return err
				}
				if err := sameFile(at, seen.GetFile()); err != nil {
					return err
				}
				for _, c := range seen.GetChanges() {
					fmt.Fprintln(cmd.OutOrStdout(), clean(c))
				}
				if dry || len(seen.GetChanges()) == 0 {
					fmt.Fprintln(cmd.OutOrStdout(), seen.GetMessage())
					return nil
				}
				out, err := to.Reload(ctx, in)
				if err != nil {
					return err
				}
				switch taken := out.GetChanges(); {
				case slices.Equal(seen.GetChanges(), taken):
				case len(taken) == 0:
					fmt.Fprintln(cmd.OutOrStdout(), "meanwhile that was undone, or somebody else has had it taken over:")
				default:
					fmt.Fprintln(cmd.OutOrStdout(), "meanwhile that has changed, to:")
					for _, c := range taken {
						fmt.Fprintln(cmd.OutOrStdout(), clean(c))
					}
				}
				fmt.Fprintln(cmd.OutOrStdout(), out.GetMessage())
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only show it")
	cmd.Flags().BoolVar(&in.Wait, "wait", false, "until groups that are rolled or drained for it are done")
	cmd.Flags().StringVar(&in.Reason, "reason", "", "for the log")
	return cmd
}

func validateCommand(at *place) *cobra.Command {
	var show bool
	cmd := &cobra.Command{
		Use:               "validate [file]",
		Short:             "Say all that is wrong with a file, by line",
		Args:              takes(0, 1, ""),
		ValidArgsFunction: yamlFile,
		RunE: func(cmd *cobra.Command, args []string) error {
			file := at.file
			if len(args) > 0 {
				file = args[0]
			}
			if file == "" {
				return errors.New("launcher: which file?")
			}
			c, err := config.Load(file)
			if err != nil {
				return err
			}
			if show {
				return c.Print(cmd.OutOrStdout())
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is valid: %d groups\n", file, len(c.Groups))
			return nil
		},
	}
	cmd.Flags().BoolVar(&show, "print", false, "print it as it is in effect: with all defaults, and without secrets")
	return cmd
}
