package httpdrain

import (
	"math/rand/v2"
	"time"
)

// paced tells the scopes of conns to stop: at once those that are not in the middle of anything, and of the others one at a
// time, until the drain is over.
func (d *drain) paced(conns []*conn) {
	gap := time.Duration(float64(time.Second) / d.pace)
	rand.Shuffle(len(conns), func(i, j int) { conns[i], conns[j] = conns[j], conns[i] })
	lasting := conns[:0]
	for _, c := range conns {
		if c.busy() {
			lasting = append(lasting, c)
		} else {
			c.release()
		}
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for _, c := range lasting {
		if !c.busy() {
			c.release() // it has ended by itself, and takes nobody's turn
			continue
		}
		select {
		case <-timer.C:
		case <-d.empty:
			return
		case <-d.work.Done():
			return
		}
		c.release()
		timer.Reset(gap + rand.N(gap/2+1)) // never less than gap, so that there are never more than n in a second
	}
}
