package proc

import (
	"slices"
	"time"
)

// Members returns the processes of p that are alive, including the one that Start has started, as
// far as the platform can list them. The list is a snapshot.
func (p *Process) Members() []Member {
	p.search.Lock()
	defer p.search.Unlock()
	if p.isReaped() {
		return p.Exit().Survivors
	}
	members := p.members()
	if leader, ok := p.contain.leader(); ok {
		members = append([]Member{leader}, members...)
	}
	return members
}

// members searches for the living processes of the container, except for the leader. On a busy
// machine, the search can take a second. The result includes members that only an earlier search
// has found: a process that is exiting has no environment any more, so the search cannot see its
// mark.
func (p *Process) members() []Member {
	begin := time.Now()
	p.mu.Lock()
	p.searches++
	p.mu.Unlock()
	found := p.contain.members()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slowest = max(p.slowest, time.Since(begin))
	p.remember(found)
	return slices.Clone(p.known)
}

// remember adds members to the known ones and drops those that have ended. The caller holds mu.
func (p *Process) remember(found []Member) {
	p.known = slices.DeleteFunc(slices.Concat(found, exclude(p.known, found)), func(m Member) bool { return !m.isAlive() })
}

// knownMembers returns the living members that earlier searches have found, and those that can be
// found without reading all of /proc. After the leader was reaped, it returns the survivors.
func (p *Process) knownMembers() (alive []Member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return p.exit.Survivors
	}
	if leader, ok := p.contain.leader(); ok {
		alive = append(alive, leader)
	}
	near, _ := p.contain.near()
	p.remember(near)
	return append(alive, p.known...)
}

// exclude returns the members that are not in the slice known.
func exclude(members, known []Member) (rest []Member) {
	for _, m := range members {
		if !slices.ContainsFunc(known, func(k Member) bool { return k.PID == m.PID && k.start == m.start }) {
			rest = append(rest, m)
		}
	}
	return rest
}
