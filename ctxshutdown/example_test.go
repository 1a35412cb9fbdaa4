package ctxshutdown_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
)

func Example() {
	s := ctxshutdown.New(context.Background()) // in main, the context of signal.NotifyContext
	defer s.Shutdown()

	s.Go(func(work context.Context) {
		for ctxshutdown.Sleep(s, time.Millisecond) {
			// Take on a job from the queue, until s is told to stop.
		}
		fmt.Println("flushing:", work.Err()) // work outlives the stop
	})
	handle := func(request string) {
		if g, ok := s.TryGuard(); ok {
			defer g.Release() // Shutdown waits for this request
			fmt.Println("served:", request)
		} else {
			fmt.Println("refused:", request)
		}
	}

	handle("first")
	drained := s.Shutdown()
	handle("second")
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second) // not derived from s
	defer cancel()
	fmt.Println("drained:", drained.Wait(ctx))
	// Unordered output:
	// served: first
	// refused: second
	// flushing: <nil>
	// drained: <nil>
}

// The stop comes from a context: in a program, of signal.NotifyContext.
func ExampleNew() {
	ctx, stop := context.WithCancel(context.Background())
	s := ctxshutdown.New(ctx, ctxshutdown.WithName("app"))
	defer s.Shutdown()

	g := s.Guard()
	stop()
	fmt.Println(s, "is", s.State())
	g.Release()
	fmt.Println(s, "is", s.State())
	// Output:
	// Swansong(app) is ShuttingDown
	// Swansong(app) is Complete
}

func ExampleWithCancel() {
	server := ctxshutdown.New(context.Background(), ctxshutdown.WithName("http"))
	conn, cancel := ctxshutdown.WithCancel(server, ctxshutdown.WithName("conn-42"))
	defer cancel()

	g := conn.Guard()
	defer g.Release()
	server.Shutdown() // stops everything below, and waits for it
	fmt.Println(conn.Err())
	fmt.Println(server.GuardReport())
	// Output:
	// context canceled
	// 1 guard: http/conn-42 ×1
}

// Under trace, what is released after everybody has given up is told of, with the line that acquired it.
func ExampleWithLogger() {
	plain := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == "held" || a.Key == "site" {
			return slog.Attr{} // so that the output of this example is always the same
		}
		return a
	}}))
	s := ctxshutdown.New(context.Background(), ctxshutdown.WithName("upload"), ctxshutdown.WithTrace(), ctxshutdown.WithLogger(plain))
	g := s.Guard()
	s.Force(nil) // out of patience
	g.Release()
	// Output:
	// level=WARN msg="guard released late" scope=upload
}

func ExampleSwansong_TryGuard() {
	s := ctxshutdown.New(context.Background())
	accept := func(order string) {
		g, ok := s.TryGuard()
		if !ok {
			fmt.Println("refused:", order, "because", context.Cause(s))
			return
		}
		defer g.Release()
		fmt.Println("accepted:", order)
	}
	accept("tea")
	s.Shutdown()
	accept("coffee")
	// Output:
	// accepted: tea
	// refused: coffee because ctxshutdown: shut down
}

func ExampleSwansong_Go() {
	s := ctxshutdown.New(context.Background())
	s.Go(func(ctx context.Context) {
		<-s.Done()             // told to stop taking on work
		fmt.Println(ctx.Err()) // and still allowed to finish it
	})
	<-s.Shutdown().Done()
	fmt.Println(s.Go(func(context.Context) { fmt.Println("never") }))
	// Output:
	// <nil>
	// false
}

func ExampleSwansong_Work() {
	s := ctxshutdown.New(context.Background())
	g := s.Guard()
	work := s.Work()

	s.Shutdown()
	fmt.Println("soft tier:", s.Err())
	fmt.Println("hard tier:", work.Err())
	g.Release()
	fmt.Println("drained:  ", work.Err())
	// Output:
	// soft tier: context canceled
	// hard tier: <nil>
	// drained:   context canceled
}

func ExampleSwansong_Force() {
	s := ctxshutdown.New(context.Background())
	s.Go(func(ctx context.Context) {
		<-ctx.Done() // a query that takes too long
		fmt.Println("gave up:", context.Cause(ctx))
	})
	drained := s.Shutdown()
	s.Force(errors.New("second signal"))
	<-drained.Done()
	// Output:
	// gave up: second signal
}

// BaseContext lets requests outlive the stop, and counts nothing: it goes with a guard for each request.
func ExampleSwansong_BaseContext() {
	s := ctxshutdown.New(context.Background())
	guarded := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			g, ok := ctxshutdown.Acquire(r.Context())
			if !ok {
				http.Error(w, "shutting down", http.StatusServiceUnavailable)
				return
			}
			defer g.Release()
			next.ServeHTTP(w, r)
		})
	}
	server := httptest.NewUnstartedServer(guarded(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.Shutdown() // the stop comes while the request is in flight
		fmt.Println("in flight:", r.Context().Err(), s.GuardCount())
	})))
	server.Config.BaseContext = s.BaseContext
	server.Start()
	defer server.Close()

	for range 2 {
		if resp, err := server.Client().Get(server.URL); err == nil {
			resp.Body.Close()
			<-s.Completion().Done()
			fmt.Println(resp.StatusCode, s.State())
		}
	}
	// Output:
	// in flight: <nil> 1
	// 200 Complete
	// 503 Complete
}

// A library sees only a context. Without a scope in it, Acquire asks for nothing and returns nil, which may be released.
func ExampleAcquire() {
	save := func(ctx context.Context) {
		g, ok := ctxshutdown.Acquire(ctx)
		if !ok {
			fmt.Println("not begun:", context.Cause(ctx))
			return
		}
		defer g.Release()
		fmt.Println("saved")
	}
	save(context.Background())
	s := ctxshutdown.New(context.Background())
	save(context.WithValue(s, key("user"), "ada"))
	s.Shutdown()
	save(s)
	// Output:
	// saved
	// saved
	// not begun: ctxshutdown: shut down
}

func ExampleGo() {
	s := ctxshutdown.New(context.Background())
	ctx, cancel := context.WithCancel(s)
	defer cancel()
	ctxshutdown.Go(ctx, func(ctx context.Context) { // counted at s
		<-ctx.Done()
		fmt.Println("flushed")
	})
	<-s.Shutdown().Done()
	// Output:
	// flushed
}

// Work sees a transaction through, whoever stops meanwhile: it keeps the values of ctx and drops its end.
func ExampleWork() {
	s := ctxshutdown.New(context.Background())
	defer s.Guard().Release()
	ctx, cancel := context.WithCancel(context.WithValue(s, key("user"), "ada"))
	commit := ctxshutdown.Work(ctx)
	cancel()
	s.Shutdown()
	fmt.Println(ctx.Err(), commit.Err(), commit.Value(key("user")))
	// Output:
	// context canceled <nil> ada
}

func ExampleFromContext() {
	s := ctxshutdown.New(context.Background(), ctxshutdown.WithName("app"))
	defer s.Shutdown()
	found, ok := ctxshutdown.FromContext(context.WithValue(s.Work(), key("user"), "ada"))
	fmt.Println(found, ok)
	// Output:
	// Swansong(app) true
}

func ExampleSleep() {
	s := ctxshutdown.New(context.Background())
	polls := 0
	for ctxshutdown.Sleep(s, time.Millisecond) {
		if polls++; polls == 3 {
			s.Shutdown()
		}
	}
	fmt.Println("polled", polls, "times")
	// Output:
	// polled 3 times
}

func ExampleGroup() {
	s := ctxshutdown.New(context.Background())
	defer s.Shutdown()
	g := ctxshutdown.NewGroup(s, ctxshutdown.WithName("import"))
	g.SetLimit(2)
	for _, file := range []string{"a", "b", "missing"} {
		g.Go(func(ctx context.Context) error {
			if file == "missing" {
				return errors.New("no such file")
			}
			return nil
		})
	}
	fmt.Println(g.Wait())
	fmt.Println(s.State(), s.GuardCount())
	// Output:
	// no such file
	// Running 0
}

func ExampleGuard_Clone() {
	s := ctxshutdown.New(context.Background())
	defer s.Shutdown()
	g := s.Guard()
	handedOn := g.Clone() // counted on its own
	g.Release()
	fmt.Println(s.GuardCount())
	handedOn.Release()
	fmt.Println(s.GuardCount())
	// Output:
	// 1
	// 0
}

func ExampleCompletion_Wait() {
	s := ctxshutdown.New(context.Background(), ctxshutdown.WithName("app"))
	g := s.Guard() // of somebody who is slow

	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	err := s.Shutdown().Wait(ctx)
	var drain *ctxshutdown.DrainError
	if errors.As(err, &drain) {
		fmt.Println("gave up:", drain.Cause)
		fmt.Println("held up by", drain.Report)
	}

	g.Release()
	fmt.Println(s.Completion().Wait(context.Background()))
	// Output:
	// gave up: context deadline exceeded
	// held up by 1 guard: app ×1
	// <nil>
}

// The mistake that this package will not let pass: the context to wait with is the one that the stop ends.
func ExampleCompletion_Wait_mistake() {
	s := ctxshutdown.New(context.Background())
	defer s.Guard().Release()
	ctx, cancel := context.WithTimeout(s, time.Minute)
	defer cancel()
	err := s.Shutdown().Wait(ctx)
	fmt.Println(errors.Is(err, ctxshutdown.ErrWaitContext))
	// Output:
	// true
}

func ExampleGuardReport() {
	s := ctxshutdown.New(context.Background(), ctxshutdown.WithName("app"))
	defer s.Shutdown()
	web, cancel := ctxshutdown.WithCancel(s, ctxshutdown.WithName("http"))
	defer cancel()
	for range 3 {
		defer web.Guard().Release()
	}
	defer s.Guard().Release()

	report := s.GuardReport()
	fmt.Println(report)
	for _, e := range report.Entries() {
		fmt.Println(e.Path, e.Count)
	}
	// Output:
	// 4 guards: app/http ×3, app ×1
	// app/http 3
	// app 1
}

// Patience has an end: what has not finished by then is cut short.
func ExampleDrainError() {
	s := ctxshutdown.New(context.Background(), ctxshutdown.WithName("app"))
	s.Go(func(ctx context.Context) { <-ctx.Done() })
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()

	drained := s.Shutdown()
	if err := drained.Wait(ctx); errors.As(err, new(*ctxshutdown.DrainError)) {
		fmt.Println(err)
		fmt.Println("forced:", s.Force(err).Wait(context.Background()))
	}
	// Output:
	// ctxshutdown: not drained when the wait ended (context deadline exceeded): 1 guard: app ×1; wait longer, or cancel their Work with Force
	// forced: <nil>
}

func ExampleState() {
	s := ctxshutdown.New(context.Background())
	g := s.Guard()
	fmt.Println(s.State())
	s.Shutdown()
	fmt.Println(s.State())
	g.Release()
	fmt.Println(s.State())
	// Output:
	// Running
	// ShuttingDown
	// Complete
}

// A guard may be released elsewhere than where it was acquired.
func ExampleGuard() {
	s := ctxshutdown.New(context.Background())
	queue := make(chan *ctxshutdown.Guard, 1)
	if g, ok := s.TryGuard(); ok {
		queue <- g // with the job that it stands for
	}
	drained := s.Shutdown()
	go func() { (<-queue).Release() }()
	<-drained.Done()
	fmt.Println(s.State())
	// Output:
	// Complete
}
