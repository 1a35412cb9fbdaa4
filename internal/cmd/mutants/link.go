package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// A kit is what the test program of a package is linked from, by import path.
type kit map[string]*built

// A built is a package that has been compiled for a test program.
type built struct {
	ImportPath, Name, Dir, Export, ForTest string

	GoFiles, SFiles, CgoFiles, EmbedPatterns []string
	Module                                   *struct{ GoVersion string }
}

// kit compiles the tests of a package without a patch, once for all mutants.
func (r *runner) kit(pkg string) (kit, error) {
	r.mu.Lock()
	once := r.kits[pkg]
	if once == nil {
		once = sync.OnceValues(func() (kit, error) {
			k := kit{}
			err := r.compiled(func(p *built) {
				path, _, variant := strings.Cut(p.ImportPath, " ") // as in "p [p.test]", with the tests inside of the package
				if variant || k[path] == nil {
					k[path] = p
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
	if err != nil {
		return ""
	}
	archives, main := map[string]string{}, ""
	for path, p := range k {
		archives[path] = p.Export
		if strings.HasSuffix(path, ".test") {
			main = p.Export
		}
	}
	config := overlay + ".cfg"
	for _, dir := range r.packages(overlay) {
		path, archive := r.recompile(k, dir, overlay, config, archives)
		if path == "" {
			return ""
		}
		archives[path] = archive
	}
	program := overlay + ".test"
	if r.tool(r.root, config, archives, "link", "-w", "-importcfg="+config, "-o", program, main) != nil {
		return ""
	}
	return program
}

// recompile compiles a package of the kit with the patch, and returns "" where that cannot be done. The go command can do it,
// except for a package that has tests inside, where it would compile those outside, too; but it takes as long to find out what there
// is to do as the compiler takes for a small package. So it is asked only where there is assembly or C.
func (r *runner) recompile(k kit, dir, overlay, config string, archives map[string]string) (path, archive string) {
	for path, p := range k {
		if p.Dir != filepath.Join(r.root, dir) || p.Name == "main" || strings.HasSuffix(path, "_test") {
			continue
		}
		if len(p.SFiles)+len(p.CgoFiles) > 0 || p.Module == nil {
			if p.ForTest != "" {
				return "", ""
			}
			err := r.compiled(func(p *built) { archive = p.Export }, "-overlay="+overlay+".json", "./"+filepath.ToSlash(dir))
			if err != nil {
				return "", ""
			}
			return path, archive
		}
		archive = overlay + "-" + filepath.Base(dir) + ".a"
		from := filepath.Join(overlay, dir)
		version := strings.Join(strings.SplitN(p.Module.GoVersion, ".", 3)[:2], ".")
		args := []string{"compile", quicker[0][len("-gcflags="):], "-p=" + path, "-lang=go" + version, "-complete", "-pack", "-c=2",
			"-importcfg=" + config, "-trimpath=" + from + "=>" + p.Dir, "-o", archive}
		if len(p.EmbedPatterns) > 0 {
			embeds := overlay + "-embed.json"
			if !p.embeds(from, embeds) {
				return "", ""
			}
			args = append(args, "-embedcfg="+embeds)
		}
		for _, file := range p.GoFiles {
			if patched := filepath.Join(from, file); exists(patched) {
				file = patched
			} else {
				file = filepath.Join(p.Dir, file)
			}
			args = append(args, file)
		}
		if r.tool(p.Dir, config, archives, args...) != nil {
			return "", ""
		}
		return path, archive
	}
	return "", ""
}

// embeds writes down for the compiler which files are embedded, if all patterns are names of files.
func (p *built) embeds(patched, config string) bool {
	patterns, files := map[string][]string{}, map[string]string{}
	for _, name := range p.EmbedPatterns {
		patterns[name], files[name] = []string{name}, filepath.Join(p.Dir, name)
		if file := filepath.Join(patched, name); exists(file) {
			files[name] = file
		}
		if !exists(files[name]) {
			return false
		}
	}
	text, err := json.Marshal(map[string]any{"Patterns": patterns, "Files": files})
	return err == nil && os.WriteFile(config, text, 0o644) == nil
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// tool runs a tool that finds packages by a file.
func (r *runner) tool(dir, config string, archives map[string]string, args ...string) error {
	var text strings.Builder
	for path, archive := range archives {
		if archive != "" { // unsafe has none
			fmt.Fprintf(&text, "packagefile %s=%s\n", path, archive)
		}
	}
	if err := os.WriteFile(config, []byte(text.String()), 0o644); err != nil {
		return err
	}
	tools, err := toolDir() // go tool would find it, and take longer for that than some of them for their work
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(r.ctx, filepath.Join(tools, args[0]), args[1:]...)
	cmd.Dir = dir
	return cmd.Run()
}

var toolDir = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "env", "GOTOOLDIR").Output()
	return strings.TrimSpace(string(out)), err
})

// packages returns the folders that hold the patched files, relative to the root.
func (r *runner) packages(overlay string) (dirs []string) {
	filepath.WalkDir(overlay, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			if dir, _ := filepath.Rel(overlay, filepath.Dir(path)); !slices.Contains(dirs, dir) {
				dirs = append(dirs, dir)
			}
		}
		return err
	})
	return dirs
}

// compiled has go list compile packages and reports each.
func (r *runner) compiled(report func(*built), args ...string) error {
	fields := "-json=ImportPath,Name,Dir,Export,ForTest,GoFiles,SFiles,CgoFiles,EmbedPatterns,Module"
	cmd := exec.CommandContext(r.ctx, "go", append([]string{"list", "-export", fields, quicker[0]}, args...)...)
	cmd.Dir = r.root
	out, err := cmd.Output()
	for d := json.NewDecoder(bytes.NewReader(out)); err == nil; {
		p := new(built)
		if d.Decode(p) != nil {
			break
		}
		report(p)
	}
	return err
}
