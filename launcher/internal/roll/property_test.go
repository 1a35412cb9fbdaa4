package roll_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/swansong-go/swansong/launcher/internal/roll"
)

// everyConfig calls f with every small configuration that is valid.
func everyConfig(f func(c roll.Config)) {
	for desired := range 7 {
		for surge := range 4 {
			for least := range desired + 1 {
				if surge > 0 || least < desired || desired == 0 {
					f(roll.Config{Desired: desired, MaxSurge: surge, MinHealthy: least})
				}
			}
		}
	}
}

// seedOf returns the number in the environment variable ROLL_SEED, which repeats a run, or a new
// random seed.
func seedOf(t *testing.T) uint64 {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("ROLL_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("ROLL_SEED: %v", err)
		}
	}
	t.Logf("to repeat this: ROLL_SEED=%d", seed)
	return seed
}

// The test rolls every small group while instances crash, become ready late and end slowly,
// and while users scale the group down, all at random. Every decision must keep the limits of the
// group.
func TestNext_KeepsLimitsDuringRandomFailures(t *testing.T) {
	seed, n := seedOf(t), uint64(0)
	rounds := 12
	if testing.Short() {
		rounds = 2
	}
	outcomes := map[string]int{}
	everyConfig(func(c roll.Config) {
		for round := range rounds {
			n++
			r := rand.New(rand.NewPCG(seed, n))
			c := c
			c.OnFailure = roll.OnFailure(round % 3)
			c.Retries = r.IntN(3)
			c.MinReady = time.Duration(r.IntN(3)) * time.Second
			c.Backoff, c.MaxBackoff = time.Duration(r.IntN(3))*time.Second, 3*time.Second
			if c.Desired > 0 && r.IntN(2) == 0 {
				c.Canary, c.CanaryWait = r.IntN(c.Desired+1), time.Duration(r.IntN(20))*time.Second
			}
			if r.IntN(2) == 0 {
				c.ProgressDeadline = 10 * time.Second
			}
			c.OnlyForward = c.OnFailure != roll.Rollback && r.IntN(2) == 0
			old := c.Desired
			if r.IntN(3) == 0 {
				old = r.IntN(9) // the group may have more or fewer instances after a change of Desired or after crashes
			}
			w := newWorld(c, old)
			storm(w, r)
			name := w.state.Phase.String()
			if w.state.Paused {
				name = "paused " + name
			}
			outcomes[name]++
			if len(w.broken) > 0 {
				t.Fatalf("%+v, %d old instances: %s\n%s", c, old, strings.Join(w.broken, "; "), strings.Join(w.log, "\n"))
			}
		}
	})
	t.Log(n, "rolls:", outcomes)
	for _, want := range []string{"done", "degraded", "rolled back", "paused rolling", "paused rolling back", "paused canary"} {
		if outcomes[want] == 0 && !testing.Short() {
			t.Errorf("none of %d rolls ended %s", n, want)
		}
	}
}

// storm lets random events happen for a while, and then lets everything succeed.
func storm(w *world, r *rand.Rand) {
	crashes, slow := r.IntN(8), 20+r.IntN(40)
	for range slow {
		until := w.act()
		if len(w.broken) > 0 || w.state.Phase.Ended() {
			break
		}
		if w.state.Paused {
			if r.IntN(3) > 0 {
				break
			}
			switch {
			case w.config.OnlyForward || r.IntN(2) == 0:
				w.note("resume")
				w.state = w.state.Resume(w.config, w.view)
			default:
				w.note("rollback")
				w.state = w.state.Rollback(w.config, w.view, "by order")
			}
			continue
		}
		if len(w.view.Instances) == 0 || r.IntN(4) == 0 {
			if w.view.Now += time.Second; until != 0 && r.IntN(2) == 0 {
				w.view.Now = max(w.view.Now, until)
			}
			continue
		}
		switch k := r.IntN(len(w.view.Instances)); w.view.Instances[k].Health {
		case roll.Starting:
			switch {
			case r.IntN(20) == 0:
				w.scaleDown(k)
			case crashes > 0 && r.IntN(2) == 0:
				crashes--
				w.end(k)
			case crashes > 0 && r.IntN(2) == 0:
				crashes--
				w.becomeUnhealthy(k)
			default:
				w.becomeReady(k)
			}
		case roll.Ready:
			switch {
			case crashes > 0 && r.IntN(3) == 0:
				crashes--
				w.end(k)
			case crashes > 0 && r.IntN(4) == 0:
				crashes--
				w.becomeUnhealthy(k)
			case r.IntN(20) == 0:
				w.scaleDown(k)
			// As the restart policy does, start an instance of the old version again after its
			// failure.
			case w.view.Instances[k].Version == roll.Old && !w.config.OnlyForward && r.IntN(10) == 0:
				w.restart(k)
			}
		default:
			w.end(k)
		}
	}
	w.settle()
	// From here on, no instance crashes. So if a user resumes a paused roll, it must end.
	if w.state.Paused {
		w.note("resume")
		resumed := *w
		resumed.state = w.state.Resume(w.config, w.view)
		resumed.config.ProgressDeadline = 0
		if resumed.settle(); !resumed.state.Phase.Ended() || len(resumed.broken) > 0 {
			w.broken = append(resumed.broken, "does not end after Resume: "+fmt.Sprintf("%+v %+v", resumed.state, resumed.view))
			w.log = resumed.log
		}
		return
	}
	w.check()
}

// check checks the instances of the group after the roll has ended.
func (w *world) check() {
	oldest, newest, c := w.count(of(roll.Old)), w.count(of(roll.New)), w.config
	switch good := w.count(w.available); w.state.Phase {
	case roll.Done:
		if oldest != 0 || newest != c.Desired || good != c.Desired {
			w.breach("done with %d old and %d new, %d available", oldest, newest, good)
		}
	case roll.RolledBack:
		if oldest != c.Desired || newest != 0 || good != c.Desired {
			w.breach("rolled back with %d old and %d new, %d available", oldest, newest, good)
		}
	case roll.Degraded:
		if g := w.state.GivenUp; g == 0 || c.OnFailure != roll.Continue || newest != max(0, c.Desired-g) || oldest > g || newest+w.scaledDown == 0 && !c.OnlyForward {
			w.breach("degraded by %d with %d old and %d new", g, oldest, newest)
		}
	}
}
