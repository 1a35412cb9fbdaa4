package lspconn_test

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// carrying returns who was started with a variable in the environment.
func carrying(variable string) (found []somebody) {
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range files {
		env, err := os.ReadFile(file)
		if err != nil || !slices.Contains(strings.Split(string(env), "\x00"), variable) {
			continue // it has ended, or is somebody else
		}
		dir := filepath.Dir(file)
		pid, _ := strconv.Atoi(filepath.Base(dir))
		name, _ := os.ReadFile(filepath.Join(dir, "comm"))
		found = append(found, somebody{strings.TrimSpace(string(name)), pid})
	}
	return found
}
