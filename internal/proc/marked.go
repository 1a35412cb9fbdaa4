package proc

import (
	"slices"
	"strings"
)

// A Marked is a process that [FindMarked] has found.
type Marked struct {
	Adoptable          // the Containment in it is the one in which the process was started
	Command     string // name of the program
	LeadsGroup  bool   // the process leads its process group, as every process started by Start does
	environment []string
}

// Getenv returns a variable of the environment that the process was started with.
func (m Marked) Getenv(name string) string {
	i := slices.IndexFunc(m.environment, func(v string) bool { return strings.HasPrefix(v, name+"=") })
	if i < 0 {
		return ""
	}
	return m.environment[i][len(name)+1:]
}

// FindMarked returns the processes of this user that were started in a containment with this
// variable in their environment, and their descendants, oldest first. Use it if neither the pids
// nor the containments are known. On systems other than Linux it finds nothing.
func FindMarked(variable string) []Marked { return findMarked(variable) }
