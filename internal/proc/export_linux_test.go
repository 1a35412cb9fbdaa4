package proc

import "slices"

// Walk repeats looks at /proc until the result is reliable.
var Walk = walk

const MaxLooks = maxLooks

// Listed reports whether a new snapshot of /proc contains a process.
func Listed(pid int) bool {
	return slices.ContainsFunc(newSnapshot().all, func(m Member) bool { return m.PID == pid })
}

// Unsure reports whether one look at /proc finds a process that may belong to the container,
// although this is not known yet.
func (p *Process) Unsure() bool {
	_, unsure := p.contain.look()
	return unsure
}

// HoldSearch makes every search for members to signal wait until the result is called.
func (p *Process) HoldSearch() (release func()) {
	p.search.Lock()
	return p.search.Unlock
}
