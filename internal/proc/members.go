package proc

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

// members returns the living processes of the container, except for the leader. On a busy machine,
// listing them can take a second or more.
func (p *Process) members() []Member {
	members := p.contain.members()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known = members
	return members
}

// knownMembers returns the processes that the most recent call of members has found and that are
// still alive, and the leader if it is. Unlike members, it does not search.
func (p *Process) knownMembers() (alive []Member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return p.exit.Survivors
	}
	if leader, ok := p.contain.leader(); ok {
		alive = append(alive, leader)
	}
	for _, m := range p.known {
		if m.isAlive() {
			alive = append(alive, m)
		}
	}
	return alive
}
