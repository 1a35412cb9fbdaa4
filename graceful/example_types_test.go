package graceful_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
)

// Code that depends on the phase, such as a log line or a metric, reads it from the status.
func ExamplePhase() {
	graceful.Run(context.Background(), func(s *ctxshutdown.Swansong) error {
		p, _ := graceful.FromContext(s)
		fmt.Println(p.Status().Phase == graceful.Serving)
		p.Watch(func(st graceful.Status) {
			switch st.Phase {
			case graceful.LameDuck, graceful.Soft:
				fmt.Println("finishing what was begun:", st.Phase)
			case graceful.Hard:
				fmt.Println("cutting it short:", st.Phase)
			}
		})
		return nil
	})
	// Output:
	// true
	// finishing what was begun: Soft
}

// The root scope contains all work of the process. FromContext finds the process in any context
// that derives from the root scope.
func ExampleProcess() {
	graceful.Run(context.Background(), func(s *ctxshutdown.Swansong) error {
		conn, cancel := ctxshutdown.WithCancel(s, ctxshutdown.WithName("conn-42"))
		defer cancel()
		g := conn.Guard()
		defer g.Release()
		if p, ok := graceful.FromContext(conn); ok {
			fmt.Println(p.Scope() == s, p.Status().Signals)
			p.Scope().Shutdown() // as a program does when an administrator tells it to stop
			<-p.LameDuck()
			fmt.Println(conn.Err())
		}
		return nil
	})
	// Output:
	// true 0
	// context canceled
}

// If one part of the program panics, Run waits until the rest has drained and then panics.
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
