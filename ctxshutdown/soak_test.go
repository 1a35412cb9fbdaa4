package ctxshutdown_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
)

// TestSoak_MemoryDoesNotGrow simulates a long-running service: goroutines create and end scopes,
// guards, contexts, interrupts and completions at random below one root. The memory in use must not
// grow. SOAK=10m runs it for ten minutes; by default it runs for a second or two.
func TestSoak_MemoryDoesNotGrow(t *testing.T) {
	const (
		goroutines = 8
		samples    = 40
		lives      = 100 // how often each goroutine calls the function life between two samples
	)
	total, err := time.ParseDuration(os.Getenv("SOAK"))
	if err != nil && os.Getenv("SOAK") != "" {
		t.Fatalf("SOAK=%s: %v; write it as in 10m", os.Getenv("SOAK"), err)
	}
	s := ctxshutdown.New(t.Context(), ctxshutdown.WithName("soak"))
	c := claim{t, "soak"}
	var heap, stacks []uint64
	seed, done := rand.Uint64(), 0
	t.Logf("seed %d", seed)
	for sample := range samples {
		until := time.Now().Add(total / samples)
		var wg sync.WaitGroup
		counts := make([]int, goroutines)
		for i := range goroutines {
			r := rand.New(rand.NewPCG(seed, uint64(sample*goroutines+i)))
			wg.Go(func() {
				for n := 0; n < lives || time.Now().Before(until); n++ {
					life(s, r)
					counts[i]++
				}
			})
		}
		wg.Wait()
		for _, n := range counts {
			done += n
		}
		c.checkState(s, ctxshutdown.Running, 0)
		runtime.GC()
		runtime.GC() // the second collection frees objects that have cleanups
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		heap, stacks = append(heap, m.HeapAlloc), append(stacks, uint64(runtime.NumGoroutine()))
	}
	c.awaitCompletion(s.Shutdown())

	// The memory in use may grow during the first quarter of the test, because pools and stripes
	// grow. After that it must stay the same.
	middle := func(of []uint64) uint64 { return slices.Sorted(slices.Values(of))[len(of)/2] }
	early, late := middle(heap[samples/4:samples/2]), middle(heap[samples*3/4:])
	report := fmt.Sprintf("%d lives; heap after a quarter %d KiB, at the end %d KiB; goroutines %d, %d", done, early>>10, late>>10,
		stacks[samples/4], stacks[samples-1])
	t.Log(report)
	if late > early+early/4+256<<10 {
		t.Errorf("memory grows: %s", report)
	}
	if middle(stacks[samples*3/4:]) > middle(stacks[samples/4:samples/2]) {
		t.Errorf("the number of goroutines grows: %s", report)
	}
}

// life simulates a request or a connection: it creates a scope, calls methods of the scope at
// random, some of them wrongly, and then cancels the scope.
func life(s *ctxshutdown.Swansong, r *rand.Rand) {
	up := context.Context(s)
	if r.IntN(2) == 0 {
		up = s.Work()
	}
	conn, cancel := ctxshutdown.WithCancel(up, ctxshutdown.WithName("conn"))
	defer cancel()
	var held []*ctxshutdown.Guard
	defer func() {
		for _, g := range held {
			g.Release()
		}
	}()
	for range r.IntN(12) {
		switch r.IntN(12) {
		case 0, 1, 2:
			if g, ok := conn.TryGuard(); ok {
				held = append(held, g)
			}
		case 3:
			held = append(held, conn.Guard())
		case 4:
			if len(held) > 0 {
				held = append(held, held[0].Clone())
			}
		case 5:
			if len(held) > 0 {
				held[0].Release()
				held = held[1:]
			}
		case 6: // creates a child scope, stops it, and waits for its completion
			part, end := ctxshutdown.WithCancel(conn)
			g := part.Guard()
			end()
			g.Release()
			<-part.Completion().Done()
		case 7: // creates a child scope that is never cancelled
			lost, _ := ctxshutdown.WithCancel(conn.Work())
			lost.Guard().Release()
		case 8:
			from, to := io.Pipe()
			reader := ctxshutdown.NewReader(conn, from)
			go func() {
				to.Write([]byte("x"))
				to.Close()
			}()
			reader.Read(make([]byte, 1))
			reader.Close()
			from.Close()
		case 9:
			ctx, end := context.WithTimeout(conn.Work(), time.Hour)
			if g, ok := ctxshutdown.Acquire(ctx); ok {
				held = append(held, g)
			}
			end()
		case 10:
			ch := make(chan int, 3)
			ch <- 1
			ctxshutdown.Recv(conn, ch)
			for range ctxshutdown.Seq(conn, slices.Values([]int{1, 2, 3})) {
			}
		case 11:
			conn.GuardReport()
			if r.IntN(2) == 0 {
				conn.Shutdown()
			} else {
				conn.Force(nil)
			}
		}
	}
}
