package httpdrain_test

import (
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// A readCounter is a connection that counts the reads that return data.
type readCounter struct {
	net.Conn
	reads atomic.Int64
}

func (c *readCounter) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.reads.Add(1)
	}
	return n, err
}

// A request on h2c takes one read of the connection. net/http reads the header of a frame and the
// rest of it separately, so without a buffer it would take two.
func TestServe_ReadsRequestOnH2CInOneRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := listenInMemory()
		v := startOn(t, ln, plain2(ok))
		client, server := net.Pipe()
		conn := &readCounter{Conn: server}
		ln.Queue <- conn
		p := newPeer(t, client)
		p.send(preface + frame(4, 0, ""))
		p.send(request2(1, "/"))
		p.next(0)
		const requests = 3
		before := conn.reads.Load()
		for i := range byte(requests) {
			p.send(request2(3+2*i, "/"))
			p.next(0)
		}
		if got := conn.reads.Load() - before; got != requests {
			t.Errorf("%d requests took %d reads of the connection, want one for each", requests, got)
		}
		p.Close()
		v.s.Shutdown()
		v.drained()
	})
}
