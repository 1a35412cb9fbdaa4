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

// The test visits every state that a small group can reach, whatever its instances do and in
// whatever order. Each history has one failure or one order of a user, and in groups of up to two
// instances up to two; ROLL_TROUBLE=2 allows two in all groups, which takes a minute. No state may
// violate an invariant. If everything succeeds after a state, the roll must end or pause, and a
// paused roll must end after it has been resumed.
func TestNext_ViolatesNoInvariantInAnyStateOfSmallGroups(t *testing.T) {
	least, states := 1, 0
	if s := os.Getenv("ROLL_TROUBLE"); s != "" {
		var err error
		if least, err = strconv.Atoi(s); err != nil {
			t.Fatalf("ROLL_TROUBLE: %v", err)
		}
	}
	for _, p := range []struct {
		name   string
		policy roll.OnFailure
	}{{"pause", roll.Pause}, {"rollback", roll.Rollback}, {"continue", roll.Continue}} {
		t.Run(p.name, func(t *testing.T) {
			everyConfig(func(c roll.Config) {
				for canary := range min(c.Desired, 2) {
					c := c
					c.OnFailure, c.Canary, c.Retries = p.policy, canary, c.MaxSurge%2
					c.MinReady = time.Duration(c.MinHealthy%2) * time.Second
					trouble := least
					if c.Desired <= 2 {
						trouble = max(trouble, 2)
					}
					states += explore(t, c, trouble)
					if canary > 0 && p.policy != roll.Rollback {
						c.OnlyForward = true
						states += explore(t, c, trouble)
					}
				}
			})
		})
	}
	t.Log(states, "states")
}

// explore visits each state of one configuration once and returns the number of states.
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
		w.checkEnds(t, known)
		work = append(work, w.branches()...)
	}
	return len(seen)
}

// branches returns a copy of w for each event that is possible next. In each copy, one of the
// events has happened.
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
			// the events of an instance that is equal except for its ID have been tried
			continue
		}
		switch i.Health {
		case roll.Starting:
			branch(func(w *world) { w.becomeReady(k) })
			trouble(func(w *world) { w.becomeUnhealthy(k) })
			trouble(func(w *world) { w.end(k) })
		case roll.Ready:
			if !w.available(i) {
				branch(func(w *world) { w.makeAvailable(k) })
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

// checkEnds lets everything succeed from the current state on, and checks that the roll ends. It
// stops early at a state in known: the roll is known to end from each of these.
func (w *world) checkEnds(t *testing.T, known map[situation]bool) {
	w = w.fork()
	var way []situation
	for !w.state.Phase.Ended() && len(w.broken) == 0 {
		now := w.situation()
		if known[now] {
			break
		}
		if way = append(way, now); len(way) > maxActions {
			w.breach("does not end")
		}
		_, moved := w.succeed()
		for k, i := range w.view.Instances {
			if i.Health == roll.Ready && !w.available(i) {
				w.makeAvailable(k)
				moved = true
			}
		}
		switch {
		case moved:
		case w.state.Paused:
			w.state = w.state.Resume(w.config, w.view)
		case !w.state.Phase.Ended():
			w.breach("waits although nothing will happen")
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

// A situation is the state of a world without the ids of instances.
type situation struct {
	instances [2][5]int // numbers of instances by version and health; index 4 counts those that are ready but not available
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
