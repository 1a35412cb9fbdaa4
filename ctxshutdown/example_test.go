package ctxshutdown_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/httpdrain"
)

func Example() {
	s := ctxshutdown.New(context.Background()) // a program would pass a context from signal.NotifyContext
	defer s.Shutdown()

	s.Go(func(work context.Context) {
		for ctxshutdown.Sleep(s, time.Millisecond) {
			// Take jobs from a queue until s is told to stop.
		}
		fmt.Println("flushing:", work.Err()) // the stop does not cancel work
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
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second) // does not derive from s
	defer cancel()
	fmt.Println("drained:", drained.Wait(ctx))
	// Unordered output:
	// served: first
	// refused: second
	// flushing: <nil>
	// drained: <nil>
}

// The scope is stopped when the context that it derives from ends, such as a context of
// signal.NotifyContext.
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
	server.Shutdown() // stops the scope and its children
	fmt.Println(conn.Err())
	fmt.Println(server.GuardReport())
	// Output:
	// context canceled
	// 1 guard: http/conn-42 ×1
}

// A traced scope with a logger logs a warning if a guard is released after Force or after a Wait
// has given up.
func ExampleWithLogger() {
	plain := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == "held" || a.Key == "site" {
			return slog.Attr{} // these attributes change from run to run
		}
		return a
	}}))
	s := ctxshutdown.New(context.Background(), ctxshutdown.WithName("upload"), ctxshutdown.WithTrace(), ctxshutdown.WithLogger(plain))
	g := s.Guard()
	s.Force(nil) // as a program does when the drain takes too long
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
		<-s.Done()             // waits until the scope is stopped
		fmt.Println(ctx.Err()) // the stop has not cancelled ctx
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
	fmt.Println("scope:  ", s.Err())
	fmt.Println("work:   ", work.Err())
	g.Release()
	fmt.Println("drained:", work.Err())
	// Output:
	// scope:   context canceled
	// work:    <nil>
	// drained: context canceled
}

func ExampleSwansong_Force() {
	s := ctxshutdown.New(context.Background())
	s.Go(func(ctx context.Context) {
		<-ctx.Done() // stands for a query that takes too long
		fmt.Println("gave up:", context.Cause(ctx))
	})
	drained := s.Shutdown()
	s.Force(errors.New("second signal"))
	<-drained.Done()
	// Output:
	// gave up: second signal
}

// With BaseContext, requests outlive the stop. BaseContext acquires no guard, so the handler
// acquires one for each request.
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

// A library that is given a context can call Acquire without knowing whether the context carries a
// scope. If the context carries none, Acquire returns a nil guard, and Release of a nil guard does
// nothing.
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
	ctxshutdown.Go(ctx, func(ctx context.Context) { // the goroutine holds a guard of s
		<-ctx.Done()
		fmt.Println("flushed")
	})
	<-s.Shutdown().Done()
	// Output:
	// flushed
}

// Work returns a context for a transaction that must be finished. The context has the values of
// ctx, and does not end when the scope is told to stop.
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
	handedOn := g.Clone() // the clone must be released separately
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
	g := s.Guard() // stands for the guard of a slow request

	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	err := s.Shutdown().Wait(ctx)
	var drain *ctxshutdown.DrainError
	if errors.As(err, &drain) {
		fmt.Println("gave up:", drain.Cause)
		fmt.Println("blocked by", drain.Report)
	}

	g.Release()
	fmt.Println(s.Completion().Wait(context.Background()))
	// Output:
	// gave up: context deadline exceeded
	// blocked by 1 guard: app ×1
	// <nil>
}

// Wait must be given a context that does not end when the scope is told to stop. Otherwise it
// returns ErrWaitContext.
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
	fmt.Println("waiting for", report.Summary())
	// Output:
	// 4 guards: app/http ×3, app ×1
	// app/http 3
	// app 1
	// waiting for app/http ×3 and app ×1
}

// The requests that the scope waits for are listed even if the scope is not traced.
func ExampleGuardReport_Requests() {
	s := ctxshutdown.New(context.Background())
	mux := http.NewServeMux()
	mux.HandleFunc("GET /export/{year}", func(http.ResponseWriter, *http.Request) {
		s.Shutdown()
		var requests []ctxshutdown.RequestEntry = s.GuardReport().Requests()
		for _, r := range requests {
			request, _, _ := strings.Cut(r.Request, " from ") // the address and the port of the client
			fmt.Println(request, r.Age < time.Hour)
		}
	})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	go http.Get("http://" + ln.Addr().String() + "/export/2026")
	httpdrain.Serve(s, &http.Server{Handler: mux}, ln)
	// Output:
	// GET /export/{year} true
}

// If Wait times out, the error names the guards that are still held. Force then cancels the Work of
// the scope.
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
	// ctxshutdown: Wait ended (context deadline exceeded) with work still running: 1 guard: app ×1; wait longer, or call Force to cancel that work
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

// A goroutine can release a guard that another goroutine has acquired.
func ExampleGuard() {
	s := ctxshutdown.New(context.Background())
	queue := make(chan *ctxshutdown.Guard, 1)
	if g, ok := s.TryGuard(); ok {
		queue <- g // a program would send a job, and the guard with it
	}
	drained := s.Shutdown()
	go func() { (<-queue).Release() }()
	<-drained.Done()
	fmt.Println(s.State())
	// Output:
	// Complete
}

// A report shows each scope that holds guards by its path: the names of the scopes from the root.
func ExampleWithName() {
	app := ctxshutdown.New(context.Background(), ctxshutdown.WithName("app"))
	defer app.Shutdown()
	conn, cancel := ctxshutdown.WithCancel(app, ctxshutdown.WithName("conn-42"))
	defer cancel()
	defer conn.Guard().Release()
	fmt.Println(app.GuardReport())
	// Output:
	// 1 guard: app/conn-42 ×1
}

// With the option WithTrace, a report also shows which line acquired the guards and how old the
// oldest of them is.
func ExampleWithTrace() {
	s := ctxshutdown.New(context.Background(), ctxshutdown.WithTrace())
	defer s.Shutdown()
	defer s.Guard().Release()
	for _, e := range s.GuardReport().Entries() {
		file, _, _ := strings.Cut(e.Site, ":")
		fmt.Println(e.Count, "guard, acquired in", file)
	}
	// Output:
	// 1 guard, acquired in example_test.go
}

// The scope of a group is a child of the scope in the context of the group: it is stopped and
// drained with that scope.
func ExampleNewGroup() {
	s := ctxshutdown.New(context.Background(), ctxshutdown.WithName("app"))
	g := ctxshutdown.NewGroup(s, ctxshutdown.WithName("fetch"))
	g.Go(func(ctx context.Context) error { return errors.New("no route") })
	g.Go(func(ctx context.Context) error {
		<-ctx.Done() // the first error stops the group
		return ctx.Err()
	})
	fmt.Println(g.Wait())
	fmt.Println(s.Shutdown().Wait(context.Background()))
	// Output:
	// no route
	// <nil>
}

// A scope is a context: it has the values and the deadline of the context that it derives from.
func ExampleSwansong() {
	ctx := context.WithValue(context.Background(), key("user"), "ada")
	ctx, cancel := context.WithDeadline(ctx, time.Date(2099, time.December, 31, 0, 0, 0, 0, time.UTC))
	defer cancel()
	s := ctxshutdown.New(ctx, ctxshutdown.WithName("app"))

	until, _ := s.Deadline()
	fmt.Println(s.String(), s.Value(key("user")), until.Year())
	_, limited := s.Work().Deadline() // Work outlives the stop
	fmt.Println("work has a deadline:", limited)

	select {
	case <-s.Done():
	default:
		s.ShutdownCause(errors.New("the licence has run out"))
	}
	fmt.Println(s.Err(), "because", context.Cause(s))
	// Output:
	// Swansong(app) ada 2099
	// work has a deadline: false
	// context canceled because the licence has run out
}

// context.Cause returns the cause of the first stop.
func ExampleSwansong_ShutdownCause() {
	errDisk := errors.New("disk is full")
	s := ctxshutdown.New(context.Background())
	s.ShutdownCause(errDisk)
	s.ShutdownCause(errors.New("too late"))
	fmt.Println(context.Cause(s), errors.Is(context.Cause(s), errDisk))
	// Output:
	// disk is full true
}

// A select can wait for the Done channel of a Completion and for other events.
func ExampleCompletion() {
	s := ctxshutdown.New(context.Background())
	g := s.Guard()
	secondSignal := make(chan os.Signal, 1)
	secondSignal <- os.Interrupt

	drained := s.Shutdown()
	select {
	case <-drained.Done():
		fmt.Println("drained")
	case sig := <-secondSignal:
		fmt.Println(sig, "with", s.GuardCount(), "guard held")
	}
	g.Release()
	<-drained.Done()
	fmt.Println(drained.Wait(context.Background()))
	// Output:
	// interrupt with 1 guard held
	// <nil>
}

// A program can read the entries of a report. The entry with the most guards comes first.
func ExampleGuardEntry() {
	s := ctxshutdown.New(context.Background(), ctxshutdown.WithName("shop"))
	defer s.Shutdown()
	orders, cancel := ctxshutdown.WithCancel(s, ctxshutdown.WithName("orders"))
	defer cancel()
	defer s.Guard().Release()
	defer orders.Guard().Release()
	defer orders.Guard().Release()

	report := s.GuardReport()
	var most ctxshutdown.GuardEntry = report.Entries()[0]
	fmt.Printf("%s holds %d of %d\n", most.Path, most.Count, report.Count())
	// Output:
	// shop/orders holds 2 of 3
}

// TryGo is for work that can be skipped while the group runs as many functions as its limit allows.
func ExampleGroup_TryGo() {
	g := ctxshutdown.NewGroup(context.Background())
	g.SetLimit(1)
	release := make(chan struct{})
	g.Go(func(context.Context) error { <-release; return nil })
	fmt.Println("refreshed the cache:", g.TryGo(func(context.Context) error { return nil }))
	close(release)
	fmt.Println(g.Wait())
	// Output:
	// refreshed the cache: false
	// <nil>
}

// Set deadlines by SetReadDeadline of the Reader. After the Reader has woken a Read, it restores
// the deadline. A time-out does not end the Reader.
func ExampleReader() {
	client, conn := net.Pipe()
	defer client.Close()
	s := ctxshutdown.New(context.Background())
	r := ctxshutdown.NewReader(s, conn)
	defer r.Close()
	fmt.Println("woken by a stop:", r.CanWake())

	buf := make([]byte, 80)
	r.SetReadDeadline(time.Now()) // the client is idle
	_, err := r.Read(buf)
	fmt.Println("timed out:", errors.Is(err, os.ErrDeadlineExceeded), "stopped:", r.Stopped())

	r.SetReadDeadline(time.Time{})
	go fmt.Fprint(client, "a request")
	n, err := r.Read(buf)
	fmt.Printf("%q %v\n", buf[:n], err)

	s.Shutdown()
	_, err = r.Read(buf)
	fmt.Println(err, "stopped:", r.Stopped())
	// Output:
	// woken by a stop: true
	// timed out: true stopped: false
	// "a request" <nil>
	// EOF stopped: true
}

// A Writer whose context is a Work still writes during the drain. If Force cuts a Write short, the
// Write returns the number of bytes written.
func ExampleWriter() {
	client, conn := net.Pipe()
	defer client.Close()
	s := ctxshutdown.New(context.Background())
	defer s.Guard().Release() // held by the request in flight
	w := ctxshutdown.NewWriter(s.Work(), conn)
	defer w.Close()

	s.Shutdown()
	go func() {
		io.CopyN(io.Discard, client, 3) // the client stops reading after three bytes
		s.Force(errors.New("drain timeout"))
	}()
	n, err := w.Write([]byte("answer"))
	fmt.Println(n, err)
	// With a new deadline, the program can write to the connection again.
	fmt.Println(w.SetWriteDeadline(time.Now().Add(time.Second)))
	// Output:
	// 3 ctxshutdown: write cut short: shut down (drain timeout)
	// <nil>
}

// io.Copy to a Writer writes everything that it has read. After the stop, io.Copy reads no more and
// returns an error with the cause.
func ExampleWriter_ReadFrom() {
	s := ctxshutdown.New(context.Background())
	var dst bytes.Buffer
	w := ctxshutdown.NewWriter(s, &dst)
	n, err := io.Copy(w, strings.NewReader("some bytes"))
	fmt.Println(n, err)
	s.Shutdown()
	n, err = io.Copy(w, strings.NewReader("more bytes"))
	fmt.Println(n, err)
	// Output:
	// 10 <nil>
	// 0 ctxshutdown: write refused: shut down
}
