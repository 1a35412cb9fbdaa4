package roll_test

import (
	"testing"
	"time"

	"github.com/swansong-go/swansong/launcher/internal/roll"
)

// The test calls Keep for every small group in every state. Keep must respect MinHealthy and
// MaxSurge and end with the desired number of instances. While the roll is paused, Keep must not
// stop any instance.
func TestKeep_RespectsMinHealthyAndMaxSurgeFromEveryState(t *testing.T) {
	everyConfig(func(c roll.Config) {
		c.MinReady = time.Second
		for _, paused := range []bool{false, true} {
			everyGroup(c.Desired+c.MaxSurge+1, func(v roll.View) { keep(t, c, v, paused) })
		}
	})
}

// everyGroup calls f with every group of at most the given number of instances, each of which is
// starting, newly ready, available or stopping. The order of the instances is ignored.
func everyGroup(most int, f func(roll.View)) {
	if most > 5 {
		most = 5
	}
	for starting := range most + 1 {
		for ready := range most + 1 - starting {
			for available := range most + 1 - starting - ready {
				for stopping := range most + 1 - starting - ready - available {
					v := roll.View{Now: time.Hour}
					add := func(n int, h roll.Health, since time.Duration) {
						for range n {
							v.Instances = append(v.Instances, roll.Instance{ID: string(rune('a' + len(v.Instances))),
								Version: roll.Version(len(v.Instances) % 2), Health: h, Since: since})
						}
					}
					add(stopping, roll.Stopping, 0)
					add(available, roll.Ready, 0)
					add(ready, roll.Ready, v.Now)
					add(starting, roll.Starting, 0)
					f(v)
				}
			}
		}
	}
}

func keep(t *testing.T, c roll.Config, v roll.View, paused bool) {
	t.Helper()
	w := &world{config: c, view: v}
	begun := w.count(func(i roll.Instance) bool { return i.Health != roll.Stopping })
	for range maxActions {
		a := roll.Keep(c, w.view, paused)
		switch a.Do {
		case roll.Start:
			w.add(roll.Old, roll.Starting)
			if n := len(w.view.Instances); n > c.Desired+c.MaxSurge {
				t.Fatalf("%+v %+v: %d exist after a start", c, v, n)
			}
		case roll.Stop:
			for k := range w.view.Instances {
				i := &w.view.Instances[k]
				if i.ID != a.ID {
					continue
				}
				was := i.Health
				i.Health = roll.Stopping
				if n := w.count(w.available); was == roll.Ready && n < c.MinHealthy || paused {
					t.Fatalf("%+v %+v, paused %v: %d are available after the stop of %s", c, v, paused, n, i.ID)
				}
			}
		case roll.Wait:
			moved := false
			for k := len(w.view.Instances) - 1; k >= 0; k-- {
				switch w.view.Instances[k].Health {
				case roll.Starting:
					w.becomeReady(k)
					moved = true
				case roll.Stopping:
					w.end(k)
					moved = true
				}
			}
			if w.view.Now += time.Minute; moved {
				continue
			}
			if a := roll.Keep(c, w.view, paused); a.Do != roll.Wait {
				continue // enough time has passed that newly ready instances count as available
			}
			want := c.Desired
			if paused {
				want = max(want, begun)
			}
			if len(w.view.Instances) != want {
				t.Fatalf("%+v %+v, paused %v: ends with %d, want %d", c, v, paused, len(w.view.Instances), want)
			}
			return
		}
	}
	t.Fatalf("%+v %+v, paused %v: does not end", c, v, paused)
}

// The wait for canaries ends when as many instances as there are canaries have been available for
// CanaryWait.
func TestCanaryUntil_ReturnsTimeAtWhichCanaryWaitEnds(t *testing.T) {
	c := roll.Config{Desired: 4, MaxSurge: 1, MinReady: time.Minute, Canary: 2, CanaryWait: time.Hour}
	canaries := []roll.Instance{
		{ID: "late", Version: roll.New, Health: roll.Ready, Since: 9 * time.Minute},
		{ID: "early", Version: roll.New, Health: roll.Ready, Since: 2 * time.Minute},
		{ID: "second", Version: roll.New, Health: roll.Ready, Since: 5 * time.Minute},
		{ID: "not yet", Version: roll.New, Health: roll.Ready, Since: 10 * time.Minute},
		{ID: "old", Health: roll.Ready},
	}
	for _, test := range []struct {
		name      string
		state     roll.State
		instances []roll.Instance
		want      time.Duration
	}{
		{"the second of four", roll.State{Phase: roll.Canary}, canaries, time.Hour + 6*time.Minute},
		{"paused", roll.State{Phase: roll.Canary, Paused: true}, canaries, 0},
		{"wait is over", roll.State{Phase: roll.Rolling}, canaries, 0},
		{"too few", roll.State{Phase: roll.Canary}, canaries[2:], 0},
	} {
		at, ok := test.state.CanaryUntil(c, roll.View{Now: 10*time.Minute + time.Second, Instances: test.instances})
		if at != test.want || ok != (test.want > 0) {
			t.Errorf("%s: %v, %v, want %v", test.name, at, ok, test.want)
		}
	}
}

// An instance that is ready but not available is stopped before one that is available, but not if
// fewer than MinHealthy are available.
func TestKeep_StopsNewlyReadyBeforeAvailableInstances(t *testing.T) {
	v := roll.View{Now: time.Hour, Instances: []roll.Instance{
		{ID: "available", Health: roll.Ready},
		{ID: "newly ready", Version: roll.New, Health: roll.Ready, Since: time.Hour},
	}}
	c := roll.Config{Desired: 1, MinHealthy: 1, MaxSurge: 1, MinReady: time.Minute}
	if a := roll.Keep(c, v, false); a.ID != "newly ready" {
		t.Errorf("stops %q", a.ID)
	}
	v.Instances[0].Health = roll.Stopping
	v.Instances = append(v.Instances, roll.Instance{ID: "another", Version: roll.New, Health: roll.Ready, Since: time.Hour})
	if a := roll.Keep(c, v, false); a.Do == roll.Stop {
		t.Errorf("stops %q although none is available", a.ID)
	}
}

// Of the surplus instances, Keep first stops the least useful one, and of equally useful ones the
// youngest.
func TestKeep_StopsLeastUsefulSurplusInstanceFirst(t *testing.T) {
	v := roll.View{Now: time.Hour, Instances: []roll.Instance{
		{ID: "old", Health: roll.Ready},
		{ID: "first", Version: roll.New, Health: roll.Ready},
		{ID: "second", Version: roll.New, Health: roll.Ready},
		{ID: "starting", Version: roll.New},
	}}
	for _, want := range []string{"starting", "old", "second"} {
		a := roll.Keep(roll.Config{Desired: 1, MinHealthy: 1, MaxSurge: 3}, v, false)
		if a.ID != want {
			t.Fatalf("stops %q, want %q", a.ID, want)
		}
		for k := range v.Instances {
			if v.Instances[k].ID == want {
				v.Instances[k].Health = roll.Stopping
			}
		}
	}
}
