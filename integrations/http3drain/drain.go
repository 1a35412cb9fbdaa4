package http3drain

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
	"github.com/swansong-go/swansong/httpdrain"
	"github.com/swansong-go/swansong/internal/drainstats"
)

// handshakeLimit is how long the drain waits for a handshake that was under way at the stop.
// Without loss, a handshake takes a round trip.
const handshakeLimit = time.Second

// A drain tracks the connections of one call of Serve, and ends them after the scope has been
// stopped.
type drain struct {
	options
	server  *http3.Server
	scope   *ctxshutdown.Swansong
	hijacks *ctxshutdown.Swansong // child scope whose guards are the streams that handlers have taken over
	work    context.Context       // scope.Work(), which Force cancels
	began   time.Time             // when the drain began
	changed chan struct{}         // receives a value when a connection or a handshake has ended

	lameDuck atomic.Pointer[lameDuck] // set when the lame duck phase of the process begins

	mu         sync.Mutex
	conns      map[*conn]struct{}
	handshakes int             // number of handshakes under way; their connections are not in conns yet
	draining   bool            // the scope has been stopped
	silent     []httpdrain.Cut // requests refused in the middle of a header
}

type handshakeKey struct{}

// beginHandshake is called when a client begins to connect. After the stop it refuses the client,
// which then gets the error CONNECTION_REFUSED at once.
func (d *drain) beginHandshake(ctx context.Context, _ *quic.ClientInfo) (context.Context, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.draining {
		return nil, errors.New("http3drain: the server is shutting down")
	}
	d.handshakes++
	end := sync.OnceFunc(func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.handshakes--
		d.signal()
	})
	// If the handshake fails, ctx ends, and package context calls the function end. If the
	// handshake succeeds, the method accept calls end.
	context.AfterFunc(ctx, end)
	return context.WithValue(ctx, handshakeKey{}, end), nil
}

func (d *drain) add(qc *quic.Conn) *conn {
	c := &conn{
		drain: d, quic: qc, turn: rand.Float64(), draining: make(chan struct{}),
		streams: map[quic.StreamID]*stream{}, changed: make(chan struct{}, 1),
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.conns[c] = struct{}{}
	if d.draining {
		close(c.draining)
	}
	return c
}

func (d *drain) remove(c *conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.conns, c)
	d.signal()
}

// signal wakes the goroutine in run, which then checks again whether all connections have ended.
// The caller holds d.mu.
func (d *drain) signal() {
	select {
	case d.changed <- struct{}{}:
	default:
	}
}

// begin starts to end the connections, and returns their number.
func (d *drain) begin() int {
	d.began = time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.draining = true
	for c := range d.conns {
		close(c.draining)
	}
	return len(d.conns)
}

// isEmpty reports whether all connections have ended. A handshake that is under way counts as a
// connection, unless late is true: then the time for handshakes is over.
func (d *drain) isEmpty(late bool) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.conns) == 0 && (late || d.handshakes == 0)
}

// recordSilent records a request that the drain refused in the middle of a header.
func (d *drain) recordSilent(c httpdrain.Cut) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.silent = append(d.silent, c)
}

func (d *drain) snapshot() []*conn {
	d.mu.Lock()
	defer d.mu.Unlock()
	conns := make([]*conn, 0, len(d.conns))
	for c := range d.conns {
		conns = append(conns, c)
	}
	return conns
}

// A lameDuck is the lame duck phase of the process.
type lameDuck struct {
	began  time.Time
	length time.Duration
}

// turn returns when c is told to open no more streams, a random time in the first half of the
// phase.
func (l *lameDuck) turn(c *conn) time.Time {
	return l.began.Add(time.Duration(c.turn * float64(l.length) / 2))
}

// awaitLameDuck waits for the lame duck phase of p, if there is one, and then tells each client, at
// the turn of its connection, to open no more streams. It returns when the scope is stopped.
// Clients that connect during the phase are told by serveStream.
func (d *drain) awaitLameDuck(p *graceful.Process) {
	select {
	case <-p.LameDuck():
	case <-d.scope.Done():
		return
	}
	status := p.Status()
	if status.Phase != graceful.LameDuck {
		return
	}
	l := &lameDuck{status.Since, status.Until.Sub(status.Since)}
	d.lameDuck.Store(l)
	conns := d.snapshot()
	slices.SortFunc(conns, func(a, b *conn) int { return cmp.Compare(a.turn, b.turn) })
	for _, c := range conns {
		if !ctxshutdown.Sleep(d.scope, time.Until(l.turn(c))) {
			return
		}
		c.announce()
	}
}

// cutShort closes all connections and returns an error that lists the unfinished requests.
func (d *drain) cutShort() *httpdrain.CutError {
	e := &httpdrain.CutError{Name: d.name, Cause: context.Cause(d.work)}
	now := time.Now()
	for _, c := range d.snapshot() {
		e.Cut = append(e.Cut, c.unfinished(now)...)
		c.close()
	}
	slices.SortFunc(e.Cut, func(a, b httpdrain.Cut) int { return cmp.Compare(b.Age, a.Age) })
	d.reportSilent()
	drainstats.CutShort.Add(1)
	drainstats.Cut.Add(uint64(len(e.Cut)))
	for _, c := range e.Cut {
		d.log(slog.LevelWarn, "http3drain: request cut short", slog.String("method", c.Method), slog.String("route", c.Route),
			slog.String("remote", c.Remote), slog.Duration("age", c.Age), slog.Bool("hijacked", c.Hijacked))
	}
	d.log(slog.LevelWarn, "http3drain: drain cut short", slog.Int("requests", len(e.Cut)),
		slog.Duration("after", time.Since(d.began)), slog.Any("cause", e.Cause))
	return e
}

func (d *drain) reportEnd() {
	d.reportSilent()
	drainstats.Clean.Add(1)
	d.log(slog.LevelInfo, "http3drain: drained", slog.Duration("after", time.Since(d.began)))
}

// reportSilent logs and counts the requests that the drain refused in the middle of a header.
func (d *drain) reportSilent() {
	d.mu.Lock()
	silent := d.silent
	d.mu.Unlock()
	for _, c := range silent {
		d.log(slog.LevelWarn, "http3drain: request refused in the middle of its header",
			slog.String("remote", c.Remote), slog.Duration("age", c.Age))
	}
	drainstats.Silent.Add(uint64(len(silent)))
}

func (d *drain) log(level slog.Level, message string, attrs ...slog.Attr) {
	if l := d.server.Logger; l != nil {
		l.With("server", d.name).LogAttrs(context.Background(), level, message, attrs...)
	}
}
