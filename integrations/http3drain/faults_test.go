package http3drain_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quic-go/quic-go/http3"
	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
	"github.com/swansong-go/swansong/integrations/http3drain"
	"github.com/swansong-go/swansong/internal/testkit"
)

func listen(t *testing.T) net.PacketConn {
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return pc
}

// Each wrong argument gets an error that says which one it is. The socket is closed in every case.
func TestServe_RejectsInvalidArgumentsAndClosesSocket(t *testing.T) {
	s := ctxshutdown.New(t.Context())
	defer s.Shutdown()
	stopped := ctxshutdown.New(t.Context(), ctxshutdown.WithName("app"))
	cause := errors.New("no database")
	stopped.ShutdownCause(cause)
	srv := newServer(ok)
	for _, test := range []struct {
		name string
		s    *ctxshutdown.Swansong
		srv  *http3.Server
		want string
	}{
		{"scope", nil, srv, "http3drain: Serve: nil scope; create one with ctxshutdown.New"},
		{"server", s, nil, "http3drain: Serve: nil *http3.Server; pass one that has a TLSConfig"},
		{"TLS", s, &http3.Server{}, "http3drain: Serve: the http3.Server has no TLSConfig; HTTP/3 needs a certificate"},
		{"stopped", stopped, srv, "http3drain: Serve: the scope Swansong(app) has already been stopped: no database"},
	} {
		t.Run(test.name, func(t *testing.T) {
			pc := listen(t)
			testkit.Equal(t, "error of Serve", testkit.ErrorText(http3drain.Serve(test.s, test.srv, pc)), test.want)
			testkit.ErrorIs(t, "error of the socket", pc.SetDeadline(time.Now()), net.ErrClosed)
			testkit.Equal(t, "error of ListenAndServe", testkit.ErrorText(http3drain.ListenAndServe(test.s, test.srv)), test.want)
		})
	}
	testkit.Equal(t, "error of Serve", testkit.ErrorText(http3drain.Serve(s, srv, nil)), "http3drain: Serve: nil net.PacketConn; open one with net.ListenPacket, or call ListenAndServe")
	srv.Addr = "no such host.invalid:443"
	if err := http3drain.ListenAndServe(s, srv); err == nil {
		t.Error("ListenAndServe accepted a wrong address")
	}
}

// A socket that fails ends the server, with the error of package quic.
func TestServe_ReturnsErrorOfQUICIfSocketFails(t *testing.T) {
	s := ctxshutdown.New(t.Context())
	pc := listen(t)
	done := make(chan error, 1)
	go func() { done <- http3drain.Serve(s, newServer(ok), pc, nil) }()
	tr := &http3.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer tr.Close()
	body, err := get(&http.Client{Transport: tr}, "https://"+pc.LocalAddr().String())
	if body != "ok" || err != nil {
		t.Fatalf("the server answers %q, %v", body, err)
	}
	pc.Close()
	if err := <-done; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Serve returned %v, want net.ErrClosed", err)
	}
	testkit.Equal(t, "the scope was stopped", s.Err() != nil, false)
	if err := s.Shutdown().Wait(context.Background()); err != nil {
		t.Error(err)
	}
}

// AltSvc announces HTTP/3 until the lame duck phase begins, or without a process until the stop.
func TestAltSvc_TellsClientsToForgetHTTP3InLameDuck(t *testing.T) {
	header := func(h http.Handler) string {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		testkit.Equal(t, "body", w.Body.String(), "ok")
		return w.Header().Get("Alt-Svc")
	}
	t.Run("process", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			err := graceful.Run(ctx, func(s *ctxshutdown.Swansong) error {
				h := http3drain.AltSvc(s, 443, http.HandlerFunc(ok))
				testkit.Equal(t, "Alt-Svc", header(h), `h3=":443"; ma=86400`)
				cancel()
				time.Sleep(time.Second)
				testkit.Equal(t, "s was stopped", s.Err() != nil, false)
				testkit.Equal(t, "Alt-Svc in the lame duck phase", header(h), "clear")
				return nil
			}, graceful.WithSignals(), graceful.WithLameDuck(4*time.Second))
			testkit.Equal(t, "Run returned", err, nil)
		})
	})
	t.Run("scope", func(t *testing.T) {
		s := ctxshutdown.New(t.Context())
		h := http3drain.AltSvc(s, 8443, http.HandlerFunc(ok))
		testkit.Equal(t, "Alt-Svc", header(h), `h3=":8443"; ma=86400`)
		s.Shutdown()
		testkit.Equal(t, "Alt-Svc after the stop", header(h), "clear")
	})
	t.Run("port", func(t *testing.T) {
		defer func() {
			testkit.Equal(t, "panic", recover(), any("http3drain: AltSvc: port 0 is not from 1 to 65535"))
		}()
		http3drain.AltSvc(ctxshutdown.New(t.Context()), 0, http.HandlerFunc(ok))
	})
}
