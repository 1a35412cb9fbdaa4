package httpdrain

import (
	"encoding/json"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
)

// A DebugOption configures [Debug]. A nil DebugOption is ignored.
type DebugOption interface{ applyDebug(*debugAccess) }

type debugOption func(*debugAccess)

func (f debugOption) applyDebug(a *debugAccess) { f(a) }

// AllowRemote has [Debug] answer others than the local machine, too: put it behind something that asks who they are.
// Under a name, as opposed to an address, it answers only if the name is one of hosts: a web page could otherwise read
// it through the browser of somebody who may, by pointing a name of its own here (DNS rebinding). "*" stands for all
// names, where credentials are asked for anyway.
func AllowRemote(hosts ...string) DebugOption {
	return debugOption(func(a *debugAccess) { a.remote, a.hosts = true, append(a.hosts, hosts...) })
}

// Debug returns a page for whoever wants to know why s does not come to its end: what s is doing, on which rung the
// [graceful.Process] is that s belongs to, if any, how long until the next, and who holds guards, as a tree of scopes.
// With ?q= it shows those whose path, or site, contains something.
//
//	mux.Handle("GET /debug/shutdown", httpdrain.Debug(s))
//
// The same is there as JSON, with ?format=json or where Accept asks for it, and as server-sent events, with
// ?format=events, where Accept asks for them, as EventSource does, or where the path ends in /events. A stream has the
// newest state in every event: after a change, four times a second at most, and while s runs every fifteen seconds. A slow
// reader misses some. It ends when s is complete, after an event that says so, and when s is forced: whoever asks again
// then gets one event.
//
// The handler only reads. It answers nobody but the local machine, unless [AllowRemote] says otherwise. It costs
// nothing while nobody looks: it has no goroutine, and takes note of the guards held when s is told to stop, and when it is
// forced or complete, whichever comes first. Everything else is recorded while somebody looks.
//
// Under [Serve], a request is a guard until it is answered, but a stream is not, and it is the last request on its connection.
// When Serve has drained it ends the stream, and the last event may not get through. A middleware's own ResponseWriter needs
// an Unwrap method, as for [http.ResponseController], or the drain cannot tell a stream on HTTP/2 from the requests beside it,
// and waits for all. Under a server or middleware that counts in other ways, s may find itself
// waiting for a stream, until it is forced: mount Debug outside of such middleware, or on a server of its own that is closed
// last, where it can be asked until the very end.
func Debug(s *ctxshutdown.Swansong, opts ...DebugOption) http.Handler {
	if s == nil {
		panic("httpdrain: Debug of a nil scope; make one with ctxshutdown.New")
	}
	p, ok := graceful.FromContext(s)
	if !ok {
		return newDebug(s, nil, opts)
	}
	return newDebug(s, p, opts)
}

func newDebug(s *ctxshutdown.Swansong, l debugLadder, opts []DebugOption) *debug {
	d := &debug{record: newDebugRecord(s, l)}
	for _, opt := range opts {
		if opt != nil {
			opt.applyDebug(&d.access)
		}
	}
	return d
}

type debug struct {
	record *debugRecord
	access debugAccess
}

// A format is what a request is answered with.
type debugFormat int

const (
	asPage debugFormat = iota
	asJSON
	asEvents
)

func (d *debug) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Vary", "Accept")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Content-Security-Policy", debugAssets().policy)

	if why := d.access.refuses(r); why != "" {
		http.Error(w, why, http.StatusForbidden)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "This page only shows what is there: ask with GET or HEAD.", http.StatusMethodNotAllowed)
		return
	}
	format, ok := debugFormatOf(r)
	if !ok {
		http.Error(w, "There is format=html, format=json and format=events.", http.StatusBadRequest)
		return
	}
	filter := printable(r.URL.Query().Get("q"), maxFilter)
	var body []byte
	switch format {
	case asEvents:
		h.Set("Content-Type", "text/event-stream; charset=utf-8")
		if r.Method == http.MethodGet {
			d.stream(w, r, filter)
		}
		return
	case asJSON:
		h.Set("Content-Type", "application/json; charset=utf-8")
		body = debugJSON(d.record.look(0), filter)
	default:
		h.Set("Content-Type", "text/html; charset=utf-8")
		body = debugPage(d.record.look(0), filter)
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if r.Method == http.MethodGet {
		w.Write(body)
	}
}

func debugJSON(now *debugState, filter string) []byte {
	b, err := json.Marshal(newDebugView(now, filter))
	if err != nil {
		panic(err) // there is nothing in it that could fail
	}
	return append(b, '\n')
}

// debugFormatOf prefers what was asked for on purpose. Of the types in Accept that it knows, the first of the best
// counts; a wildcard means the page.
func debugFormatOf(r *http.Request) (f debugFormat, ok bool) {
	switch r.URL.Query().Get("format") {
	case "":
	case "html":
		return asPage, true
	case "json":
		return asJSON, true
	case "events":
		return asEvents, true
	default:
		return asPage, false
	}
	if strings.HasSuffix(r.URL.Path, "/events") {
		return asEvents, true
	}
	best := 0.0
	for _, part := range strings.Split(strings.Join(r.Header.Values("Accept"), ","), ",") {
		kind, params, err := mime.ParseMediaType(part)
		if err != nil {
			continue
		}
		q := 1.0
		if v, given := params["q"]; given {
			q, _ = strconv.ParseFloat(v, 64)
		}
		if q <= best {
			continue
		}
		switch kind {
		case "text/html":
			f, best = asPage, q
		case "application/json":
			f, best = asJSON, q
		case "text/event-stream":
			f, best = asEvents, q
		}
	}
	return f, true
}
