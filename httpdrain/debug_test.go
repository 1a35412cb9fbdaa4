package httpdrain_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
	"github.com/swansong-go/swansong/httpdrain"
	"go.uber.org/goleak"
)

// A slowReader is a connection. While its field limited is set, Read returns one byte per interval.
type slowReader struct {
	net.Conn
	limited  atomic.Bool
	interval time.Duration
}

func (c *slowReader) Read(b []byte) (int, error) {
	if c.limited.Load() && len(b) > 0 {
		time.Sleep(c.interval)
		b = b[:1]
	}
	return c.Conn.Read(b)
}

// The server may need several writes to send its buffer. The drain waits for all of them before it
// closes a connection on which an event stream of Debug and another response are sent.
func TestDebug_DrainSendsWholeResponseOnConnectionWithEventStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leave := make(chan struct{})
		mux := http.NewServeMux()
		srv := plain2(mux.ServeHTTP)
		// With WriteByteTimeout, each write of the server has a deadline. If a write has sent a
		// part of the buffer by then, the server sends the rest in further writes.
		srv.HTTP2 = &http.HTTP2Config{WriteByteTimeout: 150 * time.Millisecond}
		ln := listenInMemory()
		v := startOn(t, ln, srv)
		mux.Handle("/events", httpdrain.Debug(v.s, httpdrain.AllowRemote("*")))
		mux.HandleFunc("/slow", func(w http.ResponseWriter, r *http.Request) { <-leave; io.WriteString(w, strings.Repeat("ok", 100)) })
		client, server := net.Pipe()
		slow := &slowReader{Conn: client, interval: 100 * time.Millisecond}
		p := newPeer(t, slow)
		ln.Queue <- server
		ended := make(chan byte, 3)
		go p.endings(ended, nil)
		p.send(preface + frame(4, 0, "") + request2(1, "/slow") + request2(3, "/events"))
		synctest.Wait()
		v.s.Shutdown()
		// Wait for the first GOAWAY, which the server sends when the client has been quiet for 5
		// ms.
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
		slow.limited.Store(true)
		p.send(frame(6, 0, "01234567")) // a ping; the client reads the answer at once, and everything after it slowly
		synctest.Wait()
		close(leave)
		if got := <-ended; got != 1 {
			t.Errorf("HTTP/2 stream %d ends first, want stream 1, the response", got)
		}
		slow.limited.Store(false)
		v.drained()
		for <-ended != 0 {
		}
	})
}

// A connection has an event stream of the Debug page and one request. The drain closes it when the
// response to the request has been written, although the server still answers pings on it.
func TestDebug_DrainEndsDespiteEndlessEventStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leave := make(chan struct{})
		mux := http.NewServeMux()
		ln := listenInMemory()
		v := startOn(t, ln, plain2(mux.ServeHTTP))
		mux.Handle("/events", httpdrain.Debug(v.s, httpdrain.AllowRemote("*")))
		mux.HandleFunc("/slow", func(w http.ResponseWriter, r *http.Request) { <-leave; io.WriteString(w, "ok") })
		client, server := net.Pipe()
		slow := &slowReader{Conn: client, interval: time.Millisecond}
		p := newPeer(t, slow)
		ln.Queue <- server
		ended := make(chan byte, 3)
		go p.endings(ended, nil)
		p.send(preface + frame(4, 0, "") + request2(1, "/slow") + request2(3, "/events"))
		synctest.Wait()
		v.s.Shutdown()
		synctest.Wait()
		slow.limited.Store(true)
		pinged := make(chan struct{})
		go func() {
			defer close(pinged)
			// The client sends pings for twenty seconds. The server's answer to each is longer than
			// what the client reads until the next ping.
			for range 2000 {
				if _, err := io.WriteString(p, frame(6, 0, "01234567")); err != nil {
					return
				}
				time.Sleep(10 * time.Millisecond)
			}
		}()
		time.Sleep(time.Second)
		close(leave)
		if got := <-ended; got != 1 {
			t.Errorf("HTTP/2 stream %d ends first, want stream 1, the response", got)
		}
		select {
		case err := <-v.done:
			if err != nil {
				t.Errorf("Serve returned an unexpected result: %v", err)
			}
		case <-time.After(15 * time.Second): // while the client still sends pings
			t.Error("Serve has not returned")
		}
		p.Close()
		<-pinged
		for <-ended != 0 {
		}
	})
}

// Under Serve, a stream of events holds no guard, so a client that watches the page does not delay
// the drain.
func TestDebug_ServeReturnsWhileClientReadsEventStream(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	s := ctxshutdown.New(context.Background())
	mux := http.NewServeMux()
	mux.Handle("GET /debug/shutdown", httpdrain.Debug(s, httpdrain.AllowRemote()))
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error)
	go func() { served <- httpdrain.Serve(s, &http.Server{Handler: mux}, ln) }()
	client := &http.Client{Transport: &http.Transport{}}
	resp, err := client.Get("http://" + ln.Addr().String() + "/debug/shutdown?format=events")
	if err != nil {
		t.Fatal(err)
	}
	data := ""
	for lines := bufio.NewReader(resp.Body); !strings.HasPrefix(data, "data: "); {
		if data, err = lines.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	var state struct{ Guards int }
	// Serve holds a guard, and the request may hold another.
	if err := json.Unmarshal([]byte(data[len("data: "):]), &state); err != nil || state.Guards > 2 {
		t.Errorf("%v: %s", err, data)
	}
	done := s.Shutdown()
	if err := <-served; err != nil {
		t.Errorf("Serve returned %v", err)
	}
	<-done.Done()
	io.Copy(io.Discard, resp.Body) // Copy returns when the stream ends, with or without a last event
	resp.Body.Close()
	client.CloseIdleConnections()
}

// A proxy on this machine forwards requests of remote clients, which then look local. It forwards
// them to the listener of the service. So on that listener, also over HTTP/2, the page refuses
// requests if it is for the local machine only. On a listener of its own, the page answers.
func TestDebug_LocalOnlyRefusesOnListenerOfService(t *testing.T) {
	mux := http.NewServeMux()
	srv := &http.Server{Handler: mux, Protocols: new(http.Protocols)}
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetUnencryptedHTTP2(true)
	v := start(t, srv)
	page := httpdrain.Debug(v.s, httpdrain.LocalOnly())
	mux.Handle("/debug/shutdown", page)
	own := httptest.NewServer(page)
	defer own.Close()
	for _, test := range []struct {
		origin string
		http2  bool
		want   string // how the response, with its protocol, must begin
	}{
		{"http://" + v.addr, false, "HTTP/1.1 403 Forbidden This page is off on the listener of a service"},
		{"http://" + v.addr, true, "HTTP/2.0 403 Forbidden This page is off on the listener of a service"},
		{own.URL, false, "HTTP/1.1 200 OK"},
	} {
		tr := &http.Transport{Protocols: new(http.Protocols)}
		tr.Protocols.SetHTTP1(!test.http2)
		tr.Protocols.SetUnencryptedHTTP2(test.http2)
		resp, err := (&http.Client{Transport: tr}).Get(test.origin + "/debug/shutdown")
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		tr.CloseIdleConnections()
		if got := resp.Proto + " " + resp.Status + " " + string(body); !strings.HasPrefix(got, test.want) {
			t.Errorf("got %s\nwant %s", got, test.want)
		}
	}
	v.s.Shutdown()
	v.drained()
}

// A phase Soft of 24 hours, the maximum, means that the program bounds its drain by itself. So the
// page does not count that time down.
func TestDebug_ShowsNoTimeLeftIfSoftPhaseHasMaximumDuration(t *testing.T) {
	for soft, want := range map[time.Duration]bool{24 * time.Hour: false, 23 * time.Hour: true} {
		var v struct{ Phase map[string]any }
		err := graceful.Run(context.Background(), func(s *ctxshutdown.Swansong) error {
			page := httpdrain.Debug(s, httpdrain.AllowRemote("*"))
			s.Shutdown()
			p, _ := graceful.FromContext(s)
			inSoft := make(chan struct{})
			p.Watch(func(st graceful.Status) {
				if st.Phase == graceful.Soft {
					close(inSoft)
				}
			})
			<-inSoft
			w := httptest.NewRecorder()
			page.ServeHTTP(w, httptest.NewRequest("GET", "/?format=json", nil))
			return json.Unmarshal(w.Body.Bytes(), &v)
		}, graceful.WithSoft(soft))
		_, got := v.Phase["remaining_ms"]
		if err != nil || v.Phase["name"] != "Soft" || got != want {
			t.Errorf("with a Soft of %v: phase %v, error %v", soft, v.Phase, err)
		}
	}
}

func TestDebug_PanicsOnNilScope(t *testing.T) {
	defer func() {
		if got := recover(); got == nil || !strings.Contains(fmt.Sprint(got), "nil scope") {
			t.Errorf("panic %v", got)
		}
	}()
	httpdrain.Debug(nil)
}
