package http3drain

import (
	"context"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/quic-go/quic-go/quicvarint"
	"github.com/swansong-go/swansong/httpdrain"
)

const (
	// maxStreamID is the largest id of a stream that a client opens for a request.
	maxStreamID quic.StreamID = 1<<62 - 4
	frameGoAway               = 0x7 // the type of a GOAWAY frame

	// headerTimeout is how long a client may take to notice the first GOAWAY, and to send the rest
	// of a header.
	headerTimeout = 2 * time.Second
	// The linger is four round trips, but at least minLinger and at most maxLinger. The server
	// sends the second GOAWAY when no new stream has arrived for that long. minLinger is long
	// enough for a client on a busy machine. The drain waits for the linger only on connections
	// that their clients keep open.
	minLinger = 500 * time.Millisecond
	maxLinger = 3 * time.Second
	// maxDelivery is how long the client may take to acknowledge a response that has been written.
	// On a network that loses packets, an acknowledgement takes several round trips.
	maxDelivery = 10 * time.Second
	// pollInterval is the time between two checks of states whose changes package quic does not
	// report, for example that the client has acknowledged a response. awaitDelivery doubles the
	// time after each check, up to maxPollInterval.
	pollInterval    = 10 * time.Millisecond
	maxPollInterval = 160 * time.Millisecond
)

// A conn is a QUIC connection that is served.
type conn struct {
	drain *drain
	quic  *quic.Conn
	// when in the first half of the lame duck phase the first GOAWAY is sent: 0 is its begin, 1 its
	// end
	turn     float64
	draining chan struct{} // closed when the drain begins
	raw      *http3.RawServerConn

	goAway     sync.Mutex       // held while a GOAWAY is written
	control    *quic.SendStream // the control stream; nil until the connection is set up, and after a write that failed
	goAwaySent bool             // the first GOAWAY has been written

	mu      sync.Mutex
	streams map[quic.StreamID]*stream // the streams that are being served
	cut     []stream                  // requests that were being served when Force was called, and whose handlers have returned since
	next    quic.StreamID             // the id that follows that of the last accepted stream
	opened  time.Time                 // when the last accepted stream was opened; zero before the first stream
	refuses bool                      // the server refuses further streams of the client
	ended   time.Time                 // when a response was last written
	closed  bool                      // the client can open no more streams
	changed chan struct{}             // receives a value when a stream has ended
}

// serve serves the connection until it is closed.
func (c *conn) serve() {
	defer c.close()
	if !c.setUp() {
		c.endAccept()
		return
	}
	go func() {
		for {
			str, err := c.quic.AcceptUniStream(context.Background())
			if err != nil {
				return // the connection has been closed
			}
			go c.raw.HandleUnidirectionalStream(str)
		}
	}()
	go func() {
		select {
		case <-c.draining:
			c.end()
		case <-c.quic.Context().Done():
		}
	}()
	defer c.endAccept()
	for {
		str, err := c.quic.AcceptStream(context.Background())
		if err != nil {
			return // the connection has been closed
		}
		if s := c.begin(str); s != nil {
			go c.serveStream(s)
		} else {
			str.ReleaseStreamCredit()
			refuse(str)
		}
	}
}

// setUp sends the settings of HTTP/3 and finds the control stream. It reports whether the client
// can be served.
func (c *conn) setUp() bool {
	srv := c.drain.server
	raw, err := (&http3.Server{
		Handler:            c,
		EnableDatagrams:    srv.EnableDatagrams,
		MaxHeaderBytes:     srv.MaxHeaderBytes,
		AdditionalSettings: srv.AdditionalSettings,
		IdleTimeout:        srv.IdleTimeout,
		ConnContext:        c.context,
		Logger:             srv.Logger,
	}).NewRawServerConn(c.quic)
	if err != nil {
		return false // the connection was closed, or the client allows no control stream
	}
	c.raw = raw
	c.goAway.Lock()
	defer c.goAway.Unlock()
	c.control = newestStream(c.quic)
	return true
}

// begin records that the client has opened a stream. It returns nil if the stream must be refused.
func (c *conn) begin(str *quic.Stream) *stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refuses {
		return nil
	}
	s := &stream{Stream: str, opened: time.Now()}
	c.next, c.opened = str.StreamID()+4, s.opened
	c.streams[str.StreamID()] = s
	return s
}

// serveStream serves a request. It returns when the response has been written, or, if the handler
// has taken the stream over, when the stream has been closed.
func (c *conn) serveStream(s *stream) {
	defer c.finish(s)
	if l := c.drain.lameDuck.Load(); l != nil && time.Now().After(l.turn(c)) {
		c.announce()
	}
	c.raw.HandleRequestStream(s.Stream)
	c.mu.Lock()
	s.returned = true
	hijacked := s.hijacked
	c.mu.Unlock()
	if hijacked != nil {
		<-s.Context().Done()
		hijacked.Release()
	}
}

func (c *conn) finish(s *stream) {
	c.mu.Lock()
	delete(c.streams, s.StreamID())
	if s.method != "" && c.drain.work.Err() != nil {
		c.cut = append(c.cut, *s)
	}
	c.ended = time.Now()
	last := c.closed && len(c.streams) == 0
	c.mu.Unlock()
	if last {
		c.drain.remove(c)
	}
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// endAccept records that the connection has been closed. The drain then still waits until the last
// handler of the connection has returned.
func (c *conn) endAccept() {
	c.mu.Lock()
	c.closed = true
	last := len(c.streams) == 0
	c.mu.Unlock()
	if last {
		c.drain.remove(c)
	}
}

// close closes the connection and tells the client that there was no error.
func (c *conn) close() { c.quic.CloseWithError(quic.ApplicationErrorCode(http3.ErrCodeNoError), "") }

func refuse(str *quic.Stream) {
	str.CancelRead(quic.StreamErrorCode(http3.ErrCodeRequestRejected))
	str.CancelWrite(quic.StreamErrorCode(http3.ErrCodeRequestRejected))
}

// announce sends the first GOAWAY, which tells the client to open no more streams, unless it was
// sent before.
func (c *conn) announce() {
	c.goAway.Lock()
	defer c.goAway.Unlock()
	if !c.goAwaySent && c.control != nil {
		c.goAwaySent = true
		c.writeGoAway(maxStreamID)
	}
}

// writeGoAway sends a GOAWAY frame. The frame says that the server will serve neither the stream
// with this id nor one with a larger id. The caller holds c.goAway.
func (c *conn) writeGoAway(id quic.StreamID) {
	frame := quicvarint.Append(nil, frameGoAway)
	frame = quicvarint.Append(frame, uint64(quicvarint.Len(uint64(id))))
	frame = quicvarint.Append(frame, uint64(id))
	// Without a deadline, Write would block while the client does not read the control stream.
	c.control.SetWriteDeadline(time.Now().Add(headerTimeout))
	if _, err := c.control.Write(frame); err != nil {
		// The write may have sent a part of the frame. No other frame can be sent after that.
		c.control = nil
	}
}

// end ends the connection in five steps: it sends the first GOAWAY, serves the streams that the
// client opens before it has read that GOAWAY, sends the second GOAWAY, waits until the client has
// the responses, and closes the connection.
func (c *conn) end() {
	c.awaitFirstRequest()
	c.announce()
	c.awaitQuiet(time.Now())
	last := c.refuseStreams()
	c.goAway.Lock()
	if c.control != nil {
		c.writeGoAway(last)
	}
	c.goAway.Unlock()
	c.awaitHandlers(time.Now().Add(headerTimeout))
	c.awaitDelivery()
	c.close()
}

// If the handshake is under way, awaitFirstRequest waits until the client has completed it, at most
// for handshakeLimit, and then for the first request, at most for the linger. Otherwise the client
// would get the GOAWAY before its first request, and would have connected for nothing.
func (c *conn) awaitFirstRequest() {
	select {
	case <-c.quic.HandshakeComplete():
		return
	default:
	}
	timer := time.NewTimer(handshakeLimit)
	defer timer.Stop()
	select {
	case <-c.quic.HandshakeComplete():
	case <-timer.C:
		return
	case <-c.quic.Context().Done():
		return
	}
	for limit := time.Now().Add(c.linger()); !c.hasRequest() && time.Now().Before(limit); {
		if !c.sleep(pollInterval) {
			return
		}
	}
}

// hasRequest reports whether the client has opened a stream.
func (c *conn) hasRequest() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.opened.IsZero()
}

// linger returns how long the client must have opened no stream before the server assumes that the
// client has read the first GOAWAY.
func (c *conn) linger() time.Duration {
	return max(minLinger, min(4*c.quic.ConnectionStats().SmoothedRTT, maxLinger))
}

// awaitQuiet waits until the client has opened no stream for the linger. It returns at the latest
// when headerTimeout and the linger have passed since begin, the time of the first GOAWAY.
func (c *conn) awaitQuiet(begin time.Time) {
	for {
		c.mu.Lock()
		opened := c.opened
		c.mu.Unlock()
		linger := c.linger()
		until := begin.Add(linger)
		if opened.After(begin) {
			until = opened.Add(linger)
		}
		if limit := begin.Add(headerTimeout + linger); until.After(limit) {
			until = limit
		}
		if !c.sleep(time.Until(until)) {
			return
		}
	}
}

// waitSteps is the number of timers, one after another, with which sleep waits. A single timer
// would be wrong if the process is suspended, or starved on a busy machine, for longer than the
// timer runs: the timer would expire before the process has read what the client has sent
// meanwhile. With several timers, a suspension counts as one step at most.
const waitSteps = 5

// sleep waits for the duration d, or until the connection has been closed. It reports whether it
// has waited for the whole duration, and false if d is not positive.
func (c *conn) sleep(d time.Duration) bool {
	if d <= 0 {
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	for i := time.Duration(waitSteps); i > 0; i-- {
		step := d / i
		d -= step
		timer.Reset(step)
		select {
		case <-timer.C:
		case <-c.quic.Context().Done():
			return false
		}
	}
	return true
}

// refuseStreams makes the connection refuse further streams. It returns the smallest id of a
// refused stream.
func (c *conn) refuseStreams() quic.StreamID {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refuses = true
	return c.next
}

// awaitHandlers waits until all streams have been served. From limit on, it refuses the streams
// whose header is not complete.
func (c *conn) awaitHandlers(limit time.Time) {
	timer := time.NewTimer(time.Until(limit))
	defer timer.Stop()
	for {
		c.mu.Lock()
		n := len(c.streams)
		c.mu.Unlock()
		if n == 0 {
			return
		}
		select {
		case <-c.changed:
		case <-timer.C:
			c.refuseIncomplete()
		case <-c.quic.Context().Done():
			return
		}
	}
}

// refuseIncomplete refuses the streams whose header is not complete.
func (c *conn) refuseIncomplete() {
	var incomplete []*stream
	c.mu.Lock()
	for _, s := range c.streams {
		if s.method == "" {
			incomplete = append(incomplete, s)
		}
	}
	c.mu.Unlock()
	for _, s := range incomplete {
		c.drain.recordSilent(httpdrain.Cut{Remote: c.remote(), Age: time.Since(s.opened)})
		refuse(s.Stream)
	}
}

// awaitDelivery gives the client time to read the responses. It returns when the client has
// acknowledged all of them and maxLinger has passed since the last one was written, at the latest
// after maxDelivery. Closing the connection discards data that the client has not acknowledged.
// Some clients, such as quic-go, then also discard received data that the program has not read yet.
// A client that has read everything closes the connection itself, as RFC 9114 asks.
func (c *conn) awaitDelivery() {
	c.mu.Lock()
	ended, last := c.ended, c.next
	c.mu.Unlock()
	linger := maxLinger - time.Since(ended)
	if linger <= 0 {
		linger = c.linger() // keep the connection open, to refuse a request that the client sent before it read the second GOAWAY
	}
	if !c.sleep(linger) {
		return
	}
	for interval := pollInterval; countIncomplete(c.quic, last) > 0; interval = min(2*interval, maxPollInterval) {
		if time.Since(ended) >= maxDelivery || !c.sleep(interval) {
			return
		}
	}
}

func (c *conn) remote() string { return c.quic.RemoteAddr().String() }
