package eventloop_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
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
				Timeout: timeout, State: eventloop.Running, Counts: eventloop.Counts{Queued: 3, Offloads: 4, Handles: 5, Timers: 1}})
			equal(t, "message", err.Error(), fmt.Sprintf(
				"eventloop: not quiescent after %v in state Running: 3 queued, 4 offloads running, 5 handles held, 1 timers pending; stop those who still post, have what runs return, or wait longer", timeout))
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

// sequence, Quiesce, "log the diagnostic counts": what keeps it waiting is named, also where it is nothing that can be counted.
func TestQuiesceNamesWhatRuns(t *testing.T) {
	for _, row := range []struct {
		name  string
		hang  func(l *eventloop.Loop, until chan struct{})
		state eventloop.State
		want  eventloop.Counts
		text  string
	}{
		{"a timer", func(l *eventloop.Loop, until chan struct{}) { l.After(0, func() { <-until }) },
			eventloop.Running, eventloop.Counts{In: "timer"},
			`eventloop: not quiescent after 1s in state Running: 0 queued, 0 offloads running, 0 handles held, 0 timers pending, ` +
				`running a function of the kind "timer"; stop those who still post, have what runs return, or wait longer`},
		{"a ticking one", func(l *eventloop.Loop, until chan struct{}) { l.Every(1, func() { <-until; l.Stop() }) },
			eventloop.Running, eventloop.Counts{In: "timer", Timers: 1}, ""},
		{"the handler of a timer's panic", func(l *eventloop.Loop, until chan struct{}) { l.After(0, func() { panic(until) }) },
			eventloop.Running, eventloop.Counts{In: "timer"}, ""},
		{"the handler of a callback's panic", func(l *eventloop.Loop, until chan struct{}) { l.Post(func() { panic(until) }) },
			eventloop.Running, eventloop.Counts{Queued: 1}, ""},
		{"a callback, in the drain", func(l *eventloop.Loop, until chan struct{}) { l.Post(func() { <-until }); l.Stop() },
			eventloop.Stopping, eventloop.Counts{Queued: 1}, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := startedIn(t, t.Context(), eventloop.WithPanicHandler(func(err *eventloop.PanicError) { <-err.Value.(chan struct{}) }))
				until := make(chan struct{})
				row.hang(l, until)
				time.Sleep(time.Second)
				synctest.Wait()
				err := l.Quiesce(time.Second)
				equal(t, "error", err, error(&eventloop.QuiesceTimeoutError{Timeout: time.Second, State: row.state, Counts: row.want}))
				if row.text != "" {
					equal(t, "message", err.Error(), row.text)
				}
				close(until)
				is(t, "Quiesce, again", l.Quiesce(time.Second), nil)
				equal(t, "counts", l.Counts(), eventloop.Counts{})
			})
		})
	}
}

// The same for an init function that does not return, also when the loop has been told to stop meanwhile.
func TestQuiesceNamesTheInit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		until := make(chan struct{})
		l := eventloop.New(t.Context(), eventloop.WithInit(func() error { <-until; return nil }))
		startedUp := make(chan error, 1)
		go func() { startedUp <- l.Start() }()
		synctest.Wait()
		for _, state := range []eventloop.State{eventloop.Starting, eventloop.Stopping} {
			equal(t, "error", l.Quiesce(time.Second), error(&eventloop.QuiesceTimeoutError{
				Timeout: time.Second, State: state, Counts: eventloop.Counts{In: "init"}}))
			l.Stop()
		}
		close(until)
		is(t, "Quiesce, when it has returned", l.Quiesce(time.Second), nil)
		is(t, "Start", <-startedUp, eventloop.ErrStopped)
	})
}

// Zero asks what is so now: a loop that has nothing to run is quiescent, whether its goroutine has gone to sleep yet or not.
// Whoever reads the counts is in its way to that.
func TestQuiesceNow(t *testing.T) {
	for range 20 {
		l := started(t)
		is(t, "Quiesce after Start", l.Quiesce(0), nil)
		reading := reads(l, 2)
		for range 20 {
			l.Post(nop)
			for l.Counts().Queued > 0 {
				runtime.Gosched()
			}
			is(t, "Quiesce after the last callback", l.Quiesce(0), nil)
		}
		l.Stop()
		reading.Wait()
		if t.Failed() {
			return
		}
	}
}

// An error names somebody, however soon the last one lets go after the time is up.
func TestQuiesceNeverNamesNobody(t *testing.T) {
	l := started(t)
	for range 20_000 {
		h, ok := l.Handle()
		isTrue(t, "a handle", ok)
		released := make(chan struct{})
		go func() { h.Release(); close(released) }()
		if err := l.Quiesce(0); err != nil {
			isTrue(t, err.Error(), err.(*eventloop.QuiesceTimeoutError).Counts != eventloop.Counts{})
		}
		<-released
		if t.Failed() {
			return
		}
	}
}

// A handle that somebody has taken while Quiesce was waiting for the loop is waited for.
func TestQuiesceAsksAgainForHandles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startedIn(t, t.Context())
		free := busy(t, l)
		began := time.Now()
		time.AfterFunc(time.Second, func() {
			h, ok := l.Handle()
			isTrue(t, "a handle", ok)
			time.AfterFunc(time.Second, h.Release)
			free()
		})
		is(t, "Quiesce", l.Quiesce(time.Hour), nil)
		equal(t, "it took", time.Since(began), 2*time.Second)
	})
}

// The same for time-outs, which may come when the work is over already, and are still to be queued.
func TestQuiesceWaitsForTimeouts(t *testing.T) {
	l, p := started(t), pool(t, 2)
	for range 2_000 {
		over := false // Quiesce, when it returns, comes after what the loop did
		err := eventloop.OffloadTimeout(l, p, 10*time.Microsecond, func(ctx context.Context) (int, error) { <-ctx.Done(); return 1, nil },
			func(int, error) { over = true })
		is(t, "OffloadTimeout", err, nil)
		is(t, "Quiesce", l.Quiesce(tooLong), nil)
		if !over {
			t.Fatal("quiescent before the completion of a time-out")
		}
	}
}

// sequence, Shutting down cleanly, 1: producers come first. Each of them has a handle, by which Quiesce tells who has not
// been stopped, and refuses when it has been: what it posts then is counted.
func TestProducersComeFirst(t *testing.T) {
	l := started(t)
	const producers = 3
	var stop [producers]chan struct{}
	stopped := make(chan *eventloop.Handle)
	for i := range producers {
		h, ok := l.Handle()
		isTrue(t, "a handle", ok)
		stop[i] = make(chan struct{})
		go func() {
			for running := true; running; {
				isTrue(t, "accepted", h.Post(nop))
				runtime.Gosched()
				select {
				case <-stop[i]:
					running = false
				default:
				}
			}
			h.Release()
			stopped <- h
		}()
	}
	for i := range producers {
		var err *eventloop.QuiesceTimeoutError
		isTrue(t, "Quiesce names those who are left", errors.As(l.Quiesce(0), &err) && err.Handles == producers-i)
		close(stop[i])
		isTrue(t, "refused", !comes(t, "the end of a producer", stopped).Post(never(t, "a callback of a released handle")))
	}
	is(t, "Quiesce", l.Quiesce(tooLong), nil)
	drains(t, l.Stop())
	s := l.Stats().Snapshot()
	equal(t, "counters", s, eventloop.Snapshot{Accepted: s.Accepted, Executed: s.Accepted, Refused: producers})
}
