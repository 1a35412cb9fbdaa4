// Program is a package main: the scopes of its function main end with the process, so they need not
// be shut down.
package main

import (
	"context"

	"github.com/swansong-go/swansong/ctxshutdown"
)

func main() {
	s := ctxshutdown.New(context.Background())
	s.Guard().Release()
	func() {
		s := ctxshutdown.New(context.Background()) // want `the scope s is not shut down`
		s.Go(func(context.Context) {})
	}()
}
