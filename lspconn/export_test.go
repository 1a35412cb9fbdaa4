package lspconn

import (
	"context"
	"encoding/json"
	"io"
	"time"
)

// SetForceTimeout sets the longest time for which Close waits after its context has ended, and
// returns a function that sets it back.
func SetForceTimeout(d time.Duration) (restore func()) {
	old := forceTimeout
	forceTimeout = d
	return func() { forceTimeout = old }
}

// ServerProcess is what a connection needs of the server's process. Tests implement it in process.
type ServerProcess = serverProcess

// StartWith does what Start does, but uses an existing process instead of starting one.
func StartWith(ctx context.Context, server Server, l ServerProcess) (*Conn, error) {
	return start(ctx, server, func(Server) (serverProcess, error) { return l, nil }, nil)
}

// StartProcessWith does what StartProcess does, but uses an existing process instead of starting
// one.
func StartProcessWith(ctx context.Context, server Server, l ServerProcess) (*Process, error) {
	return newProcess(ctx, server, func(Server) (serverProcess, error) { return l, nil })
}

// StartByWalk does what Start does, but without a cgroup, so that the processes of the server must
// be found in /proc.
func StartByWalk(ctx context.Context, server Server) (*Conn, error) {
	return start(ctx, server, func(s Server) (serverProcess, error) {
		spec := s.spec()
		spec.NoCgroup = true
		return startSpec(spec)
	}, nil)
}

// Frames returns a function that reads the next message from r.
func Frames(r io.Reader) (next func() ([]byte, error)) { return newFrameReader(r).next }

// ReadFrames reads messages until an error occurs, which it returns.
func ReadFrames(r io.Reader) (bodies []string, err error) {
	for in := newFrameReader(r); ; {
		body, err := in.next()
		if err != nil {
			return bodies, err
		}
		bodies = append(bodies, string(body))
	}
}

// Frame returns an encoded message with its header.
var Frame = frame

// WaitOf returns how long a policy waits before the nth restart.
func WaitOf(r Restart, n int) (time.Duration, bool) { return r.wait(n) }

// SetStart replaces the function with which a Manager starts servers.
func SetStart(m *Manager, start func(Server) (ServerProcess, error)) { m.start = start }

// Decode decodes the body of a message.
func Decode(body []byte) error {
	_, err := decode(body)
	return err
}

// ErrorLine returns the line of a server's stderr that says why the server has ended.
var ErrorLine = errorLine

// EndOfStderr returns what a report contains of a server's stderr.
var EndOfStderr = endOfStderr

// CancelTaken returns the error that answers a request which the server cancels after a goroutine
// has taken the request from the inbox, and before that goroutine calls the handler.
func CancelTaken() *ResponseError {
	b := newInbox(&Conn{})
	method := "client/ask"
	b.waiting = []message{{ID: json.RawMessage(`"q1"`), Method: &method}}
	m, _ := b.next()
	b.cancelRequest(json.RawMessage(`{"id":"q1"}`))
	return b.begin(&handling{inbox: b, request: true, id: m.ID})
}
