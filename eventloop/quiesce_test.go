package eventloop_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/eventloop"
)

// sequence, Quiesce: it returns when the queue is drained and nothing is under way, and not before.
func TestQuiesce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p := startedIn(t, t.Context()), eventloop.NewPool(t.Context(), 1)
		is(t, "Quiesce of an idle loop", l.Quiesce(0), nil)
		var over []string
		l.Post(func() {
			time.Sleep(time.Second)
			eventloop.Offload(l, p, func(context.Context) (int, error) { time.Sleep(time.Second); return 1, nil }, func(int, error) {
				over = append(over, "completion")
				l.Post(func() { time.Sleep(time.Second); over = append(over, "callback") })
			})
		})
		h, _ := l.Handle()
		time.AfterFunc(10*time.Second, func() {
			h.Post(func() { over = append(over, "handle's callback") })
			h.Release()
			isTrue(t, "a released handle refuses", !h.Post(never(t, "a callback of a released handle")))
			h.Release()
		})
		ticks := 0
		tick, _ := l.Every(3*time.Second, func() { ticks++ })
		began := time.Now()
		is(t, "Quiesce", l.Quiesce(time.Hour), nil)
		equal(t, "it took", time.Since(began), 10*time.Second)
		synctest.Wait()
		equal(t, "over", over, []string{"completion", "callback", "handle's callback"})
		equal(t, "ticks, which it does not wait for", ticks, 3)
		isTrue(t, "the ticking goes on", tick.Stop())
		drains(t, p.Stop())
	})
}

// sequence, "If step 2 returns Err(QuiesceTimeout)": with the right counts, and it may be tried again.
func TestQuiesceTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p := startedIn(t, t.Context()), eventloop.NewPool(t.Context(), 5)
		does(t, l, func() {})
		end := make(chan struct{})
		l.Every(time.Hour, never(t, "a timer"))
		for range 2 {
			l.Post(func() { <-end })
		}
		l.Post(func() {})
		synctest.Wait()
		for range 4 {
			eventloop.Offload(l, p, func(context.Context) (int, error) { <-end; return 1, nil }, func(int, error) {})
		}
		for range 5 {
			h, _ := l.Handle()
			go func() { <-end; h.Release() }()
		}
		for _, timeout := range []time.Duration{time.Second, 0, -time.Second} {
			began := time.Now()
			var err *eventloop.QuiesceTimeoutError
			if !errors.As(l.Quiesce(timeout), &err) {
				t.Fatal("quiescent")
			}
			equal(t, "error", err, &eventloop.QuiesceTimeoutError{
				Timeout: timeout, Counts: eventloop.Counts{Queued: 3, Offloads: 4, Handles: 5, Timers: 1}})
			equal(t, "message", err.Error(), fmt.Sprintf(
				"eventloop: not quiescent after %v: 3 queued, 4 offloads running, 5 handles held, 1 timers pending; stop those who still post, or wait longer", timeout))
			is(t, "it", err, context.DeadlineExceeded)
			equal(t, "it took", time.Since(began), max(timeout, 0))
		}
		close(end)
		is(t, "Quiesce, again", l.Quiesce(time.Second), nil)
		drains(t, p.Stop())
	})
}

// A callback that posts for ever is never quiescent: one is always queued.
func TestQuiesceOfALoopThatPostsForEver(t *testing.T) {
	l := started(t)
	var again func()
	var enough atomic.Bool
	again = func() {
		if !enough.Load() {
			l.Post(again)
		}
	}
	l.Post(again)
	var err *eventloop.QuiesceTimeoutError
	isTrue(t, "it times out", errors.As(l.Quiesce(10*time.Millisecond), &err))
	isTrue(t, "one or two are queued", err != nil && (err.Queued == 1 || err.Queued == 2)) // it has posted, and is not over
	enough.Store(true)
	is(t, "Quiesce, when it is over", l.Quiesce(tooLong), nil)
	equal(t, "counts", l.Counts(), eventloop.Counts{})
}

// Before the start nothing can be queued, but handles may be held.
func TestQuiesceBeforeStart(t *testing.T) {
	l := eventloop.New(context.Background())
	is(t, "Quiesce", l.Quiesce(tooLong), nil)
	h, ok := l.Handle()
	isTrue(t, "a handle before the start", ok)
	var err *eventloop.QuiesceTimeoutError
	isTrue(t, "it waits for it", errors.As(l.Quiesce(0), &err) && err.Counts == eventloop.Counts{Handles: 1})
	h.Release()
	is(t, "Quiesce", l.Quiesce(tooLong), nil)
	drains(t, l.Stop())
	is(t, "Quiesce after the stop", l.Quiesce(0), nil)
}

// Whoever waits is told, also by a loop that stops, or does not start.
func TestQuiesceDuringTheEnd(t *testing.T) {
	for range 300 {
		l := eventloop.New(context.Background(), eventloop.WithInit(func() error { return nil }))
		var racing sync.WaitGroup
		racing.Go(func() { l.Start(); l.Post(func() {}) })
		racing.Go(func() { l.Stop() })
		for range 2 {
			racing.Go(func() {
				if err := l.Quiesce(tooLong); err != nil {
					t.Error(err)
				}
			})
		}
		racing.Wait()
	}
}

// Nobody is told that all is quiet while something is under way: tokens go round between callbacks, offloads and timers.
func TestQuiesceIsExact(t *testing.T) {
	l, p := started(t), pool(t, 2)
	for range 300 {
		var over atomic.Bool
		l.Post(func() {
			eventloop.Offload(l, p, func(context.Context) (int, error) { return 1, nil }, func(int, error) {
				eventloop.Offload(l, p, func(context.Context) (int, error) { return 1, nil }, func(int, error) {
					l.Post(func() { over.Store(true) })
				})
			})
		})
		if err := l.Quiesce(tooLong); err != nil {
			t.Fatal(err)
		}
		if !over.Load() {
			t.Fatal("quiescent while something was under way")
		}
	}
}
