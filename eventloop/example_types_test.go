package eventloop_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swansong-go/swansong/eventloop"
)

// Callbacks, timers and completions may access the loop's data without a lock. Other goroutines
// must not access it.
func ExampleLoop() {
	loop := eventloop.New(context.Background(), eventloop.WithName("ui"))
	if err := loop.Start(); err != nil {
		fmt.Println(err)
		return
	}
	frames, painted := 0, make(chan struct{})
	// Create the timer on the loop's goroutine, so that it cannot fire before it is assigned.
	loop.Post(func() {
		var paint *eventloop.Timer
		paint, _ = loop.Every(time.Millisecond, func() {
			if frames++; frames == 2 {
				paint.Stop()
				close(painted)
			}
		})
	})
	<-painted
	late, _ := loop.After(time.Hour, func() { fmt.Println("never") })
	fmt.Println("pending:", loop.Counts().Timers)

	<-loop.Stop().Done()
	fmt.Println("frames:", frames, "the timer would have fired:", late.Stop())
	_, err := loop.After(0, func() {})
	fmt.Println(errors.Is(err, eventloop.ErrStopped), loop.Err())
	fmt.Println("cancelled:", loop.Stats().Snapshot().CancelledTimers)
	// Output:
	// pending: 1
	// frames: 2 the timer would have fired: false
	// true <nil>
	// cancelled: 1
}

// Any code may request the shutdown. What happens then, and in which order, is decided in main.
func ExampleLoop_ShutdownHandle() {
	loop := eventloop.New(context.Background())
	go loop.ShutdownHandle().Trigger() // a real program calls Trigger when a window is closed, for example
	err := loop.Run(context.Background(), func(context.Context) error {
		<-loop.ShutdownHandle().Signal()
		loop.Post(func() { fmt.Println("saved") })
		return nil
	})
	fmt.Println(err)
	// Output:
	// saved
	// <nil>
}

// Offloaded work that has timed out continues until it notices that its context has ended. Wait for
// it before you release resources that the work uses, such as the heap of another language.
func ExampleLoop_WaitRunners() {
	loop, pool := eventloop.New(context.Background()), eventloop.NewPool(context.Background(), 1)
	defer pool.Stop()
	loop.Start()
	timedOut, finish := make(chan struct{}), make(chan struct{})
	eventloop.OffloadTimeout(loop, pool, 100*time.Millisecond, func(context.Context) (int, error) {
		<-finish // this work ignores its context
		return 0, nil
	}, func(int, error) { close(timedOut) })
	<-timedOut

	brief, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	err := loop.WaitRunners(brief)
	var late *eventloop.WaitError
	if errors.As(err, &late) {
		fmt.Println("still running:", late.Running, late.What)
	}

	close(finish)
	fmt.Println(loop.WaitRunners(context.Background()))
	<-loop.Stop().Done()
	// Output:
	// still running: 1 offloads
	// <nil>
}

// With a panic handler that returns true, a panic ends only the job that panicked. Err returns the
// first panic of a job, with its stack.
func ExamplePool_Err() {
	pool := eventloop.NewPool(context.Background(), 1, eventloop.WithPanicHandler(func(*eventloop.PanicError) bool { return true }))
	release := make(chan struct{})
	pool.Submit(func() { <-release; panic("no such pixel") })
	pool.Submit(func() {})
	fmt.Println("running:", pool.Running())
	close(release)
	<-pool.Stop().Done()
	fmt.Println("running:", pool.Running(), "panics:", pool.Panics(), pool.Err())
	// Output:
	// running: 2
	// running: 0 panics: 1 eventloop: panic in a function of the kind "job": no such pixel
}
