package http3drain

import (
	"fmt"
	"net/http"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
)

// AltSvc returns a handler for servers of HTTP/1.1 and HTTP/2 that calls h. With the header
// Alt-Svc, the handler tells clients that the same service answers HTTP/3 on the UDP port. From the
// lame duck phase of the process on, or from the stop of s if s does not belong to a
// [graceful.Process], the handler tells clients to forget the HTTP/3 service. AltSvc panics if port
// is not from 1 to 65535.
func AltSvc(s *ctxshutdown.Swansong, port int, h http.Handler) http.Handler {
	if port < 1 || port > 65535 {
		panic(fmt.Sprintf("http3drain: AltSvc: port %d is not from 1 to 65535", port))
	}
	var lameDuck <-chan struct{}
	if p, ok := graceful.FromContext(s); ok {
		lameDuck = p.LameDuck()
	}
	available := fmt.Sprintf(`h3=":%d"; ma=86400`, port)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-lameDuck:
			w.Header().Set("Alt-Svc", "clear")
		case <-s.Done():
			w.Header().Set("Alt-Svc", "clear")
		default:
			w.Header().Set("Alt-Svc", available)
		}
		h.ServeHTTP(w, r)
	})
}
