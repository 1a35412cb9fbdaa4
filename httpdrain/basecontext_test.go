package httpdrain_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// The context of a request stays on the hard tier, whatever scope the user's BaseContext carries: Force cuts short a Write
// that blocks.
func TestServe_BaseContextOnTheSoftTier(t *testing.T) {
	user := ctxshutdown.New(context.Background())
	writing, written := make(chan struct{}), make(chan error, 1)
	nobody, conn := net.Pipe()
	srv := handler(func(_ http.ResponseWriter, r *http.Request) {
		w := ctxshutdown.NewWriter(r.Context(), conn)
		close(writing)
		_, err := w.Write([]byte("a record"))
		written <- err
	})
	srv.BaseContext = func(net.Listener) context.Context { return user }
	v := start(t, srv, patient)
	t.Cleanup(func() { nobody.Close(); conn.Close() })
	dial(t, v.addr).send(get)
	<-writing
	v.s.Shutdown()
	<-v.drains
	v.s.Force(errTooLate)
	select {
	case err := <-written:
		if !errors.Is(err, errTooLate) {
			t.Errorf("Write: %v, want the cause of Force", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("Write still blocks after Force")
	}
	<-v.done
}
