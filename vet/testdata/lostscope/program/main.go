// Program is a program: when it returns, its scopes end with the process.
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
