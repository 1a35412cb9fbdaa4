package httpdrain_test

import (
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/httpdrain"
)

// A proxy prefers the connection that it has used last. When the response on that one has said
// Connection: close, the proxy takes another connection of its pool, which may have been idle for
// long. The drain must not close that connection meanwhile.
func TestServe_KeepsIdleConnectionsOfProxyThatSendsRequestsOnOthers(t *testing.T) {
	for _, test := range []struct {
		name     string
		idleFrom string        // address of the client with the idle connection; the active client has 10.0.0.1
		active   int           // number of requests that the active client sends, every 500 ms, the first one at the stop
		want     time.Duration // time from the stop to the close of the idle connection
		opts     []httpdrain.Option
	}{
		{"the same client", "10.0.0.1:1000", 1, time.Second, nil},
		{"the same client, which goes on", "10.0.0.1:1000", 3, 2 * time.Second, nil},
		{"the same client, which does not stop", "10.0.0.1:1000", 6, 3 * time.Second, nil},
		{"another client", "10.0.0.2:1000", 1, 100 * time.Millisecond, nil},
		{"a bound by WithLinger", "10.0.0.1:1000", 1, 300 * time.Millisecond, []httpdrain.Option{httpdrain.WithLinger(0, 300*time.Millisecond)}},
		{"no linger", "10.0.0.1:1000", 1, 0, []httpdrain.Option{httpdrain.WithLinger(0, 0)}},
		{"an address that is no IP address", "@", 1, 100 * time.Millisecond, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ln := listenInMemory()
				v := startOn(t, ln, handler(ok), test.opts...)
				idle := ln.dialFrom(t, test.idleFrom)
				idle.send(get)
				idle.answered()
				var active []*peer
				for range test.active {
					active = append(active, ln.dialFrom(t, "10.0.0.1:2000"))
				}
				time.Sleep(10 * time.Second)
				began := time.Now()
				closed := make(chan time.Duration)
				go func() {
					idle.closed()
					closed <- since(began)
				}()
				for i, p := range active {
					p.send(get)
					p.readResponse(http.StatusOK, "ok")
					if i == 0 {
						v.s.Shutdown()
					}
					time.Sleep(500 * time.Millisecond)
				}
				if took := <-closed; took != test.want {
					t.Errorf("the idle connection is closed %v after the stop, want %v", took, test.want)
				}
				v.drained()
			})
		})
	}
}

// dialFrom connects from the given client address.
func (m *pipeListener) dialFrom(t *testing.T, addr string) *peer {
	client, server := net.Pipe()
	m.Queue <- &addressedPipe{server, stringAddr(addr)}
	return newPeer(t, client)
}

type addressedPipe struct {
	net.Conn
	remote stringAddr
}

func (p *addressedPipe) RemoteAddr() net.Addr { return p.remote }

type stringAddr string

func (stringAddr) Network() string  { return "test" }
func (a stringAddr) String() string { return string(a) }
