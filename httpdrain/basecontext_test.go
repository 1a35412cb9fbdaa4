package httpdrain_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/httpdrain"
	"github.com/swansong-go/swansong/internal/testkit"
)

// If the scope and the user's BaseContext have a value for the same key, a request's context has
// the value of the scope.
func TestServe_RequestContextPrefersValueOfScopeToThatOfBaseContext(t *testing.T) {
	type values struct{ Both, Base any }
	synctest.Test(t, func(t *testing.T) {
		s := ctxshutdown.New(context.WithValue(t.Context(), keyOf("both"), "of the scope"))
		ln := listenInMemory()
		got := make(chan values, 1)
		srv := handler(func(w http.ResponseWriter, r *http.Request) {
			got <- values{r.Context().Value(keyOf("both")), r.Context().Value(keyOf("base"))}
			ok(w, r)
		})
		srv.BaseContext = func(net.Listener) context.Context {
			return context.WithValue(context.WithValue(t.Context(), keyOf("both"), "of the base"), keyOf("base"), "of the base")
		}
		done := make(chan error)
		go func() { done <- httpdrain.Serve(s, srv, ln) }()
		p := ln.dial(t)
		p.send(get)
		p.answered()
		testkit.Equal(t, "values", <-got, values{"of the scope", "of the base"})
		s.Shutdown()
		p.closed()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// The context of a request derives from the context that Work of the server's scope returns, even
// if the user's BaseContext carries another scope. Force cancels that context, and so ends a Write
// that blocks.
func TestServe_RequestContextEndsAtForceNotAtStop(t *testing.T) {
	user := ctxshutdown.New(context.Background())
	writing, written := make(chan struct{}), make(chan error, 1)
	unread, conn := net.Pipe()
	srv := handler(func(_ http.ResponseWriter, r *http.Request) {
		w := ctxshutdown.NewWriter(r.Context(), conn)
		close(writing)
		_, err := w.Write([]byte("a record"))
		written <- err
	})
	srv.BaseContext = func(net.Listener) context.Context { return user }
	v := start(t, srv, longLinger)
	t.Cleanup(func() { unread.Close(); conn.Close() })
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
