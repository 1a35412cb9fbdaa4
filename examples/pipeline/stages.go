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

type pipeline struct {
	in      *input
	out     *output
	workers int
	rounds  int
	save    time.Duration

	jobs  chan job // for whichever worker is free
	order chan job // the same in the order of the input; bounds how many are under way

	read, written, rejected atomic.Int64          // lines, in this run and before
	atEnd                   atomic.Bool           // there is nothing left to read
	failure                 atomic.Pointer[error] // of the input or the output
}

// A job is a line on its way.
type job struct {
	line
	result chan result // has room for it, so that a worker never waits for the writer
}

// A result is the line of the output that a line of the input becomes.
type result struct {
	text     string
	rejected bool
}

func newPipeline(in *input, out *output, o options) *pipeline {
	p := &pipeline{in: in, out: out, workers: o.workers, rounds: o.rounds, save: o.save}
	p.jobs, p.order = make(chan job, 16*o.workers), make(chan job, 16*o.workers)
	p.read.Store(out.at.Lines)
	p.written.Store(out.at.Lines)
	p.rejected.Store(out.at.Rejected)
	return p
}

func (p *pipeline) close() error { return errors.Join(p.in.Close(), p.out.file.Close()) }

// start starts the stages, unless main has been told to stop: then there is nothing to see through.
//
// The stages are scopes below main's Work, and not below main. So a stop in this very moment does not leave us with
// readers and no writer, and the stop ends none of them: only the reading asks main. The others end when they run dry.
// The guard that Go holds keeps that Work alive until every stage has its own.
func (p *pipeline) start(main *ctxshutdown.Swansong) bool {
	return main.Go(func(work context.Context) {
		stage := func(name string, goroutines int, f func(work context.Context)) {
			s, cancel := ctxshutdown.WithCancel(work, ctxshutdown.WithName(name))
			_ = cancel // it lasts as long as work, and its goroutines end when they run dry
			for range goroutines {
				s.Go(f)
			}
		}
		stage("read", 1, func(work context.Context) {
			err := p.readLines(main, work)
			p.fail(err)
			main.ShutdownCause(err) // also when all is read: there is nothing left to take on
		})
		stage("work", p.workers, p.work)
		stage("write", 1, func(work context.Context) {
			if err := p.write(work); err != nil {
				p.fail(err)
				main.Force(err) // what cannot be written need not be worked on
			}
		})
	})
}

func (p *pipeline) fail(err error) {
	if err != nil {
		p.failure.CompareAndSwap(nil, &err)
	}
}

// readLines reads until main is told to stop. The line that it holds then is passed on as long as work is not done.
func (p *pipeline) readLines(main, work context.Context) error {
	defer close(p.order)
	defer close(p.jobs)

	ended := func() { p.atEnd.Store(true) } // Seq2 does not tell whether it was the input or the stop
	source := ctxshutdown.Seq2(main, lines(p.in, p.out.at.place, ended))
	if p.in.stream {
		// Here it is the Reader that stops, and the loop goes on with the lines in the buffer: nobody else has them.
		// Standard input cannot be woken, hence Detached. What comes in after the stop is lost with the process, as it
		// would be in the pipe.
		r := ctxshutdown.NewReader(main, p.in, ctxshutdown.Detached())
		defer r.Close()
		source = ctxshutdown.Seq2(work, lines(r, p.out.at.place, ended))
	}
	for l, err := range source {
		if err != nil {
			return err
		}
		p.read.Store(l.end.Lines)
		j := job{l, make(chan result, 1)}
		if !ctxshutdown.Send(work, p.order, j) || !ctxshutdown.Send(work, p.jobs, j) {
			return nil // cut short
		}
	}
	return nil
}

// work works on lines until there are no more.
func (p *pipeline) work(work context.Context) {
	for j := range ctxshutdown.All(work, p.jobs) {
		if r, ok := p.process(work, j.line); ok {
			j.result <- r
		}
	}
}

// process turns a line into its result. It returns false if it was cut short.
func (p *pipeline) process(work context.Context, l line) (r result, ok bool) {
	id, cents, err := parse(l)
	if err != nil {
		return result{fmt.Sprintf("%d,error,%q,%q\n", l.end.Lines, err, l.text), true}, true
	}
	// Stands for whatever your lines need: a bit of work, that can be cut short.
	sum := sha256.Sum256([]byte(l.text))
	for i := range p.rounds {
		if i%1000 == 999 && work.Err() != nil {
			return result{}, false
		}
		sum = sha256.Sum256(sum[:])
	}
	return result{fmt.Sprintf("%d,ok,%s,%d,%x\n", l.end.Lines, id, cents, sum[:8]), false}, true
}

func parse(l line) (id string, cents int64, err error) {
	id, amount, ok := strings.Cut(l.text, ",")
	switch {
	case l.cut:
		return "", 0, errors.New("cut in two by the stop")
	case !ok || id == "":
		return "", 0, errors.New("not of the form id,cents")
	}
	cents, err = strconv.ParseInt(amount, 10, 64)
	if err != nil {
		return "", 0, fmt.Errorf("cents: %w", err)
	}
	return id, cents, nil
}

// write writes the results in the order of the lines. So whenever a line is written, all those before it are, and a
// checkpoint may be saved. It saves one every now and then, and one at its end, the guard of the stage still held.
func (p *pipeline) write(work context.Context) error {
	saved := time.Now()
	for j := range ctxshutdown.All(work, p.order) {
		r, ok := ctxshutdown.Recv(work, j.result)
		if !ok {
			break // cut short: this line and those after it are for the next run
		}
		if err := p.out.append(r, j.end); err != nil {
			return err
		}
		p.written.Store(p.out.at.Lines)
		p.rejected.Store(p.out.at.Rejected)
		if time.Since(saved) >= p.save {
			if err := p.out.save(); err != nil {
				return err
			}
			saved = time.Now()
		}
	}
	return p.out.save()
}
