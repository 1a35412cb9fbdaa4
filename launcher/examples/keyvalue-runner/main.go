// Command keyvalue-runner is a key-value server on a bbolt file that is replaced without losing an acknowledged write: an
// example of a program that a launcher starts and stops, to copy from.
//
//	keyvalue-runner --db store.db [--listen 127.0.0.1:8080]
//
//	curl -X PUT --data-binary feather localhost:8080/kv/swan                              204: on disk
//	curl -X PUT -H 'Prefer: respond-async' --data-binary song localhost:8080/kv/swan      202: taken; on disk within a second
//	curl localhost:8080/kv/swan
//	curl -X DELETE localhost:8080/kv/swan
//
// # What is promised
//
// 204 means that the write has been through fsync: it survives a kill -9 of the server, and of the machine as far as the
// disk keeps its word. 202 means that it will be on disk a second later, or when the server has drained, whichever is
// sooner; a kill -9 takes it back. Answers to GET come from the disk, so nobody sees what can be taken back.
//
// # Changing hands
//
// A bbolt file belongs to one process at a time (flock), so two instances never serve side by side: a group has one
// instance for each file, and who needs more has a group for each shard. What makes a roll of it a pause and not an outage
// is the listener, which the launcher holds and every instance inherits: connections wait in the kernel's queue while the
// file changes hands. launcher.yaml has the group:
//
//	desired_instances: 1
//	min_healthy_instances: 0    there is a moment without an instance that is ready, whatever the launcher does
//	max_surge: 1                the successor is started at once, and waits for the file as WARMING
//	listeners: …
//
// With max_surge 0 the successor is started when its predecessor has been reaped, which works as well, and makes the pause
// longer by the start of a program. min_healthy_instances: 1 would wait for ever: the successor is not ready before the
// file is free, and the file is not free before the successor is ready. health_check_timeout has to be longer than a
// shutdown can take, since so long may the successor have to wait.
//
// The server looks at the queue only after it has opened the file, so that no connection is taken by who cannot serve it.
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

// A runner is the process.
type runner struct {
	life     *client.Lifecycle
	scope    *ctxshutdown.Swansong // of everything that is served
	listen   string
	open     options
	started  chan struct{}         // closed when start has returned
	served   chan error            // what serving has come to, for each listener; nil: nothing has been served
	store    atomic.Pointer[store] // nil: not opened yet
	warmed   atomic.Bool
	deadline time.Time // of the drain, as far as it is known to have been granted
}

func run(args []string, stderr io.Writer) int {
	r := &runner{started: make(chan struct{})}
	flags := flag.NewFlagSet("keyvalue-runner", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&r.open.path, "db", "", "the `file`, which is made if it is not there")
	flags.StringVar(&r.listen, "listen", "", "serve at this `address` (host:port, or the path of a unix socket), besides inherited listeners")
	flags.DurationVar(&r.open.interval, "flush-interval", time.Second, "how long a write that nobody waits for may stay in memory")
	flags.DurationVar(&r.open.slow, "slow-disk", 0, "how much longer each commit takes, to see what a drain then does")
	verbose := flags.Bool("v", false, "log")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return 2
	}
	if r.open.path == "" || r.open.interval <= 0 || r.open.slow < 0 || flags.NArg() > 0 {
		fmt.Fprintln(stderr, "keyvalue-runner: --db has to name a file, durations have to be positive, and there are no arguments")
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
			fail(err) // nothing has been served, so there is nothing to drain
		}
	}()
	err = life.Shutdown.Run(ctx, r.drain)
	if err != nil {
		fmt.Fprintln(stderr, "keyvalue-runner:", err)
	}
	life.Close() // not before the store is closed: until then the launcher may ask who blocks
	return client.ExitCode(err)
}

// start opens the store, which may mean to wait for a predecessor, and serves it.
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
		return nil // whoever waits to be accepted is left to a successor
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
		// A client with a connection of its own may take a second from an answer to its next request.
		go func() { r.served <- httpdrain.Serve(r.scope, srv, ln, httpdrain.WithLinger(time.Second)) }()
	}
	r.life.Readiness.Set(client.Ready, fmt.Sprintf("%d keys", keys))
	return nil
}

// listeners returns those that were inherited, and the one that was asked for.
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
		return nil, errors.New("nothing to serve at: no listener was inherited, and there is no --listen")
	}
	return all, nil
}

// drain serves what has been taken on, writes what nobody has waited for, and gives the file away.
func (r *runner) drain(ctx context.Context) error {
	asked, _ := r.life.Shutdown.Request(client.Request{}) // the first one counts, and this is not it
	r.deadline = asked.Received.Add(asked.Grace)
	err := r.scope.Shutdown().Wait(ctx)
	if err != nil {
		r.scope.Force(err) // whoever has not been served by now is not told that he was
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

// flush asks for more time as soon as it can be seen that the grace period will not do.
func (r *runner) flush(ctx context.Context, st *store) error {
	defer r.life.Shutdown.Block("flush to " + r.open.path)()
	return st.close(ctx, func(left time.Duration) {
		needs := left + left/2 // disks that are slow are not slow evenly
		if end := time.Now().Add(needs); end.After(r.deadline) {
			r.life.Shutdown.RequestMoreTime(needs)
			r.deadline = end
		}
	})
}
