// Command actor is a program in which one goroutine, an event loop, owns all state: a ledger of
// accounts.
//
//	go run ./examples/actor < commands
//
// It reads one command from each line: "deposit NAME CENTS", "balance NAME" or "audit NAME". An
// audit is a long computation that would block the loop. It is therefore offloaded to a pool, with
// a timeout, and the loop handles its result. The ledger needs no lock.
//
// At the end of the input, or after ^C, the program shuts down in six steps and prints each when it
// has been done. Every command that was read is answered before it exits. If that takes too long,
// or after a second ^C, the audits are cancelled. After two more seconds, or a third ^C, the
// program exits even if audits are still running. The exit code is 0 if all steps were done, and
// otherwise the result of graceful.ExitCode.
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
	"sync"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/eventloop"
	"github.com/swansong-go/swansong/graceful"
)

func main() {
	limit := flag.Duration("audit", time.Second, "how long an audit may take")
	rounds := flag.Int("rounds", 100_000, "how long an audit computes, in rounds of SHA-256")
	flag.Parse()
	os.Exit(run(context.Background(), os.Stdin, os.Stdout, &ledger{limit: *limit, compute: fingerprint(*rounds)}))
}

// run runs the program until the input or ctx ends or a signal arrives, and returns its exit code.
func run(ctx context.Context, in io.Reader, out io.Writer, l *ledger) (code int) {
	p := &printer{out: out}
	err := graceful.Run(ctx, func(s *ctxshutdown.Swansong) error {
		return serve(s, in, p, l)
	}, graceful.WithScope(ctxshutdown.WithName("app")))
	if err != nil {
		p.printf("%v\n", err)
	}
	return graceful.ExitCode(err)
}

// serve executes the commands of the input until it ends or s is stopped.
func serve(s *ctxshutdown.Swansong, in io.Reader, p *printer, l *ledger) error {
	// The pool and the loop work on after the stop, until the commands are answered. So their
	// scopes derive from Work, which ends only when the drain is cut short.
	pool := eventloop.NewPool(s.Work(), 0, eventloop.WithName("audits"))
	loop := eventloop.New(s.Work(), eventloop.WithName("ledger"))
	defer loop.Stop()
	if err := loop.Start(); err != nil {
		return err
	}
	l.loop, l.pool, l.cents = loop, pool, map[string]int64{}
	input := ctxshutdown.NewReader(s, in, ctxshutdown.Detached())
	defer input.Close()
	var pending sync.WaitGroup // number of commands that have not been answered
	for lines := bufio.NewScanner(input); lines.Scan(); {
		pending.Add(1)
		l.execute(lines.Text(), func(answer string) { p.printf("%s\n", answer); pending.Done() })
	}
	s.Shutdown() // if the input has ended without a signal, the drain and its time limit begin now
	return shutdown(s.Work(), p, loop, pool, &pending)
}

// shutdown executes the six steps and prints each that was done. It ends with the first one that
// has failed. A step fails when ctx ends, as it does when the drain is cut short.
func shutdown(ctx context.Context, p *printer, loop *eventloop.Loop, pool *eventloop.Pool, pending *sync.WaitGroup) error {
	for i, step := range []struct {
		what string
		do   func(ctx context.Context) error
	}{
		{"no new commands", func(context.Context) error { return nil }}, // serve has stopped reading commands
		{"commands in flight are answered or have timed out", func(ctx context.Context) error {
			return await(ctx, func() error { pending.Wait(); return nil })
		}},
		{"the pool is idle", pool.WaitIdle},
		{"the loop is idle and stopped", func(ctx context.Context) error {
			defer loop.Stop()
			return await(ctx, func() error { return loop.Quiesce(time.Minute) })
		}},
		{"the loop has ended", func(ctx context.Context) error { return loop.Stop().Wait(ctx) }},
		{"all callbacks have run and nothing is left behind", func(context.Context) error {
			switch s := loop.Stats().Snapshot(); {
			case s.UnbalancedShutdowns+s.CrossQueueUndrained+s.LeakedTasks+s.AbortedUnwinds > 0:
				return fmt.Errorf("the loop has left work behind: %+v", s)
			case s.Executed != s.Accepted:
				return fmt.Errorf("callbacks that have run: %d of %d", s.Executed, s.Accepted)
			}
			return loop.Err()
		}},
	} {
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("step %d (%s) has failed: %w", i+1, step.what, err)
		}
		p.printf("%d. %s\n", i+1, step.what)
	}
	return nil
}

// await calls f and returns when f has returned, or when ctx ends.
func await(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
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
