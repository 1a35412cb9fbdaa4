package eventloop_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/eventloop"
)

// A loop is part of the scope that it is made in, and stops with it.
func ExampleNew() {
	app := ctxshutdown.New(context.Background(), ctxshutdown.WithName("app"))
	loop := eventloop.New(app)
	fmt.Println(loop.State(), loop.Start(), loop.State())
	fmt.Println(app.Shutdown().Wait(context.Background()), loop.State())
	// Output:
	// Idle <nil> Running
	// <nil> Stopped
}

// In reports, a loop and a pool go by their names.
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

// What has to be set up on the goroutine of the loop is, before anything else runs there; if that fails, nothing does.
func ExampleWithInit() {
	loop := eventloop.New(context.Background(), eventloop.WithInit(func() error { return errors.New("no display") }))
	fmt.Println(loop.Start())
	fmt.Println(loop.Post(func() {}))
	// Output:
	// eventloop: the init function of the loop failed: no display
	// false
}

// Libraries for graphics want all calls from one thread of the operating system.
func ExampleWithOSThread() {
	loop := eventloop.New(context.Background(), eventloop.WithOSThread(), eventloop.WithInit(func() error {
		return nil // gl.Init(), say
	}))
	fmt.Println(loop.Start())
	loop.Post(func() { loop.Stop() })
	<-loop.Scope().Completion().Done()
	fmt.Println(loop.State())
	// Output:
	// <nil>
	// Stopped
}

// A pool does what takes the processors their time, as many at once as it has workers.
func ExampleNewPool() {
	pool := eventloop.NewPool(context.Background(), 2)
	sum := make(chan int, 10)
	for n := range 10 {
		pool.Submit(func() { sum <- n * n })
	}
	pool.Stop() // what was accepted is done
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
