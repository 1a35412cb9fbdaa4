// Program is a program: what is left when it returns ends with it.
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
