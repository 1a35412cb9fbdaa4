package graceful_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"syscall"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
)

// A main function calls os.Exit(graceful.ExitCode(serve())), so that the deferred calls of serve
// always run. In this example, the end of a context takes the place of a signal.
func Example() {
	ctx, signal := context.WithCancel(context.Background())
	serve := func() error {
		defer fmt.Println("database closed")
		return graceful.Run(ctx, func(s *ctxshutdown.Swansong) error {
			s.Go(func(work context.Context) {
				<-s.Done()
				fmt.Println("flushed:", work.Err())
			})
			graceful.Ready(s)
			signal()
			<-s.Done() // a real program calls httpdrain.Serve(s, srv, ln) instead
			return nil
		}, graceful.WithSoft(20*time.Second))
	}
	fmt.Println("exit code:", graceful.ExitCode(serve()))
	// Output:
	// flushed: <nil>
	// database closed
	// exit code: 0
}

// When f returns, with or without an error, the work that it has started is drained.
func ExampleRun() {
	err := graceful.Run(context.Background(), func(s *ctxshutdown.Swansong) error {
		s.Go(func(context.Context) {
			<-s.Done()
			fmt.Println("drained:", context.Cause(s))
		})
		return errors.New("listen: address in use")
	})
	fmt.Println(err, graceful.ExitCode(err))
	// Output:
	// drained: listen: address in use
	// listen: address in use 1
}

// If a goroutine does not return even though its work was cancelled, the error of Run names the
// scope of the goroutine.
func ExampleAbandonedError() {
	release := make(chan struct{})
	defer close(release)
	err := graceful.Run(context.Background(), func(s *ctxshutdown.Swansong) error {
		jobs, _ := ctxshutdown.WithCancel(s, ctxshutdown.WithName("jobs"))
		jobs.Go(func(context.Context) { <-release })
		return nil
	}, graceful.WithSoft(time.Millisecond), graceful.WithHard(time.Millisecond), graceful.WithOutput(io.Discard))
	var left *graceful.AbandonedError
	if errors.As(err, &left) {
		fmt.Println("page the operator:", left.Report)
	}
	fmt.Println("exit code:", graceful.ExitCode(err))
	// Output:
	// page the operator: 1 guard: jobs ×1
	// exit code: 3
}

func ExampleForcedError() {
	err := graceful.Run(context.Background(), func(s *ctxshutdown.Swansong) error {
		queries, _ := ctxshutdown.WithCancel(s, ctxshutdown.WithName("queries"))
		queries.Go(func(work context.Context) { <-work.Done() }) // this goroutine returns when the work is cancelled
		return nil
	}, graceful.WithSoft(time.Millisecond))
	fmt.Println(err)
	fmt.Println("exit code:", graceful.ExitCode(err))
	// Output:
	// graceful: drained after force (the drain took longer than 1ms): 1 guard: queries ×1
	// exit code: 2
}

func ExampleExitCode() {
	err := graceful.Run(context.Background(), func(*ctxshutdown.Swansong) error { return nil })
	fmt.Println(graceful.ExitCode(err)) // a real main function calls os.Exit(graceful.ExitCode(err)) instead
	// Output: 0
}

func ExampleWithPreStop() {
	graceful.Run(context.Background(), func(s *ctxshutdown.Swansong) error {
		return nil
	}, graceful.WithPreStop("consul", func(ctx context.Context) error {
		s, _ := graceful.FromContext(ctx)
		fmt.Println("deregistered while the scope is", s.Scope().State())
		return nil
	}))
	// Output: deregistered while the scope is Running
}

func ExampleExtend() {
	graceful.Run(context.Background(), func(s *ctxshutdown.Swansong) error {
		s.Go(func(context.Context) {
			<-s.Done()
			fmt.Println("granted", graceful.Extend(s, 25*time.Second, "one more batch"))
		})
		return nil
	})
	// Output: granted 25s
}

// The stage that reads requests stops first, then the stages that process them.
func ExampleInOrder() {
	ctx, cancel := context.WithCancel(context.Background())
	err := graceful.Run(ctx, func(s *ctxshutdown.Swansong) error {
		var stages []*ctxshutdown.Swansong
		for _, name := range []string{"ingress", "workers", "storage"} {
			stage, _ := ctxshutdown.WithCancel(s.Work(), ctxshutdown.WithName(name))
			stage.Go(func(context.Context) {
				<-stage.Done()
				fmt.Println(name, "has ended")
			})
			stages = append(stages, stage)
		}
		cancel()
		return graceful.InOrder(s, stages...)
	})
	fmt.Println(err)
	// Output:
	// ingress has ended
	// workers has ended
	// storage has ended
	// <nil>
}

func ExampleFromContext() {
	graceful.Run(context.Background(), func(s *ctxshutdown.Swansong) error {
		if p, ok := graceful.FromContext(s); ok {
			fmt.Println(p.Status().Phase)
		}
		return nil
	})
	// Output: Serving
}

func ExampleProcess_Watch() {
	graceful.Run(context.Background(), func(s *ctxshutdown.Swansong) error {
		p, _ := graceful.FromContext(s)
		p.Watch(func(st graceful.Status) { fmt.Println(st.Phase, st.Cause) })
		return nil
	}, graceful.WithSoft(time.Minute))
	// Output:
	// Serving <nil>
	// Soft graceful: the function given to Run has returned
	// Exit graceful: the function given to Run has returned
}

// Readiness turns false at the first signal. Work is accepted until the lame-duck delay is over.
func ExampleProcess_LameDuck() {
	ctx, cancel := context.WithCancel(context.Background())
	graceful.Run(ctx, func(s *ctxshutdown.Swansong) error {
		p, _ := graceful.FromContext(s)
		cancel()
		<-p.LameDuck()
		fmt.Println("not ready, and", s.State())
		return nil
	}, graceful.WithLameDuck(time.Minute))
	// Output: not ready, and Running
}

func ExampleWithLogger() {
	log := slog.New(short{slog.NewTextHandler(os.Stdout, nil)}) // a program would use slog.Default()
	graceful.Run(context.Background(), nothing, graceful.WithLogger(log))
	// Output:
	// INFO serving
	// INFO draining
	// INFO drained
}

// A short is a log handler that prints the level and the message only.
type short struct{ slog.Handler }

func (short) Handle(_ context.Context, r slog.Record) error {
	fmt.Println(r.Level, r.Message)
	return nil
}

// A program that handles SIGHUP and SIGINT itself is stopped by SIGTERM only.
func ExampleWithSignals() {
	err := graceful.Run(context.Background(), func(*ctxshutdown.Swansong) error { return nil },
		graceful.WithSignals(syscall.SIGTERM))
	fmt.Println(err)
	// Output: <nil>
}

// If an option has an invalid value, Run returns an error without calling f.
func ExampleWithSoft() {
	fmt.Println(graceful.Run(context.Background(), nothing, graceful.WithSoft(10)))
	// Output: graceful: WithSoft(10ns): must be at least 1ms; did you forget the unit, and mean 10*time.Second?
}

func nothing(*ctxshutdown.Swansong) error { return nil }

func ExampleReadStats() {
	before := graceful.ReadStats()
	graceful.Run(context.Background(), nothing)
	fmt.Println(graceful.ReadStats().Clean-before.Clean, "clean drain")
	// Output: 1 clean drain
}
