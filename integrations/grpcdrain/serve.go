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
	// handshakes that are under way at the stop have this long to end. A client may have sent a call along with its half.
	handshakes = 250 * time.Millisecond
	// lastWords is how long calls whose context has ended may take to tell their clients so.
	lastWords = 100 * time.Millisecond
	// userTimeout is grpc's default for keepalive's Timeout, which is what it sets TCP_USER_TIMEOUT to.
	userTimeout = 20 * time.Second
)

// An Option configures [Serve].
type Option interface{ applyTo(*server) error }

type option func(*server) error

func (f option) applyTo(s *server) error { return f(s) }

type server struct {
	health      *health.Server
	userTimeout time.Duration
}

// Health has h answer NOT_SERVING for every service before anything else happens: when the process becomes a lame duck
// where the scope belongs to a [graceful.Process], at the stop otherwise.
func Health(h *health.Server) Option {
	return option(func(s *server) error {
		if h == nil {
			return errors.New("Health of a nil *health.Server")
		}
		s.health = h
		return nil
	})
}

// KeepaliveTimeout is for servers whose [google.golang.org/grpc/keepalive.ServerParameters] have a Timeout other than
// the 20 seconds that are the default. On Linux grpc makes it the TCP_USER_TIMEOUT of its connections, and cannot do so
// through the wrapper that Serve puts around them; Serve does it instead, and has to be told.
func KeepaliveTimeout(d time.Duration) Option {
	return option(func(s *server) error {
		if d <= 0 {
			return fmt.Errorf("KeepaliveTimeout(%v): it has to be positive", d)
		}
		s.userTimeout = d
		return nil
	})
}

// Serve serves srv on ln until s is told to stop, and returns when it has drained: every connection is closed, and every
// call has been answered. It returns
//
//   - nil after a drain in which no call was cut off, also if s had been told to stop before,
//   - a [*CutError] that names the calls which were cut off because the drain was cut short ([ctxshutdown.Swansong.Force]);
//     handlers that do not look at their context may still be running then,
//   - what [grpc.Server.Serve] returned, at once, if the listener failed before s was told to stop; the connections that
//     there are then drain in the background.
//
// Until it returns it holds a guard of a scope named "connections" below s, so that whoever waits for s does so until the
// last client has been turned away. Each listener of a server takes a Serve of its own. When it ends, srv is stopped for
// good.
//
// Serve drains a server without the interceptors, too; its calls are then not counted, not named and not told.
func Serve(s *ctxshutdown.Swansong, srv *grpc.Server, ln net.Listener, opts ...Option) error {
	switch {
	case s == nil:
		return errors.New("grpcdrain: Serve with a nil scope")
	case srv == nil:
		return errors.New("grpcdrain: Serve with a nil *grpc.Server")
	case ln == nil:
		return errors.New("grpcdrain: Serve with a nil net.Listener")
	}
	o := server{userTimeout: userTimeout}
	for _, opt := range opts {
		if opt == nil {
			continue
		}
		if err := opt.applyTo(&o); err != nil {
			return fmt.Errorf("grpcdrain: %w", err)
		}
	}
	l := newListener(ln, o.userTimeout)

	own, cancel := ctxshutdown.WithCancel(s, ctxshutdown.WithName("connections"))
	g := own.Guard()

	var lame <-chan struct{}
	if p, ok := graceful.FromContext(s); ok {
		lame = p.LameDuck()
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()

	var failure error
	running := true
	select {
	case <-lame:
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
		return o.drain(s, own, srv, l)
	}
	if failure != nil && s.Err() == nil {
		// Nobody has told s to stop, so streams may go on for long, and the caller has to hear of this now.
		go drain()
		return fmt.Errorf("grpcdrain: %w", failure)
	}
	cut := drain()
	if running && cut == nil { // else grpc's Serve returns only when the last handler has
		<-served // ended by the drain, which is no error
	}
	return cut // a listener that failed at the very moment of the stop has nothing to add
}

// drain turns the clients away and waits for the calls, until the hard tier ends.
func (o *server) drain(s, own *ctxshutdown.Swansong, srv *grpc.Server, l *listener) error {
	drained := make(chan struct{})
	l.hurry(handshakes)
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
	timer := time.NewTimer(lastWords)
	defer timer.Stop()
	select {
	case <-drained:
		return nil
	case <-timer.C:
		select {
		case <-drained: // both
			return nil
		default:
		}
	}
	err := &CutError{Calls: callsOf(s, own), Cause: context.Cause(work)}
	stopped := make(chan struct{})
	go func() { // may last until all handlers have returned: GracefulStop waits for them, and keeps Stop's mutex meanwhile
		defer close(stopped)
		srv.Stop()
	}()
	timer.Reset(lastWords)
	select {
	case <-stopped:
	case <-l.none():
	case <-timer.C: // a connection that credentials have handed to somebody else (ErrConnDispatched) is that one's to close
	}
	return err
}

// callsOf returns who holds guards below s, without own, which is Serve's.
func callsOf(s, own *ctxshutdown.Swansong) (calls []ctxshutdown.GuardEntry) {
	var mine string
	if e := own.GuardReport().Entries(); len(e) > 0 {
		mine = e[0].Path
	}
	for _, e := range s.GuardReport().Entries() {
		if e.Path != mine {
			calls = append(calls, e)
		}
	}
	return calls
}

// A CutError says that calls were still running when their connections were closed, a moment after the drain had been
// cut short.
type CutError struct {
	Calls []ctxshutdown.GuardEntry // by path: the scope's, and the method; with an age where traced
	Cause error                    // why the drain was cut short
}

// shown is how many methods Error spells out.
const shown = 10

func (e *CutError) Error() string {
	var b strings.Builder
	total := 0
	for i, c := range e.Calls {
		total += c.Count
		switch {
		case i > shown:
			continue
		case i == shown:
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

// Unwrap returns the cause.
func (e *CutError) Unwrap() error { return e.Cause }
