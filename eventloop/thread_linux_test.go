package eventloop_test

import (
	"context"
	"runtime"
	"sync"
	"syscall"
	"testing"

	"github.com/swansong-go/swansong/eventloop"
	"github.com/swansong-go/swansong/internal/testkit"
)

// A started loop calls all functions on one thread. In the test, other goroutines lock themselves
// to threads between the calls. They would take the loop's thread if the loop were not locked to
// it.
func TestWithOSThread_LocksThreadOfStartedLoop(t *testing.T) {
	threads := map[int][]string{}
	note := func(what string) { id := syscall.Gettid(); threads[id] = append(threads[id], what) }
	l := startLoop(t, eventloop.WithOSThread(), eventloop.WithInit(func() error { note("init"); return nil }))
	p := newPool(t, 1)

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
	runOn(t, l, func() { note("callback") })
	takeThreads()
	fired := make(chan struct{})
	l.After(0, func() { note("timer"); close(fired) })
	receive(t, "the timer", fired)
	takeThreads()
	completed := make(chan struct{})
	eventloop.Offload(l, p, func(context.Context) (int, error) { return 1, nil }, func(int, error) { note("completion"); close(completed) })
	receive(t, "the completion", completed)
	takeThreads()
	runOn(t, l, func() { note("callback") })
	close(release)
	others.Wait()

	runOn(t, l, func() {
		testkit.Equal(t, "threads", len(threads), 1)
		for id, what := range threads {
			testkit.Equal(t, "what ran on it", what, []string{"init", "callback", "timer", "completion", "callback"})
			isTrue(t, "no other goroutine has it", !taken[id])
		}
	})
}

// A loop that is locked to a thread, and one that runs on the goroutine of its caller, stay on this
// thread or goroutine when callbacks call Goexit. docs/internals/eventloop.md#panics
func TestWithOSThread_KeepsThreadAfterGoexit(t *testing.T) {
	for name, run := range map[string]func(t *testing.T, post func(l *eventloop.Loop)) *eventloop.Loop{
		"Start": func(t *testing.T, post func(l *eventloop.Loop)) *eventloop.Loop {
			l := startLoop(t, eventloop.WithOSThread())
			post(l)
			return l
		},
		"Run": func(t *testing.T, post func(l *eventloop.Loop)) *eventloop.Loop {
			l := eventloop.New(t.Context())
			go func() {
				runtime.LockOSThread() // locks the goroutine to its thread, as package main does for a user interface
				l.Run(context.Background(), func(context.Context) error { post(l); return nil })
			}()
			return l
		},
	} {
		t.Run(name, func(t *testing.T) {
			threads, ran := map[int]bool{}, 0
			l := run(t, func(l *eventloop.Loop) {
				free := block(t, l)
				for range 10 {
					l.Post(func() {
						runtime.LockOSThread() // makes the thread end with the goroutine, so that no other goroutine gets the thread
						threads[syscall.Gettid()] = true
						ran++
						runtime.Goexit()
					})
				}
				free()
			})
			awaitDone(t, l.Scope().Completion())
			testkit.Equal(t, "callbacks", ran, 10)
			testkit.Equal(t, "threads", len(threads), 1)
		})
	}
}
