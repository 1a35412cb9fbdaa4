package graceful_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
)

// What is specific to a rung asks for it: a log line, a metric, a line on a terminal.
func ExampleRung() {
	graceful.Run(context.Background(), func(s *ctxshutdown.Swansong) error {
		p, _ := graceful.FromContext(s)
		fmt.Println(p.Status().Rung == graceful.Serving)
		p.Watch(func(st graceful.Status) {
			switch st.Rung {
			case graceful.LameDuck, graceful.Soft:
				fmt.Println("finishing what was begun:", st.Rung)
			case graceful.Hard:
				fmt.Println("cutting it short:", st.Rung)
			}
		})
		return nil
	})
	// Output:
	// true
	// finishing what was begun: Soft
}

// The root scope is what has everything below it, also for those who were only given a context.
func ExampleProcess() {
	graceful.Run(context.Background(), func(s *ctxshutdown.Swansong) error {
		conn, cancel := ctxshutdown.WithCancel(s, ctxshutdown.WithName("conn-42"))
		defer cancel()
		g := conn.Guard()
		defer g.Release()
		if p, ok := graceful.FromContext(conn); ok {
			fmt.Println(p.Scope() == s, p.Status().Signals)
			p.Scope().Shutdown() // such as an order by HTTP
			<-p.LameDuck()
			fmt.Println(conn.Err())
		}
		return nil
	})
	// Output:
	// true 0
	// context canceled
}

// A panic of a part of the program is that of Run, once the rest has drained.
func ExamplePanicError() {
	defer func() {
		if err, ok := recover().(*graceful.PanicError); ok {
			fmt.Println("main has panicked:", err.Value)
		}
	}()
	graceful.Run(context.Background(), func(s *ctxshutdown.Swansong) error {
		s.Go(func(context.Context) {
			<-s.Done()
			fmt.Println("the last order is dealt with")
		})
		panic(errors.New("no such table"))
	})
	// Output:
	// the last order is dealt with
	// main has panicked: no such table
}
