package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/swansong-go/swansong/launcher/export"
)

func exportCommand(at *place) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "export kubernetes|nomad|systemd -f file",
		Short: "Write the files to run the groups on another platform, and list what it cannot do",
		Args:  takes(1, 1, "to which platform? The platforms are "+strings.Join(export.Targets(), ", ")),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return export.Targets(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := at.read()
			if err != nil {
				return err
			}
			r, err := export.To(args[0], c)
			if err != nil {
				return err
			}
			for _, gap := range r.Gaps {
				fmt.Fprintln(cmd.ErrOrStderr(), gap)
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
	cmd.Flags().StringVarP(&dir, "output", "o", "", "`directory` for the files (default: standard output, except for nomad with more than one group)")
	return cmd
}
