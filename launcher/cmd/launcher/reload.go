package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/swansong-go/swansong/internal/worktext"
	"github.com/swansong-go/swansong/launcher"
	"github.com/swansong-go/swansong/launcher/config"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
)

// reread reads the configuration file again, and lists the changes. It is the Config.Reread of the
// launcher, which calls it for a reload, for a dry run of one, and for SIGHUP. It takes no context,
// because it waits for no other program, only for the disk.
//
// It returns an error if a change needs an upgrade or a new launcher. The changes are returned with
// that error, so that the user sees all of them and which ones are in the way. If the launcher
// refuses the configuration later, Locate finds the lines in this version of the file.
func reread(at *place, now *config.Config) (launcher.Config, []string, error) {
	next, source, err := config.LoadAgain(at.file)
	if err != nil {
		return launcher.Config{}, nil, err
	}
	var changes, refused []string
	needs := "an upgrade; undo these, or run launcher upgrade, which applies all changes"
	if runtime.GOOS != "linux" { // upgrades need Linux
		needs = newLauncher
	}
	for _, c := range config.Diff(now, next) {
		changes = append(changes, c.String())
		switch c.Effect {
		case config.Restarts:
			needs = newLauncher
			fallthrough
		case config.Upgrades:
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
		err = fmt.Errorf("launcher: the changes in %s were not applied, because some need %s:\n%s", at.file, needs, strings.Join(refused, "\n"))
	}
	return cfg, changes, err
}

// newLauncher is the end of an error message about changes that neither a reload nor an upgrade can
// apply. It says what the user can do.
const newLauncher = "a new launcher; undo these, or stop the launcher and start it again"

// sameFile returns an error if the user has named another file than the one that the launcher
// reads.
//
// A reload applies the file of the launcher, so without this check a user who names another file
// would believe that it was applied. Over the network the paths are those of another machine, and
// nothing is compared. Paths are compared first, and then the files, which can have several paths
// by links. The path in read is empty if the program that runs the launcher does not say which file
// the launcher reads. Then nothing is compared either.
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
	return fmt.Errorf("launcher: the launcher was started with %[1]s, not with %[2]s; nothing was applied. Edit %[1]s, or start a launcher with %[2]s", read, named)
}

// reloadCommand returns the command reload. It shows the changes by a dry run before it orders the
// reload. The file can change in between, so the command compares the changes that were applied
// with those that it has shown, and says if they differ.
//
// A lock around both calls is no alternative: the editor that changes the file takes none.
func reloadCommand(at *place) *cobra.Command {
	var dry, asJSON bool
	in := &pb.ReloadRequest{}
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Show and apply the changes of the launcher's file",
		Long: "Show the changes of the launcher's file, and apply them: groups are started, stopped and scaled, and rolled if their processes " +
			"must be replaced. If a change needs an upgrade or a new launcher, nothing is applied.",
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
				if asJSON {
					return reloadAsJSON(ctx, cmd, to, in, seen, dry)
				}
				for _, c := range seen.GetChanges() {
					fmt.Fprintln(cmd.OutOrStdout(), clean(c))
				}
				// If the file has no changes, there is no reload to order. The message says that.
				if dry || len(seen.GetChanges()) == 0 {
					fmt.Fprintln(cmd.OutOrStdout(), seen.GetMessage())
					return nil
				}
				out, err := to.Reload(ctx, in)
				if err != nil {
					return err
				}
				switch applied := out.GetChanges(); {
				case slices.Equal(seen.GetChanges(), applied):
				case len(applied) == 0:
					fmt.Fprintln(cmd.OutOrStdout(), "meanwhile the changes were undone, or applied by another reload:")
				default:
					fmt.Fprintln(cmd.OutOrStdout(), "meanwhile the file has changed; the changes are now:")
					for _, c := range applied {
						fmt.Fprintln(cmd.OutOrStdout(), clean(c))
					}
				}
				fmt.Fprintln(cmd.OutOrStdout(), out.GetMessage())
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only show the changes")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the changes that were applied, or would be, as JSON")
	cmd.Flags().BoolVar(&in.Wait, "wait", false, "wait until the groups that are rolled or stopped are done")
	cmd.Flags().StringVar(&in.Reason, "reason", "", "reason, for the log")
	return cmd
}

// reloadAsJSON makes the launcher apply the changes in its file, and prints as one JSON object
// which changes were applied. These need not be the changes in seen, the answer to an earlier call,
// because the file may have changed since: a script acts on what was applied. If dry is true,
// reloadAsJSON applies nothing, and prints seen.
func reloadAsJSON(ctx context.Context, cmd *cobra.Command, to pb.LauncherAdminInterfaceClient, in *pb.ReloadRequest, seen *pb.ReloadResponse, dry bool) (err error) {
	if !dry && len(seen.GetChanges()) > 0 {
		if seen, err = to.Reload(ctx, in); err != nil {
			return err
		}
	}
	return printJSON(cmd.OutOrStdout(), seen, true)
}

// validateCommand returns the command validate. It checks the file by the code that run uses, and
// talks to no launcher. After an error the exit code is 1, also with --json, which prints the
// errors of the file to stdout and a text to stderr.
func validateCommand(at *place) *cobra.Command {
	var show, asJSON bool
	cmd := &cobra.Command{
		Use:               "validate [file]",
		Short:             "Check a file, and list all errors by line",
		Args:              takes(0, 1, ""),
		ValidArgsFunction: yamlFile,
		RunE: func(cmd *cobra.Command, args []string) error {
			file := at.file
			if len(args) > 0 {
				file = args[0]
			}
			if file == "" {
				return errors.New("launcher: no configuration file; name one as an argument, or with -f")
			}
			c, err := config.Load(file)
			if asJSON && !show {
				printLine(cmd.OutOrStdout(), newValidation(file, c, err))
			}
			switch {
			case err != nil || asJSON && !show:
				return err
			case asJSON:
				return c.PrintJSON(cmd.OutOrStdout())
			case show:
				return c.Print(cmd.OutOrStdout())
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is valid: %s\n", file, worktext.Pluralize(len(c.Groups), "group"))
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the errors, or with --print the configuration, as JSON")
	cmd.Flags().BoolVar(&show, "print", false, "print the configuration with all defaults, without secrets")
	return cmd
}

// A validation is the JSON output of the command validate. Groups is the number of groups, 0 if the
// file is not valid.
type validation struct {
	File   string       `json:"file"`
	Valid  bool         `json:"valid"`
	Groups int          `json:"groups"`
	Errors []*fileError `json:"errors,omitempty"`
}

// A fileError is an error of a file. Line and Column begin at 1; a Line of 0 means the whole file.
type fileError struct {
	Line   int    `json:"line"`
	Column int    `json:"column"`
	Key    string `json:"key"`
	Rule   string `json:"rule"`
}

// newValidation returns the output for the result of [config.Load]. That returns all errors of a
// file, or a single one if the file cannot be read.
func newValidation(file string, c *config.Config, err error) validation {
	v := validation{File: file, Valid: err == nil}
	var all config.Errors
	var one *config.Error
	switch {
	case err == nil:
		v.Groups = len(c.Groups)
	case errors.As(err, &all):
	case errors.As(err, &one):
		all = config.Errors{one}
	}
	for _, e := range all {
		v.Errors = append(v.Errors, &fileError{e.Line, e.Column, e.Key, e.Rule})
	}
	return v
}
