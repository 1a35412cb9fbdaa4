package controller

import (
	"maps"
	"slices"
	"time"

	"github.com/swansong-go/swansong/launcher/internal/process"
	"github.com/swansong-go/swansong/launcher/internal/spec"
	"github.com/swansong-go/swansong/launcher/internal/statefile"
)

// A Process is what a Controller sees of a process: a [process.Process], or what stands for one in
// a test. Its methods do not wait.
type Process interface {
	ID() string
	Revision() int
	Started() time.Time
	Status() process.Status
	Config() *spec.Group
	IsUnrecorded() bool
	IsWithoutPipes() bool
	Record() *statefile.Process
	AddIdentity(*statefile.Process)
	Apply(spec.Group)
}

// instances are the processes of a group by id. A process is listed until it has been reaped, so
// that a roll counts those that are stopping.
type instances map[string]*instance

// An instance is a process with what its group remembers of it. The mutex of the Controller guards
// the fields.
type instance struct {
	Process
	accounted     bool // the exit of the process changes nothing any more: the group has stopped it, or has handled its exit
	noReplacement bool // do not start another process in its place: a user has ordered its stop, or the group had too many
	finishedIn    int  // the revision in which the process is counted as finished; 0: it is not counted
}

func (all instances) add(p Process) *instance {
	i := &instance{Process: p}
	all[p.ID()] = i
	return i
}

// find returns the instance of a process, nil if the process has been reaped.
func (all instances) find(p Process) *instance {
	if i := all[p.ID()]; i != nil && i.Process == p {
		return i
	}
	return nil
}

// sorted returns the instances, oldest first.
func (all instances) sorted() []*instance {
	list := slices.Collect(maps.Values(all))
	slices.SortFunc(list, func(a, b *instance) int { return a.Started().Compare(b.Started()) })
	return list
}

// live returns the number of instances that are to keep running.
func (all instances) live() (n int) {
	for _, i := range all {
		if !i.accounted {
			n++
		}
	}
	return n
}

// liveOf returns the number of instances of a revision that are to keep running.
func (all instances) liveOf(revision int) (n int) {
	for _, i := range all {
		if i.Revision() == revision && !i.accounted {
			n++
		}
	}
	return n
}
