package eventloop_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/eventloop"
)

// A loop belongs to the scope in which it is created, and stops when this scope is stopped.
func ExampleNew() {
	app := ctxshutdown.New(context.Background(), ctxshutdown.WithName("app"))
	loop := eventloop.New(app)
	fmt.Println(loop.State(), loop.Start(), loop.State())
	fmt.Println(app.Shutdown().Wait(context.Background()), loop.State())
	// Output:
	// Idle <nil> Running
	// <nil> Stopped
}

// Reports contain the names of a loop and of a pool.
func ExampleWithName() {
	app := ctxshutdown.New(context.Background(), ctxshutdown.WithName("app"))
	defer app.Shutdown()
	loop := eventloop.New(app, eventloop.WithName("ui"))
	loop.Start()
	defer loop.Stop()
	fmt.Println(app.GuardReport())
	// Output:
	// 1 guard: app/ui ×1
}

// The init function runs on the loop's goroutine before any callback. If it fails, no callback
// runs.
func ExampleWithInit() {
	loop := eventloop.New(context.Background(), eventloop.WithInit(func() error { return errors.New("no display") }))
	fmt.Println(loop.Start())
	fmt.Println(loop.Post(func() {}))
	// Output:
	// eventloop: init function of the loop failed: no display
	// false
}

// Graphics libraries require that all calls come from one operating system thread.
func ExampleWithOSThread() {
	loop := eventloop.New(context.Background(), eventloop.WithOSThread(), eventloop.WithInit(func() error {
		return nil // a real program calls gl.Init(), for example
	}))
	fmt.Println(loop.Start())
	loop.Post(func() { loop.Stop() })
	<-loop.Scope().Completion().Done()
	fmt.Println(loop.State())
	// Output:
	// <nil>
	// Stopped
}

// A pool runs work that takes processor time, on as many goroutines as it has workers.
func ExampleNewPool() {
	pool := eventloop.NewPool(context.Background(), 2)
	sum := make(chan int, 10)
	for n := range 10 {
		pool.Submit(func() { sum <- n * n })
	}
	pool.Stop() // jobs that were accepted still run
	<-pool.Scope().Completion().Done()
	close(sum)
	total := 0
	for n := range sum {
		total += n
	}
	fmt.Println(total)
	// Output:
	// 285
}
