package eventloop_test

import (
	"context"
	"runtime"
	"sync"
	"syscall"
	"testing"

	"github.com/swansong-go/swansong/eventloop"
)

// All that a started loop runs runs on one thread, which is nobody else's: goroutines that ask for threads of their own
// between its calls take the one that it has let go of, where it has.
func TestTheThreadOfAStartedLoop(t *testing.T) {
	threads := map[int][]string{}
	note := func(what string) { id := syscall.Gettid(); threads[id] = append(threads[id], what) }
	l := started(t, eventloop.WithOSThread(), eventloop.WithInit(func() error { note("init"); return nil }))
	p := pool(t, 1)

	release := make(chan struct{})
	var others sync.WaitGroup
	taken := map[int]bool{}
	takeThreads := func() {
		ids := make(chan int)
		for range 20 {
			others.Go(func() {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				ids <- syscall.Gettid()
				<-release
			})
		}
		for range 20 {
			taken[<-ids] = true
		}
	}
	takeThreads()
	does(t, l, func() { note("callback") })
	takeThreads()
	fired := make(chan struct{})
	l.After(0, func() { note("timer"); close(fired) })
	comes(t, "the timer", fired)
	takeThreads()
	completed := make(chan struct{})
	eventloop.Offload(l, p, func(context.Context) (int, error) { return 1, nil }, func(int, error) { note("completion"); close(completed) })
	comes(t, "the completion", completed)
	takeThreads()
	does(t, l, func() { note("callback") })
	close(release)
	others.Wait()

	does(t, l, func() {
		equal(t, "threads", len(threads), 1)
		for id, what := range threads {
			equal(t, "what ran on it", what, []string{"init", "callback", "timer", "completion", "callback"})
			isTrue(t, "it is nobody else's", !taken[id])
		}
	})
}
