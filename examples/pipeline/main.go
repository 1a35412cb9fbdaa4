// Command pipeline works through a file of orders, one line each, and can be stopped at any point.
//
//	go run ./examples/pipeline
//
// Without -in it makes itself a demo input. Press ^C while it runs, and run it again: it goes on where it was. In the
// end every line of the input is in the output exactly once, in order.
//
// Two things are at work, and it takes both. The checkpoint makes it exactly once, even after kill -9: what was written
// since is cut off and done again. The graceful stop makes that unnecessary: a ^C ends the reading (the soft tier), what
// was read goes through the workers and is written (the hard tier), then the checkpoint is saved, and nothing has to be
// done again. A second ^C cuts this short, a third one ends the program the hard way; neither loses or doubles a line.
//
//	read ──jobs──▶ work (n goroutines) ──a channel for each line──┐
//	  └──order──────────────────────────────────────────────────▶ write ──▶ output, checkpoint
//
// With -in - (or a FIFO) there is nothing to go back to. So then all that was read is dealt with before the stop, and a
// line that the stop has cut in two is in the output as an error.
//
// The exit code is 0 when all is done, 130 when it was interrupted, by ^C or SIGTERM, 1 when something failed and 2 when
// the flags are wrong. (go run itself prints such a code and exits with 1.) Run one at a time for each output.
//
// To copy from: stages.go for the two tiers, and run below for the end.
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
	done        = 0
	failed      = 1
	misused     = 2
	interrupted = 130 // what shells say of a program that ^C has ended
)

const grace = 5 * time.Second // for the stages to end, once they are cut short

func main() {
	first, second := interrupts()
	os.Exit(run(first, second, os.Args[1:], os.Stderr))
}

// interrupts returns a context that ends with the first ^C and one that ends with the second. The third ends the program.
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

// run is the program. The end of first stops it, the end of second cuts that short.
func run(first, second context.Context, args []string, stderr io.Writer) (code int) {
	say := log.New(stderr, "pipeline: ", 0).Printf
	o, err := parseFlags(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return done
	case err != nil:
		return misused
	}
	p, err := open(first, o, say)
	switch {
	case err != nil && err == context.Cause(first):
		say("stopped (%v) before anything was read", err)
		return interrupted
	case err != nil:
		say("%v", err)
		return failed
	case p == nil:
		return done
	}
	defer p.close()

	main := ctxshutdown.New(first)
	defer main.Shutdown()
	p.start(main)

	began, before := time.Now(), p.written.Load()
	for last := before; ctxshutdown.Sleep(main, time.Second); {
		now := p.written.Load()
		say("%d lines, %d lines/s", now, now-last)
		last = now
	}
	if first.Err() != nil {
		say("%v: draining what was read, %d lines: %v", context.Cause(first), p.read.Load()-p.written.Load(), main.GuardReport())
	}

	// Not on a context that the stop ends: that would not wait.
	patience, cancel := context.WithTimeout(second, o.patience)
	defer cancel()
	err = main.Completion().Wait(patience)
	if err != nil {
		if errors.Is(err, ctxshutdown.ErrWaitContext) {
			err = context.Cause(patience) // the second ^C was here before we were
		}
		say("cut short: %v", err) // names the stage that held it up
		patience, cancel := context.WithTimeout(context.Background(), grace)
		defer cancel()
		if err := main.Force(err).Wait(patience); err != nil {
			say("left behind: %v", err) // the checkpoint saved last still holds
		}
	}

	failure := p.failure.Load()
	switch written := p.written.Load(); {
	case failure != nil:
		say("%v", *failure)
		say("%d lines are done; when that is mended, run it again to go on", written)
		return failed
	case p.atEnd.Load() && written == p.read.Load():
		say("done: %d lines, %d of them rejected, in %s", written, p.rejected.Load(), p.out.file.Name())
		return done
	case p.in.stream:
		say("stopped: %d lines read, %d written", p.read.Load(), written)
	default:
		rate := float64(written-before) / time.Since(began).Seconds()
		say("stopped: %d lines read, %d written (%.0f lines/s); run it again to go on at line %d", p.read.Load(), written, rate, written+1)
	}
	if first.Err() == nil {
		return failed // nobody has asked for it, the drain was too slow
	}
	return interrupted
}

type options struct {
	in, out  string
	workers  int
	rounds   int
	save     time.Duration
	patience time.Duration
}

// parseFlags has said on stderr what is wrong when it returns an error.
func parseFlags(args []string, stderr io.Writer) (o options, err error) {
	flags := flag.NewFlagSet("pipeline", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.in, "in", "", "read lines of the form id,cents from this `file`, or from standard input if - (default: a demo in your cache directory)")
	flags.StringVar(&o.out, "out", "", "append to this `file`, with a checkpoint next to it (default: the input's name and .out)")
	flags.IntVar(&o.workers, "workers", 4, "how many lines are worked on at once")
	flags.IntVar(&o.rounds, "rounds", 2000, "how much work a line is, in rounds of SHA-256")
	flags.DurationVar(&o.save, "save", time.Second, "how often to save a checkpoint; what kill -9 costs at most")
	flags.DurationVar(&o.patience, "patience", 10*time.Second, "how long the drain may take before it is cut short")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	switch {
	case flags.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q: the input is given with -in", flags.Arg(0))
	case o.workers < 1:
		err = fmt.Errorf("-workers %d: at least 1 is needed", o.workers)
	case o.rounds < 0:
		err = fmt.Errorf("-rounds %d: must not be negative", o.rounds)
	case o.in == "-" && o.out == "":
		err = errors.New("-in - needs an -out")
	case o.out == "" && o.in != "":
		o.out = o.in + ".out"
	}
	if err != nil {
		fmt.Fprintf(stderr, "pipeline: %v (-h for help)\n", err)
	}
	return o, err
}

// open opens the files and finds the line to go on at. It returns nil if there is nothing to do.
func open(ctx context.Context, o options, say func(string, ...any)) (*pipeline, error) {
	if o.in == "" {
		dir, err := os.UserCacheDir()
		if err != nil {
			return nil, fmt.Errorf("no place for the demo, give an input with -in: %w", err)
		}
		o.in = filepath.Join(dir, "swansong-pipeline", "orders.csv")
		if err := makeDemo(o.in, say); err != nil {
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
		say("reading %s, writing %s", in.name, o.out)
	case out.done():
		say("nothing to do: all %d lines of %s are in %s", out.at.Lines, in.name, o.out)
		say("to begin again, remove it and %s", out.checkpoint)
		return nil, p.close()
	case out.at.Lines > 0:
		say("%s → %s: resuming at line %d", in.name, o.out, out.at.Lines+1)
	default:
		say("%s → %s: beginning", in.name, o.out)
	}
	if out.cut > 0 {
		say("%d bytes were written after the last checkpoint: cut off, and done again", out.cut)
	}
	return p, nil
}
