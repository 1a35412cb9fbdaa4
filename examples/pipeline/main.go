// Command pipeline processes a file of orders, one in each line, and can be stopped at any point.
//
//	go run ./examples/pipeline
//
// Without -in it creates a demo input. Press ^C while it runs, and run it again: it continues where
// it stopped. In the end the output contains the result of every line of the input exactly once, in
// order.
//
// Two mechanisms achieve that. A checkpoint records how much of the output is complete. After a
// SIGKILL, the next run removes what was written after the checkpoint, and processes those lines
// again. A graceful stop makes such repetition unnecessary: a ^C only stops the reading, all lines
// that have been read are processed and written, and then the checkpoint is saved. A second ^C cuts
// this short, and a third one kills the program. Even then, no line is lost or written twice.
//
//	read ──jobs──▶ work (n goroutines) ──a channel for each line──┐
//	  └──order──────────────────────────────────────────────────▶ write ──▶ output, checkpoint
//
// Standard input (-in -) and a FIFO cannot be read again. The program ends only when all lines that
// it has read from them are written, unless the drain is cut short. If it is stopped in the middle
// of a line, the output contains an error for that line.
//
// The exit code is 0 if all lines were processed, 130 after ^C or SIGTERM, 1 after an error, and 2
// if the flags are wrong. (go run prints such an exit code and exits with 1 itself.) Do not run two
// instances with the same output.
//
// To copy from: stages.go shows how stages use the two contexts of a scope, run shows how to wait
// for the drain.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
)

const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130 // shells use this exit code for a program that SIGINT has killed
)

// forceTimeout limits how long the stages may take to end after the drain was cut short.
const forceTimeout = 5 * time.Second

func main() {
	first, second := interrupts()
	os.Exit(run(first, second, os.Args[1:], os.Stderr))
}

// interrupts returns a context that ends at the first signal and one that ends at the second. The
// third signal kills the program.
func interrupts() (first, second context.Context) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	first, endFirst := context.WithCancelCause(context.Background())
	second, endSecond := context.WithCancelCause(context.Background())
	go func() {
		endFirst(fmt.Errorf("%v", <-signals))
		endSecond(fmt.Errorf("a second signal: %v", <-signals))
		signal.Stop(signals)
	}()
	return first, second
}

// run runs the program and returns its exit code. The parameters first and second are contexts: the
// end of first, at the first signal, stops the program, and the end of second, at the second
// signal, cuts the drain short.
func run(first, second context.Context, args []string, stderr io.Writer) (code int) {
	logf := log.New(stderr, "pipeline: ", 0).Printf
	o, err := parseFlags(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitDone
	case err != nil:
		return exitUsage
	}
	p, err := open(first, o, logf)
	switch {
	case err != nil && err == context.Cause(first):
		logf("stopped before anything was read: %v", err)
		return exitInterrupted
	case err != nil:
		logf("%v", err)
		return exitFailed
	case p == nil:
		return exitDone
	}
	defer p.close()

	main := ctxshutdown.New(first)
	defer main.Shutdown()
	p.start(main)

	started, writtenBefore := time.Now(), p.written.Load()
	for last := writtenBefore; ctxshutdown.Sleep(main, time.Second); {
		now := p.written.Load()
		logf("lines written: %d, per second: %d", now, now-last)
		last = now
	}
	if first.Err() != nil {
		logf("%v: draining, lines that were read and not written: %d, waiting for the stages (%v)", context.Cause(first), p.read.Load()-p.written.Load(), main.GuardReport())
	}

	// The scope main has been stopped, and the context first may have ended. So drainCtx must not
	// derive from either, or it would have ended, too.
	drainCtx, cancel := context.WithTimeout(second, o.drainTimeout)
	defer cancel()
	err = main.Completion().Wait(drainCtx)
	if err != nil {
		if errors.Is(err, ctxshutdown.ErrWaitContext) {
			err = context.Cause(drainCtx) // the second ^C came before Wait was called
		}
		logf("cut short: %v", err) // a DrainError names the stages that have not ended
		forceCtx, cancel := context.WithTimeout(context.Background(), forceTimeout)
		defer cancel()
		if err := main.Force(err).Wait(forceCtx); err != nil {
			logf("abandoned: %v", err) // the checkpoint that was saved last remains valid
		}
	}

	failure := p.failure.Load()
	switch written := p.written.Load(); {
	case failure != nil:
		logf("%v", *failure)
		logf("lines written: %d; fix the error and run the program again to continue", written)
		return exitFailed
	case p.atEnd.Load() && written == p.read.Load():
		logf("done, lines: %d, rejected: %d, in %s", written, p.rejected.Load(), p.out.file.Name())
		return exitDone
	case p.in.stream:
		logf("stopped: lines read: %d, written: %d", p.read.Load(), written)
	default:
		rate := float64(written-writtenBefore) / time.Since(started).Seconds()
		logf("stopped: lines read: %d, written: %d (%.0f per second); run the program again to continue at line %d", p.read.Load(), written, rate, written+1)
	}
	if first.Err() == nil {
		// No signal has come, so the drain took longer than drainTimeout and was cut short.
		return exitFailed
	}
	return exitInterrupted
}

type options struct {
	in, out      string
	workers      int
	rounds       int           // number of SHA-256 rounds for each line
	saveInterval time.Duration // time between two checkpoints
	drainTimeout time.Duration
}

// parseFlags parses the command line. It prints an error, or the help text, to stderr before it
// returns the error.
func parseFlags(args []string, stderr io.Writer) (o options, err error) {
	flags := flag.NewFlagSet("pipeline", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.in, "in", "", "read lines of the form id,cents from this `file`; - means standard input (default: a demo file, created in the cache directory of the user)")
	flags.StringVar(&o.out, "out", "", "append the results to this `file`, and keep a checkpoint next to it (default: the name of the input with .out appended)")
	flags.IntVar(&o.workers, "workers", 4, "how many lines to process at once")
	flags.IntVar(&o.rounds, "rounds", 2000, "how much work to do for each line, in rounds of SHA-256")
	flags.DurationVar(&o.saveInterval, "save", time.Second, "how often to save a checkpoint; after a SIGKILL, at most this much work is repeated")
	flags.DurationVar(&o.drainTimeout, "drain-timeout", 10*time.Second, "how long the drain may take before it is cut short")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	switch {
	case flags.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q: use -in for the input", flags.Arg(0))
	case o.workers < 1:
		err = fmt.Errorf("-workers %d: must be at least 1", o.workers)
	case o.rounds < 0:
		err = fmt.Errorf("-rounds %d: must not be negative", o.rounds)
	case o.in == "-" && o.out == "":
		err = errors.New("-in - requires -out")
	case o.out == "" && o.in != "":
		o.out = o.in + ".out"
	}
	if err != nil {
		fmt.Fprintf(stderr, "pipeline: %v (-h for help)\n", err)
	}
	return o, err
}

// open opens the input and the output, and finds the first line whose result is not in the output.
// It returns nil if the output has the results of all lines.
func open(ctx context.Context, o options, logf func(string, ...any)) (*pipeline, error) {
	if o.in == "" {
		dir, err := os.UserCacheDir()
		if err != nil {
			return nil, fmt.Errorf("no cache directory for the demo input, use -in to choose an input: %w", err)
		}
		o.in = filepath.Join(dir, "swansong-pipeline", "orders.csv")
		if err := createDemo(o.in, logf); err != nil {
			return nil, err
		}
		if o.out == "" {
			o.out = o.in + ".out"
		}
	}
	in, err := openInput(ctx, o.in)
	if err != nil {
		return nil, err
	}
	out, err := openOutput(o.out, in)
	if err != nil {
		in.Close()
		return nil, err
	}
	p := newPipeline(in, out, o)
	switch {
	case in.stream:
		logf("reading %s, writing %s", in.name, o.out)
	case out.isComplete():
		logf("nothing to do: all lines (%d) of %s are in %s", out.current.Lines, in.name, o.out)
		logf("to start over, remove %s and %s", o.out, out.checkpoint)
		return nil, p.close()
	case out.current.Lines > 0:
		logf("%s → %s: resuming at line %d", in.name, o.out, out.current.Lines+1)
	default:
		logf("%s → %s: starting at line 1", in.name, o.out)
	}
	if out.truncated > 0 {
		logf("bytes written after the last checkpoint: %d; they are removed, and their lines processed again", out.truncated)
	}
	return p, nil
}
