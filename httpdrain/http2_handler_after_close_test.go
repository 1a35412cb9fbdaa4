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

// A lateContext is the context of a connection. It delays the handlers on the connection until the
// channel goOn is closed.
type lateContext struct {
	context.Context
	calls *atomic.Int32
	goOn  <-chan struct{}
}

func (l lateContext) Value(key any) any {
	v := l.Context.Value(key)
	// The server makes the first call of Value for this key, when it accepts the connection, so do
	// not block that call. The other calls are made by handlers.
	if fmt.Sprintf("%T", key) == "httpdrain.connKey" && l.calls.Add(1) > 1 {
		<-l.goOn
	}
	return v
}

// net/http may start the goroutine of an HTTP/2 handler, and close the connection before that
// goroutine has run. The drain waits for the handler.
func TestServe_WaitsForHTTP2HandlerOfClosedConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		goOn, leave, gone := make(chan struct{}), make(chan struct{}), make(chan struct{})
		var entered atomic.Int32
		srv := plain2(func(http.ResponseWriter, *http.Request) { entered.Add(1); <-leave })
		srv.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
			return lateContext{ctx, new(atomic.Int32), goOn}
		}
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
			t.Errorf("%d handlers are running, want 2", n)
		}
		v.s.Shutdown()
		time.Sleep(time.Minute)
		// Serve and each of the two handlers hold a guard.
		if got := v.s.GuardReport().String(); len(v.done) > 0 || !strings.Contains(got, "http ×3") {
			t.Errorf("while handlers are running: Serve has returned: %v; report: %s", len(v.done) > 0, got)
		}
		close(leave)
		v.drained()
	})
}
