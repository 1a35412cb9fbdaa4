package http3drain_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/integrations/http3drain"
	"github.com/swansong-go/swansong/internal/testkit"
)

// Reports name the request, its route and its client, with and without tracing.
func TestGuardReport_NamesRequests(t *testing.T) {
	for name, opts := range map[string][]ctxshutdown.Option{"untraced": nil, "traced": {ctxshutdown.WithTrace()}} {
		t.Run(name, func(t *testing.T) {
			mux := http.NewServeMux()
			var leave chan struct{}
			mux.HandleFunc("GET /orders/{id}", func(w http.ResponseWriter, r *http.Request) { <-leave })
			srv := newServer(nil)
			srv.Handler = mux
			serve := func(v *service, pc net.PacketConn) error {
				s := ctxshutdown.New(v.s.Work(), opts...)
				defer context.AfterFunc(v.s, func() { s.Shutdown() })()
				v.s = s
				return http3drain.Serve(s, srv, pc, http3drain.WithName("api"))
			}
			inBubbleWith(t, serve, func(v *service) {
				leave = make(chan struct{})
				p := v.peer()
				str := p.send("/orders/7")
				time.Sleep(time.Second + delay)
				report := v.s.GuardReport()
				want := "GET /orders/{id} from " + p.conn.LocalAddr().String()
				testkit.Equal(t, "summary", report.Summary(), "1 request, oldest 1 s: "+want)
				testkit.Equal(t, "path", report.Entries()[0].Path, "api")
				if opts != nil {
					testkit.Equal(t, "site", report.Entries()[1].Site, want)
				}
				close(leave)
				io.ReadAll(str)
				synctest.Wait()
				// The guard of Serve is the oldest, but the summary leaves it out: it stands for no
				// work.
				testkit.Equal(t, "summary", v.s.GuardReport().Summary(), "1 connection")
			})
		})
	}
}

// Reports name the oldest requests.
func TestGuardReport_NamesOldestRequests(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /orders/{id}", func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	for i := range 30 {
		mux.HandleFunc(fmt.Sprintf("GET /report%d/{id}", i), func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	}
	srv := newServer(nil)
	srv.Handler = mux
	inBubble(t, srv, func(v *service) {
		peers := []*peer{v.peer(), v.peer()}
		for i := range 30 {
			peers[i%2].send(fmt.Sprintf("/report%d/7", i))
			time.Sleep(time.Second)
		}
		report := v.s.GuardReport().String()
		last := -1
		for i := range 30 {
			at := strings.Index(report, fmt.Sprintf("GET /report%d/{id} from %v", i, peers[i%2].conn.LocalAddr()))
			if named := i < 10; at >= 0 != named || named && at < last {
				t.Errorf("request %d is named at position %d, the request before it at %d", i, at, last)
			}
			last = at
		}
	})
}
