// Package nothing does not depend on ctxshutdown, but has similar code.
package nothing

import (
	"context"
	"database/sql"
	"net"
	"net/http"
)

type Swansong struct{ context.Context }
type Guard struct{}

func New(ctx context.Context) *Swansong      { return &Swansong{ctx} }
func (s *Swansong) Guard() *Guard            { return nil }
func (s *Swansong) Wait(ctx context.Context) {}
func (g *Guard) Release()                    {}

func use(db *sql.DB) {
	s := New(context.Background())
	g := s.Guard()
	s.Guard()
	db.PingContext(s)
	s.Wait(s)
	_ = g
	_ = &http.Server{BaseContext: func(net.Listener) context.Context { return s }}
}
