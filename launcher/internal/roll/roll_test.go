package roll_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/swansong-go/swansong/launcher/internal/roll"
)

// says compares what has happened in a world, since it was last asked, with what should have.
func (w *world) says(t *testing.T, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, w.log); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(w.broken) > 0 {
		t.Errorf("broken: %s", strings.Join(w.broken, "; "))
	}
	w.log = nil
}

// at returns where an instance is listed.
func (w *world) at(id string) int {
	for k, i := range w.view.Instances {
		if i.ID == id {
			return k
		}
	}
	panic("there is no " + id)
}

func (w *world) isReady(id string)     { w.becomeReady(w.at(id)); w.act() }
func (w *world) isUnhealthy(id string) { w.becomeUnhealthy(w.at(id)); w.act() }
func (w *world) ends(id string)        { w.end(w.at(id)); w.act() }

func begin(c roll.Config, old int) *world {
	w := newWorld(c, old)
	w.act()
	return w
}

func TestStartsBeforeItStops(t *testing.T) {
	w := begin(roll.Config{Desired: 2, MinHealthy: 2, MaxSurge: 1}, 2)
	w.says(t, "0s start new")
	w.isReady("new-3")
	w.says(t, "0s new-3 is ready", "0s stop old-1: replaced")
	w.ends("old-1")
	w.says(t, "0s old-1 has ended", "0s start new")
	w.isReady("new-4")
	w.says(t, "0s new-4 is ready", "0s stop old-2: replaced")
	w.ends("old-2")
	w.says(t, "0s old-2 has ended", "0s done paused=false given up=0: ")
}

func TestCountsWhatIsStopping(t *testing.T) {
	w := begin(roll.Config{Desired: 2, MinHealthy: 1, MaxSurge: 1}, 2)
	w.isReady("new-3") // both old ones may be stopped but one
	w.says(t, "0s start new", "0s stop old-1: replaced", "0s new-3 is ready", "0s stop old-2: replaced")
	if w.state.Phase.Ended() {
		t.Error("over, while old ones are still stopping")
	}
}

func TestWithoutSurgeStopsBeforeItStarts(t *testing.T) {
	w := begin(roll.Config{Desired: 3, MinHealthy: 2}, 3)
	w.says(t, "0s stop old-1: replaced")
	w.ends("old-1")
	w.says(t, "0s old-1 has ended", "0s start new")
	w.isReady("new-4")
	w.says(t, "0s new-4 is ready", "0s stop old-2: replaced")
}

func TestSurgeOfMany(t *testing.T) {
	w := begin(roll.Config{Desired: 3, MinHealthy: 3, MaxSurge: 3}, 3)
	w.says(t, "0s start new", "0s start new", "0s start new")
	w.isReady("new-5")
	w.says(t, "0s new-5 is ready", "0s stop old-1: replaced")
}

// Two could go at once. The second stop is decided on what is there when its turn comes.
func TestLooksAgainBeforeEveryStop(t *testing.T) {
	c := roll.Config{Desired: 3, MinHealthy: 1, MaxSurge: 1}
	w := newWorld(c, 3)
	var action roll.Action
	w.state, action = roll.Next(c, w.state, w.view)
	w.add(action.Version, roll.Starting)
	w.state, action = roll.Next(c, w.state, w.view)
	if diff := cmp.Diff(roll.Action{Do: roll.Stop, ID: "old-1", Why: "replaced"}, action); diff != "" {
		t.Fatal(diff)
	}
	w.view.Instances[0].Health = roll.Stopping
	w.end(w.at("old-2")) // between the two
	w.state, action = roll.Next(c, w.state, w.view)
	if diff := cmp.Diff(roll.Action{Do: roll.Start, Version: roll.New}, action); diff != "" {
		t.Errorf("the last ready one is stopped, or none is started (-want +got):\n%s", diff)
	}
}

func TestOldOnesThatNeverBecomeReadyDoNotBlock(t *testing.T) {
	c := roll.Config{Desired: 3, MinHealthy: 2}
	w := newWorld(c, 1)
	w.add(roll.Old, roll.Starting)
	w.add(roll.Old, roll.Starting)
	w.act()
	w.says(t, "0s stop old-2: replaced")
	w.ends("old-2")
	w.says(t, "0s old-2 has ended", "0s start new")
	w.isReady("new-4")
	w.says(t, "0s new-4 is ready", "0s stop old-3: replaced")
}

// While the new one has yet to prove itself, the old ones that are about to come back are all there is.
func TestOldOnesAboutToBecomeReadyAreSpared(t *testing.T) {
	w := newWorld(roll.Config{Desired: 2, MinHealthy: 2, MaxSurge: 1}, 0)
	w.add(roll.Old, roll.Starting)
	w.add(roll.Old, roll.Starting)
	w.act()
	w.says(t, "0s start new")
	w.isReady("old-1")
	w.isReady("old-2")
	w.says(t, "0s old-1 is ready", "0s old-2 is ready")
}

func TestMinReady(t *testing.T) {
	w := begin(roll.Config{Desired: 1, MinHealthy: 1, MaxSurge: 1, MinReady: 5 * time.Second}, 1)
	w.view.Now += time.Second
	w.becomeReady(w.at("new-2"))
	if until := w.act(); until != 11*time.Second {
		t.Errorf("waits until %v, and it is ready for 5s at 11s", until)
	}
	w.says(t, "5s start new", "6s new-2 is ready")
	w.view.Now += 5*time.Second - 1
	w.act()
	w.says(t)
	w.view.Now++
	w.act()
	w.says(t, "11s stop old-1: replaced")
}

func TestPausesByDefault(t *testing.T) {
	w := begin(roll.Config{Desired: 2, MinHealthy: 1, MaxSurge: 1}, 2)
	w.says(t, "0s start new", "0s stop old-1: replaced")
	w.isUnhealthy("new-3")
	w.says(t, "0s new-3 is unhealthy", "0s rolling paused=true given up=0: failures of new instances in a row: 1", "0s stop new-3: unhealthy")
	w.ends("new-3")
	w.ends("old-1")
	w.says(t, "0s new-3 has ended", "0s old-1 has ended")

	w.state = w.state.Resume(w.config, w.view)
	w.settle()
	if w.state.Phase != roll.Done {
		t.Errorf("resumed, it is %v", w.state.Phase)
	}
}

func TestRollback(t *testing.T) {
	w := begin(roll.Config{Desired: 2, MinHealthy: 2, MaxSurge: 1, OnFailure: roll.Rollback}, 2)
	w.isReady("new-3")
	w.ends("old-1")
	w.log = nil
	w.ends("new-4") // one is replaced, the second replacement fails
	w.says(t, "0s new-4 crashes", "0s rolling back paused=false given up=0: failures of new instances in a row: 1", "0s start old")
	w.isReady("old-5")
	w.says(t, "0s old-5 is ready", "0s stop new-3: replaced")
	w.ends("new-3")
	w.says(t, "0s new-3 has ended", "0s rolled back paused=false given up=0: failures of new instances in a row: 1")
}

func TestARollbackThatFailsIsPaused(t *testing.T) {
	w := begin(roll.Config{Desired: 1, OnFailure: roll.Rollback}, 1)
	w.ends("old-1")
	w.ends("new-2")
	w.log = nil
	w.ends("old-3")
	w.says(t, "0s old-3 crashes", "0s rolling back paused=true given up=0: failures of old instances in a row: 1")
}

func TestRollbackByOrder(t *testing.T) {
	w := begin(roll.Config{Desired: 2, MinHealthy: 1, MaxSurge: 1}, 2)
	w.isReady("new-3")
	w.state = w.state.Rollback(w.config, w.view, "by order")
	w.settle()
	if w.state.Phase != roll.RolledBack || w.state.Why != "by order" || w.count(of(roll.New)) != 0 {
		t.Errorf("%+v", w.state)
	}
	over := w.state
	if again := over.Rollback(w.config, w.view, "again"); again != over || over.Resume(w.config, w.view) != over {
		t.Error("what is over is begun anew")
	}
}

func TestContinueLeavesAnOldOneForEachFailure(t *testing.T) {
	w := begin(roll.Config{Desired: 3, MinHealthy: 3, MaxSurge: 1, OnFailure: roll.Continue}, 3)
	w.ends("new-4")
	w.says(t, "0s start new", "0s new-4 crashes", "0s rolling paused=false given up=1: failures of new instances in a row: 1", "0s start new")
	w.settle()
	if w.state.Phase != roll.Degraded || w.count(of(roll.Old)) != 1 || w.count(of(roll.New)) != 2 {
		t.Errorf("%v with %+v", w.state.Phase, w.view.Instances)
	}
}

// Where all have failed, there is nobody to go on with.
func TestContinueTurnsBackWhenNothingSucceeds(t *testing.T) {
	w := begin(roll.Config{Desired: 3, MinHealthy: 2, OnFailure: roll.Continue}, 3)
	w.ends("old-1")
	w.ends("new-4")
	w.ends("new-5")
	w.ends("new-6")
	if w.state.Phase != roll.RollingBack || w.count(ready) != 2 {
		t.Errorf("%v with %+v", w.state.Phase, w.view.Instances)
	}
	w.settle()
	if w.state.Phase != roll.RolledBack || w.count(of(roll.Old)) != 3 {
		t.Errorf("%v with %+v", w.state.Phase, w.view.Instances)
	}
}

// Where one has done what it was there for, that shows that it works: the others have not failed all. Nor have they where there is
// nobody left to replace.
func TestContinueGoesOnWhereOneIsThrough(t *testing.T) {
	w := begin(roll.Config{Desired: 3, MinHealthy: 3, MaxSurge: 1, OnFailure: roll.Continue}, 3)
	w.complete(w.at("new-4"))
	w.act()
	w.ends("old-1")
	w.ends("new-5")
	w.ends("new-6")
	w.settle()
	if w.state.Phase != roll.Degraded || w.count(of(roll.Old)) != 2 || len(w.broken) > 0 {
		t.Errorf("%v with %+v: %s\n%s", w.state.Phase, w.view.Instances, w.broken, strings.Join(w.log, "\n"))
	}

	w = begin(roll.Config{Desired: 1, MinHealthy: 1, MaxSurge: 1, OnFailure: roll.Continue}, 1)
	w.fewer(w.at("old-1"))
	w.ends("new-2")
	if w.state.Phase == roll.RollingBack {
		t.Error("it turns back for nobody")
	}
}

// Where the old one that is left in a place is to stop, and nobody to follow, the place is gone, and not another one besides.
func TestOneFewerOfWhoIsLeft(t *testing.T) {
	w := begin(roll.Config{Desired: 3, MinHealthy: 2, MaxSurge: 1, OnFailure: roll.Continue}, 3)
	w.ends("new-4")
	w.ends("old-1")
	w.isReady("new-5")
	w.isReady("new-6")
	w.fewer(w.at("old-3")) // while old-2 is still stopping
	w.log = nil
	w.act()
	w.ends("old-3")
	w.ends("old-2")
	w.says(t, "0s old-3 has ended", "0s old-2 has ended", "0s done paused=false given up=0: failures of new instances in a row: 1")

	// As long as there are more of them, it is one that was yet to be replaced.
	w = begin(roll.Config{Desired: 3, MinHealthy: 3, MaxSurge: 1, OnFailure: roll.Continue}, 3)
	w.ends("new-4")
	w.fewer(w.at("old-1"))
	if w.settle(); w.state.Phase != roll.Degraded || w.count(of(roll.Old)) != 1 || w.count(of(roll.New)) != 1 {
		t.Errorf("%v with %+v", w.state.Phase, w.view.Instances)
	}
}

func TestRetries(t *testing.T) {
	w := begin(roll.Config{Desired: 1, MinHealthy: 1, MaxSurge: 1, Retries: 3, Backoff: time.Second, MaxBackoff: 3 * time.Second}, 1)
	w.ends("new-2")
	w.says(t, "0s start new", "0s new-2 crashes")
	for _, at := range []time.Duration{1 * time.Second, 3 * time.Second, 6 * time.Second} { // after 1, 2, and not more than 3
		if until := w.act(); until != at {
			t.Fatalf("waits until %v, not %v", until, at)
		}
		w.view.Now = at
		w.act()
		w.says(t, at.String()+" start new")
		w.ends(w.view.Instances[1].ID)
		w.log = w.log[1:]
	}
	w.says(t, "6s rolling paused=true given up=0: failures of new instances in a row: 4")
}

func TestASuccessEndsTheRow(t *testing.T) {
	w := begin(roll.Config{Desired: 2, MinHealthy: 2, MaxSurge: 1, Retries: 1}, 2)
	w.ends("new-3")
	w.isReady("new-4")
	w.ends("old-1")
	w.ends("new-5")
	if w.state.Paused {
		t.Errorf("one failure after a success: %s", w.state.Why)
	}
}

func TestCanary(t *testing.T) {
	c := roll.Config{Desired: 3, MinHealthy: 3, MaxSurge: 2, Canary: 1, CanaryWait: time.Minute, ProgressDeadline: 10 * time.Second}
	w := begin(c, 3)
	w.isReady("new-4")
	w.ends("old-1")
	w.says(t, "0s start new", "0s new-4 is ready", "0s stop old-1: replaced", "0s old-1 has ended")
	w.view.Now = time.Minute - 1 // the wait is no stall
	w.act()
	w.says(t)
	w.view.Now++
	w.act()
	w.says(t, "1m0s rolling paused=false given up=0: ", "1m0s start new", "1m0s start new")
}

// Where no old instance can be started, a new one takes the place of each that is lost while canaries are waited for. It is
// no canary: the wait is not made longer by it.
func TestCanary_OnlyForward(t *testing.T) {
	c := roll.Config{Desired: 3, MinHealthy: 2, MaxSurge: 1, Canary: 1, CanaryWait: time.Minute, OnlyForward: true}
	w := begin(c, 3)
	w.isReady("new-4")
	w.ends("old-1")
	w.says(t, "0s start new", "0s stop old-1: replaced", "0s new-4 is ready", "0s old-1 has ended")
	w.view.Now = 10 * time.Second
	w.ends("old-2")
	w.says(t, "10s old-2 crashes", "10s start new")
	w.isReady("new-5")
	w.isUnhealthy("old-3")
	w.says(t, "10s new-5 is ready", "10s old-3 is unhealthy", "10s start new", "10s stop old-3: replaced")
	w.isReady("new-6")
	w.ends("old-3")
	w.says(t, "10s new-6 is ready", "10s old-3 has ended")
	if at, ok := w.state.CanaryUntil(c, w.view); at != time.Minute || !ok {
		t.Errorf("canaries are waited for until %v, %v", at, ok)
	}
	w.view.Now = time.Minute
	w.act()
	w.says(t, "1m0s done paused=false given up=0: ")
}

func TestACanaryThatFailsHoldsUpTheOthers(t *testing.T) {
	w := begin(roll.Config{Desired: 3, MinHealthy: 3, MaxSurge: 1, Canary: 1, CanaryWait: time.Minute, OnFailure: roll.Continue}, 3)
	w.isReady("new-4")
	w.log = nil
	w.ends("new-4")
	w.says(t, "0s new-4 crashes", "0s canary paused=true given up=0: failures of new instances in a row: 1")
}

func TestProgressDeadline(t *testing.T) {
	w := begin(roll.Config{Desired: 2, MinHealthy: 2, MaxSurge: 1, ProgressDeadline: 10 * time.Second}, 2)
	w.view.Now = 9 * time.Second
	w.isReady("new-3") // progress
	w.view.Now = 18 * time.Second
	w.act()
	w.log = nil
	if until := w.act(); until != 19*time.Second {
		t.Errorf("waits until %v", until)
	}
	w.view.Now = 19 * time.Second // old-1 does not end
	w.act()
	w.says(t, "19s rolling paused=true given up=0: nothing has got better for 10s")
}

func TestScalesOnTheWay(t *testing.T) {
	for _, desired := range []int{0, 2, 5} {
		w := begin(roll.Config{Desired: desired, MaxSurge: 1}, 3)
		w.settle()
		if len(w.broken) > 0 || w.state.Phase != roll.Done || len(w.view.Instances) != desired {
			t.Errorf("from 3 to %d: %v, %v", desired, w.state.Phase, w.broken)
		}
	}
}

func TestValidate(t *testing.T) {
	for _, c := range []struct {
		name   string
		config roll.Config
		want   []string // a piece of each error
	}{
		{"an empty group", roll.Config{}, nil},
		{"stop first", roll.Config{Desired: 3, MinHealthy: 2}, nil},
		{"no way", roll.Config{Desired: 3, MinHealthy: 3}, []string{"no way to replace"}},
		{"all at once", roll.Config{Desired: -1, MinHealthy: 1, MaxSurge: -1, Canary: 7, OnFailure: 9, Retries: -1, MinReady: -1},
			[]string{"Desired is -1", "MaxSurge is -1", "MinHealthy is 1", "no way to replace", "Canary is 7", "OnFailure is 9", "Retries is -1", "duration"}},
		{"less than nothing", roll.Config{Desired: 2, MinHealthy: -1, Canary: -1, OnFailure: -1}, []string{"MinHealthy is -1", "Canary is -1", "OnFailure is -1"}},
		{"surge for all", roll.Config{Desired: 3, MinHealthy: 3, MaxSurge: 1}, nil},
		{"no way back", roll.Config{Desired: 3, MinHealthy: 2, OnlyForward: true, OnFailure: roll.Rollback}, []string{"leaves no way back"}},
		{"never in time", roll.Config{MinReady: 2, ProgressDeadline: 1}, []string{"not longer than MinReady"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.config.Validate()
			var got []string
			if err != nil {
				got = strings.Split(err.Error(), "\n")
			}
			if len(got) != len(c.want) {
				t.Fatalf("%d errors, not %d: %v", len(got), len(c.want), err)
			}
			for k, want := range c.want {
				if !strings.Contains(got[k], want) {
					t.Errorf("%q does not say %q", got[k], want)
				}
			}
		})
	}
}

func TestBackoffDoesNotOverflow(t *testing.T) {
	const forever = 1<<63 - 1
	w := begin(roll.Config{Desired: 1, MaxSurge: 1, MinHealthy: 1, Retries: 200, Backoff: time.Hour, MaxBackoff: forever - 1<<40}, 1)
	w.view.Failures[roll.New] += 100
	w.view.Instances = w.view.Instances[:1]
	if until := w.act(); until <= w.view.Now {
		t.Errorf("waits until %v", until)
	}
}

// A canary that has done what it was there for is not waited for, and not run again: there is one fewer to replace.
func TestACanaryThatIsThrough(t *testing.T) {
	w := begin(roll.Config{Desired: 2, MinHealthy: 2, MaxSurge: 1, Canary: 1, CanaryWait: time.Minute}, 2)
	w.isReady("new-3")
	w.log = nil
	w.complete(w.at("new-3"))
	if at, ok := w.state.CanaryUntil(w.config, w.view); ok {
		t.Errorf("it is waited for until %v", at)
	}
	w.act()
	w.says(t, "0s new-3 is through", "0s rolling paused=false given up=0: ")
	w.settle()
	if w.state.Phase != roll.Done || w.count(of(roll.Old)) != 0 || w.count(of(roll.New)) != 1 {
		t.Errorf("%v with %+v", w.state.Phase, w.view.Instances)
	}
}

// The end of one that is through is progress.
func TestWhoIsThroughIsProgress(t *testing.T) {
	w := begin(roll.Config{Desired: 3, MaxSurge: 0, MinReady: time.Hour, ProgressDeadline: time.Hour + time.Minute}, 0)
	for range 3 {
		w.view.Now += time.Hour
		w.act()
		w.complete(0)
	}
	w.act()
	if w.state.Phase != roll.Done {
		t.Errorf("%v, paused %v: %s", w.state.Phase, w.state.Paused, w.state.Why)
	}
}
