package httpdrain_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A late context keeps the handlers on its connection from beginning until it is to go on.
type late struct {
	context.Context
	asked *atomic.Int32
	goOn  <-chan struct{}
}

func (l late) Value(key any) any {
	v := l.Context.Value(key)
	if fmt.Sprintf("%T", key) == "httpdrain.connKey" && l.asked.Add(1) > 1 { // the first one asks when the connection has come
		<-l.goOn
	}
	return v
}

// HTTP/2 starts a handler, and hears that the client is gone, before the handler has begun. The drain waits for it all the same.
func TestServe_HTTP2HandlersAfterTheirConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		goOn, leave, gone := make(chan struct{}), make(chan struct{}), make(chan struct{})
		var entered atomic.Int32
		srv := plain2(func(http.ResponseWriter, *http.Request) { entered.Add(1); <-leave })
		srv.ConnContext = func(ctx context.Context, _ net.Conn) context.Context { return late{ctx, new(atomic.Int32), goOn} }
		srv.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateClosed {
				close(gone)
			}
		}
		ln := listenInMemory()
		v := startOn(t, ln, srv)
		p := ln.dial(t)
		go io.Copy(io.Discard, p.in)
		p.send(preface + frame(4, 0, "") + request2(1, "/") + request2(3, "/"))
		synctest.Wait()
		p.Close()
		<-gone
		synctest.Wait()
		close(goOn)
		synctest.Wait()
		if n := entered.Load(); n != 2 {
			t.Errorf("%d handlers have begun, want 2", n)
		}
		v.s.Shutdown()
		time.Sleep(time.Minute)
		if got := v.s.GuardReport().String(); len(v.done) > 0 || !strings.Contains(got, "http ×3") { // Serve's, and each of the two
			t.Errorf("with handlers running, Serve has returned: %v; report: %s", len(v.done) > 0, got)
		}
		close(leave)
		v.drained()
	})
}
