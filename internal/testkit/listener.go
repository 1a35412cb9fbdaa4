package testkit

import "net"

// A Listener has in-memory pipes as connections. Servers that use it can be tested in a
// [testing/synctest] bubble.
type Listener struct {
	Queue  chan net.Conn // connections that Accept will return
	Closed chan struct{}
	Fail   chan error // each error that is sent here is returned by one call of Accept
}

// Listen returns a Listener whose queue has room for a hundred connections.
func Listen() *Listener {
	return &Listener{make(chan net.Conn, 100), make(chan struct{}), make(chan error, 1)}
}

// Dial connects to the listener and returns the client's end of the connection.
func (l *Listener) Dial() net.Conn {
	client, server := net.Pipe()
	l.Queue <- server
	return client
}

// Accept implements [net.Listener].
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.Queue:
		return c, nil
	case err := <-l.Fail:
		return nil, err
	case <-l.Closed:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener]. A second call panics.
func (l *Listener) Close() error { close(l.Closed); return nil }

// Addr implements [net.Listener].
func (l *Listener) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "memory"} }
