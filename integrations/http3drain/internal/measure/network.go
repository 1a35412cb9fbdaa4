package main

import (
	"context"
	"crypto/tls"
	"net"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/testutils/simnet"
)

// A network connects clients and a server: the loopback interface or, if there is a delay, a
// simulated network.
type network struct {
	router *simnet.PerfectRouter
	delay  time.Duration // delay of each packet, in each direction

	mu    sync.Mutex
	ports int
	close []func()
}

func (n *network) listen() net.PacketConn {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.delay == 0 {
		pc, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			panic(err)
		}
		n.close = append(n.close, func() { pc.Close() })
		return pc
	}
	n.ports++
	node := &simnet.Simnet{Router: n.router}
	pc := node.NewEndpoint(&net.UDPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 1000 + n.ports}, simnet.NodeBiDiLinkSettings{Latency: n.delay})
	if err := node.Start(); err != nil {
		panic(err)
	}
	n.close = append(n.close, func() {
		pc.Close()
		node.Close()
	})
	return pc
}

// dialer returns a function that connects a client to the server, from the client's own socket. It
// fails at once when the server has stopped, which the end of the context stopped says. Otherwise
// each stop would take two seconds longer, because a handshake waits that long for an answer.
func (n *network) dialer(stopped context.Context, server net.Addr) func(context.Context, string, *tls.Config, *quic.Config) (*quic.Conn, error) {
	tr := &quic.Transport{Conn: n.listen()}
	n.mu.Lock()
	n.close = append(n.close, func() { tr.Close() })
	n.mu.Unlock()
	return func(ctx context.Context, _ string, config *tls.Config, quicConfig *quic.Config) (*quic.Conn, error) {
		config.InsecureSkipVerify = true
		quicConfig = quicConfig.Clone()
		quicConfig.HandshakeIdleTimeout = 2 * time.Second
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(stopped, cancel)()
		return tr.Dial(ctx, server, config, quicConfig)
	}
}

// Close closes all sockets, the latest first.
func (n *network) Close() {
	for i := len(n.close) - 1; i >= 0; i-- {
		n.close[i]()
	}
}

var certificate = sync.OnceValue(func() tls.Certificate {
	ts := httptest.NewTLSServer(nil)
	defer ts.Close()
	return ts.TLS.Certificates[0]
})
