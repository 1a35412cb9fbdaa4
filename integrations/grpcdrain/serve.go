package grpcdrain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
)

const (
	// handshakeLimit is the time that handshakes get after the stop. They are not cut off at the
	// stop, because a client may send a call together with the last bytes of its handshake.
	handshakeLimit = 250 * time.Millisecond
	// defaultUserTimeout is grpc's default for the keepalive Timeout, from which it sets
	// TCP_USER_TIMEOUT.
	defaultUserTimeout = 20 * time.Second
)

// answerLimit is how long a handler whose context was cancelled may take to answer its client. It
// is a variable for tests.
var answerLimit = 100 * time.Millisecond

// An Option configures [Serve].
type Option interface{ applyTo(*server) error }

type option func(*server) error

func (f option) applyTo(s *server) error { return f(s) }

type server struct {
	health      *health.Server
	userTimeout time.Duration
}

// Health makes h report NOT_SERVING for every service before Serve does anything else to stop the
// server. If the scope belongs to a [graceful.Process], that is at the beginning of the lame duck
// phase, otherwise when the scope is stopped.
func Health(h *health.Server) Option {
	return option(func(s *server) error {
		if h == nil {
			return errors.New("Health: nil *health.Server")
		}
		s.health = h
		return nil
	})
}

// KeepaliveTimeout tells Serve the Timeout in the server's
// [google.golang.org/grpc/keepalive.ServerParameters]. Use the option if that Timeout is not the
// default of 20 seconds. On Linux, grpc sets the Timeout as TCP_USER_TIMEOUT on its connections.
// grpc cannot do that on the connections of Serve, which are wrapped, so Serve does it.
func KeepaliveTimeout(d time.Duration) Option {
	return option(func(s *server) error {
		if d <= 0 {
			return fmt.Errorf("KeepaliveTimeout(%v): must be positive", d)
		}
		s.userTimeout = d
		return nil
	})
}

// Serve serves srv on ln until s is stopped, and returns when it has drained: every connection is
// closed, and every call is answered. It returns
//
//   - nil after a drain in which no call was cut off, also if s was stopped before Serve was
//     called,
//   - a [*CutError] that lists the calls cut off by [ctxshutdown.Swansong.Force]. Handlers that
//     ignore their context may still be running when Serve returns,
//   - the error of [grpc.Server.Serve], at once, if the listener fails before s is stopped. The
//     existing connections then drain in the background.
//
// Until it returns, it holds a guard of a scope named "connections" below s, so that s is not
// complete before the connection of the last client is closed. Call Serve once for each listener of
// a server. After Serve has returned, srv is stopped and cannot be used again.
//
// Serve also drains a server without the interceptors. The calls of such a server hold no guards,
// are not listed in a CutError, and do not learn of the stop.
func Serve(s *ctxshutdown.Swansong, srv *grpc.Server, ln net.Listener, opts ...Option) error {
	switch {
	case s == nil:
		return errors.New("grpcdrain: Serve: nil scope; create one with ctxshutdown.New")
	case srv == nil:
		return errors.New("grpcdrain: Serve: nil *grpc.Server; create one with grpc.NewServer")
	case ln == nil:
		return errors.New("grpcdrain: Serve: nil net.Listener; open one with net.Listen")
	}
	o := server{userTimeout: defaultUserTimeout}
	for _, opt := range opts {
		if opt == nil {
			continue
		}
		if err := opt.applyTo(&o); err != nil {
			return fmt.Errorf("grpcdrain: %w", err)
		}
	}
	l := newListener(ln, o.userTimeout)

	connections, cancel := ctxshutdown.WithCancel(s, ctxshutdown.WithName("connections"))
	g := connections.Guard()

	var lameDuck <-chan struct{}
	if p, ok := graceful.FromContext(s); ok {
		lameDuck = p.LameDuck()
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()

	var failure error
	running := true
	select {
	case <-lameDuck:
	case <-s.Done():
	case failure = <-served:
		running = false
	}
	if o.health != nil {
		o.health.Shutdown()
	}
	if running {
		select {
		case <-s.Done():
		case failure = <-served:
			running = false
		}
	}
	drain := func() error {
		defer cancel()
		defer g.Release()
		return o.drain(s, connections, srv, l)
	}
	if failure != nil && s.Err() == nil {
		// Drain in the background, because the caller must learn of the failure at once. The drain
		// may take long: s has not been stopped, and streams do not end by themselves.
		go drain()
		return fmt.Errorf("grpcdrain: serve on %v: %w", ln.Addr(), failure)
	}
	cut := drain()
	if running && cut == nil { // if calls were cut off, do not wait, because srv.Serve returns only when all handlers have returned
		<-served // ignore the error of srv.Serve, which says only that the drain has stopped the server
	}
	return cut // an error of the listener is ignored here, because s has been stopped anyway
}

// drain sends each client a GOAWAY and waits for the running calls, until Work of s is cancelled.
func (o *server) drain(s, connections *ctxshutdown.Swansong, srv *grpc.Server, l *listener) error {
	drained := make(chan struct{})
	l.limitHandshakes(handshakeLimit)
	go func() {
		defer close(drained)
		srv.GracefulStop()
	}()
	work := s.Work()
	select {
	case <-drained:
		return nil
	case <-work.Done():
	}
	timer := time.NewTimer(answerLimit)
	defer timer.Stop()
	select {
	case <-drained:
		return nil
	case <-timer.C:
		select {
		case <-drained: // the drain ended at the same time as the timer, so no call is cut off
			return nil
		default:
		}
	}
	err := &CutError{Calls: unfinishedCalls(s, connections), Cause: context.Cause(work)}
	stopped := make(chan struct{})
	// Stop is called on a goroutine because it may block until all handlers have returned:
	// GracefulStop waits for them while it holds the mutex that Stop needs.
	go func() {
		defer close(stopped)
		srv.Stop()
	}()
	timer.Reset(answerLimit)
	select {
	case <-stopped:
	case <-l.notifyAllClosed():
	// Do not wait longer: Stop may wait for handlers, and a connection that credentials have taken
	// over (ErrConnDispatched) may stay open.
	case <-timer.C:
	}
	return err
}

// unfinishedCalls returns the guards of s and of all scopes below it, except the guard of
// connections, the scope in which the server serves its connections.
func unfinishedCalls(s, connections *ctxshutdown.Swansong) (calls []ctxshutdown.GuardEntry) {
	var own string
	if e := connections.GuardReport().Entries(); len(e) > 0 {
		own = e[0].Path
	}
	for _, e := range s.GuardReport().Entries() {
		if e.Path != own {
			calls = append(calls, e)
		}
	}
	return calls
}

// A CutError reports that calls were still running when their connections were closed, shortly
// after Force.
type CutError struct {
	Calls []ctxshutdown.GuardEntry // the calls, grouped by the path of their scope; Oldest is zero if the scope is not traced
	Cause error                    // the cause given to Force
}

// maxListed is how many methods the message of a CutError lists.
const maxListed = 10

func (e *CutError) Error() string {
	var b strings.Builder
	total := 0
	for i, c := range e.Calls {
		total += c.Count
		switch {
		case i > maxListed:
			continue
		case i == maxListed:
			b.WriteString(", …")
			continue
		case i > 0:
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s ×%d", cmp.Or(c.Path, "(unnamed)"), c.Count)
		if c.Oldest > 0 {
			fmt.Fprintf(&b, " for %v", c.Oldest.Round(time.Millisecond))
		}
	}
	if total == 0 {
		return fmt.Sprintf("grpcdrain: connections cut off before they were drained (%v)", e.Cause)
	}
	calls := "calls"
	if total == 1 {
		calls = "call"
	}
	return fmt.Sprintf("grpcdrain: %d %s cut off (%v): %s", total, calls, e.Cause, b.String())
}

// Unwrap returns e.Cause.
func (e *CutError) Unwrap() error { return e.Cause }
