package httpdrain

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
)

// Ready returns a handler for readiness probes. It answers 200 while the process accepts work, and
// 503 from the lame duck phase on. If s does not belong to a [graceful.Process], it answers 503
// from the stop of s on. The body is text, "ready" or the state, or JSON for requests that accept
// application/json, such as {"ready":false,"state":"lame duck"}.
//
// Mount Ready and [Live] on a server with a port of its own, which is closed last. The port of the
// service is closed when s is stopped: a probe on that port would fail without saying why, and a
// monitor that probes for liveness would restart a process that is draining.
func Ready(s *ctxshutdown.Swansong) http.Handler {
	var lameDuck <-chan struct{}
	if p, ok := graceful.FromContext(s); ok {
		lameDuck = p.LameDuck()
	}
	return probe("ready", func() string {
		switch s.State() {
		case ctxshutdown.ShuttingDown:
			return "shutting down"
		case ctxshutdown.Complete:
			return "complete"
		}
		select {
		case <-lameDuck:
			return "lame duck"
		default:
			return ""
		}
	})
}

// Live returns a handler for liveness probes. It answers 200 until the context s.Work() is done. In
// particular it answers 200 while the process drains, because a draining process must not be
// restarted. The body is like that of [Ready], with "live" instead of "ready".
func Live(s *ctxshutdown.Swansong) http.Handler {
	work := s.Work()
	return probe("live", func() string {
		if work.Err() != nil {
			return "ended"
		}
		return ""
	})
}

// probe returns a handler that answers 200 with state if the function failure returns "", and
// otherwise 503 with the result of failure.
func probe(state string, failure func() string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			h.Set("Allow", "GET, HEAD")
			http.Error(w, "405 method not allowed", http.StatusMethodNotAllowed)
			return
		}
		current, status := failure(), http.StatusServiceUnavailable
		ok := current == ""
		if ok {
			current, status = state, http.StatusOK
		}
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		if strings.Contains(r.Header.Get("Accept"), "application/json") {
			h.Set("Content-Type", "application/json")
			w.WriteHeader(status)
			json.NewEncoder(w).Encode(map[string]any{state: ok, "state": current})
			return
		}
		h.Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(status)
		io.WriteString(w, current+"\n")
	})
}
