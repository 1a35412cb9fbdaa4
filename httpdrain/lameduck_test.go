package httpdrain_test

import (
	"context"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
	"github.com/swansong-go/swansong/httpdrain"
)

// runWithLameDuck serves ln in a process whose lame duck phase lasts four seconds. stop begins that
// phase. done is closed when the process has ended.
func runWithLameDuck(t *testing.T, ln *pipeListener, srv *http.Server, opts ...httpdrain.Option) (stop func(), done chan struct{}) {
	ctx, stop := context.WithCancel(t.Context())
	done = make(chan struct{})
	go func() {
		defer close(done)
		err := graceful.Run(ctx, func(s *ctxshutdown.Swansong) error {
			return httpdrain.Serve(s, srv, ln, opts...)
		}, graceful.WithSignals(), graceful.WithLameDuck(4*time.Second))
		if err != nil {
			t.Error(err)
		}
	}()
	return stop, done
}

// In the lame duck phase, a growing share of the responses says Connection: close: from its middle
// on, all of them.
func TestServe_ClosesConnectionsGraduallyInLameDuck(t *testing.T) {
	for name, test := range map[string]struct {
		opts []httpdrain.Option
		want func(early, inTime int32) bool
	}{
		"default":        {nil, func(early, inTime int32) bool { return early < 20 && inTime == 20 }},
		"KeepInLameDuck": {[]httpdrain.Option{httpdrain.KeepInLameDuck()}, func(early, inTime int32) bool { return inTime == 0 }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ln := listenInMemory()
				stop, done := runWithLameDuck(t, ln, handler(ok), test.opts...)
				var early, inTime atomic.Int32 // number of clients whose connections were ended in the first second, and in the whole phase
				var wg sync.WaitGroup
				began := time.Now().Add(10 * time.Millisecond)
				for range 20 {
					p := ln.dial(t)
					wg.Go(func() {
						for {
							time.Sleep(time.Second)
							p.send(get)
							if p.answered() {
								continue
							}
							switch after := time.Since(began); {
							case after <= time.Second:
								early.Add(1)
								fallthrough
							case after < 4*time.Second:
								inTime.Add(1)
							}
							return
						}
					})
				}
				time.Sleep(10 * time.Millisecond)
				stop()
				wg.Wait()
				<-done
				if !test.want(early.Load(), inTime.Load()) {
					t.Errorf("of 20 clients, %d were told to reconnect in the first second, and %d in the lame duck phase", early.Load(), inTime.Load())
				}
			})
		})
	}
}

// In the lame duck phase, an idle HTTP/2 client is told to open no more streams. Requests that it
// has sent before the GOAWAY arrives are served.
func TestServe_AnnouncesGoAwayInLameDuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := listenInMemory()
		stop, done := runWithLameDuck(t, ln, plain2(ok))
		p := ln.dial(t)
		p.send(preface + frame(4, 0, "") + request2(1, "/"))
		p.next(0)
		synctest.Wait()
		began := time.Now()
		stop()
		if got := lastStreamOf(p.next(7)); got != 1<<31-1 {
			t.Errorf("a GOAWAY names stream %d, want the largest", got)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("the GOAWAY comes %v after the signal, want one in the first half of the phase", took)
		}
		p.send(request2(3, "/"))
		if f := p.next(0); f.stream != 3 {
			t.Errorf("a response on stream %d, want 3", f.stream)
		}
		go io.Copy(io.Discard, p.in)
		<-done
	})
}

// If a client sends requests regularly, the drain waits for its next request. The response says
// that the connection will be closed.
func TestServe_DrainWaitsForNextRequestOfClientThatSendsRegularly(t *testing.T) {
	for _, test := range []struct {
		name  string
		pause time.Duration // time between two requests of the client
		sends bool          // whether the client sends another request
		want  time.Duration // how long the drain takes
	}{
		{"a request every second", time.Second, true, time.Second},
		{"the client has stopped", time.Second, false, 2 * time.Second},
		{"the client stops, with longer pauses", 2 * time.Second, false, 3 * time.Second},
		{"a request every minute", time.Minute, false, time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ln := listenInMemory()
				v := startOn(t, ln, handler(ok))
				p := ln.dial(t)
				for range 2 {
					time.Sleep(test.pause)
					p.send(get)
					p.readResponse(http.StatusOK, "ok")
				}
				began := time.Now()
				v.s.Shutdown()
				if test.sends {
					time.Sleep(test.pause)
					p.send(get)
					if p.answered() {
						t.Error("the response does not say Connection: close")
					}
				}
				p.closed()
				v.drained()
				if took := since(began); took != test.want {
					t.Errorf("the drain took %v, want %v", took, test.want)
				}
			})
		})
	}
}
