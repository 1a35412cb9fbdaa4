// Command keyvalue-runner is a key-value server on a bbolt file. It can be replaced without losing
// an acknowledged write. It is an example of a program that a launcher starts and stops.
//
//	keyvalue-runner --db store.db [--listen 127.0.0.1:8080]
//
//	curl -X PUT --data-binary feather localhost:8080/kv/swan                              204: on disk
//	curl -X PUT -H 'Prefer: respond-async' --data-binary song localhost:8080/kv/swan      202: accepted; on disk within a second
//	curl localhost:8080/kv/swan
//	curl -X DELETE localhost:8080/kv/swan
//
// # Guarantees
//
// 204 means that the write has been through fsync: it survives a kill -9 of the server, and a crash
// of the machine if the disk keeps what it has acknowledged. 202 means that the write will be on
// disk within a second, or when the server has drained, whichever comes first; a kill -9 loses it.
// GET returns only what is on disk, so no client reads a write that can be lost.
//
// # Replacing the server
//
// Only one process at a time can open a bbolt file (flock), so two instances never serve side by
// side. A group has one instance for each file; for more throughput, use a group for each shard. A
// roll is a pause rather than an outage because the launcher holds the listener, and every instance
// inherits it: connections wait in the kernel's queue until the successor has the file.
// launcher.yaml has the group:
//
//	desired_instances: 1
//	min_healthy_instances: 0    for a moment no instance is ready
//	max_surge: 1                the successor is started at once, and waits for the file as WARMING
//	listeners: …
//
// With max_surge 0 the successor is started when its predecessor has been reaped. That works as
// well, but makes the pause longer by the start of the program. min_healthy_instances: 1 would
// block the roll: the successor is not ready before the file is free, and the predecessor does not
// free the file before the successor is ready. health_check_timeout must be longer than a shutdown
// can take, because the successor may have to wait that long.
//
// The server accepts connections only after it has opened the file, so that it takes no connection
// that it cannot serve.
package main

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
	"strings"
	"sync/atomic"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/httpdrain"
	"github.com/swansong-go/swansong/launcher/client"
)

func main() { os.Exit(run(os.Args[1:], os.Stderr)) }

// A runner is the state of this process.
type runner struct {
	life     *client.Lifecycle
	scope    *ctxshutdown.Swansong // the scope that all requests belong to
	listen   string
	open     options
	started  chan struct{}         // closed when start has returned
	served   chan error            // receives the result of serving each listener; nil before any listener is served
	store    atomic.Pointer[store] // nil before the store is opened
	warmed   atomic.Bool
	deadline time.Time // the end of the time that the launcher has granted for the drain
}

func run(args []string, stderr io.Writer) int {
	r := &runner{started: make(chan struct{})}
	flags := flag.NewFlagSet("keyvalue-runner", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&r.open.path, "db", "", "the `file`, created if it does not exist")
	flags.StringVar(&r.listen, "listen", "", "serve on this `address` (host:port, or the path of a unix socket), besides inherited listeners")
	flags.DurationVar(&r.open.interval, "flush-interval", time.Second, "how long an asynchronous write may stay in memory")
	flags.DurationVar(&r.open.slow, "slow-disk", 0, "delay of each commit, to try a slow drain")
	verbose := flags.Bool("v", false, "log")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return 2
	}
	if r.open.path == "" || r.open.interval <= 0 || r.open.slow < 0 || flags.NArg() > 0 {
		fmt.Fprintln(stderr, "keyvalue-runner: --db must name a file, durations must be positive, and there are no arguments")
		return 2
	}
	var opts []client.Option
	if *verbose {
		opts = append(opts, client.WithLogger(slog.New(slog.NewTextHandler(stderr, nil))))
	}
	life, err := client.Serve(opts...)
	if err != nil {
		fmt.Fprintln(stderr, "keyvalue-runner:", err)
		return 1
	}
	defer life.Close()
	r.life = life
	r.scope = ctxshutdown.New(context.Background())
	defer r.scope.Shutdown()
	life.Shutdown.Track(r.scope)
	r.open.buffered = func(bytes int64) { life.Shutdown.SetMetrics(client.Metrics{BufferedBytes: bytes}) }
	life.Readiness.Check(client.CheckConnected, func() bool { return r.store.Load() != nil })
	life.Readiness.Check(client.CheckWarmed, r.warmed.Load)
	life.Readiness.Check("disk", func() bool { st := r.store.Load(); return st == nil || st.sound() })

	ctx, fail := context.WithCancelCause(context.Background())
	defer fail(nil)
	go func() {
		defer close(r.started)
		if err := r.start(); err != nil {
			fail(err) // no request has been served, so no drain is needed
		}
	}()
	err = life.Shutdown.Run(ctx, r.drain)
	if err != nil {
		fmt.Fprintln(stderr, "keyvalue-runner:", err)
	}
	// The client of the launcher is closed only after the store: until then the launcher may ask
	// what blocks the shutdown.
	life.Close()
	return client.ExitCode(err)
}

// start opens the store, which may wait for a predecessor, and serves it.
func (r *runner) start() error {
	r.life.Readiness.Set(client.Warming, "waiting for the lock of "+r.open.path)
	st, err := openStore(r.scope, r.open)
	if errors.Is(err, errStopped) {
		return nil
	}
	if err != nil {
		return err
	}
	r.store.Store(st)
	r.life.Readiness.Set(client.Warming, "reading "+r.open.path)
	keys := st.warm(r.scope)
	if r.scope.Err() != nil {
		return nil // the next instance accepts the waiting connections
	}
	r.warmed.Store(true)
	listeners, err := r.listeners()
	if err != nil {
		r.store.Store(nil)
		return errors.Join(err, r.flush(context.Background(), st))
	}
	r.served = make(chan error, len(listeners))
	srv := &http.Server{Handler: handler(st), ReadHeaderTimeout: 10 * time.Second}
	for _, ln := range listeners {
		// A client may take a second between an answer and its next request on the same connection,
		// so a quiet connection stays open for that time.
		go func() { r.served <- httpdrain.Serve(r.scope, srv, ln, httpdrain.WithLinger(time.Second, time.Second)) }()
	}
	r.life.Readiness.Set(client.Ready, fmt.Sprintf("keys: %d", keys))
	return nil
}

// listeners returns the inherited listeners, and one for the address in the flag --listen if that
// is set.
func (r *runner) listeners() ([]net.Listener, error) {
	inherited, err := client.Listeners()
	if err != nil {
		return nil, err
	}
	var all []net.Listener
	for _, l := range inherited {
		all = append(all, l.Listener)
	}
	if r.listen != "" {
		network := "tcp"
		if strings.Contains(r.listen, "/") {
			network = "unix"
		}
		ln, err := net.Listen(network, r.listen)
		if err != nil {
			return nil, err
		}
		all = append(all, ln)
	}
	if len(all) == 0 {
		return nil, errors.New("nothing to listen on: no listener was inherited, and --listen is not set")
	}
	return all, nil
}

// drain answers the requests that have begun, writes the asynchronous writes, and closes the file.
func (r *runner) drain(ctx context.Context) error {
	// The process was asked to stop before drain is called. So this empty request has no effect,
	// and Request returns the first one.
	request, _ := r.life.Shutdown.Request(client.Request{})
	r.deadline = request.Received.Add(request.Grace)
	err := r.scope.Shutdown().Wait(ctx)
	if err != nil {
		r.scope.Force(err) // requests that have not been answered by now are never answered
	}
	<-r.started
	for range cap(r.served) {
		err = errors.Join(err, <-r.served)
	}
	if st := r.store.Load(); st != nil {
		err = errors.Join(err, r.flush(ctx, st))
	}
	return err
}

// flush writes the queue to disk. As soon as the grace period turns out to be too short, it
// requests more time.
func (r *runner) flush(ctx context.Context, st *store) error {
	defer r.life.Shutdown.Block("flush to " + r.open.path)()
	return st.close(ctx, func(left time.Duration) {
		needs := left + left/2 // half as much again, because the speed of a slow disk varies
		if end := time.Now().Add(needs); end.After(r.deadline) {
			r.life.Shutdown.RequestMoreTime(needs)
			r.deadline = end
		}
	})
}
