package httpdrain

import (
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/swansong-go/swansong/internal/testkit"
)

// A checkedSocket is a closed socket. It calls check when the drain examines it, which the drain
// does to find out whether the socket is closed.
type checkedSocket struct {
	syscall.RawConn
	check func()
}

func (s checkedSocket) Control(func(uintptr)) error {
	s.check()
	return net.ErrClosed
}

// While the drain checks hijacked sockets, other goroutines can accept and close connections: its
// mutex is free. A second check at the same time does no harm.
func TestReleaseHijacked_HoldsNoMutexWhileItChecksSockets(t *testing.T) {
	d := &drain{server: &server{}, conns: map[*conn]int{}, hijacked: map[*conn]syscall.RawConn{}, ended: make(chan struct{})}
	client, nc := net.Pipe()
	defer client.Close()
	defer nc.Close()
	d.add(nc, false)
	c := d.snapshot()[0]
	checks := 0
	d.hijacked[c] = checkedSocket{check: func() {
		if checks++; checks > 1 {
			return
		}
		if !d.mu.TryLock() {
			t.Error("the mutex is locked during the check")
			return
		}
		d.mu.Unlock()
		testkit.Equal(t, "left after the second check", d.releaseHijacked(), 0)
	}}
	testkit.Equal(t, "left", d.releaseHijacked(), 0)
	testkit.Equal(t, "checks", checks, 2)
}

// The interval between two checks of the sockets is a fiftieth of the time that the drain has
// lasted, but at least 1 ms and at most 50 ms. It is longer if a check of many sockets takes long.
func TestDrainCheckInterval_GrowsWithDurationOfDrain(t *testing.T) {
	const ms = time.Millisecond
	for _, test := range []struct{ lasted, took, want time.Duration }{
		{0, 0, ms},
		{200 * ms, 0, 4 * ms},
		{time.Hour, 0, 50 * ms},
		{0, 20 * ms, 200 * ms},
		{time.Hour, 4 * ms, 50 * ms},
	} {
		testkit.Equal(t, test.lasted.String()+", "+test.took.String(), drainCheckInterval(test.lasted, test.took), test.want)
	}
}
