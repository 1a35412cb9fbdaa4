// Package softctx has guarded work that the stop cancels.
package softctx

import (
	"context"
	"database/sql"
	"net/http"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
)

func work() error { return nil }
func use(any)     {}

func aGuard(s *ctxshutdown.Swansong, db *sql.DB) error {
	g := s.Guard()
	defer g.Release()
	_, err := db.ExecContext(s, "insert") // want `ExecContext is cancelled when s is stopped, although a guard promises to finish the work; pass s.Work\(\) or a context derived from it`
	return err
}

func aTry(s *ctxshutdown.Swansong, db *sql.DB) error {
	if g, ok := s.TryGuard(); ok {
		defer g.Release()
		tx, err := db.BeginTx(s, nil) // want `BeginTx is cancelled when s is stopped`
		if err != nil {
			return err
		}
		tx.QueryRowContext((s), "select") // want `QueryRowContext is cancelled when s is stopped`
		return tx.Commit()
	}
	return nil
}

func derived(s *ctxshutdown.Swansong, db *sql.DB) error {
	g := s.Guard()
	defer g.Release()
	ctx, cancel := context.WithTimeout(context.WithValue(s, 1, 2), time.Second)
	defer cancel()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	req, err := http.NewRequestWithContext(ctx, "GET", "http://localhost", nil) // want `NewRequestWithContext is cancelled when s is stopped`
	use(req)
	return err
}

func acquired(s *ctxshutdown.Swansong, db *sql.DB) error {
	var ctx context.Context = s
	g, ok := ctxshutdown.Acquire(ctx)
	if !ok {
		return context.Cause(ctx)
	}
	defer func() { g.Release() }()
	return db.PingContext(ctx) // want `PingContext is cancelled when s is stopped`
}

func ofAChild(s *ctxshutdown.Swansong, db *sql.DB) {
	child, cancel := ctxshutdown.WithCancel(s)
	defer cancel()
	g := child.Guard()
	db.PingContext(s)     // want `PingContext is cancelled when s is stopped`
	db.PingContext(child) // want `PingContext is cancelled when child is stopped`
	g.Release()
	p := s.Guard()
	db.PingContext(child) // want `PingContext is cancelled when s is stopped`
	p.Release()
}

func aClone(s *ctxshutdown.Swansong, db *sql.DB) {
	g := s.Guard()
	c := g.Clone()
	g.Release()
	db.PingContext(s) // want `PingContext is cancelled`
	c.Release()
	db.PingContext(s)
}

func inGo(s *ctxshutdown.Swansong, db *sql.DB) {
	s.Go(func(work context.Context) {
		db.PingContext(work)
		db.PingContext(s) // want `PingContext is cancelled`
	})
	ctxshutdown.Go(s, func(ctx context.Context) {
		db.PingContext(ctx) // want `PingContext is cancelled when s is stopped`
	})
}

func inAGoroutine(s *ctxshutdown.Swansong, db *sql.DB) {
	g := s.Guard()
	go func() {
		defer g.Release()
		db.PingContext(s) // want `PingContext is cancelled`
	}()
}

func onTheSpot(s *ctxshutdown.Swansong, db *sql.DB) {
	db.PingContext(s)
	defer s.Guard().Release()
	db.PingContext(s) // want `PingContext is cancelled`
}

func inALoop(s *ctxshutdown.Swansong, db *sql.DB) {
	for {
		g, ok := s.TryGuard()
		if !ok {
			db.PingContext(s)
			return
		}
		if err := db.PingContext(s); err != nil { // want `PingContext is cancelled`
			g.Release()
			continue
		}
		g.Release()
		db.PingContext(s)
	}
}

type server struct {
	app struct{ scope *ctxshutdown.Swansong }
	db  interface {
		Exec(ctx context.Context, query string, args ...any) error
	}
	client *http.Client
}

func (srv *server) handle(req *http.Request) {
	g, ok := srv.app.scope.TryGuard()
	if !ok {
		return
	}
	defer g.Release()
	srv.db.Exec(srv.app.scope, "insert", 1)       // want `Exec is cancelled when srv.app.scope is stopped`
	srv.client.Do(req.WithContext(srv.app.scope)) // want `WithContext is cancelled when srv.app.scope is stopped`
}

func twoGuards(s, t *ctxshutdown.Swansong, db *sql.DB) {
	g, h := s.Guard(), s.Guard()
	defer g.Release()
	defer h.Release()
	k := t.Guard()
	defer k.Release()
	db.PingContext(s) // want `PingContext is cancelled when s`
}

type embedding struct {
	*ctxshutdown.Swansong
	other *ctxshutdown.Swansong
	db    *sql.DB
}

func (e *embedding) handle() {
	g, ok := e.TryGuard()
	if !ok {
		return
	}
	defer g.Release()
	e.db.PingContext(e)          // want `PingContext is cancelled when e.Swansong is stopped`
	e.db.PingContext(e.Swansong) // want `PingContext is cancelled when e.Swansong is stopped`
	further := struct{ *embedding }{e}
	h := further.Guard()
	defer h.Release()
	e.db.PingContext(further) // want `PingContext is cancelled when further.embedding.Swansong is stopped`
	e.Go(func(context.Context) {
		e.db.PingContext(e) // want `PingContext is cancelled`
	})
}

// The guard is one of s, the scope of the request, so a stop of s cancels the call during the
// drain.
func ofARequest(r *http.Request, db *sql.DB) {
	s, ok := ctxshutdown.FromContext(r.Context())
	if !ok {
		return
	}
	g, ok := ctxshutdown.Acquire(r.Context())
	if !ok {
		return
	}
	defer g.Release()
	db.PingContext(s) // want `PingContext is cancelled when s is stopped, .*; pass s.Work\(\)`
}

func ofAContext(ctx context.Context, db *sql.DB) {
	timed, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	ctxshutdown.Go(timed, func(work context.Context) {
		s, _ := ctxshutdown.FromContext(work)
		child, cancel := ctxshutdown.WithCancel(s)
		defer cancel()
		db.PingContext(work)
		db.PingContext(child) // want `PingContext is cancelled when s is stopped`
	})
}
