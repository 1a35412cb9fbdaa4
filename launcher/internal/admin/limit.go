package admin

import (
	"net"
	"sync"
)

// limit returns a listener that accepts a connection only while fewer than n are open. So the
// processes of one user cannot use up the open files of the launcher.
func limit(ln net.Listener, n int) net.Listener {
	return &limited{Listener: ln, slots: make(chan struct{}, n), closed: make(chan struct{})}
}

// A limited listener has one slot for each open connection. Connections beyond that are not
// refused: the kernel queues them until a slot is free.
type limited struct {
	net.Listener
	slots  chan struct{} // contains one element for each open connection; its capacity is the limit
	once   sync.Once
	closed chan struct{}
}

// Accept waits for a slot before it accepts, so a connection that waits has no open file here.
// Close has to end that wait itself, because closing the underlying listener ends only its own
// Accept.
func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	conn, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	// Package grpc may close a connection more than once.
	return &counted{conn.(*net.UnixConn), sync.OnceFunc(func() { <-l.slots })}, nil
}

func (l *limited) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// A counted is a connection that takes one of the slots of a limited listener, and frees the slot
// when it is closed.
type counted struct {
	*net.UnixConn
	done func()
}

func (c *counted) Close() error {
	c.done()
	return c.UnixConn.Close()
}
