package eventloop_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/eventloop"
	"github.com/swansong-go/swansong/internal/testkit"
)

// A loop accepts callbacks up to its limit. It refuses further ones, and counts the refusals, until
// an accepted callback has finished. docs/internals/eventloop.md#limits
func TestWithQueueLimit_PostRefusesAtLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startedIn(t, t.Context(), eventloop.WithQueueLimit(3))
		free := block(t, l)
		for range 2 {
			isTrue(t, "two more are accepted", l.Post(nop))
		}
		for range 5 {
			isTrue(t, "the fourth is refused", !l.Post(never(t, "a refused callback")))
		}
		testkit.Equal(t, "counts", l.Counts(), eventloop.Counts{Queued: 3})
		free()
		synctest.Wait()
		isTrue(t, "accepted again", l.Post(nop))
		synctest.Wait()
		testkit.Equal(t, "counters", l.Stats().Snapshot(), eventloop.Snapshot{Accepted: 4, Executed: 4, Refused: 5, RefusedFull: 5})
	})
}

// Completions of offloads are accepted beyond the limit, because they were promised.
// docs/internals/eventloop.md#limits
func TestWithQueueLimit_RefusesNoCompletion(t *testing.T) {
	l, p := startLoop(t, eventloop.WithQueueLimit(1)), newPool(t, 2)
	free := block(t, l)
	const n = 20
	got := 0
	for range n {
		testkit.ErrorIs(t, "Offload", eventloop.Offload(l, p, func(context.Context) (int, error) { return 1, nil },
			func(v int, err error) { got += v }), nil)
	}
	testkit.ErrorIs(t, "WaitIdle", p.WaitIdle(t.Context()), nil)
	testkit.Equal(t, "counts", l.Counts(), eventloop.Counts{Queued: n + 1})
	free()
	awaitDone(t, l.Stop())
	testkit.Equal(t, "results", got, n)
}

// PostWait waits until a callback has finished, even if the loop was idle before. The counter
// Waited counts such calls. docs/internals/eventloop.md#limits
func TestPostWait_WaitsUntilFullQueueHasRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startedIn(t, t.Context(), eventloop.WithQueueLimit(1))
		testkit.ErrorIs(t, "PostWait to an idle loop", l.PostWait(t.Context(), nop), nil)
		synctest.Wait()
		free := block(t, l)
		began := time.Now()
		time.AfterFunc(time.Second, free)
		ran := false
		testkit.ErrorIs(t, "PostWait", l.PostWait(t.Context(), func() { ran = true }), nil)
		testkit.Equal(t, "it waited", time.Since(began), time.Second)
		synctest.Wait()
		isTrue(t, "the callback has run", ran)
		testkit.Equal(t, "counters", l.Stats().Snapshot(), eventloop.Snapshot{Accepted: 3, Executed: 3, Waited: 1})
	})
}

// Goroutines that wait in PostWait are served in the order of their calls. Post is refused while a
// goroutine waits. docs/internals/eventloop.md#limits
func TestPostWait_ServesCallersInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startedIn(t, t.Context(), eventloop.WithQueueLimit(2))
		free := block(t, l)
		var order []int
		next := make(chan struct{})
		l.Post(func() {})
		for i := range 4 {
			go func() {
				testkit.ErrorIs(t, "PostWait", l.PostWait(t.Context(), func() { order = append(order, i); <-next }), nil)
			}()
			synctest.Wait()
		}
		free()
		synctest.Wait() // callbacks 0 and 1 are accepted, and 0 is running
		for range 4 {
			l.Post(func() { order = append(order, -1) }) // this Post is refused, because a goroutine waits in PostWait
			next <- struct{}{}
			synctest.Wait()
		}
		testkit.Equal(t, "order", order[:4], []int{0, 1, 2, 3})
	})
}

// If the context of PostWait ends before there is room, the callback never runs.
// docs/internals/eventloop.md#limits
func TestPostWait_ReturnsWhenContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startedIn(t, t.Context(), eventloop.WithQueueLimit(1))
		free := block(t, l)
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errCause)
		defer cancel()
		testkit.ErrorIs(t, "PostWait", l.PostWait(ctx, never(t, "a callback whose PostWait ended")), errCause)
		free()
		synctest.Wait()
		testkit.ErrorIs(t, "PostWait with room, though its context has ended", l.PostWait(ctx, nop), nil)
		synctest.Wait()
		testkit.Equal(t, "counters", l.Stats().Snapshot(), eventloop.Snapshot{Accepted: 2, Executed: 2, Refused: 1, Waited: 1})
	})
}

// A stop of the loop ends PostWait, and the callback never runs. Before the start, PostWait does
// not wait. docs/internals/eventloop.md#limits
func TestPostWait_ReturnsWhenLoopStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := eventloop.New(t.Context(), eventloop.WithQueueLimit(1))
		testkit.ErrorIs(t, "PostWait before the start", l.PostWait(t.Context(), nop), eventloop.ErrNotRunning)
		testkit.ErrorIs(t, "Start", l.Start(), nil)
		free := block(t, l)
		time.AfterFunc(time.Second, func() { l.Stop() })
		testkit.ErrorIs(t, "PostWait", l.PostWait(t.Context(), never(t, "a callback after the stop")), eventloop.ErrStopped)
		free()
		awaitDone(t, l.Stop())
		testkit.ErrorIs(t, "PostWait after the stop", l.PostWait(t.Context(), nop), eventloop.ErrStopped)
	})
	l := startLoop(t)
	testkit.ErrorIs(t, "PostWait without a limit", l.PostWait(t.Context(), nop), nil)
	awaitDone(t, l.Stop())
	testkit.ErrorIs(t, "PostWait without a limit, after the stop", l.PostWait(t.Context(), nop), eventloop.ErrStopped)
}

// Many goroutines post to a small queue and wait with contexts that end, while the loop is stopped.
// Every callback that was accepted runs once, all others never run, and the loop never exceeds its
// limit. docs/internals/eventloop.md#limits
func TestPostWait_LosesNoCallbackUnderContention(t *testing.T) {
	for range 20 {
		const limit, producers, each = 4, 8, 300
		l := startLoop(t, eventloop.WithQueueLimit(limit))
		ran := make([]int, producers*each) // only callbacks write this slice
		var accepted [producers * each]bool
		var done atomic.Int64
		var running sync.WaitGroup
		for p := range producers {
			running.Go(func() {
				for i := range each {
					n := p*each + i
					f := func() { ran[n]++; done.Add(1) }
					switch i % 4 {
					case 0:
						accepted[n] = l.Post(f)
					case 1:
						ctx, cancel := context.WithTimeout(context.Background(), time.Microsecond)
						accepted[n] = l.PostWait(ctx, f) == nil
						cancel()
					default:
						accepted[n] = l.PostWait(context.Background(), f) == nil
					}
					if queued := l.Counts().Queued; queued > limit {
						t.Errorf("%d callbacks are queued, more than the limit", queued)
					}
				}
			})
		}
		for done.Load() < producers*each/3 {
			runtime.Gosched()
		}
		l.Stop()
		running.Wait()
		awaitDone(t, l.Stop())
		for n := range ran {
			if want := map[bool]int{true: 1}[accepted[n]]; ran[n] != want {
				t.Fatalf("callback %d: accepted is %v, but it ran %d times", n, accepted[n], ran[n])
			}
		}
	}
}

// A pool with a limit refuses jobs and offloads, and accepts again when a job has finished.
// docs/internals/eventloop.md#limits
func TestWithQueueLimit_SubmitRefusesAtLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p := startedIn(t, t.Context()), eventloop.NewPool(t.Context(), 1, eventloop.WithQueueLimit(2))
		end := make(chan struct{})
		isTrue(t, "two jobs are accepted", p.Submit(func() { <-end }) && p.Submit(nop))
		isTrue(t, "the third is refused", !p.Submit(never(t, "a refused job")))
		offload := func() error {
			return eventloop.Offload(l, p, func(context.Context) (int, error) { return 1, nil }, func(int, error) {})
		}
		testkit.ErrorIs(t, "Offload to a full pool", offload(), eventloop.ErrQueueFull)
		testkit.Equal(t, "refused", p.RefusedFull(), uint64(2))
		testkit.Equal(t, "counts of the loop", l.Counts(), eventloop.Counts{})
		close(end)
		synctest.Wait()
		testkit.ErrorIs(t, "Offload to a pool with room", offload(), nil)
		awaitDone(t, p.Stop())
		testkit.ErrorIs(t, "Offload to a stopped pool", offload(), eventloop.ErrPoolStopped)
	})
}

// A pool that is both full and stopped returns ErrPoolStopped, since it will never have room again.
// docs/internals/eventloop.md#limits
func TestOffload_ToStoppedFullPoolReturnsErrPoolStopped(t *testing.T) {
	l, p := startLoop(t), newPool(t, 1, eventloop.WithQueueLimit(1))
	end := make(chan struct{})
	defer close(end)
	p.Submit(func() { <-end })
	p.Stop()
	err := eventloop.Offload(l, p, func(context.Context) (int, error) { return 1, nil }, func(int, error) {})
	testkit.ErrorIs(t, "Offload", err, eventloop.ErrPoolStopped)
	testkit.Equal(t, "refused because the pool is full", p.RefusedFull(), uint64(0))
}

// SubmitWait waits until a job has finished, the pool is stopped, or its context ends.
// docs/internals/eventloop.md#limits
func TestSubmitWait_WaitsUntilFullQueueHasRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := eventloop.NewPool(t.Context(), 1, eventloop.WithQueueLimit(1))
		began := time.Now()
		var ran []string
		for _, name := range []string{"first", "second", "third"} {
			testkit.ErrorIs(t, "SubmitWait", p.SubmitWait(t.Context(), func() { time.Sleep(time.Second); ran = append(ran, name) }), nil)
		}
		testkit.Equal(t, "two have waited", time.Since(began), 2*time.Second)
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Millisecond, errCause)
		defer cancel()
		testkit.ErrorIs(t, "SubmitWait whose context ends", p.SubmitWait(ctx, never(t, "a job")), errCause)
		time.AfterFunc(time.Millisecond, func() { p.Stop() })
		testkit.ErrorIs(t, "SubmitWait during the stop", p.SubmitWait(t.Context(), never(t, "a job")), eventloop.ErrPoolStopped)
		awaitDone(t, p.Stop())
		testkit.Equal(t, "jobs", ran, []string{"first", "second", "third"})
		testkit.ErrorIs(t, "SubmitWait after the stop", p.SubmitWait(t.Context(), never(t, "a job")), eventloop.ErrPoolStopped)
	})
}

// A small pool serves many goroutines that wait, even if some of them stop waiting.
// docs/internals/eventloop.md#limits
func TestSubmitWait_LosesNoJobUnderContention(t *testing.T) {
	p := newPool(t, 2, eventloop.WithQueueLimit(3))
	var accepted, ran atomic.Int64
	var running sync.WaitGroup
	for i := range 8 {
		running.Go(func() {
			for range 500 {
				ctx, cancel := context.Background(), context.CancelFunc(nop)
				if i%2 == 0 {
					ctx, cancel = context.WithTimeout(ctx, time.Microsecond)
				}
				switch err := p.SubmitWait(ctx, func() { ran.Add(1) }); {
				case err == nil:
					accepted.Add(1)
				case !errors.Is(err, context.DeadlineExceeded):
					t.Error(err)
				}
				cancel()
				if n := p.Running(); n > 3 {
					t.Errorf("%d jobs are running or queued, more than the limit", n)
				}
			}
		})
	}
	running.Wait()
	awaitDone(t, p.Stop())
	testkit.Equal(t, "jobs that have run", ran.Load(), accepted.Load())
}
