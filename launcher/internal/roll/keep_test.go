package roll_test

import (
	"testing"
	"time"

	"github.com/swansong-go/swansong/launcher/internal/roll"
)

// TestKeep looks at every small group in every state: Keep never takes away what has to be there, never adds what there is
// no room for, and comes to an end with as many as are desired, unless it is not to stop anybody.
func TestKeep(t *testing.T) {
	everyConfig(func(c roll.Config) {
		c.MinReady = time.Second
		for _, paused := range []bool{false, true} {
			everyGroup(c.Desired+c.MaxSurge+1, func(v roll.View) { keep(t, c, v, paused) })
		}
	})
}

// everyGroup calls f with all groups of up to so many, but for their order: starting, just ready, available and stopping.
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
	for range endless {
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
				continue // what was ready is available now
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
	t.Fatalf("%+v %+v, paused %v: does not come to an end", c, v, paused)
}

// The canaries have been waited for when so many of them have been available for long, whichever these are.
func TestCanaryUntil(t *testing.T) {
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
		{"waited for already", roll.State{Phase: roll.Rolling}, canaries, 0},
		{"one too few", roll.State{Phase: roll.Canary}, canaries[2:], 0},
	} {
		at, ok := test.state.CanaryUntil(c, roll.View{Now: 10*time.Minute + time.Second, Instances: test.instances})
		if at != test.want || ok != (test.want > 0) {
			t.Errorf("%s: %v, %v, want %v", test.name, at, ok, test.want)
		}
	}
}

// One that is ready, and has not been for long enough to be counted on, goes before one that has, and before those that are
// needed.
func TestTheNewlyReadyGoesFirst(t *testing.T) {
	v := roll.View{Now: time.Hour, Instances: []roll.Instance{
		{ID: "counted on", Health: roll.Ready},
		{ID: "newly ready", Version: roll.New, Health: roll.Ready, Since: time.Hour},
	}}
	c := roll.Config{Desired: 1, MinHealthy: 1, MaxSurge: 1, MinReady: time.Minute}
	if a := roll.Keep(c, v, false); a.ID != "newly ready" {
		t.Errorf("%q goes", a.ID)
	}
	v.Instances[0].Health = roll.Stopping
	v.Instances = append(v.Instances, roll.Instance{ID: "another", Version: roll.New, Health: roll.Ready, Since: time.Hour})
	if a := roll.Keep(c, v, false); a.Do == roll.Stop {
		t.Errorf("%q goes, and nobody can be counted on yet", a.ID)
	}
}

// Of those that are too many, the ones that are of least use go first, and of equals the youngest.
func TestWhoGoesFirst(t *testing.T) {
	v := roll.View{Now: time.Hour, Instances: []roll.Instance{
		{ID: "old", Health: roll.Ready},
		{ID: "first", Version: roll.New, Health: roll.Ready},
		{ID: "second", Version: roll.New, Health: roll.Ready},
		{ID: "starting", Version: roll.New},
	}}
	for _, want := range []string{"starting", "old", "second"} {
		a := roll.Keep(roll.Config{Desired: 1, MinHealthy: 1, MaxSurge: 3}, v, false)
		if a.ID != want {
			t.Fatalf("%q goes, and not %q", a.ID, want)
		}
		for k := range v.Instances {
			if v.Instances[k].ID == want {
				v.Instances[k].Health = roll.Stopping
			}
		}
	}
}
