package roll_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/swansong-go/swansong/launcher/internal/roll"
)

// A world is a group whose instances do what a test says, on a clock that stands still until the test moves it. It does
// what the roll decides, and keeps the books on what the roll promises.
type world struct {
	config roll.Config
	state  roll.State
	view   roll.View
	next   int
	log    []string
	terse  bool     // keeps no log: there are too many worlds
	broken []string // promises

	through int // instances, in complete
	ordered int // fewer, in fewer
	trouble int // that may still come, where that is counted
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

// count counts instances; available ones are ready for MinReady.
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

// endless is more actions in a row than any group here needs.
const endless = 100

// act does what the roll wants until it waits, and returns until when. It checks each action against the promises.
func (w *world) act() time.Duration {
	for range endless {
		before := w.state
		state, action := roll.Next(w.config, w.state, w.view)
		w.state = state
		if before.Phase != state.Phase || before.Paused != state.Paused || before.GivenUp != state.GivenUp {
			w.note("%v paused=%v given up=%d: %s", state.Phase, state.Paused, state.GivenUp, state.Why)
		}
		if w.config.OnFailure == roll.Continue && before.Phase != state.Phase && state.Phase == roll.RollingBack && (w.through > 0 || w.config.Desired == 0) {
			w.breach("turns back, and %d are through, %d desired", w.through, w.config.Desired)
		}
		switch action.Do {
		case roll.Wait:
			w.mindsTheGap()
			if action.Until != 0 && action.Until <= w.view.Now {
				w.breach("waits for what is past: %v", action.Until)
			}
			return action.Until
		case roll.Start:
			w.note("start %v", action.Version)
			w.add(action.Version, roll.Starting)
			if n := len(w.view.Instances); n > w.config.Desired+w.config.MaxSurge {
				w.breach("%d instances exist after a start", n)
			}
			if w.state.Paused {
				w.breach("a paused roll starts something")
			}
			going := func(i roll.Instance) bool { return i.Version == roll.New && i.Health != roll.Stopping }
			most := w.config.Canary
			if w.config.OnlyForward {
				most = max(most, w.config.Desired-w.count(w.hale(roll.Old)))
			}
			if n := w.count(going); w.state.Phase == roll.Canary && n > most && action.Version == roll.New {
				w.breach("%d go ahead of the others", n)
			}
			if w.config.OnlyForward && action.Version == roll.Old {
				w.breach("starts an old one, and nobody can")
			}
		case roll.Stop:
			k := slices.IndexFunc(w.view.Instances, func(i roll.Instance) bool { return i.ID == action.ID })
			if k < 0 || w.view.Instances[k].Health == roll.Stopping {
				w.breach("stops %q, which is not there to stop", action.ID)
				return 0
			}
			i := &w.view.Instances[k]
			w.note("stop %s: %s", i.ID, action.Why)
			if n := w.count(func(i roll.Instance) bool { return i.Health != roll.Stopping }); action.Why == roll.Surplus && n <= w.config.Desired {
				w.breach("%s is one too many of %d, and %d are desired", i.ID, n, w.config.Desired)
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
	w.breach("does not stop acting")
	return 0
}

// mindsTheGap looks, whenever the roll waits, whether it should rather have started somebody, where nobody else would.
func (w *world) mindsTheGap() {
	c, s := w.config, w.state
	if !c.OnlyForward || s.Paused || s.Phase.Ended() || w.view.Now < s.Retry || len(w.view.Instances) >= c.Desired+c.MaxSurge {
		return
	}
	if n := w.count(w.hale(roll.Old)) + w.count(w.hale(roll.New)); n < c.Desired-s.GivenUp {
		w.breach("waits with %d, and %d are desired", n, c.Desired-s.GivenUp)
	}
}

// hale is who runs and is not given up on.
func (w *world) hale(v roll.Version) func(roll.Instance) bool {
	return func(i roll.Instance) bool {
		return i.Version == v && (i.Health == roll.Starting || i.Health == roll.Ready)
	}
}

// What can become of an instance.

func (w *world) becomeReady(k int) {
	w.view.Instances[k].Health, w.view.Instances[k].Since = roll.Ready, w.view.Now
	w.note("%s is ready", w.view.Instances[k].ID)
}

func (w *world) becomeUnhealthy(k int) {
	w.view.Instances[k].Health = roll.Unhealthy
	w.view.Failures[w.view.Instances[k].Version]++
	w.note("%s is unhealthy", w.view.Instances[k].ID)
}

// restart has the restart policy put one in the place of an instance that has crashed, so that nothing has failed yet.
func (w *world) restart(k int) {
	w.view.Instances[k].Health = roll.Starting
	w.note("%s is restarted", w.view.Instances[k].ID)
}

// prove has an instance stay ready for as long as it takes to be counted on.
func (w *world) prove(k int) {
	w.view.Instances[k].Since = w.view.Now - w.config.MinReady
	w.note("%s has stayed ready", w.view.Instances[k].ID)
}

// end takes an instance away, which is a crash unless it was on its way.
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

// complete has an instance of the target end as it should, and nobody is to follow. Others it does nothing to.
func (w *world) complete(k int) {
	i := w.view.Instances[k]
	if back := w.state.Phase == roll.RollingBack; w.over() || w.config.Desired == 0 || back != (i.Version == roll.Old) {
		return
	}
	w.through++
	if i.Version == roll.New {
		w.config.Canary = max(0, w.config.Canary-1)
	}
	w.scale(w.config.Desired - 1)
	w.state = w.state.Completed(w.view.Now)
	w.note("%s is through", i.ID)
	w.view.Instances = slices.Delete(slices.Clone(w.view.Instances), k, k+1)
}

// fewer has an instance stop by an order, and nobody is to follow, wherever the roll leads.
func (w *world) fewer(k int) {
	i := &w.view.Instances[k]
	if w.over() || w.config.Desired == 0 || i.Health == roll.Stopping {
		return
	}
	w.ordered++
	w.state = w.state.OneFewer(w.config, w.view, i.ID)
	w.scale(w.config.Desired - 1)
	i.Health = roll.Stopping
	w.note("%s is to stop, and nobody is to follow", i.ID)
}

// scale has another number of instances be desired.
func (w *world) scale(desired int) {
	c := &w.config
	c.Desired = desired
	c.Canary, c.MinHealthy = min(c.Canary, desired), min(c.MinHealthy, desired)
	if c.MaxSurge == 0 {
		c.MinHealthy = max(0, min(c.MinHealthy, desired-1))
	}
}

// over reports whether the roll is over, or waits for an order.
func (w *world) over() bool { return w.state.Phase.Ended() || w.state.Paused }

// settle lets everything that is under way succeed, and time pass, until the roll is over or nothing moves any more.
func (w *world) settle() {
	for range endless * 10 {
		until, moved := w.succeed()
		switch {
		case moved:
		case w.over():
			return
		case until != 0:
			w.view.Now = until
		default:
			w.breach("waits for nothing")
			return
		}
	}
	w.breach("does not come to an end")
}

// succeed lets everything that is under way succeed, if anything is.
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
