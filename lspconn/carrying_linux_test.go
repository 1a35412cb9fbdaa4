package lspconn_test

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// withVariable returns the processes whose environment contains the given variable.
func withVariable(variable string) (found []osProcess) {
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range files {
		env, err := os.ReadFile(file)
		if err != nil || !slices.Contains(strings.Split(string(env), "\x00"), variable) {
			continue // the process lacks the variable, has ended, or belongs to another user
		}
		dir := filepath.Dir(file)
		pid, _ := strconv.Atoi(filepath.Base(dir))
		name, _ := os.ReadFile(filepath.Join(dir, "comm"))
		found = append(found, osProcess{strings.TrimSpace(string(name)), pid})
	}
	return found
}
