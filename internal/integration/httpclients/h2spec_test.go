package httpclients

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/summerwind/h2spec/config"
	"github.com/summerwind/h2spec/generic"
	"github.com/summerwind/h2spec/hpack"
	"github.com/summerwind/h2spec/http2"
	"github.com/summerwind/h2spec/spec"
	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/httpdrain"
)

// Each case of the HTTP/2 conformance tests h2spec that passes with net/http alone also passes with
// Serve and ServeTLS.
func TestServe_PassesH2specAsNetHTTPDoes(t *testing.T) {
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprintf("tls=%v", secure), func(t *testing.T) {
			plain, drained := startHTTP2(t, secure, false), startHTTP2(t, secure, true)
			var passed atomic.Int32
			var wg sync.WaitGroup
			atOnce := make(chan struct{}, 8)
			forEachCase(func(name string, c *spec.TestCase) {
				wg.Go(func() {
					atOnce <- struct{}{}
					defer func() { <-atOnce }()
					if runCase(c, plain, secure, time.Second) != nil {
						return
					}
					passed.Add(1)
					var err error
					// A case fails if it receives nothing before its time-out. On a busy machine
					// that can happen with a correct server, so repeat the case with a longer
					// time-out.
					for timeout := time.Second; timeout < time.Minute; timeout *= 3 {
						if err = runCase(c, drained, secure, timeout); err == nil {
							return
						}
					}
					t.Errorf("%s: %v", name, err)
				})
			})
			wg.Wait()
			t.Logf("%d cases passed with net/http", passed.Load())
			if passed.Load() == 0 {
				t.Error("no case passed with net/http")
			}
		})
	}
}

// forEachCase calls f with each case of h2spec and its name.
func forEachCase(f func(name string, c *spec.TestCase)) {
	var walk func(g *spec.TestGroup)
	walk = func(g *spec.TestGroup) {
		for i, c := range append(g.Tests, g.StrictTests...) {
			f(fmt.Sprintf("%s/%d (%s)", g.ID(), i+1, c.Desc), c)
		}
		for _, below := range g.Groups {
			walk(below)
		}
	}
	for _, g := range []*spec.TestGroup{generic.Spec(), http2.Spec(), hpack.Spec()} {
		walk(g)
	}
}

func runCase(c *spec.TestCase, addr *net.TCPAddr, secure bool, timeout time.Duration) error {
	conf := &config.Config{Host: addr.IP.String(), Port: addr.Port, Path: "/", Timeout: timeout, MaxHeaderLen: 4000, TLS: secure, Insecure: true}
	conn, err := spec.Dial(conf)
	if err != nil {
		return err
	}
	defer conn.Close()
	return c.Run(conf, conn)
}

// startHTTP2 starts a server with net/http alone or with httpdrain, over TLS or with h2c. The end
// of the test closes it.
func startHTTP2(t *testing.T, secure, drained bool) *net.TCPAddr {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{ErrorLog: log.New(io.Discard, "", 0), Protocols: new(http.Protocols), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		io.WriteString(w, "hello")
	})}
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetHTTP2(true)
	srv.Protocols.SetUnencryptedHTTP2(true)
	if secure {
		ts := httptest.NewTLSServer(nil)
		srv.TLSConfig = &tls.Config{Certificates: ts.TLS.Certificates}
		ts.Close()
	}
	serve, serveTLS := srv.Serve, srv.ServeTLS
	end := func() { srv.Close() }
	if drained {
		s := ctxshutdown.New(context.Background())
		serve = func(ln net.Listener) error { return httpdrain.Serve(s, srv, ln) }
		serveTLS = func(ln net.Listener, cert, key string) error { return httpdrain.ServeTLS(s, srv, ln, cert, key) }
		end = func() { s.Force(nil) }
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if secure {
			serveTLS(ln, "", "")
		} else {
			serve(ln)
		}
	}()
	t.Cleanup(func() { end(); <-done })
	return ln.Addr().(*net.TCPAddr)
}
