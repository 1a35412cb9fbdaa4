package roll_test

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/swansong-go/swansong/launcher/internal/roll"
)

// TestModel looks at every state that a small group can get into, whatever its instances do and in whatever order: they are
// late, and there is trouble, of which there is more than one piece in groups of up to two, or with ROLL_TROUBLE=2 in all
// of them (a minute). No promise is broken in any of them. From each of them a roll whose instances do well from then on comes
// to an end, or to a pause; and from there, once it is resumed, to an end.
func TestModel(t *testing.T) {
	least, states := 1, 0
	if s := os.Getenv("ROLL_TROUBLE"); s != "" {
		var err error
		if least, err = strconv.Atoi(s); err != nil {
			t.Fatalf("ROLL_TROUBLE: %v", err)
		}
	}
	everyConfig(func(c roll.Config) {
		for policy := roll.Pause; policy <= roll.Continue; policy++ {
			for canary := range min(c.Desired, 2) {
				c := c
				c.OnFailure, c.Canary, c.Retries = policy, canary, c.MaxSurge%2
				c.MinReady = time.Duration(c.MinHealthy%2) * time.Second
				trouble := least
				if c.Desired <= 2 {
					trouble = max(trouble, 2)
				}
				states += explore(t, c, trouble)
				if canary > 0 && policy != roll.Rollback {
					c.OnlyForward = true
					states += explore(t, c, trouble)
				}
			}
		}
	})
	t.Log(states, "states")
}

// explore visits the states of one configuration, each once, and returns how many these are.
func explore(t *testing.T, c roll.Config, trouble int) int {
	seen, known := map[situation]bool{}, map[situation]bool{}
	first := newWorld(c, c.Desired)
	first.terse, first.trouble = true, trouble
	work := []*world{first}
	for len(work) > 0 {
		w := work[len(work)-1]
		work = work[:len(work)-1]
		w.act()
		if len(w.broken) > 0 {
			t.Fatalf("%+v: %s: %+v", c, strings.Join(w.broken, "; "), w)
		}
		now := w.situation()
		if seen[now] {
			continue
		}
		seen[now] = true
		if w.state.Phase.Ended() {
			continue
		}
		w.comesToAnEnd(t, known)
		work = append(work, w.branches()...)
	}
	return len(seen)
}

// branches returns the worlds that can come next.
func (w *world) branches() (all []*world) {
	branch := func(what func(*world)) {
		next := w.fork()
		what(next)
		all = append(all, next)
	}
	trouble := func(what func(*world)) {
		if w.trouble > 0 {
			branch(func(w *world) { w.trouble--; what(w) })
		}
	}
	for k, i := range w.view.Instances {
		if slices.ContainsFunc(w.view.Instances[:k], func(o roll.Instance) bool { o.ID = i.ID; return o == i }) {
			continue // the same has happened to another one
		}
		switch i.Health {
		case roll.Starting:
			branch(func(w *world) { w.becomeReady(k) })
			trouble(func(w *world) { w.becomeUnhealthy(k) })
			trouble(func(w *world) { w.end(k) })
		case roll.Ready:
			if !w.available(i) {
				branch(func(w *world) { w.prove(k) })
			}
			trouble(func(w *world) { w.becomeUnhealthy(k) })
			trouble(func(w *world) { w.end(k) })
			if !w.config.OnlyForward {
				trouble(func(w *world) { w.restart(k) })
			}
		default:
			branch(func(w *world) { w.end(k) })
		}
	}
	if !w.config.OnlyForward {
		trouble(func(w *world) { w.state = w.state.Rollback(w.config, w.view, "by order") })
	}
	if w.state.Paused {
		trouble(func(w *world) { w.state = w.state.Resume(w.config, w.view) })
	}
	return all
}

// comesToAnEnd lets all go well from here on, as far as a state of which is known that it comes to an end.
func (w *world) comesToAnEnd(t *testing.T, known map[situation]bool) {
	w = w.fork()
	var way []situation
	for !w.state.Phase.Ended() && len(w.broken) == 0 {
		now := w.situation()
		if known[now] {
			break
		}
		if way = append(way, now); len(way) > endless {
			w.breach("does not come to an end")
		}
		_, moved := w.succeed()
		for k, i := range w.view.Instances {
			if i.Health == roll.Ready && !w.available(i) {
				w.prove(k)
				moved = true
			}
		}
		switch {
		case moved:
		case w.state.Paused:
			w.state = w.state.Resume(w.config, w.view)
		case !w.state.Phase.Ended():
			w.breach("waits for nothing")
		}
	}
	if len(w.broken) > 0 {
		t.Fatalf("%+v: %s: %+v", w.config, strings.Join(w.broken, "; "), w)
	}
	for _, s := range way {
		known[s] = true
	}
}

func (w *world) fork() *world {
	c := *w
	c.view.Instances = slices.Clone(w.view.Instances)
	return &c
}

// A situation is a state, whatever the names in it.
type situation struct {
	instances [2][5]int // by version, and by health; the last are those that have yet to prove themselves
	failures  [2]int
	trouble   int
	state     roll.State
}

func (w *world) situation() situation {
	s := situation{failures: w.view.Failures, trouble: w.trouble, state: w.state}
	for _, i := range w.view.Instances {
		h := int(i.Health)
		if i.Health == roll.Ready && !w.available(i) {
			h = 4
		}
		s.instances[i.Version][h]++
	}
	return s
}
