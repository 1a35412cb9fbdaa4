package basecontext

import (
	"context"
	"net"
	"net/http"

	"github.com/swansong-go/swansong/ctxshutdown"
)

func onTheHardTier(s *ctxshutdown.Swansong) []http.Server {
	return []http.Server{
		{BaseContext: s.BaseContext},
		{BaseContext: func(net.Listener) context.Context { return s.Work() }},
		{BaseContext: func(net.Listener) context.Context { return context.WithValue(s.Work(), key{}, 1) }},
		{BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(s) }},
		{ConnContext: func(ctx context.Context, _ net.Conn) context.Context { return ctx }},
		{BaseContext: func(net.Listener) context.Context { return belowWork(s) }},
	}
}

// The analyzer basecontext does not inspect functions that the function BaseContext calls.
func belowWork(s *ctxshutdown.Swansong) context.Context {
	f := func() context.Context { return s }
	f()
	conn, cancel := ctxshutdown.WithCancel(s.Work())
	context.AfterFunc(s.Work(), cancel)
	return conn
}

func inside(s *ctxshutdown.Swansong) {
	srv := &http.Server{}
	srv.BaseContext = func(net.Listener) context.Context {
		f := func() context.Context { return s }
		f()
		return s.Work()
	}
}

// The check reports only the field BaseContext of http.Server: in another type, the name may have
// another meaning.
type options struct {
	BaseContext func(net.Listener) context.Context
}

func another(s *ctxshutdown.Swansong) options {
	return options{BaseContext: func(net.Listener) context.Context { return s }}
}
