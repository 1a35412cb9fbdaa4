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
)

// loopRows compare an event loop with a buffered channel of functions that one goroutine receives from, which is what most
// programs have instead, with the loop of a library, and with a pool of one worker. loopNotes say why with no others.
func loopRows() (rs []row) {
	for _, producers := range []int{1, 2, 8} {
		what := fmt.Sprintf("Post until run, %d producers", producers)
		ours := func() func(int) { return produced(producers, newLoop(), nothing) }
		rs = append(rs,
			row{
				what: what, peer: "chan func(), buffer 1024, one receiver", limit: 0.5, ours: ours, allocs: rare,
				their: func() func(int) { return produced(producers, newChannel(), nothing) },
			},
			row{
				what: what, peer: "goja_nodejs RunOnLoop", limit: 0.5, ours: ours, allocs: rare,
				their: func() func(int) { return produced(producers, newGoja(), func(*goja.Runtime) {}) },
			},
			row{
				what: what, peer: "gammazero/workerpool of one worker", limit: 0.5, ours: ours, allocs: rare,
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
			what: "Post to a loop that sleeps, until run", peer: "send on chan func(), until run", limit: 1.5,
			ours:  func() func(int) { return handedOver(newLoop()) },
			their: func() func(int) { return handedOver(newChannel()) },
		},
	)
}

func nothing() {}

// A loop takes functions of type F. They live as long as the process.
type loop[F any] struct {
	post func(F)
	wait func() // until all that was posted before has run
}

func newLoop() loop[func()] {
	l := eventloop.New(context.Background())
	if err := l.Start(); err != nil {
		panic(err)
	}
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

// produced posts from so many goroutines at once, and waits until all has run.
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

The peers: a buffered channel that one goroutine receives from; goja_nodejs, a loop that takes functions from any goroutine; and a
pool of one worker (gammazero/workerpool), which runs them one at a time too, on a goroutine that ends when there is nothing to do.
What else goes by the name does another job: the loops of gnet and evio are those of a server, and wait for its sockets in the kernel;
evio takes no functions, gnet v2.9 (Execute) those of who has one of its connections. That of k6 is part of its virtual users,
and takes a callback only where one was announced; most other loops for JavaScript are copies of that of goja_nodejs. Of the other
pools, ants has no queue: its caller waits while no worker is free, so that a callback that posts would wait for itself, or is refused
(WithNonblocking).

From Post until the callback runs, of a loop that sleeps, 20,000 times:

`

const idleNotes = `
A loop that has nothing to do, and a timer in a day, takes no processor time: in a process with nothing else, no thread runs at all,
which a test looks at. This process has more in it; in a second, it takes with so many loops:

`

const queueNotes = `
A queue that grows while the loop is busy, and is drained then. What is queued is neither copied nor moved, and the memory is
given back:

`

// printLoops prints what is not a ratio of two times.
func printLoops(w io.Writer) {
	fmt.Fprint(w, loopNotes)
	line(w, "", "median", "p99")
	line(w, "---", "---:", "---:")
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
		line(w, l.name, short(quantile(times, 0.5)), short(quantile(times, 0.99)))
	}
	fmt.Fprint(w, idleNotes)
	line(w, "loops", "processor time")
	line(w, "---:", "---:")
	for _, n := range []int{0, 1_000} {
		line(w, fmt.Sprint(n), idle(n))
	}
	fmt.Fprint(w, queueNotes)
	line(w, "callbacks queued", "Post, each", "drain, each", "bytes, each", "bytes left")
	line(w, "---:", "---:", "---:", "---:", "---:")
	for _, n := range []int{100_000, 1_000_000, 10_000_000} {
		line(w, longQueue(n)...)
	}
}

// latencies returns how long each took in nanoseconds. It lets the loop fall asleep in between.
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

// idle returns how much processor time the process takes in a second with so many loops that have run something before.
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
	time.Sleep(time.Second) // what the runtime does after that is over
	before := processorTime()
	time.Sleep(time.Second)
	used := processorTime() - before
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
