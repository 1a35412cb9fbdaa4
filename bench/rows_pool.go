package main

import (
	"context"
	"fmt"
	"runtime"
	"sync"

	"github.com/alitto/pond/v2"
	"github.com/panjf2000/ants/v2"
	"github.com/swansong-go/swansong/eventloop"
)

// poolRows compare a pool with the pools of other libraries, and callbacks that call runtime.Goexit
// with callbacks that return. All pools have one worker for each processor. ants has no queue: its
// Submit waits while no worker is free.
func poolRows() (rs []row) {
	workers := runtime.GOMAXPROCS(0)
	for _, submitters := range []int{1, 8} {
		what := fmt.Sprintf("Pool.Submit until the job has run, submitters: %d", submitters)
		ours := func() func(int) {
			p := eventloop.NewPool(context.Background(), workers)
			return submitted(submitters, func(f func()) { p.Submit(f) })
		}
		rs = append(rs,
			row{
				what: what, peer: "pond v2", limit: 1, ours: ours, allocs: rare,
				their: func() func(int) {
					p := pond.NewPool(workers)
					return submitted(submitters, func(f func()) { check(p.Go(f)) })
				},
			},
			row{
				what: what, peer: "ants v2", limit: 1, ours: ours, allocs: rare,
				their: func() func(int) {
					p := must(ants.NewPool(workers))
					return submitted(submitters, func(f func()) { check(p.Submit(f)) })
				},
			})
	}
	exits := "4000 callbacks that call Goexit, each"
	return append(rs,
		row{
			what: exits, peer: "4000 callbacks that return, each", limit: 2, gate: maxGoexit, once: true, each: 4000,
			ours:  func() func(int) { return drainedLoop(4000, runtime.Goexit) },
			their: func() func(int) { return drainedLoop(4000, nothing) },
		},
		row{
			what: exits, peer: "4000 goroutines that call Goexit, each", limit: 2, once: true, each: 4000,
			ours:  func() func(int) { return drainedLoop(4000, runtime.Goexit) },
			their: func() func(int) { return exitingGoroutines(4000) },
		})
}

// maxGoexit is the value of the field gate in the row that compares 4000 callbacks that call Goexit
// with 4000 callbacks that return. Goexit unwinds the goroutine and ends it, which takes some 30
// times as long as a return, so this row cannot meet its limit, 2. (A row that compares with
// goroutines that call Goexit can.) If the time grew with the square of the number of callbacks,
// the ratio would exceed maxGoexit.
const maxGoexit = 200

// exitingGoroutines returns a function that starts n goroutines, one after another, each of which
// does nothing but call runtime.Goexit.
func exitingGoroutines(n int) func(int) {
	return func(int) {
		done := make(chan struct{})
		var exit func()
		exit = func() {
			defer func() {
				if n--; n == 0 {
					close(done)
					return
				}
				go exit()
			}()
			runtime.Goexit()
		}
		go exit()
		<-done
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// submitted returns a function that submits n jobs from several goroutines, and waits until all
// have run.
func submitted(submitters int, submit func(func())) func(n int) {
	return func(n int) {
		each := (n + submitters - 1) / submitters
		var jobs, submitting sync.WaitGroup
		jobs.Add(each * submitters)
		for range submitters {
			submitting.Go(func() {
				for range each {
					submit(jobs.Done)
				}
			})
		}
		submitting.Wait()
		jobs.Wait()
	}
}

// drainedLoop queues n callbacks, and returns a function that makes the loop run them and end.
func drainedLoop(n int, f func()) func(int) {
	l := eventloop.New(context.Background())
	check(l.Start())
	release := make(chan struct{})
	l.Post(func() { <-release })
	for range n {
		l.Post(f)
	}
	done := l.Stop().Done()
	return func(int) {
		close(release)
		<-done
	}
}
