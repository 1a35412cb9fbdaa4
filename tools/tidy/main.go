// Tidy runs `go mod tidy` in every module of go.work, and in tools/staticcheck.
//
// A nested module requires the root module by a version that may not be published yet. `go mod
// tidy` ignores go.work and would ask the proxy for that version. Tidy therefore copies the go.mod
// of each module to a temporary folder, adds the replacements of go.work, runs `go mod tidy` on the
// copy, removes the replacements, and copies the result back. If it is interrupted before that,
// nothing has changed.
//
//	go run ./tools/tidy [-diff]
//
// With -diff it prints the changes that it would make, and fails if there are any.
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

// A module is a module in the output of `go work edit -json`: a path with a version, or a folder
// without one.
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
	diff := flag.Bool("diff", false, "print what would change, change nothing, and fail if anything would")
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
	dirs := []string{"tools/staticcheck"} // tools/staticcheck is outside the workspace, so that only `make lint` downloads its requirements
	for _, use := range work.Use {
		dirs = append(dirs, use.DiskPath)
	}
	var failures []error // a failure does not stop the tidying of the other modules
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
		return runVisibly(command(dir, append([]string{"mod", "edit"}, append(flags, mod)...)...))
	}
	var add, drop []string
	for _, r := range work.Replace {
		if r.New.Version == "" { // the replacement is a folder, whose path is relative to go.work
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
		return runVisibly(command(dir, "mod", "tidy", "-diff", "-modfile="+mod))
	}
	if err := runVisibly(command(dir, "mod", "tidy", "-modfile="+mod)); err != nil {
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

// command returns a go command. `go mod` commands run without the workspace.
func command(dir string, args ...string) *exec.Cmd {
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	if args[0] == "mod" {
		cmd.Env = append(os.Environ(), "GOWORK=off")
	}
	return cmd
}

// runVisibly runs a command whose output is that of this program.
func runVisibly(cmd *exec.Cmd) error {
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}

// copyFile copies a file. It does nothing if the contents are equal already, or if the source does
// not exist: a module without requirements has no go.sum.
func copyFile(source, to string) error {
	text, err := os.ReadFile(source)
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
