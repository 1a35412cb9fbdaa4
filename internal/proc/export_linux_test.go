package proc

import "slices"

// Walk finds the members of a container by as many looks at /proc as it takes.
var Walk = walk

const MaxLooks = maxLooks

// Listed tells whether somebody is in what /proc shows now.
func Listed(pid int) bool {
	return slices.ContainsFunc(newTable().all, func(m Member) bool { return m.PID == pid })
}

// Unsure tells whether there is somebody who may be the process's or not.
func (p *Process) Unsure() bool {
	_, unsure := p.contain.look()
	return unsure
}
