package httpdrain

import (
	"math"
	"net"
	"sync/atomic"
	"time"
)

// clientQuiet is how long a client must have sent no request, on any of its connections, before the
// drain closes the client's quiet connections.
const clientQuiet = time.Second

// A client is what the drain knows of all connections from one host. The drain needs it for
// proxies. A proxy has a pool of connections, and prefers the connection that it has used last.
// When a response on that connection says Connection: close, the proxy takes another connection,
// which may have been idle for seconds. If the drain judged each connection alone, it would close
// the idle connections just when the proxy begins to use them.
type client struct {
	lastStart atomic.Int64 // when the latest request was read, as the time since epoch, or noRequest
}

// noRequest says that a client has not sent a request yet. It is not 0, because in a synctest
// bubble, whose clock begins in 2000, the time of a request since epoch is negative.
const noRequest = math.MinInt64

// groupByClient sets the field client of each connection. Connections from the same host get the
// same client.
func groupByClient(conns []*conn) {
	clients := map[string]*client{}
	for _, c := range conns {
		host := c.remote()
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
		cl := clients[host]
		if cl == nil {
			cl = new(client)
			cl.lastStart.Store(noRequest)
			clients[host] = cl
		}
		c.mu.Lock()
		c.client = cl
		if c.lastStart != 0 {
			cl.recordStart(c.lastStart)
		}
		c.mu.Unlock()
	}
}

// recordStart records that a request was read at the given time since epoch.
func (cl *client) recordStart(at time.Duration) {
	for {
		last := cl.lastStart.Load()
		if int64(at) <= last || cl.lastStart.CompareAndSwap(last, int64(at)) {
			return
		}
	}
}

// clientWait returns how long the drain must still keep the connection although it is quiet,
// because its client sends requests on other connections. No connection is kept for longer than
// maxLinger after the beginning of the drain. The caller holds c.mu.
func (c *conn) clientWait() time.Duration {
	if c.client == nil {
		return 0
	}
	last := c.client.lastStart.Load()
	if last == noRequest {
		return 0
	}
	until := min(time.Duration(last)+clientQuiet, c.drain.began.Sub(epoch)+c.drain.maxLinger)
	return until - time.Since(epoch)
}
