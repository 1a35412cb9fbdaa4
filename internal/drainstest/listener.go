package drainstest

import "net"

// A Listener is one whose connections are pipes, so that what takes time can be tested in a bubble.
type Listener struct {
	Queue  chan net.Conn // of those that are yet to be accepted
	Closed chan struct{}
	Fail   chan error // for Accept to return
}

// Listen returns a Listener that has room for a hundred connections.
func Listen() *Listener {
	return &Listener{make(chan net.Conn, 100), make(chan struct{}), make(chan error, 1)}
}

// Dial returns the end of a client.
func (l *Listener) Dial() net.Conn {
	client, server := net.Pipe()
	l.Queue <- server
	return client
}

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

func (l *Listener) Close() error   { close(l.Closed); return nil } // twice is a panic
func (l *Listener) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "memory"} }
