package eventloop_test

import (
	"fmt"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swansong-go/swansong/eventloop"
)

func TestTimersFireInOrder(t *testing.T) {
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
		does(t, l, func() {
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
		does(t, l, func() {
			equal(t, "calls", got, []string{"negative at 0s", "zero at 0s", "more negative at 0s", "a at 1s", "a, second at 1s", "b at 2s", "c at 3s"})
		})
		fired := set(0, "last")
		synctest.Wait()
		isTrue(t, "one that has fired cannot be stopped", !fired.Stop())
		equal(t, "pending", l.Counts().Timers, 1)
	})
}

func TestEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startedIn(t, t.Context())
		began := time.Now()
		var got []time.Duration
		var tick *eventloop.Timer
		does(t, l, func() {
			tick, _ = l.Every(time.Second, func() {
				got = append(got, time.Since(began))
				switch len(got) {
				case 2:
					time.Sleep(2500 * time.Millisecond) // the calls at 3 and 4 are left out
				case 4:
					isTrue(t, "stopped by its own call", tick.Stop())
				}
			})
		})
		time.Sleep(time.Minute)
		synctest.Wait()
		equal(t, "calls", got, []time.Duration{1 * time.Second, 2 * time.Second, 4500 * time.Millisecond, 5 * time.Second})
	})
}

// A timer that is set by one that is due does not keep the callbacks waiting, and a period that is too short does not either.
func TestTimersLeaveRoom(t *testing.T) {
	l := started(t)
	does(t, l, func() {
		l.Every(1, func() {})
		var again func()
		again = func() { l.After(0, again) }
		again()
	})
	for range 100 {
		does(t, l, func() {})
	}
}

// In a bubble, where the time stands still, a timer that sets the next is due for ever.
func TestTimersStarveNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startedIn(t, t.Context())
		var posted, ran atomic.Int64
		timers := 0 // that have run while a callback waited: how many do while there is none, is for the scheduler to say
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
		does(t, l, func() { l.After(0, func() { close(begun); again() }) })
		<-begun
		for range 100 {
			done := make(chan struct{})
			isTrue(t, "it is taken", l.Post(func() { ran.Add(1); close(done) }))
			posted.Add(1)
			comes(t, "the callback", done)
		}
		drains(t, l.Stop())
	})
}

// Those pending when the loop is told to stop are cancelled and counted, and those set later are refused.
func TestTimersAtStop(t *testing.T) {
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
			time.Sleep(2 * time.Second) // they are due
			l.Stop()
			_, err := l.After(0, never(t, "a timer set after the stop"))
			is(t, "After", err, eventloop.ErrStopped)
		})
		drains(t, l.Scope().Completion())
		equal(t, "cancelled", l.Stats().Snapshot().CancelledTimers, uint64(3))
		for _, timer := range timers {
			isTrue(t, "a cancelled timer cannot be stopped", !timer.Stop())
		}
		time.Sleep(time.Hour)
	})
}

// Timers that are set, stopped and fire from many goroutines: each fires or is stopped, never both.
func TestTimerStopRaces(t *testing.T) {
	l := started(t)
	for range 2_000 {
		fired := make(chan struct{})
		timer, err := l.After(1, func() { close(fired) })
		if err != nil {
			t.Fatal(err)
		}
		if timer.Stop() {
			select {
			case <-fired:
				t.Fatal("stopped, and fired")
			default:
			}
		} else {
			comes(t, "the call", fired)
		}
	}
	does(t, l, func() {})
	equal(t, "pending", l.Counts().Timers, 0)
}

// A timer that becomes due while the loop is at a long queue comes after the callback that is running, and not after all.
func TestTimersFireBetweenCallbacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startedIn(t, t.Context())
		free := busy(t, l)
		began := time.Now()
		var fired time.Duration
		_, err := l.After(1500*time.Millisecond, func() { fired = time.Since(began) })
		is(t, "After", err, nil)
		for range 100 {
			l.Post(func() { time.Sleep(time.Second) })
		}
		free()
		is(t, "Quiesce", l.Quiesce(time.Hour), nil)
		equal(t, "fired", fired, 2*time.Second)
		equal(t, "the queue took", time.Since(began), 100*time.Second)
	})
}
