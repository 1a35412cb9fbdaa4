// Command actor is a program in which one goroutine, an event loop, owns all state: a ledger of
// accounts.
//
//	go run ./examples/actor < commands
//
// It reads one command from each line: "deposit NAME CENTS", "balance NAME" or "audit NAME". An
// audit is a long computation that would block the loop. It is therefore offloaded to a pool, with
// a timeout, and the loop handles its result. The ledger needs no lock.
//
// At the end of the input, or after ^C, the program shuts down in six steps and prints each. Every
// command that was read is answered before it exits. The exit code is 1 if a step failed or took
// too long, and 0 otherwise.
//
// To copy from: ledger.go shows an actor, shutdown shows the steps of its shutdown.
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
	rounds := flag.Int("rounds", 100_000, "how long an audit computes, in rounds of SHA-256")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Stdin, os.Stdout, *limit, *rounds))
}

// run runs the program until the input or ctx ends, and returns its exit code.
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
	reader, _ := loop.Handle() // cannot fail: the loop was started and not stopped
	input := ctxshutdown.NewReader(reading, in, ctxshutdown.Detached())
	var pending sync.WaitGroup // counts the goroutine that reads, and each command until it is answered
	pending.Go(func() {
		defer trigger.Trigger()
		defer reader.Release()
		defer input.Close()
		for lines := bufio.NewScanner(input); lines.Scan(); {
			pending.Add(1)
			l.execute(lines.Text(), func(answer string) { p.printf("%s\n", answer); pending.Done() })
		}
	})

	<-trigger.Signal()
	stopReading()
	return shutdown(p, loop, pool, &pending)
}

const stepTimeout = 10 * time.Second

// shutdown executes the six steps and prints the result of each. Every step has its own timeout.
func shutdown(p *printer, loop *eventloop.Loop, pool *eventloop.Pool, pending *sync.WaitGroup) (code int) {
	step := func(n int, what string, f func(ctx context.Context) error) {
		ctx, cancel := context.WithTimeout(context.Background(), stepTimeout)
		defer cancel()
		if err := f(ctx); err != nil {
			p.printf("%d. %s: %v\n", n, what, err)
			code = 1
			return
		}
		p.printf("%d. %s\n", n, what)
	}
	// Step 1 has nothing left to do: the reader was stopped before shutdown was called.
	step(1, "no new commands", func(context.Context) error { return nil })
	step(2, "commands in flight are answered or have timed out", func(ctx context.Context) error {
		_, err := ctxshutdown.Call(ctx, func(context.Context) (int, error) { pending.Wait(); return 0, nil })
		return err
	})
	step(3, "the pool is idle", pool.WaitIdle)
	step(4, "the loop is idle and stopped", func(context.Context) error {
		defer loop.Stop()
		return loop.Quiesce(stepTimeout)
	})
	step(5, "the loop has ended", loop.Stop().Wait)
	step(6, "all callbacks have run and nothing is left behind", func(context.Context) error {
		switch s := loop.Stats().Snapshot(); {
		case s.UnbalancedShutdowns+s.CrossQueueUndrained+s.LeakedTasks+s.AbortedUnwinds > 0:
			return fmt.Errorf("the loop has left work behind: %+v", s)
		case s.Executed != s.Accepted:
			return fmt.Errorf("%d of %d callbacks have run", s.Executed, s.Accepted)
		}
		return loop.Err()
	})
	return code
}

// A printer prints one message at a time. Its method may be called concurrently, by the loop, the
// reader and main.
type printer struct {
	mu  sync.Mutex
	out io.Writer
}

func (p *printer) printf(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.out, format, args...)
}
