package roll_test

import (
	"strings"
	"testing"
	"time"

	"github.com/swansong-go/swansong/launcher/internal/roll"
)

// TestKeepModel looks at every small group, however it is: none of the promises of Keep is broken, and if all goes well it
// comes to as many instances as are desired, all of them available.
func TestKeepModel(t *testing.T) {
	groups := 0
	everyConfig(func(c roll.Config) {
		if c.Desired > 3 {
			return
		}
		c.MinReady = time.Second
		everyGroup(c, func(w *world) {
			groups++
			for range endless {
				if !w.keeps() {
					break
				}
			}
			live := func(i roll.Instance) bool { return i.Health != roll.Stopping && i.Health != roll.Unhealthy }
			if n := w.count(live); n != c.Desired || w.count(w.available) != n {
				w.breach("it ends with %d instances, %d of them available", n, w.count(w.available))
			}
			if len(w.broken) > 0 {
				t.Fatalf("%+v: %s\n%s", c, strings.Join(w.broken, "; "), strings.Join(w.log, "\n"))
			}
		})
	})
	t.Log(groups, "groups")
}

// everyGroup calls f with every group of up to Desired + MaxSurge + 1 instances.
func everyGroup(c roll.Config, f func(*world)) {
	most := c.Desired + c.MaxSurge + 1
	var add func(w *world, from int)
	add = func(w *world, from int) {
		f(w.fork())
		if len(w.view.Instances) == most {
			return
		}
		for kind := from; kind < 10; kind++ {
			next := w.fork()
			next.add(roll.Version(kind/5), roll.Health(kind%5%4))
			if last := len(next.view.Instances) - 1; kind%5 == int(roll.Ready) {
				next.prove(last)
			} else if kind%5 == 4 { // ready, and yet to prove itself
				next.view.Instances[last].Health = roll.Ready
			}
			next.log = nil
			add(next, kind)
		}
	}
	w := newWorld(c, 0)
	w.view.Now = time.Minute
	add(w, 0)
}

// keeps does what Keep says until that is nothing, lets all that is under way succeed, and reports whether anything was.
func (w *world) keeps() (moved bool) {
	for range endless {
		before := w.count(w.available)
		a := roll.Keep(w.config, w.view, false)
		switch a.Do {
		case roll.Start:
			w.add(roll.New, roll.Starting)
			w.note("start")
			if n := len(w.view.Instances); n > w.config.Desired+w.config.MaxSurge {
				w.breach("%d instances exist after a start", n)
			}
		case roll.Stop:
			k := w.at(a.ID)
			i := &w.view.Instances[k]
			was := i.Health
			i.Health = roll.Stopping
			w.note("stop %s", a.ID)
			if n := w.count(w.available); was == roll.Ready && n < w.config.MinHealthy {
				w.breach("%d are available after the stop of %s, before it %d", n, a.ID, before)
			}
		default:
			for k := len(w.view.Instances) - 1; k >= 0; k-- {
				switch i := w.view.Instances[k]; {
				case i.Health == roll.Starting:
					w.becomeReady(k)
					moved = true
				case i.Health == roll.Ready && !w.available(i):
					w.prove(k)
					moved = true
				case i.Health == roll.Stopping || i.Health == roll.Unhealthy:
					w.end(k)
					moved = true
				}
			}
			return moved
		}
	}
	w.breach("does not stop acting")
	return false
}
