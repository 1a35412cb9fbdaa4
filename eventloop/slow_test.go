package eventloop_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/eventloop"
	"github.com/swansong-go/swansong/internal/testkit"
)

// The hook is called for each function that ran, or waited, longer than the limit, with the name of
// the user's function. The counters show the longest times.
// docs/internals/eventloop.md#slow-callbacks
func TestWithSlowCallback_ReportsSlowFunctions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []eventloop.SlowCallback
		l := startedIn(t, t.Context(), eventloop.WithSlowCallback(time.Second, func(s eventloop.SlowCallback) {
			isTrue(t, "names the function of the test: "+s.Func, strings.Contains(s.Func, "TestWithSlowCallback_ReportsSlowFunctions") && strings.Contains(s.Func, "slow_test.go:"))
			s.Func = ""
			got = append(got, s)
		}))
		p := eventloop.NewPool(t.Context(), 1)
		sleep := func(d time.Duration) func() { return func() { time.Sleep(d) } }
		l.Post(sleep(time.Second)) // takes exactly as long as the limit, so the hook is not called
		time.Sleep(10 * time.Second)
		l.Post(sleep(3 * time.Second))
		synctest.Wait() // the loop has taken this callback, so the next ones are a new batch
		l.Post(sleep(0))
		l.Post(sleep(0))
		time.Sleep(10 * time.Second)
		l.After(0, sleep(4*time.Second))
		time.Sleep(10 * time.Second)
		eventloop.Offload(l, p, func(context.Context) (int, error) { return 1, nil }, func(int, error) { time.Sleep(2 * time.Second) })
		time.Sleep(10 * time.Second)
		synctest.Wait()
		testkit.Equal(t, "slow functions", got, []eventloop.SlowCallback{
			{Kind: "callback", Took: 3 * time.Second},
			{Kind: "callback", Waited: 3 * time.Second},
			{Kind: "timer", Took: 4 * time.Second},
			{Kind: "completion", Took: 2 * time.Second},
		})
		testkit.Equal(t, "counters", l.Stats().Snapshot(), eventloop.Snapshot{Accepted: 5, Executed: 5,
			Slow: 4, LongestCall: 4 * time.Second, LongestWait: 3 * time.Second})
		awaitDone(t, p.Stop())
	})
}

// Slow functions are counted even if the hook is nil. docs/internals/eventloop.md#slow-callbacks
func TestWithSlowCallback_CountsSlowCallbacksEvenIfHookIsNil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startedIn(t, t.Context(), eventloop.WithSlowCallback(time.Second, nil))
		l.Post(func() { time.Sleep(time.Minute) })
		time.Sleep(time.Hour)
		synctest.Wait()
		testkit.Equal(t, "counters", l.Stats().Snapshot(), eventloop.Snapshot{Accepted: 1, Executed: 1, Slow: 1, LongestCall: time.Minute})
	})
}

// LongestWait is exact, also for callbacks that were queued at different times and run in one
// batch.
// docs/internals/eventloop.md#slow-callbacks
func TestWithSlowCallback_LongestWaitIsExactForEachCallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startedIn(t, t.Context(), eventloop.WithSlowCallback(time.Hour, nil))
		l.Post(func() { time.Sleep(time.Second) })
		synctest.Wait() // the loop has taken this callback, so the next ones are in later batches
		var got, want []time.Duration
		for i := range 600 { // so many that the loop takes them from the queue in more than two batches
			l.Post(func() {
				got = append(got, l.Stats().Snapshot().LongestWait)
				time.Sleep(10 * time.Millisecond)
			})
			// Callback i is queued after i ms. It begins 10*i ms after the end of the callback that
			// takes a second.
			want = append(want, time.Second+time.Duration(9*i)*time.Millisecond)
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		testkit.Equal(t, "longest wait at the beginning of each callback", got, want)
	})
}

// The callbacks of a batch run one after the other, and each waits for those before it. If several
// of them wait longer than the limit, the hook is called only for the first of these. LongestWait
// is the wait of the last one, which is the longest.
// docs/internals/eventloop.md#slow-callbacks
func TestWithSlowCallback_MeasuresWaitForEarlierCallbacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []time.Duration
		l := startedIn(t, t.Context(), eventloop.WithSlowCallback(time.Second, func(s eventloop.SlowCallback) { got = append(got, s.Waited) }))
		for range 2 {
			// The five callbacks that this callback posts run one after another. The first of them
			// does not wait.
			l.Post(func() {
				for range 5 {
					l.Post(func() { time.Sleep(600 * time.Millisecond) })
				}
			})
			time.Sleep(time.Minute)
		}
		synctest.Wait()
		testkit.Equal(t, "waits", got, []time.Duration{1200 * time.Millisecond, 1200 * time.Millisecond})
		testkit.Equal(t, "counters", l.Stats().Snapshot(), eventloop.Snapshot{Accepted: 12, Executed: 12,
			Slow: 2, LongestCall: 600 * time.Millisecond, LongestWait: 2400 * time.Millisecond})
	})
}
