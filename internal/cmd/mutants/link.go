package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// A kit is what the test program of a package is linked from: compiled packages, by import path.
type kit struct {
	archives map[string]string
	variants map[string]bool // compiled once more for this program, with the tests inside of the package
	main     string
}

// kit compiles the tests of a package without a patch, once for all mutants.
func (r *runner) kit(pkg string) (*kit, error) {
	r.mu.Lock()
	once := r.kits[pkg]
	if once == nil {
		once = sync.OnceValues(func() (*kit, error) {
			k := &kit{archives: map[string]string{}, variants: map[string]bool{}}
			err := r.compiled(func(path, archive string) {
				path, _, variant := strings.Cut(path, " ") // as in "p [p.test]"
				if variant || k.archives[path] == "" {
					k.archives[path] = archive
				}
				if variant {
					k.variants[path] = true
				}
				if strings.HasSuffix(path, ".test") {
					k.main = archive
				}
			}, "-test", "-deps", pkg)
			return k, err
		})
		r.kits[pkg] = once
	}
	r.mu.Unlock()
	return once()
}

// relink builds a test program with the patch from packages that were compiled without, except those that the patch
// changes. That is a quarter of the work that go test does, which compiles anew whatever imports them. The linker refuses
// where that is not the same thing, because what others see of a changed package (its types, and the bodies that may be
// inlined) has changed too: packages carry fingerprints of what they were compiled against. Then, and wherever else there
// is a doubt, it returns "".
func (r *runner) relink(s spec, overlay string) string {
	if build, _ := s.sorted(); len(build) > 0 {
		return ""
	}
	k, err := r.kit(s.pkg)
	if err != nil || k.main == "" {
		return ""
	}
	archives := maps.Clone(k.archives)
	packages, changed := r.packages(overlay), 0
	err = r.compiled(func(path, archive string) {
		if k.archives[path] != "" && !k.variants[path] {
			archives[path] = archive
			changed++
		}
	}, append([]string{"-overlay=" + overlay + ".json"}, packages...)...)
	if err != nil || changed != len(packages) {
		return ""
	}
	var config strings.Builder
	for path, archive := range archives {
		if archive != "" { // unsafe has none
			fmt.Fprintf(&config, "packagefile %s=%s\n", path, archive)
		}
	}
	program := overlay + ".test"
	if os.WriteFile(overlay+".cfg", []byte(config.String()), 0o644) != nil {
		return ""
	}
	cmd := exec.CommandContext(r.ctx, "go", "tool", "link", "-w", "-importcfg="+overlay+".cfg", "-o", program, k.main)
	cmd.Dir = r.root
	if cmd.Run() != nil {
		return ""
	}
	return program
}

// packages returns the folders that hold the patched files, relative to the root.
func (r *runner) packages(overlay string) (dirs []string) {
	filepath.WalkDir(overlay, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			dir, _ := filepath.Rel(overlay, filepath.Dir(path))
			if dir = "./" + filepath.ToSlash(dir); !slices.Contains(dirs, dir) {
				dirs = append(dirs, dir)
			}
		}
		return err
	})
	return dirs
}

// compiled has go list compile packages and reports each with its archive.
func (r *runner) compiled(report func(path, archive string), args ...string) error {
	cmd := exec.CommandContext(r.ctx, "go", append([]string{"list", "-export", "-f", "{{.ImportPath}}\t{{.Export}}", quicker[0]}, args...)...)
	cmd.Dir = r.root
	out, err := cmd.Output()
	for line := range bytes.Lines(out) {
		path, archive, _ := strings.Cut(strings.TrimSuffix(string(line), "\n"), "\t")
		report(path, archive)
	}
	return err
}
