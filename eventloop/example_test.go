package eventloop_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/eventloop"
)

func Example() {
	app := ctxshutdown.New(context.Background(), ctxshutdown.WithName("app"))
	defer app.Shutdown()
	loop := eventloop.New(app)
	if err := loop.Start(); err != nil {
		fmt.Println(err)
		return
	}

	hits := 0 // only callbacks access this variable
	for range 3 {
		loop.Post(func() { hits++ })
	}
	loop.Post(func() { fmt.Println("hits:", hits) })

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	fmt.Println("stopped:", app.Shutdown().Wait(ctx)) // Shutdown stops the loop, and Wait waits for it
	fmt.Println("accepted:", loop.Post(func() { fmt.Println("never") }))
	// Output:
	// hits: 3
	// stopped: <nil>
	// accepted: false
}

// A callback may stop its loop. Callbacks that were accepted before still run.
func ExampleLoop_Stop() {
	loop := eventloop.New(context.Background())
	loop.Start()
	accepted := make(chan bool)
	loop.Post(func() {
		<-accepted
		loop.Stop()
		fmt.Println(loop.State(), loop.Post(func() {}))
	})
	loop.Post(func() { fmt.Println("was accepted") })
	close(accepted)
	<-loop.Scope().Completion().Done()
	fmt.Println(loop.State())
	// Output:
	// Stopping false
	// was accepted
	// Stopped
}

// Run uses the calling goroutine for the loop, which matters if that goroutine is locked to a
// thread. The rest of the program runs in main.
func ExampleLoop_Run() {
	loop := eventloop.New(context.Background(), eventloop.WithOSThread())
	err := loop.Run(context.Background(), func(ctx context.Context) error {
		loop.Post(func() { fmt.Println("on the caller's thread") })
		return nil
	})
	fmt.Println("drained:", err)
	// Output:
	// on the caller's thread
	// drained: <nil>
}

func ExampleState() {
	loop := eventloop.New(context.Background())
	fmt.Println(loop.State())
	loop.Start()
	fmt.Println(loop.State())
	<-loop.Stop().Done()
	fmt.Println(loop.State())
	// Output:
	// Idle
	// Running
	// Stopped
}

func ExampleLoop_Quiesce() {
	loop := eventloop.New(context.Background())
	loop.Start()
	defer loop.Stop()
	driver, _ := loop.Handle() // a handle for a thread of a driver that posts to the loop

	err := loop.Quiesce(time.Millisecond)
	var late *eventloop.QuiesceTimeoutError
	fmt.Println(errors.As(err, &late), late.Handles)

	driver.Release()
	fmt.Println(loop.Quiesce(10 * time.Second))
	// Output:
	// true 1
	// <nil>
}

func ExampleCounts() {
	loop := eventloop.New(context.Background())
	loop.Start()
	defer loop.Stop()
	loop.After(time.Hour, func() {})
	fmt.Println(loop.Counts())
	// Output: 0 queued, 0 offloads running, 0 handles held, 1 timer pending
}

func ExampleHandle() {
	loop := eventloop.New(context.Background())
	loop.Start()
	defer loop.Stop()
	feed, ok := loop.Handle()
	go func() {
		defer feed.Release()
		feed.Post(func() { fmt.Println("from the feed") })
	}()
	fmt.Println(ok, loop.Quiesce(10*time.Second))
	// Unordered output:
	// from the feed
	// true <nil>
}

func ExampleShutdownHandle() {
	loop := eventloop.New(context.Background())
	shutdown := loop.ShutdownHandle() // pass this handle to the code that may request a shutdown
	time.AfterFunc(time.Millisecond, shutdown.Trigger)
	err := loop.Run(context.Background(), func(context.Context) error {
		<-shutdown.Signal()
		return loop.Quiesce(10 * time.Second)
	})
	fmt.Println(shutdown.IsShutdown(), err)
	// Output: true <nil>
}

// Read the counters when the loop has ended. If the program was shut down in the documented order,
// the counters AbortedUnwinds, LeakedTasks, UnbalancedShutdowns and CrossQueueUndrained are zero.
func ExampleStats() {
	loop := eventloop.New(context.Background())
	stats := loop.Stats()
	var held *eventloop.Handle
	loop.Run(context.Background(), func(context.Context) error {
		loop.Post(func() {})
		held, _ = loop.Handle() // this handle is never released
		return nil
	})
	s := stats.Snapshot()
	fmt.Println(s.Executed, s.UnbalancedShutdowns)
	held.Release()
	// Output: 1 1
}

func ExampleSnapshot() {
	loop := eventloop.New(context.Background())
	loop.Post(func() {})
	fmt.Printf("%+v\n", loop.Stats().Snapshot().Refused)
	// Output: 1
}

func ExampleTimer() {
	loop := eventloop.New(context.Background())
	loop.Start()
	done := make(chan struct{})
	ticks := 0
	loop.Post(func() {
		var tick *eventloop.Timer
		tick, _ = loop.Every(time.Millisecond, func() {
			if ticks++; ticks == 3 {
				tick.Stop()
				close(done)
			}
		})
	})
	<-done
	<-loop.Stop().Done()
	fmt.Println(ticks)
	// Output: 3
}

func ExamplePool() {
	pool := eventloop.NewPool(context.Background(), 2)
	pool.Submit(func() { fmt.Println("on a worker") })
	fmt.Println(pool.WaitIdle(context.Background()))
	<-pool.Stop().Done()
	fmt.Println(pool.Submit(func() { fmt.Println("never") }))
	// Output:
	// on a worker
	// <nil>
	// false
}

// The work runs on the pool. The completion runs on the loop and may access the loop's data.
func ExampleOffload() {
	loop, pool := eventloop.New(context.Background()), eventloop.NewPool(context.Background(), 4)
	loop.Start()
	total := 0
	for i := range 4 {
		eventloop.Offload(loop, pool, func(context.Context) (int, error) {
			return i * i, nil
		}, func(square int, err error) {
			total += square
		})
	}
	<-pool.Stop().Done()
	<-loop.Stop().Done()
	fmt.Println(total)
	// Output: 14
}

func ExampleOffloadTimeout() {
	loop, pool := eventloop.New(context.Background()), eventloop.NewPool(context.Background(), 1)
	loop.Start()
	eventloop.OffloadTimeout(loop, pool, time.Millisecond, func(ctx context.Context) (string, error) {
		<-ctx.Done()
		return "", ctx.Err()
	}, func(_ string, err error) {
		fmt.Println(err)
	})
	<-loop.Stop().Done() // waits until the completion has run and the work has returned
	fmt.Println(loop.Stats().Snapshot().TimedOut)
	<-pool.Stop().Done()
	// Output:
	// eventloop: offloaded work did not finish in time: context deadline exceeded
	// 1
}

// Without a panic handler, the panic would end the program. With one that returns true, the loop
// continues.
func ExampleWithPanicHandler() {
	loop := eventloop.New(context.Background(), eventloop.WithPanicHandler(func(err *eventloop.PanicError) (resume bool) {
		fmt.Println(err)
		return true
	}))
	loop.Start()
	loop.Post(func() { panic("ouch") })
	loop.Post(func() { fmt.Println("goes on") })
	<-loop.Stop().Done()
	// Output:
	// eventloop: panic in a function of the kind "callback": ouch
	// goes on
}

// A panic handler that returns false stops the loop. The accepted callbacks still run.
func ExamplePanicError() {
	loop := eventloop.New(context.Background(), eventloop.WithPanicHandler(func(*eventloop.PanicError) (resume bool) { return false }))
	loop.Start()
	loop.Post(func() { panic(errors.New("disk on fire")) })
	<-loop.Scope().Completion().Done() // the panic has stopped the loop
	var err *eventloop.PanicError
	fmt.Println(errors.As(loop.Err(), &err), err.Unwrap())
	// Output: true disk on fire
}

func ExampleQuiesceTimeoutError() {
	loop := eventloop.New(context.Background())
	feed, _ := loop.Handle()
	fmt.Println(loop.Quiesce(0))
	feed.Release()
	<-loop.Stop().Done()
	// Output:
	// eventloop: Quiesce: the loop was not quiescent after 0s, in state Idle: 0 queued, 0 offloads running, 1 handle held, 0 timers pending; stop the producers, let running work return, or wait longer
}

func ExampleWaitError() {
	pool := eventloop.NewPool(context.Background(), 1)
	release := make(chan struct{})
	pool.Submit(func() { <-release })
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	fmt.Println(pool.WaitIdle(ctx))
	close(release)
	<-pool.Stop().Done()
	// Output:
	// eventloop: 1 job not finished when the wait ended (context deadline exceeded); wait longer, or end the contexts of offloads with Force
}

func ExampleOption() {
	app := ctxshutdown.New(context.Background(), ctxshutdown.WithName("app"))
	ui := eventloop.New(app, eventloop.WithName("ui"), nil)
	ui.Start()
	fmt.Println(app.GuardReport())
	<-app.Shutdown().Done()
	// Output: 1 guard: app/ui ×1
}
