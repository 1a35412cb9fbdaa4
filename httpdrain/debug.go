package httpdrain

import (
	"net/http"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
	"github.com/swansong-go/swansong/httpdrain/internal/debugpage"
)

// A DebugOption configures [Debug]. A nil DebugOption is ignored.
type DebugOption interface{ applyDebug(*debugpage.Options) }

type debugOption func(*debugpage.Options)

func (f debugOption) applyDebug(o *debugpage.Options) { f(o) }

// LocalOnly makes [Debug] answer requests from the local machine, on a listener of its own. A
// request that a proxy on the same machine forwards can look like a local one, so Debug refuses all
// requests that [Serve] has accepted, because proxies forward to the listener of a service. Serve
// the page with an [http.Server] of its own, on a loopback address or a unix socket, to which no
// proxy forwards, and close it last:
//
//	admin, err := net.Listen("tcp", "localhost:9090")
//	…
//	go http.Serve(admin, httpdrain.Debug(s, httpdrain.LocalOnly()))
//
// Debug answers a request if its connection, Host and headers show no other origin, and if it does
// not use HTTP/1.0, as old versions of nginx do.
func LocalOnly() DebugOption {
	return debugOption(func(o *debugpage.Options) { o.LocalOnly = true })
}

// WithToken makes [Debug] answer requests that have the token, wherever they come from, and no
// others. A client sends it as the password of HTTP's basic authentication, with any user name (a
// browser asks for both), or in the header "Authorization: Bearer". A program that can read the
// traffic can read the token, so use TLS. If token is empty, for example because a variable is not
// set, Debug refuses every request.
func WithToken(token string) DebugOption {
	return debugOption(func(o *debugpage.Options) { o.WithToken, o.Token = true, token })
}

// AllowRemote makes [Debug] answer requests from other machines too. Debug does not authenticate
// them: put it behind a handler or proxy that does.
//
// Debug always answers a request whose Host is an IP address. It answers one whose Host is a name
// only if the name is in hosts. Otherwise a web page could read the debug page through the browser
// of a permitted user, by pointing its own host name at this server (DNS rebinding). The host "*"
// permits every name; use it only where clients must authenticate.
func AllowRemote(hosts ...string) DebugOption {
	return debugOption(func(o *debugpage.Options) { o.AllowRemote, o.Hosts = true, append(o.Hosts, hosts...) })
}

// Debug returns a handler for a page that shows why s has not finished shutting down: the state of
// s, the phase of the [graceful.Process] that s belongs to, if any, the time until the next phase,
// and which scopes hold guards, as a tree. The query parameter q shows only the scopes whose path
// or acquisition site contains it.
//
//	mux.Handle("GET /debug/shutdown", httpdrain.Debug(s, httpdrain.WithToken(os.Getenv("DEBUG_TOKEN"))))
//
// The same information is available in two other formats:
//
//   - JSON, with ?format=json or if the Accept header prefers it.
//   - Server-sent events, with ?format=events, if the path of the URL ends in /events, or if the
//     Accept header prefers them, as that of a browser's EventSource does. Each event carries the
//     newest state. Events are sent after a change, at most four per second, and at least every
//     fifteen seconds while s is running. A slow reader misses intermediate states.
//
// A stream of events ends when s is complete or forced, and its last event says which. A client
// that connects after that receives the final state and the last event.
//
// The handler never changes the state of s. It refuses every request unless one of the options
// [WithToken], [AllowRemote] and [LocalOnly] says which requests it may answer. If several of them
// are given, the first in this order applies and the others are ignored. The handler starts no
// goroutine and costs nothing between requests, with one exception: it records which guards are
// held when s is stopped, and when s is forced or complete, whichever is first. Everything else is
// recorded during requests.
//
// Under [Serve], a request for the page or the JSON holds a guard until it is answered. A stream
// does not, and it is the last request on its connection. When Serve has drained, it closes the
// stream's connection, so the client may not receive the last event. A ResponseWriter of the user's
// own middleware must have an Unwrap method, as for [http.ResponseController]. Without one, Serve
// cannot distinguish a stream on an HTTP/2 connection from the other requests there and waits for
// all of them.
//
// With another server, or middleware that counts requests, s may wait for a stream until s is
// forced. Mount Debug outside such middleware, or on a separate server that is closed last; a
// separate server also answers until the end of the shutdown.
func Debug(s *ctxshutdown.Swansong, opts ...DebugOption) http.Handler {
	if s == nil {
		panic("httpdrain: Debug: nil scope; create one with ctxshutdown.New")
	}
	o := debugpage.Options{OnStream: excludeFromDrain, IsOfService: isOfServe}
	for _, opt := range opts {
		if opt != nil {
			opt.applyDebug(&o)
		}
	}
	if p, ok := graceful.FromContext(s); ok {
		return debugpage.New(s, p, o)
	}
	return debugpage.New(s, nil, o)
}

// isOfServe reports whether r was accepted by Serve.
func isOfServe(r *http.Request) bool { return r.Context().Value(connKey{}) != nil }

// excludeFromDrain makes the drain not wait for the request r that w answers, if r was accepted by
// Serve.
func excludeFromDrain(w http.ResponseWriter, r *http.Request) {
	if c, ok := r.Context().Value(connKey{}).(*conn); ok {
		c.excludeFromDrain(w)
	}
}
