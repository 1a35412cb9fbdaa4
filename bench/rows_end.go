package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// endRows measure larger operations: a wakeup from Release to Wait, an HTTP request, a report.
func endRows() []row {
	var others background
	return []row{
		{
			what: "last Release until Wait returns", peer: "close of a channel until its receiver continues", limit: 2, gate: 2.4, once: true, each: handovers, oneProcessor: true,
			ours:  func() func(int) { return waitForScopes(context.Background()) },
			their: func() func(int) { return waitForChannels(context.Background()) },
		},
		{
			what: "last Release until Wait with a timeout returns", peer: "close of a channel until select with ctx.Done continues", limit: 2, gate: 2.4, once: true, each: handovers, oneProcessor: true,
			ours:  func() func(int) { return waitForScopes(timeout()) },
			their: func() func(int) { return waitForChannels(timeout()) },
		},
		{
			what: "HTTP request, with a guard", peer: "the same without a guard", limit: 1 / 0.97, gate: 1.2, allocs: rare, steady: 2, often: 8,
			ours:  func() func(int) { return requests("/guard") },
			their: func() func(int) { return requests("/plain") },
		},
		{
			what: "Guard + Release during reports of 100000 guards", peer: "the same during another computation", limit: 2, once: true, each: besideOps,
			ours: func() func(int) {
				s := crowded(100_000, 10)
				return others.runBeside(func() { s.GuardReport() }, guards{child(s)}.run)
			},
			their: func() func(int) {
				s := crowded(100_000, 10)
				return others.runBeside(func() { sum(numbers(10_000)) }, guards{child(s)}.run)
			},
		},
		{
			what: "GuardReport of 100000 guards in 10000 scopes", peer: byHand, maxTime: 50e6, gate: manyReported, once: true,
			ours:  func() func(int) { s := crowded(100_000, 10); return func(int) { s.GuardReport() } },
			their: func() func(int) { r := registered(100_000, 10); return func(int) { r.report() } },
		},
		{
			what: "GuardReport of 100000 guards, traced", peer: byHand, maxTime: 50e6, gate: manyReported, once: true,
			ours: func() func(int) {
				s := crowded(100_000, 10, ctxshutdown.WithTrace())
				return func(int) { s.GuardReport() }
			},
			their: func() func(int) { r := registered(100_000, 10); return func(int) { r.report() } },
		},
	}
}

const handovers = 10_000

// waitForScopes returns a function in which two goroutines wake each other by Release and Wait.
func waitForScopes(ctx context.Context) func(int) {
	held, done := make([]*ctxshutdown.Guard, handovers), make([]*ctxshutdown.Completion, handovers)
	for i := range handovers {
		s := ctxshutdown.New(context.Background())
		held[i], done[i] = s.Guard(), s.Shutdown()
	}
	return func(int) {
		handOver(func(i int) { held[i].Release() }, func(i int) {
			if err := done[i].Wait(ctx); err != nil {
				panic(err)
			}
		})
	}
}

// waitForChannels returns a function in which two goroutines wake each other by closing channels.
func waitForChannels(ctx context.Context) func(int) {
	done := make([]chan struct{}, handovers)
	for i := range done {
		done[i] = make(chan struct{})
	}
	return func(int) {
		handOver(func(i int) { close(done[i]) }, func(i int) {
			if ctx.Done() == nil {
				<-done[i]
				return
			}
			select {
			case <-done[i]:
			case <-ctx.Done():
			}
		})
	}
}

func timeout() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	_ = cancel // never called, because the context is used until the process ends
	return ctx
}

// handOver runs two goroutines that wake each other alternately: wake(i) lets wait(i) return.
func handOver(wake, wait func(i int)) {
	done := make(chan struct{})
	go func() {
		for i := 0; i < handovers; i += 2 {
			wait(i)
			wake(i + 1)
		}
		close(done)
	}()
	for i := 0; i < handovers; i += 2 {
		wake(i)
		wait(i + 1)
	}
	<-done
}

func unguarded(http.ResponseWriter, *http.Request) {}

func guarded(w http.ResponseWriter, r *http.Request) {
	g, ok := ctxshutdown.Acquire(r.Context())
	if !ok {
		http.Error(w, "shutting down", http.StatusServiceUnavailable)
		return
	}
	defer g.Release()
	unguarded(w, r)
}

const clients = 4 // number of clients, each with a persistent connection

// server returns the one server that serves the requests with a guard and those without. Of two
// servers, one could be a few percent slower than the other for as long as both run.
var server = sync.OnceValues(func() (url string, client *http.Client) {
	s := running()
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/guard" {
			guarded(w, r)
		} else {
			unguarded(w, r)
		}
	}))
	srv.Config.BaseContext = func(net.Listener) context.Context { return s.Work() }
	srv.Start()
	return srv.URL, &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}}
})

// requests returns a function that sends n requests from several clients.
func requests(path string) func(n int) {
	url, client := server()
	url += path
	return func(n int) {
		var wg sync.WaitGroup
		for range clients {
			wg.Go(func() {
				for range (n + clients - 1) / clients {
					res, err := client.Get(url)
					if err != nil {
						panic(err)
					}
					io.Copy(io.Discard, res.Body)
					res.Body.Close()
				}
			})
		}
		wg.Wait()
	}
}

// crowded returns a root whose children hold n guards in total: each child holds the given number.
func crowded(n, each int, opts ...ctxshutdown.Option) *ctxshutdown.Swansong {
	root := ctxshutdown.New(context.Background(), opts...)
	for i := range n / each {
		s, _ := ctxshutdown.WithCancel(root, ctxshutdown.WithName(fmt.Sprintf("conn-%d", i)))
		for range each {
			s.Guard()
		}
	}
	return root
}

// manyReported is the field gate of the rows about reports: the largest ratio of our time to that
// of the peer. The target of a report is 50 ms, and the gate is one and a half times the target, 75
// ms. The peer takes 20 ms, so the ratio may be 75 / 20.
const manyReported = 3.75

const byHand = "a map of the guards with a lock, counted and sorted"

// A register is what a user would write to list the running work. Its report blocks the goroutines
// that begin or end work meanwhile.
type register struct {
	mu   sync.Mutex
	held map[int]registration
}

type registration struct {
	name  string
	since time.Time
}

func registered(n, each int) *register {
	r := &register{held: map[int]registration{}}
	for i := range n {
		r.held[i] = registration{fmt.Sprintf("conn-%d", i/each), time.Now()}
	}
	return r
}

type registeredEntry struct {
	name   string
	count  int
	oldest time.Duration
}

func (r *register) report() []*registeredEntry {
	r.mu.Lock()
	defer r.mu.Unlock()
	byName, now := map[string]*registeredEntry{}, time.Now()
	for _, h := range r.held {
		e := byName[h.name]
		if e == nil {
			e = &registeredEntry{name: h.name}
			byName[h.name] = e
		}
		e.count++
		e.oldest = max(e.oldest, now.Sub(h.since))
	}
	return slices.SortedFunc(maps.Values(byName), func(a, b *registeredEntry) int { return cmp.Compare(b.oldest, a.oldest) })
}

func child(s *ctxshutdown.Swansong) *ctxshutdown.Swansong {
	c, _ := ctxshutdown.WithCancel(s)
	c.Guard().Release()
	return c
}

// besideOps is the number of operations that a run makes while another goroutine makes reports. It
// is so large that the run takes much longer than one report.
const besideOps = 5_000_000

// background runs one goroutine at a time that keeps a processor busy. The preparation of a run
// waits until the goroutine of the run before has ended, which may take as long as a report.
type background struct{ sync.WaitGroup }

// runBeside returns a function that calls run while another goroutine calls the function other
// again and again.
func (b *background) runBeside(other func(), run func(n int)) func(int) {
	b.Wait()
	return func(int) {
		var stop atomic.Bool
		b.Go(func() {
			for !stop.Load() {
				other()
			}
		})
		run(besideOps)
		stop.Store(true)
	}
}
