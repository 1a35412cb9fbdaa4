// Package testrunner is a program with a selectable behavior, for tests of the launcher: it is the
// command of this name, and tests run it in their own binary. It uses package client as any program
// would.
package testrunner

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/httpdrain"
	"github.com/swansong-go/swansong/launcher/client"
	"google.golang.org/grpc"
)

// Behaviors are the values of the flag -behavior; see docs/internals/launcher.md#test-runner.
var Behaviors = []string{"clean", "slow-drain", "hang", "request-more", "crash"}

type runner struct {
	id            string
	behavior      atomic.Value // the name of the behavior, a string such as "clean"
	drain, work   time.Duration
	more          time.Duration
	remaining     atomic.Int64 // of the pieces of work that the flag -work gives at the start, the number that is left
	life          *client.Lifecycle
	scope         *ctxshutdown.Swansong
	httpListeners []net.Listener
}

// Main runs until the process is asked to stop, and returns the exit code. The code is 2 after an
// invalid flag; the behavior "crash" exits with 2 as well.
func Main(args []string, stderr io.Writer) int {
	r := &runner{}
	flags := flag.NewFlagSet("testrunner", flag.ContinueOnError)
	flags.SetOutput(stderr)
	id := flags.String("process-id", os.Getenv(client.EnvID), "`id` of the process")
	port := flags.Int("port", 0, "serve grpc.health.v1 on this TCP `port` of 127.0.0.1; 0: do not")
	behavior := flags.String("behavior", "clean", strings.Join(Behaviors, ", ")+"; an HTTP request PUT /behavior/NAME changes it")
	flags.DurationVar(&r.drain, "drain-duration", 2*time.Second, "how long slow-drain and request-more take to drain")
	flags.DurationVar(&r.work, "work-duration", 100*time.Millisecond, "how long a piece of work takes")
	work := flags.Int("initial-work", 5, "number of pieces of work at the start, done one after the other")
	flags.DurationVar(&r.more, "more", 5*time.Second, "how much more time request-more requests")
	readyAfter := flags.Duration("ready-after", 0, "how long to wait before becoming ready; negative: never")
	warmup := flags.Bool("warm", false, "report WARMING instead of STARTING until it is ready")
	web := flags.String("http", "", "accept work by HTTP on this `address` (host:port, or the path of a unix socket), besides inherited listeners")
	verbose := flags.Bool("v", false, "log")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return 2
	}
	if !slices.Contains(Behaviors, *behavior) || flags.NArg() > 0 {
		fmt.Fprintf(stderr, "testrunner: behavior %q with arguments %q: the behavior must be one of %q, and there are no arguments\n", *behavior, flags.Args(), Behaviors)
		return 2
	}
	r.id = *id
	r.behavior.Store(*behavior)
	opts := []client.Option{client.WithProcessID(*id)}
	if *verbose {
		opts = append(opts, client.WithLogger(slog.New(slog.NewTextHandler(stderr, nil)).With("process", *id)))
	}
	life, err := client.Serve(opts...)
	if err != nil {
		fmt.Fprintln(stderr, "testrunner:", err)
		return 1
	}
	defer life.Close()
	r.life = life
	r.scope = ctxshutdown.New(context.Background())
	defer r.scope.Shutdown()
	life.Shutdown.Track(r.scope)

	if *port != 0 {
		ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", *port))
		if err != nil {
			fmt.Fprintln(stderr, "testrunner:", err)
			return 1
		}
		health := grpc.NewServer()
		life.RegisterHealth(health)
		go health.Serve(ln)
		defer health.Stop()
	}
	if err := r.listen(*web); err != nil {
		fmt.Fprintln(stderr, "testrunner:", err)
		return 1
	}
	serving := r.serve()
	r.remaining.Store(int64(*work))
	life.Shutdown.SetMetrics(client.Metrics{InFlight: *work})
	initial, cancel := ctxshutdown.WithCancel(r.scope, ctxshutdown.WithName("initial work"))
	defer cancel()
	initial.Go(r.doInitialWork)
	go func() {
		if *warmup {
			life.Readiness.Set(client.Warming, "warming up")
		}
		if *readyAfter >= 0 && ctxshutdown.Sleep(r.scope, *readyAfter) {
			life.Readiness.Set(client.Ready, *behavior)
		}
	}()

	err = life.Shutdown.Run(context.Background(), r.drainAll)
	<-serving
	if err != nil {
		fmt.Fprintln(stderr, "testrunner:", err)
	}
	life.Close()
	return client.ExitCode(err)
}

func (r *runner) listen(web string) error {
	inherited, err := client.Listeners()
	if err != nil {
		return err
	}
	for _, l := range inherited {
		r.httpListeners = append(r.httpListeners, l.Listener)
	}
	if web != "" {
		network := "tcp"
		if strings.Contains(web, "/") {
			network = "unix"
		}
		ln, err := net.Listen(network, web)
		if err != nil {
			return err
		}
		r.httpListeners = append(r.httpListeners, ln)
	}
	return nil
}

// serve serves HTTP until the scope is stopped. It returns a channel that is closed when all
// requests have been answered.
func (r *runner) serve() <-chan struct{} {
	served := make(chan struct{})
	if len(r.httpListeners) == 0 {
		close(served)
		return served
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(r.work)
		fmt.Fprintln(w, os.Getpid())
	})
	mux.HandleFunc("PUT /behavior/{behavior}", func(w http.ResponseWriter, q *http.Request) {
		if !slices.Contains(Behaviors, q.PathValue("behavior")) {
			http.Error(w, fmt.Sprintf("the behaviors are %q", Behaviors), http.StatusNotFound)
			return
		}
		r.behavior.Store(q.PathValue("behavior"))
		fmt.Fprintln(w, r.id)
	})
	srv := &http.Server{Handler: mux}
	go func() {
		defer close(served)
		done := make(chan struct{}, len(r.httpListeners))
		for _, ln := range r.httpListeners {
			// Keep a quiet connection open for two seconds after the stop, because on a busy
			// machine the clients of tests can take long to send their next request.
			go func() {
				httpdrain.Serve(r.scope, srv, ln, httpdrain.WithLinger(2*time.Second, 2*time.Second))
				done <- struct{}{}
			}()
		}
		for range r.httpListeners {
			<-done
		}
	}()
	return served
}

func (r *runner) doInitialWork(context.Context) {
	for r.remaining.Load() > 0 {
		time.Sleep(r.work)
		r.life.Shutdown.SetMetrics(client.Metrics{InFlight: int(r.remaining.Add(-1))})
	}
}

func (r *runner) drainAll(ctx context.Context) error {
	begin := time.Now()
	behavior := r.behavior.Load()
	switch behavior {
	case "hang":
		r.life.Shutdown.Block("something that never happens")
		r.scope.Shutdown() // pending requests are answered before the process hangs
		select {}
	case "crash":
		time.Sleep(r.work)
		os.Exit(2)
	case "request-more":
		r.life.Shutdown.RequestMoreTime(r.more)
	}
	if err := r.scope.Shutdown().Wait(ctx); err != nil {
		return err
	}
	if behavior == "clean" {
		return nil
	}
	defer r.life.Shutdown.Block("a slow disk")()
	timer := time.NewTimer(time.Until(begin.Add(r.drain)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
