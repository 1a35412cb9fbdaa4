package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// A pipeline reads lines from its input, processes them in parallel and writes the results in
// order.
type pipeline struct {
	in           *input
	out          *output
	workers      int
	rounds       int
	saveInterval time.Duration

	jobs  chan job // the reader sends the lines to the workers
	order chan job // the reader sends jobs to the writer in the order of the input; the capacity limits the jobs in progress

	read, written, rejected atomic.Int64          // how many lines were read, written and rejected, including those of earlier runs
	atEnd                   atomic.Bool           // whether the reader has reached the end of the input
	failure                 atomic.Pointer[error] // the first error of the input or the output
}

// A job is a line that is being processed.
type job struct {
	line
	result chan result // has capacity 1, so that a worker does not wait for the writer
}

// A result is the line of the output for one line of the input.
type result struct {
	text     string
	rejected bool
}

func newPipeline(in *input, out *output, o options) *pipeline {
	p := &pipeline{in: in, out: out, workers: o.workers, rounds: o.rounds, saveInterval: o.saveInterval}
	p.jobs, p.order = make(chan job, 16*o.workers), make(chan job, 16*o.workers)
	p.read.Store(out.current.Lines)
	p.written.Store(out.current.Lines)
	p.rejected.Store(out.current.Rejected)
	return p
}

func (p *pipeline) close() error { return errors.Join(p.in.Close(), p.out.file.Close()) }

// start starts the stages. It returns false, and starts none, if main has already been told to
// stop.
//
// The scopes of the stages derive from main.Work() and not from main, so a stop of main reaches
// only the read loop, which checks main itself. The other stages end when their input channel is
// closed and empty. Therefore even a stop while start is running cannot leave a reader without a
// writer. The guard of main.Go keeps main.Work() from being cancelled until every stage holds its
// own guard.
func (p *pipeline) start(main *ctxshutdown.Swansong) bool {
	return main.Go(func(work context.Context) {
		stage := func(name string, goroutines int, f func(work context.Context)) {
			s, cancel := ctxshutdown.WithCancel(work, ctxshutdown.WithName(name))
			_ = cancel // cancel need not be called, because this scope ends when work ends
			for range goroutines {
				s.Go(f)
			}
		}
		stage("read", 1, func(work context.Context) {
			err := p.readLines(main, work)
			p.fail(err)
			main.ShutdownCause(err) // err is nil at the end of the input
		})
		stage("work", p.workers, p.work)
		stage("write", 1, func(work context.Context) {
			if err := p.write(work); err != nil {
				p.fail(err)
				main.Force(err) // without output, processing further lines would be useless
			}
		})
	})
}

// fail records the first error.
func (p *pipeline) fail(err error) {
	if err != nil {
		p.failure.CompareAndSwap(nil, &err)
	}
}

// readLines reads lines and passes them to the other stages until the end of the input, or until
// main is told to stop. A line that it has read is still passed on then, unless work is cancelled.
func (p *pipeline) readLines(main, work context.Context) error {
	defer close(p.order)
	defer close(p.jobs)

	// the iterator lines calls ended only at the end of the input, whereas the loop below also ends
	// at the stop
	ended := func() { p.atEnd.Store(true) }
	source := ctxshutdown.Seq2(main, lines(p.in, p.out.current.position, ended))
	if p.in.stream {
		// For a stream, the stop ends the Reader instead of the loop. The loop continues with the
		// lines in the buffer, which cannot be read again. Detached is necessary because a Read of
		// standard input cannot be woken. Bytes that arrive after the stop are not processed.
		r := ctxshutdown.NewReader(main, p.in, ctxshutdown.Detached())
		defer r.Close()
		source = ctxshutdown.Seq2(work, lines(r, p.out.current.position, ended))
	}
	for l, err := range source {
		if err != nil {
			return err
		}
		p.read.Store(l.end.Lines)
		j := job{l, make(chan result, 1)}
		if !ctxshutdown.Send(work, p.order, j) || !ctxshutdown.Send(work, p.jobs, j) {
			return nil // the drain was cut short
		}
	}
	return nil
}

// work processes lines until the channel of jobs is closed and empty.
func (p *pipeline) work(work context.Context) {
	for j := range ctxshutdown.All(work, p.jobs) {
		if r, ok := p.process(work, j.line); ok {
			j.result <- r
		}
	}
}

// process returns the result of a line. It returns false if work is cancelled before it is done.
func (p *pipeline) process(work context.Context, l line) (r result, ok bool) {
	id, cents, err := parse(l)
	if err != nil {
		return result{fmt.Sprintf("%d,error,%q,%q\n", l.end.Lines, err, l.text), true}, true
	}
	// This stands for real work on a line, which ends early if its context is cancelled.
	sum := sha256.Sum256([]byte(l.text))
	for i := range p.rounds {
		if i%1000 == 999 && work.Err() != nil {
			return result{}, false
		}
		sum = sha256.Sum256(sum[:])
	}
	return result{fmt.Sprintf("%d,ok,%s,%d,%x\n", l.end.Lines, id, cents, sum[:8]), false}, true
}

// parse returns the fields of a line.
func parse(l line) (id string, cents int64, err error) {
	id, amount, ok := strings.Cut(l.text, ",")
	switch {
	case l.partial:
		return "", 0, errors.New("incomplete: the program was stopped before it had read the whole line")
	case !ok || id == "":
		return "", 0, errors.New("not of the form id,cents")
	}
	cents, err = strconv.ParseInt(amount, 10, 64)
	if err != nil {
		return "", 0, fmt.Errorf("cents: %w", err)
	}
	return id, cents, nil
}

// write writes the results in the order of the input. Whenever it has written one, all earlier
// results are written too, so it can save a checkpoint at any time. It does so periodically and at
// the end, before the guard of the stage is released.
func (p *pipeline) write(work context.Context) error {
	saved := time.Now()
	for j := range ctxshutdown.All(work, p.order) {
		r, ok := ctxshutdown.Recv(work, j.result)
		if !ok {
			break // the drain was cut short: the next run continues at this line
		}
		if err := p.out.append(r, j.end); err != nil {
			return err
		}
		p.written.Store(p.out.current.Lines)
		p.rejected.Store(p.out.current.Rejected)
		if time.Since(saved) >= p.saveInterval {
			if err := p.out.save(); err != nil {
				return err
			}
			saved = time.Now()
		}
	}
	return p.out.save()
}
