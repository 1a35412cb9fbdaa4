package httpdrain_test

import (
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/httpdrain/internal/socket"
	"github.com/swansong-go/swansong/internal/testkit"
)

// If a client connects just when the deadline of the last call of Accept passes, the client is
// served.
func TestServe_ServesConnectionThatArrivesAfterLastAccept(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	late := &lateListener{TCPListener: ln.(*net.TCPListener), dial: func() *peer { return dial(t, ln.Addr().String()) }, conns: make(chan *peer, 1)}
	v := startOn(t, late, handler(ok))
	await("(*lateListener).Accept", "[IO wait]")
	v.s.Shutdown()
	p := <-late.conns
	p.send(get)
	p.answered()
	p.closed()
	v.drained()
}

// A lateListener is a listener to which a client connects just after the listener's deadline has
// passed twice in a row after the stop.
type lateListener struct {
	*net.TCPListener
	dial   func() *peer
	conns  chan *peer
	passed int
}

func (l *lateListener) Accept() (net.Conn, error) {
	c, err := l.TCPListener.Accept()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		if l.passed++; l.passed == 3 { // the stop itself causes the first timeout
			l.conns <- l.dial()
		}
	}
	return c, err
}

// If clients connect all the time, the listener is closed only when no client waits in its queue.
func TestServe_ClosesListenerOnlyWhenItsQueueIsEmpty(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	crowd := &crowdedListener{TCPListener: ln.(*net.TCPListener), dial: func() *peer { return dial(t, ln.Addr().String()) }, conns: make(chan *peer, 1)}
	v := startOn(t, crowd, handler(ok))
	await("(*crowdedListener).Accept", "[IO wait]")
	v.s.Shutdown()
	p := <-crowd.conns
	p.send(get)
	p.answered()
	p.closed()
	v.drained()
}

// A crowdedListener is a listener to which so many clients connect after the stop that the limit is
// reached. A client of the test connects just before that.
type crowdedListener struct {
	*net.TCPListener
	dial     func() *peer
	conns    chan *peer
	accepted int
}

const limit = 4096 // the value of maxLateConns in package httpdrain

func (l *crowdedListener) Accept() (net.Conn, error) {
	if l.accepted == 0 || l.accepted > limit {
		c, err := l.TCPListener.Accept()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			l.accepted++ // the stop has ended the call of Accept
		}
		return c, err
	}
	if l.accepted++; l.accepted > limit {
		l.conns <- l.dial()
	}
	server, client := net.Pipe()
	client.Close()
	return server, nil
}

// On a busy machine, the goroutine that accepts may not run for seconds. The listener stays open as long
// as clients are in its accept queue, but not for ever.
func TestServe_KeepsListenerWhileClientsAreInQueue(t *testing.T) {
	for name, isStuck := range map[string]bool{"Accept returns late": false, "Accept is stuck": true} {
		t.Run(name, func(t *testing.T) {
			tcp, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer tcp.Close()
			dial(t, tcp.Addr().String())
			for !socket.HasQueued(tcp) { // the kernel may put the client into the accept queue after Dial has returned
				time.Sleep(time.Millisecond)
			}
			synctest.Test(t, func(t *testing.T) {
				ln := &starvedListener{silentListener{testkit.Listen()}, tcp.(*net.TCPListener)}
				v := startOn(t, ln, handler(ok))
				synctest.Wait()
				begin := time.Now()
				v.s.Shutdown()
				if !isStuck {
					time.Sleep(9500 * time.Millisecond)
					tcp.Close() // no client is in the accept queue from now on, because its socket is closed
					p := newPeer(t, ln.Listener.(*testkit.Listener).Dial())
					p.send(get)
					p.answered()
					p.closed()
				}
				testkit.Equal(t, "error of Serve", <-v.done, nil)
				if isStuck {
					testkit.Equal(t, "time of the drain", since(begin), 10*time.Second)
				}
			})
		})
	}
}

// A starvedListener is a listener whose Accept does not return although a client is in the accept
// queue, which is that of another socket.
type starvedListener struct {
	silentListener
	socket *net.TCPListener
}

func (l *starvedListener) SyscallConn() (syscall.RawConn, error) { return l.socket.SyscallConn() }
