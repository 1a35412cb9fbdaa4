package httpdrain_test

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/httpdrain"
)

// A thin connection lets through a byte at a time, once it is to.
type thin struct {
	net.Conn
	now  atomic.Bool
	each time.Duration
}

func (c *thin) Read(b []byte) (int, error) {
	if c.now.Load() && len(b) > 0 {
		time.Sleep(c.each)
		b = b[:1]
	}
	return c.Conn.Read(b)
}

// What is in the server's buffer may take it several writes, and a response beside a stream is waited for through all of them.
func TestDebug_BesideASlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leave := make(chan struct{})
		mux := http.NewServeMux()
		srv := plain2(mux.ServeHTTP)
		srv.HTTP2 = &http.HTTP2Config{WriteByteTimeout: 150 * time.Millisecond} // ends a write that has come some way, and goes on with another
		ln := listenInMemory()
		v := startOn(t, ln, srv)
		mux.Handle("/events", httpdrain.Debug(v.s, httpdrain.AllowRemote("*")))
		mux.HandleFunc("/slow", func(w http.ResponseWriter, r *http.Request) { <-leave; io.WriteString(w, strings.Repeat("ok", 100)) })
		client, server := net.Pipe()
		slow := &thin{Conn: client, each: 100 * time.Millisecond}
		p := newPeer(t, slow)
		ln.Queue <- server
		ended := make(chan byte, 3)
		go p.endings(ended, nil)
		p.send(preface + frame(4, 0, "") + request2(1, "/slow") + request2(3, "/events"))
		synctest.Wait()
		v.s.Shutdown()
		synctest.Wait()
		slow.now.Store(true)
		p.send(frame(6, 0, "01234567")) // a ping, whose answer is the last that is read at once
		synctest.Wait()
		close(leave)
		if got := <-ended; got != 1 {
			t.Errorf("the end of stream %d comes first, want that of the response", got)
		}
		slow.now.Store(false)
		v.drained()
		for <-ended != 0 {
		}
	})
}

// A connection on which the server never ceases to write holds the drain no longer than until the response has been read.
func TestDebug_BesideWritesThatNeverEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leave := make(chan struct{})
		mux := http.NewServeMux()
		ln := listenInMemory()
		v := startOn(t, ln, plain2(mux.ServeHTTP))
		mux.Handle("/events", httpdrain.Debug(v.s, httpdrain.AllowRemote("*")))
		mux.HandleFunc("/slow", func(w http.ResponseWriter, r *http.Request) { <-leave; io.WriteString(w, "ok") })
		client, server := net.Pipe()
		slow := &thin{Conn: client, each: time.Millisecond}
		p := newPeer(t, slow)
		ln.Queue <- server
		ended := make(chan byte, 3)
		go p.endings(ended, nil)
		p.send(preface + frame(4, 0, "") + request2(1, "/slow") + request2(3, "/events"))
		synctest.Wait()
		v.s.Shutdown()
		synctest.Wait()
		slow.now.Store(true)
		over := make(chan struct{})
		go func() {
			defer close(over)
			for range 6000 { // a minute of pings, each of which is answered by more than is read meanwhile
				if _, err := io.WriteString(p, frame(6, 0, "01234567")); err != nil {
					return
				}
				time.Sleep(10 * time.Millisecond)
			}
		}()
		time.Sleep(time.Second)
		close(leave)
		if got := <-ended; got != 1 {
			t.Errorf("the end of stream %d comes first, want that of the response", got)
		}
		select {
		case err := <-v.done:
			if err != nil {
				t.Errorf("Serve: %v", err)
			}
		case <-over:
			t.Error("Serve has not returned")
		}
		p.Close()
		<-over
		for <-ended != 0 {
		}
	})
}

// A copier is a connection that is written to by io.Copy, as the HTTP/2 of somebody else may do.
type copier struct{ net.Conn }

func (c copier) Write(b []byte) (int, error) {
	n, err := io.Copy(c.Conn, struct{ io.Reader }{bytes.NewReader(b)})
	return int(n), err
}

// An unencrypted is how the functions of TLSNextProto are told of a connection without TLS.
type unencrypted struct{ net.Conn }

func (u unencrypted) UnencryptedNetConn() net.Conn { return u.Conn }

// A response beside a stream is waited for until it is written, by whichever method of the connection.
func TestDebug_BesideOthersThatAreCopied(t *testing.T) {
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
			p.until(4)
			p.send(request2(1, "/slow") + request2(3, "/events"))
			<-entered
			<-entered
			p.until(0) // the stream has begun
			go p.endings(ended, nil)
			v.s.Shutdown()
			<-v.drains
			close(leave)
			if got := <-ended; got != 1 {
				t.Errorf("the end of stream %d comes first, want that of the response", got)
			}
			v.drained() // not before somebody has been told that each write is over
		})
	}
}

// nextProtos has the HTTP/2 of net/http, as users have it who set it up themselves.
func nextProtos() map[string]func(*http.Server, *tls.Conn, http.Handler) {
	srv := plain2(nil)
	srv.Protocols.SetHTTP2(true)
	srv.Serve(over{})
	return srv.TLSNextProto
}

// An over is a listener that has been closed.
type over struct{}

func (over) Accept() (net.Conn, error) { return nil, net.ErrClosed }
func (over) Close() error              { return nil }
func (over) Addr() net.Addr            { return nil }
