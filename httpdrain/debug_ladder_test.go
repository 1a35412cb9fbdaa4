package httpdrain

import (
	"context"
	"net/http"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// DebugLadder is what Debug asks of a graceful.Process, of which a program has one, and which goes by signals.
type DebugLadder = debugLadder

// DebugOn is Debug for a scope that such a process runs.
func DebugOn(s *ctxshutdown.Swansong, l DebugLadder, opts ...DebugOption) http.Handler {
	return newDebug(s, l, opts)
}

// WithUncount returns r as a handler under Serve gets it.
func WithUncount(r *http.Request, f func()) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), uncountKey{}, func(http.ResponseWriter) { f() }))
}
