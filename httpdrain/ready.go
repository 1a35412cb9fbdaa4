package httpdrain

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
)

// Ready returns a handler for readiness probes: 200 while work should be sent here, and 503 from the lame duck on, or from
// the stop of s where s does not belong to a [graceful.Process]. It answers in text, "ready" or why not, or in JSON, as in
// {"ready":false,"state":"lame duck"}, to those who accept application/json.
//
// Let it be served by the server that it speaks for: after the lame duck its listener is closed, which says the same.
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

// Live returns a handler for liveness probes: 200 unless Work of s has ended. A process that drains is alive, and must
// not be restarted for it. It answers as [Ready] does, with "live".
func Live(s *ctxshutdown.Swansong) http.Handler {
	work := s.Work()
	return probe("live", func() string {
		if work.Err() != nil {
			return "over"
		}
		return ""
	})
}

// probe answers 200 and what, unless there is something against it.
func probe(what string, against func() string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			h.Set("Allow", "GET, HEAD")
			http.Error(w, "405 method not allowed", http.StatusMethodNotAllowed)
			return
		}
		why, status := against(), http.StatusOK
		state := why
		if why != "" {
			status = http.StatusServiceUnavailable
		} else {
			state = what
		}
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		if strings.Contains(r.Header.Get("Accept"), "application/json") {
			h.Set("Content-Type", "application/json")
			w.WriteHeader(status)
			json.NewEncoder(w).Encode(map[string]any{what: why == "", "state": state})
			return
		}
		h.Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(status)
		io.WriteString(w, state+"\n")
	})
}
