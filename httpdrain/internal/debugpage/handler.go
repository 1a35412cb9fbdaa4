// Package debugpage serves the page that shows why a scope has not finished shutting down, and the
// same information as JSON and as server-sent events. It is documented for users at
// httpdrain.Debug.
//
// A recorder takes snapshots of the scope and of the process that runs it. A view is a snapshot
// prepared for output: the JSON is a view, and the page renders a view, its steps and its chart
// with an HTML template. A stream sends the JSON or the page again whenever a new snapshot differs
// from the previous one.
package debugpage

import (
	"encoding/json"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// Options configure the handler that [New] returns. Without LocalOnly, AllowRemote and WithToken it
// refuses every request.
type Options struct {
	// LocalOnly permits requests from this machine, except those for which IsOfService returns
	// true.
	LocalOnly bool
	// IsOfService reports whether a request came to the listener of a service, to which proxies
	// forward the requests of other machines. A nil IsOfService stands for a function that always
	// returns false.
	IsOfService func(*http.Request) bool
	// WithToken permits the requests that have Token, from anywhere, and no others. If Token is
	// empty, no request is permitted.
	WithToken bool
	Token     string
	// AllowRemote permits requests from other machines, and through proxies.
	AllowRemote bool
	// Hosts are the names, in addition to localhost, that a remote request's Host header may have.
	// "*" permits every name.
	Hosts []string
	// OnStream is called when a request is about to be answered with a stream of events. It may be
	// nil.
	OnStream func(http.ResponseWriter, *http.Request)
}

type handler struct {
	recorder *recorder
	options  Options
}

// New returns a handler that shows the state of the scope s and of the process p. p may be nil.
func New(s *ctxshutdown.Swansong, p Process, o Options) http.Handler {
	return &handler{newRecorder(s, p), o}
}

// A format is one of the formats in which the handler can answer.
type format int

const (
	formatPage format = iota
	formatJSON
	formatEvents
)

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("Vary", "Accept")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Frame-Options", "DENY")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Content-Security-Policy", loadAssets().policy)

	if refusal := h.options.refusal(r); refusal != "" {
		status := http.StatusForbidden
		if h.options.WithToken && h.options.Token != "" {
			status = http.StatusUnauthorized
			// with this header, the browser asks the user for the token
			header.Set("WWW-Authenticate", `Basic realm="shutdown"`)
		}
		http.Error(w, refusal, status)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		header.Set("Allow", "GET, HEAD")
		http.Error(w, "This page is read-only: use GET or HEAD.", http.StatusMethodNotAllowed)
		return
	}
	format, ok := formatOf(r)
	if !ok {
		http.Error(w, "Unknown format: use format=html, format=json or format=events.", http.StatusBadRequest)
		return
	}
	filter := printable(r.URL.Query().Get("q"), maxFilter)
	var body []byte
	switch format {
	case formatEvents:
		header.Set("Content-Type", "text/event-stream; charset=utf-8")
		if r.Method == http.MethodGet {
			h.stream(w, r, filter)
		}
		return
	case formatJSON:
		header.Set("Content-Type", "application/json; charset=utf-8")
		body = renderJSON(h.recorder.snapshot(0), filter)
	default:
		header.Set("Content-Type", "text/html; charset=utf-8")
		body = renderPage(h.recorder.snapshot(0), filter)
	}
	header.Set("Content-Length", strconv.Itoa(len(body)))
	if r.Method == http.MethodGet {
		w.Write(body)
	}
}

func renderJSON(now *snapshot, filter string) []byte {
	b, err := json.Marshal(newView(now, filter))
	if err != nil {
		panic(err) // this cannot happen, because a view contains only types that package json can encode
	}
	return append(b, '\n')
}

// formatOf returns the format that r asks for: by the query parameter format, else by a path that
// ends in /events, else by the Accept header, where a wildcard selects the page. ok is false if the
// query parameter is not a known format.
func formatOf(r *http.Request) (f format, ok bool) {
	switch r.URL.Query().Get("format") {
	case "":
	case "html":
		return formatPage, true
	case "json":
		return formatJSON, true
	case "events":
		return formatEvents, true
	default:
		return formatPage, false
	}
	if strings.HasSuffix(r.URL.Path, "/events") {
		return formatEvents, true
	}
	return preferredFormat(strings.Join(r.Header.Values("Accept"), ",")), true
}

// preferredFormat returns the format that has the highest quality value in an Accept header. If
// several formats have the same value, it returns the first of them.
func preferredFormat(accept string) (f format) {
	best := 0.0
	for part := range strings.SplitSeq(accept, ",") {
		kind, params, err := mime.ParseMediaType(part)
		if err != nil {
			continue
		}
		quality := 1.0
		if v, given := params["q"]; given {
			quality, _ = strconv.ParseFloat(v, 64)
		}
		if quality <= best {
			continue
		}
		switch kind {
		case "text/html":
			f, best = formatPage, quality
		case "application/json":
			f, best = formatJSON, quality
		case "text/event-stream":
			f, best = formatEvents, quality
		}
	}
	return f
}
