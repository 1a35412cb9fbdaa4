package launcher_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

type process struct{ pid, parent int }

// processes returns the processes in /proc that are not zombies.
func processes(t *testing.T) (all []process) {
	t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // the process has ended since the directory was read
		}
		var state string
		var p process
		p.pid, _ = strconv.Atoi(filepath.Base(filepath.Dir(name)))
		fmt.Sscan(string(text[strings.LastIndexByte(string(text), ')')+1:]), &state, &p.parent)
		if state != "Z" {
			all = append(all, p)
		}
	}
	return all
}
