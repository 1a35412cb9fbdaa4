package eventloop_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/swansong-go/swansong/eventloop"
)

// While the queue is full, Post refuses, and PostWait waits for room.
func ExampleWithQueueLimit() {
	loop := eventloop.New(context.Background(), eventloop.WithQueueLimit(2))
	if err := loop.Start(); err != nil {
		fmt.Println(err)
		return
	}
	release := make(chan struct{})
	for range 3 {
		fmt.Println("accepted:", loop.Post(func() { <-release }))
	}
	time.AfterFunc(time.Millisecond, func() { close(release) })
	fmt.Println("PostWait:", loop.PostWait(context.Background(), func() {}))
	<-loop.Stop().Done()
	fmt.Println("refused because the queue was full:", loop.Stats().Snapshot().RefusedFull)
	// Output:
	// accepted: true
	// accepted: true
	// accepted: false
	// PostWait: <nil>
	// refused because the queue was full: 1
}

// While a pool has as many jobs as its limit, Submit refuses, and SubmitWait waits for room.
func ExamplePool_SubmitWait() {
	pool := eventloop.NewPool(context.Background(), 1, eventloop.WithQueueLimit(1))
	release := make(chan struct{})
	fmt.Println("accepted:", pool.Submit(func() { <-release }))
	fmt.Println("accepted:", pool.Submit(func() {}))
	time.AfterFunc(time.Millisecond, func() { close(release) })
	fmt.Println("SubmitWait:", pool.SubmitWait(context.Background(), func() {}))
	<-pool.Stop().Done()
	fmt.Println("refused because the queue was full:", pool.RefusedFull())
	// Output:
	// accepted: true
	// accepted: false
	// SubmitWait: <nil>
	// refused because the queue was full: 1
}

// A producer that is faster than the loop waits for it.
func ExampleLoop_PostWait() {
	loop := eventloop.New(context.Background(), eventloop.WithQueueLimit(10))
	if err := loop.Start(); err != nil {
		fmt.Println(err)
		return
	}
	sum := 0
	for i := range 100 {
		if err := loop.PostWait(context.Background(), func() { sum += i }); err != nil {
			fmt.Println(err)
		}
	}
	<-loop.Stop().Done()
	fmt.Println(sum)
	// Output: 4950
}

// A producer still holds a handle when the loop ends, which is a mistake. In a test, the function
// passed to WithShutdownCheck would call t.Error.
func ExampleWithShutdownCheck() {
	loop := eventloop.New(context.Background(), eventloop.WithShutdownCheck(func(err error) { fmt.Println(err) }))
	if err := loop.Start(); err != nil {
		fmt.Println(err)
		return
	}
	handle, _ := loop.Handle()
	done := loop.Stop().Done()
	for loop.State() != eventloop.Stopped {
		time.Sleep(time.Millisecond)
	}
	handle.Release()
	<-done
	// Output:
	// eventloop: loop "loop" ended with 0 offloads running and 1 handle held, and has refused 0 callbacks since its stop; stop the producers, then call WaitIdle and Quiesce, then Stop
}

// A callback that blocks delays all others. The hook names it.
func ExampleWithSlowCallback() {
	loop := eventloop.New(context.Background(), eventloop.WithSlowCallback(time.Millisecond, func(s eventloop.SlowCallback) {
		fmt.Println("slow:", s.Kind, strings.Contains(s.Func, "example_room_test.go"), s.Took > time.Millisecond)
	}))
	if err := loop.Start(); err != nil {
		fmt.Println(err)
		return
	}
	loop.Post(func() { time.Sleep(2 * time.Millisecond) })
	<-loop.Stop().Done()
	// Output: slow: callback true true
}
