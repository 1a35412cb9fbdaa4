package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"sync"
	"time"

	"github.com/dop251/goja"
	gojaloop "github.com/dop251/goja_nodejs/eventloop"
	"github.com/gammazero/workerpool"
	"github.com/swansong-go/swansong/eventloop"
	"github.com/swansong-go/swansong/internal/figures"
)

// loopRows compare an event loop with what most programs use instead, a goroutine that receives
// functions from a buffered channel, with the loop of a library, and with a pool of one worker.
// loopNotes say why there are no other peers.
//
// The rows with a number of producers are warm. A garbage collection precedes each timed run, and
// two collections in a row free the memory that empty queues keep. So a run that is not warm begins
// with a queue that has no memory. In a busy program that happens only at the start.
func loopRows() (rs []row) {
	for _, producers := range []int{1, 2, 8, 64} {
		what := fmt.Sprintf("Post until the callback has run, producers: %d", producers)
		ours := func() func(int) { return produced(producers, newLoop(), nothing) }
		rs = append(rs,
			row{
				what: what, peer: "chan func(), buffer 1024, one receiver", limit: 0.5, ours: ours, allocs: rare, warm: true,
				their: func() func(int) { return produced(producers, newChannel(), nothing) },
			},
			row{
				what: what, peer: "goja_nodejs RunOnLoop", limit: 0.5, ours: ours, allocs: rare, warm: true,
				their: func() func(int) { return produced(producers, newGoja(), func(*goja.Runtime) {}) },
			},
			row{
				what: what, peer: "gammazero/workerpool of one worker", limit: 0.5, ours: ours, allocs: rare, warm: true,
				their: func() func(int) { return produced(producers, newWorker(), nothing) },
			})
	}
	return append(rs,
		row{
			what: "Post of a function that captures nothing", peer: "send on chan func(), buffer 1024", limit: 0.5,
			ours:  func() func(int) { return produced(1, newLoop(), nothing) },
			their: func() func(int) { return produced(1, newChannel(), nothing) },
		},
		row{
			what: "Post to an idle loop until the callback has run", peer: "send on chan func() until the function has run", limit: 1.5,
			ours:  func() func(int) { return handedOver(newLoop()) },
			their: func() func(int) { return handedOver(newChannel()) },
		},
	)
}

func nothing() {}

// A loop is an event loop under test, which runs functions of type F. It is never stopped: it runs
// until the process ends.
type loop[F any] struct {
	post func(F)
	wait func() // returns when all functions that were posted before have run
}

// started keeps loops from being garbage collected, which would print a line on standard error.
var started []*eventloop.Loop

func newLoop() loop[func()] {
	l := eventloop.New(context.Background())
	if err := l.Start(); err != nil {
		panic(err)
	}
	started = append(started, l)
	return loop[func()]{func(f func()) { l.Post(f) }, func() { waitFor(func(f func()) { l.Post(f) }) }}
}

func newChannel() loop[func()] {
	c := make(chan func(), 1024)
	go func() {
		for f := range c {
			f()
		}
	}()
	post := func(f func()) { c <- f }
	return loop[func()]{post, func() { waitFor(post) }}
}

func newGoja() loop[func(*goja.Runtime)] {
	l := gojaloop.NewEventLoop()
	l.Start()
	post := func(f func(*goja.Runtime)) { l.RunOnLoop(f) }
	return loop[func(*goja.Runtime)]{post, func() { waitFor(func(f func()) { post(func(*goja.Runtime) { f() }) }) }}
}

func newWorker() loop[func()] {
	p := workerpool.New(1)
	return loop[func()]{p.Submit, func() { waitFor(p.Submit) }}
}

func waitFor(post func(func())) {
	var wg sync.WaitGroup
	wg.Add(1)
	post(wg.Done)
	wg.Wait()
}

// produced returns a function that posts n functions from several goroutines, and waits until all
// have run.
func produced[F any](producers int, l loop[F], f F) func(n int) {
	return func(n int) {
		if producers == 1 {
			postMany(l, f, n)
		} else {
			var wg sync.WaitGroup
			for range producers {
				wg.Go(func() { postMany(l, f, (n+producers-1)/producers) })
			}
			wg.Wait()
		}
		l.wait()
	}
}

//go:noinline
func postMany[F any](l loop[F], f F, n int) {
	for range n {
		l.post(f)
	}
}

func handedOver(l loop[func()]) func(n int) {
	ran := make(chan struct{})
	f := func() { ran <- struct{}{} }
	return func(n int) {
		for range n {
			l.post(f)
			<-ran
		}
	}
}

const loopNotes = `
## Event loops

The peers are a goroutine that receives functions from a buffered channel; goja_nodejs, a loop that runs functions from
any goroutine; and a pool of one worker (gammazero/workerpool), which also runs one function at a time, in a goroutine
that ends when it is idle. Other event loops do another job. Those of gnet and evio belong to a server and wait for its
sockets in the kernel; evio runs no functions from outside, and gnet v2.9 (Execute) only those of a goroutine that has
one of its connections. The loop of k6 is part of its virtual users, and runs only callbacks that were announced. Most
other loops for JavaScript are copies of goja_nodejs. Of the other pools, ants has no queue: its caller waits while no
worker is free, so a callback that posts would wait for itself, or is refused (WithNonblocking).

Post with several producers: where they are faster than the loop, a channel stops them at 1024 entries, but Post always
accepts, so the queue grows. Each run is timed after one that is not, so that the queue has its memory, as that of a
busy program has. Earlier runs in *all runs* were timed with a queue that had no memory yet; the table of long queues
shows what it takes to allocate it. The rest is one lock and one unlock for each Post, and one atomic store for each
callback, without which Counts would be wrong; to leave out that store saves no measurable time. If producers yielded
the processor while the queue is long, it would stay shorter, but Post would then wait for the turns of other
goroutines, which its contract excludes.

Callbacks that call Goexit: a Goexit ends the goroutine of the loop, so a new goroutine must be started for the next
callback. Go alone needs some twenty times as long for that as a callback that returns takes, so no loop can meet the
target of the first of these two rows; the second row compares with goroutines that call Goexit.

The time from Post until the callback runs on an idle loop, 20,000 times:

`

const idleNotes = `
An idle loop with a timer that fires in a day takes no processor time: in a process that does nothing else, no thread
runs, as a test checks. The process of this benchmark has other threads. The processor time that it takes in one second,
by number of idle loops:

`

const queueNotes = `
The queue grows while the loop is busy, and is drained afterwards. Queued callbacks are neither copied nor moved, and
their memory is returned:

`

// printLoops measures and prints latencies, the processor time of idle loops, and long queues.
func printLoops(w io.Writer) {
	fmt.Fprint(w, loopNotes)
	figures.Row(w, "", "median", "p99")
	figures.Row(w, "---", "---:", "---:")
	goja_ := newGoja()
	for _, l := range []struct {
		name string
		post func(func())
	}{
		{"eventloop", newLoop().post},
		{"chan func(), buffer 1024", newChannel().post},
		{"goja_nodejs", func(f func()) { goja_.post(func(*goja.Runtime) { f() }) }},
		{"gammazero/workerpool of one worker", newWorker().post},
	} {
		times := latencies(l.post, 20_000)
		figures.Row(w, l.name, short(figures.Median(times)), short(figures.Quantile(times, 0.99)))
	}
	fmt.Fprint(w, idleNotes)
	figures.Row(w, "loops", "processor time")
	figures.Row(w, "---:", "---:")
	for _, n := range []int{0, 1_000} {
		figures.Row(w, fmt.Sprint(n), idle(n))
	}
	fmt.Fprint(w, queueNotes)
	figures.Row(w, "callbacks queued", "Post, each", "drain, each", "bytes, each", "bytes left")
	figures.Row(w, "---:", "---:", "---:", "---:", "---:")
	for _, n := range []int{100_000, 1_000_000, 10_000_000} {
		figures.Row(w, longQueue(n)...)
	}
}

// latencies returns the nanoseconds from each of n posts until the function ran. Between the posts
// the loop becomes idle.
func latencies(post func(func()), n int) (times []float64) {
	ran := make(chan time.Time, 1)
	f := func() { ran <- time.Now() }
	for range n {
		for range 10 {
			runtime.Gosched()
		}
		start := time.Now()
		post(f)
		times = append(times, float64((<-ran).Sub(start)))
	}
	return times
}

// idle returns the processor time that the process takes in one second with n idle loops, each of
// which has run a callback before.
func idle(n int) string {
	var loops []*eventloop.Loop
	for range n {
		l := eventloop.New(context.Background())
		if err := l.Start(); err != nil {
			panic(err)
		}
		l.After(24*time.Hour, nothing)
		waitFor(func(f func()) { l.Post(f) })
		loops = append(loops, l)
	}
	runtime.GC()
	time.Sleep(time.Second) // the runtime still works for a while after the garbage collection
	before := figures.CPUTime()
	time.Sleep(time.Second)
	used := figures.CPUTime() - before
	for _, l := range loops {
		<-l.Stop().Done()
	}
	return short(float64(used))
}

func longQueue(n int) (cells []string) {
	l := newLoop()
	heap := func() float64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	before := heap()
	release := make(chan struct{})
	l.post(func() { <-release })
	start := time.Now()
	postMany(l, nothing, n)
	posted := time.Since(start)
	full := heap()
	start = time.Now()
	close(release)
	l.wait()
	drained := time.Since(start)
	return []string{fmt.Sprint(n), short(float64(posted) / float64(n)), short(float64(drained) / float64(n)),
		fmt.Sprintf("%.1f", (full-before)/float64(n)), fmt.Sprintf("%.0f", max(heap()-before, 0))}
}
