// Command actor is a program around one goroutine that owns all state: a ledger of accounts.
//
//	go run ./examples/actor < commands
//
// It takes commands, one a line: "deposit NAME CENTS", "balance NAME", "audit NAME". An audit is work for a processor, which
// would keep the ledger from everything else; so it is offloaded to a pool, with a time-out, and its result comes back to
// the ledger. There is no lock anywhere.
//
// At the end of the input, or after ^C, it shuts down in six steps and says so. Nothing that was taken on is lost: each
// command that was read is answered. The exit code is 0, or 1 when a step took too long.
//
// To copy from: ledger.go for an actor, shutdown below for the end.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/eventloop"
)

func main() {
	limit := flag.Duration("audit", time.Second, "how long an audit may take")
	rounds := flag.Int("rounds", 100_000, "how much work an audit is, in rounds of SHA-256")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Stdin, os.Stdout, *limit, *rounds))
}

// run is the program. The end of ctx stops it, as does the end of the input.
func run(ctx context.Context, in io.Reader, out io.Writer, limit time.Duration, rounds int) (code int) {
	app := ctxshutdown.New(context.Background(), ctxshutdown.WithName("app"))
	defer app.Shutdown()
	p := &printer{out: out}
	pool := eventloop.NewPool(app, 0, eventloop.WithName("audits"))
	loop := eventloop.New(app, eventloop.WithName("ledger"))
	if err := loop.Start(); err != nil {
		p.printf("%v\n", err)
		return 1
	}
	l := &ledger{loop: loop, pool: pool, limit: limit, rounds: rounds, cents: map[string]int64{}}

	trigger := loop.ShutdownHandle()
	reading, stopReading := context.WithCancel(ctx)
	defer stopReading()
	context.AfterFunc(reading, trigger.Trigger)
	reader, _ := loop.Handle() // the loop has just been started
	input := ctxshutdown.NewReader(reading, in, ctxshutdown.Detached())
	var taken sync.WaitGroup // commands, and the reading of them
	taken.Go(func() {
		defer trigger.Trigger()
		defer reader.Release()
		defer input.Close()
		for lines := bufio.NewScanner(input); lines.Scan(); {
			taken.Add(1)
			l.take(lines.Text(), func(answer string) { p.printf("%s\n", answer); taken.Done() })
		}
	})

	<-trigger.Signal()
	stopReading()
	return shutdown(p, loop, pool, &taken)
}

const patience = 10 * time.Second // for each step

// shutdown takes the six steps, and says which of them got stuck. Each has a limit of its own.
func shutdown(p *printer, loop *eventloop.Loop, pool *eventloop.Pool, taken *sync.WaitGroup) (code int) {
	step := func(n int, what string, f func(ctx context.Context) error) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := f(ctx); err != nil {
			p.printf("%d. %s: %v\n", n, what, err)
			code = 1
			return
		}
		p.printf("%d. %s\n", n, what)
	}
	step(1, "no new commands", func(context.Context) error { return nil }) // the trigger has seen to it
	step(2, "commands in flight are answered, or time out", func(ctx context.Context) error {
		_, err := ctxshutdown.Call(ctx, func(context.Context) (int, error) { taken.Wait(); return 0, nil })
		return err
	})
	step(3, "the pool is idle", pool.WaitIdle)
	step(4, "the loop is quiescent, and stopped", func(context.Context) error {
		defer loop.Stop()
		return loop.Quiesce(patience)
	})
	step(5, "the loop has ended", loop.Stop().Wait)
	step(6, "its resources are released", func(context.Context) error {
		switch s := loop.Stats().Snapshot(); {
		case s.UnbalancedShutdowns+s.CrossQueueUndrained+s.LeakedTasks+s.AbortedUnwinds > 0:
			return fmt.Errorf("out of order: %+v", s)
		case s.Executed != s.Accepted:
			return fmt.Errorf("%d of %d callbacks have run", s.Executed, s.Accepted)
		}
		return loop.Err()
	})
	return code
}

// A printer is for the loop, the reader and main at once.
type printer struct {
	mu  sync.Mutex
	out io.Writer
}

func (p *printer) printf(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.out, format, args...)
}
