// Tidy runs `go mod tidy` in every module of go.work, and in tools.
//
// It exists because a nested module requires the root by a version that may not be published yet, and `go mod tidy`
// does not look at go.work: it would ask the proxy for that version. So each module is tidied through a copy of its
// go.mod outside of the tree, to which the replacements of go.work are added. They are taken out again before the copy
// is put back, and a run that is interrupted has changed nothing.
//
//	go run ./internal/cmd/tidy [-diff]
//
// With -diff it changes nothing, prints what it would change, and fails if there is anything.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
)

// A module is a module's path and version, or a folder in place of the path, as `go work edit -json` prints it.
type module struct{ Path, Version string }

func (m module) String() string {
	if m.Version == "" {
		return m.Path
	}
	return m.Path + "@" + m.Version
}

type workspace struct {
	Use     []struct{ DiskPath string }
	Replace []struct{ Old, New module }
}

func main() {
	diff := flag.Bool("diff", false, "only print what would change, and fail if anything would")
	flag.Parse()
	if err := run(*diff); err != nil {
		fmt.Fprintln(os.Stderr, "tidy:", err)
		os.Exit(1)
	}
}

func run(diff bool) error {
	text, err := command(".", "work", "edit", "-json").Output()
	if err != nil {
		return err
	}
	var work workspace
	if err := json.Unmarshal(text, &work); err != nil {
		return err
	}
	dirs := []string{"tools"} // not in the workspace, so that nobody downloads its requirements who does not lint
	for _, use := range work.Use {
		dirs = append(dirs, use.DiskPath)
	}
	var failures []error // all modules are looked at, even after the first that fails
	for _, dir := range dirs {
		if err := tidy(dir, work, diff); err != nil {
			failures = append(failures, fmt.Errorf("%s: %w", dir, err))
		}
	}
	return errors.Join(failures...)
}

func tidy(dir string, work workspace, diff bool) error {
	temp, err := os.MkdirTemp("", "tidy-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	for _, name := range []string{"go.mod", "go.sum"} {
		if err := copyFile(filepath.Join(dir, name), filepath.Join(temp, name)); err != nil {
			return err
		}
	}

	mod := filepath.Join(temp, "go.mod")
	edit := func(flags ...string) error {
		return visible(command(dir, append([]string{"mod", "edit"}, append(flags, mod)...)...))
	}
	var add, drop []string
	for _, r := range work.Replace {
		if r.New.Version == "" { // a folder, relative to go.work
			if r.New.Path, err = filepath.Abs(r.New.Path); err != nil {
				return err
			}
		}
		add = append(add, fmt.Sprintf("-replace=%s=%s", r.Old, r.New))
		drop = append(drop, fmt.Sprintf("-dropreplace=%s", r.Old))
	}
	if err := edit(add...); err != nil {
		return err
	}
	if diff {
		fmt.Println("go mod tidy -diff in", dir)
		return visible(command(dir, "mod", "tidy", "-diff", "-modfile="+mod))
	}
	if err := visible(command(dir, "mod", "tidy", "-modfile="+mod)); err != nil {
		return err
	}
	if err := edit(drop...); err != nil {
		return err
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		if err := copyFile(filepath.Join(temp, name), filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// command is a go command that sees one module and not the workspace.
func command(dir string, args ...string) *exec.Cmd {
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	if args[0] == "mod" {
		cmd.Env = append(os.Environ(), "GOWORK=off")
	}
	return cmd
}

func visible(cmd *exec.Cmd) error {
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}

// copyFile leaves a file alone that is the same already, and skips one that is not there: a module without
// requirements has no go.sum.
func copyFile(from, to string) error {
	text, err := os.ReadFile(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	if old, err := os.ReadFile(to); err == nil && bytes.Equal(old, text) {
		return nil
	}
	return os.WriteFile(to, text, 0o644)
}
