package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/swansong-go/swansong/launcher/config"
	"github.com/swansong-go/swansong/launcher/export"
)

// An exported value is the JSON output of the command export. It is a type of its own, so that the
// names of fields in package export can change and scripts still find their keys.
type exported struct {
	Files map[string]string `json:"files"` // content of the files, by name
	Gaps  []gap             `json:"gaps"`
}

// A gap is a setting of the launcher's file that the other platform does not support
// ([export.Gap]), with the position of its key in the file. If the file does not have the key, the
// position is that of the group.
type gap struct {
	Line   int    `json:"line"`
	Column int    `json:"column"`
	Group  string `json:"group,omitempty"`
	Key    string `json:"key"`
	What   string `json:"what"`
}

// gaps returns the gaps in the result of an export, in the order of the result.
func gaps(r *export.Result, source *config.Source) []gap {
	all := []gap{}
	for _, g := range r.Gaps {
		line, column := source.Position(g.Group, g.Key)
		all = append(all, gap{line, column, g.Group, g.Key, g.What})
	}
	return all
}

// shown returns a gap, a setting that the target does not support, as a line for users. The line
// has the form of an error in the configuration file.
func (g gap) shown(file string) string {
	return fmt.Sprintf("%s:%d:%d: %v", file, g.Line, g.Column, export.Gap{Group: g.Group, Key: g.Key, What: g.What})
}

// newExported returns the output for a result. Without gaps the list is empty and not null, so a
// script can iterate over it.
func newExported(r *export.Result, gaps []gap) exported {
	out := exported{Files: map[string]string{}, Gaps: gaps}
	for _, f := range r.Files {
		out.Files[f.Name] = string(f.Text)
	}
	return out
}

// exportCommand returns the command export. The files go to stdout, and the gaps to stderr, so that
// the output can be piped to a tool such as kubectl and the gaps are still seen. With --json both
// are in one object on stdout.
func exportCommand(at *place) *cobra.Command {
	var dir string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "export kubernetes|nomad|systemd -f file",
		Short: "Write the files to run the groups on another platform, and list by line what it cannot do",
		Args:  takes(1, 1, "to which platform? The platforms are "+strings.Join(export.Targets(), ", ")),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return export.Targets(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			c, source, err := at.read()
			if err != nil {
				return err
			}
			r, err := export.To(args[0], c)
			if err != nil {
				return err
			}
			if asJSON {
				printLine(cmd.OutOrStdout(), newExported(r, gaps(r, source)))
				return nil
			}
			for _, g := range gaps(r, source) {
				fmt.Fprintln(cmd.ErrOrStderr(), g.shown(at.file))
			}
			if dir != "" {
				if err := os.MkdirAll(dir, 0o755); err != nil {
					return fmt.Errorf("launcher: %w", err)
				}
				return r.Write(dir)
			}
			if err := r.Print(cmd.OutOrStdout()); err != nil {
				return fmt.Errorf("%w (-o)", err)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the files and what the platform cannot do as JSON")
	cmd.Flags().StringVarP(&dir, "output", "o", "", "`directory` for the files (default: standard output, except for nomad with more than one group)")
	cmd.MarkFlagsMutuallyExclusive("json", "output")
	return cmd
}
