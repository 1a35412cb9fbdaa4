package httpdrain_test

import (
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
	now atomic.Bool
}

func (c *thin) Read(b []byte) (int, error) {
	if c.now.Load() && len(b) > 0 {
		time.Sleep(100 * time.Millisecond)
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
		slow := &thin{Conn: client}
		p := newPeer(t, slow)
		ln.queue <- server
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
