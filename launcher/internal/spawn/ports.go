package spawn

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// Ports chooses ports for processes. The zero value is ready to use.
type Ports struct {
	mu    sync.Mutex
	taken map[int]bool
}

// The ports are below those that Linux gives to clients (net.ipv4.ip_local_port_range, by default
// from 32768), because the process may listen much later than its port is chosen. A connection of
// any program could take one of those ports meanwhile.
const firstPort, lastPort = 20_000, 32_767

// Take returns a port that no other process of the launcher has, and at which no program of this
// machine listens at the moment. Another program can listen there before the process does; then the
// process fails to start, and its replacement chooses again.
//
// Ports are tried at random, so that two launchers on one machine seldom choose the same one at the
// same time. The process itself opens the port, so the launcher cannot keep it open until then.
func (p *Ports) Take() (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		if p.taken[port] {
			continue
		}
		ln, err := net.Listen("tcp", ":"+strconv.Itoa(port))
		if err != nil {
			continue
		}
		ln.Close()
		p.add(port)
		return port, nil
	}
	return 0, errors.New("no free port for {port} was found from 20000 to 32767")
}

// Add records the port of an adopted process, which Take has not chosen. A port of 0 means that the
// process has none, and does no harm.
func (p *Ports) Add(port int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.add(port)
}

func (p *Ports) add(port int) {
	if p.taken == nil {
		p.taken = map[int]bool{}
	}
	p.taken[port] = true
}

// Release makes the port of a process that has ended available again.
func (p *Ports) Release(port int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.taken, port)
}
