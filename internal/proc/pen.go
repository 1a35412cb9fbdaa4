package proc

import (
	"fmt"
	"time"
)

// A Pen holds processes so that somebody who has not started them can find them, and end them: whoever outlives the program
// that has, or comes after it. A process that is started in a pen, and all that it starts, carries the pen's mark, and is in
// the pen's cgroup where one could be made. A Pen is plain data, to be written down before it is made: so there is never one
// that nobody knows of, and that would stay for ever.
//
// Who is in a pen without a cgroup gets out by an environment without the mark; its process group and its session are of no
// help, since when their leader has gone the numbers may be somebody else's. Linux only: elsewhere pens are empty.
type Pen struct {
	Mark   string `json:"mark"`
	Cgroup string `json:"cgroup,omitempty"` // a directory, there if one could be made; empty: there is no place for one
}

// A Kept names a process that outlives who has started it.
type Kept struct {
	Pen         // that it was started in, alone
	PID  int    `json:"pid"`
	Born uint64 `json:"born"` // when it was started, in the kernel's ticks since the boot: by it and PID it is known for ever
}

// Adopt returns a Process for one that another program has started, and that is gone. What can be done with a process that
// was started can be done with it, and it is swept up after in the same way, but for two things. It is somebody else's to
// wait for, so how it has ended is not known: Exit has Unseen set. And once it has ended, what it has left behind is found by
// its pen alone. One that has ended already, and whose number may be somebody else's, is a Process that ends at once.
//
// Of the Spec, Args[0] is its name in errors; Linger, ReadStdout and ReadStderr count, and nothing else does. Linux only.
func Adopt(k Kept, spec Spec) (*Process, error) {
	p := newProcess(spec)
	contain, err := adoptContained(k)
	if err != nil {
		p.Close()
		return nil, fmt.Errorf("proc: cannot adopt pid %d: %w", k.PID, err)
	}
	p.contain, p.pid = contain, k.PID
	go p.see()
	return p, nil
}

// Kept returns what Adopt needs. The process has to have been started in a pen of its own for it.
func (p *Process) Kept(in Pen) Kept { return Kept{in, p.pid, p.contain.born()} }

// Empty kills all that is in the pen, to a fixpoint, and removes it. It returns who is still there at the deadline.
func (p Pen) Empty(deadline time.Time) (survivors []Member) { return p.empty(deadline) }
