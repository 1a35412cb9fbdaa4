package proc

import (
	"fmt"
	"time"
)

// MarkVariable is the environment variable by which processes are found on Linux. A program that
// clears the environment of a process should keep this variable, so that containments can be
// nested.
const MarkVariable = "SWANSONG_PROC"

// A Containment is a mark and, if possible, a cgroup that identify a set of processes. With it, a
// program that did not start the processes can find and end them after the program that started
// them has died. A process that is started in a containment, and every process that it starts,
// carries the containment's mark and is in its cgroup, if one could be created.
//
// A Containment is plain data. Store it before calling Make, so that no cgroup exists without a
// record of it.
//
// Without a cgroup, a process leaves the containment by clearing its environment. Process group and
// session cannot be used here, since their ids may be reused once the leader is gone. Containments
// are empty on systems other than Linux.
type Containment struct {
	Mark   string `json:"mark"`
	Cgroup string `json:"cgroup,omitempty"` // path of the directory of the cgroup, which exists only if it could be created; empty if there is no cgroup to create it in
}

// An Adoptable identifies a process that outlives the program that started it, so that another
// program can adopt it.
type Adoptable struct {
	Containment        // contains this process and those that it has started
	PID         int    `json:"pid"`
	Born        uint64 `json:"born"` // start time in clock ticks since boot; unique together with PID
}

// Adopt returns a Process for a process that was started by a program that no longer runs. It can
// be used like one that this program started, with two differences. First, its exit status is
// unknown and Exit.Unseen is set, because the process is not a child of this program (for an
// exception see Spec.Child). Second, processes that it leaves behind are found only by its
// Containment, and not as descendants of this program. If the process has ended already, Adopt
// returns a Process that is done at once.
//
// Adopt uses only the fields Linger, ReadStdout, ReadStderr, BeforeReap and Child of the Spec. It
// works on Linux only.
func Adopt(k Adoptable, spec Spec) (*Process, error) {
	p := newProcess(spec)
	contain, err := adoptContained(k, spec.Child)
	if err != nil {
		p.Close()
		return nil, fmt.Errorf("cannot adopt pid %d: %w", k.PID, err)
	}
	p.contain, p.pid = contain, k.PID
	go p.awaitEnd()
	return p, nil
}

// Adoptable returns what Adopt needs. The process must have been started in a containment of its
// own.
func (p *Process) Adoptable(in Containment) Adoptable {
	if m, ok := p.main(); ok {
		return Adoptable{in, m.PID, m.start}
	}
	return Adoptable{in, p.pid, p.contain.born()}
}

// Identity returns what Adopt needs, even for a process that was not started in a containment of
// its own.
func (p *Process) Identity() Adoptable { return p.Adoptable(p.contain.containment()) }

// Empty kills all processes in the containment, including those that they start during the call,
// and removes its cgroup. It returns the processes that are still running at the deadline.
func (p Containment) Empty(deadline time.Time) (survivors []Member) { return p.empty(deadline) }
