package httpdrain_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/httpdrain"
	"github.com/swansong-go/swansong/internal/testkit"
)

// A hundred clients with a network delay of 60 ms are at different points of a handshake, in which
// they send a certificate, when the server is stopped. All of them are served, over HTTP/1.1 and
// HTTP/2.
func TestServeTLS_ServesClientsInMutualTLSHandshakeAtStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const clients = 100
		cert := quickCertificate(t)
		ln := listenInMemory()
		ln.Queue = make(chan net.Conn, clients)
		srv := handler(func(w http.ResponseWriter, r *http.Request) {
			if len(r.TLS.PeerCertificates) == 1 {
				io.WriteString(w, r.Proto)
			}
		})
		srv.TLSConfig = &tls.Config{
			Certificates: []tls.Certificate{cert},
			ClientAuth:   tls.RequireAnyClientCert,
			// This key exchange is fast. The default one is slow under the race detector.
			CurvePreferences: []tls.CurveID{tls.X25519},
		}
		s := ctxshutdown.New(t.Context())
		done := make(chan error)
		go func() { done <- httpdrain.ServeTLS(s, srv, ln, "", "") }()
		var served atomic.Int32
		var wg sync.WaitGroup
		for i := range clients {
			client, far := net.Pipe()
			testkit.ConnectSlowly(far, ln.Dial(), 60*time.Millisecond)
			wg.Go(func() {
				time.Sleep(time.Duration(2*i) * time.Millisecond)
				protocol := []string{"HTTP/1.1", "HTTP/2.0"}[i%2]
				transport := &http.Transport{
					DialContext: func(context.Context, string, string) (net.Conn, error) { return client, nil },
					TLSClientConfig: &tls.Config{
						InsecureSkipVerify: true,
						Certificates:       []tls.Certificate{cert},
						CurvePreferences:   srv.TLSConfig.CurvePreferences,
					},
					ForceAttemptHTTP2: i%2 == 1,
				}
				defer transport.CloseIdleConnections()
				r, err := http.NewRequest("GET", "https://test/", nil)
				if err != nil {
					t.Error(err)
					return
				}
				resp, err := transport.RoundTrip(r)
				if err != nil {
					t.Errorf("client %d: %v", i, err)
					return
				}
				defer resp.Body.Close()
				if body, err := io.ReadAll(resp.Body); err != nil || string(body) != protocol {
					t.Errorf("client %d: %q, %v", i, body, err)
					return
				}
				served.Add(1)
			})
		}
		time.Sleep(250 * time.Millisecond)
		if n := served.Load(); n == 0 || n > clients/2 {
			t.Errorf("%d clients were served before the stop", n)
		}
		s.Shutdown()
		wg.Wait()
		if err := <-done; err != nil {
			t.Error(err)
		}
		testkit.Equal(t, "served", served.Load(), int32(clients))
		time.Sleep(time.Second) // wait until the goroutines of the simulated network have ended
	})
}

// quickCertificate returns a certificate whose signatures take less time than those of RSA.
func quickCertificate(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}
