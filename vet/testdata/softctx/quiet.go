package softctx

import (
	"context"
	"database/sql"
	"net/http"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
)

func onTheHardTier(s *ctxshutdown.Swansong, db *sql.DB) {
	g := s.Guard()
	defer g.Release()
	db.PingContext(s.Work())
	db.PingContext(ctxshutdown.Work(s))
	db.PingContext(s.BaseContext(nil))
	db.PingContext(context.WithoutCancel(s))
	ctx, cancel := context.WithTimeout(s.Work(), time.Second)
	defer cancel()
	db.PingContext(ctx)
	work := ctxshutdown.Work(context.WithValue(s, 1, 2))
	db.PingContext(work)
}

func withoutAGuard(s *ctxshutdown.Swansong, db *sql.DB) {
	db.PingContext(s)
	g := s.Guard()
	g.Release()
	db.PingContext(s)
	http.NewRequestWithContext(s, "GET", "http://localhost", nil) // no guard is held: this is new work
}

func ofAnother(s, t *ctxshutdown.Swansong, db *sql.DB) {
	g := s.Guard()
	defer g.Release()
	db.PingContext(t)
}

func aParameter(ctx context.Context, s *ctxshutdown.Swansong, db *sql.DB) {
	g, ok := ctxshutdown.Acquire(ctx)
	if !ok {
		return
	}
	defer g.Release()
	db.PingContext(ctx)
	h := s.Guard()
	defer h.Release()
	db.PingContext(ctx)
}

// A child of Work is not stopped when its parent is stopped.
func belowWork(s *ctxshutdown.Swansong, db *sql.DB) {
	conn, cancel := ctxshutdown.WithCancel(s.Work())
	defer cancel()
	g := conn.Guard()
	defer g.Release()
	db.PingContext(conn)
	h := s.Guard()
	defer h.Release()
	db.PingContext(conn)
}

func handedOver(s *ctxshutdown.Swansong, db *sql.DB) {
	g := s.Guard()
	go func() {
		work()
		g.Release()
	}()
	db.PingContext(s)
}

func someOtherCalls(s *ctxshutdown.Swansong, r *http.Request) {
	g := s.Guard()
	defer g.Release()
	ctxshutdown.Sleep(s, time.Second)
	use(s)
	q := query{}
	q.Query(s, "go")
	q.Exec(s, 1)
	r.Context()
}

type query struct{}

func (query) Query(ctx context.Context, term string) []string { return nil }
func (query) Exec(ctx context.Context, args ...any)           {}

func atAnotherTime(s *ctxshutdown.Swansong, db *sql.DB) func() error {
	g := s.Guard()
	defer g.Release()
	return func() error { return db.PingContext(s) }
}

func perhaps(s *ctxshutdown.Swansong, db *sql.DB, soft bool) {
	g := s.Guard()
	defer g.Release()
	ctx := s.Work()
	if soft {
		ctx = s
	}
	db.PingContext(ctx)
	var other context.Context = s
	if !soft {
		other = s.Work()
	}
	db.PingContext(other)
}

func (e *embedding) onTheHardTier() {
	g := e.Guard()
	defer g.Release()
	e.db.PingContext(e.Work())
	e.db.PingContext(e.other)
	h := e.other.Guard()
	defer h.Release()
	g.Release()
	e.db.PingContext(e)
}

func inAHandler(r *http.Request, db *sql.DB) {
	s, _ := ctxshutdown.FromContext(r.Context())
	g, _ := ctxshutdown.Acquire(r.Context())
	defer g.Release()
	db.PingContext(r.Context())
	db.PingContext(s.Work())
}

// The assignment stores another request in r, with another context.
func ofRequests(r *http.Request, ctx context.Context, db *sql.DB) {
	s, _ := ctxshutdown.FromContext(r.Context())
	r = r.WithContext(ctx)
	g, _ := ctxshutdown.Acquire(r.Context())
	defer g.Release()
	db.PingContext(s)
	h, _ := ctxshutdown.Acquire(ctx)
	defer h.Release()
	db.PingContext(s)
}
