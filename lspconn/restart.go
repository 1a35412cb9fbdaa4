package lspconn

import (
	"fmt"
	"time"
)

// Restart is the policy by which a Manager restarts a server that has failed. The zero value means
// that failed servers are not restarted. A failed server is restarted by the next call of
// [Manager.Conn], not in the background. If Conn is called before the waiting time is over, it
// blocks until then.
type Restart struct {
	Max   int           // the maximum number of restarts in a row; negative means no limit
	First time.Duration // the wait before the first restart, doubled for each further one; zero means 1 s
	Limit time.Duration // the longest wait before a restart; zero means 1 minute
	Reset time.Duration // a server that ran this long may be restarted Max times again; zero means 10 minutes
}

func (r Restart) withDefaults() (Restart, error) {
	if r.First < 0 || r.Limit < 0 || r.Reset < 0 {
		return r, fmt.Errorf("Restart: First (%v), Limit (%v) and Reset (%v) must not be negative; zero means the default", r.First, r.Limit, r.Reset)
	}
	setDefault := func(d *time.Duration, def time.Duration) {
		if *d == 0 {
			*d = def
		}
	}
	setDefault(&r.First, time.Second)
	setDefault(&r.Limit, time.Minute)
	setDefault(&r.Reset, 10*time.Minute)
	return r, nil
}

// wait returns how long to wait before the nth restart in a row; the first restart has n = 1. It
// returns false if n exceeds Max.
func (r Restart) wait(n int) (time.Duration, bool) {
	if r.Max >= 0 && n > r.Max {
		return 0, false
	}
	d := r.First
	for range n - 1 {
		if d *= 2; d >= r.Limit || d <= 0 {
			break
		}
	}
	if d <= 0 || d > r.Limit { // d is not positive if the doubling has overflowed
		d = r.Limit
	}
	return d, true
}
