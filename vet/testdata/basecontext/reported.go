// Package basecontext has servers whose requests the stop cancels.
package basecontext

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"

	"github.com/swansong-go/swansong/ctxshutdown"
)

func theScope(s *ctxshutdown.Swansong) *http.Server {
	return &http.Server{
		BaseContext: func(net.Listener) context.Context { return s }, // want `the BaseContext of the server derives from s, whose stop cancels every request in flight; return s.Work\(\), or set BaseContext to s.BaseContext`
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if c == nil {
				return ctx
			}
			return s // want `the ConnContext of the server derives from s, whose stop cancels every request in flight; return s.Work\(\)$`
		},
	}
}

type key struct{}

func derived(s *ctxshutdown.Swansong) *http.Server {
	srv := new(http.Server)
	srv.BaseContext = func(ln net.Listener) context.Context {
		ctx := context.WithValue(s, key{}, ln)
		return ctx // want `the BaseContext of the server derives from s`
	}
	return srv
}

func ofATest(s *ctxshutdown.Swansong) {
	srv := httptest.NewUnstartedServer(nil)
	srv.Config.BaseContext = func(net.Listener) context.Context { return context.Context(s) } // want `the BaseContext of the server derives from s`
}

type app struct{ scope *ctxshutdown.Swansong }

func (a *app) base(net.Listener) context.Context {
	return a.scope // want `the BaseContext of the server derives from a.scope`
}

var root = ctxshutdown.New(context.Background())

func base(net.Listener) context.Context { return root } // want `the BaseContext of the server derives from root`

func byName(a *app) []http.Server {
	var local = func(net.Listener) context.Context { return a.scope } // want `the BaseContext of the server derives from a.scope`
	return []http.Server{{BaseContext: a.base}, {BaseContext: base}, {BaseContext: local}}
}

type embedding struct{ *ctxshutdown.Swansong }

func ofAnEmbedding(e embedding) *http.Server {
	return &http.Server{BaseContext: func(net.Listener) context.Context { return e }} // want `the BaseContext of the server derives from e.Swansong`
}
