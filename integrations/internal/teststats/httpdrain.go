package teststats

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/httpdrain"
	"github.com/swansong-go/swansong/internal/testkit"
)

// HTTPDrain drains servers so that each counter of httpdrain.ReadStats gets a different value. No
// other test of the same program may drain a server, because the counters are global.
func HTTPDrain(t *testing.T) httpdrain.Stats {
	t.Helper()
	const request = "GET / HTTP/1.1\r\nHost: test\r\n\r\n"
	synctest.Test(t, func(t *testing.T) {
		for n := range 5 {
			v := serve(func(http.ResponseWriter, *http.Request) {})
			for range n % 2 * 2 {
				io.WriteString(v.dial(t), request[:9]) // half a header: the rest is never sent
			}
			synctest.Wait()
			v.scope.Shutdown()
			if err := <-v.done; err != nil {
				t.Error(err)
			}
		}
		leave := make(chan struct{})
		defer close(leave)
		v := serve(func(http.ResponseWriter, *http.Request) { <-leave })
		for range 3 {
			io.WriteString(v.dial(t), request)
		}
		late := []net.Conn{v.dial(t), v.dial(t)}
		synctest.Wait()
		v.scope.Shutdown()
		time.Sleep(90 * time.Millisecond) // shorter than the linger, after which the server closes these connections
		for _, c := range late {
			io.WriteString(c, request[:1])
		}
		time.Sleep(time.Second) // longer than the linger, after which the server answers requests with 503
		for _, c := range late {
			io.WriteString(c, request[1:])
		}
		synctest.Wait()
		v.scope.Force(errors.New("too slow"))
		<-v.done
	})
	got, want := httpdrain.ReadStats(), httpdrain.Stats{CutShort: 1, Refused: 2, Cut: 3, Silent: 4, Clean: 5}
	if got != want {
		t.Fatalf("counters are %+v, want %+v", got, want)
	}
	return got
}

type server struct {
	scope *ctxshutdown.Swansong
	done  chan error
	ln    *testkit.Listener
}

func serve(h http.HandlerFunc) *server {
	v := &server{ctxshutdown.New(context.Background()), make(chan error, 1), testkit.Listen()}
	go func() {
		v.done <- httpdrain.Serve(v.scope, &http.Server{Handler: h}, v.ln, httpdrain.WithRetryAfter(time.Second))
	}()
	return v
}

// dial returns a client connection that discards everything that the server sends.
func (v *server) dial(t *testing.T) net.Conn {
	c := v.ln.Dial()
	t.Cleanup(func() { c.Close() })
	go io.Copy(io.Discard, c)
	return c
}
