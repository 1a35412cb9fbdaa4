// Package readme has the example of ../../README.md.
package readme

import (
	"database/sql"
	"errors"

	"github.com/swansong-go/swansong/ctxshutdown"
)

var errStopping = errors.New("stopping")

const insert = "INSERT INTO orders VALUES (?)"

type server struct{ db *sql.DB }

type order struct{ id int }

func (o order) check() error { return nil }

// The line numbers in README.md begin here.
//
//line readme.go:1
func (srv *server) save(s *ctxshutdown.Swansong, o order) error {
	g, ok := s.TryGuard() // lostguard: the guard g is not released when the function returns at line 7
	if !ok {
		return errStopping
	}
	if err := o.check(); err != nil {
		return err
	}
	_, err := srv.db.ExecContext(s, insert, o.id) // softctx: ExecContext is cancelled when s is stopped
	g.Release()
	return err
}
