package eventloop_test

import (
	"fmt"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/eventloop"
	"github.com/swansong-go/swansong/internal/testkit"
)

func TestTimers_FireInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startedIn(t, t.Context())
		began := time.Now()
		var got []string
		note := func(name string) func() {
			return func() { got = append(got, fmt.Sprint(name, " at ", time.Since(began))) }
		}
		set := func(d time.Duration, name string) *eventloop.Timer {
			timer, err := l.After(d, note(name))
			if err != nil {
				t.Fatal(err)
			}
			return timer
		}
		runOn(t, l, func() {
			set(3*time.Second, "c")
			set(1*time.Second, "a")
			set(2*time.Second, "b")
			set(1*time.Second, "a, second")
			stopped := set(1*time.Second, "stopped")
			set(-time.Hour, "negative")
			set(0, "zero")
			set(-2*time.Hour, "more negative")
			set(math.MaxInt64, "in 292 years")
			isTrue(t, "Stop reports that it would have fired", stopped.Stop())
			isTrue(t, "and not again", !stopped.Stop())
		})
		time.Sleep(time.Minute)
		synctest.Wait()
		runOn(t, l, func() {
			testkit.Equal(t, "calls", got, []string{"negative at 0s", "zero at 0s", "more negative at 0s", "a at 1s", "a, second at 1s", "b at 2s", "c at 3s"})
		})
		fired := set(0, "last")
		synctest.Wait()
		isTrue(t, "one that has fired cannot be stopped", !fired.Stop())
		testkit.Equal(t, "pending", l.Counts().Timers, 1)
	})
}

func TestEvery_SkipsMissedPeriods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startedIn(t, t.Context())
		began := time.Now()
		var got []time.Duration
		var tick *eventloop.Timer
		runOn(t, l, func() {
			tick, _ = l.Every(time.Second, func() {
				got = append(got, time.Since(began))
				switch len(got) {
				case 2:
					// The timer skips the calls that become due during this sleep, at 3 s and 4 s.
					time.Sleep(2500 * time.Millisecond)
				case 4:
					isTrue(t, "stopped by its own call", tick.Stop())
				}
			})
		})
		time.Sleep(time.Minute)
		synctest.Wait()
		testkit.Equal(t, "calls", got, []time.Duration{1 * time.Second, 2 * time.Second, 4500 * time.Millisecond, 5 * time.Second})
	})
}

// Callbacks run even if timers fire all the time: one timer has a period of a nanosecond, and
// another one sets itself again, without a delay, whenever it fires.
func TestTimers_WithShortPeriodsDoNotStarveCallbacks(t *testing.T) {
	l := startLoop(t)
	runOn(t, l, func() {
		l.Every(1, func() {})
		var again func()
		again = func() { l.After(0, again) }
		again()
	})
	for range 100 {
		runOn(t, l, func() {})
	}
}

// Callbacks run even if a timer is always due. In the test, each timer sets the next one, for the
// present time, and the time does not advance in the synctest bubble. So a timer is always due.
func TestTimers_ThatAreAlwaysDueDoNotStarveCallbacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startedIn(t, t.Context())
		var posted, ran atomic.Int64
		// timers counts the timers that run while a posted callback waits to run. At other times it
		// is 0, because then the scheduler decides how many timers run.
		timers := 0
		begun := make(chan struct{})
		var again func()
		again = func() {
			if posted.Load() > ran.Load() {
				timers++
			} else {
				timers = 0
			}
			if timers > 10_000 {
				panic("the loop does nothing else")
			}
			l.After(0, again)
		}
		runOn(t, l, func() { l.After(0, func() { close(begun); again() }) })
		<-begun
		for range 100 {
			done := make(chan struct{})
			isTrue(t, "it is taken", l.Post(func() { ran.Add(1); close(done) }))
			posted.Add(1)
			receive(t, "the callback", done)
		}
		awaitDone(t, l.Stop())
	})
}

// Stop cancels and counts the timers that are pending. After that, new timers are refused.
func TestTimers_AreCancelledByStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startedIn(t, t.Context())
		var timers []*eventloop.Timer
		l.Post(func() {
			for range 3 {
				timer, _ := l.After(time.Second, never(t, "a timer after the stop"))
				timers = append(timers, timer)
			}
			tick, _ := l.Every(time.Second, never(t, "a ticking timer after the stop"))
			timers = append(timers, tick)
			timers[0].Stop()
			time.Sleep(2 * time.Second) // by now the timers are due
			l.Stop()
			_, err := l.After(0, never(t, "a timer set after the stop"))
			testkit.ErrorIs(t, "After", err, eventloop.ErrStopped)
		})
		awaitDone(t, l.Scope().Completion())
		testkit.Equal(t, "cancelled", l.Stats().Snapshot().CancelledTimers, uint64(3))
		for _, timer := range timers {
			isTrue(t, "a cancelled timer cannot be stopped", !timer.Stop())
		}
		time.Sleep(time.Hour)
	})
}

// Goroutines set and stop timers while the timers fire. Each timer either fires or is stopped.
func TestTimers_EitherFireOrAreStopped(t *testing.T) {
	l := startLoop(t)
	for range 2_000 {
		fired := make(chan struct{})
		timer, err := l.After(1, func() { close(fired) })
		if err != nil {
			t.Fatal(err)
		}
		if timer.Stop() {
			select {
			case <-fired:
				t.Fatal("a timer was stopped and has fired")
			default:
			}
		} else {
			receive(t, "the call", fired)
		}
	}
	runOn(t, l, func() {})
	testkit.Equal(t, "pending", l.Counts().Timers, 0)
}

// A timer that becomes due while the loop runs a long queue fires after the running callback, not
// after the whole queue.
func TestTimers_FireBetweenCallbacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startedIn(t, t.Context())
		free := block(t, l)
		began := time.Now()
		var fired time.Duration
		_, err := l.After(1500*time.Millisecond, func() { fired = time.Since(began) })
		testkit.ErrorIs(t, "After", err, nil)
		for range 100 {
			l.Post(func() { time.Sleep(time.Second) })
		}
		free()
		testkit.ErrorIs(t, "Quiesce", l.Quiesce(time.Hour), nil)
		testkit.Equal(t, "fired", fired, 2*time.Second)
		testkit.Equal(t, "the queue took", time.Since(began), 100*time.Second)
	})
}
