//go:build !go1.27

package httpdrain_test

// In the tests of this file, the user of the server has configured HTTP/2, by the field
// TLSNextProto. The functions in that field come from net/http, which does not have them from Go
// 1.27 on.

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/httpdrain"
)

// A copier is a connection whose Write calls io.Copy, as another HTTP/2 implementation might do.
type copier struct{ net.Conn }

func (c copier) Write(b []byte) (int, error) {
	n, err := io.Copy(c.Conn, struct{ io.Reader }{bytes.NewReader(b)})
	return int(n), err
}

// An unencrypted wraps a connection without TLS in the form that the functions in TLSNextProto
// expect.
type unencrypted struct{ net.Conn }

func (u unencrypted) UnencryptedNetConn() net.Conn { return u.Conn }

// The drain notices the end of a write even if the server writes by ReadFrom instead of Write.
func TestDebug_DrainSendsWholeResponseIfServerWritesByReadFrom(t *testing.T) {
	for _, tcp := range []bool{false, true} {
		t.Run(map[bool]string{false: "pipe", true: "TCP"}[tcp], func(t *testing.T) {
			entered, leave := make(chan string, 2), make(chan struct{})
			mux := http.NewServeMux()
			srv := plain2(func(w http.ResponseWriter, r *http.Request) { entered <- r.URL.Path; mux.ServeHTTP(w, r) })
			protos := nextProtos()
			serve := protos["unencrypted_http2"]
			protos["unencrypted_http2"] = func(srv *http.Server, tc *tls.Conn, h http.Handler) {
				under := tc.NetConn().(interface{ UnencryptedNetConn() net.Conn }).UnencryptedNetConn()
				serve(srv, tls.Client(unencrypted{copier{under}}, nil), h)
			}
			srv.TLSNextProto = protos

			var v *service
			var p *peer
			if tcp {
				v = start(t, srv)
				p = dial(t, v.addr)
			} else {
				ln := listenInMemory()
				v = startOn(t, ln, srv)
				p = ln.dial(t)
			}
			mux.Handle("/events", httpdrain.Debug(v.s, httpdrain.AllowRemote("*")))
			mux.HandleFunc("/slow", func(w http.ResponseWriter, r *http.Request) { <-leave; io.WriteString(w, "ok") })
			ended := make(chan byte, 3)
			p.send(preface + frame(4, 0, ""))
			p.readUntil(4)
			p.send(request2(1, "/slow") + request2(3, "/events"))
			<-entered
			<-entered
			p.readUntil(0) // the stream has begun
			go p.endings(ended, nil)
			v.s.Shutdown()
			<-v.drains
			close(leave)
			if got := <-ended; got != 1 {
				t.Errorf("HTTP/2 stream %d ends first, want stream 1, the response", got)
			}
			v.drained() // Serve returns only after it has noticed the end of each write
		})
	}
}

// nextProtos returns functions for TLSNextProto, as they are set by a program that configures
// HTTP/2.
func nextProtos() map[string]func(*http.Server, *tls.Conn, http.Handler) {
	srv := plain2(nil)
	srv.Protocols.SetHTTP2(true)
	srv.Serve(closedListener{})
	return srv.TLSNextProto
}

type closedListener struct{}

func (closedListener) Accept() (net.Conn, error) { return nil, net.ErrClosed }
func (closedListener) Close() error              { return nil }
func (closedListener) Addr() net.Addr            { return nil }

// A program has configured HTTP/2 itself, by TLSNextProto, and serves on a TLS listener. The drain
// waits for its requests on HTTP/2.
func TestServe_OnTLSListenerDrainsRequestsIfUserConfiguredHTTP2(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := listenInMemory()
		srv := handler(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(3 * time.Second)
			io.WriteString(w, r.Proto)
		})
		srv.TLSNextProto = nextProtos()
		v := startOn(t, tls.NewListener(ln, &tls.Config{Certificates: []tls.Certificate{certificate()}, NextProtos: []string{"h2"}}), srv)
		tr := &http.Transport{
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true,
			DialContext: func(context.Context, string, string) (net.Conn, error) { return ln.Dial(), nil },
		}
		defer tr.CloseIdleConnections()
		go func() {
			time.Sleep(time.Second)
			v.s.Shutdown()
		}()
		resp, err := (&http.Client{Transport: tr}).Get("https://memory/")
		if err != nil {
			t.Fatalf("the request was lost: %v", err)
		}
		defer resp.Body.Close()
		if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "HTTP/2.0" {
			t.Errorf("read %q, %v", b, err)
		}
		tr.CloseIdleConnections()
		v.drained()
	})
}
