package proc

import (
	"slices"
	"time"
)

// Members returns the processes that are alive, including the leader, as far as the platform can
// list them. The list is a snapshot.
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
// machine, the search can take a second.
func (p *Process) members() []Member {
	store := p.beginSearch()
	members := p.contain.members()
	store(members)
	return members
}

// beginSearch is called when a search begins. It returns a function that stores the result of that
// search.
func (p *Process) beginSearch() (store func([]Member)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.searches++
	search, begin := p.searches, time.Now()
	return func(members []Member) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.slowest = max(p.slowest, time.Since(begin))
		if search > p.knownSince { // a search that began later may have ended earlier
			p.known, p.knownSince = members, search
		}
	}
}

// knownMembers returns the processes that are known without a search and are still alive: the
// leader, and what the latest search has found.
func (p *Process) knownMembers() (alive []Member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return p.exit.Survivors
	}
	if leader, ok := p.contain.leader(); ok {
		alive = append(alive, leader)
	}
	known := p.known
	if near, complete := p.contain.near(); complete {
		known = near
	}
	for _, m := range known {
		if m.isAlive() {
			alive = append(alive, m)
		}
	}
	return alive
}

// without returns those of the members that are not in known.
func without(members, known []Member) (rest []Member) {
	for _, m := range members {
		if !slices.ContainsFunc(known, func(k Member) bool { return k.PID == m.PID && k.start == m.start }) {
			rest = append(rest, m)
		}
	}
	return rest
}
