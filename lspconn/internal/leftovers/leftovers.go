// Package leftovers counts the processes, cgroups, open files and goroutines that a program which
// runs language servers may leave behind.
package leftovers

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/swansong-go/swansong/internal/proc"
)

// Counts contains how many processes, cgroups, open files and goroutines this program has at the
// moment.
type Counts struct {
	Processes   int // children of this program, including zombies
	Cgroups     int // cgroups that this program has made
	Descriptors int // open files of this program
	Goroutines  int
}

// Count counts what belongs to this program. On systems without /proc it counts the goroutines
// only.
func Count() Counts {
	c := Counts{Cgroups: len(proc.Cgroups()), Goroutines: runtime.NumGoroutine()}
	files, _ := os.ReadDir("/proc/self/fd")
	c.Descriptors = len(files)
	tasks, _ := filepath.Glob("/proc/self/task/*/children")
	for _, task := range tasks {
		children, _ := os.ReadFile(task)
		c.Processes += len(strings.Fields(string(children)))
	}
	return c
}

// More returns by how much the counts in c exceed those in before, such as "3 goroutines", or "" if
// none does.
func (c Counts) More(before Counts) string {
	var more []string
	for _, kind := range []struct {
		name        string
		now, before int
	}{
		{"processes", c.Processes, before.Processes}, {"cgroups", c.Cgroups, before.Cgroups},
		{"descriptors", c.Descriptors, before.Descriptors}, {"goroutines", c.Goroutines, before.Goroutines},
	} {
		if kind.now > kind.before {
			more = append(more, strconv.Itoa(kind.now-kind.before)+" "+kind.name)
		}
	}
	return strings.Join(more, ", ")
}
