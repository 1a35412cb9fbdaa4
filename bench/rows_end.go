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

// endRows are about whole ways: from a release to whoever waits, through an HTTP server, to a report.
func endRows() []row {
	var others bystanders
	return []row{
		{
			what: "the last Release, until Wait returns", peer: "close of a channel, until its receiver goes on", limit: 2, once: true, each: handovers,
			ours:  func() func(int) { return waitForScopes(context.Background()) },
			their: func() func(int) { return waitForChannels(context.Background()) },
		},
		{
			what: "the same, Wait with a time-out", peer: "the same, select with ctx.Done", limit: 2, once: true, each: handovers,
			ours:  func() func(int) { return waitForScopes(timeout()) },
			their: func() func(int) { return waitForChannels(timeout()) },
		},
		{
			what: "HTTP request, with a guard", peer: "the same without", limit: 1 / 0.97, gate: 1.2, allocs: rare, steady: 2, often: 8,
			ours:  func() func(int) { return requests("/guard") },
			their: func() func(int) { return requests("/plain") },
		},
		{
			what: "Guard + Release while reports of 100000 guards are made", peer: "the same while something else is computed", limit: 2, once: true, each: bystanding,
			ours: func() func(int) {
				s := crowded(100_000, 10)
				return others.beside(func() { s.GuardReport() }, guards{child(s)}.run)
			},
			their: func() func(int) {
				s := crowded(100_000, 10)
				return others.beside(func() { sum(numbers(10_000)) }, guards{child(s)}.run)
			},
		},
		{
			what: "GuardReport of 100000 guards in 10000 scopes", peer: byHand, most: 50e6, gate: manyReported, once: true,
			ours:  func() func(int) { s := crowded(100_000, 10); return func(int) { s.GuardReport() } },
			their: func() func(int) { r := registered(100_000, 10); return func(int) { r.report() } },
		},
		{
			what: "GuardReport of 100000 guards, traced", peer: byHand, most: 50e6, gate: manyReported, once: true,
			ours: func() func(int) {
				s := crowded(100_000, 10, ctxshutdown.WithTrace())
				return func(int) { s.GuardReport() }
			},
			their: func() func(int) { r := registered(100_000, 10); return func(int) { r.report() } },
		},
	}
}

const handovers = 10_000

// waitForScopes hands over from a goroutine that releases to one that waits, to and fro.
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
	_ = cancel // lives as long as the process
	return ctx
}

// handOver has two goroutines let each other go on, in turn: there is nothing in it but what is let go, and waited for.
func handOver(let, wait func(i int)) {
	over := make(chan struct{})
	go func() {
		for i := 0; i < handovers; i += 2 {
			wait(i)
			let(i + 1)
		}
		close(over)
	}()
	for i := 0; i < handovers; i += 2 {
		let(i)
		wait(i + 1)
	}
	<-over
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

const clients = 4 // that keep their connections

// server serves both: of two servers, one may be a few percent slower for as long as it runs.
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

// requests makes requests by a few clients.
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

// crowded returns a root with n guards, so many on each child.
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

// manyReported is the gate of reports: one and a half times 50 ms, where the peer takes 20.
const manyReported = 3.75

const byHand = "a map of as many under a lock, counted and sorted"

// A register is what one would have by hand, to say who still works: it blocks who comes and goes meanwhile.
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

// bystanding is how often an operation is done while something else goes on: for much longer than a report takes.
const bystanding = 5_000_000

// bystanders are goroutines that keep the machine busy in a way of their own. There is one at a time: who prepares a run waits
// until that of the run before has ended, which takes as long as what it was doing, and is not part of any run.
type bystanders struct{ sync.WaitGroup }

// beside returns what runs something, while something else is done again and again.
func (b *bystanders) beside(other func(), run func(n int)) func(int) {
	b.Wait()
	return func(int) {
		var stop atomic.Bool
		b.Go(func() {
			for !stop.Load() {
				other()
			}
		})
		run(bystanding)
		stop.Store(true)
	}
}
