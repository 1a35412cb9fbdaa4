package http3drain_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/quic-go/quic-go/quicvarint"
	"github.com/quic-go/quic-go/testutils/simnet"
	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/integrations/http3drain"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	os.Unsetenv("CTXSHUTDOWN_TRACE")
	certificate() // make the certificate now, and not in the bubble of the first test that needs it
	goleak.VerifyTestMain(m)
}

var certificate = sync.OnceValue(func() tls.Certificate {
	ts := httptest.NewTLSServer(nil)
	defer ts.Close()
	return ts.TLS.Certificates[0]
})

func newServer(h http.HandlerFunc) *http3.Server {
	return &http3.Server{Handler: h, TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate()}}}
}

// delay is how long a packet takes in each direction in the simulated network of the tests.
const delay = 100 * time.Millisecond

// A service is a running call of Serve in a bubble of package synctest. Its clock is virtual, and
// its network is simulated.
type service struct {
	t       *testing.T
	s       *ctxshutdown.Swansong
	done    chan error // receives the result of Serve
	router  *router
	clients atomic.Int32
	far     time.Duration // clients that connect from now on have this additional delay, in each direction
	stop    chan struct{} // stops the server when it is closed; a test may close it
}

// A router connects the sockets. While isDown is set, it loses every packet. If isCut is set, it
// forwards the next packet and then sets isDown.
type router struct {
	simnet.PerfectRouter
	isDown, isCut atomic.Bool
}

func (r *router) SendPacket(p simnet.Packet) error {
	if r.isDown.Load() {
		return nil
	}
	if r.isCut.Load() {
		r.isDown.Store(true)
	}
	return r.PerfectRouter.SendPacket(p)
}

var serverAddr = &net.UDPAddr{IP: net.IPv4(1, 0, 0, 1), Port: 443}

// inBubble runs f in a bubble, with a service that serves srv. After f, it ends the service by
// Force.
func inBubble(t *testing.T, srv *http3.Server, f func(v *service), opts ...http3drain.Option) {
	inBubbleWith(t, func(v *service, pc net.PacketConn) error { return http3drain.Serve(v.s, srv, pc, opts...) }, f)
}

func inBubbleWith(t *testing.T, serve func(*service, net.PacketConn) error, f func(*service)) {
	synctest.Test(t, func(t *testing.T) {
		v := &service{t: t, s: ctxshutdown.New(t.Context()), done: make(chan error, 1), router: &router{}, stop: make(chan struct{})}
		pc := v.socket(serverAddr)
		go func() { v.done <- serve(v, pc) }()
		synctest.Wait()
		f(v)
		v.s.Force(nil)
		if err := v.s.Shutdown().Wait(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

func (v *service) socket(addr *net.UDPAddr) net.PacketConn {
	n := &simnet.Simnet{Router: v.router}
	pc := n.NewEndpoint(addr, simnet.NodeBiDiLinkSettings{Latency: delay + v.far})
	if err := n.Start(); err != nil {
		v.t.Fatal(err)
	}
	v.t.Cleanup(func() {
		pc.Close()
		n.Close()
	})
	return pc
}

// dial connects a new client to the server.
func (v *service) dial() (*quic.Conn, error) {
	tr := &quic.Transport{Conn: v.socket(&net.UDPAddr{IP: net.IPv4(2, 0, 0, 1), Port: 1000 + int(v.clients.Add(1))})}
	v.t.Cleanup(func() { tr.Close() })
	qc, err := tr.Dial(v.t.Context(), serverAddr, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{http3.NextProtoH3}}, &quic.Config{})
	if err != nil {
		return nil, &dialError{err}
	}
	v.t.Cleanup(func() { qc.CloseWithError(0, "") })
	return qc, nil
}

// A dialError is the error of a client that could not connect.
type dialError struct{ error }

func (e *dialError) Unwrap() error { return e.error }

// client returns a client of quic-go, which has one connection at a time.
func (v *service) client() *http.Client {
	tr := &http3.Transport{Dial: func(context.Context, string, *tls.Config, *quic.Config) (*quic.Conn, error) { return v.dial() }}
	v.t.Cleanup(func() { tr.Close() })
	return &http.Client{Transport: tr}
}

const url = "https://1.0.0.1:443"

// get sends a request and returns the body of its response.
func get(c *http.Client, address string) (string, error) {
	resp, err := c.Get(address)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

// A peer is a client without a library for HTTP/3. It disregards every GOAWAY, and keeps its
// connection open.
type peer struct {
	t      *testing.T
	conn   *quic.Conn
	goAway chan uint64 // receives the id that each GOAWAY contains
}

// peer connects a new peer, which has received the settings of the server.
func (v *service) peer() *peer {
	v.t.Helper()
	qc, err := v.dial()
	if err != nil {
		v.t.Fatal(err)
	}
	p := &peer{v.t, qc, make(chan uint64, 10)}
	control, err := qc.OpenUniStream()
	if err != nil {
		v.t.Fatal(err)
	}
	// The first byte says that this is a control stream. The others are an empty SETTINGS frame.
	control.Write([]byte{0x00, 0x04, 0x00})
	server, err := qc.AcceptUniStream(v.t.Context())
	if err != nil {
		v.t.Fatal(err)
	}
	in := quicvarint.NewReader(server)
	if kind, err := quicvarint.Read(in); kind != 0 || err != nil {
		v.t.Fatalf("the first stream of the server has the type %d, %v; want a control stream", kind, err)
	}
	go func() {
		for {
			kind, err := quicvarint.Read(in)
			if err != nil {
				return
			}
			length, _ := quicvarint.Read(in)
			if kind != 0x7 {
				io.CopyN(io.Discard, in, int64(length))
				continue
			}
			id, _ := quicvarint.Read(in)
			p.goAway <- id
		}
	}()
	return p
}

// header returns a HEADERS frame for a GET.
func header(path string) []byte {
	// The codes of GET, https and the name :path are their numbers in the static table of QPACK.
	fields := []byte{0x00, 0x00, 0xd1, 0xd7, 0x51, byte(len(path))}
	fields = append(fields, path...)
	fields = append(fields, 0x50, 4) // :authority
	fields = append(fields, "test"...)
	return append([]byte{0x01, byte(len(fields))}, fields...)
}

// send opens a stream and sends a request.
func (p *peer) send(path string) *quic.Stream {
	p.t.Helper()
	str, err := p.conn.OpenStream()
	if err != nil {
		p.t.Fatal(err)
	}
	str.Write(header(path))
	str.Close()
	return str
}

// awaitClose waits until the server closes the connection, and fails if it reports an error.
func (p *peer) awaitClose() {
	p.t.Helper()
	<-p.conn.Context().Done()
	var closed *quic.ApplicationError
	if err := context.Cause(p.conn.Context()); !errors.As(err, &closed) || closed.ErrorCode != quic.ApplicationErrorCode(http3.ErrCodeNoError) {
		p.t.Errorf("the connection ended with %v, want the code H3_NO_ERROR", err)
	}
}

// readResponse reads the response on str and checks that it contains text.
func (p *peer) readResponse(str *quic.Stream, text string) {
	p.t.Helper()
	b, err := io.ReadAll(str)
	if err != nil || !strings.Contains(string(b), text) {
		p.t.Errorf("received %d bytes and %v, want a response that contains %q", len(b), err, text)
	}
}
