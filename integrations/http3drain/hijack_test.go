package http3drain_test

import (
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quic-go/quic-go/http3"
	"github.com/swansong-go/swansong/internal/testkit"
)

// Serve waits until a stream that a handler has taken over is closed.
func TestServe_WaitsUntilStreamThatHandlerTookOverIsClosed(t *testing.T) {
	var streams chan *http3.Stream
	srv := newServer(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(200)
		str, err := w.(http3.HTTPStreamer).HTTPStream()
		if err != nil {
			t.Error(err)
		}
		streams <- str
	})
	inBubble(t, srv, func(v *service) {
		streams = make(chan *http3.Stream, 1)
		p := v.peer()
		str := p.send("/tunnel")
		taken := <-streams
		v.s.Shutdown()
		time.Sleep(time.Minute / 4)
		testkit.Equal(t, "summary", v.s.GuardReport().Summary(), "1 connection and 1 hijacked stream")
		testkit.Equal(t, "Serve has returned", len(v.done), 0)
		io.WriteString(taken, "last words")
		taken.CancelRead(0)
		taken.Close()
		p.readResponse(str, "last words")
		testkit.Equal(t, "Serve returned", <-v.done, nil)
	})
}

// A handler may call HTTPStream again, and gets the same stream. The scope completes when the
// stream is closed.
func TestHTTPStream_CalledTwiceDelaysDrainOnlyUntilStreamIsClosed(t *testing.T) {
	srv := newServer(func(w http.ResponseWriter, r *http.Request) {
		first, err := w.(http3.HTTPStreamer).HTTPStream()
		if err != nil {
			t.Error(err)
		}
		second, err := w.(http3.HTTPStreamer).HTTPStream()
		if err != nil || second != first {
			t.Errorf("the second call returned %p, %v, want the stream %p", second, err, first)
		}
		first.CancelRead(0)
		first.Close()
	})
	inBubble(t, srv, func(v *service) {
		p := v.peer()
		io.ReadAll(p.send("/tunnel"))
		v.s.Shutdown()
		testkit.Equal(t, "Serve returned", <-v.done, nil)
		testkit.Equal(t, "summary", v.s.GuardReport().Summary(), "nothing")
	})
}

// After the handler has returned, its request ends, so HTTPStream returns an error.
func TestHTTPStream_FailsAfterHandlerHasReturned(t *testing.T) {
	var writers chan http.ResponseWriter
	srv := newServer(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(200)
		writers <- w
	})
	inBubble(t, srv, func(v *service) {
		writers = make(chan http.ResponseWriter, 1)
		p := v.peer()
		io.ReadAll(p.send("/"))
		synctest.Wait()
		str, err := (<-writers).(http3.HTTPStreamer).HTTPStream()
		testkit.Equal(t, "the call returned a stream", str != nil, false)
		testkit.Equal(t, "error", testkit.ErrorText(err),
			"http3drain: HTTPStream: the handler has already returned; call HTTPStream before that")
		v.s.Shutdown()
		testkit.Equal(t, "Serve returned", <-v.done, nil)
		testkit.Equal(t, "summary", v.s.GuardReport().Summary(), "nothing")
	})
}
