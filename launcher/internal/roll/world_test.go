package roll_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/swansong-go/swansong/launcher/internal/roll"
)

// A world is a simulated group. The test moves its clock and decides whether its instances become
// ready, end or fail. The world starts and stops what the roll decides, and checks every decision
// against the invariants.
type world struct {
	config roll.Config
	state  roll.State
	view   roll.View
	next   int
	log    []string
	terse  bool     // if set, the world keeps no log
	broken []string // descriptions of violated invariants

	scaledDown int // instances that were scaled down
	// trouble is for the test of all states: how many more failures and orders of users it lets
	// happen.
	trouble int
}

func newWorld(c roll.Config, old int) *world {
	w := &world{config: c}
	for range old {
		w.add(roll.Old, roll.Ready)
	}
	w.view.Now += c.MinReady
	w.state = roll.Begin(c, w.view)
	return w
}

func (w *world) add(v roll.Version, h roll.Health) {
	w.next++
	w.view.Instances = append(w.view.Instances, roll.Instance{ID: fmt.Sprint(v, "-", w.next), Version: v, Health: h, Since: w.view.Now})
}

func (w *world) note(format string, args ...any) {
	if w.terse {
		return
	}
	w.log = append(w.log, fmt.Sprintf("%v ", w.view.Now)+fmt.Sprintf(format, args...))
}

func (w *world) breach(format string, args ...any) {
	w.broken = append(w.broken, fmt.Sprintf(format, args...))
	w.note("BROKEN: "+format, args...)
}

// count returns the number of instances for which the function what returns true.
func (w *world) count(what func(roll.Instance) bool) (n int) {
	for _, i := range w.view.Instances {
		if what(i) {
			n++
		}
	}
	return n
}

func ready(i roll.Instance) bool { return i.Health == roll.Ready }

func (w *world) available(i roll.Instance) bool {
	return ready(i) && w.view.Now-i.Since >= w.config.MinReady
}

func of(v roll.Version) func(roll.Instance) bool {
	return func(i roll.Instance) bool { return i.Version == v }
}

// maxActions is larger than the number of actions that any group in these tests needs in a row.
const maxActions = 100

// act carries out the decisions of the roll, which start and stop processes, until the roll has to
// wait. It returns the time at which the wait ends. act checks each action against the invariants.
func (w *world) act() time.Duration {
	for range maxActions {
		before := w.state
		state, action := roll.Next(w.config, w.state, w.view)
		w.state = state
		if before.Phase != state.Phase || before.Paused != state.Paused || before.GivenUp != state.GivenUp {
			w.note("%v paused=%v given up=%d: %s", state.Phase, state.Paused, state.GivenUp, state.Why)
		}
		if w.config.OnFailure == roll.Continue && before.Phase != state.Phase && state.Phase == roll.RollingBack && w.config.Desired == 0 {
			w.breach("is rolled back although none is desired")
		}
		switch action.Do {
		case roll.Wait:
			w.checkWait()
			if action.Until != 0 && action.Until <= w.view.Now {
				w.breach("waits until %v, which is past", action.Until)
			}
			return action.Until
		case roll.Start:
			w.note("start %v", action.Version)
			w.add(action.Version, roll.Starting)
			if n := len(w.view.Instances); n > w.config.Desired+w.config.MaxSurge {
				w.breach("%d instances exist after a start", n)
			}
			if w.state.Paused {
				w.breach("a paused roll starts an instance")
			}
			going := func(i roll.Instance) bool { return i.Version == roll.New && i.Health != roll.Stopping }
			most := w.config.Canary
			if w.config.OnlyForward {
				most = max(most, w.config.Desired-w.count(w.usable(roll.Old)))
			}
			if n := w.count(going); w.state.Phase == roll.Canary && n > most && action.Version == roll.New {
				w.breach("%d new instances in the canary phase", n)
			}
			if w.config.OnlyForward && action.Version == roll.Old {
				w.breach("starts an old instance with OnlyForward")
			}
		case roll.Stop:
			k := slices.IndexFunc(w.view.Instances, func(i roll.Instance) bool { return i.ID == action.ID })
			if k < 0 || w.view.Instances[k].Health == roll.Stopping {
				w.breach("stops %q, which does not exist or is stopping", action.ID)
				return 0
			}
			i := &w.view.Instances[k]
			w.note("stop %s: %s", i.ID, action.Why)
			if n := w.count(func(i roll.Instance) bool { return i.Health != roll.Stopping }); action.Surplus && n <= w.config.Desired {
				w.breach("%s is called surplus among %d, but %d are desired", i.ID, n, w.config.Desired)
			}
			was := i.Health
			i.Health = roll.Stopping
			if n := w.count(w.available); was == roll.Ready && n < w.config.MinHealthy {
				w.breach("%d are available after the stop of %s, which was ready", n, i.ID)
			}
			if w.state.Paused && was != roll.Unhealthy {
				w.breach("a paused roll stops %s", i.ID)
			}
		}
	}
	w.breach("acts without end")
	return 0
}

// checkWait reports a fault if the roll waits although an instance is missing and may be started.
// It checks only rolls with OnlyForward: in other rolls, the caller replaces old instances that
// fail.
func (w *world) checkWait() {
	c, s := w.config, w.state
	if !c.OnlyForward || s.Paused || s.Phase.Ended() || w.view.Now < s.Retry || len(w.view.Instances) >= c.Desired+c.MaxSurge {
		return
	}
	if n := w.count(w.usable(roll.Old)) + w.count(w.usable(roll.New)); n < c.Desired-s.GivenUp {
		w.breach("waits with %d instances, but %d are desired", n, c.Desired-s.GivenUp)
	}
}

// usable selects instances that are neither stopping nor unhealthy.
func (w *world) usable(v roll.Version) func(roll.Instance) bool {
	return func(i roll.Instance) bool {
		return i.Version == v && (i.Health == roll.Starting || i.Health == roll.Ready)
	}
}

// The following methods simulate the events that can happen to an instance.

func (w *world) becomeReady(k int) {
	w.view.Instances[k].Health, w.view.Instances[k].Since = roll.Ready, w.view.Now
	w.note("%s is ready", w.view.Instances[k].ID)
}

func (w *world) becomeUnhealthy(k int) {
	w.view.Instances[k].Health = roll.Unhealthy
	w.view.Failures[w.view.Instances[k].Version]++
	w.note("%s is unhealthy", w.view.Instances[k].ID)
}

// restart simulates that the restart policy starts an instance again. It does not change the number
// of failures.
func (w *world) restart(k int) {
	w.view.Instances[k].Health = roll.Starting
	w.note("%s is restarted", w.view.Instances[k].ID)
}

// makeAvailable simulates that an instance has stayed ready for MinReady.
func (w *world) makeAvailable(k int) {
	w.view.Instances[k].Since = w.view.Now - w.config.MinReady
	w.note("%s has stayed ready", w.view.Instances[k].ID)
}

// end removes an instance. That is a crash unless the instance was stopping.
func (w *world) end(k int) {
	i := w.view.Instances[k]
	if i.Health == roll.Starting || i.Health == roll.Ready {
		w.view.Failures[i.Version]++
		w.note("%s crashes", i.ID)
	} else {
		w.note("%s has ended", i.ID)
	}
	w.view.Instances = slices.Delete(slices.Clone(w.view.Instances), k, k+1)
}

// scaleDown simulates that a user stops an instance without a replacement.
func (w *world) scaleDown(k int) {
	i := &w.view.Instances[k]
	if w.over() || w.config.Desired == 0 || i.Health == roll.Stopping {
		return
	}
	w.scaledDown++
	w.state = w.state.ScaleDown(w.config, w.view, i.ID)
	w.scale(w.config.Desired - 1)
	i.Health = roll.Stopping
	w.note("%s is scaled down", i.ID)
}

// scale changes the number of desired instances.
func (w *world) scale(desired int) {
	c := &w.config
	c.Desired = desired
	c.Canary, c.MinHealthy = min(c.Canary, desired), min(c.MinHealthy, desired)
	if c.MaxSurge == 0 {
		c.MinHealthy = max(0, min(c.MinHealthy, desired-1))
	}
}

// over reports whether the roll has ended or is paused.
func (w *world) over() bool { return w.state.Phase.Ended() || w.state.Paused }

// settle lets everything succeed and time pass until the roll has ended or is paused.
func (w *world) settle() {
	for range maxActions * 10 {
		until, moved := w.succeed()
		switch {
		case moved:
		case w.over():
			return
		case until != 0:
			w.view.Now = until
		default:
			w.breach("waits although nothing will happen")
			return
		}
	}
	w.breach("does not end")
}

// succeed makes all starting instances ready and ends all stopping ones. It reports whether there
// were any such instances.
func (w *world) succeed() (until time.Duration, moved bool) {
	until = w.act()
	for k := len(w.view.Instances) - 1; k >= 0; k-- {
		switch i := w.view.Instances[k]; i.Health {
		case roll.Starting:
			w.becomeReady(k)
			moved = true
		case roll.Stopping:
			w.end(k)
			moved = true
		}
	}
	return until, moved
}
