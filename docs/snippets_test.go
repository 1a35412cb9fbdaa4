package docs

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"golang.org/x/sync/errgroup"
)

// The functions below are listings of pages that are compiled and not run: code before a migration
// (docs/migrate.md), and fragments (README.md, docs/reference/interrupts.md).

var _ = []any{errgroupBefore, shutdownBefore, guarded, readLines, copyAll}

func errgroupBefore(ctx context.Context, urls []string) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(4)
	for _, url := range urls {
		g.Go(func() error { return fetch(ctx, url) })
	}
	return g.Wait()
}

func shutdownBefore(ctx context.Context, srv *http.Server) error {
	go func() {
		<-ctx.Done()
		limit, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		srv.Shutdown(limit)
	}()
	return srv.ListenAndServe()
}

func guarded(s *ctxshutdown.Swansong, mux http.Handler) *http.Server {
	srv := &http.Server{BaseContext: s.BaseContext, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g, ok := ctxshutdown.Acquire(r.Context())
		if !ok {
			http.Error(w, "shutting down", http.StatusServiceUnavailable)
			return
		}
		defer g.Release()
		mux.ServeHTTP(w, r)
	})}
	return srv
}

func readLines(s *ctxshutdown.Swansong, conn net.Conn, handle func(string)) {
	r := ctxshutdown.NewReader(s, conn) // a stop of s ends a blocked Read
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		handle(lines.Text())
	}
	if r.Stopped() {
		// s was stopped before the end of the data
	}
}

func copyAll(s *ctxshutdown.Swansong, dst io.Writer, src io.Reader) {
	io.Copy(dst, ctxshutdown.NewReader(s, src)) // all bytes that were read are written, even if s ends meanwhile
}
